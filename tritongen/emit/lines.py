"""Rows whose runs lie under each other in a tile [LINES, BLOCK]. Each program reduces one row.

    lines         the row is in registers
    lines_loop    LINES runs at a time, twice; mean and variance only

The gain of each run is [LINES, 1], so no division finds the run of an element. Input: a `KernelWriter` over a kernel of
that skeleton. Output: its `KernelView`. The result of a fold is a scalar.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.emit.folds import BY_LINES
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.row_folds import Steps, walked
from tritongen.emit.row_views import Tile
from tritongen.emit.tiles import (
    fill_lanes,
    fold_tile,
    innermost,
    name_axis,
    open_columns,
    tile_view,
    wide_tensors,
)
from tritongen.emit.view import KernelView
from tritongen.emit.walks import row_stores, row_values, tiled_reads, walk_outputs


def lines(writer: KernelWriter) -> KernelView:
    """A row in registers is counted in 32 bits: 100 registers a thread where 64 bits take 128."""
    writer.narrow |= {d.index for d in writer.kernel.axes[1].digits}
    tile = open_lines(writer)
    fold_tile(writer, covered(writer), axis=None)
    doc = "Each program holds one row in registers, as LINES lines of BLOCK elements."
    return tile_view(writer, tile, ("LINES", "BLOCK"), doc)


def lines_loop(writer: KernelWriter) -> KernelView:
    tile = open_lines(writer)
    first, level = writer.kernel.levels
    writer.lines += row_values(writer, first)
    again = tiled_reads(writer)
    writer.evict = dict.fromkeys(again, '"evict_last"')  # read once more behind the folds
    mask_redundant = fill_lanes(writer, writer.kernel.axes[1], covered(writer))
    steps = Steps(f"tl.minimum({tile.lines} - start, LINES) * {tile.cols}", pairs=BY_LINES)
    moments = walked(writer, level, steps, mask_redundant)
    moments = replace(moments, after=row_values(writer, level) + row_stores(writer))
    writer.evict = dict.fromkeys(again, '"evict_first"')
    doc = "Each program handles one row, LINES lines of BLOCK elements at a time, in two passes."
    walks = moments, *walk_outputs(writer)
    return tile_view(writer, tile, ("LINES", "BLOCK"), doc, walks=walks)


def open_lines(writer: KernelWriter) -> Tile:
    """As many programs as rows."""
    row, col = writer.kernel.axes[:2]
    writer.along = {"": innermost(writer)}
    name_axis(writer, row, "row")
    tile = Tile(**open_columns(writer))
    writer.axis_mask |= {row.name: "", col.outer.name: f"line < {tile.lines}"}
    writer.together = {frozenset({col.outer.name, col.name}): "inside"}
    writer.lengths[col.name] = tile.cols
    return tile


def covered(writer: KernelWriter) -> tuple[str, ...]:
    """Tensors that the mask of the whole tile covers: read along lines and from line to line."""
    col = writer.kernel.axes[1]
    along = set(wide_tensors(writer, col.run))
    return tuple(t for t in wide_tensors(writer, col.outer) if t in along)
