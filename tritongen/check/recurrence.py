"""Rewrites a line that reads itself one step back, `h[t] = a * h[t - 1] + x[t]`, as a sum.

Input: such a line. Output: the sum over the steps before, if each step is `a * h + b` and starts at 0. `lines` reports other
cycles.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any, cast

from tritongen.check.scope import Scope
from tritongen.check.trees import mentions, reads, renamed
from tritongen.errors import Fix, fix_at
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse


def is_recurrence(line: ast.Assign) -> bool:
    """Whether the line reads itself at indices other than its own."""
    own = [r for r in reads(line.value) if r.name == line.name]
    return bool(own) and all(r.indices != line.indices for r in own)


def as_sum(scope: Scope, line: ast.Assign) -> Fix | None:
    """The whole line as `h[t] = sum[k <= t](... * x[k])`."""
    terms = _terms(line.value)
    own = [t for t in terms if any(r.name == line.name for r in reads(t))]
    rest = [t for t in terms if t not in own]
    if len(own) != 1 or not rest or len(terms) != len(rest) + 1:
        return None
    factor, read = _factor(own[0], line.name)
    step = None if read is None else _step(line, read)
    if read is None or step is None:
        return None
    used = mentions(line) | scope.taken
    k, j = [c for c in "ksjrmpquv" if c not in used][:2] or ("k2", "k3")
    last = ast.Name(step)
    value: Any = renamed(reduce(lambda a, b: ast.Binary("+", a, b), rest), step, k)
    if factor is not None and step in mentions(factor):
        between = ast.Binder(j, ast.Name(k), True, last, False)
        value = ast.Binary(
            "*", ast.Reduce("prod", (between,), cast(ast.Expr, renamed(factor, step, j))), value
        )
    elif factor is not None:
        steps = ast.Binary("-", last, ast.Name(k))
        value = ast.Binary("*", ast.Binary("**", factor, steps), value)
    before = ast.Binder(k, None, False, last, False)
    return fix_at(line.whole, unparse(replace(line, value=ast.Reduce("sum", (before,), value))))


def _terms(node: ast.Expr) -> list[ast.Expr]:
    match node:
        case ast.Binary("+", a, b):
            return [*_terms(a), *_terms(b)]
    return [node]


def _factor(term: ast.Expr, name: str) -> tuple[ast.Expr | None, ast.Read | None]:
    """The factor of the read of the step before, and that read."""
    match term:
        case ast.Read(own) if own == name:
            return None, term
        case ast.Binary("*", a, ast.Read(own) as read) if own == name:
            pass
        case ast.Binary("*", ast.Read(own) as read, a) if own == name:
            pass
        case _:
            return None, None
    return (None, None) if any(r.name == name for r in reads(a)) else (a, read)


def _step(line: ast.Assign, read: ast.Read) -> str | None:
    """The index along which the read is one step back. Before the first step it is 0."""
    fill = read.fill
    pairs = list(zip(line.indices or (), read.indices, strict=False))
    other = [(own, i) for own, i in pairs if own != i]
    if len(pairs) != len(read.indices) or len(other) != 1:
        return None
    if fill is not None and not (isinstance(fill, ast.Number) and fill.value == 0):
        return None
    match other[0]:
        case ast.Name(step), ast.Binary("-", ast.Name(back), ast.Number(1)) if step == back:
            return step
    return None
