"""A contraction of f32 on the tensor cores: each factor prepared once as a TF32 number and its rest.

    a * b = rest(a) * b + a * rest(b) + a * b      but for rest(a) * rest(b), 2**-22 of it

Input: a `KernelPlan` of the skeleton `tf32x3`, planned as `persistent` is. Output: its `KernelView`: the host
splits the operands into two parts (`setup`), the loop takes one product of parts a step, and the epilogue
is that of any contraction by descriptors. Two accumulators: the tensor cores cut off what they add.
"""

from __future__ import annotations

from collections.abc import Callable

from tritongen.emit.body import Body
from tritongen.emit.contraction import accumulators
from tritongen.emit.matrices import matrix_order, matrix_text
from tritongen.emit.persistent import BLOCKS, epilogue, open_tiles, place_lines
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView, Loop
from tritongen.schedule.plan import View


def tf32x3_view(body: Body) -> KernelView:
    head, *tail = body.kernel.nests
    var = open_tiles(body, False)
    for name in ("step", "product", "first_k"):
        var[name] = body.names.free(name)
    body.axis_mask |= {"m": "", "n": ""}
    factors = []
    setup, loads = [], []
    for side, (tile, axis) in enumerate(zip(body.kernel.tiles, "mn", strict=True)):
        factors.append(body.fresh(f"{tile.tensor}_part"))
        host, load = parts(body, tile, axis, var)
        setup.append(host)
        # The first product takes the rests of the left factor (side 0), the second those of the right one.
        row = f"{var[f'first_{axis}']} + ({var['product']} == {side}) * {var[axis.upper()]}"
        loads.append(f"{factors[-1]} = {load(row)}" + (".T" if side else ""))
    turn, body.prologue = [*place_lines(body, var, False), *body.prologue], []
    zeros = accumulators(body, (head,))
    var["total"] = body.values[head.name][0]
    var["sum"] = body.fresh(f"{head.name}_terms")
    var["left"], var["right"] = factors
    setup += epilogue(body, (head,), tail, var)
    return view(
        body,
        var,
        (*BLOCKS, "TERMS"),
        "Tiles of BLOCK_M x BLOCK_N sums, one after another a program, of factors in two TF32 parts.",
        loops=(Loop(tuple(zeros), tuple(loads), ()),),
        lines=tuple(body.lines),
        setup=tuple(setup),
        turn=tuple(turn),
    )


def parts(
    body: Body, tile: View, axis: str, var: dict[str, str]
) -> tuple[str, Callable[[str], str]]:
    """The host line that splits and describes a factor's operand, and what loads a tile of parts from a row on.

    The rests lie below the numbers: a last tile of numbers that runs into them fills rows that are not stored.
    """
    order = matrix_order(body.kernel, tile, (axis, "k"))
    outer = [tile.runs[k] for k in order[:-2]]
    name = body.names.free(f"{tile.tensor}_tiles")
    body.args.pointers[name] = name
    block = f"BLOCK_{axis.upper()}"
    host = f'{name} = lib.tf32_tiles({matrix_text(tile.tensor, order)}, config["{block}"], config["BLOCK_K"])'
    before = [f"{body.run_text(run)}.to(tl.int32)" for run in outer]

    def load(row: str) -> str:
        out = f"{name}.load([{', '.join([*before, row, var['start']])}])"
        return out + (f".reshape({block}, BLOCK_K)" if outer else "")

    return host, load
