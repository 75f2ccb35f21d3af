"""Results whose parts several programs computed.

    dq_parts = torch.empty((PARTS, *dq.shape), dtype=torch.float32, device=q.device)
    kernel[grid](q, dq_parts, ...)                                    # each program stores its part
    lib.add_parts(dq_parts, dq)

A gradient that a call does not ask for is None, and so are its parts.

    launch_split(softmax_loop, rows, config, x, y, ..., m_part_ptr=m_part)    # the same of rows, by one kernel
    launch_combine(matmul_combine, (M, N), PARTS, y_parts, y, ...)            # and of tiles, behind the kernel that stored them
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from tritongen.lib.counts import cdiv, pow2
from tritongen.lib.estimates import config_without


def add_parts(parts: torch.Tensor | None, result: torch.Tensor | None) -> None:
    """Stores the sum of parts[0], parts[1], ... in `result`, or does nothing where that is None.

    parts: [P, *result.shape], f32 or f64, which the sum is computed in. Both are contiguous.

    Raises ValueError if the parts have another number of elements, RuntimeError if the result is not contiguous.
    """
    if parts is None or result is None:
        return
    count, size = parts.shape[0], result.numel()
    if parts.numel() != count * size:
        raise ValueError(f"add_parts: parts of {tuple(parts.shape[1:])} for {tuple(result.shape)}")
    PARTS = triton.next_power_of_2(count)
    BLOCK = max(64, 2048 // PARTS)
    _sum_over_parts[(triton.cdiv(size, BLOCK),)](
        parts, result.view(size), count, size, PARTS=PARTS, BLOCK=BLOCK, num_warps=4
    )


@triton.jit
def _sum_over_parts(parts_ptr, result_ptr, count, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Each program adds up BLOCK elements, all parts at once."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    part = tl.arange(0, PARTS)[:, None].to(tl.int64)
    there = (part < count) & (at < size)
    parts = tl.load(parts_ptr + part * size + at, mask=there, other=0.0)
    tl.store(result_ptr + at, tl.sum(parts, 0, keep_dims=True), mask=at < size)


def launch_split(
    kernel: Any, rows: int | tuple[int, int], config: dict[str, int], *args: Any, **given: Any
) -> None:
    """Launches a kernel whose rows PARTS programs share: each stores its part, then programs of MERGE rows merge them.

    rows: how many there are, or the number of runs and the rows in each.
    """
    runs, rows = rows if isinstance(rows, tuple) else (1, rows)
    PARTS, MERGE = config["PARTS"], config["MERGE"]
    given |= config_without(config, "MERGE")
    kernel[(runs * cdiv(rows, config["ROWS"]), PARTS)](*args, **given, PASS=1)
    merging = {**given, "ROWS": MERGE, "PARTS_POW2": PARTS}
    kernel[(runs * cdiv(rows, MERGE),)](*args, **merging, PASS=2)


def launch_combine(
    kernel: Any, sizes: tuple[int, ...], parts: int, *args: Any, **given: Any
) -> None:
    """Launches a kernel that adds up the parts of sums, two rows of a matrix a program.

    sizes: those of the sums: further dims, rows, columns.
    """
    *outer, rows, cols = sizes
    BLOCK_N = max(32, min(256, 2048 // pow2(parts)))
    grid = (math.prod(outer) * cdiv(rows, 2) * cdiv(cols, BLOCK_N),)
    given |= dict(BLOCK_M=2, BLOCK_N=BLOCK_N, PARTS=parts, AHEAD=min(64, pow2(parts)))
    kernel[grid](*args, **given)


def strides(x: torch.Tensor | None, rank: int) -> tuple[int, ...]:
    """The strides of a tensor of `rank` dims, which may be None: a kernel does not use them then."""
    return x.stride() if x is not None else (0,) * rank


def stand_ins(*results: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """The tensors, with a tensor on the meta device in place of each None. They share one shape, and at least one is not None."""
    there = next(x for x in reversed(results) if x is not None)
    return tuple(torch.empty_like(there, device="meta") if x is None else x for x in results)
