"""The last gate before text becomes a file or an import: every node of a generated module is one we print.

Text from a stranger's spec reaches the output as names, numbers and quoted strings only; should that
ever fail, this walk finds the import, call or attribute that no template holds.
"""

from __future__ import annotations

import ast
import re

from tritongen.emit import library, walked

BARE_CALLS = {
    "range", "float", "min", "max", "isinstance", "type", "tuple", "str", "dict", "getattr", "ValueError", "len",
    "slice", "int", "bool", "abs", "all", "any", "sum", "zip", "enumerate", "list", "reversed", "sorted",
}  # fmt: skip
REFUSED = (
    ast.Import, ast.ImportFrom, ast.Lambda, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Await, ast.Yield,
    ast.YieldFrom, ast.NamedExpr, ast.Delete, ast.AsyncFor, ast.AsyncWith, ast.While,
)  # fmt: skip


class NotAllowed(RuntimeError):
    """Generated text holds something that the generator never prints: a bug, or an attack."""


def walk(source: str) -> None:
    """Raises NotAllowed unless every node of a module's ops, functions all, is on the list."""
    tree = walked.parsed(source)
    inside = [list(walked.walk(top)) for top in tree.body]
    own = {n.name for nodes in inside for n in nodes if isinstance(n, ast.FunctionDef)}
    alike = walked.alike(tree)
    functions = [*(n.name for n in tree.body if isinstance(n, ast.FunctionDef)), *alike]
    own |= alike.keys()
    if twice := sorted(n for n in own if functions.count(n) > 1):
        raise NotAllowed(f"two functions are called {twice[0]}: rename one of the ops")
    for top in tree.body:
        match top:
            case ast.FunctionDef():
                continue
            case ast.Assign([ast.Name(name)]) if alike.get(name) in own:
                continue
        raise NotAllowed(f"line {top.lineno}: {ast.unparse(top)[:80]}")
    for nodes in inside:
        for node in nodes:
            if not _allowed(node, own) and not _is_of_local_lib(node, nodes):
                known = isinstance(node, (ast.expr, ast.stmt))
                shown = ast.unparse(node)[:80] if known else repr(node)
                raise NotAllowed(f"line {getattr(node, 'lineno', '?')}: {shown}")


def _is_of_local_lib(node: ast.AST, function: list[ast.AST]) -> bool:
    """Whether it is an attribute of what the spec calls `lib`: the library is out of sight there."""
    match node:
        case ast.Attribute(ast.Name("lib"), name) if not name.startswith("_"):
            return any(_binds_lib(n) for n in function)
    return False


def _binds_lib(node: ast.AST) -> bool:
    match node:
        case ast.Name("lib", ast.Store()) | ast.arg("lib"):
            return True
    return False


def _allowed(node: ast.AST, own: set[str]) -> bool:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name):
            return not name.startswith("__")
        case ast.Attribute(ast.Name("lib"), name):
            return name in library.functions() and not name.startswith("_")
        case ast.Attribute(attr=name):
            return not name.startswith("_")
        case ast.Call(func=ast.Name(id=name), args=args):
            if name == "getattr":
                return isinstance(args[0], ast.Name) and args[0].id == "tl"
            return name in BARE_CALLS or name in own
        case ast.NamedExpr(ast.Name(name)):
            return re.fullmatch("[A-Z_]+|num_warps|num_stages", name) is not None  # of a config
        case ast.While(test=ast.Compare(), body=[ast.Pass()]):
            return True  # a program waits for others
        case ast.Lambda(args=ast.arguments(args=[ast.arg(arg="META")]), body=ast.Tuple()):
            return True  # a grid, by the config that is measured
    return not isinstance(node, REFUSED)
