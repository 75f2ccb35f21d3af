"""How far off numbers may be: errors beside values, each in f64, inf where anything goes.

    moved(v, e)                             # what v may be at most and at least
    farthest(f(v), map(f, moved(v, e)))     # how far off f(v) may be

Not here: where errors come from (`oracle.py`).
"""

from __future__ import annotations

import math

import torch


def moved(value: torch.Tensor, error: torch.Tensor) -> list[torch.Tensor]:
    """The ends of what a value may be, and 0 between them: functions turn there, or have a pole."""
    if value.dtype == torch.bool:
        return [~value]
    if not value.dtype.is_floating_point:
        error = error.nan_to_num(posinf=0.0).ceil().to(torch.int64)
    ends = [(value + error).to(value.dtype), (value - error).to(value.dtype)]
    across = (error > 0) & (value.abs() <= error)
    return [*ends, torch.where(across, 0, value)] if bool(across.any()) else ends


def anything(error: torch.Tensor | None, where: torch.Tensor | None) -> torch.Tensor | None:
    """The error, infinite where anything goes."""
    if where is None or not bool(where.any()):
        return error
    return torch.where(
        where, math.inf, torch.zeros_like(where, dtype=torch.float64) if error is None else error
    )


def beyond(value: torch.Tensor, error, dtype: torch.dtype) -> torch.Tensor | None:
    """Where a float becomes an integer of a type that does not hold it, which the language leaves open.

    A u8 is cut from an i32.
    """
    if dtype.is_floating_point or dtype == torch.bool or not value.dtype.is_floating_point:
        return None
    info = torch.iinfo(torch.int32 if dtype == torch.uint8 else dtype)
    low, high = (value, value) if error is None else (value - error, value + error)
    return ~((low > info.min - 1.0) & (high < info.max + 1.0))


def distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """|a - b|: 0 for equal infinities and for two NaNs, inf for one NaN."""
    a, b = a.to(torch.float64), b.to(torch.float64)
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf))


def farthest(value: torch.Tensor, ends) -> torch.Tensor:
    first, *rest = [distance(value, end) for end in ends]
    for other in rest:
        first = torch.maximum(first, other)
    return first


def absorb(error: torch.Tensor, sources) -> torch.Tensor:
    """What depends on something that may be anything may be anything."""
    for source in sources:
        error = torch.where(source.isinf(), math.inf, error)
    return error
