"""Forms: rewriting keeps the value, gains the tail, and half forms stand only where rounding covers them."""

from __future__ import annotations

import re

import pytest
import torch

from tritongen.check import check
from tritongen.ir import nodes as ir
from tritongen.ir.forms import with_forms
from tritongen.ir.interp import run
from tritongen.syntax.parse import parse

STABLE = {
    "1 + erf(x)": "erfc",
    "erf(x) + 1": "erfc",
    "1 - erf(x)": "erfc",
    "1 + tanh(x)": "sigmoid",
    "1 + tanh(0.5 * x)": "sigmoid",
    "1 - tanh(x)": "sigmoid",
    "tanh(softplus(x))": "tanh_softplus",
    "x * ndtr(x)": "times_ndtr",
    "gelu(x)": "times_ndtr",
    "1 / (1 + exp(-x))": "sigmoid",
    "1 - sigmoid(x)": "sigmoidc",
    "log(1 + x * x)": "log1p",
    "exp(x) - 1": "expm1",
}
# What the sigmoid of z is stored as: T where the value reaches nothing but T, in proportion.
STORED = {
    "y = sigmoid(z)": "T",
    "y = x * sigmoid(z)": "T",
    "y = where(z > 0, x, -sigmoid(z)) / 3": "T",
    "t = sigmoid(z)  y = t * x": "T",
    "y = x + sigmoid(z)": "T",
    "y = x + (1 + sigmoid(z))": "",
    "y = 2 - sigmoid(z)": "",
    "y = exp(sigmoid(z))": "",
    "t = sigmoid(z)  y = t * x + t": "T",
    "t = sigmoid(z)  y = t * x + exp(t)": "",
    "y = x + T(sigmoid(z) * z)": "T",
    "y = f32(sigmoid(z))": "T",
    "y[...] = x[...] * sum[d < 3](sigmoid(z[...]) * d)": "T",
    "y[...] = x[...] * prod[d < 3](sigmoid(z[...]) * d)": "",
    "y[...] = x[...] * max[d < 3](sigmoid(z[...]) * d)": "T",
}


def op_of(body: str, output: str = "T") -> ir.Op:
    operands = ", ".join(f"{name}: T[...]" for name in "xz" if re.search(rf"\b{name}\b", body))
    text = f"op f<T: float>({operands}) -> y: {output}[...] {{ {body} }}"
    (checked,) = check(parse(text, "f.op"))
    return checked.typings[0]


def calls(op: ir.Op) -> list[ir.Call]:
    return [e for n in op.nests for e in ir.walk(n.body) if isinstance(e, ir.Call)]


@pytest.mark.parametrize("text", STABLE)
def test_a_stable_form_has_the_same_value(text):
    op = op_of(f"y = ({text}) * z")
    formed = with_forms(op)
    assert STABLE[text] in {c.fn for c in calls(formed)} - {c.fn for c in calls(op)}
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)
    args = {"x": x, "z": torch.ones_like(x)}
    torch.testing.assert_close(run(formed, args)["y"], run(op, args)["y"], rtol=1e-12, atol=1e-14)


def test_a_stable_form_keeps_the_tail():
    x = torch.tensor([-8.0], dtype=torch.float64)
    got = run(with_forms(op_of("y = (1 + erf(x)) * z")), {"x": x, "z": torch.ones_like(x)})["y"]
    torch.testing.assert_close(got, torch.erfc(-x), rtol=1e-12, atol=0.0)
    assert got > 0


@pytest.mark.parametrize("body", STORED)
def test_stored_is_where_a_value_goes_in_proportion(body):
    found = {c.stored for c in calls(with_forms(op_of(body))) if c.fn == "sigmoid"}
    assert found == {STORED[body]}


def test_a_wide_output_has_no_half_form():
    assert {c.stored for c in calls(with_forms(op_of("y = sigmoid(z) * x", "f32")))} == {""}
