"""A scatter: a tile of terms, each added atomically at the place that it names.

Input: a `Body` over a `KernelPlan` of the skeleton scatter, whose sums are over indices that its axes
do not have: those are read from the guards that tie them. Output: its `RowsView`.
"""

from __future__ import annotations

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import guard_text
from tritongen.emit.tiles import open_tile, tile_view
from tritongen.emit.view import KernelView, Store
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, indices, walk
from tritongen.schedule.classes.scatter import targets
from tritongen.schedule.members import is_reducer


def scatter(body: Body) -> KernelView:
    tile, stores = open_tile(body), []
    for nest in body.kernel.nests:
        if is_reducer(nest):
            stores.append(add(body, nest))
        else:
            body.value(nest)
    return tile_view(body, tile, ("ROWS", "BLOCK"), "", stores=stores)


def add(body: Body, nest: ir.Nest) -> Store:
    """The terms of one sum; what no place is named for, and what lies outside, is left out."""
    walked = {d.index for a in body.kernel.axes for d in a.digits}
    places = {name: p for name, p in targets(nest, read=False).items() if name not in walked}
    body.ranges |= {b.index: (b.lo, b.hi) for b in nest.fold.binders}
    checks = []
    for b in nest.box:
        if b.index not in places:
            continue
        place = places[b.index]
        name = body.size(place)[0]
        if not name.isidentifier():
            name = body.assign(b.index, name)
        body.index[b.index] = name
        if not body.is_wide(place):
            body.narrow.add(b.index)
        if any(isinstance(a, Fetch) for a in walk(place)):
            checks += [f"{name} >= {body.size(b.lo)[0]}", f"{name} < {body.size(b.hi)[0]}"]
    guards = [g for g in nest.fold.guards if not indices(g.poly) & places.keys()]
    checks += [guard_text(body, g) for g in guards]
    value = body.expr(nest.fold.body)[0]
    if not body.strong(nest.fold.body):
        value = body.full(nest.fold.body, nest.fold.body.dtype)
    where, _, _ = body.address(nest.name, nest.coords)
    named = body.axes_in(tuple(places.values())) | body.axes_in(nest.coords)
    if any(a.digits and a.name not in named for a in body.kernel.axes) or not all(
        a.digits for a in body.kernel.axes
    ):
        where = f"tl.broadcast_to({where}, (ROWS, BLOCK))"
    mask = body.mask(frozenset(a.name for a in body.kernel.axes), checks)
    body.say(nest.name if nest.name in body.context.comments else nest.line)  # of a copy
    lines, body.lines = body.lines, []
    return Store(value, lines, where, mask)
