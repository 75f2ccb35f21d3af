"""Finds out what a call of a generated op would launch, without a GPU: choices, grids, configs, machine code.

    calls = trace(module, "softmax", {"x": torch.empty(4, 1000, device="meta")})
    calls.choices   # [Choice("softmax", {"rows": 4, "cols": 1000, "sms": 132}, "rows", {"BLOCK": 1024, ...})]
    calls.launches  # [Launch(<kernel softmax_rows>, (2,), args, config)]
    ptx(calls.launches[0], "sm_90")

The module's own host code runs on meta tensors, with kernels that only record their launch. `proof` runs kernels and
judges their results.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction, MockTensor

from tritongen import lib
from tritongen.choice import of_gpu
from tritongen.lib import Gpu
from tritongen.runtime.tuned import InForce, here, tensors_of

H200 = Gpu()


def at_hand(device: torch.device | None = None) -> Gpu:
    """The GPU of a tensor, or of this machine; an H200, where there is none."""
    if device is None or device.type != "cuda":
        if not torch.cuda.is_available():
            return H200
        device = torch.device("cuda", torch.cuda.current_device())
    return lib.gpu(device)


@dataclass(frozen=True, slots=True)
class Choice:
    """The arguments and the answer of one `choose_<step>`."""

    step: str
    facts: dict[str, Any]  # its arguments, with the facts of its `gpu` that rules use
    variant: str
    config: dict[str, int]
    tuned: bool = False  # by `tritongen tune` on this machine


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    config: dict[str, Any]
    chosen: int = 0  # how many choices were made before it


@dataclass(slots=True)
class Calls:
    choices: list[Choice] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    tensors: tuple[Any, ...] = ()  # of the launch function in progress, as tuned configs know them


@dataclass(frozen=True, slots=True)
class _Noting:
    """A stand-in for a kernel: `kernel[grid](...)` is recorded instead of run."""

    kernel: Any
    calls: Calls

    @property
    def fn(self) -> _Noting:
        """The function of a kernel, without its table of configs."""
        return _Noting(self.kernel.fn, self.calls)

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def note(*args: Any, **config: Any) -> None:
            count = len(self.calls.choices)
            self.calls.launches.append(Launch(self.kernel, tuple(grid), args, config, count))

        return note


def _tuned(noting: _Noting, grid: Any, config: Mapping[str, int]) -> Any:
    """Stands in for `lib.tuned`: a kernel with a table is recorded with the config of `choose`."""
    kernel = noting.kernel
    names = (*kernel.configs[0].kwargs, "num_warps", "num_stages")
    chosen = {name: config[name] for name in names if name in config}

    def note(*args: Any, **given: Any) -> None:
        known = {**dict(zip(kernel.arg_names, args, strict=False)), **given, **chosen}
        found = grid(known) if callable(grid) else grid
        count = len(noting.calls.choices)
        noting.calls.launches.append(
            Launch(kernel.fn, tuple(found), args, {**given, **chosen}, count)
        )

    return note


def trace(
    module: types.ModuleType, name: str, args: Mapping[str, Any], gpu: Gpu | None = None
) -> Calls:
    """The choices and launches of one call, on meta copies of its tensors. `gpu` replaces the GPU of this machine."""
    calls = Calls()
    function = _shadow(module, calls, gpu or at_hand())[name]
    function(**{k: _meta(v) if isinstance(v, torch.Tensor) else v for k, v in args.items()})
    return calls


def _shadow(module: types.ModuleType, calls: Calls, gpu: Gpu) -> dict[str, Any]:
    """The module's functions over globals of their own, in which kernels take note."""
    library = [v for n, v in sys.modules.items() if n.startswith(f"{lib.__name__}.")]
    scopes, own = _over_own_globals([module, *library], calls)
    shadow = scopes[module.__name__]
    pretended = {
        "runs_kernels": lambda x: True,
        "gpu": lambda device: gpu,
        "tuned": _tuned,
    }
    said: dict[str, Any] = {}
    for scope in (s for name, s in scopes.items() if name != module.__name__):
        scope |= {name: pretended[name] for name in pretended.keys() & scope.keys()}
        said |= scope
    if vars(module).get("lib") is lib:
        shadow["lib"] = types.SimpleNamespace(**said)
    else:  # a module that stands alone has these itself
        shadow |= {f"_{name}": value for name, value in pretended.items()}
    for step in _steps(own):
        choose, launch = f"choose_{step}", f"launch_{step}"
        force = getattr(vars(module)[launch], "in_force", None)
        shadow[choose] = _noting_choice(step, own[choose], calls, force)
        if force:
            shadow[launch] = _noting_launch(own[launch], calls)
    return shadow


def _over_own_globals(
    modules: Sequence[types.ModuleType], calls: Calls
) -> tuple[dict[str, dict[str, Any]], dict[str, types.FunctionType]]:
    """The globals of modules with their functions over these, and kernels that take note; and the first one's functions."""
    scopes = {module.__name__: dict(vars(module)) for module in modules}
    made: dict[int, Any] = {}
    for module in modules:
        for name, given in vars(module).items():
            value = inspect.unwrap(given) if callable(given) else given
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                own = types.FunctionType(
                    value.__code__,
                    scopes[module.__name__],
                    name,
                    value.__defaults__,
                    value.__closure__,
                )
                own.__kwdefaults__ = value.__kwdefaults__
                made[id(given)] = own
            elif hasattr(value, "arg_names") and hasattr(value, "warmup"):
                made[id(given)] = _Noting(value, calls)
    for scope in scopes.values():  # what one has from another, too
        scope |= {name: made[id(value)] for name, value in scope.items() if id(value) in made}
    there = {name: made.get(id(value)) for name, value in vars(modules[0]).items()}
    return scopes, {n: v for n, v in there.items() if isinstance(v, types.FunctionType)}


def _steps(own: Mapping[str, types.FunctionType]) -> Iterator[str]:
    """The steps of a module, by the function of the launch: an op, too, may be called `choose_a` or `launch_a`.

    Steps whose choice is forced by a function from outside of the module are left out.
    """
    for name in own:
        step = name.removeprefix("choose_")
        launch = own.get(f"launch_{step}")
        if step != name and launch is not None and name in launch.__code__.co_names:
            yield step


def _noting_choice(
    step: str, choose: types.FunctionType, calls: Calls, force: InForce | None
) -> Any:
    def note(**facts: int) -> tuple[str, dict[str, int]]:
        key = force.key(here(), calls.tensors, facts) if force else ()
        tuned = force.tuned(key) if force else None
        variant, config = (tuned or choose)(**facts)
        calls.choices.append(Choice(step, of_gpu(facts), variant, dict(config), tuned is not None))
        return variant, config

    return note


def _noting_launch(launch: types.FunctionType, calls: Calls) -> Any:
    def note(*args: Any) -> None:
        calls.tensors = tensors_of(args)
        launch(*args)

    return note


def _meta(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


# ---- machine code -------------------------------------------------------------------------------
class _Driver:
    """Enough of a Triton driver to compile for a GPU that is not there."""

    def __init__(self, target: GPUTarget):
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> GPUTarget:
        return self.target  # the key under which a kernel keeps what it compiled

    def get_current_stream(self, device: Any = None) -> int:
        return 0


def target(arch: str) -> GPUTarget:
    """`sm_90` or `gfx942`; ValueError for anything else."""
    if arch.startswith("sm_") and arch[3:].isdigit():
        return GPUTarget("cuda", int(arch[3:]), 32)
    if arch.startswith("gfx") and arch[3:].isalnum():
        return GPUTarget("hip", arch, 64)
    raise ValueError(f"unknown target {arch!r}: sm_80, sm_90, sm_100, gfx942, ...")


def compile_launch(launch: Launch, arch: str) -> Any:
    """The compiled kernel, specialised as the JIT would for this call: `.asm`, `.metadata`."""
    if not isinstance(launch.kernel, JITFunction):
        raise RuntimeError("kernels cannot be compiled under TRITON_INTERPRET=1")
    args = [
        MockTensor(a.dtype, list(a.shape)) if isinstance(a, torch.Tensor) else a
        for a in launch.args
    ]
    config = triton.runtime.driver
    before = config._active
    config.set_active(_Driver(target(arch)))
    try:
        return launch.kernel.warmup(*args, grid=launch.grid, **launch.config)
    finally:
        config._active = before


def ptx(launch: Launch, arch: str) -> str:
    """Its assembly: PTX, or AMD's."""
    asm = compile_launch(launch, arch).asm
    return asm["ptx"] if "ptx" in asm else asm["amdgcn"]
