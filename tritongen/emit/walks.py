"""Kernels that walk their columns in blocks: loop, part, finish; and merge, which takes what parts left.

Input: a `Body` over a kernel with levels. Output: its `RowsView`, a `Walk` a level. Values over the tile live as long
as one pass, values of rows stay. What the folds do is in `row_folds.py`.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.emit.body import Body
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
def loop(body: Body) -> KernelView:
    """Every level in turn, then the values over the whole tile."""
    tile = open_walk(body)
    first, *levels = body.kernel.levels
    body.lines += row_values(body, first, store=True)
    again = tiled_reads(body) if stores_tile(body) else ()
    body.evict = dict.fromkeys(again, "last")  # read once more behind the folds
    steps = Steps(f"tl.minimum({tile.cols} - start, BLOCK)")
    walks = [walk_level(body, level, steps) for level in levels]
    body.evict = dict.fromkeys(again, "first")
    walks += walk_outputs(body)
    doc = f"ROWS rows a program, of any width, BLOCK elements at a time: {_passes(len(walks))} over each row."
    return tile_view(body, tile, ("ROWS", "BLOCK"), doc, walks=tuple(walks))


def part(body: Body) -> KernelView:
    """One level of one part of some rows; what the levels before it left is merged first."""
    number = int(body.kernel.role.split()[1])
    tile = open_part(body)
    before = merge_levels(body, body.kernel.levels[:number])
    level = body.kernel.levels[number]
    walk = walk_level(body, level, steps_of_part(tile))
    doc = f"Program (part, row): {', '.join(level.folds)} over one CHUNK of ROWS rows."
    return part_view(body, tile, doc, before, (walk,))


def finish(body: Body) -> KernelView:
    """Merge all levels; row values are stored by the first part, tile values by all."""
    tile = open_part(body)
    before = merge_levels(body, body.kernel.levels, store=True, checks=("part == 0",))
    walks = walk_outputs(body)
    doc = "Program (part, row): merge what the parts left, then write one CHUNK of ROWS rows."
    return part_view(body, tile, doc, before, walks)


def merge(body: Body) -> KernelView:
    """Merge all levels where only row values are wanted."""
    tile = Tile(**open_rows(body))
    levels = merge_levels(body, body.kernel.levels, store=True)
    doc = "What the parts of MERGE rows left, merged."
    return merge_view(body, tile, doc, levels)


# ---- what they share -----------------------------------------------------------------------------
def open_walk(body: Body) -> Tile:
    """Columns that are taken apart are counted in 32 bits where these are enough."""
    tile, col = open_tile(body), body.kernel.axes[1]
    if col.tail or not decoded(body, col):
        return tile
    body.short.add(col.name)
    return replace(tile, narrow=place_dtype(body))


def open_part(body: Body) -> Tile:
    """One CHUNK of some rows."""
    tile = open_walk(body)
    body.args.sizes["CHUNK"] = 'config["CHUNK"]'
    return tile


def steps_of_part(tile: Tile) -> Steps:
    if not tile.lines:
        return Steps("tl.minimum(stop - start, BLOCK)", "part * CHUNK", final=False)
    first = f"part * CHUNK // blocks * {tile.cols} + part * CHUNK % blocks * BLOCK"
    return Steps(f"tl.minimum({tile.cols} - start, BLOCK)", first, final=False)


def part_view(
    body: Body, tile: Tile, doc: str, before: tuple[Walk, ...], walks: tuple[Walk, ...]
) -> KernelView:
    lanes = ("LANES",) if any(walk.folds for walk in before) else ()
    blocks, number = ("ROWS", "BLOCK", "PARTS", *lanes), row_number(body)
    return tile_view(body, tile, blocks, doc, merged=before, walks=walks, number=number)


def merge_view(body: Body, tile: Tile, doc: str, levels: tuple[Walk, ...]) -> KernelView:
    number = row_number(body)
    return tile_view(body, tile, ("MERGE", "PARTS"), doc, merged=levels, number=number)


def row_number(body: Body) -> str:
    """The number of a row among all."""
    axis = body.kernel.axes[0]
    return body.run_text(tuple(d.index for d in axis.digits)) if axis.tail else "row"


def walk_level(body: Body, level: Level, steps: Steps) -> Walk:
    """One pass: every fold of the level over the columns, and the row values that follow."""
    # What only the outer digits move is the same for all lanes of a block, masked ones too.
    run = body.kernel.axes[1].run
    body.fill, served = choose_fill(body.kernel.nests, wide_tensors(body, run), run)
    folds = walked(body, level, steps, served)
    return Walk(folds, after=row_values(body, level, store=True) if steps.final else ())


def merge_levels(
    body: Body, levels: tuple[Level, ...], store: bool = False, checks: Lines = ()
) -> tuple[Walk, ...]:
    """What the parts of each level left, merged, and the row values that follow."""
    return tuple(
        Walk(merged(body, level), after=row_values(body, level, store, checks)) for level in levels
    )


def row_values(body: Body, level: Level, store: bool = False, checks: Lines = ()) -> Lines:
    """Values a row that follow from the level's folds, and the stores of both."""
    nests = {n.name: n for n in body.kernel.nests}
    with body.apart() as lines:
        for name in level.lines:
            if name not in body.values:
                body.value(nests[name])
        for name in (*level.folds, *level.lines) if store else ():
            if name in body.kernel.stores:
                body.store(nests[name], body.values[name][0], checks)
    return tuple(lines)


def walk_outputs(body: Body) -> tuple[Walk, ...]:
    """The last pass: values over the whole tile that are stored."""
    stored = (n for n in body.kernel.nests if n.name in body.kernel.stores)
    wide = [n for n in stored if not is_row_value(body, n)]
    if not wide:
        return ()
    body.fill = {}
    with in_blocks(body) as lines:
        for nest in wide:
            tile_values(body, needs(body, nest.body) - set(body.values))
            if nest.name not in body.values:
                body.value(nest)
            body.store(nest, body.values[nest.name][0])
    forget_tile(body)
    return (Walk(lines=tuple(lines)),)


def tiled_reads(body: Body) -> tuple[str, ...]:
    """Tensors over rows and columns that folds read."""
    col = {d.index for d in body.kernel.axes[1].digits}
    row = {d.index for d in body.kernel.axes[0].digits}
    computed = {n.name for n in body.kernel.nests}
    found = {
        read.tensor: None
        for nest in body.kernel.nests
        for read in reads(nest.body)
        if read.tensor not in computed and free_indices(read) >= row and free_indices(read) & col
    }
    return tuple(found)


def stores_tile(body: Body) -> bool:
    """Whether a value over the whole tile is stored."""
    stored = (n for n in body.kernel.nests if n.name in body.kernel.stores)
    return any(not is_row_value(body, n) for n in stored)


def _passes(count: int) -> str:
    return {1: "one pass", 2: "two passes", 3: "three passes"}.get(count, f"{count} passes")
