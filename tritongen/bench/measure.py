"""Timing and comparing functions on a GPU; knows nothing of specs.

    verdict = compare(on_poison(ours), want)         # before anything is timed
    times = interleaved({"ours": ours, "eager": eager})     # medians in seconds
    peaks = ceilings(["bf16"])                              # copy and matmul, in the same run

Functions take turns, so that whatever the clocks and neighbours do, they do to all. Before each
call the L2 cache is overwritten, as often as it takes for the host to have launched the call before
the device comes to it: the time between CUDA events is then the device's alone (a matmul of 1024^3
read 72 us by one overwrite, of which the wrapper's host code was 60). The host's is `host_times`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import torch

from tritongen.cost import Ceilings

Call = Callable[[], Any]

# Largest |got - want| / (|want| + rms(want)) that is let pass: two to four roundings of the output.
BOUNDS = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 1.6e-2,
    torch.float8_e4m3fn: 0.13,
    torch.float8_e5m2: 0.26,
}
TF32_BOUND = 1e-2  # for a product in TF32, whose factors have 10 bits


SWEEP_SECONDS = 40e-6  # one overwrite of four times the L2 of an H200 takes 55 us
MOST_SWEEPS = 40  # for what the host takes 2 ms to launch: tensor descriptors on a busy machine


# ---- comparing ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Comparison:
    """`error` is the largest of any output, on the scale of `BOUNDS`; `problem` is empty where all is well."""

    error: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem


def compare(got: Any, want: Any, tf32: bool = False, beside: float = 0.0) -> Comparison:
    """Compares the results of one call, a tensor or a tuple, with more exact ones.

    `tf32`: products of f32 may be TF32. An error of up to three times that of `beside`, torch's own result of the same call, passes
    too: some functions have no better conditioned answer.
    """
    ours, theirs = _tuple(got), _tuple(want)
    if len(ours) != len(theirs):
        return Comparison(float("inf"), f"{len(ours)} results, expected {len(theirs)}")
    worst = 0.0
    for k, (g, w) in enumerate(zip(ours, theirs, strict=True)):
        where = f"result {k}: " if len(ours) > 1 else ""
        if g.shape != w.shape:
            return Comparison(float("inf"), f"{where}shape {list(g.shape)} for {list(w.shape)}")
        error, problem = _difference(g, w)
        worst = max(worst, error)
        allowed = max(BOUNDS.get(g.dtype, 0.0), 3 * beside)
        if tf32 and g.dtype == torch.float32:
            allowed = max(allowed, TF32_BOUND)
        if problem or error > allowed:
            return Comparison(
                worst, where + (problem or f"off by {error:.1e} (at most {allowed:.1e})")
            )
    return Comparison(worst)


def _tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _difference(got: torch.Tensor, want: torch.Tensor) -> tuple[float, str]:
    """The largest error, and what no size of error describes."""
    if not got.dtype.is_floating_point:
        wrong = int((got != want.to(got.dtype)).sum())
        return float(wrong), f"{wrong} of {got.numel()} differ" if wrong else ""
    wide = want if want.dtype == torch.float64 else want.float()
    rounded = want.to(got.dtype)
    special = ~(rounded.isfinite() & got.isfinite())
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    lost = int((special & ~same).sum())
    if lost:
        return float("inf"), f"NaN or infinity differ in {lost} of {got.numel()} places"
    finite = torch.where(special, 0.0, wide)
    scale = finite.abs() + finite.square().mean().sqrt() if got.numel() else finite
    off = torch.where(special, 0.0, got.to(wide.dtype) - wide).abs() / scale
    return float(off.nan_to_num(nan=0.0).max()) if got.numel() else 0.0, ""


def on_poison(call: Call) -> Any:
    """The call's result in storage that held NaN before: the allocator hands the same blocks out again."""
    for result in _tuple(call()):
        if result.is_floating_point():
            result.fill_(float("nan"))
        elif result.dtype != torch.bool:
            result.fill_(77)
    return call()


# ---- timing -------------------------------------------------------------------------------------
class Timer(Protocol):
    """Runs a call and promises its seconds; `settle` waits until promises can be kept."""

    def run(self, call: Call) -> Callable[[], float]: ...

    def settle(self) -> None: ...


class CudaTimer:
    """CUDA events around one call, behind writes that empty the L2 cache and keep the device busy."""

    def __init__(self) -> None:
        size = torch.cuda.get_device_properties("cuda").L2_cache_size
        self.sweep = torch.empty(max(4 * size, 1 << 26), dtype=torch.int8, device="cuda")
        self.sweeps: dict[Call, int] = {}

    def run(self, call: Call) -> Callable[[], float]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(self.sweeps.get(call, 4)):
            self.sweep.zero_()
        start.record()
        before = perf_counter()
        call()
        host = perf_counter() - before
        end.record()
        self.sweeps[call] = min(2 + int(host / SWEEP_SECONDS), MOST_SWEEPS)
        return lambda: start.elapsed_time(end) * 1e-3

    def settle(self) -> None:
        torch.cuda.synchronize()


def interleaved(
    functions: Mapping[str, Call], seconds: float = 0.2, timer: Timer | None = None
) -> dict[str, float]:
    """The median seconds of each function, all taking turns for about `seconds` a function."""
    timer = timer or CudaTimer()
    for call in functions.values():  # compiled, tuned by others, and in the allocator's memory
        call()
        call()
    timer.settle()
    trial = _round(functions, timer)
    timer.settle()
    slowest = max((t() for t in trial.values()), default=0.0)
    rounds = min(200, max(11, int(seconds / max(slowest, 1e-5))))
    waiting = [_round(functions, timer) for _ in range(rounds)]
    timer.settle()
    return {name: median(turn[name]() for turn in waiting) for name in functions}


def host_times(functions: Mapping[str, Call], count: int = 30) -> dict[str, float]:
    """The median seconds that a call keeps the host, the device idle at its start."""
    found = {}
    for name, call in functions.items():
        times = []
        for _ in range(count):
            torch.cuda.synchronize()
            before = perf_counter()
            call()
            times.append(perf_counter() - before)
        found[name] = median(times)
    return found


def _round(functions: Mapping[str, Call], timer: Timer) -> dict[str, Callable[[], float]]:
    return {name: timer.run(call) for name, call in functions.items()}


# ---- ceilings -----------------------------------------------------------------------------------
def ceilings(precisions: Sequence[str] = (), timer: Timer | None = None) -> Ceilings:
    """Measures this GPU: a copy of 1 GiB, and cuBLAS at 8192^3 (4096^3 for f64 and plain f32)."""
    source = torch.empty(2**30, dtype=torch.int8, device="cuda").random_()
    target = torch.empty_like(source)
    calls: dict[str, tuple[Call, float]] = {
        "copy": (lambda: target.copy_(source), 2.0 * source.numel())
    }
    wanted = {"tf32" if p == "tf32x3" else p for p in precisions if p}
    calls |= {p: product for p in sorted(wanted) if (product := _product(p)) is not None}
    times = interleaved({name: call for name, (call, _) in calls.items()}, timer=timer)
    rates = {name: amount / times[name] for name, (_, amount) in calls.items()}
    copy = rates.pop("copy")
    if "tf32x3" in precisions:
        rates["tf32x3"] = rates["tf32"] / 3  # three products of parts
    return Ceilings(copy, rates, f"{torch.cuda.get_device_name()}, measured in this run")


def _product(precision: str) -> tuple[Call, float] | None:
    """A large product in one precision, and its flops; None where torch has none here."""
    n = 4096 if precision in ("f64", "ieee") else 8192
    dtypes = {
        **{"bf16": torch.bfloat16, "f64": torch.float64, "tf32": torch.float32},
        **{"ieee": torch.float32, "f8": torch.float8_e4m3fn, "i8": torch.int8},
    }
    dtype = dtypes.get(precision)
    if dtype is None:
        return None
    a = torch.randn(n, n, device="cuda").to(dtype)
    b = torch.randn(n, n, device="cuda").to(dtype)
    if precision == "i8":
        return (lambda: torch._int_mm(a, b.t())), 2.0 * n**3
    if precision == "f8":
        one = torch.ones((), device="cuda")
        run = lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)  # noqa: E731
        return run, 2.0 * n**3
    return (lambda: _mm(a, b, precision)), 2.0 * n**3


def _mm(a: torch.Tensor, b: torch.Tensor, precision: str) -> torch.Tensor:
    if a.dtype != torch.float32:
        return torch.mm(a, b)
    with tf32(precision == "tf32"):
        return torch.mm(a, b)


class tf32:
    """`with tf32(False):` products and convolutions of f32 are exact to f32."""

    def __init__(self, allowed: bool):
        self.allowed = allowed

    def __enter__(self) -> None:
        # `allow_tf32` would not do: read and written back, it turns "none", which asks elsewhere, into "ieee".
        self.switches: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
        self.before = [switch.fp32_precision for switch in self.switches]
        for switch in self.switches:
            switch.fp32_precision = "tf32" if self.allowed else "ieee"

    def __exit__(self, *exception: Any) -> None:
        for switch, precision in zip(self.switches, self.before, strict=True):
            switch.fp32_precision = precision
