"""`sum[k](where(condition, term, 0))` as a sum with guards.

Input: the body of a sum. Output: the guards that an and-chain of integer comparisons amounts to, and
the term. `a < b` is `b - a - 1 >= 0`; `ix[n] == v` holds a read. A `!=`, an `or`, or a comparison of
floats stays a `where`.
"""

from __future__ import annotations

from tritongen.check.coordinates import is_affine
from tritongen.check.scope import Scope
from tritongen.ir.algebra import Fetch, Poly, poly
from tritongen.ir.nodes import Call, Cast, Const, Expr, Guard, IndexValue, Read


def split_guards(scope: Scope, body: Expr) -> tuple[tuple[Guard, ...], Expr]:
    """The guards that stand as `where(..., 0)` around the body, outermost first, and the rest."""
    guards: tuple[Guard, ...] = ()
    while True:
        match body:
            case Call("where", (condition, term, Const(0))):
                found = _guards(scope, condition)
                if found is None:
                    return guards, body
                guards, body = (*guards, *found), term
            case Cast(Call("where", (condition, term, Const(0))), dtype):
                found = _guards(scope, condition)
                if found is None:
                    return guards, body
                guards, body = (*guards, *found), Cast(term, dtype)
            case _:
                return guards, body


def _guards(scope: Scope, condition: Expr) -> tuple[Guard, ...] | None:
    match condition:
        case Call("and", (a, b)):
            first, second = _guards(scope, a), _guards(scope, b)
            return None if first is None or second is None else first + second
        case Call("lt" | "le" | "gt" | "ge" | "eq" as op, (a, b)):
            left, right = integer(scope, a), integer(scope, b)
            if left is None or right is None:
                return None
            gap = {"gt": left - right - 1, "ge": left - right, "eq": left - right}.get(op)
            if gap is None:
                gap = right - left - (1 if op == "lt" else 0)
            if not is_affine(gap) or gap.constant is not None:
                return None
            return (Guard(gap, "==" if op == "eq" else ">="),)
    return None


def integer(scope: Scope, expr: Expr) -> Poly | None:
    """A coordinate, a size or an integer read, as a poly."""
    match expr:
        case IndexValue(p, dtype) if scope.kind(dtype) == "int":
            return p
        case Const(int(value), dtype) if scope.kind(dtype) == "int":
            return poly(value)
        case Read(tensor, coords, (int() | None) as fill, dtype) if scope.kind(dtype) == "int":
            return poly(Fetch(tensor, coords, fill))
        case Cast(arg, "i64") if scope.kind(arg.dtype) == "int":
            return integer(scope, arg)
        case Call("add" | "sub" as fn, (a, b), dtype) if dtype == "i64":
            left, right = integer(scope, a), integer(scope, b)
            if left is None or right is None:
                return None
            return left + right if fn == "add" else left - right
    return None
