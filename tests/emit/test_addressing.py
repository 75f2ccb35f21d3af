"""How coordinates are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritongen import pipeline

SPEC = Path(__file__).parents[2] / "specs" / "conv_group_norm_silu.op"


def test_channels_of_groups_are_channels():
    """`n % Cg + n // Cg * Cg` is n: what a thread divided by itself took 320 of 430 us (56 x 3 x 248 x 5 to 264, H100)."""
    text = pipeline.build(SPEC.read_text()).raw
    kernels = [k for k in text.split("@triton.jit") if "tl.store(conv2d_" in k]
    assert len(kernels) >= 3
    assert not [k for k in kernels if "% Cg" in k]


@pytest.mark.slow
def test_products_of_more_than_32_bits(run_checks):
    run_checks("long_checks.py")
