"""A relay: each program leaves the folds of one block of some rows, and then writes a block further back.

By then the programs before it have left all of those rows; L2 still holds what they read, so that memory is read
once. Input: a `Body` over a kernel with one level of folds. Output: its `RowsView`, a `Walk` for each half.
Programs count themselves as they start: who waits, waits for programs that run already. Not here: how far back
(`AHEAD`, `schedule/row_schedules.py`).
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.emit.body import Body
from tritongen.emit.row_folds import Steps
from tritongen.emit.tiles import open_tile, tile_view
from tritongen.emit.view import KernelView
from tritongen.emit.walks import merge_levels, row_values, tiled_reads, walk_level, walk_outputs


def relay(body: Body) -> KernelView:
    """The folds of one block, then the results of one further back."""
    tile, counter = open_tile(body), body.pointer(body.kernel.counter)
    first, level = body.kernel.levels
    fresh = dict(body.index), dict(body.axis_mask)
    body.evict = dict.fromkeys(tiled_reads(body), "last")  # read once more, further back
    values = row_values(body, first)  # of the folds' terms
    steps = Steps(f"tl.minimum({tile.cols} - start, BLOCK)", "part * BLOCK", final=False)
    folding = walk_level(body, level, steps)
    folding = replace(folding, opening=(*body.prologue, *values))

    # The other half knows nothing of this one: another block, and another branch of the kernel.
    body.index, body.axis_mask = fresh
    body.values, body.cache, body.assigned, body.prologue = {}, {}, set(), []
    before = merge_levels(body, body.kernel.levels, store=True, checks=("part == 0",))
    body.evict = dict.fromkeys(tiled_reads(body), "first")
    (writing,) = walk_outputs(body)
    writing, body.prologue = replace(writing, opening=tuple(body.prologue)), []
    doc = f"Program `turn`: {', '.join(level.folds)} over a block; then a block further back, read again from L2."
    blocks, walks = ("ROWS", "BLOCK", "LANES", "AHEAD"), (folding, writing)
    return tile_view(body, tile, blocks, doc, merged=before, walks=walks, counter=counter)
