"""A term outside a bound is not there, whatever it holds: every kernel, on operands with NaN and infinities."""

from __future__ import annotations

import pytest

from tritongen import pipeline
from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.ir.print import print_op
from tritongen.proof.crosscompile import crosscompile
from tritongen.syntax.parse import parse

OPS = {
    # All rows of a tile end alike; those of several batches in one tile do not; each row has its own end.
    "ragged": """op ragged<T: float>(p: T[B, I, J], v: T[B, J, E], count: i64[B]) -> y: T[B, I, E] {
      y[b, i, e] = sum[j < count[b]](p[b, i, j] * v[b, j, e])
    }""",
    "shared": """op shared<T: float>(p: T[B, I, J], v: T[J, E], count: i64[B]) -> y: T[B, I, E] {
      y[b, i, e] = sum[j < count[b]](p[b, i, j] * v[j, e])
    }""",
    "segments": """op segments<T: float>(a: T[N, K], b: T[K, M], lo: i64[N], hi: i64[N]) -> y: T[N, M] {
      y[i, m] = sum[lo[i] <= k < hi[i]](a[i, k] * b[k, m])
    }""",
    "chosen": """op chosen<T: float>(a: T[N, K], b: T[K, M], c: i64[K]) -> y: T[N, M] {
      y[i, m] = sum[k](where(c[k] > 0, a[i, k] * b[k, m], 0))
    }""",
    # Its loop ends with its rows.
    "below": """op below<T: float>(a: T[N, K], b: T[K, M]) -> y: T[N, M] {
      y[i, m] = sum[k < i](a[i, k] * b[k, m])
    }""",
    # A bound that neither factor can ask for alone: it was forgotten.
    "corner": """op corner<T: float>(a: T[N, K], b: T[K, M]) -> y: T[N, M] {
      y[i, m] = sum[k < i + m](a[i, k] * b[k, m])
    }""",
    # The last row has no term, and b nothing for it.
    "inside": """op inside<T: float>(a: T[N, N], b: T[M]) -> y: T[N] with M == N - 1 {
      y[i] = sum[k > i](a[i, k] * b[i])
    }""",
    # A bound reads at n what the term reads at k: it was loaded once, at k.
    "elsewhere": """op elsewhere<T: float>(x: T[N, N], t: i64[N]) -> y: T[N] {
      y[n] = sum[k < t[n]](x[n, k] + t[k])
    }""",
    # Not in the type of the bound, where 3 - 5 is 254.
    "narrow": """op narrow<T: float>(x: T[N, K], count: u8[N]) -> y: T[N] {
      y[i] = sum[k < count[i]](x[i, k])
    }""",
}


def report_on(interpreter, text: str, examples: int) -> dict:
    job = {"text": text, "name": "bounded", "device": "cpu", "seed": 6, "seconds": 20}
    return interpreter.ask(job | {"examples": examples}, timeout=120)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.slow
def test_what_no_term_has_is_never_seen(interpreter, name):
    report = report_on(interpreter, OPS[name], examples=7)
    assert report["failures"] == [] and report["examples"] > 2


def test_nor_in_a_gradient(interpreter):
    op = check(parse(OPS["ragged"]))[0].typings[0]
    report = report_on(interpreter, print_op(gradient(op)), examples=3)
    assert report["failures"] == [] and report["examples"] > 2


def test_what_a_bound_alone_keeps_inside_is_masked():
    """A box has places where the bound does not hold: nothing is read outside the tensor there."""
    text = "op f<T: float>(h: T[N], x: T[N]) -> y: T[N] { y[t] = sum[k <= t](h[k] * x[t - k]) }"
    kernel = pipeline.build(text, only="nest").raw.partition("def choose_f")[0]
    assert "mask=inside & (x_n >= 0) & (x_n < N)" in kernel


def test_and_a_gradient_counts_in_64_bits():
    op = check(parse("""op f(x: f32[N, M], t: u8[N]) -> y: f32[N] {
          y[n] = sum[k <= t[n] + 3](x[n, k]) + (x[n, t[n] // 2] else 0)
        }"""))[0].typings[0]
    text = print_op(gradient(op))
    assert "i64(t[n]) + 3 >= k" in text and "i64(t[n]) // 2 == k" in text
    assert parse(text) and check(parse(text))


def test_a_loop_ends_with_its_terms():
    """Nothing is masked twice: what all rows of a tile have in common is where the loop ends."""
    raw = pipeline.build(OPS["ragged"]).raw
    assert "stop = tl.minimum(J, count)" in raw
    assert "tl.where" not in raw.partition("def choose_ragged")[0]


def test_a_masked_factor_is_awaited():
    """It lies in registers: the next one must not be computed there while tensor cores read."""
    built = next(iter(crosscompile(OPS["below"], "below", ("sm_90",), ("bf16",))))
    assert built.problem == ""
