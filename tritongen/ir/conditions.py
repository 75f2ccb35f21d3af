"""Conditions on indices as guards: what an and-chain of integer comparisons amounts to.

`a < b` is `b - a - 1 >= 0`; `ix[n] == v` holds a read. A `!=`, an `or`, or a comparison of floats is no guard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from tritongen.ir.algebra import Fetch, Floor, Poly, affine, poly, walk
from tritongen.ir.nodes import INTS, Call, Cast, Const, Expr, Guard, IndexValue, Read, rebuild

Kind = Callable[[str], str]


def is_affine(p: Poly) -> bool:
    """Whether p is affine in its indices, and so is everything floored in it."""
    inner = (atom.num for atom in walk(p) if isinstance(atom, Floor))
    return all(affine(q) is not None for q in (p, *inner))


def guards_of(kind: Kind, condition: Expr) -> tuple[tuple[Guard, ...], Expr | None]:
    """(the guards in an and-chain, what else it says); `kind`: of a dtype."""
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
            if (value := gap.constant) is not None:
                return (), None if value == 0 or value > 0 and op != "eq" else condition
            if not is_affine(gap):
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


def where_known(expr: Expr, known: Collection[Guard]) -> Expr:
    """expr for lanes that pass these guards: `where(c, a, b)` is a, where c asks for nothing else."""

    def change(node: Expr) -> Expr:
        match node:
            case Call("where", (condition, yes, _)):
                asked, rest = guards_of(lambda dtype: "int" if dtype in INTS else "", condition)
                if rest is None and set(asked) <= set(known):
                    return yes
        return node

    return rebuild(expr, change)
