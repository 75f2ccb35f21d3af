"""Proofs against brute force: what `prove` says holds at every point of every small size."""

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritongen.ir import bounds
from tritongen.ir.algebra import evaluate, extreme, index, poly, size
from tritongen.ir.bounds import corners, gather, peaks, plainly_nonnegative, prove, within
from tritongen.ir.nodes import Define, Require

A, B, K, P = map(size, "ABKP")  # A, B: sizes; K: a constant, of any sign; P: derived
I, J = index("i"), index("j")  # noqa: E741
ZERO = poly(0)
COMPARE = {
    "==": lambda a, b: a == b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
}


def fact(left, op, right):
    return Require(left, op, right, "")


FACTS = [
    (),
    (Define("P", A - B + 1),),
    (fact(K, ">=", poly(1)), Define("P", (A - B) // K + 1)),
    (fact(K, ">=", poly(1)), fact(A % K, "==", ZERO), Define("P", A // K)),
    (fact(A, "==", B * K),),
    (fact(K, ">=", poly(1)), fact(A, "==", K * B), fact(B % K, "==", ZERO)),
    (fact(A, ">=", B + 2), fact(K, ">=", poly(-1))),
    (Define("P", extreme("min", (A, B))), fact(2 * K, "<", A)),
    (fact(K, "<", poly(0)),),
]
ATOMS = [I, J, I * K, A, B, K, P, poly(1), A // poly(2), I // poly(2), (I + J) // poly(3)]
ATOMS_BY_K = [A // K, I // K, I % K, (I + K) % A, K * (A // K), I // B, K * (I // K)]


@cache
def values(facts):
    """Every small assignment that the facts allow."""
    return list(_values(facts))


def _values(facts):
    defined = {f.name for f in facts if isinstance(f, Define)}
    for point in product(range(5), range(4), (-2, -1, 1, 2, 3)):
        found = dict(zip("ABK", point, strict=True))
        try:
            for f in facts:
                if isinstance(f, Define):
                    found[f.name] = evaluate(f.value, found)
                    if found[f.name] < 0:
                        break
                elif not COMPARE[f.op](evaluate(f.left, found), evaluate(f.right, found)):
                    break
            else:
                for p in [0, 1, 3] if "P" not in defined else [found["P"]]:
                    yield {**found, "P": p}
        except ZeroDivisionError:
            continue


def points(facts, ranges):
    for found in values(facts):
        first, second = (range(int(evaluate(hi, found))) for _, hi in ranges)
        for i, j in product(first, second):
            yield {**found, "i": i, "j": j}


@settings(max_examples=100, deadline=None)
@given(
    facts=st.sampled_from(FACTS),
    his=st.tuples(*[st.sampled_from([A, B, P, poly(2)])] * 2),
    terms=st.lists(
        st.tuples(st.integers(-2, 2), st.sampled_from(ATOMS + ATOMS_BY_K)), min_size=1, max_size=4
    ),
    op=st.sampled_from([">=", "<", "=="]),
    guarded=st.booleans(),
)
def test_a_proof_holds_at_every_point(facts, his, terms, op, guarded):
    gap = sum((atom * factor for factor, atom in terms), ZERO)
    ranges = [(ZERO, hi) for hi in his]
    known = gather(("A", "B", "P"), facts)
    guards = [I - J] if guarded else []
    verdict = prove(gap, op, ZERO, known, dict(zip("ij", ranges, strict=True)), guards)
    ends = corners(gap, within(known, dict(zip("ij", ranges, strict=True))))
    tops = peaks(gap, within(known, dict(zip("ij", ranges, strict=True))))
    for point in points(facts, ranges):
        try:
            value = evaluate(gap, point)
        except ZeroDivisionError:
            continue
        if ends is not None:
            assert min(evaluate(end, point) for end in ends) <= value
        if tops is not None:
            assert max(evaluate(top, point) for top in tops) >= value
        if guarded and point["j"] > point["i"]:
            continue
        if verdict is not None:
            assert COMPARE[op](value, 0) is verdict, (str(gap), point)


H, R, S, C, G, F, N, D = map(size, "HRSCGFND")
g, f, c, p, r, k, n, d = map(index, "gfcprknd")
STRIDED = (fact(S, ">=", poly(1)), Define("P", (H - R) // S + 1))
SQUARE = (fact(S, ">=", poly(1)), fact(C % (S * S), "==", ZERO))
GROUPED = (fact(G, ">=", poly(1)), fact(F % G, "==", ZERO), fact(C, "==", G * D))
# two weights in a byte, which say first what F is
PACKED = (fact(F, "==", D * 2), fact(G, ">=", poly(1)), fact(F % G, "==", ZERO))


@pytest.mark.parametrize(
    "coordinate, dim, facts, ranges",
    [
        (p + r, H, (Define("P", H - R + 1),), {"p": P, "r": R}),
        (p * S + r, H, STRIDED, {"p": P, "r": R}),
        (f // (F // G) * D + c, C, GROUPED, {"f": F, "c": D}),
        (f // (F // G), G, GROUPED, {"f": F}),
        (f // (F // G), G, PACKED, {"f": F}),
        (f // poly(2), D, PACKED, {"f": F}),
        (g * (F // G) + k, F, GROUPED, {"g": G, "k": F // G}),
        ((n + size("shift")) % N, N, (), {"n": N}),
        # the sum of a window of b[j + k] beside b[(i + 1) % W]: only the index says that N is not 0
        ((n - 1) % N, N, (fact(K, ">=", poly(1)), fact(N, "==", D + K - 1)), {"n": N}),
        (N - 1 - n, N, (), {"n": N}),
        (n // poly(2), N, (), {"n": N}),
        (k * N + n, N * 4, (), {"k": poly(4), "n": N}),
        # pixel shuffle: two remainders beside a multiple
        (d * S * S + (p % S) * S + r % S, C, SQUARE, {"d": C // (S * S), "p": H * S, "r": R * S}),
    ],
)
def test_what_the_language_promises_needs_no_else(coordinate, dim, facts, ranges):
    known = gather(("H", "R", "C", "F", "N", "D"), facts)
    found = {name: (ZERO, hi) for name, hi in ranges.items()}
    assert prove(coordinate, ">=", ZERO, known, found) is True
    assert prove(coordinate, "<", dim, known, found) is True


def test_undecided_outside_and_at_the_ends():
    known = gather(("N", "D"))
    box = {"n": (ZERO, N)}
    assert prove(n + 1, "<", N, known, box) is None
    assert prove(n + N, "<", N, known, box) is False
    assert corners(D - 1 - n, within(known, {"n": (ZERO, poly(5))})) == (D - 5,)
    # the sign of a constant is not known: both ends count
    assert set(corners(n * size("k"), within(known, box))) == {ZERO, (N - 1) * size("k")}


@pytest.mark.parametrize("order", (1, -1))
def test_an_equality_forgets_no_bound(order):
    """Whatever P == B - A makes of the names, A > 0 lets it divide."""
    A, B, P, M = map(size, "ABPM")
    known = gather("ABPM", (fact(A, ">", ZERO), fact(P, "==", B - A))[::order])
    box = {"n": (ZERO, M)}
    assert prove(n // A, "<", M, known, box) is True
    assert prove(n % A, "<", A, known, box) is True


def test_what_says_the_same_is_one():
    """Each read of an op finds its facts anew: what was proven for one holds for all without another proof."""
    one, other = (within(gather("AB", [fact(A, ">", B)]), {"i": (ZERO, A - B)}) for _ in range(2))
    assert one is other
    assert one is not within(one, {"j": (ZERO, A)})


def test_the_least_value_refutes_at_once():
    """`A * A - 3 * A + 1` is -1 at A == 1; an index adds nothing there, and a floor is looked into."""
    facts = within(gather("A", [fact(A, ">", ZERO)]), {"i": (ZERO, A)})
    for p, holds in (
        (A * A - A * 3 + 1 + I, False),
        (A * 2 - 2 + I, True),
        ((A + 1) // 2 - 1, True),
        (A // 2 - 1, False),
    ):
        assert plainly_nonnegative(p, facts) == holds, p


def test_a_claim_that_large_sizes_refute_is_not_searched_for(monkeypatch):
    """Of forty sizes in a row, A0 >= A1 >= ..., no drawn point was allowed, and all claims were searched for."""
    names = [f"A{k}" for k in range(40)]
    row = [fact(size(a), ">=", size(b)) for a, b in zip(names, names[1:], strict=False)]
    facts = gather(names, row)
    monkeypatch.setattr(bounds, "_search", None)
    assert prove(size("A39"), ">=", size("A0"), facts) is None
    assert prove(size("A0"), "<", poly(100), facts) is None
