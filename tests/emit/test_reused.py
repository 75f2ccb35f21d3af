"""Steps that run an earlier step of their module: which do, and with which operands."""

from __future__ import annotations

import pytest

from tritongen.pipeline import build

SQUARE = (
    "op f<T: float>(a: T[N, N], b: T[N, N]) -> y: T[N, N] { y[m, n] = sum[k](a[m, k] * b[k, n]) }"
)
TOLD = "op f<T: float>(a: T[M, K], b: T[K, N]) -> y: T[M, N] with K == 2 * N { y[m, n] = sum[k](a[m, k] * b[k, n]) }"
PART = "op f<T: float>(a: T[M, K], b: T[K, N]) -> y: T[M, N] { y[m, n] = sum[k >= 1](a[m, k] * b[k, n]) }"
TYPES = "op f<T: f32, U: f16>(a: T[M, K], b: U[K, N]) -> y: T[M, N] { y[m, n] = sum[k](a[m, k] * b[k, n]) }"
BATCHES = "op f<T: float>(x: T[..., K], w: T[N, K]) -> y: T[..., N] { y[..., n] = sum[k](x[..., k] * w[n, k]) }"
HEADS = """op f<T: float>(a: T[B, M, H, K], b: T[B, H, K, N]) -> y: T[B, H, M, N] {
  y[b0, h, m, n] = sum[k](a[b0, m, h, k] * b[b0, h, k, n])
}"""


def reuses(text: str) -> dict[str, tuple[tuple[str, str, tuple[int, ...]], ...]]:
    printed = [own for item in build(text, gradients=True).items for own in item.printed]
    steps = [step for own in printed for plan in own.plans for step in plan.steps]
    return {step.stores[0]: step.reuses.given for step in steps if step.reuses}


@pytest.mark.parametrize("text", [SQUARE, TOLD, PART, TYPES])
def test_a_launch_for_some_sizes_terms_or_types_is_not_reused(text):
    assert "db" not in reuses(text)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (BATCHES, {"dx": {"x": ("dy", (0, 1)), "w": ("w", (1, 0)), "y": ("dx", (0, 1))},
                   "dw": {"x": ("dy", (1, 0)), "w": ("x", (1, 0)), "y": ("dw", (0, 1))}}),
        (HEADS, {"db": {"a": ("a", (0, 3, 2, 1)), "b": ("dy", (0, 1, 2, 3)), "y": ("db", (0, 1, 2, 3))}}),
    ],
)  # fmt: skip
def test_a_gradient_reuses_a_product_with_its_operands_turned(text, given):
    found = {name: {t: rest for t, *rest in each} for name, each in reuses(text).items()}
    assert {n: {t: tuple(v) for t, v in each.items()} for n, each in found.items()} == given
