"""A contraction whose tile is SUBTILES subtiles of rows, one below the other: 192 x 128 where powers of two do not fit.

Input: a `KernelPlan` of the skeleton `subtiles`, planned as `persistent` is. Output: its `ProductView`: each step
loads BLOCK_K x BLOCK_N of the right factor once and multiplies every subtile of the left one with it. The
epilogue takes a subtile at a time.
"""

from __future__ import annotations

from tritongen.emit.bounded import LEFT, RIGHT
from tritongen.emit.contraction import dot_options, factor, storage_dtype, sum_of
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.persistent import open_tiles, operands, tiles_view
from tritongen.emit.product_view import Subtile
from tritongen.emit.view import KernelView
from tritongen.schedule.classes.contraction_stages import SUBTILES


def subtiles_view(writer: KernelWriter) -> KernelView:
    head = writer.kernel.nests[0]
    size = open_tiles(writer)
    setup, ((read, load), *_) = operands(writer, (head,))
    left, right = head.fold.factors
    narrow = storage_dtype(left, right, writer.op)
    columns = factor(writer, right, RIGHT, narrow, size)
    factors = []
    rows = ["first_m", *(writer.fresh(f"first_m{k}") for k in range(2, SUBTILES + 1))]
    for row in rows:
        writer.loads[read] = load(row)
        factors.append(factor(writer, left, LEFT, narrow, size))
    total = sum_of(writer, head, "", columns.name, dot_options(writer, head))
    subtiles = [
        Subtile(
            writer.fresh(f"{total.name}_{k}"),
            made,
            row,
            f"first_m + {'' if k == 1 else f'{k} * '}BLOCK_M",
        )
        for k, (made, row) in enumerate(zip(factors, rows, strict=True))
    ]
    return tiles_view(
        writer,
        size,
        setup,
        parts=1,
        height=f"{SUBTILES} * BLOCK_M",
        flat=False,
        factors=[columns],
        subtiles=subtiles,
        sums=[total],
    )
