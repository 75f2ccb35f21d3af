"""The speed floor on one GPU. Every row is first compared with its reference, on poisoned outputs.

    python benchmarks/floor.py [--json FILE] [--only NAME]

Default schedules, fresh random data. Rows bound by memory are shares of a copy of the same run (bytes read plus written).
Contractions are in TFLOP/s. Times are medians of CUDA events, with the L2 cache flushed between runs
(`triton.testing.do_bench`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import triton
from triton.testing import do_bench

GENERATED = Path(__file__).resolve().parent.parent / "generated"


@dataclass(frozen=True)
class Row:
    """One line of the table: `unit` is "% copy" or "TFLOP/s"."""

    name: str
    floor: float
    unit: str
    ours: float
    eager: float
    error: float


def module(name: str):
    spec = importlib.util.spec_from_file_location(f"generated_{name}", GENERATED / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def milliseconds(call: Callable) -> float:
    return do_bench(call, warmup=25, rep=100, return_mode="median")


def relative_error(ours: torch.Tensor, reference: torch.Tensor) -> float:
    difference = (ours.double() - reference.double()).norm()
    return (difference / reference.double().norm()).item()


def poisoned(call: Callable, shape, dtype) -> torch.Tensor:
    """The result of a call whose output block was last filled with NaN: what it leaves out shows."""
    poison = torch.full(shape, float("nan"), dtype=dtype, device="cuda")
    del poison
    return call()


def copy_bandwidth() -> float:
    """Bytes a second of a device copy, read plus written."""
    a = torch.empty(2**30, device="cuda", dtype=torch.int16).random_()
    b = torch.empty_like(a)
    return 2 * a.numel() * 2 / milliseconds(lambda: b.copy_(a)) * 1e3


def cases():
    """(name, floor, unit, bytes or flops, ours, eager, reference in f64 or f32, bound)."""
    bf16, cuda = torch.bfloat16, "cuda"

    def randn(*shape, dtype=torch.float32):
        return torch.randn(*shape, device=cuda, dtype=dtype)

    n = 2**24  # 64 MiB of f32
    x, z = randn(n), randn(n)
    relu, add = module("relu").relu, module("vector_add").vector_add
    yield "relu f32 64 MiB", 80, "% copy", 8 * n, lambda: relu(x), lambda: torch.relu(
        x
    ), torch.relu(x), 0.0
    yield "add f32 64 MiB", 80, "% copy", 12 * n, lambda: add(x, z), lambda: x + z, x + z, 0.0
    h = randn(2 * n, dtype=bf16)
    gelu = module("gelu").gelu
    # Bound by the arithmetic of erf, not by memory: shown, without a floor.
    yield "gelu bf16 64 MiB", 0, "% copy", 8 * n, lambda: gelu(h), lambda: F.gelu(h), F.gelu(
        h.double()
    ), 4e-3
    img, c = randn(16, 64, 128, 128), randn(64)
    bias = module("bias_add").bias_add
    want = img + c[None, :, None, None]
    yield "bias_add f32 64 MiB", 80, "% copy", 8 * n, lambda: bias(img, c), lambda: img + c[
        None, :, None, None
    ], want, 0.0
    softmax, layer, rms = (
        module("softmax").softmax,
        module("layer_norm").layer_norm,
        module("rms_norm").rms_norm,
    )
    for width in (1024, 2048, 4096, 8192, 16384):
        a = randn(2**27 // width, width, dtype=bf16)
        w, b = randn(width, dtype=bf16), randn(width, dtype=bf16)
        by = 4 * a.numel()
        yield f"softmax bf16 {width}", 80, "% copy", by, lambda: softmax(a), lambda: torch.softmax(
            a, -1
        ), torch.softmax(a.float(), -1), 4e-3
        yield (
            f"layer_norm bf16 {width}", 80, "% copy", by, lambda: layer(a, w, b),
            lambda: F.layer_norm(a, (width,), w, b), F.layer_norm(a.float(), (width,), w.float(), b.float()), 4e-3,
        )  # fmt: skip
        yield (
            f"rms_norm bf16 {width}", 80, "% copy", by, lambda: rms(a, w),
            lambda: F.rms_norm(a, (width,), w), F.rms_norm(a.float(), (width,), w.float(), 1e-6), 4e-3,
        )  # fmt: skip
    row, column = module("row_sum").row_sum, module("column_sum").column_sum
    for shape in ((65536, 4096), (4096, 65536), (1048576, 64)):
        s = randn(*shape)
        yield f"row sum f32 {shape}", 75, "% copy", 4 * s.numel(), lambda: row(s), lambda: s.sum(
            1
        ), s.double().sum(1), 1e-5
        yield f"column sum f32 {shape}", 75, "% copy", 4 * s.numel(), lambda: column(
            s
        ), lambda: s.sum(0), s.double().sum(0), 1e-5
    size = 4096
    a, b = randn(size, size, dtype=bf16), randn(size, size, dtype=bf16) / 64
    v = randn(size, dtype=bf16)
    matmul, fused = module("matmul").matmul, module("linear_gelu").linear_gelu
    flops = 2 * size**3
    want = a.float() @ b.float()
    yield "matmul bf16 4096^3", 500, "TFLOP/s", flops, lambda: matmul(
        a, b
    ), lambda: a @ b, want, 4e-3
    yield (
        "linear+gelu bf16 4096^3", 450, "TFLOP/s", flops, lambda: fused(a, b, v),
        lambda: F.gelu(F.linear(a, b, v)), F.gelu(a.float() @ b.float().t() + v.float()), 6e-3,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    peak = copy_bandwidth()
    versions = (
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    )
    print(f"{versions}, copy {peak / 1e9:.0f} GB/s", flush=True)
    rows = []
    for name, floor, unit, amount, ours, eager, reference, bound in cases():
        if options.only not in name:
            continue
        try:
            error = relative_error(poisoned(ours, reference.shape, torch.float32), reference)
            rates = (
                [amount / milliseconds(call) * 1e3 for call in (ours, eager)]
                if error <= bound
                else [0.0, 0.0]
            )
        except Exception as problem:  # one row that fails must not hide the others
            print(f"{name:28s} {type(problem).__name__}: {str(problem)[:300]}", flush=True)
            rows.append(Row(name, floor, unit, 0.0, 0.0, float("nan")))
            continue
        ours_, eager_ = (r / peak * 100 if unit == "% copy" else r / 1e12 for r in rates)
        rows.append(Row(name, floor, unit, round(ours_, 1), round(eager_, 1), error))
        verdict = "" if ours_ >= floor else f"   <-- floor {floor}"
        print(
            f"{name:28s} {ours_:7.1f} {unit:8s} eager {eager_:6.1f}  error {error:.1e}{verdict}",
            flush=True,
        )
    if options.json:
        options.json.write_text(
            json.dumps(
                {"versions": versions, "copy": peak, "rows": [asdict(r) for r in rows]}, indent=1
            )
        )
    return int(any(r.ours < r.floor for r in rows))


if __name__ == "__main__":
    sys.exit(main())
