"""The activations of the prelude equal torch's, and their derived gradients torch's gradients.

Values by the torch texts of the function table, with the macros pasted in; gradients by the oracle.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from evaluate import evaluate

from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.ir.interp import run
from tritongen.syntax import ast
from tritongen.syntax.parse import parse, parse_expression, parse_file

ROOT = Path(__file__).parents[2]
PRELUDE = parse_file(ROOT / "grammar" / "prelude.op")
MACROS = {item.name: item for item in PRELUDE.items if isinstance(item, ast.Fn)}


ACTIVATIONS = {
    "gelu(x)": F.gelu,
    "gelu_tanh(x)": lambda x: F.gelu(x, approximate="tanh"),
    "silu(x)": F.silu,
    "mish(x)": F.mish,
    "elu(x)": F.elu,
    "elu(x, 0.5)": lambda x: F.elu(x, 0.5),
    "celu(x)": F.celu,
    "celu(x, 2)": lambda x: F.celu(x, 2.0),
    "selu(x)": F.selu,
    "leaky_relu(x)": F.leaky_relu,
    "leaky_relu(x, 0.2)": lambda x: F.leaky_relu(x, 0.2),
    "prelu(x, 0.25)": lambda x: F.prelu(x, torch.tensor(0.25, dtype=x.dtype)),
    "threshold(x, 1, 20)": lambda x: F.threshold(x, 1, 20),
    "hardtanh(x)": F.hardtanh,
    "hardtanh(x, -2, 3)": lambda x: F.hardtanh(x, -2, 3),
    "relu6(x)": F.relu6,
    "hardsigmoid(x)": F.hardsigmoid,
    "hardswish(x)": F.hardswish,
    "softsign(x)": F.softsign,
    "tanhshrink(x)": F.tanhshrink,
    "softshrink(x)": F.softshrink,
    "hardshrink(x)": F.hardshrink,
    "relu(x)": F.relu,
    "softplus(x)": F.softplus,
    "logsigmoid(x)": F.logsigmoid,
    "sigmoid(x)": torch.sigmoid,
    "tanh(x)": torch.tanh,
}


def points() -> torch.Tensor:
    """Every kink, both ends of the range, and what is not a number."""
    ends = [0.5, 1, 2, 3, 6, 20, 30, 100, 800, 1e30]
    inf, nan = float("inf"), float("nan")
    special = torch.tensor([0.0, *ends, *(-e for e in ends), inf, -inf, nan], dtype=torch.float64)
    random = torch.Generator().manual_seed(0)
    return torch.cat([special, 5 * torch.randn(200, generator=random, dtype=torch.float64)])


@pytest.mark.parametrize("text", ACTIVATIONS)
def test_activation_equals_torch(text):
    x = points()
    got = evaluate(parse_expression(text), {"x": x}, MACROS)
    torch.testing.assert_close(got, ACTIVATIONS[text](x), rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("text", ACTIVATIONS)
def test_derived_gradient_equals_torch(text):
    spec = f"op f<T: float>(x: T[N]) -> y: T[N] {{ y = {text} }}"
    (checked,) = check(parse(spec, "f.op"))
    backward = gradient(checked.typings[0])
    x = points()[~points().isnan()].requires_grad_()  # torch's own kernels disagree about NaN
    y = ACTIVATIONS[text](x)
    (want,) = torch.autograd.grad(y.sum(), x)
    args = {"x": x.detach(), "y": y.detach(), "dy": torch.ones_like(want)}
    got = run(backward, {p.name: args[p.name] for p in backward.params})["dx"]
    torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-12, equal_nan=True)


def test_every_activation_is_compared():
    assert set(MACROS) <= {text.partition("(")[0] for text in ACTIVATIONS}
