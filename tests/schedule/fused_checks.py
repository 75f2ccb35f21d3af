"""Chains of products as one kernel, each variant forced, against torch in f64: run by `test_fused.py`."""

from __future__ import annotations

from random import Random

import pytest
import torch

from tritongen.pipeline import build
from tritongen.proof.variants import Way, forced
from tritongen.runtime.load import load_text

SPEC = """op f<T: f16 | bf16>(q: T[..., S, E], k: T[..., L, E], v: T[..., L, F], n: i32[S]) -> o: T[..., S, F] {
  s[..., i, j] = sum[e](q[..., i, e] * k[..., j, e]) / 4
  m[..., i]    = max[j BOUND](s[..., i, j])
  p[..., i, j] = exp(s[..., i, j] - m[..., i])
  o[..., i, f] = sum[j BOUND](T(p[..., i, j]) * v[..., j, f]) / sum[j BOUND](p[..., i, j])
}"""
BOUNDS = {
    "": lambda i, j, n: j >= 0,
    "<= i": lambda i, j, n: j <= i,
    "< n[i]": lambda i, j, n: j < n,
}


def spec_of(bound: str) -> str:
    unread = ", n: i32[S]" if "n" not in bound else ""
    return SPEC.replace("BOUND", bound).replace(unread, "", 1)


@pytest.mark.parametrize("bound", BOUNDS)
def test_each_variant_of_a_chain(bound):
    built = build(spec_of(bound), "f.op")
    plan = built.plans["f"][0]
    (step,) = plan.steps
    assert step.skeleton == "fused"
    module, random = load_text("f", built.raw), Random(bound)
    for variant in step.variants:
        for shape in ((), (2, 3)):
            S, L, E, F = (random.choice((1, 5, 17, 33)) for _ in range(4))
            L = max(L, S)
            q, k, v = (torch.randn(*shape, *d).half() for d in ((S, E), (L, E), (L, F)))
            n = torch.randint(1, L + 1, (S,), dtype=torch.int32)
            args = (q, k, v, n) if "n" in bound else (q, k, v)
            with forced(module, plan, Way(variant.name, ((step.name, variant.name),)), True):
                got = module.f(*args)
            inside = BOUNDS[bound](torch.arange(S)[:, None], torch.arange(L)[None, :], n[:, None])
            s = (q.double() @ k.double().mT / 4).masked_fill(~inside, -torch.inf)
            torch.testing.assert_close(
                got.double(), torch.softmax(s, -1) @ v.double(), rtol=4e-3, atol=2e-3
            )
