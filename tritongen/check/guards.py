"""Turns `sum[k](where(condition, term, 0))` into a sum with guards, and `sum[k](condition)` into a sum of ones.

Input: the body of a sum. Output: the term, and the guards that an and-chain of integer comparisons is equal to. `a < b`
is `b - a - 1 >= 0`. `ix[n] == v` holds a read. A `!=`, an `or`, or a comparison of floats stays a `where`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tritongen.check.coordinates import is_affine
from tritongen.check.scope import Scope
from tritongen.ir.algebra import Fetch, Poly, poly
from tritongen.ir.nodes import Call, Cast, Const, Expr, Guard, IndexValue, Read

Kind = Callable[[str], str]


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


def guards_of(kind: Kind, condition: Expr) -> tuple[tuple[Guard, ...], Expr | None]:
    """Splits an and-chain into (its guards, the rest). `kind` gives the kind of a dtype."""
    match condition:
        case Call("and", (a, b)):
            (first, left_rest), (second, right_rest) = guards_of(kind, a), guards_of(kind, b)
            if left_rest is None or right_rest is None:
                return first + second, left_rest or right_rest
            return first + second, replace(condition, args=(left_rest, right_rest))
        case Call("lt" | "le" | "gt" | "ge" | "eq" as op, (a, b)):
            left, right = integer(kind, a), integer(kind, b)
            if left is None or right is None:
                return (), condition
            gap = {"gt": left - right - 1, "ge": left - right, "eq": left - right}.get(op)
            if gap is None:
                gap = right - left - (1 if op == "lt" else 0)
            if not is_affine(gap) or gap.constant is not None:
                return (), condition
            return (Guard(gap, "==" if op == "eq" else ">="),), None
    return (), condition


def integer(kind: Kind, expr: Expr) -> Poly | None:
    """A coordinate, a size or an integer read, as a poly."""
    match expr:
        case IndexValue(p, dtype) if kind(dtype) == "int":
            return p
        case Const(int(value), dtype) if kind(dtype) == "int":
            return poly(value)
        case Read(tensor, coords, (int() | None) as fill, dtype) if kind(dtype) == "int":
            return poly(Fetch(tensor, coords, fill))
        case Cast(arg, "i64") if kind(arg.dtype) == "int":
            return integer(kind, arg)
        case Call("add" | "sub" as fn, (a, b), dtype) if dtype == "i64":
            left, right = integer(kind, a), integer(kind, b)
            if left is None or right is None:
                return None
            return left + right if fn == "add" else left - right
    return None
