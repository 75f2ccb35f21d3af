"""Rows that are processed in blocks: one level of folds after another.

    loop                all levels, in one launch or in one each
    lines               a row in registers, its runs under each other in a tile [LINES, BLOCK]: no division finds the run of an element
    lines_loop          LINES runs of a row at a time, twice; mean and variance only
    two_pass            a block of some rows, then an earlier block, which L2 still holds
    per_thread_part     mean, squares and count of every lane of a [ROWS, BLOCK] tile, merged behind the loop
    parts_merge         merges the stored parts of a row into the first of them

Input: a `KernelWriter` over a kernel with levels. Output: its `RowsView`, with a `Walk` for each level. Values over the tile
live for one pass, values of rows for all. `row_folds.py` prints the folds.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.emit.folds import BY_LANE, BY_LINES
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.row_folds import Steps, merged, place_dtype, walked
from tritongen.emit.row_views import Lines, Tile, Walk
from tritongen.emit.tiles import (
    decoded,
    fill_lanes,
    fold_tile,
    forget_tile,
    in_blocks,
    innermost,
    is_row_value,
    name_axis,
    open_columns,
    open_rows,
    open_tile,
    tile_stores,
    tile_view,
    wide_tensors,
)
from tritongen.emit.view import KernelView
from tritongen.ir.free import free_indices
from tritongen.schedule.members import operands
from tritongen.schedule.plan import Level

# Constants of launches whose programs share rows. PARTS is none, so calls of other sizes do not compile again.
SHARED = {"PASS": 0, "PARTS_POW2": 1}


# ---- kernels -------------------------------------------------------------------------------------
def loop(writer: KernelWriter) -> KernelView:
    """Rows in blocks: all levels, then the values over the whole tile. Values of rows are stored behind the last level.

    With a PASS, a launch folds one level of one CHUNK of some rows, and merges the stored states of earlier levels. Then the first part
    stores values of rows, and all parts store values of tiles.
    """
    tile, writer.divides_in = open_walk(writer), writer.fresh("DIVIDE")
    first, *levels = writer.kernel.levels
    writer.lines += row_values(writer, first)
    again = tiled_reads(writer) if stored_behind(writer) else ()
    # Read once more behind the folds, if not by another launch: softmax of few wide rows 2 to 7% slower, said there too.
    writer.evict = dict.fromkeys(again, '"evict_last" if PASS == 0 else ""')
    steps = replace(steps_of_part(tile), final=None)
    walks = [walk_level(writer, level, steps) for level in levels]
    checks = ("part == 0",) if stored_behind(writer) else ()
    walks[-1] = replace(walks[-1], after=row_stores(writer, checks, walks[-1].after))
    writer.evict = dict.fromkeys(again, '"evict_first"')
    outputs = tuple(line for walk in walk_outputs(writer) for line in walk.lines)
    number = len(walks) + bool(outputs)
    count = {1: "one pass", 2: "two passes", 3: "three passes"}.get(number, f"{number} passes")
    doc = f"Each program takes ROWS rows of any width, BLOCK elements at a time, in {count} over each row."
    fetches = writer.kernel.fetches
    own = SHARED | ({"STAGES": 1} if fetches else {})
    given = (f"{name}: tl.constexpr = {n}" for name, n in own.items())
    shared = {
        "number": row_number(writer),
        "fetches": fetches,
        "optional": (*given, "PARTS=1", "CHUNK=0"),
        "workspaces": tuple(p.pointer for w in walks for f in w.folds for p in f.parts),
    }
    blocks, walked = ("ROWS", "BLOCK"), tuple(walks)
    return tile_view(writer, tile, blocks, doc, walks=walked, outputs=outputs, **shared)


def two_pass(writer: KernelWriter) -> KernelView:
    """The folds of one block, then the results of one further back.

    By then earlier programs have stored the partial results of all those rows, and L2 still holds what they read. So memory is
    read once. Programs take a number when they start, so a program waits only for programs that already run.
    `schedule/row_schedules.py` decides how far back the second block lies (`LAG`).
    """
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


def per_thread_part(writer: KernelWriter) -> KernelView:
    """Rows across memory: each lane keeps a state in its loop, and the states merge once.

    A reduction inside the loop would go across warps twice a block, because neighbouring lanes hold different rows.
    """
    tile = open_walk(writer)
    writer.args.sizes |= {name: f'config["{name}"]' for name in ("PARTS", "CHUNK")}
    first, level = writer.kernel.levels
    writer.lines += row_values(writer, first)
    walk = walk_level(writer, level, replace(steps_of_part(tile), pairs=BY_LANE))
    doc = f"Program (part, row): {', '.join(level.folds)} over one CHUNK of ROWS rows, a state a lane."
    blocks, number = ("ROWS", "BLOCK", "STAGES"), row_number(writer)
    return tile_view(writer, tile, blocks, doc, walks=(walk,), number=number, fetches=True)


def parts_merge(writer: KernelWriter) -> KernelView:
    """The parts of a row, merged. The last pass of `loop` writes from the first part."""
    tile = Tile(**open_rows(writer))
    levels = (Walk(merged(writer, writer.kernel.levels[1], BY_LANE)),)
    doc = "What the parts of MERGE rows left, merged into the first of them."
    blocks, number = ("MERGE", "PARTS"), row_number(writer)
    return tile_view(writer, tile, blocks, doc, merged=levels, number=number)


def lines(writer: KernelWriter) -> KernelView:
    """A row in registers is counted in 32 bits: 100 registers a thread where 64 bits take 128."""
    writer.narrow |= {*writer.kernel.axes[1].names}
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


# ---- what they share -----------------------------------------------------------------------------
def open_walk(writer: KernelWriter) -> Tile:
    """Columns that are split into digits are counted in 32 bits if that is enough."""
    tile, col = open_tile(writer), writer.kernel.axes[1]
    if not decoded(writer, col.run):
        return tile
    writer.short.add(col.name)
    return replace(tile, narrow=place_dtype(writer))


def steps_of_part(tile: Tile) -> Steps:
    """From `begin` to `end`, which count columns, or blocks of all lines."""
    if not tile.lines:
        return Steps("tl.minimum(end - start, BLOCK)", "begin", final=False)
    first = f"begin // blocks * {tile.cols} + begin % blocks * BLOCK"
    return Steps(f"tl.minimum({tile.cols} - start, BLOCK)", first, final=False)


def row_number(writer: KernelWriter) -> str:
    """The number of a row among all."""
    axis = writer.kernel.axes[0]
    return writer.run_text(axis.names) if axis.tail else "row"


def walk_level(writer: KernelWriter, level: Level, steps: Steps) -> Walk:
    """One pass: every fold of the level over the columns, and the row values that follow."""
    # A value that depends only on outer digits is the same for all lanes of a block, masked ones included.
    mask_redundant = fill_lanes(writer, writer.kernel.axes[1].run)
    walk = walked(writer, level, steps, mask_redundant)
    return replace(walk, after=() if steps.final is False else row_values(writer, level))


def row_values(writer: KernelWriter, level: Level) -> Lines:
    """Values a row that follow from the level's folds."""
    nests = {n.name: n for n in writer.kernel.nests}
    with writer.apart() as lines:
        for name in level.lines:
            if name not in writer.values:
                writer.value(nests[name])
    return tuple(lines)


def row_stores(writer: KernelWriter, checks: Lines = (), behind: Lines = ()) -> Lines:
    """The stores of folds and values of rows among the lines `behind` a walk, each where its value is there.

    Triton 3.6 fails to compile some stores behind other lines that read the value.
    """
    found = list(behind)
    for nest in writer.kernel.nests:
        if nest.name in writer.kernel.stores and is_row_value(writer, nest):
            value = writer.values[nest.name][0]
            with writer.apart() as lines:
                writer.store(nest, value, checks)
            made = [k for k, line in enumerate(found) if line.lstrip().startswith(f"{value} = ")]
            at = made[-1] + 1 if made else len(found)
            found[at:at] = lines
    return tuple(found)


def walk_outputs(writer: KernelWriter) -> tuple[Walk, ...]:
    """The last pass: values over the whole tile that are stored."""
    wide = stored_behind(writer)
    if not wide:
        return ()
    writer.fill = {}
    with in_blocks(writer):
        lines = tile_stores(writer, wide)
    forget_tile(writer)
    return (Walk(lines=lines),)


def tiled_reads(writer: KernelWriter) -> tuple[str, ...]:
    """Tensors over rows and columns that folds read."""
    row, col = ({*axis.names} for axis in writer.kernel.axes[:2])
    found = ((r.tensor, free_indices(r)) for r in operands(writer.kernel.nests))
    return tuple(dict.fromkeys(tensor for tensor, own in found if own >= row and own & col))


def stored_behind(writer: KernelWriter) -> list[str]:
    """The values over the whole tile that are stored in a pass of their own."""
    done = {name for level in writer.kernel.levels for name in level.stores}
    stored = (n for n in writer.kernel.nests if n.name in writer.kernel.stores)
    return [n.name for n in stored if not is_row_value(writer, n) and n.name not in done]


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
