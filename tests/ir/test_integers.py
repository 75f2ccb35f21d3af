"""Integers of 64 bits that need only 32: each value fits, and is the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tritongen import pipeline
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import evaluate, index, poly
from tritongen.ir.integers import LIMITS, in_32_bits, is_plain, values_of
from tritongen.ir.on_numbers import ON_NUMBERS

DTYPES = ("u8", "i8", "i16", "i32")
ON_INTEGERS = ON_NUMBERS | {
    "bit_and": lambda a, b: a & b,
    "shift_right": lambda a, b: a >> min(b, 63) if b >= 0 else -(a < 0),
    "mod": lambda a, b: a % b if b else 0,
    "floordiv": lambda a, b: a // b if b else 0,
}
FUNCTIONS = ("add", "sub", "mul", "maximum", "bit_and", "shift_right", "mod", "floordiv", "neg")
K = index("k")


@st.composite
def integers(draw, depth=3):
    """An expression of i64 over reads of narrow types, numbers and remainders of an index."""
    leaf = depth == 0 or draw(st.integers(0, 3)) == 0
    kind = draw(st.sampled_from(("read", "read", "number", "remainder"))) if leaf else "call"
    match kind:
        case "read":
            read = ir.Read("x", (K,), None, draw(st.sampled_from(DTYPES)))
            return ir.Cast(read, "i64")
        case "number":
            value = draw(
                st.one_of(st.integers(-300, 300), st.sampled_from((2**31, -(2**33), 2**15)))
            )
            return ir.Const(value, "i64")
        case "remainder":
            step = draw(st.integers(1, 9))
            return ir.IndexValue((K - K // poly(step) * step) * draw(st.integers(-5, 5)), "i64")
    fn = draw(st.sampled_from(FUNCTIONS))
    args = tuple(draw(integers(depth=depth - 1)) for _ in range(1 if fn == "neg" else 2))
    return ir.Call(fn, args, "i64")


def value(e, k, reads):
    """Its value, without a limit of bits. Each i32 in it must fit."""
    match e:
        case ir.Const(number):
            found = number
        case ir.IndexValue(p):
            found = int(evaluate(p, {"k": k}))
        case ir.Read(dtype=dtype):
            found = reads[dtype]
        case ir.Cast(arg):
            found = value(arg, k, reads)
        case ir.Call(fn, args):
            found = ON_INTEGERS[fn](*(value(a, k, reads) for a in args))
    low, high = LIMITS.get(e.dtype, (found, found))
    assert e.dtype == "i64" or low <= found <= high
    return found


@settings(max_examples=400, deadline=None)
@given(integers(), st.integers(0, 1000), st.data())
def test_what_is_short_has_the_same_value(e, k, data):
    ends = [st.sampled_from((*map(int, LIMITS[d]), 0, -1 if d != "u8" else 1)) for d in DTYPES]
    reads = {d: data.draw(end) for d, end in zip(DTYPES, ends, strict=True)}
    nest = ir.Nest("y", (), (), (), ir.Cast(e, "f32"), "f32")
    op = ir.Op("f", (), (), (), (), (nest,))
    found = in_32_bits(op).nests[0].body.arg
    assert value(found, k, reads) == value(e, k, reads)
    if found.dtype == "i32":
        low, high = values_of(found, wrapped=True)
        assert low <= value(found, k, reads) <= high


def test_plain_operators():
    def plain(fn, dtype, by):
        read = ir.Read("x", (K,), None, dtype)
        return is_plain(ir.Call(fn, (read, by), dtype))

    assert plain("shift_right", "u8", ir.Const(7, "u8"))
    assert not plain("shift_right", "u8", ir.Const(8, "u8"))
    assert plain("shift_left", "i32", ir.Const(31, "i32"))
    assert not plain("shift_left", "i32", ir.Const(32, "i32"))
    assert not plain("shift_right", "i8", ir.Const(-1, "i8"))
    assert not plain("shift_right", "i32", ir.Read("s", (K,), None, "i32"))
    assert plain("mod", "u8", ir.Const(16, "u8")) and not plain("mod", "i8", ir.Const(16, "i8"))
    assert not plain("floordiv", "u8", ir.Const(0, "u8"))


def test_nibbles_are_unpacked_in_32_bits():
    text = "op f(w: u8[N, H]) -> y: f32[N, K] with K = 2 * H {\n"
    text += "  y[n, k] = f32(bit_and(shift_right(w[n, k // 2], 4 * (k % 2)), 15)) - 8\n}"
    (plan,) = pipeline.build(text).plans["f"]
    bodies = [n.body for s in plan.steps for kernel in s.kernels for n in kernel.nests]
    dtypes = {e.dtype for body in bodies for e in ir.walk(body)}
    assert "i32" in dtypes and "i64" not in dtypes
