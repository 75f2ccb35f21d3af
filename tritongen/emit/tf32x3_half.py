"""A contraction of f32 on the tensor cores with one factor as stored: its tiles are split in registers.

    w = w_tiles.load([first_n, start])
    w_number, w_rest = lib.tf32_parts(w)

Input: a `KernelPlan` of the skeleton `tf32x3_half`. Output: its `KernelView`: the host splits the operand of
the other factor ahead (`setup`), as `tf32x3` does both. Tensor cores of Hopper take their first factor from
registers; where that is the right one (`exchanged`), tiles of sums are turned behind the loop.
"""

from __future__ import annotations

from tritongen.emit.body import Body
from tritongen.emit.bounded import LEFT
from tritongen.emit.contraction import accumulators, factor, invariant, storage_dtype
from tritongen.emit.persistent import (
    BLOCKS,
    describe,
    epilogue,
    open_tiles,
    place_lines,
    row_line,
)
from tritongen.emit.text import mentions
from tritongen.emit.tf32x3 import parts
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView, Loop
from tritongen.ir import nodes as ir
from tritongen.schedule.canonical import free_indices


def tf32x3_half_view(body: Body) -> KernelView:
    head, *tail = body.kernel.nests
    var = open_tiles(body, False)
    opening = row_values(body, head, var)
    # Rows and columns outside the tensors are zeros, and never stored.
    body.axis_mask |= {"m": "", "n": ""}
    setup, loads, (own, own_rest), (number, rest) = factors(body, head, var)
    turn, body.prologue = [*place_lines(body, var, False), *body.prologue], []
    turned = body.kernel.exchanged
    zeros = accumulators(body, (head,), "(BLOCK_N, BLOCK_M)" if turned else "(BLOCK_M, BLOCK_N)")
    total = body.values[head.name][0]
    terms = body.fresh(f"{head.name}_terms")
    tf32 = 'input_precision="tf32"'
    dots = [
        "# What is left of either factor first. Sums of BLOCK_K terms: tensor cores cut off what they add.",
        f"{terms} = tl.dot({own_rest}, {number}, {tf32})",
        f"{terms} = tl.dot({own}, {rest}, {terms}, {tf32})",
        f"{total} += tl.dot({own}, {number}, {terms}, {tf32})",
    ]
    setup += epilogue(body, (head,), tail, var)
    if opening and opening[0] in body.lines:
        body.lines.remove(opening[0])
    if turned:
        body.lines.insert(0, f"{total} = {total}.T")
    return view(
        body,
        var,
        BLOCKS,
        "Tiles of BLOCK_M x BLOCK_N sums, one after another a program, of factors in two TF32 parts.",
        loops=(Loop((*opening, *zeros), (*loads, *dots), ()),),
        lines=tuple(body.lines),
        setup=tuple(setup),
        turn=tuple(turn),
        flags={"flat": True},
    )


def row_values(body: Body, head: ir.Nest, var: dict[str, str]) -> list[str]:
    """What a computed left factor reads that no step of the loop changes; in front the rows' own numbers."""
    body.axis_mask["n"] = ""
    turn, body.prologue = body.prologue, []
    invariant(body, head.fold.factors)
    lines = body.prologue + body.lines  # what rows are decoded to stands behind their numbers
    body.prologue, body.lines = turn, []
    return [row_line(var), *lines] if mentions(lines, var["m"]) else lines


def factors(body: Body, head: ir.Nest, var: dict[str, str]):
    """The host's lines, those of the loop, and its names: of the parts of the factor in registers, and of the other one's."""
    sides = list(zip(body.kernel.tiles, head.fold.factors, "mn", strict=True))
    own, other = reversed(sides) if body.kernel.exchanged else sides
    k = {d.index for d in body.kernel.axes[3].digits}
    tile, side, axis = own
    (read,) = (e for e in ir.walk(side) if isinstance(e, ir.Read) and free_indices(e) & k)
    setup = [describe(body, tile, read, (axis, "k"), var, "")]
    narrow = storage_dtype(*head.fold.factors, body.op)
    whole = factor(body, side, LEFT, narrow, var)
    loads, body.lines = body.lines, []
    if mentions(loads, var["k"]):  # a computed factor is masked by k
        loads.insert(0, f"{var['k']} = {var['start']} + tl.arange(0, BLOCK_K)")
    number, rest = parts_of = names_of_parts(body, whole)
    loads.append(f"{number}, {rest} = lib.tf32_parts({whole})")
    host, load = parts(body, other[0], other[2], var)
    first = var[f"first_{other[2]}"]
    number, rest = parts_of_other = names_of_parts(body, other[0].tensor)
    loads.append(f"{number} = {load(first)}.T")
    loads.append(f"{rest} = {load(f'{first} + {var[other[2].upper()]}')}.T")
    return [*setup, host], loads, parts_of, parts_of_other


def names_of_parts(body: Body, factor: str) -> tuple[str, str]:
    return body.names.free(f"{factor}_number"), body.names.free(f"{factor}_rest")
