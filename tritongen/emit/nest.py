"""The general nest: one element of the box a lane, reducers as loops. Right for every op.

Input: a `KernelPlan` of the skeleton `nest`, or `box`: the same over a tile whose rows are decoded once
a row. Output: its `NestView`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tritongen.emit.fold_lines import best_of, found, guard_text, place_of, say_place, start_text
from tritongen.emit.folds import NO_PLACE, combined
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.row_views import Fold, Loop, NestView, Reducers, Value, Variable
from tritongen.emit.tiles import counted_rows, ends_of, name_axis, open_tile, view
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.bounds import takes_all
from tritongen.ir.free import free_indices
from tritongen.ir.functions import ATOM
from tritongen.ir.reducers import REDUCERS
from tritongen.schedule.members import is_reducer


def nest_view(writer: KernelWriter) -> KernelView:
    (axis,) = writer.kernel.axes
    name_axis(writer, axis, "i")
    writer.axis_mask[axis.name] = "inside"
    total = writer.extent(axis.extent, "total") if axis.digits else "1"
    values = tuple(values_of(writer, "(BLOCK,)"))
    doc = "Each lane computes one element, each program BLOCK of them."
    return view(writer, ("BLOCK",), doc, NestView, total=total, values=values)


def box_view(writer: KernelWriter) -> KernelView:
    tile = counted_rows(writer, open_tile(writer))
    values = tuple(values_of(writer, "(ROWS, BLOCK)"))
    doc = "Each program computes a tile of ROWS x BLOCK elements. Reducers are loops."
    own = {"tile": tile, "ends": ends_of(tile), "values": values}
    return view(writer, ("ROWS", "BLOCK"), doc, NestView, **own)


def values_of(writer: KernelWriter, shape: str) -> Iterator[Value]:
    """Every value in turn: a reducer as a loop over each of its binders, in which one line accumulates."""
    for nest in writer.kernel.nests:
        reducers = None
        with writer.apart() as lines:
            if is_reducer(nest):
                start = accumulator(writer, nest, nest.name, shape)
                with entered(writer, nest.fold.binders) as loops:
                    reducers = Reducers(start, loops, (accumulated(writer, nest, start),))
                writer.values[nest.name] = (nest.name, ATOM)
                if nest.fold.is_place and not takes_all(nest.fold, writer.context.facts):
                    writer.line(f"{nest.name} = {found(writer, nest, nest.name)}")
            else:
                writer.value(nest)
            if nest.name in writer.kernel.stores:
                writer.store(nest, writer.values[nest.name][0])
        yield Value(reducers, tuple(lines))


@contextmanager
def entered(writer: KernelWriter, binders: tuple[ir.Binder, ...]) -> Iterator[tuple[Loop, ...]]:
    """A loop over each binder; what is loaded in it is forgotten behind it."""
    writer.ranges |= {b.index: (b.lo, b.hi) for b in binders}
    saved, loops = dict(writer.cache), []
    for b in binders:
        low = f"{writer.size(b.lo)[0]}, " if b.lo.terms else ""
        loops.append(Loop(writer.index_name(b.index), low + writer.size(b.hi)[0]))
        writer.index[b.index] = loops[-1].name
        writer.narrow.add(b.index)
        writer.stepped.add(b.index)
    yield tuple(loops)
    writer.cache = saved
    for b in binders:
        del writer.index[b.index]
        writer.narrow.discard(b.index)
        writer.stepped.discard(b.index)


def accumulator(writer: KernelWriter, nest: ir.Nest, name: str, shape: str) -> tuple[Variable, ...]:
    """The accumulator of a reducer, and its index if that is wanted, with initial values."""
    term = nest.fold.body.dtype
    start = shape, start_text(writer, nest, term), writer.dtype(term)
    if not nest.fold.is_place:
        return (Variable(writer.variable(name), *start, writer.comment(nest.name)),)
    best = Variable(best_of(writer, nest), *start, say_place(writer, nest))
    return best, Variable(writer.variable(name), shape, NO_PLACE, "tl.int64")


def accumulated(writer: KernelWriter, nest: ir.Nest, state: tuple[Variable, ...]) -> Fold:
    """One term into its accumulator."""
    reduce = nest.fold
    with writer.apart() as lines:
        value = writer.expr(reduce.body)
        mask = writer.mask(frozenset(), [guard_text(writer, g) for g in reduce.guards])
        if mask:
            value = f"tl.where({mask}, {value[0]}, {state[0].identity})", ATOM
        if not reduce.is_place:
            return Fold(term=tuple(lines), take=combine(writer, nest, state, value))
        if not free_indices(reduce) & nest.over:
            value = f"tl.full({state[0].shape}, {value[0]}, {state[0].dtype})", ATOM
        place = place_of(writer, nest)
        if mask:
            place = f"tl.where({mask}, {place}, {NO_PLACE})"
    names = ", ".join(variable.name for variable in state)
    take = f"{names} = {REDUCERS[reduce.op].first}({names}, {value[0]}, {place})"
    return Fold(term=tuple(lines), take=take)


def combine(
    writer: KernelWriter, nest: ir.Nest, state: tuple[Variable, ...], value: tuple[str, int]
) -> str:
    """One accumulating line."""
    kind = ir.kind_of(nest.fold.body.dtype, writer.op)
    return combined(REDUCERS[nest.fold.op].combine[kind], state[0].name, value)
