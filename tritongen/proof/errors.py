"""Error bounds beside values: how far apart numbers are, and which other values a number with an error may have.

    farthest(value, [f(x) for x in moved(v, e)])    # the error of f(v), if v has the error e

An error is 0 for an exact value, and inf if any value is allowed. `oracle.py` computes them.
"""

from __future__ import annotations

import math

import torch

from tritongen.ir.functions import FUNCTIONS


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


def moved(value: torch.Tensor, error: torch.Tensor) -> list[torch.Tensor]:
    """Other numbers that a value may be: both ends, and 0 if it is between them, because it may be a pole."""
    if value.dtype == torch.bool:
        return [value ^ (error > 0)]
    if not value.dtype.is_floating_point:
        error = error.nan_to_num(posinf=0.0).ceil().to(torch.int64)
    ends = [(value + error).to(value.dtype), (value - error).to(value.dtype)]
    return [*ends, torch.where(value.abs() <= error, 0, value)]


def beyond(value: torch.Tensor, error, dtype: torch.dtype) -> torch.Tensor | None:
    """Where a float is converted to an integer or f8 type that cannot hold it. The language leaves the result open.

    A u8 is cut from an i32. Beyond the largest f8, versions of torch and GPUs differ (`judge.py`).
    """
    if dtype.is_floating_point and dtype.itemsize == 1:
        reach = value.abs() if error is None else value.abs() + error
        return reach > torch.finfo(dtype).max
    if dtype.is_floating_point or dtype == torch.bool or not value.dtype.is_floating_point:
        return None
    info = torch.iinfo(torch.int32 if dtype == torch.uint8 else dtype)
    low, high = (value, value) if error is None else (value - error, value + error)
    return ~((low > info.min - 1.0) & (high < info.max + 1.0))


def swung(fn: str, spread: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """The error of a periodic function. The values at both ends do not bound it, so it may be any of its values."""
    swing = FUNCTIONS[fn].swing if fn in FUNCTIONS else 0
    return torch.where(error > 1, swing, spread) if swing else spread


def unsure(error: torch.Tensor | None, where: torch.Tensor | None) -> torch.Tensor | None:
    """The error of what may be anything there."""
    if where is None or not bool(where.any()):
        return error
    known = torch.zeros((), dtype=torch.float64) if error is None else error
    return torch.where(where, math.inf, known)


def absorb(error: torch.Tensor, sources) -> torch.Tensor:
    """A value that depends on one that may be anything may be anything itself."""
    for source in sources:
        error = torch.where(source.isinf(), math.inf, error)
    return error


def contenders(op: str, v: torch.Tensor, e: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """How many terms may be the extreme one."""
    if not terms.shape[-1]:
        return terms.sum(-1)  # `amax` of nothing raises
    sign = 1 if op == "argmax" else -1
    low = torch.where(terms & ~e.isinf(), sign * v - e, -math.inf).amax(-1, keepdim=True)
    unsure = terms & ((sign * v + e >= low) | v.isnan() | e.isinf())
    return unsure.sum(-1)


def wandered(v: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """What a sum passes through, term after term: rounded there each time, and of equal terms to one side.

    From the first term on or from the last, as scans go both ways.
    """
    kept = torch.where(terms & v.isfinite(), v, 0.0)
    onward, back = (x.cumsum(-1).abs() for x in (kept, kept.flip(-1)))
    there = [torch.where(t, x, 0.0).sum(-1) for t, x in ((terms, onward), (terms.flip(-1), back))]
    return torch.maximum(*there)
