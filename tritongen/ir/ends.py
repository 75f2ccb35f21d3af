"""The ends of the box of a reducer's index: inside the dims that it subscripts, and no further than its bounds reach.

    y[i] = sum[i - 2 <= k <= i](x[k])    k in 0 .. L - 1 for x: T[L], with guards for both ends

A bound that names an index, or reads, is a condition. The box covers all values that may satisfy it. Input: the bound (`k < p`
of each p, `k >= p`), the dims, the ranges in use. Output: one end of the box. The checker uses it, and the printer asks
whether the checker would.
"""

from __future__ import annotations

from collections.abc import Callable

from tritongen.ir import bounds
from tritongen.ir.algebra import Idx, Poly, affine, extreme, poly, symbols

ZERO = poly(0)


def box_end(
    parts: tuple[Poly, ...],
    dims: Poly | None,
    ranges: bounds.Ranges,
    facts: Callable[[], bounds.Facts],
    upper: bool,
) -> Poly | None:
    """The end of an index that is below (`upper`) or not below all parts. None if nothing gives one.

    Without dims it is the end that the parts reach. With dims it is that of the dims, or nearer if a part is certainly inside.
    """
    reached = [e for p in parts if (e := _reached(p, ranges, facts, upper)) is not None]
    if dims is None:
        return extreme("min" if upper else "max", reached) if reached else None
    inside = (e for e in reached if _is_plain(dims - e if upper else e))
    return next(inside, dims if upper else ZERO)


def _is_plain(gap: Poly) -> bool:
    """Whether gap >= 0 whatever the sizes are; constants may be negative, and facts are not asked: their order would matter."""
    return bounds.plainly_nonnegative(gap, bounds.gather(n for n in symbols(gap) if n[0].isupper()))


def _reached(
    p: Poly, ranges: bounds.Ranges, facts: Callable[[], bounds.Facts], upper: bool
) -> Poly | None:
    """The end of p over the indices in force, in the names of the spec where they are plain."""
    split = affine(p)
    if split is not None:
        factors, end = split
        for atom, factor in factors.items():
            sign = factor.constant
            if not isinstance(atom, Idx) or sign is None or atom.name not in ranges:
                break
            lo, hi = ranges[atom.name]
            end = end + factor * (hi - 1 if (sign > 0) == upper else lo)
        else:
            return end
    known = bounds.within(facts(), ranges)
    ends = bounds.peaks(p, known) if upper else bounds.corners(p, known)
    return None if ends is None else extreme("max" if upper else "min", ends)
