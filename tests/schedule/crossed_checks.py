"""Gradients of norms in one pass over their rows, each variant forced, against torch in f64: run by `test_crossed.py`."""

from __future__ import annotations

import pytest
import torch

from tritongen.pipeline import build
from tritongen.proof.variants import Way, forced
from tritongen.runtime.load import load_text

LAYER = """op f<T: float, U: float>(x: T[..., D], w: U[D], b: U[D]) -> y: T[..., D] {
  mu[...]   = mean[d](x[..., d])
  var[...]  = mean[d]((x[..., d] - mu[...]) ** 2)
  y[..., d] = (x[..., d] - mu[...]) * rsqrt(var[...] + 1e-3) * w[d] + b[d]
}"""
RMS = """op f<T: float, U: float>(x: T[..., D], w: U[D], b: U[D]) -> y: T[..., D] {
  y[..., d] = x[..., d] * rsqrt(mean[k](x[..., k] ** 2) + 1e-3) * w[d] + b[d]
}"""
SPECS = {"layer": LAYER, "rms": RMS}
DTYPES = {torch.float32: 2e-6, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
SHAPES = ((1, 1), (7, 33), (2, 3, 100), (40, 17), (5,), (0, 5), (3, 0))
LAYOUTS = {
    "in order": lambda t: t,
    "columns apart": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
    "every second": lambda t: torch.stack([t, t], -1).flatten(-2)[..., ::2],
    "one row": lambda t: t[:1].expand(t.shape) if t.dim() > 1 else t,
}


def gradients(name: str, x, w, b, dy):
    """In f64, of what the operands hold."""
    x, w, b = (t.double().requires_grad_() for t in (x, w, b))
    mu = x.mean(-1, keepdim=True) if name == "layer" else 0
    y = (x - mu) * torch.rsqrt(((x - mu) ** 2).mean(-1, keepdim=True) + 1e-3) * w + b
    return torch.autograd.grad(y, (x, w, b), dy.double())


def modules(name: str):
    built = build(SPECS[name], "f.op", gradients=True)
    item = built.items[0]
    back = (item.forward or item).backward
    assert back is not None
    return load_text("f", built.raw), back.plans[0]


@pytest.mark.parametrize("name", SPECS)
def test_each_variant(name):
    module, plan = modules(name)
    (step,) = plan.steps
    assert step.skeleton == "crossed"
    torch.manual_seed(0)
    for variant in step.variants:
        for dtype, tolerance in DTYPES.items():
            for k, shape in enumerate(SHAPES):
                layout = list(LAYOUTS.values())[k % len(LAYOUTS)]
                x, dy = (layout(torch.randn(shape)).to(dtype) for _ in range(2))
                w, b = torch.randn(2, shape[-1]).to(dtype)
                want = gradients(name, x, w, b, dy)
                with forced(module, plan, Way(variant.name, ((step.name, variant.name),)), True):
                    got = module.f_backward(x, w, dy)
                for own, right in zip(got, want, strict=True):
                    torch.testing.assert_close(
                        own.double(), right, rtol=tolerance, atol=tolerance * (1 + len(shape))
                    )


@pytest.mark.parametrize("name", SPECS)
def test_what_is_no_number_stays_in_its_row(name):
    module, plan = modules(name)
    (step,) = plan.steps
    for variant in step.variants:
        x, dy = torch.randn(2, 5, 33)
        x[2, 7] = torch.nan
        dy[4, 1] = torch.inf
        w, b = torch.randn(2, 33)
        want = gradients(name, x, w, b, dy)
        with forced(module, plan, Way(variant.name, ((step.name, variant.name),)), True):
            got = module.f_backward(x, w, dy)
        for own, right in zip(got, want, strict=True):
            assert (own.isfinite() == right.isfinite()).all()


@pytest.mark.parametrize("name", SPECS)
def test_two_runs_are_alike(name):
    module, _ = modules(name)
    x, dy = torch.randn(2, 67, 40)
    w = torch.randn(40)
    first, second = (module.f_backward(x, w, dy) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_block_of_minus_infinities_is_no_maximum():
    """Sums that move with a maximum, where the first block of a row has no other."""
    built = build(
        """op f(x: f32[N, D]) -> (y: f32[N, D], c: f32[D]) {
          y = softmax(x)
          c[d] = sum[n](x[n, d] * y[n, d])
        }""",
        "f.op",
    )
    module, plan = load_text("f", built.raw), built.items[0].plans[0]
    step = next(s for s in plan.steps if s.skeleton == "crossed")
    x = torch.randn(3, 10000)
    x[1, :8192] = -torch.inf
    for variant in step.variants:
        with forced(module, plan, Way(variant.name, ((step.name, variant.name),)), True):
            torch.testing.assert_close(module.f(x)[0], x.softmax(-1))


def test_a_shift_of_minus_infinity_is_nan():
    built = build(
        """op f(x: f32[N, D]) -> (l: f32[D], r: f32[N]) {
          m[d] = max[n](x[n, d])
          l[d] = sum[n](exp(x[n, d] - m[d]))
          r[n] = sum[d](x[n, d] * x[n, d])
        }""",
        "f.op",
    )
    module, plan = load_text("f", built.raw), built.items[0].plans[0]
    (step,) = plan.steps
    assert step.skeleton == "crossed"
    x = torch.randn(30, 5)
    x[:, 1] = -torch.inf
    for variant in step.variants:
        with forced(module, plan, Way(variant.name, ((step.name, variant.name),)), True):
            want = (x - x.amax(0)).exp().sum(0)
            torch.testing.assert_close(module.f(x)[0], want, equal_nan=True)
