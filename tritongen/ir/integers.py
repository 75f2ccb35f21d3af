"""Which integer arithmetic may wrap: the least and the greatest value of an expression, by the dtypes of what it reads.

wraps(q[k] - 8)                q: u8   True: 3 - 8 is 251
wraps(bit_and(q[k], 15) * 4)   q: u8   False: at most 60

`in_32_bits` computes in 32 bits what the language computes in 64, where all values fit:

f32(bit_and(shift_right(i64(q[k // 2]), 4 * (k % 2)), 15))    is    f32(bit_and(shift_right(i32(q[k // 2]), 4 * (k % 2)), 15))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from tritongen.ir.algebra import Poly, with_modulo
from tritongen.ir.atoms import Mod
from tritongen.ir.nodes import (
    Call,
    Cast,
    Const,
    Expr,
    IndexValue,
    Op,
    Read,
    Reduce,
    ScalarRef,
    parts,
    rebuild,
)
from tritongen.ir.on_numbers import ON_NUMBERS

Span = tuple[float, float]
ANY: Span = (float("-inf"), float("inf"))
LIMITS: dict[str, Span] = {"bool": (0, 1), "u8": (0, 255)} | {
    f"i{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)
}
MONOTONE = frozenset("add sub mul neg maximum minimum".split())  # in each argument
INTEGRAL = frozenset("bit_and shift_right mod floordiv".split())
STAYS = frozenset("bit_and bit_or bit_xor mod sign detach relu clamp".split())


def wraps(expr: Expr, is_int: Callable[[str], bool], dtype: str = "") -> bool:
    """Whether some arithmetic of narrow integers in it may leave its dtype, or `dtype` if that is given. `u8(q[k] - 8)` says that it does."""
    match expr:
        case Cast(Call(args=args) as arg) if expr.dtype == arg.dtype:
            return any(wraps(a, is_int, dtype) for a in args)
        case Call() if wraps_here(expr, is_int, dtype):
            return True
    return any(wraps(part, is_int, dtype) for part in parts(expr))


def wraps_here(call: Call, is_int: Callable[[str], bool], dtype: str = "") -> bool:
    narrow = is_int(call.dtype) and call.dtype != "i64"
    return narrow and not _within(values_of(call), dtype or call.dtype)


def values_of(expr: Expr, wrapped: bool = False) -> Span:
    """The least and the greatest value of an expression in which nothing wraps. With `wrapped`, arithmetic may wrap."""
    own = LIMITS.get(expr.dtype, ANY)
    found = _unwrapped(expr, own, wrapped)
    return own if wrapped and not _within(found, expr.dtype) else found


def _unwrapped(expr: Expr, own: Span, wrapped: bool) -> Span:
    match expr:
        case Const(int(value)):
            return value, value
        case IndexValue(p):
            return _of_remainders(p)
        case Cast(arg) if arg.dtype in LIMITS:
            found = values_of(arg, wrapped)
            return found if _within(found, expr.dtype) else own
        case Call(fn, args):
            spans = [values_of(a, wrapped) for a in args]
            return _result(fn, spans, own)
    return own


def _result(fn: str, spans: list[Span], own: Span) -> Span:
    """The values of a function of arguments with these values. `own`: all values of its dtype."""
    if fn == "where":
        (low, high), (lower, higher) = spans[1:]
        return min(low, lower), max(high, higher)
    if fn == "bit_and" and (ends := [high for low, high in spans if low >= 0]):
        return 0, min(ends)
    if fn == "shift_right":
        return min(spans[0][0], 0), max(spans[0][1], 0)
    if fn == "mod" and spans[1][0] > 0:
        return 0, spans[1][1] - 1
    if fn == "floordiv" and spans[1][0] > 0 and ANY not in spans:
        found = [a // b for a, b in product(*spans)]
        return min(found), max(found)
    if fn in MONOTONE and ANY not in spans:
        found = [ON_NUMBERS[fn](*at) for at in product(*spans)]
        return min(found), max(found)
    return own if fn in STAYS else ANY


def _of_remainders(p: Poly) -> Span:
    """The values of a sum of remainders by numbers, `4 * (k % 2) + 1`."""
    low, high = 0.0, 0.0
    for monomial, value in with_modulo(p).terms:
        match monomial:
            case ():
                ends = (value, value)
            case ((Mod(_, den), 1),) if den.constant is not None and den.constant > 0:
                ends = (0, value * (den.constant - 1))
            case _:
                return ANY
        low, high = low + min(ends), high + max(ends)
    return low, high


def in_32_bits(op: Op) -> Op:
    """Returns the op with i64 arithmetic in i32, where the result is converted to a float and all values fit.

    A GPU takes several times as long for 64 bits. Sums of integers keep their dtypes, which products ask for.
    """
    return replace(op, nests=tuple(replace(n, body=rebuild(n.body, _of_32_bits)) for n in op.nests))


def _of_32_bits(expr: Expr) -> Expr:
    match expr:
        case Cast(Call(dtype="i64") as arg) if expr.dtype not in LIMITS and (own := _short(arg)):
            return replace(expr, arg=own)
    return expr


def _short(expr: Expr) -> Expr | None:
    """An integer as i32. None if some value in it may not fit."""
    if not _within(values_of(expr, wrapped=True), "i32"):
        return None
    match expr:
        case Const(value):
            return Const(value, "i32")
        case IndexValue(p):
            return IndexValue(p, "i32")
        case Cast(arg, "i64") if arg.dtype in LIMITS:
            return _short(arg)
        case Call(fn, args, "i64") if fn in MONOTONE | INTEGRAL:
            own = [a for a in map(_short, args) if a is not None]
            return replace(expr, args=tuple(own), dtype="i32") if len(own) == len(args) else None
        case Call(dtype="i64") | Reduce() | Read(dtype="i64") | ScalarRef():
            return None
    return expr if expr.dtype == "i32" else Cast(expr, "i32")


def is_plain(call: Call) -> bool:
    """Whether Triton's own operator gives the value of the call for all operands.

    It does for shifts by fewer bits than the dtype has, and for quotients and remainders of numbers that are not negative.
    """
    (low, _), (least, most) = (values_of(a, wrapped=True) for a in call.args)
    if call.fn in ("mod", "floordiv"):
        return low >= 0 and least > 0
    bits = int(LIMITS.get(call.dtype, (0, 0))[1]).bit_length() + (call.dtype != "u8")
    return 0 <= least and most < bits


def _within(span: Span, dtype: str) -> bool:
    low, high = LIMITS.get(dtype, (0, -1))
    return low <= span[0] and span[1] <= high
