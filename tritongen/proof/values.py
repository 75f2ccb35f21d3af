"""Tensors for examples: their values and their layout in memory.

    fill_tensor((3, 5), torch.float16, "sliced", Filling("special", seed=7))

The memory around and between the elements is NaN (the largest number for integers), so a kernel that reads outside of its
operand gives a wrong result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

LAYOUTS = ("contiguous", "contiguous", "transposed", "sliced", "offset", "expanded")
# Uniform bit patterns alone leave a third of the examples empty of information: they are one in ten.
MODES = (
    "normal",
    "normal",
    "large",
    "huge",
    "shifted",
    "integers",
    "positive",
    "special",
    "special",
    "bits",
)
MARGIN = 64  # elements around a tensor, a multiple of what alignment asks for


@dataclass(frozen=True, slots=True)
class Filling:
    """`coordinate`: the values index a dim; `extent` is then a dim that they mostly stay in."""

    mode: str
    seed: int
    coordinate: bool = False
    extent: int = 1


def fill_tensor(
    shape: tuple[int, ...], dtype: torch.dtype, layout: str, filling: Filling, device: str = "cpu"
) -> torch.Tensor:
    """The same numbers on every device."""
    shape = tuple(shape)
    place = _place(shape, dtype, layout, device)
    if not all(shape):
        return place
    stored = [n if s else 1 for n, s in zip(shape, place.stride(), strict=True)]
    values = _values(math.prod(stored), dtype, filling).view(stored)
    if filling.mode == "shifted" and filling.seed % 2 and dtype.is_floating_point and shape:
        values = values[..., :1]  # of equal numbers nothing is left, but what their sum lost
    once = place.as_strided(stored, place.stride(), place.storage_offset())
    once.copy_(values)
    return place


def poison(dtype: torch.dtype) -> float | int | bool:
    """A value that is never a right answer."""
    if dtype == torch.bool:
        return True
    return math.nan if dtype.is_floating_point else torch.iinfo(dtype).max


def _place(shape: tuple[int, ...], dtype: torch.dtype, layout: str, device: str) -> torch.Tensor:
    """Uninitialised storage of the layout, inside a margin."""
    shift = 1 if layout == "offset" else 0
    strides = _contiguous(shape)
    if layout == "transposed" and len(shape) > 1:
        strides = _contiguous(shape[::-1])[::-1]
        if len(shape) > 2 and sum(shape) % 2:  # channels last: dim 1 innermost, the others in order
            batch, *places, channel = _contiguous((shape[0], *shape[2:], shape[1]))
            strides = [batch, channel, *places]
    if layout == "sliced" and shape:
        strides = [2 * s for s in _contiguous((*shape[:-1], shape[-1] + 1))]
    if layout == "expanded" and shape:
        dim = (sum(shape) + len(shape)) % len(shape)
        strides = _contiguous((*shape[:dim], 1, *shape[dim + 1 :]))
        strides[dim] = 0
    room = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if all(shape) else 0
    buffer = torch.full((room + 2 * MARGIN + shift,), poison(dtype), dtype=dtype, device=device)
    return buffer.as_strided(shape, strides, MARGIN + shift)


def _contiguous(shape: tuple[int, ...]) -> list[int]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return strides[::-1]


def _values(count: int, dtype: torch.dtype, filling: Filling) -> torch.Tensor:
    random = torch.Generator().manual_seed(filling.seed)
    if filling.coordinate:
        wide = filling.mode in ("bits", "special", "large")
        low, high = (-3, filling.extent + 3) if wide else (0, filling.extent)
        return torch.randint(low, high, (count,), generator=random).to(dtype)
    if dtype == torch.bool:
        return torch.rand(count, generator=random) < 0.5
    if not dtype.is_floating_point:
        return _integers(count, dtype, filling.mode, random)
    if filling.mode == "bits":
        return _bits(count, dtype, random)
    if filling.mode == "integers":
        return torch.randint(-3, 4, (count,), generator=random).to(dtype)
    values = torch.randn(count, generator=random, dtype=torch.float64)
    if filling.mode == "positive":
        values = values.abs()
    if filling.mode == "large":
        values *= 30
    if filling.mode == "huge":  # exp overflows, in f64 too
        values *= 10.0 ** (3 + filling.seed % 2)
    if filling.mode == "shifted":  # a variance must not come from E[x^2] - E[x]^2
        values += 100
    values = values.to(dtype)
    if filling.mode == "special":
        special = _special(dtype)
        chosen = special[torch.randint(len(special), (count,), generator=random)]
        values = torch.where(torch.rand(count, generator=random) < 0.12, chosen, values)
    return values


def _integers(count: int, dtype: torch.dtype, mode: str, random: torch.Generator) -> torch.Tensor:
    info = torch.iinfo(dtype)
    low = max(info.min, -9)
    values = torch.randint(low, 10, (count,), generator=random).to(dtype)
    if mode in ("bits", "special"):
        extremes = torch.tensor([info.min, info.max, info.max - 1, 0, 1], dtype=dtype)
        chosen = extremes[torch.randint(5, (count,), generator=random)]
        values = torch.where(torch.rand(count, generator=random) < 0.2, chosen, values)
    return values


def _bits(count: int, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    size = torch.empty((), dtype=dtype).element_size()
    bytes_ = torch.randint(0, 256, (count * size,), generator=random).to(torch.uint8)
    return bytes_.view(dtype)


def _special(dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    values = [math.inf, -math.inf, math.nan, -0.0, 0.0, info.max, info.min, info.tiny, 1.0, -1.0]
    values += [info.smallest_normal / 4, -info.smallest_normal / 2]
    return torch.tensor(values, dtype=dtype)
