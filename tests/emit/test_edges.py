"""Counts of blocks, offsets and loops have room for any size: what the interpreter cannot run whole, a few programs tell."""

import pytest
import torch

from tritongen.pipeline import build
from tritongen.runtime.load import load_text

ATTENTION = """op f(q: f16[B, M, E], k: f16[B, L, E], v: f16[B, L, D]) -> y: f16[B, M, D] {
  s[b, i, j] = sum[e](q[b, i, e] * k[b, j, e])
  p[b, i, j] = exp(s[b, i, j] - max[l](s[b, i, l]))
  y[b, i, d] = sum[j](f16(p[b, i, j]) * v[b, j, d]) / sum[j](p[b, i, j])
}"""


@pytest.mark.slow
def test_counts_and_offsets_just_below_2_31(run_checks):
    run_checks("edge_checks.py")


@pytest.mark.parametrize("rows, terms", [(2**31 - 7, 3), (2**31 + 5, 3), (3, 2**31 - 7)])
def test_what_32_bits_cannot_count_is_refused(rows, terms):
    module = load_text("f", build(ATTENTION).source)
    q, k, v, y = (
        torch.zeros((), dtype=torch.float16).expand(1, size, 1)
        for size in (rows, terms, terms, rows)
    )
    with pytest.raises(
        ValueError, match=f"f: its kernels count up to 2,000,000,000, given {max(rows, terms)}"
    ):
        module.launch_f(q, k, v, y)
