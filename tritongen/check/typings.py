"""Type parameters: the kinds that an op is typed for, and what they may be.

Input: an op of the tree. Output: every choice of one kind for each type parameter. `<T: float | int>`
gives two typings. An operand binds a type parameter by its dtype; one that no operand has is an
argument of the call, which is why only such a one has a default.
"""

from __future__ import annotations

from itertools import product

from tritongen.check.scope import Scope
from tritongen.errors import fix_at
from tritongen.ir.nodes import FLOATS, INTS, TypeParam
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse

FAMILIES = {"float": FLOATS, "int": INTS, "bool": ("bool",)}


def typings_of(op: ast.OpDef) -> list[tuple[TypeParam, ...]]:
    """Every choice of one kind for each type parameter."""
    return list(product(*kinds_of(op)))


def kinds_of(op: ast.OpDef) -> list[list[TypeParam]]:
    """Each type parameter once for each of its kinds."""
    choices = []
    for p in op.typarams:
        kinds: dict[str, list[str]] = {}
        for dtype in _dtypes(p):
            kinds.setdefault(_kind(dtype), []).append(dtype)
        choices.append(
            [TypeParam(p.name, kind, tuple(ds), p.default) for kind, ds in kinds.items()]
        )
    return choices


def _dtypes(p: ast.TypeParam) -> tuple[str, ...]:
    return tuple(dict.fromkeys(d for name in p.dtypes for d in FAMILIES.get(name, (name,))))


def _kind(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    return "int" if dtype in INTS else "float"


def check_types(scope: Scope, op: ast.OpDef) -> None:
    """A default is one of the dtypes of a type parameter that a result has and no operand binds."""
    bound = {p.type.dtype for p in op.params if isinstance(p, ast.Operand)}
    results = {o.type.dtype for o in op.outputs}
    for p in op.typarams:
        plain = fix_at(p.span, unparse(ast.TypeParam(p.name, p.dtypes)))
        if p.name in bound and p.default is not None:
            message = f"`{p.name}` takes its dtype from an operand, so it has no default"
            scope.report.add("E109", message, p.span, fix=plain)
        elif p.name not in bound | results:
            message = f"no operand and no result has the type `{p.name}`"
            help = "write one dtype in its place, as `f32`"
            scope.report.add("E304", message, p.span, help=help)
        elif p.default is not None and p.default not in _dtypes(p):
            message = f"`{p.name}` does not include {p.default}"
            fix = fix_at(
                p.span, f"{unparse(ast.TypeParam(p.name, p.dtypes))} | {p.default} = {p.default}"
            )
            scope.report.add("E109", message, p.span, help="include it", fix=fix)
