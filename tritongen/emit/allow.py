"""The last check before text becomes a file or an import: every node of a generated module is one that we print.

Text from a stranger's spec reaches the output only as names, numbers and quoted strings. If that ever fails, this check
finds the import, the call, the name or the attribute that no template holds.

    torch.softmax(x, -1)        # `torch.softmax` is listed
    x.reshape(-1)               # `x` is a parameter, `reshape` a method that we call
    torch.os.system("id")       # refused: `torch.os.system` is not listed
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Set
from functools import cache

from tritongen.emit import library, walked
from tritongen.ir.dtypes import DTYPES
from tritongen.ir.functions import FUNCTIONS
from tritongen.ir.reducers import REDUCERS
from tritongen.syntax.ref import is_torch_function

BARE_CALLS = {
    "range", "float", "min", "max", "isinstance", "type", "tuple", "str", "dict", "getattr", "ValueError", "len",
    "slice", "int", "bool", "abs", "all", "any", "sum", "zip", "enumerate", "list", "reversed", "sorted",
}  # fmt: skip
BUILTINS = frozenset(dir(builtins)) - BARE_CALLS - {"RuntimeError"}  # of these none may be read
NODES = frozenset("""
    AnnAssign Assign Attribute AugAssign BinOp BoolOp Call Compare Constant Dict ExceptHandler Expr For FormattedValue
    FunctionDef GeneratorExp If IfExp JoinedStr List ListComp Name Pass Raise Return Slice Starred Subscript Try Tuple
    UnaryOp With arg arguments keyword withitem
""".split())  # fmt: skip
# Nodes of which only the parts are looked at.
PLAIN = NODES - {"Attribute", "Call", "FunctionDef", "GeneratorExp", "ListComp", "Name", "arg"}
# Names that a module may use, with the allowed attributes of each. The rows of `ir/functions.py` add their own.
ROOTS = frozenset("torch tl triton libdevice math lib runtime".split())
LISTED = frozenset(
    f"{root}.{name}"
    for root, names in {
        "torch": """Tensor are_deterministic_algorithms_enabled as_tensor broadcast_shapes contiguous_format cuda.device_of
            dtype empty empty_like iinfo uint8""",
        "tl": """PropagateNan.ALL abs arange associative_scan assume atomic_add atomic_max atomic_min broadcast_to cast constexpr
            cumprod cumsum debug_barrier dot exp2 full join load log max max_contiguous maximum min minimum multiple_of
            num_programs program_id range reduce split static_range store sum trans where zeros""",
        "triton": "Config autotune cdiv jit next_power_of_2",
        "math": "gcd prod",
        "runtime": "Backward Batch f32_precision op",
    }.items()
    for name in names.split()
) | {f"torch.{d.torch}" for d in DTYPES.values()} | {f"tl.{d.triton}" for d in DTYPES.values()}  # fmt: skip
# Attributes of values: of a tensor, a descriptor, a GPU, a kernel.
METHODS = frozenset("""
    T append clamp clone detach device dim dtype element_size element_ty expand flatten flip fn forward_progress get
    is_contiguous is_floating_point load long mT max min movedim nbytes new_full numel permute reshape shape shared sms
    start stop store stride to unflatten values view zero_
""".split()).union(row.torch for row in REDUCERS.values())  # fmt: skip


class NotAllowed(RuntimeError):
    """Generated text holds something that the generator never prints: a bug, or an attack."""


def walk(source: str) -> None:
    """Raises NotAllowed unless every node of a module's ops, functions all, is on the list."""
    tree = walked.parsed(source)
    functions = [n.name for n in walked.walk(tree) if isinstance(n, ast.FunctionDef)]
    alike = walked.alike(tree)
    own = {*functions, *alike}
    tops = [*(n.name for n in tree.body if isinstance(n, ast.FunctionDef)), *alike]
    if twice := sorted(n for n in own if tops.count(n) > 1):
        raise NotAllowed(f"two functions are called {twice[0]}: rename one of the ops")
    for top in tree.body:
        match top:
            case ast.FunctionDef():
                _walk(top, own)
            case ast.Assign([ast.Name(name)]) if alike.get(name) in own:
                pass
            case _:
                raise _refused(top)


def check_docstring(text: str) -> None:
    """Raises NotAllowed unless the text is a string and nothing else."""
    match ast.parse(text).body:
        case [ast.Expr(ast.Constant(str()))]:
            return
    raise NotAllowed("the docstring of the module is more than that")


def _refused(node: ast.AST) -> NotAllowed:
    shown = ast.unparse(node)[:80] if isinstance(node, (ast.expr, ast.stmt)) else repr(node)
    return NotAllowed(f"line {getattr(node, 'lineno', '?')}: {shown}")


def _walk(function: ast.FunctionDef, own: Set[str]) -> None:
    waiting: list[tuple[ast.AST, Set[str]]] = [(function, frozenset())]
    while waiting:
        node, bound = waiting.pop()
        if node.__class__.__name__ in PLAIN:
            waiting += [(child, bound) for child in walked.children(node)]
            continue
        if not _allowed(node, bound, own):
            raise _refused(node)
        waiting += _inside(node, bound)


def _inside(node: ast.AST, bound: Set[str]) -> Iterator[tuple[ast.AST, Set[str]]]:
    """The parts of a node, each with the names that are bound there. In the head of a function none of its own names is bound."""
    match node:
        case ast.FunctionDef():
            inner = bound | _binds(node)
            for child in walked.children(node):
                yield child, inner if isinstance(child, ast.stmt) else bound
        case ast.GeneratorExp(element, generators) | ast.ListComp(element, generators):
            targets = (name for g in generators for name in walked.names(g.target))
            inner = bound | {n.id for n in targets}
            yield element, inner
            for k, part in enumerate(generators):
                yield from ((child, inner) for child in (part.target, *part.ifs))
                yield part.iter, inner if k else bound
        case ast.Call(func=function, args=args, keywords=keywords) if _path(function, bound):
            yield from ((child, bound) for child in (*args, *keywords))
        case ast.Attribute() if _path(node, bound):
            return
        case _:
            yield from ((child, bound) for child in walked.children(node))


def _binds(function: ast.FunctionDef) -> set[str]:
    """The local names of a function."""
    found = {a.arg for a in walked.walk(function.args) if isinstance(a, ast.arg)}
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        match node := waiting.pop():
            case ast.Name(name, ast.Store()) | ast.FunctionDef(name):
                found.add(name)
            case ast.Lambda() | ast.GeneratorExp() | ast.ListComp():
                pass
            case _:
                waiting += walked.children(node)
    return found


def _path(node: ast.AST, bound: Set[str]) -> str:
    """The dotted path of a module's function, such as `torch.nn.functional.gelu`. "" for an attribute of a value."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in ROOTS and node.id not in bound:
        return ".".join([node.id, *reversed(names)])
    return ""


def _allowed(node: ast.AST, bound: Set[str], own: Set[str]) -> bool:
    match node:
        case ast.Name(id=name):
            return not name.startswith("__") and (name in bound or name not in BUILTINS)
        case ast.arg(arg=name):
            return not name.startswith("__")
        case ast.Attribute(attr=name):
            path = _path(node, bound)
            return _is_listed(path) if path else name in METHODS
        case ast.Call(func=ast.Name(id=name), args=args):
            if name == "getattr":
                return isinstance(args[0], ast.Name) and args[0].id == "tl"
            return name in BARE_CALLS or name in own
        case ast.Call(func=function) if path := _path(function, bound):
            return _is_listed(path) or is_torch_function(path)
        case ast.NamedExpr(ast.Name(name)):
            return re.fullmatch("[A-Z_]+|num_warps|num_stages", name) is not None  # of a config
        case ast.While(test=ast.Compare(), body=[ast.Pass()]):
            return True  # a program waits for others
        case ast.Lambda(args=ast.arguments(args=[ast.arg(arg="META")]), body=ast.Tuple()):
            return True  # a grid, by the config that is measured
    return type(node).__name__ in NODES


def _is_listed(path: str) -> bool:
    root, _, name = path.partition(".")
    ours = root in library.NAMES and name in library.names() and not name.startswith("_")
    return ours or path in LISTED or path in _of_rows()


@cache
def _of_rows() -> frozenset[str]:
    """The names that rows of the function table print."""
    rows = FUNCTIONS.values()
    texts = (
        t.template for r in rows for t in (r.triton, r.torch, r.triton_int, r.triton_bool) if t
    )
    return frozenset(path for text in texts for path in re.findall(r"[a-z]\w*(?:\.\w+)+", text))
