"""What may be 0 divides nothing: a call is refused where a divisor is 0, and no gradient divides by a factor."""

from __future__ import annotations

import pytest
import torch

from tritongen import lib, pipeline
from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.ir.binding import bind
from tritongen.ir.interp import run
from tritongen.ir.print import print_op
from tritongen.ir.verify import verify
from tritongen.runtime.load import load_text
from tritongen.syntax.parse import parse


def op_of(text: str):
    return check(parse(text))[0].typings[0]


# ---- factors that sizes make --------------------------------------------------------------------
FACTORS = [
    "x[i * (N // 2)] else 0",
    "x[i * (N - M)] else 0",
    "x[i * (N % 2)] else 0",
    "x[i * (-N // 2)] else 0",
    "exp(z[i]) * (x[i * (-N // 2)] else 1)",
    "exp(z[i]) * (x[M - i * (-(-N // 2))] else 1)",
    "x[i * (-(-N // 4))] else 0",
    "x[2 * i * (N - M) + M] else 0",
    "x[i * (N // 2) + i // 2] else 0",
    "x[(i * (N // 2)) % 3] else 0",
    "sum[k < 2](x[i * (M // 2) + k] else 0)",
    "sum[k < M // 2](x[i * (M // 2) + k] else 0)",
    "sum[k < N](x[i // 2 * (M // 2) + k] else 0)",
    "x[(i + N % 2) % M] else 0",
]


@pytest.mark.parametrize("value", FACTORS)
def test_a_gradient_is_the_adjoint_whatever_a_factor_is(value):
    """dy . (f(x) - f(0)) is df(dy) . x: also where a factor is 0 or negative, and all read one place."""
    op = op_of(f"op f(x: f64[N], z: f64[M]) -> y: f64[M] {{ y[i] = ({value}) * z[i] }}")
    back = gradient(op)
    for n in range(6):
        for m in range(6):
            x, z, dy = (torch.randn(size, dtype=torch.float64) for size in (n, m, m))
            y, none = (run(op, {"x": at, "z": z})["y"] for at in (x, 0 * x))
            known = {"x": x, "z": z, "dy": dy, "y": y}
            dx = run(back, {p.name: known[p.name] for p in back.params})["dx"]
            torch.testing.assert_close(
                dx @ x, dy @ (y - none), msg=f"N {n}, M {m}: {print_op(back)}"
            )


def test_a_factor_that_is_never_0_is_divided_by():
    """A sum over all places is for those alone that may be 0: -N // 2 is none where there is a place."""
    op = op_of("op f(x: f64[N]) -> y: f64[N] { y[i] = x[i * (-N // 2)] else 0 }")
    assert "sum" not in print_op(gradient(op))


# ---- divisors -----------------------------------------------------------------------------------
DIVIDED = [
    "x[i // (N // 2)] else 0",
    "x[i / (N // 2)] else 0",
    "x[i % (N // 2)] else 0",
    "x[i + N // (N // 2)] else 0",
    "sum[k < i // (N // 2)](x[k])",
    "sum[k < N // (N // 2)](x[k] else 0)",
    "sum[k](where(k % (N // 2) == i, x[k], 0))",
    "where(i % (N // 2) == 0, x[i], 0)",
    "x[i] * (N // (N // 2))",
]


@pytest.mark.parametrize("value", DIVIDED)
def test_a_call_that_divides_by_0_is_refused(value):
    text = f"op f<T: float>(x: T[N]) -> y: T[N] {{ y[i] = {value} }}"
    refused = r"f: requires N // 2 != 0 \(for `.*// 2.*`\): 0 == 0"
    built = load_text("divided", pipeline.build(text).source)
    for call in (lambda x: bind(op_of(text), {"x": x}), built.f):
        with pytest.raises(ValueError, match=refused):
            call(torch.ones(1))
        call(torch.ones(2))


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("F % groups == 0", "x[f // (F // groups)] else 0"),
        ("F % groups == 0", "x[f // F] else 0"),
        ("G = max(1, F // groups)", "x[f // G] else 0"),
        ("F % groups == 0", "sum[k < F](x[k // -(-F // 4)] else 0) + x[f]"),
    ],
)
def test_nothing_is_asked_of_what_is_not_0_where_it_divides(fact, value):
    """F // groups of f // (F // groups): there is an f, so F > 0, and groups divides F."""
    signature = "x: T[F], const groups: int) -> y: T[F]"
    op = op_of(f"op f<T: float>({signature} with {fact} {{ y[f] = {value} }}")
    assert not [r.text for r in op.requires if r.op == "!="]


def test_nothing_is_divided_where_there_are_no_terms():
    """The oracle of a sum over no k, whose terms divide by the number of them."""
    text = "op f(x: f64[N], z: f64[M]) -> y: f64[N] { y[i] = x[i] + sum[k < M](z[k / M] else 0) }"
    x, z = (torch.ones(size, dtype=torch.float64) for size in (2, 0))
    assert run(op_of(text), {"x": x, "z": z})["y"].tolist() == [1, 1]


# ---- fractions under a floor --------------------------------------------------------------------
@pytest.mark.parametrize("place", ["(p / 2) // 3", "(p / 2) % 3", "(p / 2 + 5) // 3"])
def test_a_fraction_under_a_floor_is_no_place(interpreter, place):
    """`x[(p / 2) // 3]` read x[0] for p = 1 in kernels, and `% 3` of it had an index of type fp32."""
    text = f"op f<T: float>(x: T[N]) -> y: T[P] with P = 3 * N {{ y[p] = x[{place}] else -1 }}"
    found = run(op_of(text), {"x": torch.arange(6.0)})["y"].tolist()
    places = [-1 if p % 2 else int(eval(place, {"p": p})) for p in range(18)]
    assert found == [p if p < 6 else -1 for p in places]
    job = {"text": text, "name": "fraction", "device": "cpu", "seed": 1, "seconds": 20}
    assert interpreter.ask(job | {"examples": 2}, timeout=60)["failures"] == []


def test_a_reference_divides_by_what_is_negative():
    """It asked i - 2 >= 0 for (i - 2) / (N - M) >= 0."""
    value = "sum[k <= (i - 2) / (N - M)](x[k] else 0) + z[i]"
    text = f"op f<T: float>(x: T[N], z: T[M]) -> y: T[M] {{ y[i] = {value} }}"
    args = {"x": torch.arange(1.0, 3), "z": torch.zeros(4)}
    reference = load_text("by_negative", pipeline.build(text).source).f_reference(**args)
    assert run(op_of(text), args)["y"].tolist() == reference.tolist() == [3, 0, 1, 0]


def test_a_derivative_by_the_value_has_the_type_of_the_value():
    """1 - w * w of w = tanh(f64(..)) was the difference of an f64 and a w of f32."""
    text = "op f<T: f32>(a: T[M], g: T[M]) -> w: T[M] { w[i] = tanh(f64(g[i]) * a[i]) }"
    verify(gradient(op_of(text)))


def test_a_scan_of_no_rows_has_a_config():
    """Beside another output that has elements, it is launched: ROWS was 0, and cdiv(rows, ROWS) divided by it."""
    text = "op f<T: float>(h: T[B, K]) -> x: T[K, B] { x[k, b] = sum[i <= b](h[i, k]) }"
    choose = load_text("no_rows", pipeline.build(text).source).choose_f
    variant, config = choose(
        rows=0, cols=2000, strided=True, aligned=True, itemsize=4, gpu=lib.Gpu(sms=100)
    )
    assert variant == "split" and config["ROWS"] == 1
