"""Gradients of which a call asks for some: the others are neither stored nor returned, whatever kernel they share.

Run by `test_asked.py`, with TRITON_INTERPRET=1: without it a CPU runs the reference.
"""

from itertools import combinations

import pytest
import torch

import tritongen

OPS = {
    "one tile": "op f(x: f32[N, C], t: f32[N, C], w: f32[C]) -> y: f32[N, C] { y[n, c] = w[c] * x[n, c] * t[n, c] }",
    "a row of numbers, summed up": """
op f(x: f32[N, C], t: f32[N, C], w: f32[C]) -> y: f32 {
  y = mean[n, c]((1 - t[n, c]) * x[n, c] + (1 + (w[c] - 1) * t[n, c]) * softplus(-x[n, c]))
}""",
    "any dims": "op f<T: float>(x: T[...], t: T[...], w: T[...]) -> y: T[...] { y[...] = (x[...] - t[...]) ** 2 * w[...] }",
    "rows in registers": """
op f<T: float>(x: T[N, C], t: T[N, C], w: T[N, C]) -> y: T[N] {
  e[n, c] = exp(x[n, c] - max[k](x[n, k]))
  y[n] = sum[c](e[n, c] * t[n, c] * w[n, c]) / sum[k](e[n, k])
}""",
}


def test_operands_are_not_copied_to_where_a_result_would_be():
    """More than three dims are left to merge, so operands take the layout of the last result, which is not there."""
    f = tritongen.compile_op(OPS["any dims"])
    order = 4, 2, 0, 3, 1
    for k in range(3):
        leaves = [torch.randn(2, 3, 4, 5, 6).permute(order) for _ in range(2)]
        leaves.append(torch.randn(6, 4, 2, 5, 3))
        leaves[k].requires_grad_()
        x, t, w = (v.detach() for v in leaves)
        wanted = 2 * (x - t) * w, -2 * (x - t) * w, (x - t) ** 2
        (got,) = torch.autograd.grad(f(*leaves).sum(), [leaves[k]])
        torch.testing.assert_close(got, wanted[k])


@pytest.mark.parametrize("name", OPS)
def test_some_gradients_are_those_of_all(name):
    f = tritongen.compile_op(OPS[name])
    shape = (5,) if "w: f32[C]" in OPS[name] else (4, 5)
    for last in (False, True):  # the second of two ways in which the dims lie
        x, t, w = torch.randn(4, 5), torch.rand(4, 5), torch.rand(shape)
        x = x.T.contiguous().T if last else x
        leaves = [v.requires_grad_() for v in (x, t, w)]
        dy = torch.randn(f(*leaves).shape)
        whole = torch.autograd.grad(f(*leaves), leaves, dy)
        for size in (1, 2):
            for some in combinations(range(3), size):
                given = [v if k in some else v.detach() for k, v in enumerate(leaves)]
                found = torch.autograd.grad(f(*given), [given[k] for k in some], dy)
                for k, got in zip(some, found, strict=True):
                    assert torch.equal(got, whole[k]), (name, some, k)
