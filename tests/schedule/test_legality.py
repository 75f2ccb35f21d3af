"""What a variant requires, and that kernels which are forced, or drawn, are ones that a GPU takes."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tritongen import pipeline
from tritongen.proof.crosscompile import crosscompile
from tritongen.proof.variants import config_of, may_run
from tritongen.schedule.rules import evaluate, names

ROOT = Path(__file__).parents[2]
SPECS = "softmax group_norm linear int8_linear conv1d conv2d conv_transpose2d max_pool2d index_add"
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 33, 64, 100, 128, 512, 1024, 4096, 1 << 15, 1 << 17, 1 << 22)
MOVING = """op moving_average<T: float>(x: T[N, L], const win: int = 2) -> y: T[N, L] {
  y[n, i] = mean[k < win](x[n, i - k] else 0)
}"""


def steps_of(name: str):
    built = pipeline.build((ROOT / "specs" / f"{name}.op").read_text(), name)
    return [step for plans in built.plans.values() for plan in plans for step in plan.steps]


def test_lanes_multiply_by_themselves():
    """Of sides of 16 and more Triton makes a product of tensor cores, in TF32; the proof forces none either."""
    (step,), random = steps_of("matmul"), Random(0)
    (lanes,) = (v for v in step.variants if v.name == "lanes")
    for small in (False, True):
        for _ in range(300):
            facts = {n: random.choice(NUMBERS[1:]) for n in ("M", "N", "K", "batches", "sms")}
            facts |= {"itemsize": 4, "vectorized": bool(random.randrange(2))}
            if may_run(lanes, facts):
                config = config_of(step, lanes, facts, small)
                assert min(config["BLOCK_M"], config["BLOCK_N"]) < 16


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
            facts |= {
                n: bool(facts[n] % 2)
                for n in spoken & {"tma", "forward_progress", "patched", "strided", "aligned"}
            }
            facts |= {"itemsize": random.choice((1, 2, 4, 8))}
            for v in step.variants:
                assert not evaluate(v.when, facts) or may_run(v, facts), (v.name, facts)
        assert step.variants[-1].requires == "True"


def test_a_window_that_runs_backwards_is_not_forced_into_runs(interpreter):
    (step,) = (s for (p,) in pipeline.build(MOVING).plans.values() for s in p.steps)
    runs = next(v for v in step.variants if v.name == "runs")
    facts = dict.fromkeys((n for n, _ in step.facts), 4) | {"itemsize": 4, "lane_stride": 1}
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

# Triton laid factors in f64 out by the bits of a mask, and could not multiply them.
PRODUCTS_IN_F64 = [
    f"op f({operands}) -> y: f64[M, N] {{\n  y[i, j] = {value}\n}}"
    for operands, value in (
        ("a: f64[M, K], b: f64[K, N], n: u8[M]", "sum[k < n[i]](a[i, k] * b[k, j])"),
        ("a: f64[M, K], b: f64[K, N], n: i16[N]", "sum[k >= n[j]](relu(a[i, k]) * b[k, j])"),
        ("a: f64[M, K], b: f64[K, N], n: bool[K]", "sum[k](where(n[k], a[i, k], 0) * b[k, j])"),
        ("a: f16[M, K], b: bf16[K, N], n: f64[M]", "sum[k](a[i, k] * b[k, j]) + n[i]"),
        ("a: f32[M, K], b: f16[K, N], n: f64[M]", "sum[k](a[i, k] * b[k, j]) + n[i]"),
    )
]

# Stages were counted as if each factor were one tile of what is multiplied: 303,160 and 278,528 bytes of 232,448.
WIDER_THAN_MULTIPLIED = """op f<T: f16>(x: T[M, K], w: f32[N, K]) -> y: T[M, N] {
  y[i, j] = sum[k](x[i, k] * T(w[j, k]))
}"""
SEVERAL_TILES = """op f(x: f32[M, K], g: f32[M, K], h: f32[M, K], w: f32[K, N]) -> y: f32[M, N] {
  y[i, j] = sum[k](x[i, k] * g[i, k] * h[i, k] * w[k, j])
}"""

# Nor what follows from the sums: 294,944, 262,176 and 237,600 bytes of 232,448.
BESIDE = """op f<T: float>(x: T[M, K], w: T[K, N], h: {0}[M, N]) -> y: T[M, N] {{
  y[i, j] = sum[k](x[i, k] * w[k, j]) + h[i, j]
}}"""
TWO_STORED = """op f<T: float>(x: T[M, K], w: T[K, N], h: f32[M, N]) -> (y: T[M, N], z: f32[M, N]) {
  s[i, j] = sum[k](x[i, k] * w[k, j])
  y[i, j] = exp(s[i, j]) + h[i, j]
  z[i, j] = 2 * s[i, j]
}"""

# Sums of integers pass as they are where rows are not aligned, of floats what is stored: 262,176 bytes.
INTEGERS_SCALED = """op f<U: f16 | bf16>(x: i8[M, K], w: i8[N, K], s: U[N]) -> y: U[M, N] {
  y[i, j] = sum[k](x[i, k] * w[j, k]) * s[j]
}"""

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
        *PRODUCTS_IN_F64,
        WIDER_THAN_MULTIPLIED,
        SEVERAL_TILES,
        BESIDE.format("f32"),
        TWO_STORED,
    ],
)
def test_kernels_of_such_specs_compile(text):
    built = list(crosscompile(text, "f.op"))
    assert built and not [b for b in built if b.problem]


def test_a_size_of_a_window_stays_what_it_is():
    assert "D = tl.multiple_of" not in pipeline.build(WINDOW_OF_A_SIZE).raw


def test_factors_are_of_one_type_with_their_sum():
    alike = (ROOT / "specs/linear.op").read_text()
    assert factors(MIXED.format("T: f32", "T", "T")) == ["x.to(FACTOR)", "w.to(FACTOR)"]
    assert factors(MIXED.format("T: f32", "f16", "T"))[1] == "w.to(COMPUTE)"
    assert factors(alike) == ["x", "w"]


def test_a_factor_in_f64_says_nothing_of_narrow_loads():
    of_rows, of_columns, of_terms, halves, half = map(factors, PRODUCTS_IN_F64)
    assert of_rows == ["lib.f64_factor(a)", "b"] and of_columns == ["left", "lib.f64_factor(b)"]
    assert of_terms[0].startswith("lib.f64_factor(") and not of_terms[1].startswith(
        "lib.f64_factor("
    )
    assert all(side.startswith("lib.f64_factor(") for side in (*halves, half[1]))
    assert half[0] == "a.to(COMPUTE)"
    assert factors(PRODUCTS_IN_F64[0].replace("u8", "i32")) == ["a", "b"]
    assert factors(PRODUCTS_IN_F64[0].replace("f64", "f32")) == ["a", "b"]


def test_stages_are_as_many_as_fit_what_a_step_loads():
    call = {"M": 64, "N": 1 << 20, "sms": 132, "itemsize": 4}
    assert stages(SEVERAL_TILES, "slim", call) == 3
    assert stages(MIXED.format("T: f32", "T", "T"), "slim", call) == 5  # as measured
    call = {"M": 1024, "N": 1024, "sms": 132, "itemsize": 2, "stored_bytes": 2}
    assert stages(WIDER_THAN_MULTIPLIED, "narrow", call) == 3
    assert stages(WIDER_THAN_MULTIPLIED.replace("f32", "f16"), "narrow", call) == 4
    call |= {"M": 4096, "N": 4096, "K": 4096, "itemsize": 1}
    assert stages(INTEGERS_SCALED, "persistent", call) == 3


def test_stages_leave_room_for_what_follows_from_the_sums():
    call = {"M": 8192, "N": 8192, "sms": 132, "itemsize": 2, "stored_bytes": 2}
    alone = BESIDE.format("T").replace("h[i, j]", "h[0, j]")
    told = [
        stages(text, "persistent", call)
        for text in (alone, BESIDE.format("T"), BESIDE.format("f32"))
    ]
    call["stored_bytes"] = 4
    assert [*told, stages(TWO_STORED, "persistent", call)] == [4, 3, 3, 3]
    small = {"M": 128, "N": 64}
    found = [stages(TWO_STORED, "narrow", call | more) for more in ({}, small)]
    assert found == [4, 6]


def stages(text: str, variant: str, call: dict[str, int]) -> int:
    (plan,) = next(iter(pipeline.build(text).plans.values()))
    config = next((v.config for v in plan.steps[-1].variants if v.name == variant), ())
    known = {"vectorized": True, "K": 4096, **call}
    for name, rule in config:
        known[name] = evaluate(rule, known)
    return known.get("num_stages", 0)


def factors(text: str) -> list[str]:
    """What the tl.dot of the kernel for any size multiplies."""
    kernel = re.split(r"def [a-z]\w*_tiles\(", pipeline.build(text).raw)[1].split("@triton.jit")[0]
    (found,) = re.findall(r"= tl\.dot\((.*), (.*), \w+, input_precision", kernel)
    return list(found)


def test_a_tile_of_less_than_16_bytes_is_stored_through_pointers(interpreter):
    text = (
        "op f(x: f32[M, K], w: f32[N, K]) -> y: f16[M, N] { y[m, n] = sum[k](x[m, k] * w[n, k]) }"
    )
    job = {"text": text, "name": "p.op", "device": "cpu", "examples": 4, "seed": 3, "seconds": 30}
    assert not interpreter.ask(job, timeout=120)["failures"]


def test_a_tile_of_coordinates_takes_8_bytes_an_element():
    """In Triton 3.6 `large` asked for 262,144 bytes of 232,448 (291202-327)."""
    gathered = """op f<T: f16>(x: T[M, K], w: T[N, K], e: f32[D], at: i64[M, N]) -> c: f32[M, N] {
  c[m, n] = sum[k](x[m, k] * w[n, k]) + (e[at[m, n]] else 0)
}"""
    alone = gathered.replace("at[m, n]]", "0]").replace(", at: i64[M, N]", "")
    for text, there in ((gathered, False), (alone, True)):
        (plan,) = pipeline.build(text).plans["f"]
        assert any(v.name == "large" for v in plan.steps[0].variants) is there
