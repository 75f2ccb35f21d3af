"""Rounding of the oracle: every float is held in f64, and rounded once when it is stored.

    narrowed(torch.tensor(9823.9999999, dtype=torch.float64), torch.bfloat16)   # 9792.0

torch converts f64 to a half type through f32. That turns 9823.9999999 into a tie and gives 9856. Kernels round once, as
language.md says and GPUs do.
"""

from __future__ import annotations

import torch


def widen(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.float64) if t.dtype.is_floating_point else t


def narrowed(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x in another dtype, rounded once."""
    if not dtype.is_floating_point or dtype.itemsize > 2:
        return x.to(dtype)
    x = x.to(torch.float64)
    near = x.to(torch.float32)
    # Cut off instead, with a last digit that is odd where something was: such a number is no tie.
    cut = near.view(torch.int32) - (near.abs().to(torch.float64) > x.abs()).to(torch.int32)
    exact = (near.to(torch.float64) == x) | x.isnan()
    return torch.where(exact, near, (cut | 1).view(torch.float32)).to(dtype)
