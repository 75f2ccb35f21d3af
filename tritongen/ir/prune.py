"""What inlining or inverting made needless: `conv2d(x, w, b)` reads inside without its `else`.

Input: a nest, the dims of what it may read, and facts. Output: the nest without the fills of reads that
are proven inside all over the box (guards drop terms, but whoever evaluates the box meets their reads), and without quotients that are 0 at every point (`f // F` for f < F).
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
from tritongen.ir.nodes import BATCH, BATCH_SIZE, Call, Cast, Expr, Nest, Read, Reduce

ZERO = Poly()
Dims = Mapping[str, tuple[Poly, ...]]


def pruned(nest: Nest, dims: Dims, facts: bounds.Facts) -> Nest:
    box = {b.index: (b.lo, b.hi) for b in nest.box}
    return replace(nest, body=_pruned(nest.body, dims, bounds.within(facts, box)))


def _pruned(expr: Expr, dims: Dims, facts: bounds.Facts) -> Expr:
    match expr:
        case Read(coords=coords, fill=fill):
            expr = replace(expr, coords=tuple(_settled(c, facts) for c in coords))
            inside = fill is not None and _inside(expr, dims, facts)
            return replace(expr, fill=None) if inside else expr
        case Call(_, args):
            return replace(expr, args=tuple(_pruned(a, dims, facts) for a in args))
        case Cast(arg):
            return replace(expr, arg=_pruned(arg, dims, facts))
        case Reduce(_, binders, _, body):
            inner = bounds.within(facts, {b.index: (b.lo, b.hi) for b in binders})
            return replace(expr, body=_pruned(body, dims, inner))
    return expr


def _settled(p: Poly, facts: bounds.Facts) -> Poly:
    def change(atom: Atom) -> Poly | None:
        if isinstance(atom, Floor) and is_index_like(atom):
            below = bounds.prove(atom.num, "<", atom.den, facts)
            if below is True and bounds.prove(atom.num, ">=", ZERO, facts) is True:
                return ZERO
        return None

    return substitute_atoms(p, change)


def _inside(read: Read, dims: Dims, facts: bounds.Facts) -> bool:
    for c, dim in zip(read.coords, dims[read.tensor], strict=True):
        if c == index(BATCH) and dim == BATCH_SIZE:
            continue
        if is_fractional(c) or any(isinstance(a, Fetch) for a in walk(c)):
            return False
        for gap in (c, dim - 1 - c):
            if bounds.prove(gap, ">=", ZERO, facts) is not True:
                return False
    return True
