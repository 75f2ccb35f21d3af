"""Products of sizes and of indices that need more than 32 bits: run by `test_addressing.py`, with TRITON_INTERPRET=1."""

from __future__ import annotations

import pytest
import torch

from tritongen import pipeline
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text

X, A, B, K = torch.randn(3, 7), torch.zeros(50000), torch.zeros(60000), torch.arange(3)
S, T, D = 50000, 60000, 7
LAST = torch.arange(49000, 49008)  # of the indices of a loop: times S they need 32 bits and more
N, E = torch.arange(3)[:, None], torch.arange(7)[None]
FAR = "49000 <= w < 49008"
LINES = {
    f"sum[{FAR}](x[n, (S * w) % D])": X[:, S * LAST % D].sum(1, keepdim=True).expand(3, 7),
    f"sum[{FAR}](x[n, (S * w + e) % D])": sum(X[:, (S * w + E[0]) % D] for w in LAST),
    f"sum[{FAR}](where((S * w) // 100000 >= 24502, x[n, e], 0))": X * 4,
    f"sum[{FAR}](where(S * w - k[n] >= 2450200000, x[n, e], 0))": X
    * (S * LAST[None] - K[:, None] >= 2450200000).sum(1, keepdim=True),
    f"sum[{FAR}](w * S + e)": (S * LAST).sum() + 8 * E.expand(3, 7),
    f"sum[{FAR}](w * c0 + e)": (S * LAST).sum() + 8 * E.expand(3, 7),
    f"sum[{FAR}](x[n, S * w] else 9)": torch.full((3, 7), 72.0),
    "x[n, (S * T + e) % D]": X[N, (S * T + E) % D],
    "x[n, (c0 * T - e) // 7 % D]": X[N, (S * T - E) // 7 % D],
    "x[n, e + S * T] else 9": torch.full((3, 7), 9.0),
    "x[n, e + S * T - k[n]] else 9": torch.full((3, 7), 9.0),
    "sum[e2 < D](where(S * T >= k[n] + e2 + e, x[n, e2], 0))": X.sum(1, keepdim=True).expand(3, 7),
    "sum[e2 < min(S * T - 2999999996, D)](x[n, e2])": X[:, :4].sum(1, keepdim=True).expand(3, 7),
    f"sum[{FAR}, e2 < min(S * w - 2449999997, D)](x[n, e2])": (
        X[:, :3].sum(1, keepdim=True) + 7 * X.sum(1, keepdim=True)
    ).expand(3, 7),
    "n * S * T + S * T + 100000 * S + (S * T) // 7 * e": (
        N * S * T + S * T + 100000 * S + S * T // 7 * E
    ),
}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("only", [None, "nest"])
def test_the_line(line, only):
    """Sizes and what loops count have 32 bits in a kernel."""
    kind = "i64" if not LINES[line].is_floating_point() else "f32"
    behind = f"{kind}(a[0] + b[0]) + 0 * c0 + 0 * k[n]"
    more = f" + 0 * {kind}(x[n, e])"
    text = (
        "op f(x: f32[N, D], a: f32[S], b: f32[T], k: i64[N], const c0: int = 50000) "
        f"-> y: {kind}[N, D]\n    with D > 0, S > 0, T > 0, c0 > 0 {{\n"
        f"  y[n, e] = ({line}) + {behind}{more}\n}}"
    )
    built = pipeline.build(text, "f.op", only=only)
    module, plan = load_text("f", built.raw), built.plans["f"][0]
    for way in ways(plan):
        with forced(module, plan, way, small=True):
            torch.testing.assert_close(module.f(X, A, B, K), LINES[line])


def test_rows_that_lie_as_lines():
    """Their columns are counted in 32 bits."""
    text = (
        "op f(x: f32[N, A, B], g: f32[A], w: f32[D], a: f32[S], b: f32[T]) -> y: f32[N, A, B]\n"
        "    with D > 0, S > 0, T > 0 {\n  m[n] = sum[i, j](x[n, i, j])\n"
        "  y[n, i, j] = (x[n, i, j] + m[n]) * g[i] * w[(S * T * i + j) % D] + a[0] + b[0]\n}"
    )
    built = pipeline.build(text, "f.op")
    module, plan = load_text("f", built.raw), built.plans["f"][0]
    x, g = torch.randn(3, 4, 6), torch.randn(4)
    place = (S * T * torch.arange(4)[:, None] + torch.arange(6)) % D
    want = (x + x.sum((1, 2), keepdim=True)) * g[:, None] * X[0][place]
    assert "lines" in {v.name for step in plan.steps for v in step.variants}
    for way in ways(plan):
        with forced(module, plan, way, small=True):
            torch.testing.assert_close(module.f(x, g, X[0].clone(), A, B), want)


@pytest.mark.parametrize("offset", [1 << 32, -(1 << 32), (1 << 31) - 2])
def test_windows_far_from_what_they_slide_along(offset):
    """Lanes of windows count in 32 bits: in those, 2**32 places on is the place itself."""
    text = """op f(x: f32[N, L], z: f32[N, P], const o: int = 0) -> y: f32[N, P] {
      y[n, p] = sum[k < 3](x[n, p + k + o] else 9) + z[n, p]
    }"""
    built = pipeline.build(text, "f.op")
    module, plan = load_text("f", built.raw), built.plans["f"][0]
    assert [step.skeleton for step in plan.steps] == ["window"]
    x, z = torch.randn(2, 40), torch.randn(2, 30)
    for way in ways(plan):
        with forced(module, plan, way, small=True):
            torch.testing.assert_close(module.f(x, z, offset), z + 27)
