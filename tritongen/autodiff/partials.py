"""Partial derivatives of a call, from the text in the function table.

Input: a `Call` and how to write its own value. Output: per argument its partial derivative:

    partial(Call("exp", (x,)), 0, value=y)  ->  y            # the row says "y"
    partial(Call("mul", (u, v)), 0, value=...)  ->  v        # the row says "b"

Rows are in the language, in a, b, c and y, the result. Not here: what becomes of them (`flow.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tritongen.autodiff import exprs
from tritongen.ir.functions import (
    BUILTINS,
    FUNCTIONS,
    OPERATORS,
    SMALL_POWERS,
    power_derivative,
)
from tritongen.ir.nodes import Call, Const, Expr
from tritongen.syntax import ast
from tritongen.syntax.parse import parse_expression

BUILD: dict[str, Callable[..., Expr]] = {
    "add": exprs.add,
    "sub": exprs.sub,
    "mul": exprs.mul,
    "div": exprs.div,
    "where": exprs.where,
}


def text_of(call: Call, position: int) -> str | None:
    """The derivative by one argument in the language; None where it is 0."""
    if call.fn == "pow_int":
        exponent = call.args[1]
        if position or not isinstance(exponent, Const):
            return None
        return power_derivative(int(exponent.value))
    row = FUNCTIONS[call.fn]
    return row.derivative[position] if row.derivative is not None else None


def partial(call: Call, position: int, value: Expr) -> Expr | None:
    """The derivative by one argument; None where it is 0."""
    text = text_of(call, position)
    if text is None:
        return None
    names = dict(zip("abc", call.args, strict=False)) | {"y": value}
    return _build(_parsed(text), names, call.dtype)


@cache
def _parsed(text: str) -> ast.Expr:
    return parse_expression(text, "derivative")


def _build(node: ast.Expr, names: dict[str, Expr], dtype: str) -> Expr:
    def of(*nodes: ast.Expr) -> tuple[Expr, ...]:
        return tuple(_build(n, names, dtype) for n in nodes)

    match node:
        case ast.Name(name):
            return names[name]
        case ast.Number(value):
            return exprs.number(value, dtype)
        case ast.Unary("-", x):
            return exprs.neg(*of(x))
        case ast.Binary("**", x, exponent):
            return _power(*of(x, exponent))
        case ast.Binary(op, a, b):
            return _call(OPERATORS[op], *of(a, b))
        case ast.Compare(op, a, b):
            return _compare(OPERATORS[op], *of(a, b))
        case ast.BoolOp(op, a, b):
            return _logical(op, *of(a, b))
        case ast.Call(name, args):
            return _call(BUILTINS[name], *of(*args))
    raise TypeError(node)


def _call(fn: str, *args: Expr) -> Expr:
    return BUILD[fn](*args) if fn in BUILD else exprs.call(fn, *args)


def _power(base: Expr, exponent: Expr) -> Expr:
    """base ** exponent as the checker writes it: small whole powers are products."""
    if isinstance(exponent, Const):
        if exponent.value in (0, 1):
            return base if exponent.value else exprs.number(1, base.dtype)
        if exponent.value in SMALL_POWERS:
            return Call("pow_int", (base, Const(int(exponent.value), "i64")), base.dtype)
    return exprs.call("pow", base, exponent)


COMPARE = {
    "eq": lambda a, b: a == b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _compare(fn: str, a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(COMPARE[fn](a.value, b.value), "bool")
    return exprs.call(fn, a, b, dtype="bool")


def _logical(fn: str, a: Expr, b: Expr) -> Expr:
    decides = fn == "or"
    for x, other in ((a, b), (b, a)):
        if isinstance(x, Const):
            return x if x.value == decides else other
    return exprs.call(fn, a, b, dtype="bool")
