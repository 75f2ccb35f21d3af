"""A contraction of f32 on the tensor cores: factors as two TF32 numbers each, hi and lo.

    a * b = lo(a) * hi(b) + hi(a) * lo(b) + hi(a) * hi(b)      but for lo(a) * lo(b), 2**-22 of it

Input: a `KernelPlan` of the skeleton `tf32x3`, where the host splits both operands into two parts (`setup`), or
of `tf32x3_half`, where it splits one, and tiles of the other are split in registers:

    w = w_tiles.load([first_n, start])
    w_hi, w_lo = lib.tf32_parts(w)

Output: its `ProductView`. Planned as `persistent` is, and with its epilogue. Tensor cores of Hopper take their
first factor from registers; where that is the right one (`swapped`), the tile of sums is transposed behind the loop.
"""

from __future__ import annotations

from tritongen.emit.bounded import LEFT
from tritongen.emit.contraction import BLOCKS, factor, invariant, storage_dtype, sum_of
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.matrices import matrix_order, matrix_text
from tritongen.emit.persistent import Load, describe, open_tiles, tiles_view
from tritongen.emit.product_view import Factor, SplitFactor
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.schedule.canonical import free_indices
from tritongen.schedule.plan import View


def tf32x3_view(writer: KernelWriter) -> KernelView:
    head = writer.kernel.nests[0]
    size = open_tiles(writer)
    factors, setup = [], []
    for side, (tile, axis) in enumerate(zip(writer.kernel.tiles, "mn", strict=True)):
        name = writer.fresh(f"{tile.tensor}_part")
        line, load = parts(writer, tile, axis)
        setup.append(line)
        # The first product takes the low parts of the left factor (side 0), the second those of the right one.
        text = load(f"first_{axis} + (product == {side}) * {size[axis]}")
        factors.append(Factor(name, text + (".T" if side else "")))
    own = {"blocks": (*BLOCKS, "TERMS"), "flat": False, "factors": factors}
    total = sum_of(writer, head, factors[0].name, factors[1].name)
    return tiles_view(writer, size, setup, parts=4, sums=[total], **own)


def tf32x3_half_view(writer: KernelWriter) -> KernelView:
    head, swapped = writer.kernel.nests[0], writer.kernel.swapped
    size = open_tiles(writer)
    rows = row_values(writer, head, size)
    sides = list(zip(writer.kernel.tiles, head.fold.factors, "mn", strict=True))
    (tile, side, axis), (other, _, far) = reversed(sides) if swapped else sides
    k = {d.index for d in writer.kernel.axes[3].digits}
    (read,) = (e for e in ir.walk(side) if isinstance(e, ir.Read) and free_indices(e) & k)
    line, load_tile = describe(writer, tile, (axis, "k"))
    writer.loads[read] = load_tile("first_m")
    own = factor(writer, side, LEFT, storage_dtype(*head.fold.factors, writer.op), size)
    split, load = parts(writer, other, far)
    hi, lo = load(f"first_{far}"), load(f"first_{far} + {size[far]}")
    named, other_named = (
        (writer.fresh(f"{name}_hi"), writer.fresh(f"{name}_lo"))
        for name in (own.name, other.tensor)
    )
    halves = SplitFactor(named, other_named, f"{hi}.T", f"{lo}.T")
    return tiles_view(
        writer,
        size,
        [line, split],
        parts=2,
        factors=[own],
        split_factor=halves,
        rows=rows,
        swapped=swapped,
        sums=[sum_of(writer, head)],
    )


def row_values(writer: KernelWriter, head: ir.Nest, size: dict[str, str]) -> list[str]:
    """What a computed left factor reads that no step of the loop changes, behind what rows are decoded to."""
    per_tile, writer.prologue = writer.prologue, []
    writer.axis_mask["m"] = f"m < {size['m']}"
    invariant(writer, [head])
    lines = writer.prologue + writer.lines
    writer.axis_mask["m"], writer.prologue, writer.lines = "", per_tile, []
    return lines


def parts(writer: KernelWriter, tile: View, axis: str) -> tuple[str, Load]:
    """The host line that splits and describes a factor's operand, and what loads a tile of parts from a row on.

    The low parts lie below the high ones: a last tile of these that runs into them fills rows that are not stored.
    """
    order = matrix_order(writer.kernel, tile, (axis, "k"))
    outer = [tile.runs[k] for k in order[:-2]]
    name = writer.names.free(f"{tile.tensor}_tiles")
    writer.args.pointers[name] = name
    block = f"BLOCK_{axis.upper()}"
    writer.args.tiles[name] = (block, "BLOCK_K", 1)
    host = f'{name} = lib.tf32_tiles({matrix_text(tile.tensor, order)}, config["{block}"], config["BLOCK_K"])'
    before = [f"{writer.run_text(run)}.to(tl.int32)" for run in outer]

    def load(row: str) -> str:
        out = f"{name}.load([{', '.join([*before, row, 'start'])}])"
        return out + (f".reshape({block}, BLOCK_K)" if outer else "")

    return host, load
