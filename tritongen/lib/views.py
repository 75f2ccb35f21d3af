"""Views of tensors: of any rank with the three dims that kernels use, and of parts of them."""

from __future__ import annotations

import torch
import triton.language as tl

from tritongen.lib.copies import copied


def three_dims(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Views of equal shape with three dims, in the memory order of the last one.

    Neighbouring dims that are one run in every tensor are merged. If more than three are left, tensors with another layout than the last one are
    copied. `put_back` copies a result back.
    """
    if all(t.is_contiguous() for t in tensors):
        return tuple(t.view(1, 1, t.numel()) for t in tensors)
    last = tensors[-1]
    dims: list[tuple[int, list[int]]] = []
    for k in sorted(range(last.dim()), key=last.stride, reverse=True):
        size, strides = last.shape[k], [t.stride(k) for t in tensors]
        outer = dims[-1][1] if dims else []
        if dims and all(o == size * s for o, s in zip(outer, strides, strict=True)):
            dims[-1] = (dims[-1][0] * size, strides)
        elif size != 1:
            dims.append((size, strides))
    if len(dims) > 3:
        alike = []
        for t in tensors:
            if t.stride() != last.stride():
                t = copied(t, torch.empty_like(last, dtype=t.dtype, device=t.device), 0)
            alike.append(t)
        return three_dims(*alike)
    dims = [(1, [0] * len(tensors))] * (3 - len(dims)) + dims
    shape = [size for size, _ in dims]
    return tuple(t.as_strided(shape, [s[i] for _, s in dims]) for i, t in enumerate(tensors))


def put_back(results: tuple[torch.Tensor, ...], views: tuple[torch.Tensor, ...]) -> None:
    """Fills the results of which `three_dims` made copies, from the tensors that it returned. The last one is the last result."""
    for result, view in zip(results, views, strict=True):
        if result.data_ptr() != view.data_ptr():
            copied(view.as_strided(result.shape, results[-1].stride()), result, 0)


def counting(*most: int) -> tl.dtype:
    """The dtype in which kernels divide numbers up to these bounds: tl.int32 if all are below 2e9, else tl.int64, which is slower."""
    return tl.int32 if max(map(abs, most)) < 2_000_000_000 else tl.int64


# ---- ops that run for a chunk of a size after another ---------------------------------------------
def chunk_size(size: int, each: int, most: int = 64 << 20, least: int = 4096) -> int:
    """How many indices of a size a chunk has, where one takes `each` bytes. Chunks are alike, and at least 1 long.

    `most`: bytes of a chunk, by default about the L2 cache of an H200. `least`: indices of one, whatever their bytes: the
    terms of the products that sum over them.
    """
    count = max(1, -(-size // max(least, most // max(1, each))))
    return max(1, min(size, -(-size // count // 256) * 256 if count > 1 else size))


def chunk_of(x: torch.Tensor | None, dim: int, first: int, chunk: int) -> torch.Tensor | None:
    """The part of a tensor that a chunk has, which may be shorter at the end; None of None."""
    return None if x is None else x.narrow(dim, first, min(chunk, x.shape[dim] - first))
