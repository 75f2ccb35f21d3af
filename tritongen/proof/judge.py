"""Whether an answer is one of those expected, and how close it is.

    verdict = judge(got, expected)    # Verdict(ok=False, detail="3 of 15 differ; first at [0, 2]: ...")

Not here: what is expected (`oracle.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tritongen.ir.rounding import narrowed
from tritongen.proof.oracle import Expected

FEW = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """`used`: the largest share of its slack that an element takes, 0 to 1 where all is well."""

    ok: bool
    detail: str = ""
    used: float = 0.0


def judge(got: torch.Tensor, expected: Expected, *wider: Expected) -> Verdict:
    """Compares an answer with the expected one.

    NaN and inf must be in the same places. Elsewhere the answer must be what some number inside the slack rounds to.

    `wider`: other right answers of each element. If one that is `near` allows everything, only these pass: results that are
    not finite, and results with 7 digits of the expected one, as numbers keep that have no parts in TF32. Whole numbers
    must be equal.
    """
    if got.dtype != expected.dtype or got.shape != expected.value.shape:
        wanted = f"{expected.dtype}{list(expected.value.shape)}"
        return Verdict(False, f"expected {wanted}, got {got.dtype}{list(got.shape)}")
    got = got.to(expected.value.device)
    good, low, high = _fits(got, expected)
    answer = got.to(torch.float64) if got.dtype.is_floating_point else got
    infinite = ~answer.isfinite()
    if (
        got.dtype.is_floating_point and got.dtype.itemsize == 1
    ):  # its largest stands for an infinity
        infinite |= answer.abs() >= torch.finfo(got.dtype).max
    for other in wider:
        fits, least, most = _fits(got, other)
        if other.slack is not None:
            exact = (answer == least) & (answer == most)
            known = other.slack.isfinite() | infinite | exact
            if other.value.dtype.is_floating_point:
                near = (answer - other.value).abs() <= 2.0**-7 * other.value.abs()
                known = known | near | (not other.near)
            fits = fits & known
        good = good | fits
    if bool(good.all()):
        return Verdict(True, used=_used(got, expected))
    return Verdict(False, _detail(got, expected, low, high, ~good))


def _fits(got: torch.Tensor, expected: Expected) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where an answer is right, and its bounds. Floats are compared in f64, because torch does not compare f8."""
    value, slack = expected.value, expected.slack

    def stored(x: torch.Tensor) -> torch.Tensor:
        x = narrowed(x, got.dtype)
        return x.to(torch.float64) if x.dtype.is_floating_point else x

    rounded, answer = stored(value), stored(got)
    low = high = rounded
    free = torch.zeros_like(value, dtype=torch.bool)
    if slack is not None and value.dtype == torch.bool:
        free = slack > 0  # the compared values are too close to decide
    elif slack is not None:
        free = slack.isinf()
        finite = value.isfinite() & ~free if value.dtype.is_floating_point else ~free
        # Slack is in f64, which holds no integer beyond 2**53: without slack a value stays as it is.
        ends = [value - slack, value + slack]
        if not got.dtype.is_floating_point:  # behind the largest integer there is none
            held = torch.iinfo(got.dtype)
            ends = [end.clamp(held.min, held.max) for end in ends]
        low, high = (
            torch.where(slack == 0, rounded, stored(torch.where(finite, end, value)))
            for end in ends
        )
    fits = (answer >= low) & (answer <= high)
    if got.dtype.is_floating_point:
        fits = torch.where(value.isnan(), answer.isnan(), fits)
        if got.dtype.itemsize == 1:
            fits = fits | _burst(answer, value, slack, torch.finfo(got.dtype).max)
    return fits | free, low, high


def _burst(
    answer: torch.Tensor, value: torch.Tensor, slack: torch.Tensor | None, largest: float
) -> torch.Tensor:
    """Beyond the largest number of an f8 torch's versions and GPUs differ: it, an infinity, NaN."""
    reach = value.abs() if slack is None else value.abs() + slack
    there = (answer.abs() >= largest) & (answer.sign() == value.sign())
    return (reach > largest) & (there | answer.isnan())


def _used(got: torch.Tensor, expected: Expected) -> float:
    """The share of the slack taken, past what rounding to the output's dtype explains."""
    value, slack = expected.value, expected.slack
    if slack is None or not value.dtype.is_floating_point or not got.numel():
        return 0.0
    rounded, got = narrowed(value, got.dtype).to(torch.float64), got.to(torch.float64)
    off, own = (got - value).abs(), (got - rounded).abs()
    share = torch.where(own > 0, off / slack, 0.0)
    share = torch.where(value.isfinite() & got.isfinite() & slack.isfinite(), share, 0.0)
    return float(share.nan_to_num(nan=0.0, posinf=0.0).clamp(max=1.0).max())


def _detail(got, expected: Expected, low, high, wrong: torch.Tensor) -> str:
    rounded = narrowed(expected.value, got.dtype)
    where = wrong.nonzero()[0].tolist()
    index = tuple(where)
    g, r = got[index].item(), rounded[index].item()
    text = f"{int(wrong.sum())} of {wrong.numel()} differ; first at {where}: expected {r!r}"
    if low is not high and not (isinstance(r, float) and math.isnan(r)):
        text += f" (between {low[index].item()!r} and {high[index].item()!r})"
    return f"{text}, got {g!r}"


def largest_error(given: torch.Tensor, expected: Expected) -> float:
    """The largest error of elements that are finite in both."""
    off = (given.to(expected.value.device).to(torch.float64) - expected.value).abs()
    return float(off.nan_to_num(nan=0.0, posinf=0.0).max())


def no_worse_than_torch(
    got: torch.Tensor, theirs: float, expected: Expected, times: float
) -> Verdict:
    """Compares with torch's own largest error, allowing a few units in the last place.

    It does not judge f64, where the oracle is no better than torch, or a few elements, where chance decides.
    """
    if got.dtype == torch.float64 or got.numel() < FEW:
        return Verdict(True)
    ulp = torch.finfo(expected.dtype).eps * float(expected.value.abs().max())
    ours = largest_error(got, expected)
    if ours <= times * theirs + 2 * ulp:
        return Verdict(True)
    return Verdict(False, f"largest error {ours:.3g}, torch's own {theirs:.3g}")
