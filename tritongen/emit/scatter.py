"""A scatter: a tile of terms, each added atomically at the place that it names.

Input: a `KernelWriter` over a `KernelPlan` of the skeleton scatter, whose sums are over indices that its axes
do not have: those are read from the guards that tie them. Output: its `RowsView`.
"""

from __future__ import annotations

from tritongen.emit.fold_lines import guard_text
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.tiles import open_tile, tile_view
from tritongen.emit.view import KernelView, Store
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, indices, walk
from tritongen.schedule.classes.scatter import targets
from tritongen.schedule.members import is_reducer


def scatter(writer: KernelWriter) -> KernelView:
    tile, stores = open_tile(writer), []
    for nest in writer.kernel.nests:
        if is_reducer(nest):
            stores.append(add(writer, nest))
        else:
            writer.value(nest)
    how = "adds each to its place atomically"
    if stores[0].fold != "add":
        how = "keeps the greatest at each place with an atomic max"
    doc = f"Each program computes a tile of ROWS x BLOCK terms, and {how}."
    return tile_view(writer, tile, ("ROWS", "BLOCK"), doc, stores=stores)


def add(writer: KernelWriter, nest: ir.Nest) -> Store:
    """Adds the terms of one sum. Terms without a place, or with a place outside, are left out."""
    walked = {i for a in writer.kernel.axes for i in a.names}
    places = {name: p for name, p in targets(nest, read=False).items() if name not in walked}
    writer.ranges |= {b.index: (b.lo, b.hi) for b in nest.fold.binders}
    checks = []
    for b in nest.box:
        if b.index not in places:
            continue
        place = places[b.index]
        name = writer.size(place)[0]
        if not name.isidentifier():
            name = writer.assign(b.index, name)
        writer.index[b.index] = name
        if not writer.is_wide(place):
            writer.narrow.add(b.index)
        if any(isinstance(a, Fetch) for a in walk(place)):
            checks += [f"{name} >= {writer.size(b.lo)[0]}", f"{name} < {writer.size(b.hi)[0]}"]
    guards = [g for g in nest.fold.guards if not indices(g.poly) & places.keys()]
    checks += [guard_text(writer, g) for g in guards]
    value = writer.expr(nest.fold.body)[0]
    if not writer.strong(nest.fold.body):
        value = writer.full(nest.fold.body, nest.fold.body.dtype)
    where, _, _ = writer.address(nest.name, nest.coords)
    named = writer.axes_in(tuple(places.values())) | writer.axes_in(nest.coords)
    if any(not a.digits or a.name not in named for a in writer.kernel.axes):
        where = f"tl.broadcast_to({where}, (ROWS, BLOCK))"
    mask = writer.mask(frozenset(a.name for a in writer.kernel.axes), checks)
    writer.say(nest.name)
    op = nest.fold.op
    return Store(value, writer.taken(), where, mask, fold="add" if op == "sum" else op)
