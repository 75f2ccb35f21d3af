"""What a call asks of its device."""

from __future__ import annotations

from functools import cache

import torch
import triton
from triton.runtime.interpreter import InterpretedFunction


@triton.jit
def _nothing():
    """By what triton.jit made of it: whether kernels of this process run in the interpreter."""


def runs_kernels(x: torch.Tensor) -> bool:
    """Whether x is where kernels run: on a GPU, or anywhere under TRITON_INTERPRET=1."""
    return x.is_cuda or isinstance(_nothing, InterpretedFunction)


@cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a GPU; the interpreter pretends to have a few."""
    if device.type != "cuda":
        return 8
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def has_tma(device: torch.device) -> bool:
    """Whether a GPU loads tiles by descriptor: Hopper and newer, and the interpreter."""
    if device.type != "cuda":
        return True
    return not torch.version.hip and torch.cuda.get_device_capability(device) >= (9, 0)
