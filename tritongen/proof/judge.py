"""Whether an answer is one of those expected, and how close it is.

    verdict = judge(got, expected)    # Verdict(ok=False, detail="3 of 15 differ; first at [0, 2]: ...")

Not here: what is expected (`oracle.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tritongen.proof.oracle import Expected


FEW = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """`used`: the largest share of its slack that an element takes, 0 to 1 where all is well."""

    ok: bool
    detail: str = ""
    used: float = 0.0


def judge(got: torch.Tensor, expected: Expected) -> Verdict:
    """NaN and inf in the same places; elsewhere what some number inside the slack rounds to."""
    if got.dtype != expected.dtype or got.shape != expected.value.shape:
        wanted = f"{expected.dtype}{list(expected.value.shape)}"
        return Verdict(False, f"expected {wanted}, got {got.dtype}{list(got.shape)}")
    value, slack = expected.value, expected.slack
    got = got.to(value.device)
    if slack is None:
        low = high = rounded = value.to(got.dtype)
        free = torch.zeros_like(value, dtype=torch.bool)
    else:
        free = slack.isinf()
        rounded = value.to(got.dtype)
        finite = value.isfinite() & ~free if value.dtype.is_floating_point else ~free
        low = torch.where(finite, value - slack, value).to(got.dtype)
        high = torch.where(finite, value + slack, value).to(got.dtype)
    fits = (got >= low) & (got <= high)
    if got.dtype.is_floating_point:
        fits = torch.where(rounded.isnan(), got.isnan(), fits)
    good = fits | free
    if bool(good.all()):
        return Verdict(True, used=_used(got, value, slack, free))
    return Verdict(False, _detail(got, rounded, low, high, ~good))


def _used(got, value, slack, free) -> float:
    """The share of the slack taken, past what rounding to the output's dtype explains."""
    if slack is None or not value.dtype.is_floating_point or not got.numel():
        return 0.0
    off = (got.to(torch.float64) - value).abs()
    own = (got.to(torch.float64) - value.to(got.dtype).to(torch.float64)).abs()
    share = torch.where(own > 0, off / slack, 0.0)
    share = torch.where(value.isfinite() & got.isfinite() & ~free, share, 0.0)
    return float(share.nan_to_num(nan=0.0, posinf=0.0).clamp(max=1.0).max())


def _detail(got, rounded, low, high, wrong: torch.Tensor) -> str:
    where = wrong.nonzero()[0].tolist()
    index = tuple(where)
    g, r = got[index].item(), rounded[index].item()
    text = f"{int(wrong.sum())} of {wrong.numel()} differ; first at {where}: expected {r!r}"
    if low is not high and not (isinstance(r, float) and math.isnan(r)):
        text += f" (between {low[index].item()!r} and {high[index].item()!r})"
    return f"{text}, got {g!r}"


def no_worse_than_torch(
    got: torch.Tensor, eager: torch.Tensor, expected: Expected, times: float
) -> Verdict:
    """Against torch's own largest error on the same call, a few units in the last place aside.

    Says nothing of f64, where the oracle is no better than torch, nor of a few elements, where luck decides.
    """
    value = expected.value
    if got.dtype == torch.float64 or eager.shape != got.shape or got.numel() < FEW:
        return Verdict(True)
    got, eager = got.to(value.device).to(torch.float64), eager.to(torch.float64)
    finite = value.isfinite() & got.isfinite() & eager.isfinite()
    if not bool(finite.any()):
        return Verdict(True)
    value, got, eager = value[finite], got[finite], eager[finite]
    ulp = torch.finfo(expected.dtype).eps * float(value.abs().max())
    ours, theirs = float((got - value).abs().max()), float((eager - value).abs().max())
    if ours <= times * theirs + 2 * ulp:
        return Verdict(True)
    return Verdict(False, f"largest error {ours:.3g}, torch's own {theirs:.3g}")
