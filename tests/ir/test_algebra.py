"""The index algebra against brute enumeration: every normal form has the value of what built it."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritongen.ir import algebra
from tritongen.ir.algebra import (
    Fetch,
    Idx,
    Poly,
    affine,
    denominator,
    evaluate,
    extreme,
    index,
    is_fractional,
    is_size,
    numerator,
    poly,
    size,
    substitute,
    text,
)

INDICES, SIZES = ("i", "j"), ("A", "B")
ENVIRONMENTS = [
    dict(zip(INDICES + SIZES, values, strict=True))
    for values in product((-2, 0, 3), (0, 1, 5), (1, 4), (2, 3))
]

# A tree is nested tuples; `build` makes a poly of it, `value` computes it without the algebra.
Tree = tuple


def build(tree: Tree) -> Poly:
    match tree:
        case ("n", number):
            return poly(number)
        case ("name", name):
            return index(name) if name in INDICES else size(name)
        case ("+", a, b):
            return build(a) + build(b)
        case ("-", a, b):
            return build(a) - build(b)
        case ("*", a, b):
            return build(a) * build(b)
        case ("/", a, b):
            return build(a) / build(b)
        case ("//", a, b):
            return build(a) // build(b)
        case ("%", a, b):
            return build(a) % build(b)
        case (("min" | "max") as op, a, b):
            return extreme(op, (build(a), build(b)))
    raise TypeError(tree)


def value(tree: Tree, env: dict[str, int]) -> Fraction:
    match tree:
        case ("n", number):
            return Fraction(number)
        case ("name", name):
            return Fraction(env[name])
    op, a, b = tree[0], value(tree[1], env), value(tree[2], env)
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
        case "//":
            return Fraction(floor(a / b))
        case "%":
            return a - b * floor(a / b)
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
    raise TypeError(tree)


numbers = st.integers(-4, 4).map(lambda n: ("n", n))
names = st.sampled_from(INDICES + SIZES).map(lambda n: ("name", n))
# What divides is a size that is positive in every environment.
divisors = st.sampled_from(
    [("n", 2), ("n", 3), ("name", "A"), ("name", "B"), ("*", ("name", "A"), ("name", "B"))]
    + [("+", ("name", "A"), ("name", "B")), ("+", ("name", "A"), ("n", 1))]
)
sizes = st.recursive(
    st.sampled_from(SIZES).map(lambda n: ("name", n)) | numbers,
    lambda s: st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), s, s),
    max_leaves=3,
)
trees = st.recursive(
    numbers | names,
    lambda t: st.tuples(st.sampled_from(["+", "-"]), t, t)
    | st.tuples(st.just("*"), t, sizes)
    | st.tuples(st.sampled_from(["/", "//", "%"]), t, divisors),
    max_leaves=7,
)
check = settings(max_examples=150, deadline=None)


@check
@given(trees)
def test_building_keeps_the_value(tree):
    built = build(tree)
    for (
        _,
        factor,
    ) in built.terms:  # an int where it is whole, and never a float, as int / int would be
        assert type(factor) is (int if factor.denominator == 1 else Fraction)
    for env in ENVIRONMENTS:
        assert evaluate(built, env) == value(tree, env)


@check
@given(trees)
def test_the_text_is_the_expression(tree):
    built = build(tree)
    code = text(built)
    for env in ENVIRONMENTS[::5]:
        exact = {name: Fraction(n) for name, n in env.items()}
        names_only = {"__builtins__": {}, "min": min, "max": max}
        # Python's `/` on Fractions is exact, as in the notation; literals must be Fractions too.
        assert eval(_with_fractions(code), {**names_only, "F": Fraction}, exact) == value(tree, env)


def _with_fractions(code: str) -> str:
    import re

    return re.sub(r"(?<![\w.])(\d+)", r"F(\1)", code)


@check
@given(trees, trees)
def test_equal_polys_from_equal_sums(a, b):
    """The normal form does not depend on the order of construction."""
    x, y = build(a), build(b)
    assert x + y == y + x and x - x == Poly() and (x + y) - y == x and x * 2 == x + x


@check
@given(trees, st.sampled_from(INDICES), trees)
def test_substitution_commutes_with_evaluation(tree, name, new):
    built = substitute(build(tree), {name: build(new)})
    for env in ENVIRONMENTS:
        there = value(new, env)
        if there.denominator == 1:
            assert evaluate(built, env) == value(tree, {**env, name: int(there)})


@check
@given(trees)
def test_denominator_says_where_a_coordinate_is_whole(tree):
    built = build(tree)
    below, above = denominator(built), numerator(built)
    assert not any(power < 0 for monomial, _ in above.terms for _, power in monomial)
    for env in ENVIRONMENTS:
        whole, by = evaluate(above, env), evaluate(below, env)
        assert whole.denominator == by.denominator == 1 and by > 0
        assert Fraction(whole, by) == value(tree, env)


@check
@given(trees)
def test_affine_takes_apart_what_adds_up_again(tree):
    built = build(tree)
    split = affine(built)
    if split is None:
        return
    coefficients, rest = split
    assert is_size(rest) and all(is_size(c) for c in coefficients.values())
    assert sum((c * poly(a) for a, c in coefficients.items()), rest) == built


@pytest.mark.parametrize(
    ("built", "shown"),
    [
        ((index("p") * size("s") + index("r")) // size("s"), "p + r // s"),
        ((index("p") * size("s")) / size("s"), "p"),
        ((size("A") * 2) // 2, "A"),
        (index("i") // 1, "i"),
        (poly(7) // 2, "3"),
        (poly(-7) % 4, "1"),
        ((index("p") + size("pad") - index("r")) / size("s"), "p / s - r / s + pad / s"),
        (size("D") - 1 - index("i"), "D - i - 1"),
        (index("i") / (size("A") + size("B")), "i / (A + B)"),
        (-index("i"), "-i"),
        (poly(Fetch("t", (index("n"),), -1)) + 1, "(t[n] else -1) + 1"),
    ],
)
def test_normal_forms(built, shown):
    assert sorted(text(built).replace("- ", "-").split()) == sorted(
        shown.replace("- ", "-").split()
    )


def test_a_quotient_of_a_quotient_is_one():
    i, k = index("i"), size("K")
    assert algebra.floordiv(-i / 2, poly(2)) == algebra.floordiv(-i, poly(4))
    assert algebra.floordiv(i + 1, k / 2) == algebra.floordiv(2 * i + 2, k)


def test_a_term_that_may_be_fractional_stays_in_the_floor():
    """Taking i / 2 out of (i / 2 + 1) // 1 would floor nothing."""
    built = (index("i") / 2 + 1) // 1
    assert is_fractional(index("i") / 2) and evaluate(built, {"i": 1}) == 1


def test_products_of_indices_are_not_affine():
    assert affine(index("i") * index("j")) is None
    assert affine(index("i") * size("A")) == ({Idx("i"): size("A")}, Poly())


def test_division_by_zero_is_refused():
    for divide in (lambda: index("i") / 0, lambda: index("i") // 0, lambda: index("i") % 0):
        with pytest.raises(ZeroDivisionError):
            divide()


def test_a_read_has_no_value_without_its_tensor():
    with pytest.raises(TypeError):
        algebra.evaluate(poly(Fetch("t", (index("n"),))), {"n": 0})


def test_a_remainder_is_shown_as_one_whatever_it_is_multiplied_by():
    a, w = size("A"), size("B")
    number = index("i") // a
    shown = algebra.with_modulo(number % w * a + index("j") * w + 1)
    assert str(shown) == "(i // A % B) * A + j * B + 1"
    assert algebra.with_modulo(number - (number // w) * a) == number - (number // w) * a
