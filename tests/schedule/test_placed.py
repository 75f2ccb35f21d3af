"""Every view of a plan is held to the reads that it stands for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tritongen import pipeline
from tritongen.faults import CompilerFault
from tritongen.ir.bounds import facts_of
from tritongen.schedule import form_of
from tritongen.schedule.classes import pointwise
from tritongen.schedule.placed import (
    Misplaced,
    verify_grids,
    verify_order,
    verify_places,
    verify_scratch,
    verify_stores,
)

SPECS = Path(__file__).parents[2] / "specs"
BATCHED = "op f<T: float>(x: T[B, M, K], w: T[B, K, N]) -> y: T[B, M, N] { y[b, m, n] = sum[k](x[b, m, k] * w[b, k, n]) }"


def planted(step):
    """The step with two dims of a view, of tiles or of merged dims the other way round, each by itself."""
    for k, kernel in enumerate(step.kernels):
        for field in ("views", "tiles", "stored"):
            if kernel.skeleton == "patches" and field != "views":
                continue
            for n, view in enumerate(getattr(kernel, field)):
                if len(view.runs) < 2 or view.runs[0] == view.runs[1]:
                    continue
                a, b, *rest = view.runs
                seen = list(getattr(kernel, field))
                seen[n] = replace(view, runs=(b, a, *rest))
                kernels = list(step.kernels)
                kernels[k] = replace(kernel, **{field: tuple(seen)})
                yield replace(step, kernels=tuple(kernels))
    for n, (tensor, at) in enumerate(step.merged):
        if at:
            merged = list(step.merged)
            merged[n] = tensor, (*at[:-1], at[-1] - 1)
            yield replace(step, merged=tuple(merged))


@pytest.mark.parametrize("name", ["softmax", "group_norm", "conv2d", "cumsum", "bias_add", "bmm"])
def test_a_view_with_its_dims_swapped_is_no_view(name):
    text = BATCHED if name == "bmm" else (SPECS / f"{name}.op").read_text()
    found = 0
    for plan in next(iter(pipeline.build(text).plans.values())):
        dims = {t.name: t.dims for t in (*plan.inner.tensors, *plan.inner.outputs)}
        dims = {n.name: n.dims for n in plan.nests} | dims
        facts = facts_of(plan.inner)
        for step in plan.steps:
            for wrong in planted(step):
                with pytest.raises(Misplaced, match=plan.name):
                    verify_places(plan.name, wrong, plan.nests, dims, facts)
                found += 1
    assert found


def test_dims_that_are_merged_wrongly_are_told(monkeypatch):
    """What reads a dim twice is no broadcast, and the planner says so where a class does not."""
    own = pointwise._merged_dims

    def merged(group, stores, touched, dims):
        distinct = [(t, c) for t, c in touched if len(set(c)) == len(c)]
        found = own(group, stores, distinct, dims)
        return found and (*found, *((t, (0, 0)) for t, c in touched if len(set(c)) < len(c)))

    monkeypatch.setattr(pointwise, "_merged_dims", merged)
    text = "op f<T: float>(x: T[B, B], z: T[B, C]) -> y: T[B, C] { y[i, j] = x[i, i] * z[i, j] }"
    with pytest.raises(CompilerFault, match=r"f.*: merged dims are not x.*\[i.*, i.*\]"):
        pipeline.build(text)


def test_a_dim_of_one_that_is_broadcast_is_told(monkeypatch):
    """The launch broadcasts dims, so the number of an element is not enough: a[..., i, 0] beside c[..., i]."""

    def flat(name, group, stores, dims, facts):
        axes = (pointwise.Axis("i", group.row),)
        seen = pointwise.views(pointwise.accesses(group.nests, stores, dims), dims, axes, facts)
        return pointwise._flat(name, group, stores, axes, seen)

    monkeypatch.setattr(pointwise, "make", flat)
    text = "op f<T: float>(a: T[..., D, 1], c: T[..., D]) -> y: T[..., D] { y[..., i] = c[..., i] + a[..., i, 0] }"
    with pytest.raises(CompilerFault, match="Misplaced"):
        pipeline.build(text)


@pytest.mark.parametrize("name", ["attention", "layer_norm"])
def test_a_grid_that_lacks_an_index_is_told(name):
    """Of two gradients of attention one kernel looped over heads, and the other had one head's programs."""
    built = pipeline.build((SPECS / f"{name}.op").read_text(), gradients=True)
    found = 0
    for item in built.items:
        for own in item.printed:
            for step in (step for plan in own.plans for step in plan.steps):
                verify_grids("f", step)
                for k, variant in enumerate(step.variants):
                    run = variant.launches[0]
                    if step.kernel(run.kernel).kernel is None:
                        continue
                    wrong = replace(run, grid=(f"2 * ({run.grid[0]})",))
                    other = replace(variant, launches=(wrong, *variant.launches[1:]))
                    variants = (*step.variants[:k], other, *step.variants[k + 1 :])
                    with pytest.raises(Misplaced, match="programs for"):
                        verify_grids("f", replace(step, variants=variants))
                    found += 1
    assert found > 3


def test_a_step_that_reads_what_a_later_one_computes_is_found():
    text = """op f(x: f32[N, K]) -> y: f32[N, K] {
        m[n] = max[k](x[n, k])
        y[n, k] = x[n, k] - sum[j](m[j])
    }"""
    plan = pipeline.build(text).plans["f"][0]
    _, groups = form_of(plan.inner, plan.nests, facts_of(plan.inner), None)
    verify_order("f", groups)
    assert len(groups) > 1
    with pytest.raises(Misplaced, match="before it is computed"):
        verify_order("f", groups[::-1])


def test_a_variant_that_leaves_a_value_unstored_is_told():
    """A sum went straight into an output, and a later step read the line that it was the sum of."""
    built = pipeline.build((SPECS / "embedding.op").read_text(), gradients=True)
    steps = [s for i in built.items for own in i.printed for p in own.plans for s in p.steps]
    assert any(variant.name == "sparse" for step in steps for variant in step.variants)
    for step in steps:
        verify_stores("f", step)
        with pytest.raises(Misplaced, match="does not store more"):
            verify_stores("f", replace(step, stores=(*step.stores, "more")))
        for variant in (v for v in step.variants if v.name == "sparse"):
            late = replace(variant, launches=variant.launches[::-1])
            with pytest.raises(Misplaced, match="not stored yet"):
                verify_stores("f", replace(step, variants=(late,)))


def test_scratch_of_another_shape_is_told():
    """Of two sums at one place, one was a table of [j, l] and the other one of [l, j]. Both had the dims of the first."""
    built = pipeline.build((SPECS / "embedding.op").read_text(), gradients=True)
    steps = [s for i in built.items for own in i.printed for p in own.plans for s in p.steps]
    found = 0
    for step in steps:
        for variant in step.variants:
            for k, (name, dtype, shape) in enumerate(variant.scratch):
                held = {n.name for run in variant.launches for n in step.kernel(run.kernel).nests}
                if name not in held or len(set(shape)) < 2:
                    continue
                scratch = [*variant.scratch]
                scratch[k] = name, dtype, shape[::-1]
                wrong = replace(variant, scratch=tuple(scratch))
                with pytest.raises(Misplaced, match="has dims"):
                    verify_scratch("f", replace(step, variants=(wrong,)))
                found += 1
    assert found
