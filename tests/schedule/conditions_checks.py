"""Bounds that are conditions, in every variant, forwards and backwards: run by `test_conditions.py`, with TRITON_INTERPRET=1."""

from __future__ import annotations

import pytest
import torch

from tests.schedule import conditions
from tritongen import pipeline
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text


def parts_of(bound: str, only: str | None):
    """The module, and for the op, what keeps values for its gradient, and the gradient: each way to run it."""
    built = pipeline.build(conditions.op_of(bound), "f.op", only=only, gradients=True)
    (item,) = built.items
    parts = (item, item.forward, item.backward)
    plans = [part.plans[0] for part in parts if part is not None]
    return load_text("f", built.raw), [(plan, way) for plan in plans for way in ways(plan)]


@pytest.mark.parametrize("only", [None, "nest"])
@pytest.mark.parametrize("bound", conditions.CONDITIONS)
def test_forced(bound, only):
    module, found = parts_of(bound, only)
    for k, (plan, way) in enumerate(found):
        for S, L, w in conditions.SIZES if k == 0 else conditions.SIZES[:2]:
            given = conditions.operands(S, L, torch.float32)
            mask = conditions.mask_of(bound, given, w)
            own = [t.clone().requires_grad_(k > 0) for t in given[:3]]
            args, names = conditions.call_of(bound, (*own, *given[3:]), w)
            twins = [t.clone().requires_grad_(k > 0) for t in given[:3]]
            wanted = conditions.masked(mask, (*twins, *given[3:]))
            some = mask.any(1)
            with forced(module, plan, way, small=True):
                got = module.f(*args, **names)
                torch.testing.assert_close(got, wanted, equal_nan=True, rtol=1e-4, atol=1e-4)
                for results in (got, wanted) if k else ():
                    sum(t[some].cos().sum() for t in results[:5]).backward()
            for t, twin in zip(own, twins, strict=True):
                torch.testing.assert_close(t.grad, twin.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("only", [None, "nest"])
@pytest.mark.parametrize("value", conditions.EMPTY)
def test_an_extreme_of_an_empty_dim_raises(value, only):
    module = load_text("f", pipeline.build(conditions.op_of_empty(value), "f.op", only=only).raw)
    with pytest.raises(ValueError, match="requires (D|...) > 0"):
        module.f(torch.randn(conditions.EMPTY[value]))
