"""Chains of a product, folds over its columns and a second product are one kernel, where that is asked for."""

from pathlib import Path

import pytest
from fused_checks import BOUNDS, spec_of

from tritongen import pipeline


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_chain_is_one_step(bound):
    *_, step = pipeline.build(spec_of(bound), "f.op").plans["f"][0].steps
    assert step.skeleton == "fused" and step.stores == ("o",)


def test_what_a_loop_computes_is_no_result():
    text = spec_of("j").replace("o: T[..., S, F]", "(o: T[..., S, F], s: f32[..., S, L])")
    steps = pipeline.build(text, "f.op").plans["f"][0].steps
    assert all(step.skeleton != "fused" for step in steps)


def test_no_descriptor_takes_bool():
    """Triton 3.6 ends the process at one."""
    text = spec_of("j").replace("L, F]) ->", "L, F], keep: bool[S, L]) ->")
    text = text.replace("T(p[..., i, j])", "T(where(keep[i, j], p[..., i, j], 0))")
    (step,) = pipeline.build(text, "f.op").plans["f"][0].steps
    assert step.skeleton == "fused"
    boxes = {t for k in step.kernels for t in k.boxes}
    assert boxes == {"q", "k", "v"}


def test_a_place_is_a_fold_of_a_chain():
    """Top-1 of a product, and the nearest of many rows, store no scores."""
    text = """op f<T: f16 | bf16>(x: T[N, D], c: T[K, D]) -> (y: f32[N], at: i64[N]) {
      s[n, k] = sum[d](x[n, d] * c[k, d])
      y[n]    = max[k](s[n, k])
      at[n]   = argmax[k](s[n, k])
    }"""
    (step,) = pipeline.build(text, "f.op").plans["f"][0].steps
    assert step.skeleton == "fused" and set(step.stores) == {"y", "at"}


def test_columns_may_have_the_index_of_a_computed_factor():
    """`g` gives both one index. Blocks of columns e sum over other e, at which the kernel computes the factor again."""
    text = spec_of("j").replace("F]) ->", "E], g: f32[E]) ->").replace("F]", "E]")
    text = text.replace("{", "{\n  r[..., i, e] = T(q[..., i, e] * g[e])", 1)
    text = (
        text.replace("sum[e](q[", "sum[e](r[").replace("f]", "e]").replace("])\n}", "]) * g[e]\n}")
    )
    (step,) = pipeline.build(text, "f.op").plans["f"][0].steps
    assert (step.skeleton, step.stores) == ("fused", ("o",))


@pytest.mark.slow
def test_the_gradient_of_a_table_for_each_batch_stores_copies():
    """What reads ds elsewhere, or where an operand says, has a ds of its own: the other gradients stay one kernel each."""
    text = (Path(__file__).parents[1] / "programs/relative_attention.op").read_text()
    text = text.replace("table: f32[H, R]", "table: f32[B, H, R]").replace("table[h", "table[b, h")
    for item in pipeline.build(text, gradients=True).items:
        (plan,) = item.forward.backward.plans
        fused = {name for step in plan.steps if step.skeleton == "fused" for name in step.stores}
        assert {"dq", "dk", "dv"} <= fused and "dtable" not in fused
        large = {n.name for n in plan.scratch if len(n.dims) == 4 and n.name != "do_sum2"}
        assert large and all(name.endswith("_all") for name in large)


PROGRAMS = Path(__file__).parents[1] / "programs"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "packed_attention",
        "projected_attention",
        "rotated_attention",
        "relative_attention",
        "named_places",
    ],
)
def test_neither_an_attention_nor_its_gradient_stores_scores(name):
    """Of tables of biases, a sum over all batches is stored."""
    text = (PROGRAMS / f"{name}.op").read_text()
    for item in pipeline.build(text, gradients=True).items:
        if item.forward is None:
            continue
        plans = (*item.forward.plans, *item.forward.backward.plans)
        assert [p.chunks for p in plans] == [None] * len(plans)
        scores = [n for p in plans for n in p.scratch if {"i", "j"} <= {b.index for b in n.box}]
        assert all("b" not in {b.index for b in n.box} for n in scores), item.name


@pytest.mark.parametrize("name", ["target_loss", "info_nce"])
def test_an_element_of_a_row_is_a_fold_of_its_loop(name):
    """`z[n, t[n]]` and `s[i, i]`: read as they stand, all logits would be stored for one of each row."""
    text = (PROGRAMS / f"{name}.op").read_text().replace("f16 | bf16", "float")
    (item,) = pipeline.build(text, gradients=True).items
    plan, _ = item.forward.plans  # of half types, and of the others
    assert all(len(n.dims) == 1 for n in plan.scratch)
    # Else the gradient would take the product again for the statistics of rows.
    assert len(plan.op.kept) == 2


def test_each_variant(run_checks):
    run_checks("fused_checks.py")


def test_a_detached_maximum_is_fused_and_kept_as_any():
    """In `T: float`, too, whose half types have a kernel of their own."""
    path = Path(__file__).parents[2] / "specs/causal_attention.op"
    text = path.read_text().replace("f16 | bf16", "float")
    detached = text.replace("max[j <= i](s[b, h, i, j])", "detach(max[j <= i](s[b, h, i, j]))")
    assert text != detached
    shapes = []
    for each in (text, detached):
        built = pipeline.build(each, "f.op", gradients=True)
        shapes.append([[s.skeleton for s in p.steps] for p in built.plans["causal_attention"]])
        shapes[-1] += [len(built.plans[n]) for n in built.plans]
    assert shapes[0] == shapes[1]
    half = next(p for p in built.plans["causal_attention"] if p.name.endswith("half"))
    (step,) = half.steps
    assert step.skeleton == "fused"
    assert len(step.stores) == 3, "the gradient would take the product again"


def test_the_gradient_of_a_scale_leaves_the_others_fused():
    """It is f64 in `T: float`, since other calls of the op are. Calls of half types compute in f32."""
    path = Path(__file__).parents[2] / "specs/causal_attention.op"
    text = path.read_text().replace("f16 | bf16", "float")
    (item,) = pipeline.build(text, "f.op", gradients=True).items
    half, _ = item.forward.backward.plans
    fused = {name for step in half.steps if step.skeleton == "fused" for name in step.stores}
    assert {"dq", "dk", "dv"} <= fused
