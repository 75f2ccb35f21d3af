"""Integers inside sum, prod and mean widen before any arithmetic of the term; elsewhere they wrap as torch's."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest
import torch

import tritongen
from tritongen import lib
from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.choice import of_gpu
from tritongen.ir.interp import run
from tritongen.ir.print import print_op
from tritongen.pipeline import build
from tritongen.proof.crosscompile import crosscompile
from tritongen.runtime.load import load_text
from tritongen.schedule.rules import evaluate
from tritongen.syntax.parse import parse

A = torch.tensor([[-128, 127, 100], [100, -128, 5]], dtype=torch.int8)
B = torch.tensor([[-128, 127, 3], [9, 100, -100]], dtype=torch.int8)
U = torch.tensor([[3, 255, 128], [0, 7, 200]], dtype=torch.uint8)
a, b, u = (t.to(torch.int64) for t in (A, B, U))
TERMS = {
    "a[n, d] * a[n, d]": a * a,
    "a[n, d] ** 2": a**2,
    "a[n, d] ** 3 + 1": a**3 + 1,
    "a[n, d] * b[n, d] + 1": a * b + 1,
    "-a[n, d]": -a,
    "abs(a[n, d])": a.abs(),
    "u[n, d] - 8": u - 8,
    "(a[n, d] + b[n, d]) // 2": (a + b) // 2,
    "where(a[n, d] + b[n, d] > 100, a[n, d] + b[n, d], 0)": torch.where(a + b > 100, a + b, 0),
    "a[n, d] + u[n, d]": a + u,
    "i16(a[n, d]) * i16(u[n, d]) * 100": a * u * 100,
    "u8(u[n, d] + 100)": (u + 100) % 256,
    "a[n, d] * k": a * 1000,
}


def spec(line: str) -> str:
    signature = "a: i8[N, D], b: i8[N, D], u: u8[N, D], k: i64 = 1000"
    used = "x[n] = a[n, 0] + b[n, 0] + u[n, 0] + k"
    return f"op f({signature}) -> (y: i64[N], x: i64[N]) {{\n  {line}\n  {used}\n}}"


def op_of(text: str):
    return check(parse(text))[0].typings[0]


@pytest.mark.parametrize("term", TERMS)
def test_a_term_widens_first(term):
    y = run(op_of(spec(f"y[n] = sum[d]({term})")), {"a": A, "b": B, "u": U, "k": 1000})["y"]
    torch.testing.assert_close(y, TERMS[term].sum(1))
    y = run(op_of(spec(f"y[n] = prod[d]({term})")), {"a": A, "b": B, "u": U, "k": 1000})["y"]
    torch.testing.assert_close(y, TERMS[term].prod(1))


def test_so_does_that_of_a_mean():
    text = "op f(u: u8[N, D]) -> y: f32[N] { y[n] = mean[d]((u[n, d] - 8) ** 2) }"
    assert check(parse(text))[0].warnings == ()
    y = run(op_of(text), {"u": U})["y"]
    torch.testing.assert_close(y.float(), ((u - 8) ** 2).float().mean(1))


@pytest.mark.parametrize("term", TERMS)
def test_so_does_that_of_a_floating_sum(term):
    line = f"y[n] = sum[d](s[n, d] * ({term}))"
    signature = "a: i8[N, D], b: i8[N, D], u: u8[N, D], s: f64[N, D], k: i64 = 1000"
    used = "x[n] = a[n, 0] + b[n, 0] + u[n, 0] + k"
    text = f"op f({signature}) -> (y: f64[N], x: i64[N]) {{ {line} {used} }}"
    assert check(parse(text))[0].warnings == ()
    s = torch.arange(6.0, dtype=torch.float64).view(2, 3)
    y = run(op_of(text), {"a": A, "b": B, "u": U, "s": s, "k": 1000})["y"]
    torch.testing.assert_close(y, (s * TERMS[term]).sum(1))


def test_a_gradient_that_puts_wrapping_integers_into_a_sum_says_that_they_wrap():
    text = "op f(w: f64[D], u: u8[N, D]) -> y: f64[N, D] { y[n, d] = w[d] * ((u[n, d] - 8) // 2) }"
    printed = print_op(gradient(op_of(text)))
    dy = torch.arange(6.0, dtype=torch.float64).view(2, 3)
    dw = run(op_of(printed), {"u": U, "dy": dy})["dw"]
    torch.testing.assert_close(dw, (dy * ((U - 8) // 2)).sum(0))


MANY = """op mm(a: i8[M, K], b: i8[N, K]) -> y: i64[M, N] { y[m, n] = sum[k](a[m, k] * b[n, k]) }
op conv(x: i8[M, C, H], w: i8[N, C, R]) -> y: i64[M, N, P] with P = H - R + 1 {
  y[m, n, p] = sum[c, r](x[m, c, p + r] * w[n, c, r])
}
op few(a: i8[M, K], b: i8[N, K]) -> y: i64[M, N] with K < 999 { y[m, n] = sum[k](a[m, k] * b[n, k]) }
op row(a: u8[M, K]) -> y: i64[M] { y[m] = sum[k](a[m, k] * a[m, k]) }"""


def test_sums_of_products_of_bytes_hold_any_number_of_terms():
    """The tensor cores add up in i32, which overflows from 2**17 products of i8 on, or 33,026 of u8."""
    most = torch.full((2, 140_000), 127, dtype=torch.int8)
    y = tritongen.compile_op(MANY, "mm")(most, -most)
    assert y.tolist() == [[-127 * 127 * 140_000] * 2] * 2
    y = tritongen.compile_op(MANY, "row")(torch.full((1, 40_000), 255, dtype=torch.uint8))
    assert y.tolist() == [255 * 255 * 40_000]
    built = build(MANY)
    module = load_text("many", built.raw)
    for name in ("mm", "conv"):
        (step,) = built.plans[name][0].steps
        choose = getattr(module, f"choose_{name}")
        facts = dict.fromkeys(signature(choose).parameters, 64) | {"gpu": lib.Gpu()}
        assert choose(**facts | {"terms": 2**17})[0] == "nest"
        assert choose(**facts | {"terms": 2**17 - 1})[0] != "nest"
        legal = [
            v.name for v in step.variants if evaluate(v.requires, of_gpu(facts | {"terms": 2**17}))
        ]
        assert legal == ["nest"]
    assert "tl.full((BLOCK,), 0, tl.int64)" in built.raw
    assert "nest" not in [v.name for v in built.plans["few"][0].steps[0].variants]


@pytest.mark.slow
def test_every_way_of_adding_up_bytes_agrees(interpreter):
    job = {"text": MANY, "name": "many", "device": "cpu", "examples": 3, "seed": 0}
    assert interpreter.ask(job, timeout=120)["failures"] == []


@pytest.mark.slow
def test_many_terms_compile():
    built = list(crosscompile(MANY, "many", first_only=True))
    assert [b for b in built if b.problem] == [] and "mm_nest" in {b.kernel for b in built}


def test_a_temporary_keeps_its_wrap():
    text = spec(
        "t[n, d] = a[n, d] * b[n, d]\n  w[n, d] = u[n, d] - 8\n  y[n] = sum[d](t[n, d] + w[n, d])"
    )
    y = run(op_of(text), {"a": A, "b": B, "u": U, "k": 0})["y"]
    torch.testing.assert_close(y, ((A * B).long() + (U - 8).long()).sum(1))


@pytest.mark.slow
def test_kernels_and_references_do_the_same(interpreter):
    terms = [f"s{k}[n] = sum[d]({term.replace('k', '7')})" for k, term in enumerate(TERMS)]
    terms.append("t[n, d] = a[n, d] * b[n, d]\n  p[n] = prod[d](t[n, d] - 1)")
    outputs = [f"{name}: i64[N]" for name in re.findall(r"(\w+)\[n\] =", "\n".join(terms))]
    text = "op f(a: i8[N, D], b: i8[N, D], u: u8[N, D]) -> ({}) with D < 9 {{\n  {}\n}}"
    text = text.format(", ".join(outputs), "\n  ".join(terms))
    job = {"text": text, "name": "widening", "device": "cpu", "examples": 3, "seed": 0}
    assert interpreter.ask(job, timeout=120)["failures"] == []


def test_a_proposed_cast_is_right_when_applied():
    folder = Path(__file__).parents[1] / "golden" / "errors"
    text = (folder / "wrapping_difference.op").read_text()
    while warnings := [w for w in check(parse(text))[0].warnings if w.code == "W004"]:
        text = warnings[-1].fix.applied()  # the innermost first
    op = op_of(text)
    s, zero = torch.ones(2), torch.tensor([8, 100], dtype=torch.uint8)
    y = run(op, {"q": U, "s": s, "zero": zero})["y"]
    torch.testing.assert_close(y.float(), (u - 8).float())
