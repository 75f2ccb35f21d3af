"""A contraction whose tile is STRIPS strips of rows, one below the other: 192 x 128 where powers of two do not fit.

Input: a `KernelPlan` of the skeleton `strips`, planned as `persistent` is. Output: its `KernelView`: each step
loads BLOCK_K x BLOCK_N of the right factor once and multiplies every strip of the left one with it. The
epilogue takes a strip at a time.
"""

from __future__ import annotations

import re

from tritongen.emit.body import Body
from tritongen.emit.bounded import LEFT, RIGHT
from tritongen.emit.contraction import dot_line, factor, storage_dtype, sum_dtype
from tritongen.emit.persistent import (
    BLOCKS,
    corner_lines,
    mask_tile,
    open_tiles,
    operands,
    place_lines,
    stores,
)
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView, Loop
from tritongen.ir import nodes as ir
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import free_indices
from tritongen.schedule.classes.contraction_stages import STRIPS


def strips_view(body: Body) -> KernelView:
    head, *tail = body.kernel.nests
    var = open_tiles(body, False)
    var["rows"] = f"{STRIPS} * BLOCK_M"
    body.axis_mask |= {"m": "", "n": ""}
    setup = [*operands(body, (head,), var)]
    sums = tuple(body.fresh(f"{head.name}_{k}") for k in range(STRIPS))
    steps = products(body, head, sums, var)
    turn, body.prologue = [*place_lines(body, var, False), *body.prologue], []
    zeros = tuple(
        f"{name} = tl.zeros((BLOCK_M, BLOCK_N), {sum_dtype(body, head)})" for name in sums
    )
    setup += epilogue(body, head, tuple(tail), sums, var)
    return view(
        body,
        var,
        BLOCKS,
        f"Tiles of {STRIPS} strips of BLOCK_M x BLOCK_N sums, which share the right factor, one after another a program.",
        loops=(Loop(zeros, tuple(steps), ()),),
        lines=tuple(body.lines),
        setup=tuple(setup),
        turn=tuple(turn),
        flags={"flat": False},
    )


def products(body: Body, head: ir.Nest, sums: tuple[str, ...], var: dict[str, str]) -> list[str]:
    """The lines of the loop: the right factor once, and for each strip the left one and its tl.dot."""
    left, right = head.fold.factors
    narrow = storage_dtype(left, right, body.op)
    columns = factor(body, right, RIGHT, narrow, var)
    (read,) = (e for e in ir.walk(left) if isinstance(e, ir.Read) and free_indices(e))
    load, first = body.loads[read], var["first_m"]
    for k, name in enumerate(sums):
        row = f"{first} + {f'{k} * ' * (k > 1)}BLOCK_M" if k else first
        body.loads[read] = re.sub(rf"\b{first}\b", row, load)
        strip = factor(body, left, LEFT, narrow, var)
        body.line(dot_line(body, head, strip, columns, name))
    steps, body.lines = body.lines, []
    return steps


def epilogue(
    body: Body, head: ir.Nest, tail: tuple[ir.Nest, ...], sums: tuple[str, ...], var: dict[str, str]
) -> list[str]:
    """Whatever follows from the sums of one strip after another, and the stores; the host lines that these need."""
    mask_tile(body, var)
    strip, first = body.fresh("strip"), body.fresh("first_row")
    own = {**var, "first_m": first}
    name = body.assign(head.name, f"({', '.join(sums)})[{strip}]")
    body.values[head.name] = (name, ATOM)
    setup = stores(body, (head,), tail, (var["first_n"], "BLOCK_N"), own)
    lines = [f"{first} = {var['first_m']} + {strip} * BLOCK_M"]
    lines += corner_lines(body, own, var["first_n"], "BLOCK_N")
    lines[1:1], body.lines = body.lines, []
    body.lines = [f"for {strip} in tl.static_range({STRIPS}):", *(f"    {x}" for x in lines)]
    return setup
