"""Each number of an f8 type, infinities and NaN too, is in the interpreter what torch makes of it."""

from __future__ import annotations

import pytest
import torch

from tritongen import compile_op

KINDS = {"f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}


def numbers(kind: str) -> torch.Tensor:
    return torch.arange(256).to(torch.uint8).view(KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_widened(kind):
    twice = compile_op(f"op twice(x: {kind}[N]) -> y: f32[N] {{ y[n] = 2 * x[n] }}")
    x = numbers(kind)
    torch.testing.assert_close(twice(x), 2 * x.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_multiplied(kind):
    product = compile_op(
        f"op product(x: {kind}[M, K], w: {kind}[N, K]) -> y: f32[M, N] {{ y[m, n] = sum[k](x[m, k] * w[n, k]) }}"
    )
    x, w = numbers(kind)[:, None], torch.ones(1, 1).to(KINDS[kind])
    torch.testing.assert_close(product(x, w), x.float(), rtol=0, atol=0, equal_nan=True)
