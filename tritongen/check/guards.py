"""Turns `sum[k](where(condition, term, 0))` into a sum with guards, and `sum[k](condition)` into a sum of ones.

Input: the body of a sum. Output: the term, and the guards that an and-chain of integer comparisons is equal to. `a < b`
is `b - a - 1 >= 0`. `ix[n] == v` holds a read. A `!=`, an `or`, or a comparison of floats stays a `where`.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.check.scope import Scope
from tritongen.ir.conditions import guards_of
from tritongen.ir.nodes import Call, Cast, Const, Expr, Guard


def split_guards(scope: Scope, body: Expr) -> tuple[tuple[Guard, ...], Expr]:
    """The guards that stand as `where(..., 0)` around the body, the outermost first, and the rest.

    In `a and b` a part that is not a guard stays a `where`.
    """
    guards: tuple[Guard, ...] = ()
    while True:
        match body:
            case Call("where", (condition, _, Const(0))):
                where, dtype = body, ""
            case Cast(Call("where", (condition, _, Const(0))) as where, dtype):
                pass
            case Cast(Cast() as inner, dtype) if _is_count(inner):
                body = Cast(inner.arg, dtype)
                continue
            case Cast(condition, dtype) if _is_count(body):
                one = Const(1 if scope.kind(dtype) == "int" else 1.0, dtype)
                where, dtype = Call("where", (condition, one, replace(one, value=0)), dtype), ""
            case _:
                return guards, body
        found, rest = guards_of(scope.kind, condition)
        if not found:
            return guards, body
        guards += found
        body = where.args[1] if rest is None else replace(where, args=(rest, *where.args[1:]))
        body = Cast(body, dtype) if dtype else body


def _is_count(body: Expr) -> bool:
    """Whether the body is a condition as a number: what it sums to is how often it holds."""
    match body:
        case Cast(Call(dtype="bool"), "bool"):
            return False
        case Cast(arg):
            return isinstance(arg, Call) and arg.dtype == "bool" or _is_count(arg)
    return False
