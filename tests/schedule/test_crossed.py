"""Folds over rows and over columns of the same tensors are one kernel, where that is asked for."""

import pytest
from crossed_checks import LAYER, RMS

from tritongen import pipeline

SUMS = """op f(x: f32[N, D]) -> (r: f32[N], c: f32[D]) {{
  r[n] = sum[d](x[n, d])
  c[d] = sum[n]({term})
}}"""


def steps(text: str, gradient: bool = False):
    item = pipeline.build(text, "f.op", gradients=gradient).items[0]
    plans = (item.forward or item).backward.plans if gradient else item.plans
    return plans[0].steps


@pytest.mark.parametrize("text", [LAYER, RMS])
def test_a_norms_gradient_is_one_step(text):
    (step,) = steps(text, gradient=True)
    assert step.skeleton == "crossed" and step.stores == ("dx", "dw", "db")
    assert [v.name for v in step.variants] == ["rows", "wide"]


@pytest.mark.parametrize(
    "term, together",
    [
        ("x[n, d]", ["r", "c"]),
        ("exp(x[n, d] - r[n])", ["r", "c"]),
        ("r[n] + d", []),  # which reads no tensor of rows and columns
        ("exp(x[n, d] - sum[m](x[m, d]))", ["r"]),  # waits for a sum over all rows
    ],
)
def test_what_shares_a_reading(term, together):
    found = [s for s in steps(SUMS.format(term=term)) if s.skeleton == "crossed"]
    assert [t for s in found for t in s.stores if t in ("r", "c")] == together


@pytest.mark.slow
def test_each_variant(run_checks):
    run_checks("crossed_checks.py")
