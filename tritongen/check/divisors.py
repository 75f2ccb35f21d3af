"""Requires that an op never divides by a size that is 0.

Input: the lines and dims of a checked op. Output: facts, which the wrapper checks at every call:

    y[i] = x[i // (N // 2)] else 0     requires N // 2 != 0

No fact is needed for a divisor that cannot be 0 wherever it divides something, such as `f // (F // groups)` for f < F under
`F % groups == 0`. Constants are checked where they are read, and `with P = H // W` checks itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tritongen.check.scope import Scope
from tritongen.ir.algebra import Floor, Group, Poly, children, indices, poly, text
from tritongen.ir.bounds import Ranges, prove
from tritongen.ir.nodes import Expr, IndexValue, Nest, Read, Reduce, Require, parts

ZERO = Poly()


def require_divisors(scope: Scope, nests: Iterable[Nest], dims: Iterable[Poly]) -> None:
    """The wrapper is asked for every divisor that is not found to be other than 0."""
    found: list[tuple[Poly, Ranges]] = [(dim, {}) for dim in dims]
    for nest in nests:
        found += [(end, {}) for b in nest.box for end in (b.lo, b.hi)]
        found += _divided(nest.body, {b.index: (b.lo, b.hi) for b in nest.box})
    for p, ranges in found:
        for size, what, quotient in _divisors(p):
            own = {name: ranges[name] for name in indices(what) & ranges.keys()}
            if prove(size, "!=", ZERO, scope.known, own) is not True:
                shown = f"{text(size)} != 0 (for `{text(quotient)}`)"
                scope.require(Require(size, "!=", ZERO, shown, "bounds"))


def _divided(expr: Expr, ranges: Ranges) -> Iterator[tuple[Poly, Ranges]]:
    """Every coordinate, bound and guard below, with the ranges of the indices in force."""
    match expr:
        case Read(_, coords):
            yield from ((c, ranges) for c in coords)
        case IndexValue(p):
            yield p, ranges
        case Reduce(binders=binders, guards=guards):
            yield from ((end, ranges) for b in binders for end in (b.lo, b.hi))
            ranges = {**ranges, **{b.index: (b.lo, b.hi) for b in binders}}
            yield from ((g.poly, ranges) for g in guards)
    for part in parts(expr):
        yield from _divided(part, ranges)


def _divisors(p: Poly) -> Iterator[tuple[Poly, Poly, Poly]]:
    """Every divisor in p, what it divides, and the quotient."""
    for monomial, _ in p.terms:
        for atom, power in monomial:
            if power < 0:
                yield atom.poly if isinstance(atom, Group) else poly(atom), p, p
            if isinstance(atom, Floor):
                yield atom.den, atom.num, poly(atom)
            for inner in children(atom):
                yield from _divisors(inner)
