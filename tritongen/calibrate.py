"""Measures a GPU: the coefficients by which variants of products and convolutions are chosen.

    timed = measure("cuda")                        # [Timed(step, variant, facts, microseconds), ...]
    found = fitted(timed, base)                    # the coefficients of that GPU

A few calls of one product and one convolution run by every variant that has an estimate. For each row of coefficients
four factors are fitted: how many times as long a launch, a tile, a product and a load take. The fit is a damped least
squares of the logarithm of estimate over time (Levenberg 1944), so that few times move it only a little.
`lib/estimates.py` has the models. `runtime/calibrated.py` finds the result in later processes.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from types import ModuleType
from typing import Any

import torch

from tritongen import lib, pipeline
from tritongen.bench.measure import Timer, ceilings, compare, interleaved
from tritongen.choice import microseconds
from tritongen.cost import H200
from tritongen.ir.nodes import Op
from tritongen.proof.cases import Case
from tritongen.proof.variants import Way, forced
from tritongen.runtime.load import load_text
from tritongen.schedule.plan import Plan, Step, Variant
from tritongen.schedule.rules import evaluate
from tritongen.shapes import call_of, meta_arguments, parse_shapes, random_arguments
from tritongen.trace import Gpu, compile_launch, trace

PRODUCT = "op product<T: f32 | f16 | bf16>(x: T[M, K], w: T[K, N]) -> y: T[M, N] { y[m, n] = sum[k](x[m, k] * w[k, n]) }"
SMALL_PRODUCT = (
    "op whole(x: i8[M, K], w: i8[K, N]) -> y: i32[M, N] { y[m, n] = sum[k](x[m, k] * w[k, n]) }"
)
CONVOLUTION = """op convolution<T: f32 | f16 | bf16>(x: T[N, C, H, W], w: T[F, C, R, S], const stride: int = 1) -> y: T[N, F, P, Q]
    with P = (H - R) // stride + 1, Q = (W - S) // stride + 1 {
  y[n, f, p, q] = sum[c, r, s](x[n, c, p * stride + r, q * stride + s] * w[f, c, r, s])
}"""
PRODUCTS = (
    "M=4096,N=4096,K=4096", "M=300,N=1000,K=9000", "M=1500,N=1100,K=400", "M=16,N=8192,K=4096",
    "M=16384,N=264,K=136", "M=777,N=1031,K=2049",
)  # fmt: skip
CONVOLUTIONS = (
    "N=32,C=64,H=58,W=58,F=64,R=3,S=3", "N=8,C=256,H=16,W=16,F=512,R=3,S=3",
    "N=16,C=3,H=114,W=114,F=64,R=5,S=5,stride=2", "N=4,C=100,H=31,W=33,F=72,R=3,S=3,stride=2",
)  # fmt: skip
CALLS = (
    *((PRODUCT, dtype, shape) for dtype in ("bf16", "f32") for shape in PRODUCTS),
    *((SMALL_PRODUCT, None, shape) for shape in PRODUCTS[:4]),
    *((CONVOLUTION, dtype, shape) for dtype in ("bf16", "f32") for shape in CONVOLUTIONS),
)
TABLES = {"product_us": "products", "convolution_us": "convolutions"}
RATES = ("memory", "copy", "transpose", "split", "pack", "join")  # which are as fast as memory is
SECONDS = 0.03  # of timing, a variant
DAMPING, ROUNDS, MOST = 0.02, 12, math.log(16)

Call = tuple[str, str | None, str]  # a spec, its dtype, its sizes


@dataclass(frozen=True, slots=True)
class Timed:
    """One variant of one call."""

    step: Step
    variant: Variant
    facts: dict[str, Any]
    microseconds: float

    @property
    def row(self) -> tuple[str, tuple[str, int]]:
        """The table that its estimate uses, and the row in it."""
        estimate, itemsize = self.variant.estimate, self.facts["itemsize"]
        assert estimate is not None
        least = 2 if estimate.model == "convolution_us" else 1
        return TABLES[estimate.model], (estimate.kind, max(least, min(itemsize, 4)))

    def estimated(self, coefficients: lib.Coefficients) -> float:
        gpu = replace(self.facts["gpu"], coefficients=coefficients)
        return microseconds(self.step, self.variant, {**self.facts, "gpu": gpu})


# ---- measuring ----------------------------------------------------------------------------------
def measure(
    device: str,
    calls: Sequence[Call] = CALLS,
    timer: Timer | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Timed]:
    """Every variant of every call that may run and has an estimate; wrong ones, and those that do not run, are left out."""
    gpu = lib.gpu(torch.device(device, 0) if device == "cuda" else torch.device(device))
    if device == "cuda" and not torch.version.hip:  # ahead, each call in a process
        arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
        workers = max(1, min(len(calls), os.cpu_count() or 1))
        progress(f"compiling for {arch} in {workers} processes")
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_compile, calls, [gpu] * len(calls), [arch] * len(calls)))
    found: list[Timed] = []
    for call in calls:
        progress(call[2])
        found += _timed(call, gpu, device, timer)
    return found


def _timed(call: Call, gpu: Gpu, device: str, timer: Timer | None) -> Iterator[Timed]:
    module, plan, op, case = _opened(call)
    args = random_arguments(op, case, device)
    own = vars(module)[op.name].__wrapped__
    want, sound, ways = own(**args), {}, {}
    for step, variant, facts in _variants(module, plan, meta_arguments(op, case), gpu):
        run = _forced_call(module, plan, step, variant, own, args)
        try:
            right = compare(run(), want, tf32=True).ok
        except Exception:  # a variant that this GPU cannot run has no time; what is chosen has
            continue
        if right:
            sound[variant.name], ways[variant.name] = run, (step, variant, facts)
    times = interleaved(sound, SECONDS, timer) if sound else {}
    for name, seconds in times.items():
        yield Timed(*ways[name], 1e6 * seconds)


def _variants(
    module: ModuleType, plan: Plan, args: dict[str, Any], gpu: Gpu
) -> Iterator[tuple[Step, Variant, dict[str, Any]]]:
    """Those that the call may take, and what it is chosen by."""
    steps = {s.name: s for s in plan.steps}
    for choice in trace(module, plan.op.name, args, gpu).choices:
        for variant in steps[choice.step].variants:
            if variant.estimate is not None and evaluate(variant.when, choice.facts):
                yield steps[choice.step], variant, choice.facts


def _compile(call: Call, gpu: Gpu, arch: str) -> None:
    """The kernels of all variants of a call, into Triton's cache."""
    module, plan, op, case = _opened(call)
    args = meta_arguments(op, case)
    for step, variant, _ in list(_variants(module, plan, args, gpu)):
        with forced(module, plan, Way(variant.name, ((step.name, variant.name),)), small=False):
            launches = trace(module, op.name, args, gpu).launches
        for launch in launches:
            try:
                compile_launch(launch, arch)
            except Exception:  # measuring meets it again
                continue


def _opened(call: Call) -> tuple[ModuleType, Plan, Op, Case]:
    text, dtype, shape = call
    module, plans = _built(text)
    op, case = call_of([p.op for p in plans], parse_shapes([shape])[0], dtype)
    return module, next(p for p in plans if p.op is op), op, case


@cache
def _built(text: str) -> tuple[ModuleType, tuple[Plan, ...]]:
    built = pipeline.build(text, "calibrate")
    ((name, plans),) = built.plans.items()
    return load_text(f"calibrate_{name}", built.raw), plans


def _forced_call(
    module: ModuleType,
    plan: Plan,
    step: Step,
    variant: Variant,
    function: Callable[..., Any],
    args: dict[str, Any],
) -> Callable[[], Any]:
    way = Way(variant.name, ((step.name, variant.name),))

    def run() -> Any:
        with forced(module, plan, way, small=False):
            return function(**args)

    return run


def by_memory(base: lib.Coefficients, timer: Timer | None = None) -> lib.Coefficients:
    """Scales the rates of memory-bound kernels from an H200's by the ratio of copy speeds."""
    known = lib.measured()["NVIDIA H200"]
    times = ceilings((), timer).copy / H200.copy
    return replace(base, **{name: times * getattr(known, name) for name in RATES})


# ---- fitting ------------------------------------------------------------------------------------
def fitted(timed: Sequence[Timed], base: lib.Coefficients) -> lib.Coefficients:
    """`base` with each row that something was timed for fitted to it."""
    found = base
    for table, kind in sorted({t.row for t in timed}):
        own = [t for t in timed if t.row == (table, kind)]
        found = _with(found, table, kind, _fit(own, found, table, kind))
    return found


def _with(
    base: lib.Coefficients, table: str, kind: tuple[str, int], times: Sequence[float]
) -> lib.Coefficients:
    """A row with so many times its launch, its tiles, its products, its loads."""
    launch, tile, product, load = times
    per = (launch, tile, tile, 1 / product, 1, 1 / load, tile, 1)
    rows = getattr(base, table)
    row = tuple(a * b for a, b in zip(rows[kind], per, strict=True))
    changed: dict[str, Any] = {table: {**rows, kind: row}}
    return replace(base, **changed)


def _fit(
    own: Sequence[Timed], base: lib.Coefficients, table: str, kind: tuple[str, int]
) -> list[float]:
    """The four factors."""

    def off(logs: torch.Tensor) -> torch.Tensor:
        coefficients = _with(base, table, kind, logs.exp().tolist())
        ratios = [math.log(t.estimated(coefficients) / t.microseconds) for t in own]
        return torch.tensor(ratios, dtype=torch.float64)

    logs, step = torch.zeros(4, dtype=torch.float64), 1e-4
    damped = DAMPING * torch.eye(4, dtype=torch.float64)
    for _ in range(ROUNDS):
        now = off(logs)
        moved = [(off(logs + step * one) - now) / step for one in torch.eye(4, dtype=torch.float64)]
        slope = torch.stack(moved, 1)
        pull = slope.T @ now + DAMPING * logs
        logs = (logs - torch.linalg.solve(slope.T @ slope + damped, pull)).clamp(-MOST, MOST)
    return logs.exp().tolist()


def off_by(timed: Sequence[Timed], coefficients: lib.Coefficients) -> float:
    """How many times too long or too short estimates are, in the median."""
    logs = (abs(math.log(t.estimated(coefficients) / t.microseconds)) for t in timed)
    return math.exp(median(logs))
