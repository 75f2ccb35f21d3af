"""What runs as a scan or a scatter, and what must not; how it runs is proven with all other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritongen import pipeline
from tritongen.proof.crosscompile import crosscompile
from tritongen.schedule.rules import evaluate

ROOT = Path(__file__).parents[2]

SCANS = {
    "sum[k <= d](x[n, k])": True,
    "sum[k < d](x[n, k])": True,
    "max[k >= d](x[n, k])": True,
    "sum[d < k < D](x[n, D - 1 - k] ** 2)": True,
    "sum[2 <= k <= d](x[n, k] else 0)": True,
    "x[n, d] * mean[k <= d](w[k] * x[n, k])": True,
    "sum[k <= d](where(s[k] == 1, x[n, k], 0))": True,
    "sum[k <= n](x[d, k] else 0)": True,  # along n
    # Segments, windows, a term or an end that moves with d: no prefix of one sequence.
    "sum[k <= d](where(s[k] == s[d], x[n, k], 0))": False,
    "sum[d - 3 < k <= d](x[n, k] else 0)": False,
    "sum[k <= d](x[n, k] * (x[n, d - k] else 0))": False,
    "sum[k](where(2 * k <= d, x[n, k], 0))": False,
    "sum[k <= d + 1](x[n, k] else 0)": False,
}


def skeletons(text: str) -> set[str]:
    (plans,) = pipeline.build(text).plans.values()
    return {step.skeleton for plan in plans for step in plan.steps}


@pytest.mark.parametrize("body", SCANS)
def test_scans_are_prefixes_of_one_sequence(body):
    text = f"op f<T: float>(x: T[N, D], w: T[D], s: i64[D]) -> y: T[N, D] {{ y[n, d] = {body} + 0 * (w[d] + s[d]) }}"
    assert ("scan" in skeletons(text)) == SCANS[body]


def test_scans_of_one_axis_share_a_kernel_and_a_scan_of_a_scan_does_not():
    plan = pipeline.build("""
op f<T: float>(x: T[N, D]) -> (a: T[N, D], b: T[N, D], c: T[N, D], e: T[N, D]) {
  s[n, d < D] = sum[k <= d](x[n, k])
  a[n, d] = s[n, d] / (d + 1)
  b[n, d] = max[k < d](x[n, k])
  c[n, d] = sum[k <= d](s[n, k])
  e[n, d] = sum[k >= d](x[n, k])
}""").plans["f"][0]
    assert [set(step.stores) & set("abce") for step in plan.steps] == [{"a", "b"}, {"c"}, {"e"}]


SCATTERS = {
    "sum[n](where(ix[n] == v, x[n, d], 0))": True,
    "sum[n](where(ix[n] == v and x[n, d] > 0, x[n, d] ** 2, 0)) + y0[v, d]": True,
    "sum[n](where(ix[n] == v, x[n, d] * y0[v, d], 0))": False,  # the term needs its place
    "max[n](where(ix[n] == v, x[n, d], 0))": False,
    "sum[n](where(n == v, x[n, d], 0))": False,  # no read names the place
    "sum[n](where(ix[n] == v or ix[n] == 0, x[n, d], 0))": False,
}


@pytest.mark.parametrize("body", SCATTERS)
def test_scatters_are_sums_whose_terms_name_their_place(body):
    text = f"op f<T: float>(x: T[N, D], ix: i64[N], y0: T[V, D]) -> y: T[V, D] {{ y[v, d] = {body} + 0 * (y0[v, d] + ix[0]) }}"
    text = text.replace("ix[0]", "sum[m](ix[m])")
    assert ("scatter" in skeletons(text)) == SCATTERS[body]


@pytest.mark.parametrize(
    ("points", "places", "variants"),
    [
        (4000, 32000, ("scatter", "box")),
        (10**6, 32000, ("copies", "box")),
        (4000, 2**24, ("sparse", "box")),
    ],
)
def test_crowded_places_get_copies_empty_ones_no_sum_and_deterministic_torch_no_atomics(
    points, places, variants
):
    plan = pipeline.build((ROOT / "specs/index_add.op").read_text()).plans["index_add"][0]
    (step,) = plan.steps
    facts = {"rows": 4000, "cols": 8, "width": 8, "places": places, "points": points}
    chosen = tuple(
        next(v.name for v in step.variants if evaluate(v.when, facts | {"deterministic": d}))
        for d in (False, True)
    )
    assert chosen == variants


def test_a_carry_of_narrow_ints_keeps_its_type_in_the_loop():
    text = "op f<T: int>(x: T[N, D]) -> y: T[N, D] { y[n, d] = max[k >= d](x[n, k]) }"
    built = list(crosscompile(text, "f", ("sm_90",), ("i8",)))
    assert built and not [b for b in built if b.problem]
