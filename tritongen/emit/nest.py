"""The general nest: one element of the box a lane, reducers as loops. Right for every op.

Input: a `KernelPlan` of the skeleton `nest`. Output: its `KernelView`, straight lines with the loops
written out. Nothing is tiled or shared here; the other skeletons are for speed.
"""

from __future__ import annotations

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import NO_PLACE, arg_helper, guard_text, place_of, start_text
from tritongen.emit.folds import FOLDS, combined
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
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
    for nest in kernel.nests:
        if is_reducer(nest):
            loops(body, nest)
        else:
            body.value(nest)
        if nest.name in kernel.stores:
            body.store(nest, body.values[nest.name][0])
    var = {"i": variable, "total": total, "inside": inside}
    return view(
        body, var, ("BLOCK",), "One element a lane, BLOCK a program.", lines=tuple(body.lines)
    )


def loops(body: Body, nest: ir.Nest) -> None:
    """A reducer as a loop over each of its binders around one accumulating line."""
    reduce = nest.body
    body.ranges |= {b.index: (b.lo, b.hi) for b in reduce.binders}
    dtype, start = body.dtype(reduce.body.dtype), start_text(body, nest, reduce.body.dtype)
    is_arg = reduce.op.startswith("arg")
    total = body.assign(
        body.fresh(f"{nest.name}_best") if is_arg else nest.name,
        f"tl.full((BLOCK,), {start}, {dtype})",
    )
    if is_arg:
        body.assign(nest.name, f"tl.full((BLOCK,), {NO_PLACE}, tl.int64)")
    saved, indent = dict(body.cache), body.indent
    for b in reduce.binders:
        low = f"{body.size(b.lo)[0]}, " if b.lo.terms else ""
        variable = body.index_name(b.index)
        body.line(f"for {variable} in range({low}{body.size(b.hi)[0]}):")
        body.index[b.index] = variable
        body.narrow.add(b.index)
        body.indent += 1
    value = body.expr(reduce.body)
    if guards := [guard_text(body, g) for g in reduce.guards]:
        mask = guards[0] if len(guards) == 1 else " & ".join(f"({g})" for g in guards)
        value = f"tl.where({mask}, {value[0]}, {start})", ATOM
    if is_arg:
        if not free_indices(reduce.body) & {b.index for b in nest.box}:
            value = f"tl.full((BLOCK,), {value[0]}, {dtype})", ATOM
        place = place_of(body, nest)
        if guards:
            place = f"tl.where({mask}, {place}, {NO_PLACE})"
        body.line(
            f"{total}, {nest.name} = {arg_helper(body, nest)}({total}, {nest.name}, {value[0]}, {place})"
        )
    else:
        combine(body, nest, total, value)
    body.cache, body.indent = saved, indent
    for b in reduce.binders:
        del body.index[b.index]
        body.narrow.discard(b.index)
    body.values[nest.name] = (nest.name, ATOM)


def combine(body: Body, nest: ir.Nest, total: str, value: tuple[str, int]) -> None:
    """One accumulating line."""
    kind = ir.kind_of(nest.body.body.dtype, body.op)
    text = combined(FOLDS[nest.body.op].combine[kind], total, value)
    for helper in ("_nan_max", "_nan_min"):
        if helper in text:
            body.helpers[helper] = None
    body.line(text)
