"""Two passes through L2. Each program reduces one block of some rows, then writes an earlier block.

By then earlier programs have stored the partial results of all those rows, and L2 still holds what they read. So memory is
read once. Programs take a number when they start, so a program waits only for programs that already run. Input: a
`KernelWriter` over a kernel with one level of folds. Output: its `RowsView`, with a `Walk` for each half.
`schedule/row_schedules.py` decides how far back the second block lies (`LAG`).
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.row_folds import Steps, merged
from tritongen.emit.row_views import Walk
from tritongen.emit.tiles import open_tile, tile_view
from tritongen.emit.view import KernelView
from tritongen.emit.walks import row_stores, row_values, tiled_reads, walk_level, walk_outputs


def two_pass(writer: KernelWriter) -> KernelView:
    """The folds of one block, then the results of one further back."""
    tile, counter = open_tile(writer), writer.pointer(writer.kernel.counter)
    first, level = writer.kernel.levels
    fresh = dict(writer.index), dict(writer.axis_mask)
    # Read once more, further back.
    writer.evict = dict.fromkeys(tiled_reads(writer), '"evict_last"')
    values = row_values(writer, first)  # of the folds' terms
    steps = Steps(f"tl.minimum({tile.cols} - start, BLOCK)", "part * BLOCK", final=False)
    folding = walk_level(writer, level, steps)
    folding = replace(folding, opening=(*writer.prologue, *values))

    # The other half knows nothing of this one: another block, and another branch of the kernel.
    writer.index, writer.axis_mask = fresh
    writer.values, writer.cache, writer.assigned, writer.prologue = {}, {}, set(), []
    levels = ((each, merged(writer, each)) for each in writer.kernel.levels)
    before = [Walk(folds, after=row_values(writer, each)) for each, folds in levels]
    before[-1] = replace(before[-1], after=before[-1].after + row_stores(writer, ("part == 0",)))
    writer.evict = dict.fromkeys(tiled_reads(writer), '"evict_first"')
    (writing,) = walk_outputs(writer)
    writing, writer.prologue = replace(writing, opening=tuple(writer.prologue)), []
    doc = f"Program `ticket` reduces a block to {', '.join(level.folds)}. Then it writes an earlier block, which L2 still holds."
    blocks, walks = ("ROWS", "BLOCK", "PARTS_POW2", "LAG"), (folding, writing)
    return tile_view(writer, tile, blocks, doc, merged=tuple(before), walks=walks, counter=counter)
