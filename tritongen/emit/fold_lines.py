"""Folds in Triton text: the term with its mask, where it starts, how a tile of it ends.

Input: a reducer nest and the `Body` it is printed in. Output: text, or lines in the body. What a
reducer is as a monoid stands in `folds.py`; where a fold stands in a kernel, `tiles` and `walks` say.
"""

from __future__ import annotations

from tritongen.emit.body import Body
from tritongen.emit.folds import MONOIDS, NO_PLACE
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, is_fractional, with_modulo
from tritongen.ir.bounds import takes_all
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import free_indices, lines_of


def start_text(body: Body, nest: ir.Nest, dtype: str) -> str:
    """What an empty lane of a fold holds."""
    start = MONOIDS[nest.fold.op].start[ir.kind_of(dtype, body.op)]
    if start in ("LOWEST", "HIGHEST"):
        return body.lowest(dtype, highest=start == "HIGHEST")
    return start


def term(body: Body, nest: ir.Nest, served: bool) -> tuple[str, int]:
    """The term of a fold over the whole tile, masked lanes holding its start."""
    reduce = nest.fold
    out = body.expr(reduce.body)
    wide = moved_by(body, reduce.body) >= {d.index for d in body.kernel.axes[1].digits[:1]}
    guards = [guard_text(body, g) for g in reduce.guards]
    if served and not guards and wide:
        return out
    mask = term_mask(body, nest)
    start = start_text(body, nest, reduce.body.dtype)
    if not body.strong(reduce.body):
        out = (body.full(reduce.body, reduce.body.dtype), ATOM)
    return f"tl.where({mask}, {out[0]}, {start})", ATOM


def moved_by(body: Body, e: ir.Expr) -> set[str]:
    """The indices along which a value lies: a line that is the same in all rows has the shape of one."""
    return free_indices(e, lines_of(body.kernel.nests))


def term_mask(body: Body, nest: ir.Nest) -> str:
    """Where a lane of the tile holds a term."""
    axes = (part.name for axis in body.kernel.axes for part in (axis.outer, axis.run))
    return body.mask(frozenset(axes), [guard_text(body, g) for g in nest.fold.guards])


def guard_text(body: Body, guard: ir.Guard) -> str:
    """What is subtracted stands on the other side: an end as low as its type goes has no lower one."""
    p = with_modulo(guard.poly)
    strict = guard.op == ">=" and ((), -1) in p.terms
    above = tuple((monomial, value) for monomial, value in p.terms if value > 0)
    if is_fractional(p) or not above:
        return f"{body.size(p)[0]} {guard.op} 0"
    below = ((monomial, -value) for monomial, value in p.terms if value < 0)
    right = Poly(tuple(term for term in below if term[0] or not strict))
    return f"{body.size(Poly(above))[0]} {'>' if strict else guard.op} {body.size(right)[0]}"


def end_text(body: Body, nest: ir.Nest, tile_text: str, axis: int | None = 1) -> str:
    """A tile folded along an axis, or to a scalar."""
    kind = ir.kind_of(nest.fold.body.dtype, body.op)
    fold = MONOIDS[nest.fold.op]
    if axis is not None:
        return fold.end[kind].format(t=tile_text, axis=axis)
    return fold.whole(kind).format(t=tile_text)


def place_of(body: Body, nest: ir.Nest) -> str:
    """The number of a term, for argmax and argmin."""
    axis = tuple(d.index for d in body.kernel.axes[-1].digits)
    if axis == tuple(b.index for b in nest.fold.binders) and not any(
        b.lo.terms for b in nest.fold.binders
    ):
        return body.run_text(axis)
    return body.size(nest.fold.number)[0]


def found(body: Body, nest: ir.Nest, place: str) -> str:
    """The place that a walk found: -1 where there was no term."""
    sure = takes_all(nest.fold, body.context.facts)
    return place if sure else f"tl.where({place} == {NO_PLACE}, -1, {place})"


def fold_resident(body: Body, nest: ir.Nest, served: bool, axis: int | None = 1) -> None:
    """A fold of a tile that is in registers, along an axis or, but for places, over all of it."""
    if nest.fold.is_place:
        place_resident(body, nest, served)
        return
    named = (
        nest.name in body.context.user_names
        or nest.name in body.kernel.stores
        or uses(body, nest.name) != 1
    )
    with body.computing(nest.name if named else nest.line):
        out = end_text(body, nest, term(body, nest, served)[0], axis)
    if named:
        body.say(nest.name)
        name = body.assign(nest.name, out)
        body.values[nest.name] = (name, ATOM)
    else:
        body.values[nest.name] = (out, 1 if out.endswith("!= 0") else ATOM)


def place_resident(body: Body, nest: ir.Nest, served: bool) -> None:
    """The place of the first extreme term in each row."""
    rows = {d.index for d in body.kernel.axes[0].digits}
    alike = bool(moved_by(body, nest.fold.body) & rows)  # `tl.reduce` wants tiles of one shape
    with body.computing(nest.name):
        value = term(body, nest, served and alike)[0]
    body.say(nest.name)
    if not value.isidentifier():
        value = body.assign(body.fresh(f"{nest.name}_value"), value)
    mask = term_mask(body, nest) if nest.fold.guards else "inside"
    place = body.assign(
        body.fresh("place"),
        f"tl.where({mask}, {place_of(body, nest)}, {NO_PLACE}).to(tl.int32)",
    )
    best = body.fresh(f"{nest.name}_best")
    body.line(f"{best}, {nest.name} = {end_text(body, nest, f'{value}, {place}')}")
    body.line(f"{nest.name} = {found(body, nest, nest.name)}.to(tl.int64)")
    body.values[nest.name] = (nest.name, ATOM)


def uses(body: Body, name: str) -> int:
    return sum(
        e.tensor == name
        for n in body.kernel.nests
        for e in ir.walk(n.body)
        if isinstance(e, ir.Read)
    )
