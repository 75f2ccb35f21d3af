"""Splits an index that is read through `// q` and `% q` into two digits, and joins two digits into one index.

    y[n, f] = x[n, f] * gain[f // q]      is      y[n, f1 * q + f0] = x[n, f1 * q + f0] * gain[f1]

Input and output: canonical nests. A norm over groups of channels needs digits; a product behind it needs one index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Floor,
    Idx,
    Poly,
    index,
    indices,
    is_size,
    poly,
    substitute,
    substitute_atoms,
)
from tritongen.ir.algebra import walk as walk_poly
from tritongen.ir.bounds import Facts, simplify
from tritongen.ir.free import coordinates
from tritongen.ir.names import fresh
from tritongen.schedule.canonical import digits_of, same, unify, with_ranges

Number = tuple[Poly, Poly]  # how many values it has, and by what it is divided


def split_all(
    nests: ir.Nests, facts: Facts, taken: frozenset[str], whole: frozenset[Number] = frozenset()
) -> ir.Nests:
    """Nests in which no index is read through `// q` and `% q` where q divides its range, but for numbers that stay `whole`."""

    def digits() -> Iterator[tuple[ir.Binder, Poly, Poly]]:
        found = (d for nest in nests for d in digits_in(nest, facts))
        return (d for d in found if (d[0].hi, d[2]) not in whole)

    while found := next(digits(), None):
        nests = unify(tuple(split(nest, *found) for nest in nests), facts, taken)
    return nests


def numbers_in(nests: ir.Nests, facts: Facts) -> list[Number]:
    """The numbers that are read by digits."""
    found = (d for nest in nests for d in digits_in(nest, facts))
    return [*dict.fromkeys((b.hi, q) for b, _, q in found)]


def digits_in(nest: ir.Nest, facts: Facts) -> Iterator[tuple[ir.Binder, Poly, Poly]]:
    """Each index f read through `f // q` (or `f % q`) whose range q divides, how often, and q."""
    for p in (*coordinates(nest.body), *nest.coords):
        for atom in walk_poly(p):
            if not (isinstance(atom, Floor) and is_size(atom.den)):
                continue
            for b in nest.ranges:
                if atom.num == index(b.index) and not b.lo.terms:
                    if same(facts, (b.hi // atom.den) * atom.den, b.hi):
                        yield b, quotient(b.hi, atom.den, facts), atom.den


def quotient(n: Poly, q: Poly, facts: Facts) -> Poly:
    """n // q in the plainer words: `F // (F // groups)` is `groups` where F % groups == 0."""
    if same(facts, n, q):
        return poly(1)
    known = substitute(simplify(n // q, facts), facts.quotients)
    return min(n // q, known, key=lambda p: sum(1 for _ in walk_poly(p)))


def split(nest: ir.Nest, binder: ir.Binder, often: Poly, q: Poly) -> ir.Nest:
    """A nest with an index as two digits, f1 * q + f0. Unchanged if it has no such index.

    A read at f // (q * r) is a read at f1 // r. Where f is below q, it has no high digit: f // q is 0.
    """
    every = nest.ranges
    if not any(b.index == binder.index and b.hi == binder.hi for b in every):
        return nest
    used = {b.index for b in every}
    high, low = fresh(f"{binder.index}1", used), fresh(f"{binder.index}0", used)
    digits: ir.Binders = (ir.Binder(high, Poly(), often), ir.Binder(low, Poly(), q))
    above = index(high)
    if often == poly(1):
        digits, above = digits[1:], Poly()
    number = above * q + index(low)

    def change(atom):
        if isinstance(atom, Floor) and atom.num == index(binder.index):
            if (often_q := atom.den // q) * q == atom.den:
                return above // often_q
        return number if atom == Idx(binder.index) else None

    def spread(binders: ir.Binders) -> ir.Binders:
        return tuple(d for b in binders for d in (digits if b.index == binder.index else (b,)))

    return with_ranges(nest, lambda p: substitute_atoms(p, change), spread)


def joined(nests: ir.Nests, facts: Facts, sizes: Iterable[Poly]) -> ir.Nests:
    """Nests that all read two digits as their number alone, `f1 * q + f0`, with one index for it, as before a split.

    Others of the op may need the digits: channels are a group's and its own in a norm, and one number in a product behind
    it. `sizes`: words for how many there are.
    """
    high, low = next(filter(None, (_number_in(nest, facts) for nest in nests)), (None, None))
    if high is None or low is None:
        return nests
    used = {b.index for nest in nests for b in nest.ranges}
    extent = high.hi * low.hi
    hi = next((size for size in sizes if same(facts, size, extent)), extent)
    whole = ir.Binder(fresh(low.index.rstrip("0123456789") or low.index, used), Poly(), hi)
    changed = tuple(_with_number(nest, high, low, whole) for nest in nests)
    read = {i for n in changed for p in (*n.coords, *coordinates(n.body)) for i in indices(p)}
    left = {b for nest in changed for b in nest.ranges} & {high, low}
    return nests if left or high.index in read else joined(changed, facts, sizes)


def _with_number(nest: ir.Nest, high: ir.Binder, low: ir.Binder, whole: ir.Binder) -> ir.Nest:
    """A nest with one index in place of two digits. A digit that is used alone stays."""
    values = {low.index: index(whole.index) - index(high.index) * low.hi}

    def spread(binders: ir.Binders) -> ir.Binders:
        if not {high, low} <= set(binders):
            return binders
        return tuple(whole if b == low else b for b in binders if b != high)

    return with_ranges(nest, lambda p: substitute(p, values), spread)


def _number_in(nest: ir.Nest, facts: Facts) -> tuple[ir.Binder, ir.Binder] | None:
    """Two digits of one number among the indices of a nest, the higher one first."""
    ranges = {b.index: b for b in nest.ranges if not b.lo.terms}
    for p in (*nest.coords, *coordinates(nest.body)):
        weights = {ranges[name]: weight for name, weight in digits_of(p) if name in ranges}
        for low, one in weights.items():
            for high, weight in weights.items():
                if high != low and one == poly(1) and same(facts, weight, low.hi):
                    return high, low
    return None
