"""Reducers over terms between numbers that operands hold: which kernels take them, and what these never store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritongen import pipeline
from tritongen.ir.algebra import size
from tritongen.kernel_text import parse_kernels, print_kernel
from tritongen.schedule.plan import Plan
from tritongen.show import gradient_text

FOUND = Path(__file__).parents[1] / "fuzz" / "found"
OPERANDS = {
    "x": "f32[N, D]",
    "z": "f32[N, K]",
    "w": "f32[N]",
    "r": "f32[Q, N]",
    "off": "i32[Q]",
}
WITHIN = "off[g] <= n < off[g + 1]"


@pytest.mark.parametrize(
    "line, kind",
    [
        (f"y[g, d] = sum[{WITHIN}](x[n, d])", "segments"),
        (f"y[g, d] = max[{WITHIN}](w[n] * x[n, d]) / max(off[g + 1] - off[g], 1)", "segments"),
        (f"y[g, d] = sum[{WITHIN}](exp(w[n] * g) * x[n, d])", "segments"),
        ("y[g, d] = sum[off[g] <= n < off[g + 1] + 3](x[n, d])", "segments"),
        ("y[g, d] = sum[n < off[g]](x[n, d])", "rows"),  # it begins at 0
        (f"y[g] = sum[{WITHIN}](r[g, n])", "rows"),  # each row is read once
        (f"y[g, k, d] = sum[{WITHIN}](z[n, k] * x[n, d])", "contraction"),
    ],
)
def test_what_is_a_segment(line, kind):
    operands = ", ".join(f"{n}: {t}" for n, t in OPERANDS.items() if f"{n}[" in line)
    left = line.split(" = ")[0]
    dims = ", ".join(i.strip().upper() for i in left[2:-1].split(","))
    op = f"op f({operands}) -> y: f32[{dims}] with G = Q - 1 {{ {line} }}"
    (plan,) = pipeline.build(op, "f.op").plans["f"]
    assert [step.skeleton for step in plan.steps] == [kind]


def plans_of(file: str) -> list[Plan]:
    """The plans of a file's ops and of their gradients."""
    text = (FOUND / file).read_text()
    both = (pipeline.build(each, "f.op") for each in (text, gradient_text(text, "f.op")))
    return [plan for built in both for plans in built.plans.values() for plan in plans]


def test_nothing_is_stored_for_all_segments_by_all_terms():
    plans = plans_of("softmax_over_segments.op")
    terms = [n.name for plan in plans for n in plan.scratch if size("E") in n.dims]
    assert len(plans) > 6 and not terms


def test_a_kernel_that_adds_has_a_text():
    kernels = [
        (print_kernel(k.kernel, plan.inner, plan.scratch), k.kernel)
        for plan in plans_of("sums_over_segments.op")
        for step in plan.steps
        for k in step.kernels
        if k.kernel is not None
    ]
    assert sum("  add " in text for text, _ in kernels) > 4
    assert all(parse_kernels(text) == (kernel,) for text, kernel in kernels)


def test_any_offsets(run_checks):
    run_checks("segments_checks.py")
