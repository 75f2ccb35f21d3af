"""A contraction whose tile is STRIPS strips of rows, one below the other: 192 x 128 where powers of two do not fit.

Input: a `KernelPlan` of the skeleton `strips`, planned as `persistent` is. Output: its `ProductView`: each step
loads BLOCK_K x BLOCK_N of the right factor once and multiplies every strip of the left one with it. The
epilogue takes a strip at a time.
"""

from __future__ import annotations

from tritongen.emit.body import Body
from tritongen.emit.bounded import LEFT, RIGHT
from tritongen.emit.contraction import dot_options, factor, storage_dtype, sum_of
from tritongen.emit.persistent import open_tiles, operands, tiles_view
from tritongen.emit.view import KernelView
from tritongen.schedule.classes.contraction_stages import STRIPS


def strips_view(body: Body) -> KernelView:
    head = body.kernel.nests[0]
    size = open_tiles(body)
    setup, ((read, load), *_) = operands(body, (head,))
    left, right = head.fold.factors
    narrow = storage_dtype(left, right, body.op)
    columns = factor(body, right, RIGHT, narrow, size)
    strips = []
    for below in ("", " + BLOCK_M", *(f" + {k} * BLOCK_M" for k in range(2, STRIPS))):
        body.loads[read] = load(f"first_m{below}")
        strips.append(factor(body, left, LEFT, narrow, size))
    total = sum_of(body, head, "", columns.name, dot_options(body, head))
    return tiles_view(
        body,
        size,
        setup,
        parts=1,
        height=f"{STRIPS} * BLOCK_M",
        flat=False,
        factors=[columns],
        strips=strips,
        sums=[total],
    )
