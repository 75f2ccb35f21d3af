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
class _Allocating:
    """A module as the generated one sees it: what allocates is poisoned, all else is the module's own."""

    module: ModuleType
    fences: Fences
    number: bool  # poison with a number: NaN would hide an element that is never written

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        if name not in ("empty", "empty_like", "empty_permuted"):
            return found

        def fenced(*args: Any, **kwargs: Any) -> torch.Tensor:
            return self.poisoned(found(*args, **kwargs))

        return fenced

    def poisoned(self, result: torch.Tensor) -> torch.Tensor:
        """The same between two fences; results lie in one run of memory."""
        if result.dtype == torch.bool:
            return result.fill_(True)
        count = result.numel()
        buffer = torch.full((count + 2 * MARGIN,), _FENCE, dtype=result.dtype, device=result.device)
        self.fences.buffers.append(buffer)
        inside = buffer[MARGIN : MARGIN + count]
        inside.fill_(99 if self.number or not result.is_floating_point() else math.nan)
        return inside.as_strided(result.shape, result.stride(), MARGIN)


@contextmanager
def guarded(module: ModuleType, number: bool = False) -> Iterator[Fences]:
    fences = Fences()
    before: dict[str, Any] = {
        name: module.__dict__[name] for name in ("torch", "runtime") if name in module.__dict__
    }
    seen: dict[str, Any] = {name: _Allocating(own, fences, number) for name, own in before.items()}
    module.__dict__.update(seen)
    try:
        yield fences
    finally:
        module.__dict__.update(before)
