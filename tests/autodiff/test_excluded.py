"""Gradients where what is excluded overflows: a branch not taken, a term outside of bounds, contributes 0."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch

from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.ir.interp import run
from tritongen.ir.nodes import Reduce
from tritongen.syntax.parse import parse


def grads(text: str, **args) -> dict[str, torch.Tensor]:
    (op,) = check(parse(text))[-1].typings
    outputs = run(op, args)
    assert all(bool(y.isfinite().all()) for y in outputs.values())
    back, seed = gradient(op), torch.Generator().manual_seed(7)
    dys = {
        f"d{n}": torch.randn(y.shape, generator=seed, dtype=torch.float64)
        for n, y in outputs.items()
    }
    known = {**args, **outputs, **dys}
    return run(back, {p.name: known[p.name] for p in back.params})


def row(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


POINTWISE = {
    "where": ("t[n] = exp(x[n]); y[n] = where(x[n] < 3, t[n], 0)", 1000.0),
    "the other branch": ("t[n] = log(x[n]); y[n] = where(x[n] == 0, 0, t[n])", 0.0),
    "a negation": ("t[n] = exp(x[n]); y[n] = where(not x[n] > 3, t[n], 0)", 1000.0),
    "a chain": ("t[n] = exp(x[n]); s[n] = t[n] * t[n]; y[n] = where(n < 2, s[n], 0)", 500.0),
    "one of two": (
        "t[n] = exp(x[n]); y[n] = where(n == 0, t[n], 0) + where(x[n] == 2, t[n] * t[n], 0)",
        1000.0,
    ),
    "one value in two": (
        "y[n] = where(x[n] < 3, exp(x[n]), 0) - where(x[n] < 2, exp(x[n]), 0)",
        1000.0,
    ),
    "moved": ("t[n] = exp(x[n]); y[n] = t[n - 1] else 0", 1000.0),
    "a sum of those before": ("t[n] = exp(x[n]); y[n] = sum[k < n](t[k])", 1000.0),
    "a lesser number": ("t[n] = exp(x[n]); y[n] = min(t[n], 9)", 1000.0),
    "no less than 0": ("t[n] = -exp(x[n]); y[n] = relu(t[n])", 1000.0),
    "between two": ("t[n] = exp(x[n]); y[n] = clamp(t[n], 0, 9)", 1000.0),
    "a minimum": ("t[n] = exp(x[n]); y[n] = min[k](t[k]) + x[n] * 0", 1000.0),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_what_is_excluded_is_multiplied_by_nothing(name):
    body, value = POINTWISE[name]
    lines = "\n".join(body.split("; "))
    text = f"op f<T: float>(x: T[N]) -> y: T[N] {{\n{lines}\n}}"
    dx = grads(text, x=row(1, 2, value))["dx"]
    assert dx.isfinite().all() and dx[2] == 0


ATTENTION = """op f<T: float>(q: T[S, E], k: T[L, E], v: T[L, E]{more}) -> o: T[S, E] {{
  c[i, j] = sum[e](q[i, e] * k[j, e])
  m[i] = max[j{bound}](c[i, j])
  p[i, j] = exp(c[i, j] - m[i])
  o[i, e] = sum[j{bound}](p[i, j] * v[j, e]) / sum[j{bound}](p[i, j])
}}"""


def qkv(scale: float) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {n: scale * torch.randn(6, 4, dtype=torch.float64) for n in "qkv"}


def by_torch(args: dict[str, torch.Tensor], mask: torch.Tensor) -> dict[str, torch.Tensor]:
    leaves = {n: args[n].clone().requires_grad_() for n in "qkv"}
    scores = (leaves["q"] @ leaves["k"].T).masked_fill(~mask, -inf)
    o = scores.softmax(-1) @ leaves["v"]
    dy = torch.randn(o.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    found = torch.autograd.grad(o, list(leaves.values()), dy)
    return {f"d{n}": g for n, g in zip(leaves, found, strict=True)}


def test_causal_attention_whose_excluded_scores_overflow():
    args = qkv(40)
    found = grads(ATTENTION.format(more="", bound=" <= i"), **args)
    torch.testing.assert_close(found, by_torch(args, torch.ones(6, 6).tril().bool()))


def test_what_no_count_reaches_is_multiplied_by_nothing():
    """That some row has a term, its count says: no condition on the term's place does, so its gradient is asked."""
    text = "op f<T: float>(x: T[N], c: i64[M]) -> y: T[M] {\n  t[n] = exp(x[n])\n  y[m] = sum[n < c[m]](t[n])\n}"
    for value in (1000.0, nan):
        dx = grads(text, x=row(1, 2, value), c=torch.tensor([1, 2]))["dx"]
        assert dx.isfinite().all() and dx[2] == 0 and (dx[:2] != 0).all()


def test_ends_by_max_are_one_condition():
    """A bound's `max` is a line of its own, the same for all reducers between such ends."""
    text = ATTENTION.format(more="", bound=" < max(i + 1, 3)")
    args, mask = qkv(2), torch.ones(6, 6).tril().bool() | (torch.arange(6) < 3)
    torch.testing.assert_close(grads(text, **args), by_torch(args, mask))
    args["q"], mask = args["q"][:3], mask[:3]
    right = by_torch(args, mask)
    args["k"][3:] = args["v"][3:] = nan
    torch.testing.assert_close(grads(text, **args), right)


@pytest.mark.parametrize("padding", [1e20, inf, nan])
def test_attention_over_padding(padding):
    args, mask = qkv(2), torch.ones(6, 6, dtype=torch.bool)
    mask[:, 3:] = False
    right = by_torch(args, mask)
    for n in "kv":
        args[n][3:] = padding
    text = ATTENTION.format(more=", count: i64[1]", bound=" < count[0]")
    found = grads(text, **args, count=torch.tensor([3]))
    torch.testing.assert_close(found, right)


def test_keys_that_a_mask_excludes():
    args, mask = qkv(2), torch.arange(6) < 3
    right = by_torch(args, mask.expand(6, 6))
    args["k"][3:] = inf
    text = ATTENTION.format(more=", mask: bool[L]", bound="")
    text = text.replace(
        "sum[e](q[i, e] * k[j, e])", "where(mask[j], sum[e](q[i, e] * k[j, e]), -inf)"
    )
    torch.testing.assert_close(grads(text, **args, mask=mask), right)


def test_both_branches_need_no_condition():
    text = "op f<T: float>(x: T[N]) -> y: T[N] {\n  t[n] = exp(x[n])\n"
    text += "  y[n] = where(x[n] < 0, t[n], 0) + where(x[n] < 0, 0, 2 * t[n])\n}"
    back = gradient(check(parse(text))[0].typings[0])
    (dx,) = (nest.body for nest in back.nests if nest.name == "dx")
    assert dx.arg.fn == "mul"


def test_a_branch_that_no_result_takes_contributes_nothing():
    """autograd multiplies 0 by the NaN of a mean of nothing; without a condition so does the gradient."""
    value = "x[n, d] * rsqrt(v[n] + eps)"
    for taken, right in ((f"where(x[n, d] < 3, {value}, 0)", 0.0), (value, nan)):
        text = f"{{ v[n] = mean[d](x[n, d] ** 2)  y[n, d] = {taken} }}"
        text = f"op f<T: float>(x: T[N, D], eps: f64) -> y: T[N, D] {text}"
        found = grads(text, x=torch.zeros(3, 0, dtype=torch.float64), eps=1e-5)
        assert found["dx"].shape == (3, 0)
        torch.testing.assert_close(found["deps"].item(), right, equal_nan=True)


def chain(layers: int) -> str:
    """Each layer reads the exponentials of the layer before under a window, whose first place is outside."""
    weights = ", ".join(f"w{k}: f64[R]" for k in range(layers))
    lines = ["t0[p < H] = exp(x[p])"]
    for k in range(layers):
        lines.append(f"a{k}[p < H] = sum[r]((t{k}[p + r - 1] else 0) * w{k}[r])")
        lines.append(f"t{k + 1}[p < H] = exp(a{k}[p] - 1)")
    lines.append(f"y[p] = a{layers - 1}[p]")
    return f"op f(x: f64[H], {weights}) -> y: f64[H] {{\n" + "\n".join(lines) + "\n}"


@pytest.mark.parametrize("taps", [1, 2, 3])
def test_places_that_no_layer_reads_contribute_nothing_however_deep(taps):
    """With one tap a layer reads no last place: what overflows there, and in front of it for the layers below, is not wanted."""
    seed = torch.Generator().manual_seed(taps)
    x = torch.rand(6, generator=seed, dtype=torch.float64)
    weights = {f"w{k}": torch.rand(taps, generator=seed, dtype=torch.float64) for k in range(3)}
    found = grads(chain(3), x=x, **weights)
    if taps == 1:
        wild = x.index_fill(0, torch.arange(3, 6), 1000.0)
        again = grads(chain(3), x=wild, **weights)
        assert all(torch.equal(again[name], found[name]) for name in found)
    leaf = x.clone().requires_grad_()
    t = leaf.exp()
    for w in weights.values():
        padded = torch.nn.functional.pad(t, (1, max(0, taps - 2)))[: 6 + taps - 1]
        a = (padded.unfold(0, taps, 1)[:6] * w).sum(-1)
        t = (a - 1).exp()
    dy = torch.randn(6, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    (want,) = torch.autograd.grad(a, leaf, dy)
    torch.testing.assert_close(found["dx"], want)


def test_the_bounds_of_a_chain_do_not_add_up():
    """Each layer's follow from those of the next one; eight layers were refused as too much work."""

    def most(layers: int) -> int:
        (op,) = check(parse(chain(layers)))[-1].typings
        bodies = [nest.body for nest in gradient(op).nests]
        return max(len(body.guards) for body in bodies if isinstance(body, Reduce))

    assert most(8) == most(3) <= 2
