"""Bounds that are conditions on the values of the dims: windows, ends by min and max, ends that are read."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tritongen
from tests.schedule import conditions


@pytest.mark.parametrize("bound", conditions.CONDITIONS)
def test_a_bound_masks_the_dim(bound):
    """Forwards and gradients in f64, whatever the lengths are; of nothing sum 0, max -inf, mean NaN, place -1."""
    f = tritongen.compile_op(conditions.op_of(bound))
    for S, L, w in conditions.SIZES:
        given = conditions.operands(S, L, torch.float64)
        mask = conditions.mask_of(bound, given, w)
        own = [t.clone().requires_grad_() for t in given[:3]]
        args, names = conditions.call_of(bound, (*own, *given[3:]), w)
        got = f(*args, **names)
        twins = [t.clone().requires_grad_() for t in given[:3]]
        wanted = conditions.masked(mask, (*twins, *given[3:]))
        torch.testing.assert_close(got, wanted, equal_nan=True)
        some = mask.any(1)  # what nothing gives has no gradient in torch
        weights = [torch.randn_like(t) for t in wanted[:5]]
        for results in (got, wanted):
            sum((t * c)[some].sum() for t, c in zip(results[:5], weights, strict=True)).backward()
        for t, twin in zip(own, twins, strict=True):
            torch.testing.assert_close(t.grad, twin.grad)


@pytest.mark.slow
def test_in_every_variant(run_checks):
    run_checks("conditions_checks.py")


def test_an_index_free_end_lies_within_the_dims():
    f = tritongen.compile_op("op f(x: f32[N, D]) -> y: f32[N] { y[n] = sum[n <= k < 5](x[n, k]) }")
    x = torch.randn(3, 6)
    torch.testing.assert_close(f(x), torch.stack([x[n, n:5].sum() for n in range(3)]))
    with pytest.raises(ValueError, match="requires D >= 5"):
        f(torch.randn(3, 4))


def test_with_else_a_window_leaves_the_dims():
    """Then no dim says what the index takes: the bound does, and outside is what `else` says."""
    f = tritongen.compile_op(
        "op f(x: f32[N]) -> y: f32[N] { y[i] = mean[i - 1 <= k <= i + 1](x[k] else 0) }"
    )
    x = torch.randn(7)
    padded = torch.nn.functional.pad(x, (1, 1)).unfold(0, 3, 1)
    torch.testing.assert_close(f(x), padded.mean(1))


def test_an_own_line_for_an_end_starts_where_its_index_does():
    """`max(k, w)` under a k that starts at 2: the line that holds it is counted from 0."""
    text = "sum[2 <= k < 6](sum[max(k - 1, 1) <= j < max(k, w[n])](x[n, k] * x[n, j]))"
    f = tritongen.compile_op(f"op f(x: f64[N, D], w: i8[N]) -> y: f64[N] {{ y[n] = {text} }}")
    x, w = torch.randn(4, 7, dtype=torch.float64), torch.tensor([-3, 2, 5, 100], dtype=torch.int8)
    k, j = torch.arange(7)[None, :, None], torch.arange(7)[None, None, :]
    mask = (2 <= k) & (k < 6) & (j >= k - 1) & (j >= 1) & ((j < k) | (j < w[:, None, None]))
    wanted = torch.where(mask, x[:, :, None] * x[:, None, :], 0).sum((1, 2))
    torch.testing.assert_close(f(x, w), wanted)


@pytest.mark.parametrize("value", conditions.EMPTY)
def test_an_extreme_of_an_empty_dim_raises(value):
    """In a call, in one with a gradient, under vmap, where shapes are all that is known, and in the reference."""
    f, x = tritongen.compile_op(conditions.op_of_empty(value)), torch.randn(conditions.EMPTY[value])
    with pytest.raises(ValueError, match="requires (D|...) > 0"):
        f(x)
    with pytest.raises(ValueError, match="requires (D|...) > 0"):
        f(x.requires_grad_())
    with pytest.raises(ValueError, match="requires (D|...) > 0"):
        torch.func.vmap(f)(x.detach()[None])
    with FakeTensorMode(), pytest.raises(ValueError, match="requires (D|...) > 0"):
        f(torch.empty(conditions.EMPTY[value]))
    with pytest.raises(IndexError, match="non-zero size"):
        f.reference(x.detach())


def test_an_empty_bound_leaves_nothing():
    f = tritongen.compile_op("op f(x: f32[N, D]) -> y: f32[N] { y[n] = max[d < D](x[n, d]) }")
    x = torch.randn(3, 0, requires_grad=True)
    f(x).sum().backward()
    assert f(x).tolist() == [-torch.inf] * 3 and x.grad.shape == (3, 0)
    softmax = tritongen.compile_op("op f(x: f32[N, D]) -> y: f32[N, D] { y = softmax(x) }")
    assert softmax(x).shape == torch.softmax(x, 1).shape


def test_a_mean_counts_what_all_ends_let_through():
    text = "y[i, j] = mean[k <= min(i, j)](x[k])  z[i, j] = mean[k >= max(i, j)](x[k])"
    f = tritongen.compile_op(f"op f(x: f32[N]) -> (y: f32[N, N], z: f32[N, N]) {{ {text} }}")
    x = torch.randn(6)
    wanted = [
        torch.stack([torch.stack([x[part(i, j)].mean() for j in range(6)]) for i in range(6)])
        for part in (lambda i, j: slice(min(i, j) + 1), lambda i, j: slice(max(i, j), 6))
    ]
    torch.testing.assert_close(f(x), tuple(wanted))
