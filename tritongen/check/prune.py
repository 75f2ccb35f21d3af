"""What a callee's arguments made needless: `conv2d(x, w, b)` reads inside without its `else`.

Input: a nest and the scope. Output: the nest without the fills of reads that are proven inside, and
without quotients that are 0 at every point (`f // F` for f < F).
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.check.ranges import ZERO, Frame
from tritongen.check.scope import Scope
from tritongen.ir import bounds
from tritongen.ir.algebra import (
    Atom,
    Fetch,
    Floor,
    Poly,
    is_fractional,
    is_index_like,
    substitute_atoms,
    walk,
)
from tritongen.ir.nodes import Call, Cast, Expr, Nest, Read, Reduce


def pruned(scope: Scope, nest: Nest) -> Nest:
    frame = Frame({b.index: (b.lo, b.hi) for b in nest.box})
    return replace(nest, body=_pruned(scope, frame, nest.body))


def _pruned(scope: Scope, frame: Frame, expr: Expr) -> Expr:
    match expr:
        case Read(coords=coords, fill=fill):
            facts = frame.facts(scope)
            expr = replace(expr, coords=tuple(_settled(c, facts) for c in coords))
            inside = fill is not None and _inside(scope, facts, expr)
            return replace(expr, fill=None) if inside else expr
        case Call(_, args):
            return replace(expr, args=tuple(_pruned(scope, frame, a) for a in args))
        case Cast(arg):
            return replace(expr, arg=_pruned(scope, frame, arg))
        case Reduce(_, binders, guards, body):
            inner = frame.inside({b.index: (b.lo, b.hi) for b in binders}, guards)
            return replace(expr, body=_pruned(scope, inner, body))
    return expr


def _settled(p: Poly, facts: bounds.Facts) -> Poly:
    def change(atom: Atom) -> Poly | None:
        if isinstance(atom, Floor) and is_index_like(atom):
            below = bounds.prove(atom.num, "<", atom.den, facts)
            if below is True and bounds.prove(atom.num, ">=", ZERO, facts) is True:
                return ZERO
        return None

    return substitute_atoms(p, change)


def _inside(scope: Scope, facts: bounds.Facts, read: Read) -> bool:
    dims = scope.variables[read.tensor].dims
    for c, dim in zip(read.coords, dims, strict=True):
        if is_fractional(c) or any(isinstance(a, Fetch) for a in walk(c)):
            return False
        for gap in (c, dim - 1 - c):
            if bounds.prove(gap, ">=", ZERO, facts) is not True:
                return False
    return True
