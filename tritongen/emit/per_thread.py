"""Mean and variance of rows across memory: each lane keeps a state in its loop, and the states merge once.

    per_thread_part     mean, squares and count of every lane of a [ROWS, BLOCK] tile, merged behind the loop
    per_thread_merge    merges the stored parts of a row into the first of them

Input: a `KernelWriter` over a kernel of that skeleton. Output: its `RowsView`. A reduction inside the loop would go across
warps twice a block, because neighbouring lanes hold different rows. The last pass of `loop` writes from the first part.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.emit.folds import BY_LANE
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.row_folds import merged
from tritongen.emit.row_views import Tile, Walk
from tritongen.emit.tiles import open_rows, tile_view
from tritongen.emit.view import KernelView
from tritongen.emit.walks import open_walk, row_number, row_values, steps_of_part, walk_level


def per_thread_part(writer: KernelWriter) -> KernelView:
    tile = open_walk(writer)
    writer.args.sizes["CHUNK"] = 'config["CHUNK"]'
    first, level = writer.kernel.levels
    writer.lines += row_values(writer, first)
    walk = walk_level(writer, level, replace(steps_of_part(tile), pairs=BY_LANE))
    doc = f"Program (part, row): {', '.join(level.folds)} over one CHUNK of ROWS rows, a state a lane."
    blocks, number = ("ROWS", "BLOCK", "PARTS"), row_number(writer)
    return tile_view(writer, tile, blocks, doc, walks=(walk,), number=number)


def per_thread_merge(writer: KernelWriter) -> KernelView:
    tile = Tile(**open_rows(writer))
    levels = (Walk(merged(writer, writer.kernel.levels[1], BY_LANE)),)
    doc = "What the parts of MERGE rows left, merged into the first of them."
    blocks, number = ("MERGE", "PARTS"), row_number(writer)
    return tile_view(writer, tile, blocks, doc, merged=levels, number=number)
