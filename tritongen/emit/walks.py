"""Kernels that walk their columns in blocks: loop, part, finish; and merge, which takes what parts left.

Input: a `KernelWriter` over a kernel with levels. Output: its `RowsView`, a `Walk` a level. Values over the tile live as long
as one pass, values of rows stay. What the folds do is in `row_folds.py`.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.masked import choose_fill
from tritongen.emit.row_folds import Steps, merged, place_dtype, walked
from tritongen.emit.row_views import Lines, Tile, Walk
from tritongen.emit.tiles import (
    decoded,
    forget_tile,
    in_blocks,
    is_row_value,
    needs,
    open_rows,
    open_tile,
    tile_values,
    tile_view,
    wide_tensors,
)
from tritongen.emit.view import KernelView
from tritongen.schedule.canonical import free_indices, reads
from tritongen.schedule.plan import Level


# ---- kernels -------------------------------------------------------------------------------------
def loop(writer: KernelWriter) -> KernelView:
    """Every level in turn, then the values over the whole tile."""
    tile = open_walk(writer)
    first, *levels = writer.kernel.levels
    writer.lines += row_values(writer, first, store=True)
    again = tiled_reads(writer) if stores_tile(writer) else ()
    writer.evict = dict.fromkeys(again, "last")  # read once more behind the folds
    steps = Steps(f"tl.minimum({tile.cols} - start, BLOCK)")
    walks = [walk_level(writer, level, steps) for level in levels]
    writer.evict = dict.fromkeys(again, "first")
    walks += walk_outputs(writer)
    doc = f"ROWS rows a program, of any width, BLOCK elements at a time: {_passes(len(walks))} over each row."
    return tile_view(writer, tile, ("ROWS", "BLOCK"), doc, walks=tuple(walks))


def part(writer: KernelWriter) -> KernelView:
    """One level of one part of some rows; what the levels before it left is merged first."""
    number = int(writer.kernel.role.split()[1])
    tile = open_part(writer)
    before = merge_levels(writer, writer.kernel.levels[:number])
    level = writer.kernel.levels[number]
    walk = walk_level(writer, level, steps_of_part(tile))
    doc = f"Program (part, row): {', '.join(level.folds)} over one CHUNK of ROWS rows."
    return part_view(writer, tile, doc, before, (walk,))


def finish(writer: KernelWriter) -> KernelView:
    """Merge all levels; row values are stored by the first part, tile values by all."""
    tile = open_part(writer)
    before = merge_levels(writer, writer.kernel.levels, store=True, checks=("part == 0",))
    walks = walk_outputs(writer)
    doc = "Program (part, row): merge what the parts left, then write one CHUNK of ROWS rows."
    return part_view(writer, tile, doc, before, walks)


def merge(writer: KernelWriter) -> KernelView:
    """Merge all levels where only row values are wanted."""
    tile = Tile(**open_rows(writer))
    levels = merge_levels(writer, writer.kernel.levels, store=True)
    doc = "What the parts of MERGE rows left, merged."
    return merge_view(writer, tile, doc, levels)


# ---- what they share -----------------------------------------------------------------------------
def open_walk(writer: KernelWriter) -> Tile:
    """Columns that are taken apart are counted in 32 bits where these are enough."""
    tile, col = open_tile(writer), writer.kernel.axes[1]
    if col.tail or not decoded(writer, col):
        return tile
    writer.short.add(col.name)
    return replace(tile, narrow=place_dtype(writer))


def open_part(writer: KernelWriter) -> Tile:
    """One CHUNK of some rows."""
    tile = open_walk(writer)
    writer.args.sizes["CHUNK"] = 'config["CHUNK"]'
    return tile


def steps_of_part(tile: Tile) -> Steps:
    if not tile.lines:
        return Steps("tl.minimum(stop - start, BLOCK)", "part * CHUNK", final=False)
    first = f"part * CHUNK // blocks * {tile.cols} + part * CHUNK % blocks * BLOCK"
    return Steps(f"tl.minimum({tile.cols} - start, BLOCK)", first, final=False)


def part_view(
    writer: KernelWriter, tile: Tile, doc: str, before: tuple[Walk, ...], walks: tuple[Walk, ...]
) -> KernelView:
    lanes = ("PARTS_POW2",) if any(walk.folds for walk in before) else ()
    blocks, number = ("ROWS", "BLOCK", "PARTS", *lanes), row_number(writer)
    return tile_view(writer, tile, blocks, doc, merged=before, walks=walks, number=number)


def merge_view(writer: KernelWriter, tile: Tile, doc: str, levels: tuple[Walk, ...]) -> KernelView:
    number = row_number(writer)
    return tile_view(writer, tile, ("MERGE", "PARTS"), doc, merged=levels, number=number)


def row_number(writer: KernelWriter) -> str:
    """The number of a row among all."""
    axis = writer.kernel.axes[0]
    return writer.run_text(tuple(d.index for d in axis.digits)) if axis.tail else "row"


def walk_level(writer: KernelWriter, level: Level, steps: Steps) -> Walk:
    """One pass: every fold of the level over the columns, and the row values that follow."""
    # What only the outer digits move is the same for all lanes of a block, masked ones too.
    run = writer.kernel.axes[1].run
    writer.fill, mask_redundant = choose_fill(writer.kernel.nests, wide_tensors(writer, run), run)
    folds = walked(writer, level, steps, mask_redundant)
    return Walk(folds, after=row_values(writer, level, store=True) if steps.final else ())


def merge_levels(
    writer: KernelWriter, levels: tuple[Level, ...], store: bool = False, checks: Lines = ()
) -> tuple[Walk, ...]:
    """What the parts of each level left, merged, and the row values that follow."""
    return tuple(
        Walk(merged(writer, level), after=row_values(writer, level, store, checks))
        for level in levels
    )


def row_values(
    writer: KernelWriter, level: Level, store: bool = False, checks: Lines = ()
) -> Lines:
    """Values a row that follow from the level's folds, and the stores of both."""
    nests = {n.name: n for n in writer.kernel.nests}
    with writer.apart() as lines:
        for name in level.lines:
            if name not in writer.values:
                writer.value(nests[name])
        for name in (*level.folds, *level.lines) if store else ():
            if name in writer.kernel.stores:
                writer.store(nests[name], writer.values[name][0], checks)
    return tuple(lines)


def walk_outputs(writer: KernelWriter) -> tuple[Walk, ...]:
    """The last pass: values over the whole tile that are stored."""
    stored = (n for n in writer.kernel.nests if n.name in writer.kernel.stores)
    wide = [n for n in stored if not is_row_value(writer, n)]
    if not wide:
        return ()
    writer.fill = {}
    with in_blocks(writer) as lines:
        for nest in wide:
            tile_values(writer, needs(writer, nest.body) - set(writer.values))
            if nest.name not in writer.values:
                writer.value(nest)
            writer.store(nest, writer.values[nest.name][0])
    forget_tile(writer)
    return (Walk(lines=tuple(lines)),)


def tiled_reads(writer: KernelWriter) -> tuple[str, ...]:
    """Tensors over rows and columns that folds read."""
    col = {d.index for d in writer.kernel.axes[1].digits}
    row = {d.index for d in writer.kernel.axes[0].digits}
    computed = {n.name for n in writer.kernel.nests}
    found = {
        read.tensor: None
        for nest in writer.kernel.nests
        for read in reads(nest.body)
        if read.tensor not in computed and free_indices(read) >= row and free_indices(read) & col
    }
    return tuple(found)


def stores_tile(writer: KernelWriter) -> bool:
    """Whether a value over the whole tile is stored."""
    stored = (n for n in writer.kernel.nests if n.name in writer.kernel.stores)
    return any(not is_row_value(writer, n) for n in stored)


def _passes(count: int) -> str:
    return {1: "one pass", 2: "two passes", 3: "three passes"}.get(count, f"{count} passes")
