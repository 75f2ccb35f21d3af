"""A contraction of f32 on the tensor cores: factors as two TF32 numbers each, hi and lo.

    a * b = lo(a) * hi(b) + hi(a) * lo(b) + hi(a) * hi(b)      but for lo(a) * lo(b), 2**-22 of it

Input: a `KernelPlan` of the skeleton `tf32x3`, where the host splits both operands into two parts (`setup`), or
of `tf32x3_half`, where it splits one, and tiles of the other are split in registers:

    w = w_tiles.load([first_n, start])
    left_hi, left_lo = lib.tf32_parts(w)

Output: its `ProductView`. Planned as `persistent` is, and with its epilogue. Tensor cores of Hopper take their
first factor from registers; where that is the right one (LHS: the left one is split ahead), the tile of sums is
transposed behind the loop.
"""

from __future__ import annotations

from typing import Any

from tritongen.emit.bounded import LEFT
from tritongen.emit.contraction import BLOCKS, factor, invariant, storage_dtype, sum_of
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.matrices import matrix_order, matrix_text
from tritongen.emit.persistent import Load, describe, open_tiles, tile_of, tiles_view
from tritongen.emit.product_view import Factor, Split
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.free import free_indices, reads
from tritongen.schedule.plan import View


def tf32x3_view(writer: KernelWriter) -> KernelView:
    head = writer.kernel.nests[0]
    size = open_tiles(writer)
    factors, setup = [], []
    for side, (tile, axis) in enumerate(zip(writer.kernel.tiles, "mn", strict=True)):
        name = writer.fresh(f"{tile.tensor}_part")
        tiles = writer.descriptor(f"{tile.tensor}_tiles")
        setup.append(split_ahead(writer, tile, axis, tiles))
        load = load_parts(writer, tile, axis, tiles)
        # The first product takes the low parts of the left factor (side 0), the second those of the right one.
        text = load(f"first_{axis} + (product == {side}) * {size[axis]}")
        factors.append(Factor(name, text + (".T" if side else "")))
    own = {"blocks": (*BLOCKS, "TERMS"), "flat": False, "factors": factors}
    total = sum_of(writer, head, factors[0].name, factors[1].name)
    return tiles_view(writer, size, setup, parts=4, sums=[total], **own)


def tf32x3_half_view(writer: KernelWriter) -> KernelView:
    kernel = writer.kernel
    head, size = kernel.nests[0], open_tiles(writer)
    rows = row_values(writer, head, size)
    k = {*kernel.axes[3].names}
    names = [writer.descriptor(f"{tile.tensor}_tiles") for tile in kernel.tiles]
    setup = []
    for tile, side, axis, name in zip(kernel.tiles, head.fold.factors, "mn", names, strict=True):
        if axis == "n" and not kernel.either:
            setup.append(split_ahead(writer, tile, axis, name))
            continue
        split = f', {"not " if axis == "n" else ""}config["LHS"]'
        how = (split, "tiles_or_parts") if kernel.either else ("", "tiles")
        line, load = describe(writer, tile, (axis, "k"), *how, name)
        (read,) = (e for e in reads(side) if free_indices(e) & k)
        writer.loads[read] = load("first_m")
        setup.append(line)
    ways = []
    narrow = storage_dtype(*head.fold.factors, writer.op)
    for here, other in ((0, 1), (1, 0)) if kernel.either else ((0, 1),):
        made = factor(writer, head.fold.factors[here], LEFT, narrow, size)
        axis = "mn"[other]
        load = load_parts(writer, kernel.tiles[other], axis, names[other])
        hi, lo = load(f"first_{axis}"), load(f"first_{axis} + {size[axis]}")
        ways.append(Split(made, f"{hi}.T", f"{lo}.T"))
    blocks = (*BLOCKS, "LHS") if kernel.either else BLOCKS
    own: dict[str, Any] = {"blocks": blocks, "ways": ways, "rows": rows}
    return tiles_view(writer, size, setup, parts=2, sums=[sum_of(writer, head)], **own)


def row_values(writer: KernelWriter, head: ir.Nest, size: dict[str, str]) -> list[str]:
    """What a computed left factor reads that no step of the loop changes, behind what rows are decoded to."""
    per_tile, writer.prologue = writer.prologue, []
    writer.axis_mask["m"] = f"m < {size['m']}"
    invariant(writer, [head])
    lines = writer.prologue + writer.lines
    writer.axis_mask["m"], writer.prologue, writer.lines = "", per_tile, []
    return lines


def split_ahead(writer: KernelWriter, tile: View, axis: str, name: str) -> str:
    """The host line that splits and describes a factor's operand."""
    order = matrix_order(writer.kernel, tile, (axis, "k"))
    block = f"BLOCK_{axis.upper()}"
    writer.args.tiles[name] = (block, "BLOCK_K", 1)
    return f'{name} = lib.tf32_tiles({matrix_text(tile.tensor, order)}, config["{block}"], config["BLOCK_K"])'


def load_parts(writer: KernelWriter, tile: View, axis: str, name: str) -> Load:
    """The expression that loads a tile of parts from a row on.

    The low parts lie below the high ones. A last tile that runs into them fills rows that are not stored.
    """
    order = matrix_order(writer.kernel, tile, (axis, "k"))
    before = [f"{writer.run_text(tile.runs[k])}.to(tl.int32)" for k in order[:-2]]
    return lambda row: tile_of(name, before, {axis: row, "k": "start"})
