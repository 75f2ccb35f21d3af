"""One row a program, its runs under each other: a tile [LINES, BLOCK] that is folded whole.

    lines         the row is in registers
    lines_loop    LINES runs at a time, twice; mean and variance only

A gain of each run is [LINES, 1], and no element's run is found by a division. Input: a `LinesBody` over a kernel
of that skeleton. Output: its `KernelView`. What a fold leaves is a scalar.
"""

from __future__ import annotations

from tritongen.emit.body import Body, Context
from tritongen.emit.folds import BY_LINES
from tritongen.emit.masked import choose_fill
from tritongen.emit.row_folds import Steps, walked
from tritongen.emit.row_views import Tile, Walk
from tritongen.emit.tiles import (
    fold_tile,
    innermost,
    name_axis,
    open_columns,
    tile_view,
    wide_tensors,
)
from tritongen.emit.view import KernelView
from tritongen.emit.walks import row_values, tiled_reads, walk_outputs
from tritongen.schedule.plan import KernelPlan


class LinesBody(Body):
    """Runs of one length, `length`."""

    def __init__(self, context: Context, kernel: KernelPlan):
        super().__init__(context, kernel)
        self.length = ""

    def _joined(self, run: tuple[str, ...]) -> str:
        """A place along a line and the number of that line, as one."""
        along = tuple(d.index for d in self.kernel.axes[1].run.digits)
        if run[-len(along) :] != along:
            return super()._joined(run)
        line, place = self.run_text(run[: -len(along)]), self.axis_var[self.kernel.axes[1].name]
        return f"{line} * {self.length} + {place}"


def lines(body: LinesBody) -> KernelView:
    """A row in registers is counted in 32 bits: 100 registers a thread where 64 bits take 128."""
    body.narrow |= {d.index for d in body.kernel.axes[1].digits}
    tile = open_lines(body)
    fold_tile(body, covered(body), axis=None)
    doc = "One row a program, held in registers as LINES lines of BLOCK elements."
    return tile_view(body, tile, ("LINES", "BLOCK"), doc)


def lines_loop(body: LinesBody) -> KernelView:
    tile = open_lines(body)
    first, level = body.kernel.levels
    body.lines += row_values(body, first, store=True)
    again = tiled_reads(body)
    body.evict = dict.fromkeys(again, "last")  # read once more behind the folds
    body.fill, served = choose_fill(body.kernel.nests, covered(body), body.kernel.axes[1])
    steps = Steps(f"tl.minimum({tile.lines} - start, LINES) * {tile.cols}", pairs=BY_LINES)
    folds = walked(body, level, steps, served)
    moments = Walk(folds, after=row_values(body, level, store=True))
    body.evict = dict.fromkeys(again, "first")
    doc = "One row a program, LINES lines of BLOCK elements at a time: two passes over each row."
    walks = moments, *walk_outputs(body)
    return tile_view(body, tile, ("LINES", "BLOCK"), doc, walks=walks)


def open_lines(body: LinesBody) -> Tile:
    """As many programs as rows."""
    row, col = body.kernel.axes[:2]
    body.along = innermost(body)
    name_axis(body, row, "row")
    tile = Tile(**open_columns(body))
    body.axis_mask |= {row.name: "", col.outer.name: f"line < {tile.lines}"}
    body.together = {frozenset({col.outer.name, col.name}): "inside"}
    body.length = tile.cols
    return tile


def covered(body: LinesBody) -> tuple[str, ...]:
    """Tensors that the mask of the whole tile covers: read along lines and from line to line."""
    col = body.kernel.axes[1]
    along = set(wide_tensors(body, col.run))
    return tuple(t for t in wide_tensors(body, col.outer) if t in along)
