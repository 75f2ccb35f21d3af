"""Finds the sums of a reference that are einsums, and the values that it has room for.

Input: a reducer. Output: the two factors of its product and the dims that each has, by index:

    sum[k](relu(a[m, k] * s[k]) * b[k, n])      Operand(relu(a * s), (m, k)), Operand(b, (k, n))

Every factor goes to one of two operands, and both have all summed dims. So the terms stay those of the spec, and an infinity or a
NaN in one of them does what the spec says. `nests.py` prints the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tritongen.ir.algebra import Poly, index, indices
from tritongen.ir.free import free_indices
from tritongen.ir.known import Facts, plainly_nonnegative, within
from tritongen.ir.nodes import Binder, Call, Expr, Nest, Read, Reduce, walk
from tritongen.ir.prune import Dims, is_inside
from tritongen.ir.reducers import REDUCERS


@dataclass(frozen=True, slots=True)
class Operand:
    """A factor of an einsum and the indices that its dims stand for, in order."""

    value: Expr
    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """Along which index it runs, over which terms, whether from the last, and whether each place leaves out its own.

    The run of an exclusive one may end before the last place's term, which no sum has (`is_short`).
    """

    index: str
    run: Binder
    reverse: bool
    exclusive: bool
    is_short: bool


def operands(r: Reduce, ranges: Mapping[str, Binder]) -> tuple[Operand, ...] | None:
    """The two factors of a sum of products; None where it is no such sum."""
    if r.op != "sum" or not r.binders:
        return None
    summed = [b.index for b in r.binders]
    factors = _factors(r.body)
    first = max(factors, key=lambda f: len(_kept(f, summed)))
    beyond = [f for f in factors if not _kept(f, summed) <= _kept(first, summed)]
    narrower = [f for f in factors if _kept(f, summed) < _kept(first, summed)]
    like = [f for f in narrower if set(summed) <= free_indices(f)]
    if not beyond and not like:
        return None
    second = max(beyond, key=lambda f: len(_kept(f, summed))) if beyond else like[0]
    left, right = first, second
    for f in factors:
        if f is first or f is second:
            continue
        if _kept(f, summed) <= _kept(left, summed):
            left = Call("mul", (left, f), r.body.dtype)
        else:
            right = Call("mul", (right, f), r.body.dtype)
    pair = tuple(Operand(value, _dims(value, summed, ranges)) for value in (left, right))
    # A term that a guard drops is 0 in one of the two; the other has to be a number there, but in what tensor
    # cores multiply: two factors of other rows and columns that vary with all that is summed.
    shared = bool(beyond) and all(set(summed) <= free_indices(o.value) for o in pair)
    if r.guards and not shared:
        return None
    if all(any(indices(g.poly) <= set(o.dims) for o in pair) for g in r.guards):
        return pair
    return None


def _factors(expr: Expr) -> list[Expr]:
    match expr:
        case Call("mul", (a, b)):
            return _factors(a) + _factors(b)
    return [expr]


def _kept(expr: Expr, summed: list[str]) -> set[str]:
    return free_indices(expr) - set(summed)


def _dims(value: Expr, summed: list[str], ranges: Mapping[str, Binder]) -> tuple[str, ...]:
    """The dims in the order of the tensor that is read with the most of them, then the others."""
    reads = [n for n in walk(value) if isinstance(n, Read)]
    orders = [[name for c in n.coords for name in digits(c, ranges)] for n in reads]
    order = max(orders, key=len, default=[])
    names = [*order, *sorted(_kept(value, summed)), *summed]
    wanted = free_indices(value) | set(summed)
    return tuple(dict.fromkeys(name for name in names if name in wanted))


def scan_of(r: Reduce, ranges: Mapping[str, Binder], dims: Dims, facts: Facts) -> Scan | None:
    """A fold of all terms up to an index that the terms do not depend on, or from there on."""
    if (
        not REDUCERS[r.op].torch_scan
        or len(r.binders) != 1
        or len(r.guards) != 1
        or r.guards[0].op != ">="
    ):
        return None
    (k,), gap = r.binders, r.guards[0].poly
    others = indices(gap) - {k.index}
    d = ranges.get(next(iter(others))) if len(others) == 1 else None
    if d is None or d.index in free_indices(r.body) or d.lo.terms or k.lo.terms:
        return None
    for sign in (1, -1):
        past = (gap - (index(d.index) - index(k.index)) * sign).constant
        if past in (0, -1) and k.hi == (d.hi + past if sign > 0 else d.hi):
            is_short = k.hi != d.hi and plainly_nonnegative(k.hi, facts)
            run = k if is_short else replace(k, hi=d.hi)
            known = within(facts, {b.index: (b.lo, b.hi) for b in (*ranges.values(), run)})
            if run.hi == k.hi or all(_stays(n, dims, known) for n in walk(r.body)):
                return Scan(d.index, run, sign < 0, past == -1, is_short)
    return None


def _stays(expr: Expr, dims: Dims, facts: Facts) -> bool:
    """Whether it may be evaluated at every point of the facts' ranges."""
    return not isinstance(expr, Read) or expr.fill is not None or is_inside(expr, dims, facts, True)


def materialized(nest: Nest, shapes: Dims, facts: Facts) -> list[frozenset[str]]:
    """The dims of each value that is larger than all that it is computed from."""
    ranges = ranges_of(nest)
    found = []
    for r in walk(nest.body):
        if not isinstance(r, Reduce):
            continue
        if scan_of(r, ranges, shapes, facts):
            continue
        guards = set().union(*(indices(g.poly) for g in r.guards))
        terms = [(r.body, free_indices(r.body) | guards | {b.index for b in r.binders})]
        pair = operands(r, ranges)
        values = [(o.value, set(o.dims)) for o in pair] if pair else terms
        found += [frozenset(dims) for value, dims in values if not _is_read(value, dims, ranges)]
    return found


def _is_read(expr: Expr, dims: set[str], ranges: Mapping[str, Binder]) -> bool:
    """Whether some tensor has all of these dims."""
    reads = [n for n in walk(expr) if isinstance(n, Read)]
    return any(dims <= {name for c in n.coords for name in digits(c, ranges)} for n in reads)


def digits(c: Poly, ranges: Mapping[str, Binder]) -> tuple[str, ...]:
    """The indices of which a coordinate takes each value once: one alone, or f1 * q + f0 where f0 < q."""
    names = indices(c)
    for high in names:
        if c == index(high):
            return (high,)
        for low in names - {high}:
            if low in ranges and c == index(high) * ranges[low].hi + index(low):
                return high, low
    return ()


def ranges_of(nest: Nest) -> dict[str, Binder]:
    """Every index of a nest."""
    inner = [b for r in walk(nest.body) if isinstance(r, Reduce) for b in r.binders]
    return {b.index: b for b in (*nest.box, *inner)}
