"""Sums that divide their index walk only the terms at which the quotient is whole.

    dx[h] = sum[r < win](dy[(h - r) / 2] else 0)

Every second term is 0. The others are r = 2 * r_turn + h % 2, at which dy is read at h // 2 - r_turn. So a thread visits half as
many terms. Gradients of pools are such sums. Transposed convolutions have phases in their place (`classes/phases.py`).
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Poly,
    denominator,
    floordiv,
    index,
    indices,
    is_fractional,
    numerator,
    poly,
    weight_of,
)
from tritongen.ir.bounds import Facts, prove
from tritongen.ir.free import reads
from tritongen.ir.names import fresh
from tritongen.schedule.canonical import substitute_indices
from tritongen.schedule.members import is_reducer


def of_whole_quotients(nest: ir.Nest, facts: Facts) -> ir.Nest:
    """The nest with each index of its sum that is divided exactly replaced by the number of the quotient."""
    if not is_reducer(nest) or nest.fold.op != "sum":
        return nest
    for binder in nest.fold.binders:
        if (found := _stepped(nest.fold, binder, facts)) is not None:
            nest = replace(nest, body=found)
    return nest


def _stepped(fold: ir.Reduce, binder: ir.Binder, facts: Facts) -> ir.Reduce | None:
    found = [r for r in reads(fold.body) if any(binder.index in indices(c) for c in r.coords)]
    if any(read.fill is None for read in found):
        return None  # it is inside of its tensor at these terms alone
    for at in sorted({c for r in found for c in r.coords if is_fractional(c)}, key=str):
        step, weight = denominator(at), weight_of(numerator(at), binder.index)
        if weight not in (poly(1), poly(-1)) or prove(step, ">=", poly(1), facts) is not True:
            continue
        if binder.lo.terms or not _is_zero(fold.body, at):
            continue
        # `rest` and the index are equal modulo the step.
        rest = numerator(at) - weight * index(binder.index)
        rest = rest if weight == poly(-1) else -rest
        taken = {b.index for b in fold.binders} | indices(at)
        name = fresh(f"{binder.index}_turn", taken)
        turn = ir.Binder(name, poly(0), floordiv(binder.hi + step - 1, step))
        term = step * (index(turn.index) - floordiv(rest, step)) + rest
        return _walked(fold, binder, turn, term)
    return None


def _is_zero(e: ir.Expr, at: Poly) -> bool:
    """Whether a term is 0 where it reads outside at this coordinate, even if all else that it reads is NaN."""
    match e:
        case ir.Read(coords=coords, fill=fill):
            return at in coords and fill == 0
        case ir.Const(value):
            return value == 0
        case ir.Cast(arg):
            return _is_zero(arg, at)
        case ir.Call("where", (_, *args)) | ir.Call("add" | "sub" | "neg" | "mul", args):
            return all(_is_zero(arg, at) for arg in args)
    return False


def _walked(fold: ir.Reduce, binder: ir.Binder, turn: ir.Binder, term: Poly) -> ir.Reduce:
    """The fold over `turn`, whose terms are those of `binder` at `term`."""
    known = {binder.index: term}
    body = substitute_indices(replace(fold, binders=()), known)
    assert isinstance(body, ir.Reduce)
    binders = tuple(turn if b == binder else b for b in fold.binders)
    guards = (*body.guards, ir.Guard(binder.hi - 1 - term, ">="))
    return replace(body, binders=binders, guards=guards)
