"""Outputs that cannot be right by accident: poisoned before the kernels run, fenced on both sides.

with guarded(module) as fences:
    y = module.softmax(x)
fences.intact()    # False where a kernel wrote outside what it was given
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from tritongen.proof.values import MARGIN

_FENCE = 77


@dataclass(slots=True)
class Fences:
    buffers: list[torch.Tensor] = field(default_factory=list)

    def intact(self) -> bool:
        return all(
            bool((side == _FENCE).all()) for b in self.buffers for side in (b[:MARGIN], b[-MARGIN:])
        )


@dataclass(frozen=True, slots=True)
class _Torch:
    """The torch that a module sees: `empty` is poisoned, all else is torch's own."""

    fences: Fences
    number: bool  # poison with a number: NaN would hide an element that is never written

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(
        self,
        shape: Any,
        *,
        dtype: torch.dtype,
        device: Any,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> torch.Tensor:
        shape = tuple(shape) if not isinstance(shape, int) else (shape,)
        count = math.prod(shape)
        if dtype == torch.bool:
            return torch.full(shape, True, dtype=dtype, device=device)
        buffer = torch.full((count + 2 * MARGIN,), _FENCE, dtype=dtype, device=device)
        self.fences.buffers.append(buffer)
        inside = buffer[MARGIN : MARGIN + count]
        inside.fill_(99 if self.number or not dtype.is_floating_point else math.nan)
        if memory_format == torch.contiguous_format:
            return inside.view(shape)
        return inside.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)  # channels last


@contextmanager
def guarded(module: ModuleType, number: bool = False) -> Iterator[Fences]:
    fences = Fences()
    before = module.__dict__["torch"]
    module.__dict__["torch"] = _Torch(fences, number)
    try:
        yield fences
    finally:
        module.__dict__["torch"] = before
