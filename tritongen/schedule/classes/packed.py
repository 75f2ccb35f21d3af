"""Factors several of whose neighbours follow from one stored element: weights of four bits, and zero points of groups.

    (w[n, k // 2] >> 4 * (k % 2) & 15) - z[n, k // 128]

Two neighbours along k share an element of w: it is loaded once, for k1 = k // 2, and a dim of its own, k0 = k % 2, tells them
apart. 128 neighbours share an element of z: it is the same for a whole step of the loop, if a step lies in one group.

Input: a factor, and the digits of one of its axes. Output: how many neighbours share each element, and of which groups a tile
must not have two.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Floor, Idx, Poly, index, indices, substitute_atoms, walk
from tritongen.ir.free import coordinates, free_indices, reads, with_coordinates
from tritongen.schedule.members import Group, Product
from tritongen.schedule.plan import Axis

MOST = 16  # neighbours: a word of 32 bits holds so many numbers of two bits
LEAST = 64  # of a side of a tile, and of a group: of smaller tiles Triton 3.6 multiplies some terms twice


def sides_of(group: Group) -> Iterator[tuple[ir.Expr, str, ir.Binders]]:
    """Each factor with each axis."""
    p: Product | None = group.product
    assert p is not None
    for head in group.nests[: group.products]:
        for side in head.fold.factors:
            yield from ((side, *axis) for axis in (("m", p.m), ("n", p.n), ("k", p.k)))


def shared(side: ir.Expr, digits: ir.Binders) -> int:
    """How many neighbours along an axis share each element that a factor reads there: a power of two."""
    names = {d.index for d in digits}
    found = gcd(*(neighbours(r, digits) for r in reads(side) if free_indices(r) & names))
    if found == 1 or any(d.lo.terms for d in digits):
        return 1
    count = min(MOST, found & -found)
    apart = _tells_apart(side, digits[0].index, count) if len(digits) == 1 else count == found
    return count if apart else 1


def neighbours(read: ir.Read, digits: ir.Binders) -> int:
    """How many neighbours along an axis share an element of a read; 0 for all of them."""
    *high, low = digits
    if not high:
        return gcd(*_divisors(read, low.index))
    last = max((k for k, d in enumerate(digits) if d.index in free_indices(read)), default=-1)
    if last < 0:
        return 0
    count = Axis("", digits).extent_of(tuple(d.index for d in digits[last + 1 :])).constant
    return count if isinstance(count, int) else 1


def is_unpacked(side: ir.Expr, *axes: ir.Binders) -> bool:
    """Whether neighbours along one of its axes share what a factor loads."""
    return any(shared(side, digits) > 1 for digits in axes if digits)


def _divisors(e: ir.Expr, name: str) -> Iterator[int]:
    """The numbers by which an index is divided wherever e speaks of it; 1 where it is not."""
    for p in coordinates(e):
        floors = [a for a in walk(p) if isinstance(a, Floor) and a.num == index(name)]
        if name in indices(without_quotients(p, name)):
            yield 1
        for atom in floors:
            yield atom.den.constant if isinstance(atom.den.constant, int) else 1


def without_quotients(p: Poly, name: str) -> Poly:
    """p with the quotients of an index as if they were 0."""

    def change(atom) -> Poly | None:
        return Poly() if isinstance(atom, Floor) and atom.num == index(name) else None

    return substitute_atoms(p, change)


def _tells_apart(side: ir.Expr, name: str, count: int) -> bool:
    """Whether neighbours differ, although they share what is read."""
    low = f"{name}0'"
    return count > 1 and low in free_indices(by_digits(side, name, count, f"{name}1'", low))


def by_digits(
    side: ir.Expr, name: str, count: int, high: str, low: str, start: str = "", within: int = 0
) -> ir.Expr:
    """A factor at the index `count * high + low`. In groups of which a tile has one, it is at `start`."""

    def change(atom) -> Poly | None:
        match atom:
            case Floor(num, den) if num == index(name) and isinstance(den.constant, int):
                if within and den.constant % within == 0:
                    return index(start) // den
                even = count > 1 and den.constant % count == 0
                return index(high) // (den // count) if even else None
            case Idx() if atom.name == name and count > 1:
                return count * index(high) + index(low)
        return None

    return with_coordinates(side, lambda p: substitute_atoms(p, change))


def group_along(side: ir.Expr, digits: ir.Binders) -> int:
    """The largest power of two that divides the groups of a factor's reads along an axis; 0 where it is small, or there are none."""
    if not digits:
        return 0
    later = {d.index for d in digits[1:]}
    own = (neighbours(r, digits) for r in reads(side) if not free_indices(r) & later)
    whole = gcd(*(q for q in own if q >= LEAST))
    return whole & -whole if whole & -whole >= LEAST else 0


def is_of_group(side: ir.Expr, digits: ir.Binders) -> bool:
    """Whether a factor moves along an axis from group to group alone."""
    names, group = {d.index for d in digits}, group_along(side, digits)
    numbers = (e for e in ir.walk(side) if isinstance(e, ir.IndexValue))
    if not group or any(free_indices(e) & names for e in numbers):
        return False
    own = [r for r in reads(side) if free_indices(r) & names]
    return all(neighbours(r, digits) % group == 0 for r in own)
