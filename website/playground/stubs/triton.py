"""As much of Triton as `explain` needs where there is none: kernels that know their parameters and never run."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import Any

from torch import Anything

__version__ = "0"


class JITFunction:
    def __init__(self, fn: Any):
        self.fn = fn
        self.__name__ = fn.__name__
        self.arg_names = list(inspect.signature(fn).parameters)

    def warmup(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("kernels are not compiled here")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("kernels do not run here")


def jit(fn: Any = None, **options: Any) -> Any:
    return jit if fn is None else JITFunction(fn)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


@dataclass
class TensorDescriptor:
    base: Any
    shape: Any
    strides: Any
    block_shape: Any
    padding: str = "zero"

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Any) -> TensorDescriptor:
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block_shape)


def _module(name: str, **names: Any) -> Any:
    made = Anything(f"triton.{name}")
    vars(made).update(names)
    sys.modules[made.__name__] = made
    return made


knobs = _module("knobs")
language = _module(
    "language", extra=_module("language.extra", libdevice=_module("language.extra.libdevice"))
)
runtime = _module("runtime")
_module("runtime.jit", JITFunction=JITFunction)
_module("runtime.interpreter")
_module("runtime.autotuner")
backends = _module("backends", backends={})
_module("backends.compiler")
_module("tools")
_module("tools.tensor_descriptor", TensorDescriptor=TensorDescriptor)
