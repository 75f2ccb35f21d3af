"""Ops that run for a part of a size after another, so that what lies between their steps is small."""

from __future__ import annotations

import torch


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
