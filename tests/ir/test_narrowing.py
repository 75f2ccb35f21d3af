"""bf16 beside f16: LLVM computes in f16 what f16 stores, and f16 ends at 65504."""

from __future__ import annotations

import pytest

from tritongen.ir.narrowing import by_bits
from tritongen.pipeline import build
from tritongen.proof.crosscompile import crosscompile

HEAD = "op f<T: float, U: float>(x: T[N], z: U[N], s: f32 = 2.0, const half: float = 0.5) -> "
# The lines, and the operands whose bits a kernel widens.
LINES = {
    "y: T[N] { y[i] = x[i] + z[i] + 0 * s * half }": set(),  # added up in f32
    "y: T[N] { y[i] = where(s > half, x[i] + z[i], 0) }": {"z"},
    "y: T[N] { y[i] = where(s > 0, x[i] * abs(z[i]), half) }": {"z"},
    "y: T[N] { y[i] = where(s > half, x[i] * 1 + z[i], 0) }": {"z"},
    "y: T[N] { y[i] = where(s > half, x[i] * 2 + z[i], 0) }": set(),
    "y: f16[N] { y[i] = where(s > half and x[i] > 0, -(z[i] * 0.5), 1) }": {"z"},
    "y: f16[N] { y[i] = where(s > half and x[i] > 0, z[i] ** 2, 1) }": {"z"},
    "y: T[N] { y[i] = where(s > half, z[i], x[i]) }": set(),  # no operation
    "y: T[N] { y[i] = where(s > half, exp(z[i]) * x[i], 1) }": set(),
    "y: T[N] { y[i] = where(s > half and x[i] > 0, z[i] * s, 1) }": set(),  # s is f32
    "y: U[N] { y[i] = where(s > half, x[i] + z[i], 0) }": {"x"},
    "y: f32[N] { y[i] = where(s > half, x[i] + z[i], 0) }": set(),
    "y: T[N] {\n  n[i] = sum[j < i](x[j] * x[i])\n  y[i] = where(s > half, n[i] * z[i], 0)\n}": {
        "z"
    },
    "(t: U[N], y: T[N]) {\n  t[i] = exp(z[i]) * s + half\n  y[i] = x[i] * t[i]\n}": {"t"},
    "y: T[N] {\n  w[i] = z[i] * half\n  y[i] = where(s > 0 and x[i] > 0, w[i], x[i])\n}": {"z"},
}


@pytest.mark.parametrize("lines", LINES)
def test_operations_on_bf16_that_f16_stores_are_found(lines):
    (plan,) = build(HEAD + lines).plans["f"]
    kernels = (kernel for step in plan.steps for kernel in step.kernels)
    assert {key for k in kernels for key in by_bits(plan.op, k.nests)} == LINES[lines]


def test_llvm_does_not_compute_with_bf16_in_f16():
    """And would: the check finds it where bf16 is widened as any number is."""
    text = "op f<T: f16, U: bf16>(x: T[N], z: U[N]) -> y: T[N] {\n  y[i] = x[i] + z[i]\n}"
    raw = build(text, standalone=True).raw  # which holds what the library has
    plain = raw.replace("if x.dtype == tl.bfloat16:", "if x.dtype == tl.float64:")
    assert plain != raw
    assert {b.problem for b in crosscompile(text, "f")} == {""}
    (problem,) = {b.problem for b in crosscompile(text, "f", source=plain)}
    assert problem.startswith("bf16 is computed with in f16")


def test_a_sum_of_one_term_may_be_rounded_before_it_is_added():
    text = "op f(z: bf16[N], n: i64[N], const win: int = 1) -> y: f16[N] with win >= 1 {\n  y[i] = sum[j < win](where(n[i] == j, z[i], 0))\n}"
    assert {b.problem for b in crosscompile(text, "f")} == {""}


F8 = """op f<T: f64 | f16, U: f8e4m3 | f8e5m2, V: u8 | i32>(x: T[N], w: U[N], v: V[N], s: f64) -> (y: T[N], z: U[N], b: V[N], c: f32[N]) {
  y[n] = x[n] * w[n] * s
  z[n] = w[n] * x[n] + v[n]
  b[n] = V(x[n] * w[n])
  c[n] = U(x[n] * v[n]) + f8e5m2(w[n])
}"""


def test_f8_is_cast_by_f32():
    """Triton converts it to no f64 and no other f8, on neither kind of GPU. The dtype may be one that no pointer has."""
    assert {b.problem for b in crosscompile(F8, "f", ("sm_90", "gfx942"))} == {""}
    rows = "op f<U: f8e4m3 | f8e5m2>(x: f64[N, D]) -> y: U[N] { y[n] = sum[d](f64(U(x[n, d]))) }"
    assert {b.problem for b in crosscompile(rows, "f")} == {""}
