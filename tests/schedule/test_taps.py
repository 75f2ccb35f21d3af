"""Sums whose index is divided exactly walk the terms at which the quotient is whole, and no others."""

from __future__ import annotations

from random import Random

import pytest

from tritongen.check import check
from tritongen.ir.algebra import evaluate
from tritongen.ir.bounds import facts_of
from tritongen.ir.free import reads
from tritongen.schedule.canonical import canonical
from tritongen.schedule.members import is_reducer
from tritongen.schedule.taps import of_whole_quotients
from tritongen.syntax.parse import parse


@pytest.mark.parametrize("seed", range(8))
def test_the_terms_are_those_of_whole_quotients(seed):
    random = Random(seed)
    step, terms, shift = random.randint(2, 5), random.randint(2, 9), random.randint(-4, 4)
    text = f"op f(x: f32[P]) -> y: f32[N] with N = 2 * P {{ y[n] = sum[r < {terms}](x[({shift} + n - r) / {step}] else 0) }}"
    op = check(parse(text))[-1].typings[0]
    nest = next(n for n in canonical(op, facts_of(op)) if is_reducer(n))
    fold, walked = nest.fold, of_whole_quotients(nest, facts_of(op)).fold
    (turn,), (read,) = walked.binders, reads(walked.body)
    (own,) = fold.binders
    (at,) = read.coords
    for n in range(7):
        wanted = [(shift + n - r) // step for r in range(terms) if (shift + n - r) % step == 0]
        found = []
        for t in range(int(evaluate(turn.hi, {}))):
            known = {nest.box[0].index: n, turn.index: t}
            if all(evaluate(g.poly, known) >= 0 for g in walked.guards):
                found.append(int(evaluate(at, known)))
        assert sorted(found) == sorted(wanted)
    assert turn.index != own.index


def test_a_read_that_needs_its_index_in_range_is_left_alone():
    """w[r] is read without a check: at a term beyond the last one it would lie outside of w."""
    text = "op f(x: f32[P], w: f32[R], const q: int = 2) -> y: f32[N] with N = 2 * P, q >= 1 { y[n] = sum[r]((x[(n - r) / q] else 0) * w[r]) }"
    op = check(parse(text))[-1].typings[0]
    for nest in canonical(op, facts_of(op)):
        assert of_whole_quotients(nest, facts_of(op)) == nest


def test_a_term_that_may_be_nan_is_walked():
    """0 * v[n] is NaN if v[n] is, so no term may be left out."""
    text = "op f(x: f32[P], v: f32[N]) -> y: f32[N] with N == 2 * P { y[n] = sum[r < 3](BODY) }"
    for body, walks in (
        ("-(x[(n - r) / 2] else 0)", True),
        ("(x[(n - r) / 2] else 0) * v[n]", False),
    ):
        op = check(parse(text.replace("BODY", body)))[-1].typings[0]
        nest = next(n for n in canonical(op, facts_of(op)) if is_reducer(n))
        assert (of_whole_quotients(nest, facts_of(op)) != nest) == walks
