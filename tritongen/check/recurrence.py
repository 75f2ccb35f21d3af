"""Rewrites a line that reads itself one step back, `h[t] = a * h[t - 1] + x[t]`, as a sum.

Input: such a line. Output: the sum over the steps before, if each step is `a * h + b` and starts at 0. `lines` reports other
cycles.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import cast

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
    """The whole line as `h[t] = sum[k <= t](... * x[k])`, or over `k >= t` if it reads `h[t + 1]`."""
    terms = _terms(line.value)
    own = [(minus, t) for minus, t in terms if any(r.name == line.name for r in reads(t))]
    rest = [term for term in terms if term not in own]
    if len(own) != 1 or own[0][0] or not rest:
        return None
    factors = _factors(own[0][1])
    found = [f for f in factors if isinstance(f, ast.Read) and f.name == line.name]
    step = _step(line, found[0]) if len(found) == 1 else None
    others = [f for f in factors if f not in found]
    if step is None or any(r.name == line.name for f in others for r in reads(f)):
        return None
    index, back = step
    used = mentions(line) | scope.taken
    k, j = [c for c in "ksjrmpquv" if c not in used][:2] or ("k2", "k3")
    last, first = ast.Name(index), ast.Name(k)
    minus, value = rest[0]
    value = ast.Unary("-", value) if minus else value
    for minus, term in rest[1:]:
        value = ast.Binary("-" if minus else "+", value, term)
    value = cast(ast.Expr, renamed(value, index, k))
    factor = reduce(lambda a, b: ast.Binary("*", a, b), others) if others else None
    if factor is not None and index in mentions(factor):
        ends = (first, True, last, False) if back else (last, False, first, True)
        between = ast.Binder(j, *ends)
        moved = cast(ast.Expr, renamed(factor, index, j))
        value = ast.Binary("*", ast.Reduce("prod", (between,), moved), value)
    elif factor is not None:
        steps = ast.Binary("-", *((last, first) if back else (first, last)))
        value = ast.Binary("*", ast.Binary("**", factor, steps), value)
    over = ast.Binder(k, None, False, last, False) if back else ast.Binder(k, last)
    return fix_at(line.whole, unparse(replace(line, value=ast.Reduce("sum", (over,), value))))


def _terms(node: ast.Expr, minus: bool = False) -> list[tuple[bool, ast.Expr]]:
    """The terms of a sum, and whether each is subtracted."""
    match node:
        case ast.Binary("+" | "-" as op, a, b):
            return [*_terms(a, minus), *_terms(b, minus != (op == "-"))]
    return [(minus, node)]


def _factors(node: ast.Expr) -> list[ast.Expr]:
    match node:
        case ast.Binary("*", a, b):
            return [*_factors(a), *_factors(b)]
    return [node]


def _step(line: ast.Assign, read: ast.Read) -> tuple[str, bool] | None:
    """The index along which the read is one step back, or one step on (False). Before the first step it is 0."""
    fill = read.fill
    pairs = list(zip(line.indices or (), read.indices, strict=False))
    other = [(own, i) for own, i in pairs if own != i]
    if len(pairs) != len(read.indices) or len(other) != 1:
        return None
    if fill is not None and not (isinstance(fill, ast.Number) and fill.value == 0):
        return None
    match other[0]:
        case ast.Name(step), ast.Binary("-" | "+" as op, ast.Name(own), ast.Number(1)) if (
            step == own
        ):
            return step, op == "-"
    return None
