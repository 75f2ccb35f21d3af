"""Ops that run for a part of a size after another, so that what lies between their steps is small."""

from __future__ import annotations

import torch

CHUNK_BYTES = 64 << 20  # about the L2 cache of an H200
CHUNK_LEAST = 4096  # of the size: the products that sum over a chunk take at least that many terms


def chunk_size(size: int, each: int) -> int:
    """How many indices of a size a chunk has, where one takes `each` bytes: chunks are alike, and at least 1 long."""
    most = max(CHUNK_LEAST, CHUNK_BYTES // max(1, each))
    count = max(1, -(-size // most))
    return max(1, min(size, -(-size // count // 256) * 256 if count > 1 else size))


def chunk_of(x: torch.Tensor | None, dim: int, first: int, chunk: int) -> torch.Tensor | None:
    """The part of a tensor that a chunk has, which may be shorter at the end; None of None."""
    return None if x is None else x.narrow(dim, first, min(chunk, x.shape[dim] - first))
