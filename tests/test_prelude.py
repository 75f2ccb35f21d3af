"""The prelude: activations equal torch's, and every op of the prelude and of specs/ equals its `ref`.

Activations are evaluated by the torch texts of the function table, with the macros of the prelude
pasted in; ops by the oracle, in f64.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from evaluate import evaluate

from tritongen.syntax import ast
from tritongen.syntax.parse import parse_expression, parse_file

ROOT = Path(__file__).parent.parent
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


def test_every_activation_is_compared():
    assert set(MACROS) <= {text.partition("(")[0] for text in ACTIVATIONS}
