"""The general nest: one element of the box a lane, reducers as loops. Right for every op.

Input: a `KernelPlan` of the skeleton `nest`, or `box`: the same over a tile whose rows are decoded once
a row. Output: its `NestView`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import found, guard_text, place_of, start_text
from tritongen.emit.folds import MONOIDS, NO_PLACE, combined
from tritongen.emit.nest_views import Loop, NestView, Reducers, Value
from tritongen.emit.row_views import Fold, Variable
from tritongen.emit.tiles import name_axis, open_tile, view
from tritongen.emit.view import KernelView, Store
from tritongen.ir import nodes as ir
from tritongen.ir.bounds import takes_all
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import free_indices
from tritongen.schedule.members import is_reducer


def nest_view(body: Body) -> KernelView:
    (axis,) = body.kernel.axes
    name_axis(body, axis, "i")
    body.axis_mask[axis.name] = "inside"
    total = body.extent(axis.extent, "total") if axis.digits else "1"
    values = tuple(values_of(body, "(BLOCK,)"))
    return view(body, {}, ("BLOCK",), "", NestView, total=total, values=values)


def box_view(body: Body) -> KernelView:
    tile = open_tile(body)
    values = tuple(values_of(body, "(ROWS, BLOCK)"))
    return view(body, {}, ("ROWS", "BLOCK"), "", NestView, tile=tile, values=values)


def values_of(body: Body, shape: str) -> Iterator[Value]:
    """Every value in turn: a reducer as a loop over each of its binders, in which one line accumulates."""
    for nest in body.kernel.nests:
        reducers, store = None, None
        with body.apart() as lines:
            if is_reducer(nest):
                start = accumulator(body, nest, nest.name, shape)
                with entered(body, nest.fold.binders) as loops:
                    reducers = Reducers(start, loops, (accumulated(body, nest, start),))
                body.values[nest.name] = (nest.name, ATOM)
                if nest.fold.is_place and not takes_all(nest.fold, body.context.facts):
                    body.line(f"{nest.name} = {found(body, nest, nest.name)}")
            else:
                body.value(nest)
        if nest.name in body.kernel.stores:
            store = Store(body.values[nest.name][0], *body.stored_at(nest))
        yield Value(reducers, tuple(lines), store)


@contextmanager
def entered(body: Body, binders: tuple[ir.Binder, ...]) -> Iterator[tuple[Loop, ...]]:
    """A loop over each binder; what is loaded in it is forgotten behind it."""
    body.ranges |= {b.index: (b.lo, b.hi) for b in binders}
    saved, loops = dict(body.cache), []
    for b in binders:
        low = f"{body.size(b.lo)[0]}, " if b.lo.terms else ""
        loops.append(Loop(body.index_name(b.index), low + body.size(b.hi)[0]))
        body.index[b.index] = loops[-1].name
        body.narrow.add(b.index)
    yield tuple(loops)
    body.cache = saved
    for b in binders:
        del body.index[b.index]
        body.narrow.discard(b.index)


def accumulator(body: Body, nest: ir.Nest, name: str, shape: str) -> tuple[Variable, ...]:
    """What a reducer collects in, and the place of that where it is wanted: as it is before the first term."""
    term = nest.fold.body.dtype
    start = shape, start_text(body, nest, term), body.dtype(term), body.comment(nest.name)
    if not nest.fold.is_place:
        return (Variable(body.variable(name), *start),)
    best = Variable(body.variable(body.fresh(f"{name}_best")), *start)
    return best, Variable(body.variable(name), shape, NO_PLACE, "tl.int64")


def accumulated(body: Body, nest: ir.Nest, state: tuple[Variable, ...]) -> Fold:
    """One term into its accumulator."""
    reduce = nest.fold
    with body.apart() as lines:
        value = body.expr(reduce.body)
        guards = [guard_text(body, g) for g in reduce.guards]
        mask = guards[0] if len(guards) == 1 else " & ".join(f"({g})" for g in guards)
        if guards:
            value = f"tl.where({mask}, {value[0]}, {state[0].identity})", ATOM
        if not reduce.is_place:
            return Fold(term=tuple(lines), take=combine(body, nest, state, value))
        if not free_indices(reduce) & {b.index for b in nest.box}:
            value = f"tl.full({state[0].shape}, {value[0]}, {state[0].dtype})", ATOM
        place = place_of(body, nest)
        if guards:
            place = f"tl.where({mask}, {place}, {NO_PLACE})"
    names = ", ".join(variable.name for variable in state)
    take = f"{names} = {MONOIDS[reduce.op].first}({names}, {value[0]}, {place})"
    return Fold(term=tuple(lines), take=take)


def combine(body: Body, nest: ir.Nest, state: tuple[Variable, ...], value: tuple[str, int]) -> str:
    """One accumulating line."""
    kind = ir.kind_of(nest.fold.body.dtype, body.op)
    return combined(MONOIDS[nest.fold.op].combine[kind], state[0].name, value)
