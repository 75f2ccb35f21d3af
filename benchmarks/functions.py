"""Functions on one GPU beside torch: their error over every input of the half types, and their speed.

    python benchmarks/functions.py [--json FILE] [--only NAME ...]

Each function is compiled from its expression, as you would do it, and compared with f64 on the same inputs: all 65,536 of
bf16 and of f16, and 2^24 of f32 (random bit patterns, normal numbers, negative numbers).

- Errors are in units in the last place of the exact result, where that is a normal number.
- `worse` counts inputs of bf16 and f16, denormals included, for which our result is further from the exact one than
  torch's.
- Speed is of 2^28 elements of bf16 (2^27 of f32), in per cent of a copy of the same run. Medians, L2 flushed between runs.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from triton.testing import do_bench

import tritongen

Function = Callable[[torch.Tensor], torch.Tensor]
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
BITS = {"bf16": 8, "f16": 11, "f32": 24}


@dataclass(frozen=True)
class Row:
    name: str
    ulp: dict[str, tuple[float, float]]  # dtype -> ours, torch
    worse: int
    better: int
    percent: dict[str, tuple[float, float]]  # dtype -> ours, torch


def ndtr(x: torch.Tensor) -> torch.Tensor:
    """In f64 with its tail, else torch's own."""
    wide = x.dtype == torch.float64
    return 0.5 * torch.erfc(x * -math.sqrt(0.5)) if wide else torch.special.ndtr(x.float()).to(x)


def gelu(x: torch.Tensor) -> torch.Tensor:
    return x * ndtr(x) if x.dtype == torch.float64 else F.gelu(x)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float64:
        return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return F.gelu(x, approximate="tanh")


FUNCTIONS: dict[str, Function] = {
    "gelu(x)": gelu, "gelu_tanh(x)": gelu_tanh, "mish(x)": F.mish, "erf(x)": torch.erf,
    "tanh(x)": torch.tanh, "silu(x)": F.silu, "sigmoid(x)": torch.sigmoid,
    "softplus(x)": F.softplus, "logsigmoid(x)": F.logsigmoid, "erfc(x)": torch.erfc,
    "ndtr(x)": ndtr, "elu(x)": F.elu, "selu(x)": F.selu, "softsign(x)": F.softsign,
    "exp(x)": torch.exp, "exp2(x)": torch.exp2, "expm1(x)": torch.expm1, "log(x)": torch.log,
    "log2(x)": torch.log2, "log10(x)": torch.log10, "log1p(x)": torch.log1p,
    "sqrt(x)": torch.sqrt, "rsqrt(x)": torch.rsqrt, "reciprocal(x)": torch.reciprocal,
    "sin(x)": torch.sin, "cos(x)": torch.cos, "tan(x)": torch.tan, "asin(x)": torch.asin,
    "acos(x)": torch.acos, "atan(x)": torch.atan, "sinh(x)": torch.sinh, "cosh(x)": torch.cosh,
    "asinh(x)": torch.asinh, "acosh(x)": torch.acosh, "atanh(x)": torch.atanh,
    "erfinv(x)": torch.erfinv, "relu(x)": torch.relu, "x ** 3": lambda x: x**3,
}  # fmt: skip


def inputs(dtype: str) -> torch.Tensor:
    if dtype != "f32":
        every = torch.arange(1 << 16, device="cuda", dtype=torch.int32).to(torch.int16)
        return every.view(DTYPES[dtype])
    random = torch.Generator("cuda").manual_seed(0)

    def uniform(count: int) -> torch.Tensor:
        return torch.rand(count, device="cuda", generator=random)

    bits = torch.randint(-(2**31), 2**31, (1 << 23,), device="cuda", generator=random)
    patterns = bits.to(torch.int32).view(torch.float32)
    ends = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan], device="cuda")
    return torch.cat([patterns, 16 * uniform(1 << 22) - 8, -100 * uniform(1 << 22), ends])


def ulp_error(got: torch.Tensor, want: torch.Tensor, dtype: str) -> float:
    """The largest error where the exact result is a normal number and what torch rounds it to finite."""
    _, exponent = torch.frexp(want)
    ulp = torch.ldexp(torch.ones_like(want), exponent - BITS[dtype])
    normal = want.abs() >= torch.finfo(got.dtype).smallest_normal
    counts = normal & want.to(got.dtype).isfinite()
    error = torch.where(counts, ((got.double() - want) / ulp).abs(), 0.0)
    return float(error.nan_to_num(math.inf, posinf=math.inf).max())


def steps(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Representable numbers between two tensors of a half type; one NaN alone is as far as can be."""

    def ordered(x: torch.Tensor) -> torch.Tensor:
        bits = x.view(torch.int16).int()
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    away = (ordered(got) - ordered(want)).abs()
    away = torch.where(got.isnan() != want.isnan(), 1 << 16, away)
    return torch.where(got.isnan() & want.isnan(), 0, away)


def milliseconds(call: Callable) -> float:
    return do_bench(call, warmup=10, rep=25, return_mode="median")


def measure(name: str, x: dict[str, torch.Tensor], copies: dict[str, float]) -> Row:
    ours, eager = tritongen.compile_expr(name), FUNCTIONS[name]
    errors, worse, better = {}, 0, 0
    for dtype in DTYPES:
        a = inputs(dtype)
        want = eager(a.double())
        mine, theirs = ours(a), eager(a)
        errors[dtype] = ulp_error(mine, want, dtype), ulp_error(theirs, want, dtype)
        if dtype != "f32":
            rounded = want.to(a.dtype)
            own, other = steps(mine, rounded), steps(theirs, rounded)
            worse, better = worse + int((own > other).sum()), better + int((own < other).sum())
    percent = {}
    for dtype, big in x.items():
        times = milliseconds(lambda b=big: ours(b)), milliseconds(lambda b=big: eager(b))
        percent[dtype] = tuple(100 * copies[dtype] / t for t in times)
    return Row(name, errors, worse, better, percent)


def line(row: Row) -> str:
    errors = [f"{a:.4g} / {b:.4g}" for a, b in row.ulp.values()]
    speeds = [f"{a:.0f} / {b:.0f}" for a, b in row.percent.values()]
    cells = [f"`{row.name}`", *errors, f"{row.worse} / {row.better}", *speeds]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    x = {"bf16": torch.randn(1 << 28, device="cuda", dtype=torch.bfloat16)}
    x["f32"] = torch.randn(1 << 27, device="cuda")
    copies = {}
    for dtype, big in x.items():
        to = torch.empty_like(big)
        copies[dtype] = milliseconds(lambda a=to, b=big: a.copy_(b))
        del to
    print(f"copy: {4e-6 * (1 << 28) / copies['bf16']:.0f} GB/s, read plus written; ours / torch\n")
    print("| function | bf16, ulp | f16, ulp | f32, ulp | worse / better | bf16, % | f32, % |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for name in FUNCTIONS:
        if not options.only or any(name.startswith(f"{only}(") for only in options.only):
            try:
                rows.append(measure(name, x, copies))
            except Exception as problem:  # one function that fails leaves the others their lines
                print(f"| `{name}` | {type(problem).__name__}: {str(problem)[:80]} |", flush=True)
                continue
            print(line(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
