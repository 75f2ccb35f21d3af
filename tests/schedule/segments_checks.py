"""Sums over segments in the interpreter, whatever the offsets are: run by `test_segments.py`, with TRITON_INTERPRET=1."""

from __future__ import annotations

import pytest
import torch

from tritongen import pipeline
from tritongen.runtime.load import load_text

SPEC = """op f(a: f32[E], col: i64[E], off: i64[Q], h: f32[N, D]) -> y: f32[G, D] with G = Q - 1 {
  y[i, d] = sum[off[i] <= e < off[i + 1]](a[e] * (h[col[e], d] else 0))
}"""
MODULE = load_text("f", pipeline.build(SPEC, "f.op", gradients=True).raw)
OFFSETS = {
    "in order": [0, 700, 700, 1900],
    "long, beyond both ends": [-5, 900, 2500],
    "overlapping": [900, 30, 1200, 2, 1900],
    "one": [3, 9],
    "none": [4],
}


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("columns", [1, 40])
def test_sums_and_gradients(name, in_order, columns):
    torch.manual_seed(0)
    off, terms = torch.tensor(OFFSETS[name]), 1900
    a, h = torch.randn(terms, requires_grad=True), torch.randn(50, columns, requires_grad=True)
    col = torch.randint(-2, 52, (terms,))
    there = (col >= 0) & (col < 50)
    rows = torch.where(there[:, None], h[col.clamp(0, 49)], 0.0) * a[:, None]
    parts = [rows[max(b, 0) : max(e, 0)].sum(0) for b, e in zip(off, off[1:], strict=False)]
    want = torch.stack(parts) if parts else torch.zeros(0, columns)
    torch.use_deterministic_algorithms(in_order)
    try:
        got = MODULE.f(a, col, off, h)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        if parts:
            dy = torch.randn_like(want)
            pairs = zip(
                torch.autograd.grad(got, (a, h), dy),
                torch.autograd.grad(want, (a, h), dy),
                strict=True,
            )
            for ours, theirs in pairs:
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_shift_of_minus_infinity_is_nan_where_there_are_terms():
    text = """op f<T: float>(x: T[N, D], off: i64[Q]) -> (y: T[G, D], s: T[G, D]) with G = Q - 1 {
      m[g < Q - 1, d] = max[off[g] <= n < off[g + 1]](x[n, d])
      y[g, d] = sum[off[g] <= n < off[g + 1]](exp(x[n, d] - m[g, d]))
      s[g, d] = sum[off[g] <= n < off[g + 1]](exp(x[n, d] - m[g, d]) * n) / y[g, d]
    }"""
    f = load_text("f", pipeline.build(text, "f.op").raw).f
    x = torch.tensor([[-torch.inf, 1], [-torch.inf, 1], [2, -torch.inf]])
    got, _ = f(x, torch.tensor([0, 2, 2, 3]))
    want = torch.tensor([[torch.nan, 2], [0, 0], [1, torch.nan]])
    torch.testing.assert_close(got, want, equal_nan=True)


WEIGHTS = {
    "f32(i32(8 * {p}))": lambda p: (8 * p).to(torch.int32),
    "f32(U(8 * {p}))": lambda p: (8 * p).to(torch.int32),
    "where({p} > 0.3, {p}, 0)": lambda p: torch.where(p > 0.3, p, 0),
}


@pytest.mark.parametrize("weight", WEIGHTS)
def test_what_is_no_multiple_of_a_weight_does_not_move_with_the_maximum(weight):
    """A larger maximum makes each weight smaller, but not what is cut off, or left out, by the same factor."""
    own = weight.format(p="exp(x[n, d] - m[g, d])")
    within = "lo[g] <= n < hi[g]"
    text = f"""op f<U: i32 | i16>(x: f32[N, D], lo: i64[G], hi: i64[G], z: U[D]) -> y: f32[G, D] {{
      m[g, d] = max[{within}](x[n, d])
      y[g, d] = sum[{within}]({own}) + f32(z[d])
    }}"""
    built = pipeline.build(text, "f.op")
    assert [step.skeleton for step in built.plans["f"][0].steps] == ["segments"]
    f = load_text("f", built.raw).f
    lo, hi = torch.tensor([[0, 60], [60, 90]] + [[9, 9]] * 30).T  # so a turn takes eight terms
    x = torch.randn(90, 4, generator=torch.Generator().manual_seed(0)).sort(0).values
    parts = x[:60], x[60:]
    want = torch.stack([WEIGHTS[weight]((p - p.amax(0)).exp()).sum(0).float() for p in parts])
    got = f(x, lo, hi, torch.zeros(4, dtype=torch.int32))
    torch.testing.assert_close(got[:2], want)
