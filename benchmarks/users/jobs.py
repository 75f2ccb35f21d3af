"""The jobs of a child process for one problem: compile ahead, check, time. Started by `pool.py`.

Each job answers with a dict for the report. `check` compares with f64 at odd sizes. At the given sizes f64 is too large and
too slow, so it compares with torch in f32 without TF32.
"""

from __future__ import annotations

import fcntl
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.users.cases import Case, Values
from benchmarks.users.problems import BY_SPEC
from tritongen.proof.factors import words_of
from tritongen.trace import at_hand, compile_launch, trace

CHUNK = 2**26  # elements compared at a time
TF32, F64, F32 = 3e-3, 1e-5, 1e-4  # what ||ours - reference|| / ||reference|| may be
SPACE = 3 << 30  # workspaces of cuDNN, and what torch.compile tries out


# ---- compiling ahead ---------------------------------------------------------------------------
def prepare(spec: str, with_torch: bool) -> dict[str, Any]:
    return compile_ours(spec, "given") | (compile_torch(spec) if with_torch else {})


def compile_ours(spec: str, size: str) -> dict[str, Any]:
    """Our kernels into Triton's cache, without touching memory."""
    case = Case(BY_SPEC[spec])
    text = case.sizes(size)
    args = {n: torch.empty(s, device="meta", dtype=t) for n, (s, t) in case.shapes(text).items()}
    device = torch.cuda.get_device_properties(0)
    calls = trace(case.module, case.op.name, args | case.numbers(text), at_hand())
    for launch in calls.launches:
        compile_launch(launch, f"sm_{device.major}{device.minor}")
    return {"kernels": len(calls.launches)}


def compiled_by_torch(eager: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Static shapes: dynamo takes all problems of a process for one function, and would go on with dynamic ones."""
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(eager, dynamic=False)


COMPILED: dict[str, Callable[..., torch.Tensor]] = {}  # by spec, by torch.compile, in this process


def compile_torch(spec: str) -> dict[str, Any]:
    """torch.compile's function, kept for the timing: one call, on memory that is ours alone."""
    case = Case(BY_SPEC[spec])
    text = case.problem.given
    reserve(need(case, text, calls=1))
    start = time.monotonic()
    try:
        compiled = compiled_by_torch(case.eager(text))
        compiled(**case.operands(text, "cuda"))
        torch.cuda.synchronize()
        COMPILED[spec] = compiled
    finally:
        torch.cuda.empty_cache()
    return {"seconds": time.monotonic() - start}


class _Counting(TorchDispatchMode):
    """Adds up what every operation makes, as if nothing were ever freed."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for made in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(made, torch.Tensor):
                self.total += made.numel() * made.element_size()
        return out


def need(case: Case, text: str, calls: int = 2) -> int:
    """Bytes that calls, of ours and of torch's, take at most, operands and results included."""
    args = {n: torch.empty(s, device="meta", dtype=t) for n, (s, t) in case.shapes(text).items()}
    operands = sum(x.numel() * x.element_size() for x in args.values())
    with _Counting() as counting:
        case.reference(text)(**args)
    return operands + calls * counting.total + SPACE


def reserve(amount: int) -> None:
    """Wait until the GPU has room, and keep it in this process's allocator."""
    if not torch.cuda.is_available():
        return
    whole = torch.cuda.mem_get_info()[1]
    amount = min(amount, int(0.85 * whole))
    with open(os.path.join(tempfile.gettempdir(), "users_gpu.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while torch.cuda.mem_get_info()[0] < amount:
            time.sleep(0.05)
        torch.empty(amount, dtype=torch.uint8, device="cuda")


# ---- checking ----------------------------------------------------------------------------------
def check(spec: str, size: str, device: str) -> dict[str, Any]:
    case = Case(BY_SPEC[spec])
    text = case.sizes(size)
    if size == "given":
        reserve(need(case, text))
    start = time.monotonic()
    try:
        tensors = case.operands(text, device)
        with numpy.errstate(all="ignore"):  # the interpreter computes inf - inf in numpy
            got = case.ours(**tensors, **case.numbers(text))
        row = compared(case, text, tensors, got, exact=size != "given")
    finally:
        if device == "cuda":
            torch.cuda.empty_cache()
    return row | {"seconds": round(time.monotonic() - start, 2)}


def compared(
    case: Case, text: str, tensors: dict[str, torch.Tensor], got: torch.Tensor, exact: bool
) -> dict[str, Any]:
    """`error` and `verdict`: "ok", or what is wrong."""
    if exact:
        tensors = {n: x.double() if x.is_floating_point() else x for n, x in tensors.items()}
    tf32 = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        want = case.reference(text)(**tensors)
    finally:
        torch.backends.cudnn.allow_tf32 = tf32
    bound = TF32 if "tf32" in words_of(case.op) else F64 if exact else F32
    if got.shape != want.shape:
        return {"error": math.nan, "verdict": f"{list(got.shape)}, not {list(want.shape)}"}
    error = distance(got, want)
    if error <= bound:
        return {"error": error, "verdict": "ok"}
    return {"error": error, "verdict": "NaN" if error != error else f"{error:.1e} > {bound:.0e}"}


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want||: zeros are no answer, however small `want` is."""
    apart = size = torch.zeros((), dtype=torch.float64, device=got.device)
    for a, b in zip(got.reshape(-1).split(CHUNK), want.reshape(-1).split(CHUNK), strict=True):
        a, b = a.double(), b.double()
        apart, size = apart + (a - b).square().sum(), size + b.square().sum()
    if size == 0:
        return math.sqrt(apart.item()) and math.inf
    return math.sqrt((apart / size).item())


# ---- timing ------------------------------------------------------------------------------------
def measure(spec: str, with_compile: bool, slow_ms: float, with_kernels: bool) -> dict[str, Any]:
    """Milliseconds of ours, eager and compiled, called in turn; ours compared before.

    Where a call of ours takes over `slow_ms`, that one call is its time. With kernels: each one's too.
    """
    case = Case(BY_SPEC[spec])
    text = case.problem.given
    try:
        tensors = case.operands(text, "cuda")
        eager, ours = case.eager(text), ours_of(case, text, tensors)
        row = compared(case, text, tensors, ours(), exact=False)
        calls: dict[str, Callable[[], Any]] = {"eager": lambda: eager(**tensors)}
        first = milliseconds(ours)
        if first > slow_ms:
            row["ours"] = first
        else:
            calls["ours"] = ours
        if with_kernels:
            row["kernels"] = kernel_times(ours)
        if with_compile:
            compiled = COMPILED.get(spec) or compiled_by_torch(eager)
            try:
                compiled(**tensors)
                calls["compile"] = lambda: compiled(**tensors)
            except Exception as error:
                row["compile_error"] = str(error)[:300]
        return row | interleaved(calls)
    finally:
        torch.cuda.empty_cache()


def ours_of(case: Case, text: str, tensors: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """One call of ours. Dropout's draws are made in it, as torch makes its own."""
    numbers = case.numbers(text)
    if "draws" not in tensors:
        return lambda: case.ours(**tensors, **numbers)

    def call() -> torch.Tensor:
        torch.rand(tensors["draws"].shape, out=tensors["draws"])
        return case.ours(**tensors, **numbers)

    return call


def milliseconds(call: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def kernel_times(call: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds of each kernel of one call, by name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return {event.key: event.self_device_time_total / 1e3 for event in profile.key_averages()}


def interleaved(
    calls: dict[str, Callable[[], Any]], warm: int = 3, timed: int = 7
) -> dict[str, float]:
    """Medians; what one call leaves in L2 is no gift to the next."""
    flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(warm + timed):
        for name, call in calls.items():
            flush.zero_()
            found = milliseconds(call)
            if k >= warm:
                times[name].append(found)
    return {name: statistics.median(found) for name, found in times.items()}


def is_device_lost(answer: Any) -> bool:
    """After such an error every further call of the process fails."""
    return isinstance(answer, str) and ("CUDA error" in answer or "AcceleratorError" in answer)


def about() -> Values:
    import triton

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": name, "torch": torch.__version__, "triton": triton.__version__}
