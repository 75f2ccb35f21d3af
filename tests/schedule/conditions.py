"""Bounds that are conditions, and what they mean in torch: a mask over the values of the dim.

f, wanted = op_of("i - w < j <= i"), masked("i - w < j <= i", operands)
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Mask = Callable[..., torch.Tensor]
CONDITIONS: dict[str, Mask] = {
    "i - w < j <= i": lambda i, j, w, **_: (i - w < j) & (j <= i),
    "i + 1 <= j <= i + w": lambda i, j, w, **_: (i + 1 <= j) & (j <= i + w),
    "j > i": lambda i, j, **_: j > i,
    "max(i - w, 0) <= j < min(i + w, L)": lambda i, j, w, **_: (i - w <= j) & (j < i + w),
    "lo[i] <= j < min(i + w, hi[i])": lambda i, j, w, lo, hi: (lo <= j) & (j < i + w) & (j < hi),
    "min(lo[i], i) <= j < max(hi[i] - 1, i)": lambda i, j, lo, hi, **_: ((lo <= j) | (i <= j))
    & ((j < hi - 1) | (j < i)),
    "j <= max(min(i, w), lo[i])": lambda i, j, w, lo, **_: (j <= lo) | (j <= i) & (j <= w),
}
SIZES = [(5, 9, 3), (9, 5, 3), (4, 6, 50), (6, 6, 2), (7, 3, 0), (1, 1, 1)]  # S, L, w


def op_of(bound: str) -> str:
    """Reducers of every kind under one bound: of rows, a product, a scan's prefixes."""
    given = "s: T[S, L], v: T[L, E], r: T[L]"
    given += ", lo: i64[S]" * ("lo" in bound) + ", hi: i32[S]" * ("hi" in bound)
    given += ", const w: int" * ("w" in bound)
    return f"""op f<T: float>({given}) -> (total: T[S], high: T[S], mid: T[S], mixed: T[S, E], run: T[S], place: i64[S], some: bool[S]) {{
      total[i]    = sum[{bound}](s[i, j])
      high[i]     = max[{bound}](s[i, j])
      mid[i]      = mean[{bound}](s[i, j])
      mixed[i, e] = sum[{bound}](s[i, j] * v[j, e])
      run[i]      = sum[{bound}](r[j])
      place[i]    = argmax[{bound}](s[i, j])
      some[i]     = any[{bound}](s[i, j] > 1)
    }}"""


def operands(S: int, L: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """s, v, r, and ends below 0 and beyond the dim."""
    random = torch.Generator().manual_seed(31 * S + L)
    floats = (torch.randn(*d, generator=random, dtype=dtype) for d in ((S, L), (L, 4), (L,)))
    lo, hi = (torch.randint(-4, L + 5, (S,), generator=random) for _ in range(2))
    return (*floats, lo, hi.to(torch.int32))


def call_of(bound: str, given: tuple[torch.Tensor, ...], w: int) -> tuple[tuple, dict[str, int]]:
    """The arguments of the op of a bound."""
    s, v, r, lo, hi = given
    args = (s, v, r, *([lo] if "lo" in bound else []), *([hi] if "hi" in bound else []))
    return args, {"w": w} if "w" in bound else {}


def mask_of(bound: str, given: tuple[torch.Tensor, ...], w: int) -> torch.Tensor:
    s, _, _, lo, hi = given
    i, j = torch.arange(s.shape[0])[:, None], torch.arange(s.shape[1])[None, :]
    return CONDITIONS[bound](i=i, j=j, w=w, lo=lo[:, None], hi=hi[:, None])


def masked(mask: torch.Tensor, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The results of the op, by `torch.where`."""
    s, v, r, *_ = given
    kept, some = torch.where(mask, s, 0), mask.any(1)
    lowest = torch.where(mask, s, -torch.inf)
    return (
        kept.sum(1),
        lowest.amax(1),
        kept.sum(1) / mask.sum(1),
        kept @ v,
        torch.where(mask, r, 0).sum(1),
        torch.where(some, lowest.argmax(1), -1),
        (mask & (s > 1)).any(1),
    )


EMPTY = {
    "max[d](x[n, d])": (3, 0),
    "min[d, e < 2](x[n, d] + e)": (3, 0),
    "max[k](exp(x[n, k])) + sum[d](x[n, d])": (3, 0),
    "max[...](u[n, ...])": (3, 0, 4),
}


def op_of_empty(value: str) -> str:
    operand = "u: T[N, ...]" if "..." in value else "x: T[N, D]"
    return f"op f<T: float>({operand}) -> y: T[N] {{ y[n] = {value} }}"
