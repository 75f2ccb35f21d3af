"""Which integer arithmetic may wrap: the least and the greatest value of an expression, by the dtypes of what it reads.

wraps(q[k] - 8)                q: u8   True: 3 - 8 is 251
wraps(bit_and(q[k], 15) * 4)   q: u8   False: at most 60
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from tritongen.ir.nodes import Call, Cast, Const, Expr, parts
from tritongen.ir.on_numbers import ON_NUMBERS

Span = tuple[float, float]
ANY: Span = (float("-inf"), float("inf"))
LIMITS: dict[str, Span] = {"bool": (0, 1), "u8": (0, 255)} | {
    f"i{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)
}
MONOTONE = frozenset("add sub mul neg maximum minimum".split())  # in each argument
STAYS = frozenset("bit_or bit_xor shift_right mod sign detach relu clamp".split())


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


def values_of(expr: Expr) -> Span:
    """The least and the greatest value that it has if nothing in it wraps."""
    own = LIMITS.get(expr.dtype, ANY)
    match expr:
        case Const(int(value)):
            return value, value
        case Cast(arg) if arg.dtype in LIMITS:
            found = values_of(arg)
            return found if _within(found, expr.dtype) else own
        case Call("where", (_, a, b)):
            (low, high), (lower, higher) = values_of(a), values_of(b)
            return min(low, lower), max(high, higher)
        case Call("bit_and", (_, Const(int(mask)))) if mask >= 0:
            return 0, mask
        case Call(fn, args) if fn in MONOTONE:
            spans = [values_of(a) for a in args]
            if ANY in spans:
                return ANY
            ends = [ON_NUMBERS[fn](*at) for at in product(*spans)]
            return min(ends), max(ends)
        case Call(fn) if fn not in STAYS:
            return ANY
    return own


def _within(span: Span, dtype: str) -> bool:
    low, high = LIMITS.get(dtype, (0, -1))
    return low <= span[0] and span[1] <= high
