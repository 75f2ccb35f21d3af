"""Norms of equal numbers in the interpreter: run by `test_rows.py`, with TRITON_INTERPRET=1."""

from __future__ import annotations

import pytest
import torch

from tritongen import pipeline
from tritongen.proof.variants import forced, ways
from tritongen.resources import folder
from tritongen.runtime.load import load_text

IN_ONE_LINE = """op in_one_line<T: float>(x: T[..., D], w: T[D], b: T[D]) -> y: T[..., D] {
  y[..., d] = (x[..., d] - mean[k](x[..., k]))
      * rsqrt(mean[k]((x[..., k] - mean[j](x[..., j])) ** 2) + 1e-5) * w[d] + b[d]
}"""
BUILT = {
    name: pipeline.build((folder("specs") / f"{name}.op").read_text(), name, gradients=True)
    for name in ("layer_norm", "group_norm", "batch_norm_train")
} | {"in_one_line": pipeline.build(IN_ONE_LINE, "in_one_line")}
MODULES = {name: load_text(name, built.raw) for name, built in BUILT.items()}
WAYS = [(name, way) for name, built in BUILT.items() for way in ways(built.plans[name][0])]


@pytest.mark.parametrize("name, way", WAYS, ids=lambda x: getattr(x, "name", x))
def test_what_is_left_of_equal_numbers_is_nothing(name, way):
    """x - mean(x) was one unit in the last place of x, 0.001, and the variance next to nothing: 0.295 came out."""
    for length in (3, 37):
        x, extra = torch.full((2, length), 12345.67), {}
        if name in ("group_norm", "batch_norm_train"):
            x = x[:, None, :, None].expand(2, 4, length, 3).contiguous()
            extra = {"groups": 2} if name == "group_norm" else {}
        channels = x.shape[1]
        with forced(MODULES[name], BUILT[name].plans[name][0], way, small=True):
            y = getattr(MODULES[name], name)(x, torch.ones(channels), torch.ones(channels), **extra)
        assert (y == 1).all()


def test_gradients_of_equal_numbers():
    x = torch.full((2, 37), 12345.67, requires_grad=True)
    w, b, dy = torch.randn(37), torch.randn(37), torch.randn(2, 37)
    (dx,) = torch.autograd.grad(MODULES["layer_norm"].layer_norm(x, w, b), x, dy)
    g = (dy * w).double()
    want = (g - g.mean(-1, keepdim=True)) * 1e-5**-0.5
    torch.testing.assert_close(dx, want.float(), rtol=1e-5, atol=1e-3)


def test_means_of_rows_that_are_not_finite():
    """The second look has nothing to say of them."""
    lines = "m[n] = mean[d](x[n, d])  v[n] = mean[d]((x[n, d] - m[n]) ** 2)"
    built = pipeline.build(f"op f(x: f32[N, D]) -> (m: f32[N], v: f32[N]) {{ {lines} }}", "f.op")
    module, inf = load_text("f", built.raw), torch.inf
    x = torch.ones(5, 40)
    x[0, 3], x[1, 39], x[2, 1], x[3, 0] = inf, -inf, torch.nan, inf
    x[3, 38] = -inf
    want = torch.tensor([inf, -inf, torch.nan, torch.nan, 1.0])
    for way in ways(built.plans["f"][0]):
        with forced(module, built.plans["f"][0], way, small=True):
            m, v = module.f(x)
        assert torch.equal(m.nan_to_num(7), want.nan_to_num(7)) and torch.equal(
            m.isnan(), want.isnan()
        )
        assert v[4] == 0 and v[:4].isnan().all()


@pytest.mark.parametrize("bound", ["d < c[n]", "c[0] - D <= d < c[n]"])
def test_means_of_some_terms(bound):
    """Equal numbers, and an infinite one, whose mean is infinite."""
    text = f"""op f<T: float>(x: T[N, D], c: i32[N]) -> (m: f32[N], y: T[N, D]) {{
      m[n] = mean[{bound}](x[n, d])
      v[n] = mean[{bound}]((x[n, d] - m[n]) ** 2)
      y[n, d] = (x[n, d] - m[n]) * rsqrt(v[n] + 1e-5)
    }}"""
    module = load_text("some_terms", pipeline.build(text, "some_terms").raw)
    for length in (3, 37):
        x = torch.full((3, length), 12345.67)
        x[1, 1], x[2, 2:] = torch.inf, 7.0
        m, y = module.f(x, torch.tensor([length, length, 2], dtype=torch.int32))
        assert m[1] == torch.inf and (y[0] == 0).all() and (y[2, :2] == 0).all()
