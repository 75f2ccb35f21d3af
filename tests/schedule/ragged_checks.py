"""Ragged products in the interpreter, whatever the offsets are: run by `test_ragged.py`, with TRITON_INTERPRET=1."""

from __future__ import annotations

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tritongen import pipeline
from tritongen.proof.variants import forced, ways
from tritongen.resources import folder
from tritongen.runtime.load import load_text

BUILT = pipeline.build((folder("specs") / "moe_linear.op").read_text(), "moe_linear")
MODULE = load_text("moe_linear", BUILT.raw)
(PLAN,) = BUILT.plans["moe_linear"]


def test_rows_that_are_their_own_segment():
    """Counted once in both, rows and segments: said by the plan which of them is looked up."""
    operands = "x: f32[M, K], w: f32[E, K, N]"
    for test, shift in (("e == m", 0), ("e == m + 1", 1), ("m == e + 2", -2)):
        line = f"y[m, n] = sum[e < E, k](where({test}, x[m, k] * w[e, k, n], 0))"
        built = pipeline.build(f"op f({operands}) -> y: f32[M, N] {{ {line} }}", "f.op")
        (plan,) = built.plans["f"]
        assert [step.skeleton for step in plan.steps] == ["ragged"]
        x, w = torch.randn(40, 20), torch.randn(36, 20, 18)
        want = torch.zeros(40, 18)
        for m in range(40):
            if 0 <= m + shift < 36:
                want[m] = x[m] @ w[m + shift]
        torch.testing.assert_close(load_text("f", built.raw).f(x, w), want, rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(-3, 60), min_size=1, max_size=6),
    st.integers(0, 4),
    st.sampled_from(ways(PLAN)),
)
@example([0, 2, 2, 5], 0, ways(PLAN)[0])
def test_segments_overlap_are_empty_and_lie_in_any_order(ends, bad, way):
    """The weights of one are NaN, and so are its rows: no others."""
    torch.manual_seed(0)
    M, K, N, E = 40, 20, 18, len(ends) - 1
    x, w, off = torch.randn(M, K), torch.randn(E, K, N), torch.tensor(ends, dtype=torch.int32)
    met = [e for e in range(E) if ends[e] < min(ends[e + 1], M) and ends[e + 1] > 0]
    for e in {*range(E)} - {*met} | {bad} & {*range(E)}:
        w[e] = torch.nan
    want = torch.zeros(M, N, dtype=torch.float64)
    for e in met:
        rows = slice(max(0, ends[e]), min(M, ends[e + 1]))
        want[rows] += x[rows].double() @ w[e].double()
    with forced(MODULE, PLAN, way, small=True):
        y = MODULE.moe_linear(x, w, off)
    torch.testing.assert_close(y.double(), want, rtol=1e-5, atol=1e-5, equal_nan=True)
