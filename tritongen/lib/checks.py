"""Checks of `allocate_<op>`. Each raises a ValueError that names the op, the operand, what was expected and what was given.

`who`: "layer_norm: w". `source`: where the expected value comes from, " (from x)". The texts are those of
`tritongen/ir/messages.py`.
"""

from __future__ import annotations

import torch


def check_dtype(x: torch.Tensor, who: str, *dtypes: torch.dtype, source: str = "") -> None:
    """Raises ValueError unless x has one of these dtypes."""
    if x.dtype not in dtypes:
        *others, last = map(str, dtypes)
        expected = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{who}: expected dtype {expected}{source}, given {x.dtype}")


def check_rank(x: torch.Tensor, who: str, rank: int, dims: str) -> None:
    """Raises ValueError unless x has so many dims. With `...` in `dims` that is a minimum."""
    if x.dim() == rank or x.dim() > rank and "..." in dims:
        return
    count = f"{'at least ' * ('...' in dims)}{rank} dim{'s' * (rank != 1)} {dims}"
    raise ValueError(f"{who}: expected {count if dims else 'a 0-dim tensor'}, given {x.dim()}")


def check_device(x: torch.Tensor, who: str, device: torch.device, source: str) -> None:
    """Raises ValueError unless x is on that device."""
    if x.device != device:
        raise ValueError(f"{who}: expected device {device}{source}, given {x.device}")


def check_size(given: int, who: str, expected: int, source: str = "") -> None:
    """Raises ValueError unless a dim has that size. `who` says which dim it is: "softmax: y: dim -1 (D)"."""
    if given != expected:
        raise ValueError(f"{who}: expected {expected}{source}, given {given}")
