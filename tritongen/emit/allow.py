"""The last gate before text becomes a file or an import: every node of a generated module is one we print.

Text from a stranger's spec reaches the output as names, numbers and quoted strings only; should that
ever fail, this walk finds the import, call or attribute that no template holds.
"""

from __future__ import annotations

import ast

from tritongen.emit import walked

IMPORTS = {
    "math", "functools", "inspect", "collections.abc", "typing", "torch", "triton", "triton.language", "triton.language.extra",
    "triton.runtime.interpreter", "triton.tools.tensor_descriptor", "tritongen", "tritongen.runtime", "tritongen.runtime.products", "tritongen.runtime.copies",
}  # fmt: skip
BARE_CALLS = {
    "range", "float", "min", "max", "isinstance", "type", "tuple", "str", "dict", "getattr", "ValueError", "len",
    "slice", "int", "bool", "abs", "all", "any", "sum", "zip", "enumerate", "list", "reversed", "sorted",
    "TensorDescriptor", "_f32_precision", "_product_us", "_copied", "_flattened", "_packed", "_reshaped", "_convolution_us", "_packed_bytes", "_cdiv", "_pow2", "_differentiable", "_differentiable_by",
}  # fmt: skip
ROOTS = {"tl", "torch", "triton", "math", "libdevice", "runtime"}
REFUSED = (
    ast.Lambda, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Await, ast.Yield,
    ast.YieldFrom, ast.NamedExpr, ast.Delete, ast.AsyncFor, ast.AsyncWith, ast.While,
)  # fmt: skip


class NotAllowed(RuntimeError):
    """Generated text holds something that the generator never prints: a bug, or an attack."""


def walk(source: str) -> None:
    """Raises NotAllowed unless every node of the module is on the list."""
    tree = walked.parsed(source)
    nodes = list(walked.walk(tree))
    own = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    functions = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]  # helpers are inside
    if twice := sorted(n for n in own if functions.count(n) > 1):
        raise NotAllowed(f"two functions are called {twice[0]}: rename one of the ops")
    for top in tree.body:
        docstring = isinstance(top, ast.Expr) and isinstance(top.value, ast.Constant)
        if not (docstring or isinstance(top, (ast.Import, ast.ImportFrom, ast.FunctionDef))):
            raise NotAllowed(f"line {top.lineno}: {ast.unparse(top)[:80]}")
    for node in nodes:
        if not _allowed(node, own):
            shown = ast.unparse(node)[:80] if isinstance(node, (ast.expr, ast.stmt)) else repr(node)
            raise NotAllowed(f"line {getattr(node, 'lineno', '?')}: {shown}")


def _allowed(node: ast.AST, own: set[str]) -> bool:
    match node:
        case ast.Import(names=names):
            return all(n.name in IMPORTS for n in names)
        case ast.ImportFrom(module=module, level=level):
            return level == 0 and module in IMPORTS
        case ast.Name(id=name) | ast.arg(arg=name):
            return not name.startswith("__")
        case ast.Attribute(attr=name):
            return not name.startswith("_")
        case ast.Call(func=ast.Name(id=name), args=args):
            if name == "getattr":
                return isinstance(args[0], ast.Name) and args[0].id == "tl"
            return name in BARE_CALLS or name in own
        case ast.While(test=ast.Compare(), body=[ast.Pass()]):
            return True  # a program waits for others
    return not isinstance(node, REFUSED)
