"""A contraction of f32 on the tensor cores: factors prepared as TF32 numbers and what is left of them, their rests.

    a * b = rest(a) * b + a * rest(b) + a * b      but for rest(a) * rest(b), 2**-22 of it

Input: a `KernelPlan` of the skeleton `tf32x3`, where the host splits both operands into two parts (`setup`), or
of `tf32x3_half`, where it splits one, and tiles of the other are split in registers:

    w = w_tiles.load([first_n, start])
    w_number, w_rest = lib.tf32_parts(w)

Output: its `ProductView`. Planned as `persistent` is, and with its epilogue. Tensor cores of Hopper take their
first factor from registers; where that is the right one (`exchanged`), tiles of sums are turned behind the loop.
"""

from __future__ import annotations

from tritongen.emit.body import Body
from tritongen.emit.bounded import LEFT
from tritongen.emit.contraction import BLOCKS, factor, invariant, storage_dtype, sum_of
from tritongen.emit.matrices import matrix_order, matrix_text
from tritongen.emit.persistent import Load, describe, open_tiles, tiles_view
from tritongen.emit.product_view import Factor, SplitFactor
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.schedule.canonical import free_indices
from tritongen.schedule.plan import View


def tf32x3_view(body: Body) -> KernelView:
    head = body.kernel.nests[0]
    size = open_tiles(body)
    factors, setup = [], []
    for side, (tile, axis) in enumerate(zip(body.kernel.tiles, "mn", strict=True)):
        name = body.fresh(f"{tile.tensor}_part")
        line, load = parts(body, tile, axis)
        setup.append(line)
        # The first product takes the rests of the left factor (side 0), the second those of the right one.
        text = load(f"first_{axis} + (product == {side}) * {size[axis]}")
        factors.append(Factor(name, text + (".T" if side else "")))
    own = {"blocks": (*BLOCKS, "TERMS"), "flat": False, "factors": factors}
    total = sum_of(body, head, factors[0].name, factors[1].name)
    return tiles_view(body, size, setup, parts=4, sums=[total], **own)


def tf32x3_half_view(body: Body) -> KernelView:
    head, exchanged = body.kernel.nests[0], body.kernel.exchanged
    size = open_tiles(body)
    rows = row_values(body, head, size)
    sides = list(zip(body.kernel.tiles, head.fold.factors, "mn", strict=True))
    (tile, side, axis), (other, _, far) = reversed(sides) if exchanged else sides
    k = {d.index for d in body.kernel.axes[3].digits}
    (read,) = (e for e in ir.walk(side) if isinstance(e, ir.Read) and free_indices(e) & k)
    line, load_tile = describe(body, tile, (axis, "k"))
    body.loads[read] = load_tile("first_m")
    own = factor(body, side, LEFT, storage_dtype(*head.fold.factors, body.op), size)
    split, load = parts(body, other, far)
    number, rest = load(f"first_{far}"), load(f"first_{far} + {size[far]}")
    named, other_named = (
        (body.fresh(f"{name}_number"), body.fresh(f"{name}_rest"))
        for name in (own.name, other.tensor)
    )
    halves = SplitFactor(named, other_named, f"{number}.T", f"{rest}.T")
    return tiles_view(
        body,
        size,
        [line, split],
        parts=2,
        factors=[own],
        split_factor=halves,
        rows=rows,
        exchanged=exchanged,
        sums=[sum_of(body, head)],
    )


def row_values(body: Body, head: ir.Nest, size: dict[str, str]) -> list[str]:
    """What a computed left factor reads that no step of the loop changes, behind what rows are decoded to."""
    turn, body.prologue = body.prologue, []
    body.axis_mask["m"] = f"m < {size['m']}"
    invariant(body, [head])
    lines = body.prologue + body.lines
    body.axis_mask["m"], body.prologue, body.lines = "", turn, []
    return lines


def parts(body: Body, tile: View, axis: str) -> tuple[str, Load]:
    """The host line that splits and describes a factor's operand, and what loads a tile of parts from a row on.

    The rests lie below the numbers: a last tile of numbers that runs into them fills rows that are not stored.
    """
    order = matrix_order(body.kernel, tile, (axis, "k"))
    outer = [tile.runs[k] for k in order[:-2]]
    name = body.names.free(f"{tile.tensor}_tiles")
    body.args.pointers[name] = name
    block = f"BLOCK_{axis.upper()}"
    body.args.tiles[name] = (block, "BLOCK_K", 1)
    host = f'{name} = lib.tf32_tiles({matrix_text(tile.tensor, order)}, config["{block}"], config["BLOCK_K"])'
    before = [f"{body.run_text(run)}.to(tl.int32)" for run in outer]

    def load(row: str) -> str:
        out = f"{name}.load([{', '.join([*before, row, 'start'])}])"
        return out + (f".reshape({block}, BLOCK_K)" if outer else "")

    return host, load
