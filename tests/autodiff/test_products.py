"""Matrix products of gradients multiply in the type of the operand that they meet; nothing else is rounded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tritongen import compile_op, pipeline
from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.ir.print import print_op
from tritongen.syntax.parse import parse

ROOT = Path(__file__).parents[2]


def gradient_of(text: str) -> str:
    return print_op(gradient(check(parse(text))[-1].typings[0]))


def test_a_gradient_that_two_products_take_is_a_rounded_line():
    """And the bias, of whose gradient it is the terms, sums that line."""
    (item,) = pipeline.build((ROOT / "specs/linear_gelu.op").read_text(), gradients=True).items
    lines = print_op(item.forward.backward.plans[0].op).splitlines()
    (dacc,) = (line for line in lines if "dacc[m, n] =" in line)
    assert dacc.startswith("  dacc[m, n] = T(")
    assert "  db[n] = sum[m](dacc[m, n])" in lines
    assert "  dx[m, k] = sum[n](dacc[m, n] * w[n, k])" in lines


@pytest.mark.parametrize(
    ("signature", "sum_of", "rounded"),
    [
        ("<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N]", "x[m, k] * w[n, k]", True),
        ("<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N]", "silu(x[m, k]) * w[n, k]", True),
        # It would be nothing, or less exact than the results are.
        ("<T: f32 | f64>(x: T[M, K], w: T[N, K]) -> y: T[M, N]", "x[m, k] * w[n, k]", False),
        ("<T: float>(x: f32[M, K], w: T[N, K]) -> y: T[M, N]", "x[m, k] * w[n, k]", False),
        ("<T: float>(x: T[M, K], w: f8e4m3[N, K]) -> y: T[M, N]", "x[m, k] * w[n, k]", False),
        # The rows' own, and no matrix product.
        ("<T: float>(x: T[M, N, K]) -> y: T[M, N]", "x[m, n, k] * x[m, n, k]", False),
    ],
)
def test_what_is_rounded(signature, sum_of, rounded):
    text = f"""op f{signature} {{
      acc[m, n] = sum[k]({sum_of})
      y[m, n] = sin(acc[m, n])
    }}"""
    assert ("T(" in gradient_of(text)) == rounded


def test_halves_lose_no_more_than_autograd_does():
    op = compile_op((ROOT / "specs/swiglu_linear.op").read_text())
    rows = torch.Generator().manual_seed(3)
    shapes = {"x": (33, 65), "wg": (47, 65), "wu": (47, 65)}
    wide = {n: torch.randn(s, generator=rows, dtype=torch.float64) for n, s in shapes.items()}
    args = {n: v.bfloat16().requires_grad_() for n, v in wide.items()}
    exact = {n: v.detach().double().requires_grad_() for n, v in args.items()}
    dy = torch.randn((33, 47), generator=rows).bfloat16()

    def by_torch(x, wg, wu):
        linear = torch.nn.functional.linear
        return torch.nn.functional.silu(linear(x, wg)) * linear(x, wu)

    def off(y, of):
        found = torch.autograd.grad(y, list(of.values()), dy.to(y.dtype))
        return [(g.double() - e).abs().max() for g, e in zip(found, want, strict=True)]

    want = torch.autograd.grad(by_torch(**exact), list(exact.values()), dy.double())
    ours, theirs = off(op(**args), args), off(by_torch(**args), args)
    assert all(a <= 1.5 * b for a, b in zip(ours, theirs, strict=True))
