"""Results whose parts several programs computed.

    dq_parts = torch.empty((PARTS, *dq.shape), dtype=torch.float32, device=q.device)
    kernel[grid](q, dq_parts, ...)                                    # each program stores its part
    lib.add_parts(dq_parts, dq)

A gradient that a call does not ask for is None, and so are its parts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


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


def strides(x: torch.Tensor | None, rank: int) -> tuple[int, ...]:
    """The strides of a tensor of `rank` dims, which may be None: a kernel does not use them then."""
    return x.stride() if x is not None else (0,) * rank


def stand_ins(*results: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """The tensors, with a tensor on the meta device in place of each None. They share one shape, and at least one is not None."""
    there = next(x for x in reversed(results) if x is not None)
    return tuple(torch.empty_like(there, device="meta") if x is None else x for x in results)
