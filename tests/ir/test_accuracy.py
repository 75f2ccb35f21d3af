"""Every one-argument float function against f64: its bound in ulp, and inf and NaN in their places.

All f16 and bf16 patterns and every 251st f32 pattern; all 2**32 of them with `-m slow`.
"""

from __future__ import annotations

import pytest
import torch
from evaluate import apply_torch

import tritongen
from tritongen.ir.functions import ATOM, FUNCTIONS, fill, with_flag
from tritongen.runtime.load import load_text

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="measures what a GPU computes"),
]
ROWS = [
    row
    for row in FUNCTIONS.values()
    if row.arity == 1 and row.args in ("float", "number") and row.result == "same"
]
TINY = 2.0**-126  # results and arguments below count as 0: libdevice flushes denormals
BLOCK = 1024
CHUNK = 1 << 26


def kernels():
    lines = ["import triton", "import triton.language as tl"]
    lines += ["from triton.language.extra import libdevice", "from tritongen import lib", ""]
    for row in ROWS:
        text = with_flag(row.triton, "HALF") if row.half else row.triton
        lines += [
            "@triton.jit",
            f"def {row.name}_kernel(pa, out, count, HALF: tl.constexpr, BLOCK: tl.constexpr):",
            "    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "    a = tl.load(pa + i, mask=i < count).to(tl.float32)",
            f"    tl.store(out + i, {fill(text, [('a', ATOM)])[0]}, mask=i < count)",
            "",
        ]
    return load_text("accuracy", "\n".join(lines))


def compute(row, a: torch.Tensor) -> torch.Tensor:
    out = torch.full_like(a, 7.0)
    grid = ((a.numel() + BLOCK - 1) // BLOCK,)
    kernel = getattr(kernels(), f"{row.name}_kernel")
    kernel[grid](a, out, a.numel(), HALF=a.itemsize == 2, BLOCK=BLOCK)
    return out


def check(row, a: torch.Tensor, bits: int, bound: float) -> None:
    """`bits` of the significand, the leading one included."""
    got, want = compute(row, a), apply_torch(row, {"a": a.double()})
    rounded = want.to(a.dtype)
    normal = (a.abs() >= TINY) | (a == 0)
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    finite = got.isfinite() & rounded.isfinite()
    misplaced = normal & ~finite & ~same
    assert not misplaced.any(), f"{row.name}({a[misplaced][0]}) = {got[misplaced][0]}"
    _, exponent = torch.frexp(want)
    ulp = torch.ldexp(torch.ones_like(want), (exponent - bits).clamp(min=-149))
    error = (got.double() - want).abs() / ulp
    error = torch.where(normal & finite & (want.abs() >= TINY), error, 0.0)
    worst = error.argmax()
    assert error[worst] <= bound, f"{row.name}({a[worst]}): {error[worst]} ulp"


def patterns(start: int, stop: int, step: int) -> torch.Tensor:
    numbers = torch.arange(start, stop, step, device="cuda", dtype=torch.int64) - (1 << 31)
    return numbers.to(torch.int32).view(torch.float32)


@pytest.mark.parametrize("dtype, bits", [(torch.float16, 11), (torch.bfloat16, 8)])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_half_types(row, dtype, bits):
    numbers = torch.arange(1 << 16, device="cuda") - (1 << 15)
    a = numbers.to(torch.int16).view(dtype)
    # Half an ulp to round the stored value, and what the f32 result is off in these wider ulp.
    smallest_normal = torch.finfo(dtype).smallest_normal
    want = apply_torch(row, {"a": a.double()})
    keep = (want.abs() >= smallest_normal) | (want == 0) | ~want.isfinite()
    check(row, a[keep], bits, 0 if row.exact else 0.5 + (row.half or row.ulp) * 2.0 ** (bits - 24))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_sampled_f32(row):
    check(row, patterns(0, 1 << 32, 251), 24, row.ulp)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_f32(row):
    for start in range(0, 1 << 32, CHUNK):
        check(row, patterns(start, start + CHUNK, 1), 24, row.ulp)


def test_mish_where_its_factor_is_a_denormal():
    """libdevice's fma takes denormals for 0: a correction made with it once doubled the result."""
    x = torch.linspace(-88.2, -87.2, 1001, device="cuda")
    want = torch.nn.functional.mish(x.double())
    torch.testing.assert_close(
        tritongen.compile_expr("mish(x)")(x).double(), want, rtol=1e-5, atol=0.0
    )
