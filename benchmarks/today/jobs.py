"""The jobs of a child process for one op: compile all, then compare and time. Started by `pool.py` (see `run.py`)."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.today.ops import OPS, Case, Make
from benchmarks.users.jobs import compiled_by_torch, distance, is_device_lost
from tritongen import compile_op
from tritongen.ir.binding import operand_dtype
from tritongen.proof.cases import all_sizes, shape_of

__all__ = ["is_device_lost", "measure", "prepare"]
HALF = (torch.bfloat16, torch.float16)
TYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8e4m3": torch.float8_e4m3fn,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}
Tensors = dict[str, torch.Tensor]
Ways = dict[str, Callable[..., Any]]
OURS: Ways = {}
COMPILED: dict[str, Ways] = {}  # by op, in this process
SLOW_MS = 25.0
FLUSHED = 1 << 28


# ---- operands ----------------------------------------------------------------------------------
def ours(name: str) -> Callable[..., Any]:
    if name not in OURS:
        OURS[name] = compile_op(OPS[name].spec, name)
    return OURS[name]


def typing(name: str) -> Any:
    from tritongen import pipeline

    return pipeline.build(OPS[name].spec, f"{name}.op").items[0].plans[0].op


def operands(
    case: Case, device: str, dtype: str | None = None, seed: int = 0
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors, and the constants and types that are given by name."""
    op = typing(case.name)
    given = case.large if device == "cuda" else case.small
    consts = {c.name: int(given.get(c.name, c.default)) for c in op.constants}
    sizes = all_sizes(op, {**given, **consts})
    dtype = dtype or case.dtype
    gen = torch.Generator(device).manual_seed(seed)
    found = {}
    for t in op.tensors:
        kind = operand_dtype(t.dtype, {"T": dtype})
        make = Make(
            shape_of(t, sizes, {}),
            torch.float32 if kind == torch.float8_e4m3fn else kind,
            device,
            sizes,
            gen,
        )
        if t.name in case.fill:
            x = case.fill[t.name](make)
        elif kind.is_floating_point:
            x = make.randn()
        else:
            raise ValueError(f"{case.name}: no fill for {t.name}")
        found[t.name] = x.to(kind)
        assert x.shape == make.shape, (case.name, t.name, x.shape, make.shape)
    if "T=None" in case.spec or "= bf16>" in case.spec:
        consts["T"] = TYPES[dtype]
    return found, consts


def wants(case: Case, args: dict[str, torch.Tensor]) -> list[str]:
    floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    return (
        [n for n, x in args.items() if x.dtype in floats and n not in case.detached]
        if case.grad
        else []
    )


def leaves(
    case: Case, args: dict[str, torch.Tensor], wide: bool = False
) -> dict[str, torch.Tensor]:
    wanted = wants(case, args)
    found = {}
    for n, x in args.items():
        x = x.detach()
        if wide and x.dtype.is_floating_point:
            x = x.double() if case.wide else x.float()
        found[n] = x.requires_grad_() if n in wanted else x
    return found


def tuple_of(y: Any) -> tuple[torch.Tensor, ...]:
    return tuple(y) if isinstance(y, (tuple, list)) else (y,)


def incoming(results: tuple[torch.Tensor, ...], seed: int = 1) -> list[torch.Tensor | None]:
    """The gradients of results, the same for every way."""
    gen = torch.Generator(results[0].device).manual_seed(seed)
    found = []
    for y in results:
        dy = torch.empty(y.shape, device=y.device, dtype=torch.float32).normal_(generator=gen)
        found.append(dy if y.requires_grad else None)
    return found


def bound_backward(
    case: Case,
    function: Callable[..., Any],
    args: dict[str, torch.Tensor],
    more: dict[str, Any],
    rounded: list[torch.dtype] | None = None,
):
    """A call of autograd.grad behind a forward that is made here. `rounded`: types that the incoming gradients are rounded to first."""
    results = tuple_of(function(**args, **more))
    kinds = rounded or [y.dtype for y in results]
    pairs = [
        (y, dy.to(kind).to(y.dtype))
        for y, dy, kind in zip(results, incoming(results), kinds, strict=True)
        if dy is not None
    ]
    wanted = [args[n] for n in wants(case, args)]
    ys, dys = [y for y, _ in pairs], [dy for _, dy in pairs]
    return lambda: torch.autograd.grad(ys, wanted, dys, retain_graph=True, allow_unused=True)


def clear(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


# ---- compiling -----------------------------------------------------------------------------------
def prepare(name: str, device: str, note: str) -> dict[str, Any]:
    """Runs ours once, and makes torch.compile's; what was reached is written to `note`."""
    case, steps = OPS[name], Steps(device, note)
    if device == "cuda":
        from torch._functorch import config as functorch

        functorch.donated_buffer = False  # buffers serve each of many backwards
        torch.set_float32_matmul_precision("highest")
        if not COMPILED:
            launched(lambda: torch.zeros(1, device="cuda"))  # the profiler starts slowly

    def forward(function: Callable[..., Any], **also: Any) -> Any:
        with torch.no_grad():  # as it is timed: a graph of its own
            return function(**args, **more, **also)

    def backward(function: Callable[..., Any]) -> Any:
        return bound_backward(case, function, leaves(case, args), more)()

    try:
        steps.run("build", lambda: ours(name))
        args, more = operands(case, device)
        if "build_error" not in steps.row:
            steps.run("ours", lambda: forward(ours(name)))
            if case.grad:
                steps.run("ours_grad", lambda: backward(ours(name)))
        clear(device)
        ready = COMPILED[name] = {}
        compiled = compiled_by_torch(case.torch) if device == "cuda" else case.torch
        if steps.run("compile", lambda: forward(compiled)) is not None:
            ready["compile"] = compiled
        if case.grad and steps.run("compile_grad", lambda: backward(compiled)) is not None:
            ready["compile_grad"] = compiled
        clear(device)
        for label, rival in case.rivals.items() if device == "cuda" else ():
            scale = {"scale": next(s.default for s in typing(name).scalars if s.name == "scale")}
            if steps.run(label, lambda w=rival, s=scale: forward(w, **s)) is not None:
                ready[label] = lambda w=rival, s=scale, **k: w(**k, **s)
        return steps.row
    finally:
        clear(device)


class Steps:
    """What is run once, in turn: how long each takes, and what goes wrong, are in `row`."""

    def __init__(self, device: str, note: str):
        self.device, self.note, self.row = device, note, dict[str, Any]()

    def run(self, label: str, call: Callable[[], Any]) -> Any:
        """The result; None where it fails. What has no memory is tried once more."""
        with open(self.note, "a") as file:
            file.write(label + " ")
        start = time.monotonic()
        for again in (True, False):
            try:
                return call()
            except torch.cuda.OutOfMemoryError as error:
                clear(self.device)
                if not again:
                    self.row[f"{label}_error"] = f"OutOfMemoryError: {str(error)[:100]}"
                time.sleep(3)
            except Exception as error:
                self.row[f"{label}_error"] = f"{type(error).__name__}: {str(error)[:400]}"
                if is_device_lost(str(error)):
                    raise
                return None
            finally:
                self.row[f"{label}_s"] = round(time.monotonic() - start, 1)


# ---- comparing and timing ------------------------------------------------------------------------
def far(got: torch.Tensor | None, want: torch.Tensor | None) -> float:
    """A distance; of integers the share that differs (of 8 bits, and f8, a distance)."""
    if got is None or want is None:
        return (
            0.0
            if (got is None or not got.abs().any()) and (want is None or not want.abs().any())
            else math.inf
        )
    if got.shape != want.shape:
        return math.inf
    if not got.dtype.is_floating_point and got.dtype != torch.int8:
        return (got != want).double().mean().item()
    return distance(
        got.contiguous().to(torch.float64 if want.dtype == torch.float64 else torch.float32),
        want.contiguous().double(),
    )


def errors(got: Any, want: Any) -> list[float]:
    got, want = tuple_of(got), tuple_of(want)
    return [far(g, w) for g, w in zip(got, want, strict=True)]


def measure(name: str, device: str) -> dict[str, Any]:
    case = OPS[name]
    args, more = operands(case, device, seed=7)
    torch.backends.cudnn.benchmark = True
    sizes = case.large if device == "cuda" else case.small
    row: dict[str, Any] = {"op": name, "dtype": case.dtype, "sizes": sizes}
    ready = COMPILED.get(name, {})
    ways: Ways = {}
    try:
        try:
            ways["ours"] = ours(name)
        except Exception as error:
            row["ours_error"] = f"build: {str(error)[:300]}"
        ways |= {"eager": case.torch} | {n: f for n, f in ready.items() if n != "compile_grad"}
        kinds = measure_forward(case, device, args, more, ways, row)
        clear(device)
        if case.grad:
            ways = {n: ways[n] for n in ("ours", "eager") if n in ways}
            ways |= {"compile": ready["compile_grad"]} if "compile_grad" in ready else {}
            measure_backward(case, device, args, more, ways, kinds, row)
        return row
    except torch.cuda.OutOfMemoryError as error:
        return row | {"failed": f"OutOfMemoryError: {str(error)[:100]}"}
    finally:
        clear(device)


@contextmanager
def noted(row: dict[str, Any], label: str) -> Iterator[None]:
    """Notes what goes wrong, but for a GPU that is gone."""
    try:
        yield
    except Exception as error:
        if is_device_lost(str(error)):
            raise
        row.setdefault("problems", {})[label] = f"{type(error).__name__}: {str(error)[:300]}"


@torch.no_grad()
def measure_forward(
    case: Case, device: str, args: Tensors, more: dict[str, Any], ways: Ways, row: dict[str, Any]
) -> list[torch.dtype] | None:
    """Compares and times calls, in `row`. Returns the types of the results."""
    want = tuple_of(case.torch(**leaves(case, args, wide=True), **more))
    clear(device)
    calls, kinds = {}, None
    for label, f in ways.items():
        with noted(row, label):
            got = tuple_of(f(**args, **more))
            found = errors(got, want)
            row.setdefault("error", {})[label] = max(found)
            if label == "ours":
                row["errors"] = [float(f"{e:.2g}") for e in found]
            kinds = kinds or [y.dtype for y in got]
            calls[label] = lambda f=f: f(**args, **more)
            row.setdefault("bytes", size_of(args.values()) + size_of(got))
            del got
    del want
    clear(device)
    row["forward"] = timed(calls, device)
    row["kernels"], row["peak_mb"] = {}, {}
    if device == "cuda":
        row["kernels"] = {n: launched(c) for n, c in calls.items() if n in ("ours", "compile")}
        own = ("ours", "compile", "eager")
        row["peak_mb"] = {n: peak(c) for n, c in calls.items() if n in own}
    return kinds


def measure_backward(
    case: Case,
    device: str,
    args: Tensors,
    more: dict[str, Any],
    ways: Ways,
    kinds: list[torch.dtype] | None,
    row: dict[str, Any],
) -> None:
    """The same of gradients. `kinds`: the types of the results."""
    want = bound_backward(case, case.torch, leaves(case, args, wide=True), more, kinds)()
    clear(device)
    calls = {}
    for label, f in ways.items():
        with noted(row, f"{label}_grad"):
            call = bound_backward(case, f, leaves(case, args), more)
            got = call()
            found = errors(got, want)
            row.setdefault("grad_error", {})[label] = max(found)
            if label == "ours":
                shown = (float(f"{e:.2g}") for e in found)
                row["grad_errors"] = dict(zip(wants(case, args), shown, strict=True))
                stored = 2 * size_of(g for g in got if g is not None)
                row["grad_bytes"] = stored + row["bytes"] - size_of(args.values())
            calls[label] = call
            del got
    del want
    clear(device)
    row["backward"] = timed(calls, device)
    if device == "cuda":
        row["grad_kernels"] = {n: launched(c) for n, c in calls.items() if n in ("ours", "compile")}
        calls.clear()
        clear(device)
        row["train_peak_mb"] = {
            n: peak(lambda f=f: bound_backward(case, f, leaves(case, args), more)())
            for n, f in ways.items()
        }


def size_of(tensors: Any) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)


def timed(calls: dict[str, Callable[[], Any]], device: str, rounds: int = 12) -> dict[str, float]:
    """Medians, in microseconds. A call of over SLOW_MS is made three times only."""
    if device == "cpu":
        found = {}
        for n, call in calls.items():
            start = time.perf_counter()
            call()
            found[n] = 1e6 * (time.perf_counter() - start)
        return found
    from tritongen.bench.measure import CudaTimer

    timer = CudaTimer()
    timer.sweep = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {n: [] for n in calls}
    slow = set()
    for n, call in calls.items():
        call()
        torch.cuda.synchronize()
        first = timer.run(call)
        torch.cuda.synchronize()
        if first() * 1e3 > SLOW_MS:
            slow.add(n)
    for k in range(rounds):
        taken = {n: timer.run(call) for n, call in calls.items() if n not in slow or k < 2}
        torch.cuda.synchronize()
        for n, t in taken.items():
            times[n].append(1e6 * t())
    return {n: round(statistics.median(t), 2) for n, t in times.items()}


def launched(call: Callable[[], Any]) -> int | str:
    """How many kernels (copies and fills too) one call runs."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize()
        return sum(
            e.count
            for e in profile.key_averages()
            if e.device_type == torch.autograd.DeviceType.CUDA and not e.is_user_annotation
        )
    except Exception as error:
        return str(error)[:60]


def peak(call: Callable[[], Any]) -> float:
    """MB beyond what lies there before the call; its results count."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 1e6, 1)
