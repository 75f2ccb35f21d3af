"""The products of the speed table on one GPU: compared first, then timed in turns.

    python benchmarks/contractions.py [--json FILE] [--only TEXT] [--compiled]

Default schedules, random data. Outputs are compared with a reference in f64 (f32 where f64 is too slow), on poisoned
storage. tritongen and its rival take turns. The L2 cache is overwritten before each call. The table shows the time of the
device (`tritongen.bench.measure`), and beside it how long a call keeps the host busy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import triton

import tritongen
from tritongen.bench.measure import host_times, interleaved, on_poison

SPECS = Path(__file__).resolve().parent.parent / "specs"
GEMV = "op gemv<T: float>(a: T[M, K], x: T[K]) -> y: T[M] { y[m] = sum[k](a[m, k] * x[k]) }"
FP8 = """op fp8_linear(x: f8e4m3[M, K], w: f8e4m3[N, K], sx: f32[M], sw: f32[N]) -> y: bf16[M, N] {
  y[m, n] = sum[k](x[m, k] * w[n, k]) * sx[m] * sw[n]
  precision tf32
}"""
INT8 = """op w8_linear<T: f16 | bf16>(x: T[M, K], w: i8[N, K], s: f32[N]) -> y: T[M, N] {
  y[m, n] = sum[k](x[m, k] * w[n, k]) * s[n]
}"""
BF16 = torch.bfloat16


@dataclass(frozen=True)
class Case:
    """A row: what is timed, beside what, and the least ratio of the two speeds that the table asks for."""

    name: str
    floor: float
    flops: int
    ours: Callable[[], torch.Tensor]
    other: Callable[[], torch.Tensor]
    reference: Callable[[], torch.Tensor]
    bound: float = 4e-3


@dataclass(frozen=True)
class Row:
    name: str
    floor: float
    ratio: float
    ours_us: float
    other_us: float
    compiled_us: float
    host_us: float
    other_host_us: float
    tflops: float
    error: float
    other_error: float


def randn(*shape: int, dtype: torch.dtype = BF16, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, device="cuda") * scale).to(dtype)


def spec(name: str) -> Callable:
    return getattr(tritongen.load(SPECS / f"{name}.op"), name)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The reference: f64 while that takes no minutes."""
    wide = torch.float64 if a.numel() * b.shape[-1] < 2**37 else torch.float32
    return a.to(wide) @ b.to(wide)


def matmuls() -> Iterator[Case]:
    matmul = spec("matmul")
    square = [(0.95, n, n, n) for n in (1024, 1536, 2048, 3072, 4096, 8192)]
    odd = [(0.8, *s) for s in ((4095, 4095, 4095), (2047, 2047, 2047), (1001, 1003, 1007))]
    odd += [(0.8, 4096, 4096, 500), (0.8, 511, 513, 515)]
    few = [(0.9, m, 4096, 4096) for m in (1, 16, 64, 128)]
    few += [(0.9, 64, 11008, 4096), (0.9, 64, 8192, 8192)]
    deep = [(0.9, 256, 256, 524288), (0.9, 2048, 1, 1048576), (0.9, 1, 16384, 16384)]
    for floor, m, n, k in [*square, (0.95, 4096, 11008, 4096), *odd, *few, *deep]:
        a, b = randn(m, k), randn(k, n, scale=k**-0.5)
        yield Case(
            f"matmul bf16 {m} x {n} x {k}", floor, 2 * m * n * k,
            lambda a=a, b=b: matmul(a, b), lambda a=a, b=b: a @ b, lambda a=a, b=b: product(a, b),
        )  # fmt: skip
    w = randn(4096, 4096, scale=1 / 64)
    for m in (16, 4096):
        a = randn(m, 4096)
        yield Case(
            f"matmul bf16 {m} x 4096 x 4096, b.T", 0.95 if m > 16 else 0.9, 2 * m * 4096**2,
            lambda a=a: matmul(a, w.t()), lambda a=a: a @ w.t(), lambda a=a: product(a, w.t()),
        )  # fmt: skip
    sides = [(n, n, n) for n in (1024, 1536, 2048, 4096)]
    for m, n, k in [*sides, (200704, 128, 64), (200704, 128, 256), (64, 16384, 16384)]:
        a = randn(m, k, dtype=torch.float32)
        b = randn(k, n, dtype=torch.float32, scale=k**-0.5)
        yield Case(
            f"matmul f32 {m} x {n} x {k}, torch at highest", 2.0, 2 * m * n * k,
            lambda a=a, b=b: matmul(a, b), lambda a=a, b=b: a @ b, lambda a=a, b=b: product(a, b),
            2e-6,
        )  # fmt: skip


def fused() -> Iterator[Case]:
    gelu, swiglu, bmm = spec("linear_gelu"), spec("swiglu_linear"), spec("bmm")
    for n in (1024, 2048, 4096, 8192):
        x, w, b = randn(n, n), randn(n, n, scale=n**-0.5), randn(n)
        yield Case(
            f"linear + gelu bf16 {n}^3", 1.05, 2 * n**3,
            lambda x=x, w=w, b=b: gelu(x, w, b), lambda x=x, w=w, b=b: F.gelu(F.linear(x, w, b)),
            lambda x=x, w=w, b=b: F.gelu(product(x, w.t()) + b),
        )  # fmt: skip
    x, g, u = randn(4096, 4096), randn(11008, 4096, scale=1 / 64), randn(11008, 4096, scale=1 / 64)
    yield Case(
        "swiglu of two linears bf16 4096 x 11008 x 4096", 1.0, 4 * 4096 * 11008 * 4096,
        lambda: swiglu(x, g, u), lambda: F.silu(F.linear(x, g)) * F.linear(x, u),
        lambda: F.silu(x.float() @ g.float().t()) * (x.float() @ u.float().t()),
    )  # fmt: skip
    for b, m, n, k in ((64, 1024, 1024, 64), (64, 1024, 64, 1024), (8, 2048, 2048, 2048)):
        p, q = randn(b, m, k), randn(b, k, n, scale=k**-0.5)
        yield Case(
            f"bmm bf16 {b} x {m} x {n} x {k}", 0.95, 2 * b * m * n * k,
            lambda p=p, q=q: bmm(p, q), lambda p=p, q=q: torch.bmm(p, q),
            lambda p=p, q=q: torch.bmm(p.float(), q.float()),
        )  # fmt: skip
    gemv = tritongen.compile_op(GEMV)
    for m, k in ((2048, 1048576), (16384, 16384)):
        a, v = randn(m, k), randn(k, scale=k**-0.5)
        yield Case(
            f"gemv bf16 {m} x {k}", 0.95, 2 * m * k, lambda a=a, v=v: gemv(a, v),
            lambda a=a, v=v: a @ v, lambda a=a, v=v: a.float() @ v.float(),
        )  # fmt: skip


def narrow() -> Iterator[Case]:
    fp8, int8 = tritongen.compile_op(FP8), tritongen.compile_op(INT8)
    n = 4096
    x, w = randn(n, n, dtype=torch.float8_e4m3fn), randn(n, n, dtype=torch.float8_e4m3fn)
    sx, sw = (torch.rand(n, device="cuda") for _ in range(2))
    yield Case(
        "fp8 with row scales 4096^3, _scaled_mm", 0.9, 2 * n**3, lambda: fp8(x, w, sx, sw),
        lambda: torch._scaled_mm(x, w.t(), sx[:, None], sw[None], out_dtype=BF16),
        lambda: x.float() @ w.float().t() * sx[:, None] * sw,
    )  # fmt: skip
    s = torch.rand(n, device="cuda") / 127
    q = torch.randint(-127, 128, (n, n), device="cuda", dtype=torch.int8)
    dense = q.to(BF16)
    for m in (1, 16, 64, 1024, 4096):
        h = randn(m, n)
        yield Case(
            f"int8 weights {m} x 4096 x 4096, bf16 weights", 1.0, 2 * m * n * n,
            lambda h=h: int8(h, q, s), lambda h=h: h @ dense.t(),
            lambda h=h: product(h, q.t()) * s,
        )  # fmt: skip


def ragged() -> Iterator[Case]:
    """Tokens sorted by expert, beside one product of all of them (floor 0.6) and torch's grouped one."""
    moe = spec("moe_linear")
    shapes = [(8192, 4096, 14336, 8), (8192, 14336, 4096, 8), (1024, 4096, 14336, 8)]
    for m, k, n, count in [*shapes, (64, 4096, 14336, 8), (16384, 2048, 1408, 64)]:
        x, w = randn(m, k), randn(count, k, n, scale=k**-0.5)
        even = torch.full((count,), m // count)
        drawn = torch.multinomial(torch.randn(count).softmax(0), m, True).bincount(minlength=count)
        for sizes, counts in (("even", even), ("drawn", drawn)):
            ends = counts.cumsum(0).to("cuda", torch.int32)
            off = torch.cat([ends.new_zeros(1), ends])
            others = {
                "one dense product": (0.6, lambda x=x, w=w: x @ w[0]),
                "_grouped_mm": (0.9, lambda x=x, w=w, ends=ends: torch._grouped_mm(x, w, ends)),
            }
            for name, (floor, other) in others.items():
                yield Case(
                    f"ragged bf16 {m} x {n} x {k}, {count} {sizes}, {name}", floor, 2 * m * n * k,
                    lambda x=x, w=w, off=off: moe(x, w, off), other,
                    lambda x=x, w=w, off=off: by_segments(x, w, off.tolist()),
                )  # fmt: skip


def by_segments(x: torch.Tensor, w: torch.Tensor, off: list[int]) -> torch.Tensor:
    """One product after another, in f32."""
    pairs = zip(off, off[1:], strict=False)
    return torch.cat([x[a:b].float() @ w[e].float() for e, (a, b) in enumerate(pairs)])


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def measure(case: Case, compiled: bool) -> Row:
    wanted = case.reference()
    error = relative_error(on_poison(case.ours), wanted)
    other_error = relative_error(case.other(), wanted)
    if error > case.bound:
        raise ValueError(f"relative error {error:.1e}")
    calls = {"ours": case.ours, "other": case.other}
    if compiled:
        calls["compiled"] = torch.compile(case.other, dynamic=False)
    seconds = interleaved(calls)
    hosts = host_times(calls)
    micro = {name: round(value * 1e6, 1) for name, value in seconds.items()}
    speed = case.flops / seconds["ours"] / 1e12
    return Row(
        case.name, case.floor, round(seconds["other"] / seconds["ours"], 3), micro["ours"],
        micro["other"], micro.get("compiled", float("nan")), round(hosts["ours"] * 1e6, 1),
        round(hosts["other"] * 1e6, 1), round(speed, 1), error, other_error,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--compiled", action="store_true", help="time torch.compile as well")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    rows = []
    for make in (matmuls, fused, narrow, ragged):
        for case in make():
            if options.only not in case.name:
                continue
            try:
                row = measure(case, options.compiled)
            except Exception as problem:  # one row that fails must not hide the others
                print(f"{case.name:48s} {type(problem).__name__}: {str(problem)[:200]}", flush=True)
                continue
            rows.append(row)
            mark = "" if row.ratio >= row.floor else f"  <-- floor {row.floor}"
            print(
                f"{row.name:48s} {row.ours_us:9.1f} us {row.tflops:7.1f} TFLOP/s  {row.ratio:.2f}x of"
                f" {row.other_us:.1f} us  host {row.host_us:.0f}/{row.other_host_us:.0f} us  error {row.error:.1e} ({row.other_error:.1e}){mark}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    return int(any(r.ratio < r.floor for r in rows))


if __name__ == "__main__":
    sys.exit(main())
