"""Properties of the GPU of a call.

gpu = lib.gpu(x.device)
gpu.sms, gpu.shared                   # multiprocessors, KiB of shared memory
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
from triton.runtime.interpreter import InterpretedFunction


@triton.jit
def _nothing():
    """Its type says whether kernels of this process run in the interpreter."""


def runs_kernels(x: torch.Tensor) -> bool:
    """Whether kernels run where x is: on a GPU, or anywhere under TRITON_INTERPRET=1."""
    return x.is_cuda or isinstance(_nothing, InterpretedFunction)


@dataclass(frozen=True, slots=True, eq=False)
class Gpu:
    """A device as host code knows it; by default an H200."""

    sms: int = 132  # multiprocessors
    shared: int = 227  # KiB of shared memory that Triton lets a program have
    tma: bool = True  # whether tiles are loaded by descriptor
    forward_progress: bool = True  # whether programs that wait for others get on
    name: str = "NVIDIA H200"
    clock: float = 1.98  # GHz
    memory: float = 4.92  # TB/s, as clock and width of its bus have it
    flops: int = 4096  # of 16-bit products, in a cycle of a multiprocessor's tensor cores
    coefficients: Any = None  # in place of those that are known of it (`coefficients.py`)


@cache
def gpu(device: torch.device) -> Gpu:
    """The GPU of a tensor. The interpreter acts as a Hopper GPU with few multiprocessors.

    - Tiles are loaded by descriptor on Hopper and newer, except on consumers' Blackwell, which has less than half of their shared memory.
    - A program only waits for programs that took a number before it, and so are on the GPU already. This works on NVIDIA GPUs since Ampere.
    """
    if device.type != "cuda":
        return Gpu(sms=8)
    own = triton.runtime.driver.active.utils.get_device_properties(device.index)
    capability = (0, 0) if torch.version.hip else torch.cuda.get_device_capability(device)
    shared = own["max_shared_mem"] >> 10
    flops = {0: 2048, 7: 1024, 8: 2048 if capability == (8, 0) else 1024, 9: 4096, 10: 8192}
    return Gpu(
        sms=own["multiprocessor_count"],
        shared=shared,
        tma=capability >= (9, 0) and shared >= 227,
        forward_progress=capability >= (8, 0),
        name=torch.cuda.get_device_name(device),
        clock=1e-6 * own["sm_clock_rate"],
        memory=2e-9 / 8 * own["mem_clock_rate"] * own["mem_bus_width"],
        flops=flops.get(capability[0], 1024),
    )
