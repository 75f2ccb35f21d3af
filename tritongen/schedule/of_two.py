"""Sums, products and extremes over a dim of two elements as one operation, which needs no loop.

    sum[c](where(c == 0, x[n, c] * a[n], x[n, c] * b[n]))    x: T[N, 2]    is    x[n, 0] * a[n] + x[n, 1] * b[n]

So the gradient of a rotated pair is pointwise. A `where` that asks for the index is decided.
"""

from __future__ import annotations

from dataclasses import replace
from operator import eq, ge, gt, le, lt, ne

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index, indices, poly
from tritongen.ir.free import reads
from tritongen.ir.reducers import REDUCERS
from tritongen.schedule.canonical import substitute_indices

COMPARE = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}


def of_two(op: ir.Op) -> ir.Op:
    """The op with one operation for each reducer over a dim of two elements. A window of two, `x[2 * n + r]`, stays a window."""
    return replace(op, nests=tuple(replace(n, body=ir.rebuild(n.body, _one)) for n in op.nests))


def _one(e: ir.Expr) -> ir.Expr:
    match e:
        case ir.Reduce(op, (b,), (), body, dtype) if fn := REDUCERS[op].of_two:
            places = (c for r in reads(body) for c in r.coords if b.index in indices(c))
            if body.dtype != dtype or b.hi - b.lo != poly(2) or {*places} - {index(b.index)}:
                return e  # or it does not stand alone where it says which element is read
            both = (substitute_indices(body, {b.index: b.lo + k}) for k in (0, 1))
            return ir.Call(fn, tuple(ir.rebuild(one, _decided) for one in both), dtype)
    return e


def _decided(e: ir.Expr) -> ir.Expr:
    """The branch of a `where` that compares two numbers."""
    match e:
        case ir.Call("where", (ir.Call(fn, (a, b)), yes, no)) if fn in COMPARE:
            left, right = _number(a), _number(b)
            if left is not None and right is not None:
                return yes if COMPARE[fn](left, right) else no
    return e


def _number(e: ir.Expr) -> float | None:
    match e:
        case ir.Const(int() | float() as value):
            return value
        case ir.IndexValue(p) if p.constant is not None:
            return float(p.constant)
    return None
