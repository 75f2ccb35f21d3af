"""The general nest: one element of the box a lane, reducers as loops. Right for every op.

Input: a `KernelPlan` of the skeleton `nest`, or `box`: the same over a tile whose rows are decoded once
a row. Output: its `KernelView`, straight lines with the loops written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import (
    found,
    guard_text,
    place_of,
    start_text,
)
from tritongen.emit.folds import MONOIDS, NO_PLACE, combined
from tritongen.emit.tiles import open_tile, tile_view, view
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.bounds import takes_all
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import free_indices
from tritongen.schedule.members import is_reducer


def nest_view(body: Body) -> KernelView:
    kernel = body.kernel
    (axis,) = kernel.axes
    variable = body.names.free("i")
    body.axis_var[axis.name] = variable
    if len(axis.digits) == 1:
        body.index[axis.digits[0].index] = variable
    total = body.extent(axis.extent, "total") if axis.digits else "1"
    inside = body.names.free("inside")
    body.axis_mask[axis.name] = inside
    all_values(body, "(BLOCK,)")
    var = {"i": variable, "total": total, "inside": inside}
    return view(
        body, var, ("BLOCK",), "One element a lane, BLOCK a program.", lines=tuple(body.lines)
    )


def box_view(body: Body) -> KernelView:
    tile = open_tile(body)
    all_values(body, "(ROWS, BLOCK)")
    doc = "A tile of ROWS x BLOCK elements a program, reducers as loops."
    return tile_view(body, tile, ("ROWS", "BLOCK"), doc)


def all_values(body: Body, shape: str) -> None:
    for nest in body.kernel.nests:
        if is_reducer(nest):
            loops(body, nest, shape)
        else:
            body.value(nest)
        if nest.name in body.kernel.stores:
            body.store(nest, body.values[nest.name][0])


def loops(body: Body, nest: ir.Nest, shape: str) -> None:
    """A reducer as a loop over each of its binders around one accumulating line."""
    total = accumulator(body, nest, nest.name, shape)
    with entered(body, nest.fold.binders, "range"):
        accumulate(body, nest, total, shape)
    if nest.fold.is_place and not takes_all(nest.fold, body.context.facts):
        body.line(f"{nest.name} = {found(body, nest, nest.name)}")
    body.values[nest.name] = (nest.name, ATOM)


@contextmanager
def entered(body: Body, binders: tuple[ir.Binder, ...], counts: str) -> Iterator[None]:
    """A loop over each binder; what is loaded in it is forgotten behind it."""
    body.ranges |= {b.index: (b.lo, b.hi) for b in binders}
    saved, indent = dict(body.cache), body.indent
    for b in binders:
        low = f"{body.size(b.lo)[0]}, " if b.lo.terms else ""
        variable = body.index_name(b.index)
        body.line(f"for {variable} in {counts}({low}{body.size(b.hi)[0]}):")
        body.index[b.index] = variable
        body.narrow.add(b.index)
        body.indent += 1
    yield
    body.cache, body.indent = saved, indent
    for b in binders:
        del body.index[b.index]
        body.narrow.discard(b.index)


def accumulator(body: Body, nest: ir.Nest, name: str, shape: str) -> str:
    """The variable that a reducer collects in, set to what it starts from in every lane."""
    term, is_arg = nest.fold.body.dtype, nest.fold.is_place
    start = f"tl.full({shape}, {start_text(body, nest, term)}, {body.dtype(term)})"
    body.say(nest.name)
    if not is_arg:
        return body.assign(name, start)
    total = body.assign(body.fresh(f"{name}_best"), start)
    body.assign(name, f"tl.full({shape}, {NO_PLACE}, tl.int64)")
    return total


def accumulate(body: Body, nest: ir.Nest, total: str, shape: str) -> None:
    """One term into its accumulator."""
    reduce = nest.fold
    value = body.expr(reduce.body)
    if guards := [guard_text(body, g) for g in reduce.guards]:
        mask = guards[0] if len(guards) == 1 else " & ".join(f"({g})" for g in guards)
        value = f"tl.where({mask}, {value[0]}, {start_text(body, nest, reduce.body.dtype)})", ATOM
    if not reduce.is_place:
        combine(body, nest, total, value)
        return
    if not free_indices(reduce) & {b.index for b in nest.box}:
        value = f"tl.full({shape}, {value[0]}, {body.dtype(reduce.body.dtype)})", ATOM
    place = place_of(body, nest)
    if guards:
        place = f"tl.where({mask}, {place}, {NO_PLACE})"
    both = f"{MONOIDS[reduce.op].first}({total}, {nest.name}, {value[0]}, {place})"
    body.line(f"{total}, {nest.name} = {both}")


def combine(body: Body, nest: ir.Nest, total: str, value: tuple[str, int]) -> None:
    """One accumulating line."""
    kind = ir.kind_of(nest.fold.body.dtype, body.op)
    body.line(combined(MONOIDS[nest.fold.op].combine[kind], total, value))
