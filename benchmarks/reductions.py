"""Softmax, norms and reductions on one GPU: compared first, then timed beside eager and torch.compile.

    python benchmarks/reductions.py [--json FILE] [--only TEXT] [--no-compile] [--workers 14]

Prints a table in Markdown. Default schedules, fresh random data, poisoned storage, medians of CUDA events.

- A share is of a copy, bytes read plus written. "copy" is a large copy of the same run. "own" is a copy of as many bytes as
  the row moves. Norms over channels are compared with the bytes that their plan states ("plan", as `tritongen explain`
  counts them).
- Between runs another buffer is read, so that L2 holds no lines that must be written back. (Behind `zero_()`, 256 MiB take
  12 us longer: 15% of a sum.) The device waits until the host has launched.
- Worker processes compile everything first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
import triton

from tritongen.pipeline import build
from tritongen.runtime.load import load_text

ROOT = Path(__file__).resolve().parent.parent
COPY, OWN, PLAN = "copy", "own", "plan"
COMPILED = (1024, 16384, 131072, 4096, 64)  # last dims of what torch.compile is timed with as well
MAX = (
    "op {name}<T: float>(x: T[{dims}]) -> y: T[{kept}] {{\n  y[{out}] = max[{over}](x[{all}])\n}}\n"
)
BF16, F32 = torch.bfloat16, torch.float32


@dataclass(frozen=True)
class Case:
    name: str
    floor: float
    unit: str
    spec: str  # a file of specs/, or the text of an op
    args: Callable
    eager: Callable
    moved: Callable  # bytes, from the arguments


@dataclass(frozen=True)
class Row:
    name: str
    floor: float
    unit: str
    ours: float
    eager: float
    compiled: float
    error: float


def randn(*shape, dtype=BF16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def size(*tensors) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def softmax(x):
    return torch.softmax(x, -1)


def layer_norm(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b)


def rms_norm(x, w):
    return F.rms_norm(x, x.shape[-1:], w, 1e-6)


def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, True)


def rows_of(rows: int, width: int, floor: float, unit: str):
    shape = f"bf16 {rows}x{width}"

    def operands(count):
        return lambda: (randn(rows, width), *(randn(width) for _ in range(count)))

    def moved(x, *weights):
        return 2 * size(x) + size(*weights)

    for name, eager, count in (("softmax", softmax, 0), ("layer_norm", layer_norm, 2), ("rms_norm", rms_norm, 1)):  # fmt: skip
        yield Case(f"{name} {shape}", floor, unit, name, operands(count), eager, moved)


def reductions():
    def once(x):
        return size(x)

    def over(name, spec, shape, eager, dtype=F32):
        title = f"{name} {str(dtype)[6:]} {'x'.join(map(str, shape))}"
        return Case(title, 88, COPY, spec, lambda: (randn(*shape, dtype=dtype),), eager, once)

    for shape in ((65536, 4096), (4096, 65536), (1048576, 64), (16, 4194304)):
        yield over("sum dim 1", "row_sum", shape, lambda x: x.sum(1))
        yield over("sum dim 0", "column_sum", shape, lambda x: x.sum(0))
    yield over("sum of all", "full_sum", (2**27,), lambda x: x.sum())
    middle = (128, 4096, 4095)
    yield over("mean dim 1", "middle_mean", middle, lambda x: x.mean(1))
    maxima = (
        ("max dim 1", "B, M, D", "B, D", "b, d", "m", "b, m, d", middle, 1),
        ("max dim 1", "N, D", "N", "n", "d", "n, d", (65536, 4096), 1),
        ("max dim 0", "N, D", "D", "d", "n", "n, d", (65536, 4096), 0),
    )
    for name, dims, kept, out, reduced, every, shape, dim in maxima:
        text = MAX.format(name="largest", dims=dims, kept=kept, out=out, over=reduced, all=every)
        yield over(name, text, shape, lambda x, dim=dim: x.amax(dim))
        place = text.replace("y: T", "y: i64").replace("max[", "argmax[")
        yield over(f"arg{name}", place, shape, lambda x, dim=dim: x.argmax(dim))
    for shape in ((65536, 4096), (4096, 65536)):
        yield over("argmax dim 1", "row_argmax", shape, lambda x: x.argmax(1), BF16)


def channel_norms():
    for shape, dtype in (((64, 64, 256, 256), F32), ((64, 64, 112, 112), F32), ((256, 256, 14, 14), BF16)):  # fmt: skip
        title = f"{str(dtype)[6:]} {'x'.join(map(str, shape))}"

        def operands(shape=shape, dtype=dtype, last=False):
            x = randn(*shape, dtype=dtype)
            x = x.contiguous(memory_format=torch.channels_last) if last else x
            return x, randn(shape[1], dtype=dtype), randn(shape[1], dtype=dtype)

        yield Case(f"batch_norm {title}", 80, PLAN, "batch_norm_train", operands, batch_norm, size)
        yield Case(
            f"batch_norm channels last {title}", 80, PLAN, "batch_norm_train",
            lambda operands=operands: operands(last=True), batch_norm, size,
        )  # fmt: skip
        yield Case(
            f"group_norm {title}", 80, PLAN, "group_norm", lambda operands=operands: (*operands(), 8),
            lambda x, w, b, groups: F.group_norm(x, groups, w, b), size,
        )  # fmt: skip


def cases():
    for width in (256, 1024, 4096, 8192, 16384):
        yield from rows_of(2**27 // width, width, 88, COPY)
    for width in (32768, 131072, 1048576):
        yield from rows_of(2**27 // width, width, 70, COPY)
    for rows, width in ((1, 4194304), (8, 1048576), (64, 32768), (64, 262144)):
        yield from rows_of(rows, width, 50, OWN)
    yield from reductions()
    yield from channel_norms()


@cache
def opened(spec: str):
    """The op of a case, and its plan."""
    path = ROOT / "specs" / f"{spec}.op"
    text = path.read_text() if "\n" not in spec else spec
    built = build(text, str(path) if "\n" not in spec else "<text>")
    ((name, plans),) = built.plans.items()
    return getattr(load_text(name, built.raw), name), plans[0]


@cache
def other() -> torch.Tensor:
    return torch.randn(2**26, device="cuda")


def milliseconds(call: Callable, runs: int = 20) -> float:
    """The median of the device's time, L2 full of something else, the host ahead."""
    call()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
    for start, stop in events:
        other().amax()
        torch.cuda._sleep(300_000)  # about 0.15 ms
        start.record()
        call()
        stop.record()
    torch.cuda.synchronize()
    return median(start.elapsed_time(stop) for start, stop in events)


def copy_rate(count: int) -> float:
    """Bytes a second of a copy that moves `count` bytes."""
    a = torch.empty(max(1, count // 4), device="cuda", dtype=torch.int16).random_()
    b = torch.empty_like(a)
    return 2 * size(a) / milliseconds(lambda: b.copy_(a)) * 1e3


def plan_bytes(op, plan, args) -> int:
    """What the kernels of a call move, by its plan."""
    from tritongen.explain import explain_call
    from tritongen.trace import at_hand

    names = [p.name for p in plan.op.params]
    meta = {
        n: a.to("meta") if isinstance(a, torch.Tensor) else a
        for n, a in zip(names, args, strict=False)
    }
    defaults = {p.name: p.default for p in (*plan.op.scalars, *plan.op.constants)}
    module = sys.modules[op.__module__]
    return explain_call(module, plan, defaults | meta, at_hand()).totals.plan_bytes


def measured(case: Case, peak: float, with_compile: bool) -> Row:
    op, plan = opened(case.spec)
    args = case.args()
    exact = case.eager(*(a.double() if isinstance(a, torch.Tensor) else a for a in args))
    poison = torch.full(exact.shape, float("nan"), device="cuda")
    del poison
    got = op(*args)
    if got.dtype == torch.int64:
        error = (got != exact).double().mean().item()
    else:
        error = ((got.double() - exact).norm() / exact.norm().clamp_min(1e-300)).item()
    bound = 0.0 if got.dtype == torch.int64 else 1e-5 if got.dtype == F32 else 4e-3
    del exact, got
    if not error <= bound:
        return Row(case.name, case.floor, case.unit, 0.0, 0.0, 0.0, error)
    moved = case.moved(*args[:1]) if case.unit == PLAN else case.moved(*args)
    own = plan_bytes(op, plan, args) if case.unit == PLAN else moved
    rate = copy_rate(moved) if case.unit == OWN else peak
    calls = [lambda: op(*args), lambda: case.eager(*args)]
    if with_compile and args[0].shape[-1] in COMPILED:
        compiled = torch.compile(case.eager, dynamic=False)
        calls.append(lambda: compiled(*args))
    shares = [own / milliseconds(call) * 1e3 / rate * 100 for call in calls]
    return Row(case.name, case.floor, case.unit, *shares, *[0.0] * (3 - len(shares)), error)


def compile_first(options) -> None:
    """Every case once, in several processes: what they compile stays in the caches on disk."""
    command = [sys.executable, __file__, "--only", options.only]
    command += ["--no-compile"] if options.no_compile else []
    workers = [
        subprocess.Popen(
            [*command, "--part", f"{k}/{options.workers}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for k in range(options.workers)
    ]
    for worker in workers:
        worker.wait()


def run_part(chosen: list[Case], part: str, with_compile: bool) -> int:
    k, count = map(int, part.split("/"))
    for case in chosen[k::count]:
        try:
            args = case.args()
            opened(case.spec)[0](*args)
            if with_compile and args[0].shape[-1] in COMPILED:
                torch.compile(case.eager, dynamic=False)(*args)
        except Exception:  # the row itself will say so
            continue
    return 0


def line(row: Row) -> str:
    shares = " | ".join(f"{x:.1f}" if x else "-" for x in (row.ours, row.eager, row.compiled))
    verdict = "" if row.ours >= row.floor else " (under)"
    return f"| {row.name} | {row.floor:.0f}% of {row.unit}{verdict} | {shares} | {row.error:.1e} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.manual_seed(0)
    chosen = [case for case in cases() if options.only in case.name]
    if options.part:
        return run_part(chosen, options.part, not options.no_compile)
    compile_first(options)
    peak = copy_rate(2**31)
    versions = (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    )
    print(f"{versions}, copy {peak / 1e9:.0f} GB/s\n")
    print("| work | floor | ours | eager | torch.compile | error |\n|---|---|---|---|---|---|")
    rows = []
    for case in chosen:
        try:
            row = measured(case, peak, not options.no_compile)
        except Exception as problem:  # one row that fails must not hide the others
            print(f"| {case.name} | {type(problem).__name__}: {str(problem)[-200:]} |", flush=True)
            row = Row(case.name, case.floor, case.unit, 0.0, 0.0, 0.0, float("nan"))
        else:
            print(line(row), flush=True)
        rows.append(row)
    if options.json:
        table = {"versions": versions, "copy": peak, "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(table, indent=1))
    return int(any(r.ours < r.floor for r in rows))


if __name__ == "__main__":
    sys.exit(main())
