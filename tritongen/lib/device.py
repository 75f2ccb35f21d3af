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
def shared_memory(device: torch.device) -> int:
    """KiB of shared memory that Triton lets a program have; the interpreter pretends to have as much as Hopper."""
    if device.type != "cuda":
        return 227
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
    return properties["max_shared_mem"] >> 10


@cache
def relays(device: torch.device) -> bool:
    """Whether programs that wait for others get on, as on NVIDIA's GPUs since Ampere, and in the interpreter.

    A program waits for those alone that took a number before it: they are on the GPU already.
    """
    if device.type != "cuda":
        return True
    return not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def has_tma(device: torch.device) -> bool:
    """Whether a GPU loads tiles by descriptor, and holds several: Hopper and newer, and the interpreter.

    Not consumers' Blackwell, which has less than half of their shared memory.
    """
    if device.type != "cuda":
        return True
    new = not torch.version.hip and torch.cuda.get_device_capability(device) >= (9, 0)
    return new and shared_memory(device) >= 227
