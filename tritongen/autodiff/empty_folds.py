"""Divisors in a gradient that are the number of a fold's terms, and may be 0.

    y = min[n, d >= 1](x[n, d])          place // (D - 1) is the row of the place, and D may be 1

If D is 1, the fold has no terms, and the condition beside each quotient is false. The quotient may then be anything, but it must
not divide by 0. So the divisor becomes `max(1, D - 1)`, and the gradient of such a call is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tritongen.ir.algebra import Floor, Group, Poly, extreme, floordiv, poly, substitute_atoms
from tritongen.ir.atoms import Atom
from tritongen.ir.bounds import Facts, prove
from tritongen.ir.free import binders_of, with_coordinates
from tritongen.ir.nodes import Nest, Reduce, with_folds

ZERO = Poly()


def with_divisors_of_1(
    nests: tuple[Nest, ...], forward: Iterable[Nest], facts: Facts
) -> tuple[Nest, ...]:
    """The lines of a gradient, dividing by at least 1 where the number of terms of a fold of `forward` may be 0."""
    counts = {b.hi - b.lo for nest in forward for b in binders_of(nest)}
    counts = {c for c in counts if len(c.terms) > 1 and prove(c, ">", ZERO, facts) is not True}
    if not counts:
        return nests

    def at_least_1(p: Poly) -> Poly:
        return extreme("max", (poly(1), p)) if p in counts else safe(p)

    def divisor(atom: Atom) -> Poly | None:
        match atom:
            case Group(p):
                return at_least_1(p)
            case Floor(num, den):
                return floordiv(safe(num), at_least_1(den))
        return None

    def safe(p: Poly) -> Poly:
        return substitute_atoms(p, divisor)

    def ranged(e: Reduce) -> Reduce:
        return replace(
            e, binders=tuple(replace(b, lo=safe(b.lo), hi=safe(b.hi)) for b in e.binders)
        )

    return tuple(replace(n, body=with_folds(with_coordinates(n.body, safe), ranged)) for n in nests)
