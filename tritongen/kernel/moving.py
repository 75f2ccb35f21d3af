"""Sums that move with a maximum: what their terms are.

    m[i] = max[j](s[i, j])      l[i] = sum[j](exp(s[i, j] - m[i]) * t[i, j])

A loop carries both: where the maximum moves, the sum is multiplied by exp(old maximum - new maximum). That is right if the
exponent is what the maximum is of, less it: no term so far is then larger than t, and none is lost where the maximum was -inf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tritongen.ir import nodes as ir
from tritongen.ir.free import leads_to

Lines = Mapping[str, ir.Nest]


@dataclass(frozen=True, slots=True)
class Exponential:
    """A term exp(x - maximum) * t, where max[j](x) is that maximum.

    conditions: the term is 0 where one of them is False.
    alone: whether there is no t. The term is then 0 where x is -inf.
    """

    conditions: tuple[ir.Expr, ...] = ()
    alone: bool = True


def exponential(term: ir.Expr, maximum: ir.Nest, lines: Lines) -> Exponential | None:
    """How a term moves with a maximum; None where it does not. `lines`: those of the kernel."""
    match _opened(term, lines):
        case ir.Cast(arg):
            return exponential(arg, maximum, lines)
        case ir.Call("exp", (shifted,)):
            return Exponential() if _is_shifted(shifted, maximum, lines) else None
        case ir.Call("mul", (a, b)):
            for own, other in ((a, b), (b, a)):
                if found := _of_factor(own, other, maximum, lines):
                    return found
        case ir.Call("div", (a, b)):
            return _of_factor(a, b, maximum, lines)
        case ir.Call("where", (c, a, ir.Const(0))):
            found = exponential(a, maximum, lines)
            return replace(found, conditions=(*found.conditions, c)) if found else None
    return None


def _of_factor(own: ir.Expr, other: ir.Expr, maximum: ir.Nest, lines: Lines) -> Exponential | None:
    if maximum.name in leads_to(other, lines.values()):
        return None
    found = exponential(own, maximum, lines)
    return replace(found, alone=False) if found else None


def _is_shifted(e: ir.Expr, maximum: ir.Nest, lines: Lines) -> bool:
    """Whether e is what the maximum is of, less the maximum."""
    match _opened(e, lines):
        case ir.Call("sub", (x, ir.Read(tensor))) if tensor == maximum.name:
            return _whole(x, lines) == _whole(maximum.fold.body, lines)
    return False


def _opened(e: ir.Expr, lines: Lines) -> ir.Expr:
    """A pointwise value of the kernel by its body."""
    while isinstance(e, ir.Read) and e.tensor in lines:
        body = lines[e.tensor].body
        if isinstance(body, ir.Reduce):
            break
        e = body
    return e


def _whole(e: ir.Expr, lines: Lines) -> ir.Expr:
    """An expression with the bodies of all pointwise values of the kernel in it."""

    def change(node: ir.Expr) -> ir.Expr:
        own = _opened(node, lines)
        return node if own is node else _whole(own, lines)

    return ir.rebuild(e, change)
