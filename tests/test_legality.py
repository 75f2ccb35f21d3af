"""What a variant requires, and that kernels which are forced, or drawn, are ones that a GPU takes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tritongen import pipeline
from tritongen.proof.crosscompile import crosscompile
from tritongen.proof.variants import may_run
from tritongen.schedule.rules import evaluate, names

ROOT = Path(__file__).parent.parent
SPECS = "softmax group_norm linear int8_linear conv1d conv2d conv_transpose2d max_pool2d index_add"
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 33, 64, 100, 128, 512, 1024, 4096, 1 << 15, 1 << 17, 1 << 22)
MOVING = """op moving_average<T: float>(x: T[N, L], const win: int = 2) -> y: T[N, L] {
  y[n, i] = mean[k < win](x[n, i - k] else 0)
}"""


def steps_of(name: str):
    built = pipeline.build((ROOT / "specs" / f"{name}.op").read_text(), name)
    return [step for plans in built.plans.values() for plan in plans for step in plan.steps]


@pytest.mark.parametrize("name", SPECS.split())
def test_what_is_chosen_is_legal(name):
    """`when` implies `requires`, which speaks of what the chooser is told."""
    random = Random(name)
    for step in steps_of(name):
        spoken = set().union(*(names(v.when) | names(v.requires) for v in step.variants))
        for v in step.variants:
            assert names(v.requires) <= names(v.when), v.name
        for _ in range(500):
            facts = {n: random.choice(NUMBERS) for n in spoken} | {"sms": 132}
            facts |= {n: bool(facts[n] % 2) for n in spoken & {"tma", "hip", "patched", "across"}}
            facts |= {"itemsize": random.choice((1, 2, 4, 8))}
            for v in step.variants:
                assert not evaluate(v.when, facts) or may_run(v, facts), (v.name, facts)
        assert step.variants[-1].requires == "True"


def test_a_window_that_runs_backwards_is_not_forced_into_runs(interpreter):
    (step,) = (s for (p,) in pipeline.build(MOVING).plans.values() for s in p.steps)
    runs = next(v for v in step.variants if v.name == "runs")
    facts = dict.fromkeys((n for n, _ in step.facts), 4) | {"itemsize": 4, "apart": 1}
    assert may_run(runs, facts | {"dilation": 1}) and not may_run(runs, facts | {"dilation": -1})
    job = {
        "text": MOVING,
        "name": "m.op",
        "device": "cpu",
        "examples": 2,
        "seed": 0,
        "seconds": 9.0,
    }
    assert not interpreter.ask(job, timeout=120)["failures"]


# A constexpr was given what divides it; factors of f32 met sums of f64; a tile to store had 8 bytes.
WINDOW_OF_A_SIZE = """op f<T: f32>(x: T[N, D], w: T[D]) -> y: T[N, D] {
  y[n, i] = sum[k]((x[n, i + k] else 0) * w[k])
}"""
MIXED = """op f<{}>(x: {}[M, K], w: {}[N, K], b: f64[N]) -> y: f64[M, N] {{
  y[m, n] = b[n] + sum[k](x[m, k] * w[n, k])
}}"""

# A pair of tiles to reduce had two shapes, as no row of theirs tells the values apart.
PLACE_OF_A_LINE = """op f<T: f32>(w: T[L], z: T[N]) -> (h: i64, p: i64[N]) {
  h = argmin[i](w[i])
  p[n] = argmax[i > n](2 * w[i]) * i64(z[n])
}"""

# Half a tile of 8 bytes an element left no room for three stages.
WIDE_TO_STORE = """op f(x: i8[M, K], w: i8[N, K]) -> y: i64[M, N] {
  y[m, n] = sum[k](x[m, k] * w[n, k])
}"""

# A line that is the same in all rows was folded with places that are not.
ONE_LINE_FOR_ALL = """op f(u: f32[M], z: f32[N]) -> p: i64[N] {
  e[n < N, m < M] = u[m] + 1
  p[n] = argmax[m](e[n, m]) + i64(z[n])
}"""
# A line read at `j / 2` has `-(j / 2) // 2` in it: `/` is no division of whole numbers in Triton.
HALVES = """op f(x: f32[K], z: f32[K, N]) -> y: f32[K, N] {
  a[j < K] = (x[-j // 2 + K] else 0) + x[j]
  y[j, n] = (a[j / 2] else 0) + z[j, n]
}"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        ONE_LINE_FOR_ALL,
        HALVES,
        WINDOW_OF_A_SIZE,
        PLACE_OF_A_LINE,
        WIDE_TO_STORE,
        MIXED.format("T: f32", "T", "T"),
        MIXED.format("T: f16", "T", "T"),
        MIXED.format("T: f32", "f16", "T"),
    ],
)
def test_kernels_of_such_specs_compile(text):
    built = list(crosscompile(text, "f.op"))
    assert built and not [b for b in built if b.problem]


def test_a_size_of_a_window_stays_what_it_is():
    assert "D = tl.multiple_of" not in pipeline.build(WINDOW_OF_A_SIZE).raw


def test_factors_are_of_one_type_with_their_sum():
    for kinds in (("T: f32", "T", "T"), ("T: f32", "f16", "T")):
        raw = pipeline.build(MIXED.format(*kinds)).raw
        kernel = raw.split("def f_tiles(")[1].split("@triton.jit")[0]
        assert kernel.count("tl.dot(_widened(") == kernel.count("tl.dot(") == 1
    alike = (ROOT / "specs/linear.op").read_text()
    assert "_widened" not in pipeline.build(alike).raw


def test_a_tile_of_less_than_16_bytes_is_stored_through_pointers(interpreter):
    text = (
        "op f(x: f32[M, K], w: f32[N, K]) -> y: f16[M, N] { y[m, n] = sum[k](x[m, k] * w[n, k]) }"
    )
    job = {"text": text, "name": "p.op", "device": "cpu", "examples": 4, "seed": 3, "seconds": 30}
    assert not interpreter.ask(job, timeout=120)["failures"]
