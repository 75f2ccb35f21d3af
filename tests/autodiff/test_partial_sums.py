"""A sum of a gradient reads what another line has added up of it."""

from __future__ import annotations

import pytest

from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.ir.print import print_op
from tritongen.syntax.parse import parse

SCALED = """op f<T: float>(x: T[N, C, L], w: T[{w}], b: T[{b}]) -> y: T[N, C, L] {{
  r[n, c] = rsqrt(sum[l](x[n, c, l] * x[n, c, l]))
  y[n, c, l] = x[n, c, l] * r[n, c] * w[{at}] + b[{of}]
}}"""


def lines_of(text: str) -> list[str]:
    return print_op(gradient(check(parse(text))[-1].typings[0])).splitlines()


def test_a_part_that_is_there_and_one_beside_it():
    lines = lines_of(SCALED.format(w="C", b="C", at="c", of="c"))
    assert "  dw[c] = sum[n](dr_sum[n, c] * r[n, c])" in lines
    assert "  db[c] = sum[n](dy_sum[n, c])" in lines
    assert sum("dy[n, c, l]" in line for line in lines) == 3  # dr_sum, dy_sum and dx


@pytest.mark.parametrize("at", ["l", "n"])
def test_a_sum_over_other_indices_stays(at):
    """One that keeps the index that the part adds up, and one whose factor has it."""
    lines = lines_of(SCALED.format(w="L", b={"l": "L", "n": "N"}[at], at="l", of=at))
    assert any(line.startswith("  dw[l] = sum[n, c](dy[n, c, l] * ") for line in lines)
    if at == "n":  # which the part of dy alone adds up
        assert "  db[n] = sum[c](dy_sum[n, c])" in lines
