"""A sum of a gradient reads what another line has added up of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tritongen import compile_op
from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.ir.print import print_op
from tritongen.syntax.parse import parse

ROOT = Path(__file__).parents[2]
SCALED = """op f<T: float>(x: T[N, C, L], w: T[{w}], b: T[{b}]) -> y: T[N, C, L] {{
  r[n, c] = rsqrt(sum[l](x[n, c, l] * x[n, c, l]))
  y[n, c, l] = x[n, c, l] * r[n, c] * w[{at}] + b[{of}]
}}"""


def lines_of(text: str) -> list[str]:
    return print_op(gradient(check(parse(text))[-1].typings[0])).splitlines()


def test_partial_sums_beside_one_that_is_there():
    lines = lines_of(SCALED.format(w="C", b="C", at="c", of="c"))
    assert "  dw_partial[n, c] = sum[l](dy[n, c, l] * (x[n, c, l] * r[n, c]))" in lines
    assert "  dw[c] = sum[n](dw_partial[n, c])" in lines
    assert "  db[c] = sum[n](db_partial[n, c])" in lines


@pytest.mark.parametrize("at", ["l", "n"])
def test_a_sum_over_other_indices_stays(at):
    """One that keeps the index that the part adds up, and one whose factor has it."""
    lines = lines_of(SCALED.format(w="L", b={"l": "L", "n": "N"}[at], at="l", of=at))
    assert any(line.startswith("  dw[l] = sum[n, c](dy[n, c, l] * ") for line in lines)
    if at == "n":
        assert "  db[n] = sum[c](db_partial[n, c])" in lines


@pytest.mark.parametrize("at", ["N - 1 - n, l", "l, n"])
def test_a_part_has_the_indices_of_its_own_line(at):
    """The sum has an index of the same name elsewhere: a partial sum would read dz at other rows than x."""
    text = f"""op f<T: float>(x: T[N, N], g: T[N], s: f32, w: T[M]) -> (y: T[N, N], z: T[N, N])
        with M == N + 1 {{
      y[n, l] = x[n, l] * exp(g[n])
      z[n, l] = s * x[{at}] * w[l + 1]
    }}"""
    lines = lines_of(text)
    if at == "l, n":
        assert "  ds_partial[n] = sum[l](dz[l, n] * w[n + 1] * x[n, l])" in lines
    else:
        assert "  ds = sum[n, l](dz[n, l] * w[l + 1] * x[N - n - 1, l])" in lines


def test_a_sum_over_fewer_rows_stays():
    """dz has no more: a partial sum for each row of x read it behind its end, or asked for as many."""
    text = """op f<T: float>(x: T[N, D], g: T[N], s: f32, b: T[M]) -> (y: T[N, D], z: T[M, D])
        with M <= N {
      y[n, d] = x[n, d] * exp(g[n])
      z[n, d] = s * x[n, d] * b[n]
    }"""
    assert "  ds = sum[n < M, d](dz[n, d] * b[n] * x[n, d])" in lines_of(text)


def test_an_image_without_pixels_adds_nothing():
    """Its mean is NaN, and a sum of no terms 0."""
    f = compile_op((ROOT / "specs/instance_norm.op").read_text())
    x = torch.randn(2, 3, 0, requires_grad=True)
    gain, bias = (torch.randn(3, requires_grad=True) for _ in range(2))
    f(x, gain, bias).sum().backward()
    assert (gain.grad == 0).all() and (bias.grad == 0).all()
