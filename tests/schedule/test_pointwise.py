"""Pointwise steps."""

from itertools import combinations

import pytest
import torch

from tritongen.pipeline import build
from tritongen.runtime.load import load_text
from tritongen.trace import H200, trace

SIZES = {"b": 2, "s": 3, "h": 5, "e": 7}


@pytest.mark.parametrize(
    "own", [own for n in (1, 2, 3) for own in combinations("bshe", n)], ids="".join
)
def test_an_operand_that_lacks_dims_is_not_copied(own):
    """`x[b, s, h, e] * c[s, e]`, as a rotation has it, wrote c for each b and h first: twice the memory traffic."""
    dims, at = ", ".join(own).upper(), ", ".join(own)
    text = f"op f(x: f32[B, S, H, E], c: f32[{dims}]) -> y: f32[B, S, H, E] {{ y[b, s, h, e] = x[b, s, h, e] * c[{at}] }}"
    x, c = (torch.empty([SIZES[i] for i in dims], device="meta") for dims in ("bshe", own))
    launches = trace(load_text("f", build(text, "f.op").raw), "f", {"x": x, "c": c}, H200).launches
    assert [launch.kernel.fn.__name__[:2] for launch in launches] == ["f_"]


@pytest.mark.parametrize("order", ("ncd", "ndc"))
def test_what_lacks_the_last_dim_is_read_once_a_line(order):
    """Each element of a line read b anew: 16 loads and an exchange through shared memory for one number."""
    text = "op f(x: f32[N, C, D], b: f32[C]) -> y: f32[N, C, D] { y[n, c, d] = x[n, c, d] * exp(b[c]) }"
    x = torch.empty(3, 5, 8, device="meta") if order == "ncd" else torch.empty(3, 8, 5).mT
    args = {"x": x, "b": torch.empty(5)}
    (launch,) = trace(load_text("f", build(text, "f.op").raw), "f", args, H200).launches
    assert launch.config["LINE_IS_WIDE"] == (order == "ndc")


def test_a_sum_of_two_terms_is_an_addition():
    """The gradient of a rotated pair was two sums of rows of two elements, which were stored."""
    text = """op f<T: float>(x: T[S, K, 2], c: f32[S, K]) -> y: T[S, K, 2] {
      y[s, k, i] = where(i == 0, x[s, k, 0] * c[s, k] - x[s, k, 1], x[s, k, 1] * c[s, k] + x[s, k, 0])
    }"""
    (item,) = build(text, "f.op", gradients=True).items
    (plan,) = item.backward.plans
    assert [step.skeleton for step in plan.steps if "dx" in step.stores] == ["pointwise"]
    assert not plan.scratch
