"""The interpreter with types that are kept computes what Triton's own does, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def halved(x, y):
    return x - y // 2


@triton.jit
def kernel(x_ptr, s_ptr, out_ptr, n, f, M: tl.constexpr, N: tl.constexpr, FLOAT: tl.constexpr):
    i = tl.arange(0, M)[:, None]
    j = tl.arange(0, N)[None, :].to(tl.int64)
    x = tl.load(x_ptr + i * N + j, mask=(i < M) & (j < n), other=3)
    s = tl.load(s_ptr)
    row = tl.load(x_ptr + j)
    sums = tl.zeros((M, N), tl.float64)
    for k in range(2):
        sums += (x + s).to(tl.float64) + (s * x) + (x - k) + (7 * x) + (x * 2) + halved(i, j)
    sums += x + row + tl.where(x > s, x, row) + tl.maximum(x, row) + tl.minimum(x, 5)
    sums += (x < 3).to(tl.int32) + ((x == row) & (s != 1)) + (x >= row).to(tl.float32) + ~(x > 2)
    sums += x.to(tl.float32) * f + x / 3 + 1 / (x.to(tl.float64) + 0.7) + (x + i) + (x * j)
    sums += tl.max(x, 1)[:, None] + tl.sum(x.to(tl.int64), 0)[None, :]
    if FLOAT:
        sums += x * 0.3 + (x + s * 1.7) / (row + 3.0) - (-x) + tl.exp(-x.to(tl.float32)) + tl.where(x * 1e300 > 1, x, 2.0)
    else:
        sums += x // 3 + x % 5 + (x >> 1) + (x & row) + (x ^ s) + (x | 100) + (j - x) // (i + 1)
        sums += i * 2147483000 + (x + 127) + 255 * i.to(tl.uint8)
    tl.store(out_ptr + i * N + j, sums)
"""
# The other repairs of the interpreter alone.
WITHOUT = """
import sys, types
sys.modules["tritongen.runtime.interpret_types"] = without = types.ModuleType("without")
for name in ("agreement", "kept_types", "no_overflow_check", "plain_builtins"):
    setattr(without, f"install_{name}", lambda: None)
"""
RUN = """
import hashlib, sys, warnings
import tritongen.runtime
import numpy, torch
from kernels import kernel
warnings.simplefilter("ignore")
numpy.seterr(all="ignore")
for dtype in (torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
    torch.manual_seed(3)
    x = (torch.randn(4, 8) * 50).abs().to(dtype)
    for s in (x[2:3, 5], torch.ones(1, dtype=dtype)):
        out = torch.empty(4, 8, dtype=torch.float64)
        kernel[(1,)](x, s.contiguous(), out, 6, 0.37, M=4, N=8, FLOAT=dtype.is_floating_point)
        print(dtype, hashlib.sha256(out.numpy().tobytes()).hexdigest())
"""


def test_values_are_tritons_own(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    ours, tritons = (
        subprocess.run(
            [sys.executable, "-c", first + RUN], env=env, check=True, capture_output=True, text=True
        ).stdout
        for first in ("", WITHOUT)
    )
    assert ours == tritons and len(set(ours.split())) > 16


def test_a_bool_is_a_number_and_a_complex_is_refused():
    """As torch has it where a float is wanted."""
    text = """
import torch, tritongen
f = tritongen.compile_op("op f(x: f32[N], s: f32, flag: bool) -> y: f32[N] { y[n] = where(flag, x[n] * s, 0) }")
print(*f(torch.ones(1), True, True).tolist(), *f(torch.ones(1), 3, False).tolist())
try:
    f(torch.ones(1), 1 + 2j, True)
except TypeError as error:
    print(error)
"""
    path = str(Path(__file__).parents[2])
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    run = [sys.executable, "-c", text]
    said = subprocess.run(run, env=env, check=True, capture_output=True, text=True).stdout
    assert said == "1.0 0.0\nf: s: expected float or a 0-dim tensor, given complex\n"


def test_f8_numbers(run_checks):
    run_checks("f8_checks.py")
