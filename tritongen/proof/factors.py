"""What tensor cores lose of the factors of a product of f32: the digits that TF32 has not.

    missing(a, truncated(a, None), b)    # how much less than a * b its tf32 product may be

Numbers are in f64, as the oracle has them. Not here: what a sum on tensor cores loses (`oracle.py`).
"""

from __future__ import annotations

import math

import torch

TINIEST_F32 = 2.0**-126
TF32 = 2.0**-10  # the digits of a factor that the tensor cores take reach this far below the first
UNSPLIT = 2.0**128 - 2.0**116  # from here on a number in TF32 is infinite


def tf32(x: torch.Tensor) -> torch.Tensor:
    """The first 11 binary digits of numbers in f64: what the tensor cores of Hopper take of an f32.

    Rounding first (cvt.rna, as CUTLASS does) would lose half as much at most, and never more than this.
    """
    return (x.contiguous().view(torch.int64) >> 42 << 42).view(torch.float64)


def truncated(x: torch.Tensor, error: torch.Tensor | None) -> torch.Tensor:
    """What `precision tf32` loses of a factor: the digits beyond 11, below the normal numbers all."""
    size = x.abs()
    lost = size - tf32(size) if error is None else TF32 * (size + error)
    return torch.where(x.isfinite(), torch.where(size < TINIEST_F32, size, lost), 0.0)


def unsplit(x: torch.Tensor, split: str) -> torch.Tensor:
    """What tf32x3 loses of a factor: a low part that is no normal number, since tensor cores take it for 0.

    The low part is at most 2^-11 of x, and a multiple of its last digit: from 2^-103 on it is normal, or 0.
    What rounds to infinity has no parts of Triton's, and ours are 1 and all the rest: 11 digits of that, and of
    the other factor.
    """
    size, tiniest = x.abs(), TINIEST_F32
    low = torch.where(size < tiniest, size, (size * 2.0**-11).clamp(max=tiniest))
    low = torch.where(size < 2.0**-103, low, 0.0)
    large = (size >= UNSPLIT) & size.isfinite()
    return torch.where(large, math.inf if split == "triton" else 4 * TF32 * size, low)


def missing(x: torch.Tensor, lost: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What a product x * y misses without `lost` of x: all of an infinite one, where x is lost whole."""
    part = torch.where((lost > 0) & ~y.isnan(), lost * y.abs(), 0.0)
    part = torch.where(y.isinf() & (lost < x.abs()), 0.0, part)
    return part.nan_to_num(nan=math.inf, posinf=math.inf)
