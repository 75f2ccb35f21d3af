"""Which terms of other rows a product may see."""

from __future__ import annotations

import pytest

from tritongen.check import check
from tritongen.proof.included import with_shared
from tritongen.syntax.parse import parse


@pytest.mark.parametrize("place", ("i, j", "i - j + N", "(i + j) % N"))
def test_a_computed_factor_is_one_wherever_it_reads(place):
    """Fused kernels multiply a factor that they compute, as no product by itself could: its rows share the other factor."""
    dims = "N, N" if place == "i, j" else "2 * N"
    text = f"""op f(s: f32[N, N], t: f32[{dims}], x: f32[N, E]) -> y: f32[N, E] {{
      y[i, e] = sum[j <= i](exp(s[i, j] * t[{place}]) * x[j, e])
    }}"""
    assert with_shared(check(parse(text, "f"))[-1].typings[0]) is not None
