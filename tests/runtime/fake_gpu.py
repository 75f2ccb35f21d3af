"""A GPU that is not there, for replay: Triton's interpreter behind the C function that launches kernels.

Needs TRITON_INTERPRET=1. A launch gets pointers and numbers only, as on a GPU, and finds memory by its
address; what is allocated for a replay is poisoned, so a launch that is left out shows.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from triton.runtime.interpreter import InterpretedFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from tritongen.runtime import held, kinds, tape

_handles = itertools.count(1)
compiled: dict[int, tuple[Any, list[Any], tuple[int, ...]]] = {}
launches: list[str] = []  # of replays
_one = threading.RLock()  # the interpreter is not for several threads


def _interpret(kernel: Any, *args: Any, **how: Any) -> None:
    with _one, _disable_current_modes():
        _run(kernel, *args, **how)


_run = InterpretedFunction.run


def install() -> None:
    """Tensors of this process are on the GPU from now on, whose Triton is `held.VERSION`."""
    held.VERSION = "3.7"
    torch.Tensor.is_cuda = property(lambda x: True)
    torch.Tensor.get_device = lambda x: 0
    torch.cuda.device_of = lambda x: contextlib.nullcontext()
    torch.cuda.is_current_stream_capturing = lambda: False
    kinds._device = lambda: 0
    tape._stream = lambda device: 7
    tape._empty = poisoned
    tape.KERNELS = InterpretedFunction
    InterpretedFunction.run = run
    backend = SimpleNamespace(TMA_DTYPE_DEVICE_TO_HOST={0: 0})
    utils = SimpleNamespace(launch=launch_37, fill_tma_descriptor=lambda at, *how: (at, how))
    held._backend = lambda: backend
    held._driver = lambda: SimpleNamespace(active=SimpleNamespace(utils=utils))


def poisoned(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    new = torch.empty_strided(size, stride, dtype=dtype)
    new.untyped_storage().fill_(0xFF)  # NaN, and -1
    return new


class Launcher:
    """What a compiled kernel is run by: 3.6 has a C function for each signature, 3.7 one for all."""

    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid = launch_pdl = False

    def __init__(self, described: bool):
        if held.VERSION == "3.7":
            self.arg_annotations, self.kernel_signature = [], b""
            return
        launcher = _CFunction(launch_36)
        self.launch = (lambda *args: launcher(*args)) if described else launcher

    def __call__(self, x, y, z, stream, handle, meta, info, enter, exit_, *args) -> None:
        """As Triton's JIT calls it, and a module that stands alone: without hooks."""
        assert (stream, meta, info, enter, exit_) == (7, (4, 1, 0), None, None, None)
        _launch((x, y, z), handle, list(args))


class _CFunction:
    def __init__(self, function: Any):
        self.function = function

    def __call__(self, *args: Any) -> None:
        self.function(*args)


def launch_37(x, y, z, stream, handle, coop, pdl, meta, info, enter, exit_, scratch, profile, kinds, packed, args):  # fmt: skip
    assert (stream, coop, pdl, meta) == (7, False, False, (4, 1, 0))
    assert (info, enter, exit_, scratch, profile, kinds, packed) == (None,) * 5 + ([], b"")
    _launch((x, y, z), handle, list(args))


def launch_36(
    x, y, z, stream, handle, coop, pdl, scratch, profile, meta, info, enter, exit_, *args
):
    assert (stream, coop, pdl, meta) == (7, False, False, (4, 1, 0))
    assert (scratch, profile, info, enter, exit_) == (None,) * 5
    _launch((x, y, z), handle, list(args))


def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **config: Any) -> Any:
    """What the JIT does: the launch, and the kernel as it was compiled for it."""
    default = {n: p.default for n, p in inspect.signature(kernel.fn).parameters.items()}
    bound = default | dict(zip(kernel.arg_names, args, strict=False)) | config
    _interpret(kernel, *args, grid=grid, warmup=warmup, **config)
    values = [bound[name] for name in kernel.arg_names]
    constant = kernel.fn.__annotations__
    signature = {n: _kind(n in constant, v) for n, v in zip(kernel.arg_names, values, strict=True)}
    meta = [dict(swizzle=0, elem_size=4, elem_type=0, block_size=[], fp4_padded=False)] * 9
    described = [k for k in signature.values() if k.startswith("tensordesc")]
    handle = next(_handles)
    grid = grid(bound) if callable(grid) else grid
    compiled[handle] = kernel, [_template(v) for v in values], (*grid, 1, 1)[:3]
    return SimpleNamespace(
        run=Launcher(bool(described)),
        src=SimpleNamespace(signature=signature),
        metadata=SimpleNamespace(tensordesc_meta=meta[: len(described)]),
        packed_metadata=(4, 1, 0),
        function=handle,
    )


def _kind(constexpr: bool, value: Any) -> str:
    if constexpr or value is None or (type(value) is int and value == 1):
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return f"*{value.dtype}"
    if isinstance(value, TensorDescriptor):
        return "tensordesc<fp32[1, 1]>"
    return {int: "i32", bool: "i1", float: "fp32"}[type(value)]


def _template(value: Any) -> Any:
    """A tensor's dtype in its place: nothing here keeps one alive."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, TensorDescriptor):
        rest = value.shape, value.strides, value.block_shape, value.padding
        return "tiles", value.base.dtype, rest
    return value


def _launch(grid: tuple[int, ...], handle: int, given: list[Any]) -> None:
    kernel, template, before = compiled[handle]
    assert grid == before
    launches.append(kernel.fn.__name__)
    args = []
    for value in template:
        if isinstance(value, torch.dtype):
            args.append(_at(given.pop(0), value))
        elif isinstance(value, tuple) and value[0] == "tiles":
            pointer, how = given.pop(0)
            sizes, strides = value[2][:2]
            assert how[4:6] == (list(sizes), list(strides))
            assert [given.pop(0) for _ in (*sizes, *strides)] == [*sizes, *strides]
            args.append(TensorDescriptor(_at(pointer, value[1]), *value[2]))
        else:
            own = given.pop(0)
            # What is compiled in is not passed; a float may be another one than before.
            args.append(own if own is not None and type(own) is float else value)
            assert own is None or type(own) is float or own == value
    assert not given
    _interpret(kernel, *args, grid=grid, warmup=False)


def _at(pointer: int, dtype: torch.dtype) -> torch.Tensor:
    """One element at an address: a kernel reaches the rest by its offsets."""
    return torch.frombuffer((ctypes.c_char * dtype.itemsize).from_address(pointer), dtype=dtype)
