"""What a call asks of its GPU.

gpu = lib.gpu(x.device)
gpu.sms                              # multiprocessors
gpu.products["descriptors", 2]       # what `estimates.py` goes by
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
from triton.runtime.interpreter import InterpretedFunction

from tritongen.lib.coefficients import Coefficients, coefficients, measured


@triton.jit
def _nothing():
    """By what triton.jit made of it: whether kernels of this process run in the interpreter."""


def runs_kernels(x: torch.Tensor) -> bool:
    """Whether x is where kernels run: on a GPU, or anywhere under TRITON_INTERPRET=1."""
    return x.is_cuda or isinstance(_nothing, InterpretedFunction)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device as host code knows it; by default an H200."""

    sms: int = 132  # multiprocessors
    shared: int = 227  # KiB of shared memory that Triton lets a program have
    tma: bool = True  # whether tiles are loaded by descriptor
    relays: bool = True  # whether programs that wait for others get on
    coefficients: Coefficients = measured()["NVIDIA H200"]


@cache
def gpu(device: torch.device) -> Gpu:
    """The GPU of a tensor; the interpreter pretends to be one of Hopper's with few multiprocessors.

    Tiles are loaded by descriptor on Hopper and newer, but for consumers' Blackwell, which has less than half of their
    shared memory. Programs wait for those alone that took a number before them, and so are on the GPU already: on NVIDIA's
    since Ampere.
    """
    if device.type != "cuda":
        return Gpu(sms=8)
    own = triton.runtime.driver.active.utils.get_device_properties(device.index)
    capability = (0, 0) if torch.version.hip else torch.cuda.get_device_capability(device)
    shared = own["max_shared_mem"] >> 10
    return Gpu(
        sms=own["multiprocessor_count"],
        shared=shared,
        tma=capability >= (9, 0) and shared >= 227,
        relays=capability >= (8, 0),
        coefficients=coefficients(torch.cuda.get_device_name(device), own, capability),
    )
