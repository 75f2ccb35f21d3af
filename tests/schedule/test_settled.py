"""Rules of products whose types leave no choice of widths: they are shorter, and choose the same."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tritongen import pipeline
from tritongen.schedule.rules import evaluate, names, settled

SIZES = ("M", "N", "stored_bytes")
ATOMS = st.sampled_from([*SIZES, "itemsize", "1", "2", "4", "16", "256"])


def _conditions(numbers: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    compared = st.builds("({} {} {})".format, numbers, st.sampled_from(["<=", "==", ">"]), numbers)
    either = st.sampled_from(["and", "or"])
    return st.one_of(
        compared,
        st.builds("({} {} {})".format, compared, either, compared),
        st.builds("({} and {} or not {})".format, compared, compared, compared),
    )


def _numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//"]), inner),
        st.builds("({} if {} else {})".format, inner, _conditions(inner), inner),
        st.builds("min({}, {})".format, inner, inner),
        st.builds("max({}, {}, 8)".format, inner, inner),
    )


NUMBERS = st.recursive(ATOMS, _numbers, max_leaves=8)


@given(
    st.one_of(NUMBERS, _conditions(NUMBERS)),
    st.fixed_dictionaries({n: st.integers(1, 300) for n in SIZES}),
    st.sampled_from([1, 2, 4]),
)
def test_a_settled_rule_has_the_same_value(rule, sizes, width):
    known = {"itemsize": width}
    try:
        wanted, shorter = evaluate(rule, sizes | known), settled(rule, known)
    except ZeroDivisionError:
        assume(False)
    assert "itemsize" not in names(shorter)
    assert evaluate(shorter, sizes) == wanted


def test_a_product_of_halves_has_no_form_for_f32():
    text = """op f<T: f16 | bf16>(a: T[M, K], b: T[K, N]) -> y: T[M, N] {
      y[m, n] = sum[k](a[m, k] * b[k, n])
    }"""
    ((plan,),) = (item.plans for item in pipeline.build(text).items)
    (step,) = plan.steps
    rules = [r for v in step.variants for r in (v.when, *dict(v.config).values())]
    assert not set().union(*map(names, rules)) & {"itemsize", "stored_bytes"}
    assert "lanes" not in {v.name for v in step.variants} and not any(k.lanes for k in step.kernels)
