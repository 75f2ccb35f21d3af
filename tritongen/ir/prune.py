"""Removes what inlining or inverting made unnecessary.

Input: a nest, the dims of what it may read, and facts. Output: the nest

- without `else` on reads that are proven inside everywhere in the box (guards drop terms, but the evaluation of the box
  still makes their reads),
- with the `else` value in place of reads that are never inside,
- without quotients that are 0 everywhere (`f // F` for f < F).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tritongen.ir import bounds
from tritongen.ir.algebra import (
    Atom,
    Fetch,
    Floor,
    Poly,
    index,
    is_fractional,
    is_index_like,
    substitute_atoms,
    walk,
)
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Const,
    Expr,
    Nest,
    Read,
    Reduce,
    with_parts,
)

ZERO = Poly()
Dims = Mapping[str, tuple[Poly, ...]]


def pruned(nest: Nest, dims: Dims, facts: bounds.Facts) -> Nest:
    facts = bounds.within(facts, {b.index: (b.lo, b.hi) for b in nest.box})
    return replace(nest, body=_pruned(nest.body, dims, facts, facts))


def _pruned(expr: Expr, dims: Dims, box: bounds.Facts, facts: bounds.Facts) -> Expr:
    """`box`: what holds all over the box, `facts`: and where guards hold."""
    match expr:
        case Read(coords=coords, fill=fill):
            expr = replace(expr, coords=tuple(_settled(c, box) for c in coords))
            if fill is None:
                return expr
            if is_inside(expr, dims, facts, False):
                return Const(fill, expr.dtype)
            return replace(expr, fill=None) if is_inside(expr, dims, box, True) else expr
        case Reduce(_, binders, guards):
            ranges = {b.index: (b.lo, b.hi) for b in binders}
            box, facts = bounds.within(box, ranges), bounds.within(facts, ranges)
            for guard in guards:
                facts = bounds.require(facts, guard.poly, guard.op, ZERO)
            facts = bounds.one(facts)
    return with_parts(expr, lambda e: _pruned(e, dims, box, facts))


def _settled(p: Poly, facts: bounds.Facts) -> Poly:
    def change(atom: Atom) -> Poly | None:
        if isinstance(atom, Floor) and is_index_like(atom):
            below = bounds.prove(atom.num, "<", atom.den, facts)
            if below is True and bounds.prove(atom.num, ">=", ZERO, facts) is True:
                return ZERO
        return None

    return substitute_atoms(p, change)


def is_inside(read: Read, dims: Dims, facts: bounds.Facts, wanted: bool) -> bool:
    """Whether a read is proven to be inside at every point (True), or at none (False)."""
    gaps: list[Poly | None] = []
    for c, dim in zip(read.coords, dims[read.tensor], strict=True):
        if c == index(BATCH) and dim == BATCH_SIZE:
            continue
        told = not is_fractional(c) and not any(isinstance(a, Fetch) for a in walk(c))
        gaps += [c, dim - 1 - c] if told else [None]
    proven = (None if gap is None else bounds.prove(gap, ">=", ZERO, facts) for gap in gaps)
    return all(p is True for p in proven) if wanted else any(p is False for p in proven)
