"""Chains of products as one kernel, each variant forced, against torch in f64: run by `test_fused.py`."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch

from tritongen import lib
from tritongen.pipeline import build
from tritongen.proof.variants import Way, forced
from tritongen.runtime.load import load_text

PROGRAMS = Path(__file__).parents[1] / "programs"
SPEC = """op f<T: f16 | bf16>(q: T[..., S, E], k: T[..., L, E], v: T[..., L, F], n: i32[S]) -> o: T[..., S, F] {
  s[..., i, j] = sum[e](q[..., i, e] * k[..., j, e]) / 4
  m[..., i]    = max[BOUND](s[..., i, j])
  p[..., i, j] = exp(s[..., i, j] - m[..., i])
  o[..., i, f] = sum[BOUND](T(p[..., i, j]) * v[..., j, f]) / sum[BOUND](p[..., i, j])
}"""
BOUNDS = {
    "j": lambda i, j, n: j >= 0,
    "j <= i": lambda i, j, n: j <= i,
    "j < n[i]": lambda i, j, n: j < n,
    "n[i] - 3 <= j < n[i]": lambda i, j, n: (j >= n - 3) & (j < n),
    "j < min(n[i], i + 1)": lambda i, j, n: (j < n) & (j <= i),
    "i - 20 < j <= i": lambda i, j, n: (j > i - 20) & (j <= i),
}


def spec_of(bound: str) -> str:
    unread = ", n: i32[S]" if "n[" not in bound else ""
    return SPEC.replace("BOUND", bound).replace(unread, "", 1)


@pytest.mark.parametrize("square", (False, True), ids=("", "square"))
@pytest.mark.parametrize("bound", BOUNDS)
def test_each_variant_of_a_chain(bound, square):
    """Keys and values that no row has are NaN. `square`: one size of rows and keys, so that ends of both can be one.

    The first call has several blocks of rows and of keys, and parts of some each.
    """
    text = spec_of(bound)
    built = build(text.replace("L", "S") if square else text, "f.op")
    plan = built.plans["f"][0]
    *before, step = plan.steps
    assert step.skeleton == "fused" and all(s.stores == ("seen",) for s in before)
    module, random = load_text("f", built.raw), Random(bound)
    for variant in step.variants:
        for shape, S, L in (((), 70, 70), ((2, 3), 5, 17), ((), 1, 70))[: 1 if square else 3]:
            E, F = (random.choice((1, 5, 17, 33, 48)) for _ in range(2))
            q, k, v = (torch.randn(*shape, *d).half() for d in ((S, E), (L, E), (L, F)))
            n = torch.randint(1, L + 1, (S,), dtype=torch.int32)
            inside = BOUNDS[bound](torch.arange(S)[:, None], torch.arange(L)[None, :], n[:, None])
            s = (q.double() @ k.double().mT / 4).masked_fill(~inside, -torch.inf)
            want = torch.softmax(s, -1) @ v.double()
            k[..., ~inside.any(0), :] = v[..., ~inside.any(0), :] = torch.nan
            args = (q, k, v, n) if "n[" in bound else (q, k, v)
            with forced(module, plan, Way(variant.name, ((step.name, variant.name),)), True):
                got = module.f(*args)
            torch.testing.assert_close(got.double(), want, rtol=4e-3, atol=2e-3)


@pytest.mark.parametrize("bound", BOUNDS)
def test_each_variant_of_a_gradient(bound):
    """Rows are the loop of dk and dv: operands say at its index where it begins and ends. Some rows have no term."""
    built = build(spec_of(bound).replace("L", "S"), "f.op", gradients=True)
    module = load_text("f", built.raw)
    plans = [p for own in built.items[0].printed for p in own.plans if "dk" in str(p.op.outputs)]
    ways = [
        (plan, step, variant)
        for plan in plans
        for step in plan.steps
        if step.skeleton == "fused"
        for variant in step.variants
    ]
    assert {t for _, step, _ in ways for t in step.stores} >= {"dq", "dk", "dv"}
    E, F = Random(bound).sample((17, 40, 48), 2)  # 40 and 48 are two blocks each
    q, k, v = (torch.randn(70, d).half() for d in (E, E, F))
    i, n = torch.arange(70), torch.randint(0, 71, (70,), dtype=torch.int32)
    n[20:40] = 25 + n[20:40] % 3  # a run of rows that end at nearly one key
    inside = BOUNDS[bound](i[:, None], i[None, :], n[:, None])
    inside = inside & torch.ones(70, 70, dtype=torch.bool)
    theirs = [x.double().requires_grad_() for x in (q, k, v)]
    s = (theirs[0] @ theirs[1].mT / 4).masked_fill(~inside, -torch.inf)
    some = inside.any(1)
    want = torch.zeros(70, F, dtype=torch.float64)
    want[some] = torch.softmax(s[some], -1) @ theirs[2]
    weight = torch.where(some[:, None], torch.randn(70, F), 0).half()
    want.backward(weight.double())
    for plan, step, variant in ways:
        ours = [x.clone().requires_grad_() for x in (q, k, v)]
        out = module.f(*ours, n) if "n[" in bound else module.f(*ours)
        with forced(module, plan, Way(variant.name, ((step.name, variant.name),)), True):
            torch.where(some[:, None], out, 0).backward(weight)
        ours[0].grad[~some] = 0  # 0 / 0
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-2, atol=1e-2)


SINKS = """op f<T: f16 | bf16>(q: T[B, H, S, E], k: T[B, H, L, E], v: T[B, H, L, F], bias: T[H, S, L], sink: f32[H]) -> o: T[B, H, S, F] {
  s[b, h, i, j] = sum[e](q[b, h, i, e] * k[b, h, j, e]) / 4 + bias[h, i, j]
  m[b, h, i]    = max(max[j <= i](s[b, h, i, j]), sink[h])
  p[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i])
  l[b, h, i]    = sum[j <= i](p[b, h, i, j]) + exp(sink[h] - m[b, h, i])
  o[b, h, i, f] = sum[j <= i](T(p[b, h, i, j]) * v[b, h, j, f]) / l[b, h, i]
}"""


def with_sinks(q, k, v, bias, sink):
    s = (q @ k.mT / 4 + bias).masked_fill(torch.ones(bias.shape[1:]).triu(1).bool(), -torch.inf)
    sinks = sink[:, None, None].expand(*s.shape[:-1], 1)
    return torch.softmax(torch.cat([s, sinks], -1), -1)[..., :-1] @ v


def test_sinks_and_a_bias_with_their_gradients():
    """Each row has a term beside its own; the bias's gradient has both indices of the scores, and no batch."""
    built = build(SINKS, "f.op", gradients=True)
    steps = [s for item in built.items[0].printed for p in item.plans for s in p.steps]
    of = {t: s.skeleton for s in steps for t in s.stores}
    assert {of[t] for t in ("o", "dq", "dk", "dv", "dbias")} == {"fused"} and of["dsink"] == "rows"
    f = load_text("f", built.raw).f
    for S, L, big in ((17, 17, 1), (5, 33, 1), (33, 40, 100)):
        shapes = ((2, 3, S, 8), (2, 3, L, 8), (2, 3, L, 5), (3, S, L))
        halves = [torch.randn(d).half() for d in shapes]
        given = [*halves[:3], halves[3] * big, torch.tensor([0.5, 30.0, -torch.inf])]
        theirs = [x.double().requires_grad_() for x in given]
        ours = [x.clone().requires_grad_() for x in given]
        got, want = f(*ours), with_sinks(*theirs)
        weight = torch.randn(got.shape).half()
        got.backward(weight)
        want.backward(weight.double())
        for a, b in zip(
            (got, *(x.grad for x in ours)), (want, *(x.grad for x in theirs)), strict=True
        ):
            torch.testing.assert_close(a.double(), b, rtol=1e-2, atol=1e-2)


def test_a_row_of_minus_infinity_is_nan_in_a_later_step():
    """The step stores the sum of each row, and another one reads it."""
    text = """op f<T: f16 | bf16>(x: T[N, D], w: T[V, D]) -> y: f32 {
      z[n, v] = sum[d](x[n, d] * w[v, d])
      m[n]    = max[v](z[n, v])
      y       = sum[n](m[n] + log(sum[v](exp(z[n, v] - m[n]))))
    }"""
    f = load_text("f", build(text, "f.op").raw).f
    x, w = torch.rand(3, 2).half(), torch.rand(5, 2).half()
    torch.testing.assert_close(f(x, w), (x.float() @ w.float().mT).logsumexp(-1).sum())
    assert f(x, torch.full((5, 2), -torch.inf).half()).isnan()


def test_a_square_of_scores_is_stored_for_some_rows_at_a_time(monkeypatch):
    """Rows and columns have one size: only rows are cut, and the chunk knows its place on the diagonal."""
    monkeypatch.setattr(lib, "chunk_size", lambda *_: 2)
    built = build((PROGRAMS / "clip_loss.op").read_text(), "clip_loss.op", gradients=True)
    assert built.items[0].forward.backward.plans[0].chunks is not None
    f = load_text("f", built.raw).clip_loss
    given = [torch.randn(5, 3).half(), torch.randn(5, 3).half(), torch.tensor(1.5)]
    ours, theirs = (
        [x.clone().to(d).requires_grad_() for x in given] for d in (None, torch.float64)
    )
    f(*ours).backward()
    x, y, t = theirs
    s, at = t * (x @ y.mT), torch.arange(5)
    loss = torch.nn.functional.cross_entropy
    ((loss(s, at) + loss(s.mT, at)) / 2).backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-2, atol=1e-3)
