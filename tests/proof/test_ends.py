"""Near the ends of the range: what kernels may answer there, in any order and form, and what none may."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tritongen import lib
from tritongen.check import check
from tritongen.pipeline import build
from tritongen.proof.excuses import others
from tritongen.proof.judge import judge
from tritongen.proof.oracle import Expected, expect
from tritongen.proof.runner import Candidate
from tritongen.proof.variants import ways
from tritongen.runtime.load import load_text
from tritongen.runtime.precision import precision
from tritongen.syntax.parse import parse

SPECS = Path(__file__).parents[2] / "specs"


@cache
def op_of(text: str):
    return check(parse(text))[-1].typings[0]


def spec_op(name: str):
    return op_of((SPECS / f"{name}.op").read_text())


# ---- tf32x3 -------------------------------------------------------------------------------------
def test_tf32x3_is_excused_where_it_splits_and_nowhere_else():
    op = spec_op("matmul")
    a = torch.tensor([[1.0], [math.inf], [3.4028e38], [3.4e38]])
    args = {"a": a, "b": torch.tensor([[1.0, 2.0**-3]])}
    strict, wider, ours = (expect(op, args, split=by)["y"] for by in ("", "triton", "ours"))
    right = a @ args["b"]
    off = right.clone()
    off[2] = math.nan  # it is infinite in TF32, as Triton splits it
    assert not judge(off, strict).ok and judge(off, strict, wider).ok
    assert not judge(off, strict, ours).ok
    off[2, 1] = -math.inf
    assert judge(off, strict, wider).ok
    off[2, 1] = 1.0
    assert not judge(off, strict, wider).ok
    for row in (0, 1, 3):  # an infinity is none of what is let through
        off = right.clone()
        off[row, 0] = math.nan
        assert not judge(off, strict, wider).ok
    near = right.clone()
    near[0, 0] = 1 + 2.0**-21
    assert not judge(near, strict).ok and judge(near, strict, wider).ok


def tf32x3(a: torch.Tensor, b: torch.Tensor, ours: bool = False) -> torch.Tensor:
    """A product of f32 of tf32 parts, as Triton makes it or as we do, on cores to which small numbers are 0."""

    def parts(x: torch.Tensor) -> list[torch.Tensor]:
        kept = torch.where((x.abs() < 3.401992901712019e38) | (not ours), ~0x1FFF, ~0x40001FFF)
        high = ((x.view(torch.int32) + 0x1000) & kept.to(torch.int32)).view(torch.float32)
        low = x - high
        on_cores = [(p.view(torch.int32) & ~0x1FFF).view(torch.float32) for p in (high, low)]
        return [torch.where(p.abs() < 2.0**-126, 0.0, p).double() for p in on_cores]

    (ah, al), (bh, bl) = parts(a), parts(b)
    small = al @ bh + ah @ bl
    small = small if ours else torch.where(small.isnan(), 0.0, small)
    return (small + ah @ bh).float()


@pytest.mark.parametrize(
    ("body", "infinite"),
    [("relu(p[m, n])", 0.0), ("exp(p[m, n])", 0.0), ("p[m, n] < 0", True)],
)
def test_what_a_function_makes_of_an_infinity_of_tf32_is_let_through(body, infinite):
    """3.4028e38 * -2^-126 is near -4, and -inf on tensor cores, or NaN; 8 more is positive."""
    out = "bool" if isinstance(infinite, bool) else "f32"
    op = op_of(f"""op f(a: f32[M, K], b: f32[K, N]) -> y: {out}[M, N] {{
  p[m, n] = sum[k](a[m, k] * b[k, n])
  y[m, n] = {body}
}}""")
    args = {"a": torch.tensor([[-(2.0**-126), 8.0]]), "b": torch.tensor([[3.4028e38], [1.0]])}
    right = expect(op, args)["y"]
    got = torch.full((1, 1), infinite, dtype=right.dtype)
    with precision("tf32x3"):
        assert passes(got, op, args, "contraction") and not passes(got, op, args, "tf32x3")
        assert not passes(got, op, args | {"b": torch.ones(2, 1)}, "contraction")
        if out == "f32":
            assert not passes(got + 1, op, args, "contraction")


def test_numbers_that_have_no_tf32_are_split_exactly():
    """Alone, the others being finite or not: what IEEE makes of them, but for the last of the largest ones."""
    values = [math.inf, -math.inf, math.nan, 3.4028e38, -3.402e38, 1.0, -1.5, 0.0, 1 / 3, 4321.0]
    a, b = torch.tensor(values)[:, None], torch.tensor(values)[None]
    wanted = expect(spec_op("matmul"), {"a": a, "b": b}, split="ours")["y"]
    assert judge(tf32x3(a, b, ours=True), wanted).ok
    assert not judge(tf32x3(a, b), wanted).ok
    assert judge(tf32x3(a, b), expect(spec_op("matmul"), {"a": a, "b": b}, split="triton")["y"]).ok


def test_a_product_of_integers_is_none_of_tf32():
    """An op that multiplies f32 elsewhere: 510-324."""
    text = "op f(c: i16[M, K], a: f32[M, K]) -> (y: f32[M], z: f32[M]) {\n"
    text += "  y[m] = mean[k](c[m, k] * c[m, k])\n  z[m] = sum[k](a[m, k] * a[m, k])\n}"
    args = {"c": torch.full((2, 3), 300, dtype=torch.int16), "a": torch.ones(2, 3)}
    op = check(parse(text))[-1].typings[0]
    assert expect(op, args, split="nan")["y"].value.tolist() == [90000.0] * 2


def test_low_parts_below_the_normal_numbers_are_lost_and_nothing_else():
    op = spec_op("matmul")
    a = torch.tensor([[-3.8541e-38, 1.4707e-07], [2.0**-103 * 1.0001, 1.0]])
    args = {"a": a, "b": torch.tensor([[1.8101e24], [-1.3881e-16]])}
    strict, split = expect(op, args)["y"], expect(op, args, split="triton")["y"]
    got = tf32x3(a, args["b"])
    assert not judge(got, strict).ok and judge(got, strict, split).ok
    assert judge(got[1:], expect(op, args | {"a": a[1:]})["y"]).ok  # 2^-103 has a normal low part
    off = got.clone()
    off[0] *= 1 + 2.0**-10
    assert not judge(off, strict, split).ok


# ---- every form, at the ends --------------------------------------------------------------------
PRODUCT = """op f<T: float>(a: T[M, K], b: T[K, N]) -> y: T[M, N] {
  y[m, n] = sum[k](a[m, k] * b[k, n])
}"""
TRIANGLE = """op f<T: float>(a: T[M, K], b: T[K, N]) -> y: T[M, N] {
  y[m, n] = sum[k <= m](a[m, k] * b[k, n])
}"""
SCALED = """op f<T: float>(g: T[M, K], x: T[K, N], h: T[K]) -> y: T[M, N] {
  y[m, n] = sum[k](g[m, k] * x[k, n] * h[k])
}"""
SOME = settings(
    max_examples=20, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
)
ENDS = (3.4028235e38, 3.4021e38, 3.4e38, 1.7e38, 1.2e-38, 2.0**-149, 1.8e19, 5.4e-20, 2.0**-103)
numbers = st.one_of(
    st.sampled_from([0.0, 1.0, -1.5, 1 / 3, math.inf, -math.inf, math.nan]),
    st.builds(lambda x, sign, by: x * sign * by, st.sampled_from(ENDS), st.sampled_from([1, -1]),
              st.sampled_from([1.0, 0.7, 0.3])),
)  # fmt: skip


def matrices(rows: int, cols: int):
    row = st.lists(numbers, min_size=cols, max_size=cols)
    found = st.lists(row, min_size=rows, max_size=rows)
    return found.map(lambda rows: torch.tensor(rows, dtype=torch.float64).float())


def by(*skeletons: str, op, serial: bool = False):
    """A candidate that launches such kernels."""
    plan = SimpleNamespace(op=op)
    none = {"folds": (), "means": frozenset()}
    return SimpleNamespace(plan=plan, skeletons=set(skeletons), is_serial=serial, **none)


def in_order(terms: torch.Tensor, order) -> torch.Tensor:
    total = torch.zeros(terms.shape[:-1], dtype=terms.dtype)
    for k in order:
        total = total + terms[..., k]
    return total


def passes(got: torch.Tensor, op, args, *skeletons: str) -> bool:
    """Whether kernels of these kinds may answer so on a GPU."""
    expected = expect(op, args)["y"]
    if judge(got, expected).ok:
        return True
    return judge(got, expected, *others(by(*skeletons, op=op), args, "y", True)).ok


def lower(a: torch.Tensor) -> torch.Tensor:
    """A left factor as a kernel under `k <= m` holds it."""
    return torch.where(torch.arange(a.shape[1]) <= torch.arange(a.shape[0])[:, None], a, 0.0)


@SOME
@given(matrices(3, 3), matrices(3, 2))
def test_tf32x3_of_the_ends_is_what_the_cores_make_of_it(a, b):
    for text, left in ((PRODUCT, a), (TRIANGLE, lower(a))):
        op, args = op_of(text), {"a": a, "b": b}
        with precision("tf32x3"):
            assert passes(tf32x3(left, b), op, args, "persistent", "box")  # another step is serial
            assert passes(tf32x3(left, b, ours=True), op, args, "tf32x3_half", "contraction")


@SOME
@given(matrices(3, 3), matrices(3, 2), st.permutations(range(3)), st.booleans())
def test_sums_of_the_ends_are_right_in_any_order(a, b, order, wide):
    kind = torch.float64 if wide else torch.float32
    a, b = (x.to(kind) * (2.0**896 if wide else 1) for x in (a, b))
    terms = a[:, None] * b.T
    assert passes(in_order(terms, order), op_of(PRODUCT), {"a": a, "b": b}, "contraction")


@SOME
@given(matrices(3, 3), matrices(3, 2), matrices(1, 3), st.booleans(), st.booleans())
def test_factors_at_the_ends_meet_in_any_order(g, x, h, wide, rows):
    kind, h = torch.float64 if wide else torch.float32, h[0]
    g, x, h = (t.to(kind) * (2.0**896 if wide else 1) for t in (g, x, h))
    product = (g * h) @ x if rows else g @ (h[:, None] * x)
    assert passes(product, op_of(SCALED), {"g": g, "x": x, "h": h}, "contraction")


def test_ordinary_numbers_have_no_more_room_than_rounding():
    """And what must not be: TF32 for tf32x3, half a sum, NaN for a number."""
    torch.manual_seed(0)
    a, b, h = torch.randn(3, 64), torch.randn(64, 2), torch.randn(64)
    for text, args, right in (
        (PRODUCT, {"a": a, "b": b}, a @ b),
        (TRIANGLE, {"a": a, "b": b}, lower(a) @ b),
        (SCALED, {"g": a, "x": b, "h": h}, (a * h) @ b),
    ):
        left = next(iter(args.values()))
        kinds = "contraction", "box", "tf32x3_half"
        with precision("tf32x3"):
            assert passes(right, op_of(text), args, *kinds)
            for k in range(2):
                wrong = right.clone()
                wrong[k, k] = math.nan if k else wrong[k, k] * (1 + 2.0**-12)
                assert not passes(wrong, op_of(text), args, *kinds)
            assert float(expect(op_of(text), args)["y"].slack.max()) < 1e-4 * float(
                left.abs().max()
            )


def test_products_of_f32_in_ieee_are_chains_of_fused_adds():
    """793-664: 512 positive terms one after another are off by more than a tree of them, and squared by twice that."""
    torch.manual_seed(0)
    args = {"a": torch.rand(64, 512), "b": torch.rand(512, 1)}
    op = op_of(
        "op f(a: f32[M, K], b: f32[K, N]) -> y: f32[M, N] { p[i, j] = sum[k](a[i, k] * b[k, j])  y[i, j] = p[i, j] * p[i, j] }"
    )
    chain = torch.zeros(64, 1)
    for k in range(512):
        chain = (chain.double() + args["a"][:, k : k + 1].double() * args["b"][k].double()).float()
    chain = chain * chain
    with precision("ieee"):
        assert not judge(chain, expect(op, args)["y"]).ok
        assert passes(chain, op, args, "contraction")
        assert not passes(chain, op, args, "rows")
        assert not passes(chain * (1 + 2.0**-12), op, args, "contraction")


def test_lanes_of_a_loop_add_in_a_chain_and_a_row_that_is_held_does_not():
    """1401-49: a lane met 64 equal terms, one a block, and was ten units off."""
    op = op_of("op f(x: f32[N]) -> y: f32[1] { y[j < 1] = sum[i](x[i]) }")
    x = torch.full((1,), 1.1796173).expand(64)
    chain = torch.zeros(1)
    for k in range(64):
        chain = chain + x[k]
    assert not judge(chain, expect(op, {"x": x})["y"]).ok
    for kind, excused in (("loop", True), ("per_thread_part", True), ("rows", False)):
        assert passes(chain, op, {"x": x}, kind) is excused
    assert not passes(chain * (1 + 2.0**-12), op, {"x": x}, "loop")


def test_means_that_look_again_leave_nothing_of_equal_numbers():
    """Of a sum of 12345.67 three times is left 0.001, and a norm made 0.295 of it: the slack of the sum let that through."""
    plan = build((SPECS / "layer_norm.op").read_text()).plans["layer_norm"][0]
    rows = Candidate("rows", None, plan)
    assert rows.means == {"mu"}
    for length in (3, 300):
        args = {"x": torch.full((2, length), 12345.67), "w": torch.ones(length), "eps": 1e-5}
        args |= {"b": torch.zeros(length)}
        wanted = expect(plan.op, args, means=rows.means)["y"]
        off = torch.full((2, length), 0.295)
        assert judge(torch.zeros(2, length), wanted).ok and not judge(off, wanted).ok
        assert judge(off, expect(plan.op, args)["y"]).ok
        assert not judge(off, wanted, *others(rows, args, "y", False)).ok
    args["x"] = 12345.67 + torch.randn(2, length) / 4  # they differ: the mean is rounded
    near = torch.nn.functional.layer_norm(args["x"], (length,))
    assert judge(near, expect(plan.op, args, means=rows.means)["y"]).ok
    large = args | {"x": torch.full_like(args["x"], 3e38)}  # their sum is infinite in f32
    assert expect(plan.op, large, means=rows.means)["y"].slack.isinf().all()


def test_products_of_f64_are_chains_whatever_becomes_of_f32():
    """1301-165: each of 4,096 terms is less than half a unit of the first one."""
    op = op_of(
        "op f<T: float>(a: T[M, K], b: T[K, N]) -> y: T[M, N] { y[i, j] = sum[k](a[i, k] * b[k, j]) }"
    )
    a = torch.full((1, 4097), 0.49 * 2.0**-52, dtype=torch.float64)
    a[0, 0] = 1.0
    args = {"a": a, "b": torch.ones(4097, 1, dtype=torch.float64)}
    chain = torch.ones(1, 1, dtype=torch.float64)
    with precision("tf32x3"):
        assert not judge(chain, expect(op, args)["y"]).ok
        assert passes(chain, op, args, "contraction")
        assert not passes(chain, op, args, "rows")
        assert not passes(chain * (1 + 2.0**-38), op, args, "contraction")


def test_an_infinity_of_another_row_is_excused_also_where_another_step_is_serial():
    op, args = op_of(TRIANGLE), {"a": torch.ones(2, 2), "b": torch.tensor([[1.0], [math.inf]])}
    got = torch.tensor([[math.nan], [math.inf]])
    assert passes(got, op, args, "contraction", "box") and passes(got, op, args, "subtiles")
    assert not passes(got, op, args, "box")
    assert not passes(torch.tensor([[math.inf], [math.inf]]), op, args, "contraction", "box")
    args["b"][1] = 3.4028e38  # infinite in TF32
    with precision("tf32x3"):
        assert passes(torch.tensor([[math.nan], [3.4028e38]]), op, args, "contraction")
        assert not passes(torch.tensor([[math.nan], [3.4028e38]]), op, args, "tf32x3")
    with precision("ieee"):
        assert not passes(torch.tensor([[math.nan], [3.4028e38]]), op, args, "contraction")


GROUPED = """op f(a: f32[L, M, K], b: f32[S, K, N], c: i32[L]) -> y: f32[L, M, N] with L == 2 * S {
  y[i, j, n] = sum[k < c[i]](a[i, j, k] * b[i // 2, k, n])
}"""


def test_rows_of_one_quotient_are_rows_of_one_product():
    """Rows 0 and 1 share b[0], of which row 1 alone has a term; nobody has b[1]."""
    op, c = op_of(GROUPED), torch.tensor([0, 1, 0, 0], dtype=torch.int32)
    args = {"a": torch.ones(4, 1, 1), "b": torch.full((2, 1, 1), math.nan), "c": c}
    got = torch.tensor([math.nan, math.nan, 0.0, 0.0]).view(4, 1, 1)
    assert passes(got, op, args, "contraction") and not passes(got, op, args, "box")
    got[2] = math.nan
    assert not passes(got, op, args, "contraction")


CHAIN = """op f(q: f16[B, S, E], k: f16[B, L, E], v: f16[B, L, F], n: i32[S]) -> y: f16[B, S, F] {
  s[b, i, j] = sum[e](q[b, i, e] * k[b, j, e])
  m[b, i]    = max[j < n[i]](s[b, i, j])
  p[b, i, j] = exp(s[b, i, j] - m[b, i])
  y[b, i, f] = sum[j < n[i]](f16(p[b, i, j]) * v[b, j, f]) / sum[j < n[i]](p[b, i, j])
}"""


def test_chains_are_excused_by_what_their_folds_share_and_move():
    plan = build(CHAIN).plans["f"][0]
    chain, nest = Candidate("chain", None, plan), Candidate(
        "nest", None, build(CHAIN, only="nest").plans["f"][0]
    )
    torch.manual_seed(0)
    q, k, v = (torch.randn(*d).half() for d in ((2, 4), (40, 4), (40, 1)))
    args = {"q": q[None], "k": k[None], "v": v[None]}
    args["n"] = torch.tensor([20, 39], dtype=torch.int32)
    v[30] = v[39] = math.inf

    def right(got: torch.Tensor, candidate: Candidate) -> bool:
        wanted = expect(plan.op, args)["y"]
        return judge(got[None], wanted, *others(candidate, args, "y", False)).ok

    s = (q.double() @ k.double().T)[:1, :20]
    p = torch.exp(s - s.max())
    value = (p.half().double() @ v[:20].double() / p.sum()).half()
    inf, nan = torch.full((1, 1), math.inf).half(), torch.full((1, 1), math.nan).half()
    assert right(torch.cat([value, inf]), chain) and right(torch.cat([value, inf]), nest)
    assert right(torch.cat([nan, inf]), chain) and not right(torch.cat([nan, inf]), nest)
    assert not right(torch.cat([inf, inf]), chain) and not right(torch.cat([value, value]), chain)
    args["n"][1] = 25  # no row has the element
    other = expect(plan.op, args)["y"].value[0, 1:].half()
    assert right(torch.cat([value, other]), chain) and not right(torch.cat([nan, other]), chain)
    # Rounded beside another maximum: each factor may be a unit of f16 off, and not two.
    scaled = ((p * 1.3).half().double() / 1.3) @ v[:20].double() / p.sum()
    assert right(torch.cat([scaled.half(), other]), chain)
    size = (p @ v[:20].double().abs() / p.sum()) * 2.0**-10
    for share, fits in ((0.9, True), (2.0, False)):
        off = torch.cat([(value.double() + share * size).half(), other])
        assert right(off, chain) is fits and not right(off, nest)


@pytest.mark.parametrize(("tma", "kinds"), [(True, {"tf32x3_half"}), (False, {"contraction"})])
def test_kernels_are_excused_by_what_ran_not_by_what_was_forced(monkeypatch, tma, kinds):
    """What is forced steps aside where a call rules it out: for Triton's own split, here."""
    built = build((SPECS / "matmul.op").read_text())
    module, plan = load_text(built.name, built.raw), built.plans["matmul"][0]
    way = next(w for w in ways(plan) if w.name == "presplit_rhs")
    names = module.choose_matmul.__code__.co_varnames[: module.choose_matmul.__code__.co_argcount]
    facts = dict.fromkeys(names, 64) | {"tma": tma, "tf32x3": True, "itemsize": 4, "gpu": lib.Gpu()}
    args = {"a": torch.tensor([[3.4028e38]]), "b": torch.zeros(1, 1)}

    def matmul(a, b):
        module.choose_matmul(**facts)
        return torch.tensor([[math.nan]])  # infinite in TF32, times 0

    monkeypatch.setattr(module, "matmul", matmul)
    went, got = Candidate(way.name, module, plan, way).call(args, small=True, number=True)
    assert went.skeletons == kinds
    with precision("tf32x3"):
        wanted = expect(plan.op, args)["y"]
        assert judge(got["y"], wanted, *others(went, args, "y", True)).ok is not tma


def test_what_sums_pass_through_may_leave_f64_only_when_added_up():
    """A serial sum of such numbers has room for its roundings, not for everything."""
    op, big = op_of(PRODUCT), torch.finfo(torch.float64).max
    args = {
        "a": torch.tensor([[0.9 * big, 1.5, -2.5]], dtype=torch.float64),
        "b": torch.ones(3, 1).double(),
    }
    assert passes(args["a"].sum(-1, keepdim=True), op, args, "box")
    slack = expect(op, args, serial=True)["y"].slack
    assert 0 < float(slack) < 1e-14 * big


def test_a_scan_may_add_term_after_term():
    op = op_of("op f(x: f32[N, D]) -> y: f32[N, D] { y[n, d] = sum[k <= d](x[n, k]) }")
    args = {"x": torch.full((1, 1000), 1 / 3)}
    got, total = torch.empty(1, 1000), torch.zeros(())
    for d in range(1000):
        total = total + args["x"][0, d]
        got[0, d] = total
    assert passes(got, op, args, "scan") and not passes(got, op, args, "rows")
    assert not passes(got * (1 + 1e-4), op, args, "scan")


# ---- what else the oracle cannot be sure of -------------------------------------------------------
def slack(text: str, **args):
    found = expect(op_of(text), args)["y"].slack
    return [] if found is None else found.tolist()


def test_a_divisor_that_may_be_zero_leaves_the_quotient_open():
    text = """op f(x: f32[N, D]) -> y: f32[N] {
  s[n] = sum[d](x[n, d])
  y[n] = 1 / s[n]
}"""
    one, other = slack(text, x=torch.tensor([[0.1, -0.1], [0.1, 0.1]]))
    assert one == math.inf and other < 1e-5
    assert slack("op f(x: f32[N]) -> y: f32[N] {\n  y[n] = 1 / x[n]\n}", x=torch.zeros(1)) == [0.0]


PLACES = """op f(x: f32[N, D], z: f32[D]) -> y: f32[N] {
  i[n] = argmax[d](x[n, d] * x[n, d])
  y[n] = BODY
}"""


@pytest.mark.parametrize(
    "body, room",
    [
        ("z[i[n]] else 0", math.inf),
        ("sum[k <= i[n]](z[k])", 6.0),  # each term may be there
        ("sum[k](where(k == i[n], z[k], 0))", 6.0),
        ("sum[k](where(k == i[n] and z[k] > 1.5, z[k], 0))", 5.0),
        ("max[k <= i[n]](z[k])", math.inf),
    ],
)
def test_a_place_that_may_be_another_leaves_what_lies_there_open(body, room):
    """Two squares are infinite in f32 and not in f64: the first is the place of the maximum."""
    x = torch.tensor([[1e30, 2e30, 1.0], [1.0, 2.0, 3.0]])
    first, other = slack(PLACES.replace("BODY", body), x=x, z=torch.tensor([1.0, 2.0, 3.0]))
    assert first == pytest.approx(room, rel=1e-5) and other < 1e-5


def test_the_largest_f8_stands_for_an_infinity():
    """Kernels store an infinity as 448, where torch 2.11 has NaN. A product by tf32x3 was refused on a GPU."""
    zero, anything = torch.zeros(1, dtype=torch.float64), torch.full((1,), math.inf)
    for stored, right in ((-448.0, True), (2.0, False)):
        got = torch.tensor([stored]).to(torch.float8_e4m3fn)
        strict = Expected(zero, None, got.dtype)
        split = Expected(zero * math.nan, anything, got.dtype, near=True)
        assert not judge(got, strict).ok and judge(got, strict, split).ok is right
