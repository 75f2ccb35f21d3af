"""Replays calls of a standalone module. It does less than `runtime/replay.py`, for the same purpose.

    @replayed(f32_precision, "matmul", tiles=tiles_like)    # what it asks; `tiles` if it has descriptors
    def matmul(a, b): ...

    matmul(a, b); matmul(a, b)                              # the second call of a kind is recorded
    matmul(c, d)                                            # later calls: allocate, launch, return

It works with Triton 3.6 and 3.7 on CUDA: a kernel is launched by `CompiledKernel.run`, as Triton's JIT does once it has found the
kernel. With any other version, or if a call does more than allocate and launch, the function runs as written.

Unlike the runtime's replay it does not handle numbers that change with each call, copies by torch, or functions of the module
that you replace later.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode

from tritongen.lib.alone import resolved
from tritongen.lib.compilers import mend_kernels


def kind_of(values: tuple[Any, ...]) -> tuple[list[Any], list[int]]:
    """The key that decides how a call runs, and its operands' pointers. None if the call is not replayed."""
    kind: list[Any] = []
    pointers: list[int] = []
    device, hooks = -1, triton.knobs.runtime
    more = torch.compiler.is_compiling() or torch.are_deterministic_algorithms_enabled()
    if more or hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:
        return kind, []
    for value in values:
        own = type(value)
        if (own is torch.Tensor or own is torch.nn.Parameter) and value.is_cuda:
            if value.is_neg():  # `resolved` copies it
                return kind, []
            try:
                at, device = value.data_ptr(), value.get_device()
            except RuntimeError:  # what torch.func wraps has no pointer
                return kind, []
            pointers.append(at)
            kind += device, value.dtype, value.shape, value.stride(), at % 16, pointers.index(at)
        elif own in (int, bool, float, type(None), torch.dtype):
            kind += own, repr(value)  # 0.0 == -0.0 and True == 1
        else:
            return kind, []
    return kind, pointers if pointers and device == torch.cuda.current_device() else []


class Steps(TorchDispatchMode):
    """The allocations and launches of a call. `more`: whether torch does anything else in it."""

    _should_skip_dynamo = classmethod(lambda cls: False)  # else torch imports its compiler

    def __init__(self) -> None:
        super().__init__()
        self.made: list[torch.Tensor] = []
        self.zeros: list[int] = []  # which of those are set to zero
        self.launches: list[Any] = []
        self.more = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in ("empty", "empty_like", "empty_permuted", "empty_strided", "zeros"):
            self.zeros += [len(self.made)] * (name == "zeros")
            self.made.append(result)
        else:
            self.more |= not func.is_view
        return result

    def launch(self, kernel: Any, *args: Any, **config: Any) -> None:
        compiled = kernel.run(*args, **config)
        self.launches.append((kernel, compiled, arguments_of(kernel, args, config)))


def arguments_of(kernel: Any, args: Any, config: Any) -> dict[str, Any]:
    """The arguments of a launch and the defaults, in the order of the kernel's parameters. Options of Triton come last."""
    left = zip(reversed(kernel.arg_names), reversed(kernel.fn.__defaults__ or ()), strict=False)
    return {**dict(left), **dict(zip(kernel.arg_names, args, strict=False)), **config}


def twin(thing: Any, **others: Any) -> Any:
    """A copy with some attributes replaced."""
    own = object.__new__(type(thing))
    vars(own).update(vars(thing), **others)
    return own


def noted(function: Any, args: Any, kwargs: Any, tiles: Any) -> tuple[Any, Any]:
    """The result of a call, and a function that repeats it given its operands' pointers, or "never".

    The call runs in a copy of its module whose kernels record their launches.
    """
    own, scope, steps = function.__globals__, {**function.__globals__}, Steps()

    def inside(f: Any) -> Any:
        copied = type(f)(f.__code__, scope, f.__name__, f.__defaults__, f.__closure__)
        copied.__kwdefaults__ = f.__kwdefaults__
        return copied

    for name, value in own.items():
        if isinstance(value, triton.JITFunction):
            scope[name] = twin(value, run=functools.partial(steps.launch, value))
        elif isinstance(value, type(function)) and value.__globals__ is own:
            scope[name] = inside(value)
    try:
        with steps:
            result = inside(function)(*args, **kwargs)
    finally:
        scope.clear()  # else a cycle would keep what was allocated
    operands = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
    try:
        return result, played(steps, operands, result, tiles)
    except Exception:  # there is more to it, or Triton is another one
        return result, "never"


def played(steps: Steps, operands: Any, result: Any, tiles: Any) -> Callable[[list[int]], Any]:
    """The steps as a function of the operands' pointers. Raises if some step cannot be repeated."""
    given, made, several = len(operands), steps.made, isinstance(result, tuple)
    places = {t.data_ptr(): k for k, t in reversed([*enumerate((*operands, *made))])}
    launches = [launch_of(launch, places, tiles) for launch in steps.launches]
    written = {place - given for *_, passed in launches for _, place, _ in passed}
    own = [(t.data_ptr(), t.shape, t.stride()) for t in made]
    outputs = result if several else (result,)
    returned: list[Any] = [
        None if y is None else own.index((y.data_ptr(), y.shape, y.stride())) for y in outputs
    ]
    apart = len(places) == len({t.data_ptr() for t in operands}) + len(made)
    if steps.more or 0 in places or not apart or not {*returned} - {None} <= written:
        raise LookupError
    device, index, zeros = operands[0].device, operands[0].get_device(), steps.zeros
    stream_of = triton.runtime.driver.active.get_current_stream
    shapes = [(t.shape, t.stride(), t.dtype) for t in made]

    def play(pointers: list[int]) -> Any:
        made = [torch.empty_strided(n, s, dtype=t, device=device) for n, s, t in shapes]
        for k in zeros:
            made[k].zero_()
        at, stream = [*pointers, *[t.data_ptr() for t in made]], stream_of(index)
        for _, run, arguments, passed in launches:
            arguments = arguments.copy()
            arguments[3] = stream
            for k, place, described in passed:
                arguments[k] = described(at[place]) if described else at[place]
            run(*arguments)
        if several:
            return tuple([None if k is None else made[k] for k in returned])
        return made[returned[0]]

    return play


def launch_of(launch: Any, places: dict[int, int], tiles: Any) -> tuple[Any, ...]:
    """The function that launches a kernel, and its arguments: grid, stream, Triton's metadata, no hooks, kernel arguments."""
    kernel, compiled, named = launch
    run, grid, passed = compiled.run, (*named["grid"], 1, 1)[:3], list[Any]()
    given = [*grid, None, compiled.function, compiled.packed_metadata, None, None, None]
    metas = [*(getattr(compiled.metadata, "tensordesc_meta", None) or ())]
    for name, kind in compiled.src.signature.items():
        value = named[name]
        if kind == "constexpr" or isinstance(value, (int, float)):
            given.append(None if kind == "constexpr" else value)
        elif isinstance(value, torch.Tensor):
            passed.append((len(given), places[value.data_ptr()], None))
            given.append(None)
        else:
            run, described = tiles(compiled.run, value, metas.pop(0))
            passed.append((len(given), places[value.base.data_ptr()], described))
            given += [None, *value.shape, *value.strides]
    if kernel.pre_run_hooks or torch.version.hip or triton.__version__[:4] not in ("3.6.", "3.7."):
        raise LookupError
    return compiled, run, given, passed  # loaded as long as it is known


def tiles_like(run: Any, tiles: Any, meta: Any) -> tuple[Any, Callable[[int], Any]]:
    """A function that makes descriptors like these for other pointers. It holds bytes, and no tensor."""
    like = {**vars(tiles), "base": None}

    @functools.lru_cache(64)
    def described(pointer: int) -> Any:
        own = SimpleNamespace(**{**like, "base": SimpleNamespace(data_ptr=lambda: pointer)})
        return triton.backends.nvidia.driver.make_tensordesc_arg(own, meta)[0]

    return twin(run, launch=inspect.getclosurevars(run.launch).nonlocals["launcher"]), described


def replayed(precision: Any = None, *asked: str, tiles: Any = None, most: int = 512) -> Any:
    """Decorates an op: a call allocates and launches what the second call of its kind did, and chooses nothing.

    `asked`: its questions to `precision`. `tiles`: the function that makes descriptors. `most`: the number of kinds that are kept.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        mend_kernels(function.__globals__.values())
        known: dict[tuple[Any, ...], Any] = {}
        plainly = resolved(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            kind, pointers = kind_of((*args, *kwargs.values()) if kwargs else args)
            key = (*kind, *kwargs, *map(precision, asked)) if pointers else ()
            found = known.get(key)
            if callable(found):
                return found(pointers)
            if found == "once":
                result, known[key] = noted(function, args, kwargs, tiles)
                return result
            if found is None and pointers:
                if len(known) >= most:
                    known.clear()
                known[key] = "once"
            return plainly(*args, **kwargs)

        return call

    return decorate
