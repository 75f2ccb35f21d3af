"""A relay: each program leaves the folds of one block of some rows, and then writes a block further back.

By then the programs before it have left all of those rows; L2 still holds what they read, so that memory is read
once. Input: a `Body` over a kernel with one level of folds. Output: its `KernelView`, a `Loop` for each half.
Programs count themselves as they start: who waits, waits for programs that run already. Not here: how far back
(`AHEAD`, `schedule/row_schedules.py`).
"""

from __future__ import annotations

from tritongen.emit.body import Body
from tritongen.emit.tiles import open_tile, view
from tritongen.emit.view import KernelView, Loop
from tritongen.emit.walks import merge_level, row_values, tiled_reads, walk_level, walk_outputs


def relay(body: Body) -> KernelView:
    """The folds of one block, then the results of one further back."""
    var = open_relay(body)
    first, level = body.kernel.levels
    fresh = dict(body.index), dict(body.axis_mask)
    body.evict = dict.fromkeys(tiled_reads(body), "last")  # read once more, further back
    row_values(body, first)  # of the folds' terms
    opening, body.lines = body.lines, []
    folds = walk_level(body, level, var, final=False)
    ahead = Loop((*body.prologue, *opening, *folds.before), folds.body, folds.after)

    # The other half knows nothing of this one: another block, and another branch of the kernel.
    body.index, body.axis_mask = fresh
    body.values, body.cache, body.assigned, body.prologue, body.lines = {}, {}, set(), [], []
    for level in body.kernel.levels:
        merge_level(body, level, var, store=True)
    merged, body.lines = tuple(body.lines), []
    body.evict = dict.fromkeys(tiled_reads(body), "first")
    (results,) = walk_outputs(body, var)
    behind = Loop((*body.prologue, *merged), results.body, ())
    body.prologue = []
    folded = ", ".join(body.kernel.levels[1].folds)
    doc = f"Program `{var['turn']}`: {folded} over a block; then a block further back, read again from L2."
    return view(body, var, ("ROWS", "BLOCK", "LANES", "AHEAD"), doc, loops=(ahead, behind))


def open_relay(body: Body) -> dict[str, str]:
    """Names for a program whose block is a number among all; blocks of the same rows stand side by side."""
    var = open_tile(body)
    roles = ("turn", "tile", "part", "parts", "blocks", "behind")
    var |= {role: body.names.free(role) for role in roles}
    var |= {"count": var["blocks"], "first": f"{var['part']} * BLOCK"}
    var["counter"] = body.pointer(body.kernel.counter)
    return var
