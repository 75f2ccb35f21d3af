"""The quotient of two values of a row has a line of its own, if it is added to a product."""

from __future__ import annotations

import pytest

from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.ir.print import print_op
from tritongen.syntax.parse import parse

POOLED = """op pooled(q: f32[S, E], k: f32[L, E], v: f32[L, E]) -> o: f32[S, E] {{
  p[i, j] = exp(sum[e](q[i, e] * k[j, e]))
  t[i]    = {total}
  o[i, e] = sum[j](p[i, j] * v[j, e]) / t[i]
}}"""


@pytest.mark.parametrize("total", ["sum[j](p[i, j])", "1 + sum[j](2 * p[i, j])"])
def test_a_product_meets_one_number_of_each_row(total):
    lines = print_op(gradient(check(parse(POOLED.format(total=total)))[-1].typings[0])).splitlines()
    (row,) = (line for line in lines if line.startswith("  dp_row[i] = "))
    (own,) = (line for line in lines if line.startswith("  dp[i, j] = "))
    assert " / " in row and "dp_row[i]" in own and " / " not in own
