"""Corrected lines for values of the wrong dtype: casts of the parts of an operation, or comparisons with 0.

Input: the place of an operation in the line, and ways to change a part. Output: fixes, of which the first that compiles is
shown. Example: `x[n] + z[n]` of two integer types is `i64(x[n]) + z[n]`. Nothing here says which dtype is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tritongen.check.scope import Scope
from tritongen.check.trees import walk
from tritongen.errors import Fix, Span
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse

Change = Callable[[ast.Expr], ast.Expr]


def to(dtype: str) -> Change:
    return lambda part: ast.Call(dtype, (part,))


def not_zero(part: ast.Expr) -> ast.Expr:
    return ast.Compare("!=", part, ast.Number(0))


def help_at(scope: Scope, span: Span | None, help: str, otherwise: str, *changes: Change) -> dict:
    """The help of a finding at an operation: one of its parts changed, or all of them."""
    texts = (text for change in changes for text in _texts(scope, span, change))
    return _help([Fix(span, text) for text in texts] if span else [], help, otherwise)


def help_for_line(scope: Scope, help: str, otherwise: str, change: Change) -> dict:
    """The help of a finding about the whole value of the line."""
    value = scope.line.value if scope.line is not None else None
    if value is None or value.span is None:
        return _help([], help, otherwise)
    return _help([Fix(value.span, unparse(change(value)))], help, otherwise)


def _help(fixes: list[Fix], help: str, otherwise: str) -> dict:
    if not fixes:
        return {"help": otherwise}
    said = {"help": help + ": {}", "otherwise": otherwise}
    return said | {"fix": fixes[0], "others": tuple(fixes[1:])}


def _texts(scope: Scope, span: Span | None, change: Change) -> Iterator[str]:
    nodes = walk(scope.line.value) if scope.line is not None else ()
    for node in (n for n in nodes if n.span == span):
        match node:
            case ast.Call(args=args):
                for parts in _changed(args, change):
                    yield unparse(replace(node, args=parts))
            case ast.Binary(_, a, b) | ast.Compare(_, a, b) | ast.BoolOp(_, a, b):
                for left, right in _changed((a, b), change):
                    yield unparse(replace(node, a=left, b=right))
            case ast.Unary(_, x) | ast.Not(x):
                yield unparse(replace(node, x=change(x)))


def _changed(parts: tuple[ast.Expr, ...], change: Change) -> Iterator[tuple[ast.Expr, ...]]:
    """One part changed, or all that are no numbers."""
    own = [k for k, part in enumerate(parts) if not isinstance(part, (ast.Number, ast.Bool))]
    for chosen in (*([k] for k in own), *([own] if len(own) > 1 else ())):
        yield tuple(change(part) if k in chosen else part for k, part in enumerate(parts))
