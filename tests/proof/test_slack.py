"""What the oracle leaves open, and what it does not: rounding, casts, coordinates in doubt, poles."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tritongen import pipeline
from tritongen.check import check
from tritongen.proof.cases import Case
from tritongen.proof.eager import against_torch
from tritongen.proof.errors import contenders
from tritongen.proof.judge import judge
from tritongen.proof.oracle import Expected, expect
from tritongen.proof.reference import disagreement
from tritongen.runtime.load import load_text
from tritongen.syntax.parse import parse

INF = math.inf


def expected(text: str, **args) -> Expected:
    (op,) = check(parse(text))[0].typings
    (found,) = expect(op, args).values()
    return found


def slack_of(text: str, **args) -> list[float]:
    """0 where it is exact."""
    found = expected(text, **args)
    if found.slack is None:
        return [0.0] * found.value.numel()
    return found.slack.flatten().tolist()


def test_what_a_periodic_function_makes_of_an_argument_in_doubt():
    """A product of 2e25 is right to 1e18: its sine may be anything, between the ends as well."""
    b, g = torch.tensor([3.998147349193459e-06, 0.1]), torch.tensor([-4.861181390106895e30, 0.3])
    large, small = slack_of(
        "op f(b: f32[N], g: f32[N]) -> y: f32[N] { y[n] = sin(b[n] * g[n]) }", b=b, g=g
    )
    assert large >= 2 and small < 1e-7


def test_abs_of_the_least_integer_may_be_anything_and_of_no_other():
    """ptxas goes on as if it were not below 0: tanh of it is 1 on a GPU (fuzz 1301-368)."""
    c = torch.tensor([-(2**31), -(2**31) + 1, 3], dtype=torch.int32)
    given = slack_of("op f(c: i32[N]) -> y: f32[N] { y[n] = tanh(abs(c[n])) }", c=c)
    assert given[0] == INF and max(given[1:]) < 1e-6


def test_atomic_adds_may_leave_out_denormals_and_no_more():
    text = "op f(w: i32[M], d: f32[M]) -> y: f32[N] with N = 2 { y[n] = sum[m](where(w[m] == n, d[m], 0)) }"
    (op,) = check(parse(text))[0].typings
    args = {"w": torch.tensor([0, 1], dtype=torch.int32), "d": torch.tensor([2.9e-39, 1.0])}
    for flushed in (False, True):
        found = expect(op, args, flushed=flushed)["y"]
        assert judge(torch.tensor([0.0, 1.0]), found).ok is flushed
        assert not judge(torch.tensor([2.9e-39, 0.0]), found).ok


def test_which_terms_may_be_the_extreme_one():
    none = torch.zeros(3, 0, dtype=torch.float64)
    assert contenders("argmax", none, none, none > 0).tolist() == [0, 0, 0]
    v, e = torch.tensor([[INF, INF, 1.0]] * 2), torch.tensor([[0, INF, 0], [0, 0, 0]])
    every = torch.ones(2, 3, dtype=torch.bool)
    assert contenders("argmax", v, e, every).tolist() == [
        2,
        2,
    ]  # the second may be NaN; both are infinite


def test_f64_is_rounded_once_to_a_half_type():
    wide = "op f(x: f64[N]) -> y: {}[N] {{ y[n] = x[n] }}"
    random = torch.Generator().manual_seed(0)
    ties = torch.randn(4096, generator=random).to(torch.float16).to(torch.float64) * (1 + 2.0**-11)
    for near in (ties, ties * (1 - 2.0**-40), ties * (1 + 2.0**-40), ties * 2.0**-20, ties * 1e3):
        once = torch.from_numpy(near.numpy().astype(np.float16))
        assert judge(once, expected(wide.format("f16"), x=near)).ok
    below = torch.tensor([9824 - 1e-9], dtype=torch.float64)  # a tie of 9792 and 9856 in f32
    wanted = expected(wide.format("bf16"), x=below)
    assert judge(torch.tensor([9792.0], dtype=torch.bfloat16), wanted).ok
    assert not judge(torch.tensor([9856.0], dtype=torch.bfloat16), wanted).ok


def test_a_large_integer_is_rounded_as_it_becomes_a_float():
    a, b = torch.tensor([[2**31 - 1, 5], [2**31 - 2, 3]], dtype=torch.int32)
    found = expected(
        "op f(a: i32[N], b: i32[N]) -> y: f32[N] { y[n] = f32(a[n]) - b[n] }", a=a, b=b
    )
    assert found.value.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("dtype", "defined", "open_"),
    [
        ("i32", (2147483008.0, -2147483648.0, 0.9), (2147483648.0, -2147484000.0, math.nan, INF)),
        ("i8", (127.5, -128.5), (128.0, -129.0, math.nan)),
        ("u8", (300.0, -3.0), (3e9, -INF)),
        ("i64", (-9.2e18,), (9.3e18, math.nan)),
        ("bool", (math.nan, 1e30), ()),
        ("f8e4m3", (448.0, -448.0, math.nan), (449.0, -1e4, INF)),
        ("f8e5m2", (57344.0, 1e4), (57345.0, -INF)),
    ],
)
def test_only_what_a_type_does_not_hold_is_open(dtype, defined, open_):
    text = f"op f(x: f32[N]) -> y: {dtype}[N] {{ y[n] = {dtype}(x[n]) }}"
    slack = slack_of(text, x=torch.tensor([*defined, *open_]))
    assert slack == [0.0] * len(defined) + [INF] * len(open_)


@pytest.mark.parametrize(
    "line",
    [
        "y[n] = t[k[n]] else 0",
        "y[n] = sum[m < k[n]](t[m])",
        "y[n] = sum[m](where(k[n] > m, t[m], 0))",
    ],
)
def test_what_is_read_at_a_number_in_doubt_is_open(line):
    text = f"op f(x: f32[N], t: f32[M]) -> y: f32[N] {{ k[n] = i32(x[n] * 3) {line} }}"
    *sure, garbage = slack_of(text, x=torch.tensor([0.5, 0.9, math.nan]), t=torch.ones(5))
    assert max(sure) < 1e-5 and garbage >= 5  # all five terms, or none


def test_integers_in_doubt_stay_integers():
    text = "op f(x: f32[N]) -> y: i32[N] { y[n] = bit_and(i32(x[n] * 3), 6) }"
    assert slack_of(text, x=torch.tensor([0.7, 1 + 1 / 3, 1.0])) == [0.0, 2.0, 2.0]


def test_a_divisor_that_may_be_0_leaves_all_open():
    text = "op f(x: f32[N, M], a: f32) -> y: f32[N] { y[n] = 1 / (sum[m](x[n, m]) - a) }"
    slack = slack_of(text, x=torch.tensor([[0.1, 0.2], [0.1, 0.5]]), a=0.3)
    assert slack[0] == INF and slack[1] < 1e-4


def test_a_reference_that_overflows_in_its_type_is_none_the_worse():
    text = """op f(w: i32[N]) -> v: f32[N] {
      x[n] = exp(w[n] * 100)
      v[n] = x[n] / sum[k](x[k])
    }"""
    built = pipeline.build(text)
    (plan,) = built.plans["f"]
    reference = load_text("f", built.raw).f.reference
    case = Case({}, {"N": 3}, {}, {}, {"w": "contiguous"}, "integers", seed=1)
    assert reference(torch.tensor([1, 2, 3], dtype=torch.int32)).isnan().any()
    assert disagreement(plan.op, reference, case) == ""


def test_a_serial_sum_of_equal_terms_is_rounded_to_one_side():
    """Any count of them; as a tree, or where terms differ in sign, there is no such room."""
    text = "op f(x: f32[N, D]) -> y: f32[N] { y[n] = sum[d](x[n, d]) }"
    (op,) = check(parse(text))[0].typings
    same = torch.randn(64, 1, generator=torch.Generator().manual_seed(0)).expand(64, 1000)
    got = sum(same.T)
    trees, loops = (expect(op, {"x": same}, serial=serial)["y"] for serial in (False, True))
    assert not judge(got, trees).ok and judge(got, loops).ok
    assert not judge(got * (1 + 1e-4), loops).ok
    signs = same * (torch.arange(1000) % 2 * 2 - 1)
    trees, loops = (expect(op, {"x": signs}, serial=serial)["y"] for serial in (False, True))
    assert bool((loops.slack <= 1.1 * trees.slack).all())


def test_a_norm_of_equal_terms_may_be_off_by_the_mean():
    """torch's is exact there, since it adds no terms up; where terms differ its error is a measure."""
    text = "op f<T: f32>(x: T[L, B], w: T[B], b: T[B]) -> v: T[L, B] { v = layer_norm(x, w, b) }"
    built = pipeline.build(text)
    (plan,) = built.plans["f"]
    function = load_text("f", built.raw).f
    column = torch.randn(130, 1, generator=torch.Generator().manual_seed(0)) * 2
    w, b = torch.ones(61), torch.zeros(61)

    def worse(x: torch.Tensor, off: float) -> str | None:
        """A kernel that adds up the terms, and divides; then is off by more."""
        mean = torch.stack(list(x.T)).cumsum(0)[-1] / 61
        apart = x - mean[:, None]
        got = apart * torch.rsqrt((apart**2).mean(1, keepdim=True) + 1e-5) + off
        args = {"x": x, "w": w, "b": b}
        return against_torch(plan.op, function, args, {"v": got}, expect(plan.op, args), "normal")

    same = column.expand(130, 61)
    assert worse(same, 0) is None
    assert "torch's own" in worse(same, 1e-2)
    assert "torch's own" in worse(same.contiguous() + torch.randn(61), 1e-4)


def test_slack_does_not_lead_around_the_ends_of_an_integer_type():
    """A place above 127 there is none in an i8: 126 and 127 are right, -128 is not."""
    wanted = Expected(torch.tensor([127, -128]), torch.tensor([1.0, 1.0]), torch.int8)
    for right in ([127, -128], [126, -127]):
        assert judge(torch.tensor(right, dtype=torch.int8), wanted).ok
    for wrong in ([-128, -128], [127, 127]):
        assert not judge(torch.tensor(wrong, dtype=torch.int8), wanted).ok
