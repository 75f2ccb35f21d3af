"""Ragged products: rows in segments, each with a factor of its own."""

from __future__ import annotations

import pytest

from tritongen import pipeline

OPERANDS = {
    "x": "f16[M, K]",
    "w": "f16[E, K, N]",
    "b": "f16[N]",
    "off": "i32[E + 1]",
    "ends": "i32[M]",
}
SORTED = "off[e] <= m and m < off[e + 1]"


def skeletons(line: str) -> tuple[str, ...]:
    operands = ", ".join(f"{n}: {t}" for n, t in OPERANDS.items() if f"{n}[" in line)
    built = pipeline.build(f"op f({operands}) -> y: f16[M, N] {{ {line} }}", "f.op")
    return tuple(step.skeleton for step in built.plans["f"][0].steps)


@pytest.mark.parametrize(
    "line, one",
    [
        (f"y[m, n] = sum[e < E, k](where({SORTED}, x[m, k] * w[e, k, n], 0))", True),
        (f"y[m, n] = sum[k, e < E](where({SORTED}, w[e, k, n] * x[m, k], 0))", True),
        (f"y[m, n] = gelu(sum[e < E, k](where({SORTED}, x[m, k] * w[e, k, n], 0)) + b[n])", True),
        ("y[m, n] = sum[e < E, k](where(off[e] <= m, x[m, k] * w[e, k, n], 0))", True),
        ("y[m, n] = sum[e < E, k](where(off[e] <= m + k, x[m, k] * w[e, k, n], 0))", False),
        ("y[m, n] = sum[e < E, k](where(off[e] <= m + n, x[m, k] * w[e, k, n], 0))", False),
        ("y[m, n] = sum[e < E, k](where(e <= ends[m], x[m, k] * w[e, k, n], 0))", True),
        ("y[m, n] = sum[e < E, k](where(e == ends[m], x[m, k] * w[e, k, n], 0))", True),
        ("y[m, n] = sum[e < E, k](where(e == ends[m] + n, x[m, k] * w[e, k, n], 0))", False),
    ],
)
def test_what_is_ragged(line, one):
    assert skeletons(line) == (("ragged",) if one else ("rows",))


@pytest.mark.slow
def test_whatever_the_offsets_are(run_checks):
    run_checks("ragged_checks.py")


def test_a_bound_that_an_operand_holds_makes_products_and_a_named_place_a_scatter():
    """A product for each place that terms name would take all terms for each of them."""
    for operand, line, kind in (
        (
            "off: i32[E + 1]",
            "sum[off[e] <= m < off[e + 1]](x[m, k] * g[m, n]) + b[e]",
            "contraction",
        ),
        ("ids: i64[M]", "sum[m](where(ids[m] == e, x[m, k] * g[m, n], 0)) + b[e]", "scatter"),
    ):
        text = f"op f(x: f32[M, K], g: f32[M, N], b: f32[E], {operand}) -> y: f32[E, K, N]"
        built = pipeline.build(f"{text} {{ y[e, k, n] = {line} }}", "f.op")
        assert [step.skeleton for step in built.plans["f"][0].steps] == [kind]
