"""Fills that a callee's arguments made needless: `conv2d(x, w, b)` without padding reads inside.

Input: a nest and the scope. Output: the nest without the fills of reads that are proven inside.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.check.ranges import ZERO, Frame
from tritongen.check.scope import Scope
from tritongen.ir import bounds
from tritongen.ir.algebra import Fetch, is_fractional, walk
from tritongen.ir.nodes import Call, Cast, Expr, Nest, Read, Reduce


def pruned(scope: Scope, nest: Nest) -> Nest:
    frame = Frame({b.index: (b.lo, b.hi) for b in nest.box})
    return replace(nest, body=_pruned(scope, frame, nest.body))


def _pruned(scope: Scope, frame: Frame, expr: Expr) -> Expr:
    match expr:
        case Read(_, _, None):
            return expr
        case Read():
            return replace(expr, fill=None) if _inside(scope, frame, expr) else expr
        case Call(_, args):
            return replace(expr, args=tuple(_pruned(scope, frame, a) for a in args))
        case Cast(arg):
            return replace(expr, arg=_pruned(scope, frame, arg))
        case Reduce(_, binders, guards, body):
            inner = frame.inside({b.index: (b.lo, b.hi) for b in binders}, guards)
            return replace(expr, body=_pruned(scope, inner, body))
    return expr


def _inside(scope: Scope, frame: Frame, read: Read) -> bool:
    dims = scope.variables[read.tensor].dims
    facts = frame.facts(scope)
    for c, dim in zip(read.coords, dims):
        if is_fractional(c) or any(isinstance(a, Fetch) for a in walk(c)):
            return False
        for gap in (c, dim - 1 - c):
            if bounds.prove(gap, ">=", ZERO, facts) is not True:
                return False
    return True
