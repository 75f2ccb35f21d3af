"""Rows of the table of functions on plain numbers, for what plans know of a value without its data.

    on_numbers("exp", [-inf])  ->  0.0        on_numbers("log", [0.0])  ->  None

None: the row is not here, or has no finite or infinite value there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly
from tritongen.ir.free import coordinates

ON_NUMBERS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "exp": math.exp,
    "abs": abs,
    "square": lambda a: a * a,
    "pow_int": lambda a, b: a**b,
    "maximum": max,
    "minimum": min,
    "relu": lambda a: max(a, 0.0),
}

# Of finite numbers alone: at infinities a kernel may have others.
ON_FINITE: dict[str, Callable[..., float]] = ON_NUMBERS | {
    "div": lambda a, b: a / b,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "expm1": math.expm1,
    "log1p": math.log1p,
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "sigmoidc": lambda a: 1 / (1 + math.exp(a)),
    "ndtr": lambda a: (1 + math.erf(a / math.sqrt(2))) / 2,
    "times_ndtr": lambda a: a * (1 + math.erf(a / math.sqrt(2))) / 2,
    "tanh_softplus": lambda a: math.tanh(math.log1p(math.exp(a))),
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def on_numbers(
    fn: str, args: Sequence[float | None], table: dict[str, Callable[..., float]] = ON_NUMBERS
) -> float | None:
    if any(a is None for a in args):
        return None
    try:
        found = table[fn](*args)
    except (KeyError, ArithmeticError, ValueError):
        return None
    return None if math.isnan(found) else found


def at_zeros(e: ir.Expr) -> float | None:
    """The finite value of an expression where all that it reads is 0; None where that is not known."""
    match e:
        case ir.Const(value):
            found: float | None = float(value)
        case ir.Read(_, _, fill):
            found = None if fill else 0.0
        case ir.Cast(arg):
            found = at_zeros(arg)
        case ir.Call("where", (condition, yes, no)):
            chosen, branches = at_zeros(condition), {at_zeros(yes), at_zeros(no)}
            found = None
            if len(branches) == 1 or chosen is not None:
                found = at_zeros(yes if chosen else no)
        case ir.Call("seen", (_, arg)):
            found = at_zeros(arg)
        case ir.Call(fn, args):
            found = on_numbers(fn, [at_zeros(a) for a in args], ON_FINITE)
        case _:
            found = None
    return found if found is not None and math.isfinite(found) else None


def is_zero_outside(e: ir.Expr, at: Poly) -> bool:
    """Whether a value is 0 wherever what it reads at a coordinate is outside."""

    def zero(part: ir.Expr) -> bool:
        return is_zero_outside(part, at)

    match e:
        case ir.Read(coords=coords, fill=fill):
            return at in coords and fill == 0
        case ir.Const(value):
            return value == 0
        case ir.Cast(arg) | ir.Call("seen", (_, arg)):
            return zero(arg)
        case ir.Call("div", (arg, by)):
            return zero(arg) and at not in coordinates(by)
        case ir.Call("mul", args):
            return any(map(zero, args))
        case ir.Call("where", (_, *args)):
            return all(map(zero, args))
        case ir.Call("pow_int", (arg, ir.Const(power))):
            return power > 0 and zero(arg)
        case ir.Call(fn, args):
            return all(map(zero, args)) and on_numbers(fn, [0.0] * len(args), ON_FINITE) == 0
    return False
