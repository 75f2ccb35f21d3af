"""Mean and variance of rows across memory: each lane keeps a state while it walks, the parts merge once.

    lanes_part     mean, squares and count of every lane of a [ROWS, BLOCK] tile, merged behind the loop
    lanes_merge    what the parts of a row left, merged into the first of them

Input: a `Body` over a kernel of that skeleton. Output: its `KernelView`. A reduction in the loop would go across
warps, twice a block, since neighbouring lanes hold different rows. `finish` in `walks.py` writes from the first part.
"""

from __future__ import annotations

from tritongen.emit import paired
from tritongen.emit.body import Body
from tritongen.emit.masked import choose_fill
from tritongen.emit.tiles import forget_tile, keep_spoken_sizes, open_tile, view, wide_tensors
from tritongen.emit.view import KernelView, Loop
from tritongen.emit.walks import (
    enter_loop,
    leave_loop,
    load_parts,
    merge_level,
    open_part,
    row_number,
    store_parts,
)


def lanes_part(body: Body) -> KernelView:
    var = open_part(body)
    first, level = body.kernel.levels
    merge_level(body, first, var)
    merged, body.lines = tuple(body.lines), []
    run = body.kernel.axes[1].run
    body.fill, served = choose_fill(body.kernel.nests, wide_tensors(body, run), run)
    dtype = body.dtype("compute")
    states = [tuple(map(body.fresh, ("mean", "squares", "count"))) for _ in level.pairs]
    shapes = ("(ROWS, BLOCK)", "(ROWS, BLOCK)", "(1, BLOCK)")
    before = [
        f"{name} = tl.full({shape}, 0.0, {dtype})"
        for names in states
        for name, shape in zip(names, shapes, strict=True)
    ]
    saved = enter_loop(body)
    for pair, (mean, squares, count) in zip(level.pairs, states, strict=True):
        x = paired.next_term(body, pair, var, pair.first in served)
        body.line(f"{count} += ({var['col_mask']}).to({dtype})")
        taken = f"lib.take_each({mean}, {squares}, {count}, {x}, {var['inside']})"
        body.line(f"{mean}, {squares} = {taken}")
    turn = leave_loop(body, saved)
    forget_tile(body)
    for pair, (mean, squares, count) in zip(level.pairs, states, strict=True):
        names = paired.merge(body, pair, [f"{mean} * {count}", squares, count])
        left = (*names, f"tl.sum({count}, 1, keep_dims=True)")
        store_parts(body, paired.state_of(pair), left, var)
    after, body.lines = tuple(body.lines), []
    doc = f"Program (part, row): {', '.join(level.folds)} over one CHUNK of ROWS rows, a state a lane."
    walk = Loop(tuple(before), turn, after)
    blocks = ("ROWS", "BLOCK", "PARTS")
    return view(body, var, blocks, doc, lines=merged, loops=(walk,), flags={"merges": False})


def lanes_merge(body: Body) -> KernelView:
    var = open_tile(body) | {"parts": body.names.free("parts"), "height": "MERGE"}
    for pair in body.kernel.levels[1].pairs:
        states = paired.state_of(pair)
        loaded = [load_parts(body, name, start, var) for name, start in paired.states(pair)]
        names = paired.merge(body, pair, loaded)
        for state, value in zip(
            states, (*names, f"tl.sum({loaded[-1]}, 1, keep_dims=True)"), strict=True
        ):
            at = f"{body.pointer(state)} + {row_number(body, var)} * PARTS"
            body.line(f"tl.store({at}, {value}, mask={body.axis_mask['row']})")
    lines = tuple(body.lines)
    keep_spoken_sizes(body, (*lines, var["row_mask"]))
    doc = "What the parts of MERGE rows left, merged into the first of them."
    return view(body, var, ("MERGE", "PARTS"), doc, lines=lines)
