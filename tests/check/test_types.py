"""Type parameters that no operand binds: arguments of the call, from the spec to the registered op."""

import pytest
import torch

import tritongen
from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.errors import SpecError
from tritongen.ir.binding import bind
from tritongen.ir.interp import run_rounded
from tritongen.ir.print import print_op
from tritongen.syntax.parse import parse

QUANTIZE = """
op quantize<T: float, U: f16 | bf16 = bf16>(x: T[N], scale: f32 = 2.0) -> y: U[N] {
  y[n] = x[n] * scale
}
op narrow<T: float, U: f16 | bf16>(x: T[...]) -> y: U[...] { y[...] = 3 * U(x[...]) }
op widen<V: float | int>(x: i8[N]) -> y: V[N] { y[n] = x[n] + 1 }
op twice<T: float, V: f16 | bf16>(x: T[N]) -> y: V[N] { y = 2 * narrow(x, U = V) }
op fixed<T: float>(x: T[N]) -> y: T[N] { y = narrow(x, U = f16) + quantize(x) }
"""
CASTS = """
op last<T: float, U: float>(x: T[N]) -> y: U[N] { y[n] = U(x[n]) }
op halved(x: f32[N]) -> y: f32[N] { y[n] = f32(f16(x[n])) }
op called(x: f32[N]) -> (a: f32[N], b: f32[N], c: f32[N]) {
  a = 2 * last(x, U = f16)
  b = last(last(x, U = f16), U = f32)
  c = halved(x) * 2
}
op chained<T: float>(x: T[N]) -> y: T[N] { z = 3 * kept(x)  y = z }
op kept<T: float>(x: T[N]) -> y: T[N] { y[n] = x[n] * x[n] }
"""
X = torch.tensor([1.0, 1.003, -2.5, 3e-5])


@pytest.fixture(scope="module")
def ops(tmp_path_factory):
    path = tmp_path_factory.mktemp("types") / "quantize.op"
    path.write_text(QUANTIZE)
    return tritongen.load(path)


def test_it_is_an_argument_with_the_specs_default(ops):
    assert torch.equal(ops.quantize(X), (X * 2).bfloat16())
    assert torch.equal(ops.quantize(X, U=torch.float16), (X * 2).half())
    assert torch.equal(ops.quantize.reference(X, U=torch.float16), (X * 2).half())
    assert torch.equal(ops.narrow(X, U=torch.float16), (3 * X.half().float()).half())
    with pytest.raises(TypeError, match="U"):
        ops.narrow(X)


@pytest.mark.parametrize("given", [torch.float32, "f16", None])
def test_another_dtype_is_refused(ops, given):
    expected = f"quantize: U: expected torch.float16 or torch.bfloat16, given {given}"
    with pytest.raises(ValueError) as raised:
        ops.quantize(X, U=given)
    assert str(raised.value) == expected


def test_it_decides_the_typing(ops):
    x = torch.tensor([100, -3], dtype=torch.int8)
    for dtype in (torch.int32, torch.float16, torch.float64):
        got = ops.widen(x, V=dtype)
        assert got.dtype == dtype and torch.equal(got, (x.long() + 1).to(dtype))


def test_a_caller_passes_it_by_name(ops):
    assert torch.equal(ops.twice(X, V=torch.float16), (6 * X.half().float()).half())
    torch.testing.assert_close(ops.fixed(X), (3 * X.half().float()).half() + (X * 2).bfloat16())


def test_what_a_call_asks_for_is_rounded_and_no_more():
    """A cast that the callee writes last, or a dtype that only the call names; else nothing is stored between."""
    x, halved = X.half(), X.half().float()
    got = tritongen.compile_op(CASTS, "called")(X)
    for value, expected in zip(got, (2 * halved, halved, 2 * halved), strict=True):
        assert torch.equal(value, expected)
    assert torch.equal(tritongen.compile_op(CASTS, "chained")(x), (3 * halved * halved).half())
    for checked in check(parse(CASTS)):
        back = print_op(gradient(checked.typings[0]))
        assert print_op(check(parse(back))[0].typings[0]) == back


def test_a_cast_to_a_narrower_integer_stays():
    text = "op f(x: i64[N]) -> (y: i32[N], z: i64[N]) { y[n] = i32(i8(i32(x[n])))  z[n] = i64(bool(x[n])) }"
    narrow, truth = tritongen.compile_op(text)(torch.tensor([300, -1]))
    assert narrow.tolist() == [300 - 256, -1] and truth.tolist() == [1, 1]


@pytest.mark.parametrize(
    "call, said",
    [
        ("narrow(x)", "E501.*`narrow` needs its type `U`"),
        ("narrow(x, V = f16)", "E501.*`narrow` takes no type `V`"),
        ("narrow(x, U = f32)", "E301.*does not take f32"),
        ("narrow(x, U = W)", "E110.*unknown dtype `W`"),
        ("exp(x, U = f16)", "E501.*`exp` takes no type `U`"),
        ("gelu(x, U = f16)", "E501.*`gelu` takes no type `U`"),
    ],
)
def test_a_call_that_passes_it_wrongly(call, said):
    text = QUANTIZE + f"op bad<T: float>(x: T[N]) -> y: T[N] {{ y = {call} }}"
    with pytest.raises(SpecError, match=said):
        check(parse(text))


def test_it_prints_and_its_gradient_is_bound_by_dy():
    for checked in check(parse(QUANTIZE)):
        for op in checked.typings:
            assert any(f"{p.name}: " in print_op(op) for p in op.typarams)
            (again,) = check(parse(print_op(op)))
            assert any(o.typarams == op.typarams for o in again.typings)
    back = gradient(check(parse(QUANTIZE))[0].typings[0])
    assert back.free_typarams == ()
    (again,) = check(parse(print_op(back)))
    assert again.typings[0].typarams == back.typarams


def test_the_oracle_takes_it():
    op = check(parse(QUANTIZE))[0].typings[0]
    assert bind(op, {"x": X}).dtypes["U"] == "bf16"
    assert run_rounded(op, {"x": X, "U": torch.float16})["y"].dtype == torch.float16
    with pytest.raises(ValueError, match="quantize: U: expected"):
        bind(op, {"x": X, "U": torch.int8})


def test_the_registered_op_takes_a_scalar_type(ops):
    call = torch.compile(
        lambda x: ops.quantize(x, U=torch.float16), backend="aot_eager", fullgraph=True
    )
    assert torch.equal(call(X), (X * 2).half())
    schemas = [getattr(torch.ops.tritongen, n) for n in dir(torch.ops.tritongen)]
    assert any("ScalarType" in str(s.default._schema) for s in schemas if hasattr(s, "default"))
