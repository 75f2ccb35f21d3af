"""The binders of reducers: the range of each index, and the conditions of its bounds.

Input: a reducer, the scope, the frame. Output: binders (lo <= k < hi, where lo and hi are sizes) and guards.

- An end without an index is an end of the range.
- An end that names an index, or reads an operand, is a guard on the values of the dims that the index subscripts.
  `max[i - w < j <= i](s[i, j])` takes the j of 0 .. L - 1 that satisfy it. With `else` in every read it takes all j that
  satisfy it.
- `k < min(a, b)` is two guards on k, and so is `k >= max(a, b)`. The other two are read from a line of their own:
  `end[i] = max(a, b)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tritongen.check.coordinates import FetchOf, coordinate
from tritongen.check.extents import alone
from tritongen.check.ranges import ZERO, Frame, range_from_reads, whole
from tritongen.check.reads import fetch_of
from tritongen.check.scope import Scope, Variable
from tritongen.check.trees import walk
from tritongen.check.values import Value
from tritongen.ir import bounds
from tritongen.ir.algebra import (
    Fetch,
    Poly,
    denominator,
    extreme,
    floordiv,
    index,
    indices,
    is_fractional,
    is_size,
    numerator,
    poly,
    substitute,
)
from tritongen.ir.ends import box_end
from tritongen.ir.free import with_coordinates
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Binder,
    Guard,
    Nest,
)
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse

Lower = Callable[[Scope, Frame, ast.Expr], Value]
CONJOINED = {"low": "max", "high": "min"}  # an end that says one thing for each argument


def binders_of(
    scope: Scope, frame: Frame, node: ast.Reduce, lower: Lower
) -> tuple[tuple[Binder, ...], tuple[Guard, ...]]:
    """The box of a reducer, and the guards that its bounds leave; a bound may name an index before it."""
    binders: list[Binder] = []
    guards: list[Guard] = []
    for b in node.binders:
        if b.name == BATCH:
            binders.append(Binder(BATCH, ZERO, BATCH_SIZE))
            continue
        binder, conditions = _bounded(scope, frame, node, b, lower)
        binders.append(binder)
        frame = frame.inside({b.name: (binder.lo, binder.hi)}, conditions)
        guards += conditions
    return tuple(binders), tuple(guards)


def _bounded(
    scope: Scope, frame: Frame, node: ast.Reduce, b: ast.Binder, lower: Lower
) -> tuple[Binder, tuple[Guard, ...]]:
    """One index: its box, and the conditions of its bounds."""
    low = _parts(scope, frame, b.low, "low", 1 if b.low_strict else 0, lower)
    high = _parts(scope, frame, b.high, "high", 0 if b.high_strict else 1, lower)
    (below, divides), (above, divides_too) = _dividing(low), _dividing(high)
    has_dims = any(read.fill is None for _, read in alone(scope, node, b.name))

    def end(parts: tuple[Poly, ...], dims: Poly | None, upper: bool) -> Poly | None:
        return box_end(parts, dims, frame.ranges, lambda: frame.facts(scope), upper)

    if all(map(is_size, above)):
        hi, above = whole(scope, above[0]) if above else range_from_reads(scope, node, b), ()
    else:
        found = end(above, range_from_reads(scope, node, b) if has_dims else None, True)
        hi = range_from_reads(scope, node, b) if found is None else found
    if all(map(is_size, below)):
        lo, below = whole(scope, below[0]) if below else ZERO, ()
    else:
        lo = end(below, hi if has_dims else None, False) or ZERO
    k, binder = index(b.name), Binder(b.name, lo, hi)
    guards = (*(Guard(k - p, ">=") for p in below), *(Guard(p - 1 - k, ">=") for p in above))
    return binder, (*divides, *divides_too, *needed(scope, guards, (binder,)))


def needed(scope: Scope, guards: Iterable[Guard], binders: tuple[Binder, ...]) -> tuple[Guard, ...]:
    """The guards that say more than the range of an index: in a bound and in a `where` alike."""

    ranges = {b.index: (b.lo, b.hi) for b in binders}

    def holds(g: Guard) -> bool:
        own = {i: ranges[i] for i in indices(g.poly) if i in ranges}
        alone = len(own) == len(indices(g.poly)) == 1
        return alone and bounds.prove(g.poly, g.op, ZERO, scope.known, own) is True

    return tuple(g for g in guards if not holds(g))


def _parts(
    scope: Scope, frame: Frame, end: ast.Expr | None, side: str, offset: int, lower: Lower
) -> tuple[Poly, ...]:
    """The lower or upper ends of k: one poly, or two for `max(a, b) <= k` and `k < min(a, b)`."""
    if end is None:
        return ()
    fetch = fetch_of(scope, frame)
    if not isinstance(end, ast.Call) or not _is_extreme(end) or _is_index_free(scope, frame, end):
        return (coordinate(scope, end, frame.names, fetch) + offset,)
    if end.name != CONJOINED[side]:
        return (_own_line(scope, frame, end, fetch, lower) + offset,)
    parts = (_parts(scope, frame, arg, side, offset, lower) for arg in end.args)
    return tuple(p for part in parts for p in part)


def _is_extreme(end: ast.Expr) -> bool:
    return isinstance(end, ast.Call) and end.name in ("min", "max") and len(end.args) > 1


def _is_index_free(scope: Scope, frame: Frame, end: ast.Expr) -> bool:
    named = {n.name for n in walk(end) if isinstance(n, (ast.Name, ast.Read))}
    return not named & (frame.names | scope.variables.keys())


def _dividing(parts: tuple[Poly, ...]) -> tuple[tuple[Poly, ...], tuple[Guard, ...]]:
    """Bounds that speak of an index, in whole numbers: where one is none there are no terms."""
    split = [p for p in parts if is_fractional(p) and not is_size(p)]
    exact = tuple(Guard(numerator(p) % denominator(p), "==") for p in split)
    return tuple(floordiv(numerator(p), denominator(p)) if p in split else p for p in parts), exact


# ---- ends that say one thing or the other -------------------------------------------------------
def _own_line(scope: Scope, frame: Frame, end: ast.Call, fetch: FetchOf, lower: Lower) -> Poly:
    """`k < max(a[i], i + 1)`: the end is a line over the indices that it names, and k is below what is read there."""
    for arg in end.args:
        if not _is_extreme(arg) and is_fractional(coordinate(scope, arg, frame.names, fetch)):
            message = (
                f"`{unparse(arg)}` is not allowed in `{end.name}`: it may not be a whole number"
            )
            scope.report.fail("E205", message, arg.span, help="write `//`")
    named = {n.name for n in walk(end) if isinstance(n, ast.Name)}
    named |= {BATCH for n in walk(end) if isinstance(n, ast.Dots)}
    box, at = [], {}
    for name, (lo, hi) in frame.ranges.items():
        if name in named:
            known = bounds.prove(hi, ">=", lo, scope.known) is True
            box.append(Binder(name, ZERO, hi - lo if known else extreme("max", (ZERO, hi - lo))))
            at[name] = lo
    first = {name: index(name) + lo for name, lo in at.items()}  # where the box starts at 0
    body = lower(scope, frame, _exact(scope, end)).expr
    body = with_coordinates(body, lambda p: substitute(p, first))
    dims = tuple(b.hi for b in box)
    nest = Nest("", tuple(box), tuple(index(b.index) for b in box), dims, body, "i64")
    # Reducers between the same ends read one line: that they have the same terms can be seen.
    name = next((n.name for n in scope.nests if replace(n, name="") == nest), "")
    if not name:
        name = scope.fresh("end")
        scope.nests.append(replace(nest, name=name))
        scope.variables[name] = Variable(name, dims, "i64", "temporary", end.span)
    return poly(Fetch(name, tuple(index(b.index) - at[b.index] for b in box)))


def _exact(scope: Scope, node: ast.Expr) -> ast.Expr:
    """A coordinate as a value: what is read is widened first, since a coordinate never wraps."""
    match node:
        case ast.Read(name) | ast.Name(name) if name in scope.variables:
            return ast.Call("i64", (node,))
        case ast.Call(_, args):
            return replace(node, args=tuple(_exact(scope, a) for a in args))
        case ast.Binary(_, a, b):
            return replace(node, a=_exact(scope, a), b=_exact(scope, b))
        case ast.Unary(_, x):
            return replace(node, x=_exact(scope, x))
    return node
