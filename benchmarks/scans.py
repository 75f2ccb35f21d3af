"""Scans, gathers and scatters on one GPU: compared first, then timed beside eager and torch.compile.

    python benchmarks/scans.py [--only TEXT] [--no-compile]

Prints a table in Markdown, in about 50 s. Default schedules, fresh random data, outputs on poisoned storage. A share is of
a large copy of the same run; operands and outputs count once. Times are medians of CUDA events, with L2 flushed between
runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from triton.testing import do_bench

import tritongen

ROOT = Path(__file__).resolve().parent.parent
BF16, F32, I8, I64 = torch.bfloat16, torch.float32, torch.int8, torch.int64
HEAD = "op {name}<T: float | int>(x: T[{dims}]) -> y: {out}[{dims}] {{ y[{at}] = {value} }}"
SQUARE = (32768, 32768)
GRADIENT = """op embedding_gradient<T: float>(dy: T[N, D], idx: i64[N], rows: i64[V]) -> (dw: T[V, D], z: i64[V]) {
  dw[v, d] = sum[n](where(idx[n] == v, dy[n, d], 0))
  z[v] = rows[v]
}"""
BINS = """op bins(ix: i64[N], rows: i64[V]) -> (y: i64[V], z: i64[V]) {
  y[v] = sum[n](where(ix[n] == v, 1, 0))
  z[v] = rows[v]
}"""


@dataclass(frozen=True)
class Case:
    name: str
    floor: float  # per cent of copy, 0 where the issue names none
    spec: str  # a file of specs/, or the text of an op
    args: Callable
    eager: Callable
    part: Callable = lambda t: t  # of an operand and of the result: what is compared
    compiled: bool = False


def randn(*shape, dtype=F32):
    if dtype == I8:
        return torch.randint(-100, 100, shape, device="cuda", dtype=dtype)
    return torch.randn(*shape, device="cuda", dtype=dtype)


def indices(places: int, *shape):
    return torch.randint(places, shape, device="cuda")


def cumsum(x):
    return x.cumsum(-1)


def from_the_end(x):
    return x.flip(-1).cumsum(-1).flip(-1)


def exclusive(x):
    return F.pad(x, (1, 0)).cumsum(-1)[..., :-1]


def masked(x, mask):
    return torch.where(mask, x, 0).cumsum(-1)


def largest_from_the_end(x):
    return x.flip(-1).cummax(-1)[0].flip(-1)


def scans():
    def head(t):
        return t[:64]

    def rows(name, spec, shape, eager=cumsum, dtype=F32, floor=88, compiled=False):
        title = f"{name} {str(dtype)[6:]} {'x'.join(map(str, shape))}"
        return Case(
            title, floor, spec, lambda: (randn(*shape, dtype=dtype),), eager, head, compiled
        )

    def text(name, dims, at, value, out="T"):
        return HEAD.format(name=name, dims=dims, at=at, value=value, out=out)

    yield rows("cumsum", "cumsum", SQUARE, compiled=True)
    yield rows("cumprod", "cumprod", SQUARE, lambda x: x.cumprod(-1), compiled=True)
    yield rows("reverse cumsum", "reverse_cumsum", SQUARE, from_the_end, compiled=True)
    yield rows("exclusive cumsum", "exclusive_cumsum", SQUARE, exclusive, compiled=True)
    yield Case(
        "masked cumsum float32 32768x32768", 88, "masked_cumsum",
        lambda: (randn(*SQUARE), torch.rand(SQUARE, device="cuda") < 0.5), masked, head, True,
    )  # fmt: skip
    running = text("running_max", "N, D", "n, d", "max[k >= d](x[n, k])")
    yield rows("max from the end", running, (32768, 8192), largest_from_the_end)
    yield rows("max from the end", running, (32768, 8192), largest_from_the_end, I8, 0)
    yield rows("cumsum", "cumsum", SQUARE, dtype=BF16)
    yield rows("reverse cumsum", "reverse_cumsum", SQUARE, from_the_end, dtype=BF16)
    for shape in ((1048576, 256), (16384, 16384), (512, 131072), (132, 262144)):
        yield rows("cumsum", "cumsum", shape)
    yield rows("cumsum", "cumsum", (8, 4194304))
    yield rows("cumsum", "cumsum", (1, 67108864))
    middle = text("middle", "N, D, E", "n, d, e", "sum[k <= d](x[n, k, e])").replace(" | int", "")
    for dtype in (F32, BF16):
        yield Case(
            f"cumsum dim 1 {str(dtype)[6:]} 64x4096x1024", 88, middle,
            lambda dtype=dtype: (randn(64, 4096, 1024, dtype=dtype),), lambda x: x.cumsum(1),
            lambda t: t[:2],
        )  # fmt: skip
    columns = text("columns", "D, E", "d, e", "sum[k <= d](x[k, e])").replace(" | int", "")
    yield Case(
        "cumsum dim 0 float32 65536x4096", 88, columns, lambda: (randn(65536, 4096),),
        lambda x: x.cumsum(0), lambda t: t[:, :64],
    )  # fmt: skip


def gathers():
    for places, count, width, dtype in ((50257, 32768, 1024, F32), (50257, 262144, 1024, BF16)):
        title = f"{str(dtype)[6:]} {count} of {places}, {width} wide"
        yield Case(
            f"embedding {title}", 0, "embedding",
            lambda p=places, n=count, d=width, t=dtype: (randn(p, d, dtype=t), indices(p, n)),
            lambda table, idx: F.embedding(idx, table),
        )  # fmt: skip
        yield Case(
            f"its gradient {title}", 0, GRADIENT,
            lambda p=places, n=count, d=width, t=dtype: (randn(n, d, dtype=t), indices(p, n), indices(9, p)),
            lambda dy, idx, rows: torch.ops.aten.embedding_dense_backward(dy, idx, len(rows), -1, False),
        )  # fmt: skip
    yield Case(
        "index_add float32 262144 rows of 256 into 4096", 0, "index_add",
        lambda: (randn(4096, 256), indices(4096, 262144), randn(262144, 256)),
        lambda y, index, x: y.index_add(0, index, x),
    )  # fmt: skip
    for places in (4, 1024, 65536):
        yield Case(
            f"bincount of 2^24 into {places}", 0, BINS,
            lambda p=places: (indices(p, 1 << 24), indices(9, p)),
            lambda ix, rows: torch.bincount(ix, minlength=len(rows)),
        )  # fmt: skip


@cache
def opened(spec: str):
    if "{" in spec:
        return tritongen.compile_op(spec)
    return tritongen.compile_op((ROOT / "specs" / f"{spec}.op").read_text())


def milliseconds(call: Callable) -> float:
    return do_bench(call, warmup=8, rep=30, return_mode="median")


def copy_rate() -> float:
    a = torch.empty(2**29, device="cuda", dtype=F32).normal_()
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / milliseconds(lambda: b.copy_(a)) * 1e3


def first(result):
    return result[0] if isinstance(result, tuple) else result


def difference(case: Case, op, args) -> float:
    """The largest error against f64 in units of the largest value; NaN left over makes it NaN."""
    few = [case.part(a) if case.part is not Case.part else a for a in args]
    wide = [a.double() if a.dtype.is_floating_point else a for a in few]
    exact = case.eager(*wide)
    poison = torch.full(first(op(*args)).shape, float("nan"), device=args[0].device)
    del poison
    got = case.part(first(op(*args)))
    largest = max(float(exact.abs().max()), 1e-300)
    return float((got.double() - exact.double()).abs().max()) / largest


def line(case: Case, rate: float, with_compile: bool) -> str:
    op, args = opened(case.spec), case.args()
    error = difference(case, op, args)
    bound = 1e-2 if args[0].dtype == BF16 else 1e-5 if args[0].dtype.is_floating_point else 0.0
    if not error <= bound:
        return f"| {case.name} | **wrong** | | | | {error:.1e} |"
    out = first(op(*args))
    moved = sum(t.numel() * t.element_size() for t in (*args, out))
    if case.spec == "embedding":  # the rows that are read, not the table
        moved = 2 * out.numel() * out.element_size() + args[1].numel() * 8
    calls = [lambda: op(*args), lambda: case.eager(*args)]
    if with_compile and case.compiled:
        compiled = torch.compile(case.eager, dynamic=False)
        calls.append(lambda: compiled(*args))
    times = [milliseconds(call) for call in calls]
    shares = [f"{moved / ms * 1e3 / rate * 100:.1f}" for ms in times] + ["-"] * (3 - len(times))
    under = " (under)" if float(shares[0]) < case.floor else ""
    floor = f"{case.floor:.0f}%{under}" if case.floor else "-"
    return f"| {case.name} | {floor} | {' | '.join(shares)} | {error:.1e} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    rate = copy_rate()
    print(f"{torch.cuda.get_device_name()}, copy {rate / 1e9:.0f} GB/s\n")
    print("| work | floor | ours, % of copy | eager | torch.compile | error |")
    print("|---|---|---|---|---|---|")
    for case in (*scans(), *gathers()):
        if options.only not in case.name:
            continue
        try:
            print(line(case, rate, not options.no_compile), flush=True)
        except Exception as problem:
            print(f"| {case.name} | **failed** | {str(problem).splitlines()[-1][:90]} | | | |")
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
