"""Sums that move with a maximum: what their terms are.

    m[i] = max[j](s[i, j])      l[i] = sum[j](exp(s[i, j] - m[i]) * t[i, j])

A loop carries both: where the maximum moves, the sum is multiplied by exp(old maximum - new maximum). That is right if the
exponent is what the maximum is of, less it: no term so far is then larger than t, and none is lost where the maximum was -inf.
The shift may also be the maximum of that and another term, as of attention with sinks: `exp(s[i, j] - max(m[i], sink[i]))`.

Nothing else in the term may follow from the maximum, and nothing may be cut off: i32(8 * exp(x - m)) is no multiple of what it
was before the maximum moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from tritongen.ir import nodes as ir
from tritongen.ir.free import free_indices, leads_to

Lines = Mapping[str, ir.Nest]
# Functions that are NaN where an argument is.
KEEPING_NAN = frozenset({"add", "sub", "mul", "div", "neg", "exp", "log", "maximum", "minimum"})


@dataclass(frozen=True, slots=True)
class Exponential:
    """A term exp(x - shift) * t, where max[j](x) is the maximum that it moves with.

    shift: that maximum, or `max` of it and what does not move.
    conditions: the term is 0 where one of them is False.
    alone: whether there is no t. The term is then 0 where x is -inf.
    """

    shift: ir.Expr
    conditions: tuple[ir.Expr, ...] = ()
    alone: bool = True


def exponential(term: ir.Expr, maximum: ir.Nest, lines: Lines) -> Exponential | None:
    """How a term moves with a maximum; None where it does not. `lines`: those of the kernel."""
    match _opened(term, lines):
        case ir.Cast(arg, dtype) if dtype != "bool" and dtype not in ir.INTS:
            return exponential(arg, maximum, lines)
        case ir.Call("exp", (shifted,)):
            shift = _shift(shifted, maximum, lines)
            return Exponential(shift) if shift is not None else None
        case ir.Call("mul", (a, b)):
            for own, other in ((a, b), (b, a)):
                if found := _of_factor(own, other, maximum, lines):
                    return found
        case ir.Call("div", (a, b)):
            return _of_factor(a, b, maximum, lines)
        case ir.Call("where", (c, a, ir.Const(0))) if not _follows(c, maximum, lines):
            found = exponential(a, maximum, lines)
            return replace(found, conditions=(*found.conditions, c)) if found else None
    return None


def has_all_terms(total: ir.Reduce, maximum: ir.Nest, lines: Lines) -> bool:
    """Whether a sum that moves with a maximum has a term for each of its terms. A NaN of one is then a NaN of the sum."""
    found = exponential(total.body, maximum, lines)
    same = (total.binders, total.guards) == (maximum.fold.binders, maximum.fold.guards)
    return same and found is not None and not found.conditions


def is_nan_with(e: ir.Expr, maximum: str, sums: Set[str], lines: Lines) -> bool:
    """Whether a value is NaN by these sums wherever a NaN of the maximum would make it NaN. What only the sums read of it is in them."""
    others = [n for n in lines.values() if n.name not in sums]

    def has_nan(e: ir.Expr) -> bool:
        match _opened(e, lines):
            case ir.Read(tensor):
                return tensor in sums
            case ir.Cast(arg):
                return has_nan(arg)
            case ir.Const(value):
                return value != value
            case ir.Call("where", (_, a, b)):
                return has_nan(a) and has_nan(b)
            case ir.Call(fn, args) if fn in KEEPING_NAN:
                return any(map(has_nan, args))
        return False

    own = _opened(e, lines)
    if maximum not in leads_to(own, others) or has_nan(own):
        return True
    if isinstance(own, ir.Read):
        return own.tensor != maximum and is_nan_with(lines[own.tensor].body, maximum, sums, lines)
    return all(is_nan_with(part, maximum, sums, lines) for part in ir.parts(own))


def _of_factor(own: ir.Expr, other: ir.Expr, maximum: ir.Nest, lines: Lines) -> Exponential | None:
    if _follows(other, maximum, lines):
        return None
    found = exponential(own, maximum, lines)
    return replace(found, alone=False) if found else None


def _shift(e: ir.Expr, maximum: ir.Nest, lines: Lines) -> ir.Expr | None:
    """The shift, where e is what the maximum is of, less that."""
    match _opened(e, lines):
        case ir.Call("sub", (x, shift)):
            other = other_term(shift, maximum.name)
            moves = isinstance(shift, ir.Read) and shift.tensor == maximum.name
            moves |= other is not None and _is_fixed(other, maximum, lines)
            if moves and _whole(x, lines) == _whole(maximum.fold.body, lines):
                return shift
    return None


def _is_fixed(e: ir.Expr, maximum: ir.Nest, lines: Lines) -> bool:
    """Whether a value is the same for all terms of a maximum."""
    return not _follows(e, maximum, lines) and not maximum.reduced & free_indices(e)


def _follows(e: ir.Expr, maximum: ir.Nest, lines: Lines) -> bool:
    """Whether a value follows from a maximum, which is another one in each turn of the loop."""
    return maximum.name in leads_to(e, lines.values())


def other_term(shift: ir.Expr, maximum: str) -> ir.Expr | None:
    """t, where the shift is the maximum of that and t."""
    match shift:
        case ir.Call("maximum", (ir.Read(tensor), t) | (t, ir.Read(tensor))) if tensor == maximum:
            return t
    return None


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
