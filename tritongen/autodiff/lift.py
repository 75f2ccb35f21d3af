"""The forward lines, with a name for everything whose value the gradient needs.

Input: the nests of an op. Output: nests that compute the same. A reducer stands only where the value is linear in it. What
depends on fewer indices than its line is a line of its own:

    y[n, d] = e[n, d] / sum[k](e[n, k])      y_sum[n] = sum[k](e[n, k])
                                             y[n, d] = e[n, d] / y_sum[n]
    y[n, d] = x[n, d] * rsqrt(v[n] + eps)    y_rsqrt[n] = rsqrt(v[n] + eps)
                                             y[n, d] = x[n, d] * y_rsqrt[n]

A backward written by hand has the same names. The forward kernels do not use these lines: `schedule` has its own rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tritongen.autodiff import exprs
from tritongen.ir import bounds
from tritongen.ir.algebra import Poly, extreme, index
from tritongen.ir.free import free_indices
from tritongen.ir.nodes import (
    Binder,
    Call,
    Cast,
    Const,
    Expr,
    IndexValue,
    Nest,
    Op,
    Read,
    Reduce,
    ScalarRef,
    kind_of,
    walk,
)

ZERO = Poly()
CHEAP = ("add", "sub", "mul", "neg")


@dataclass(slots=True)
class _Lifter:
    op: Op
    facts: bounds.Facts
    name: Callable[[str], str]
    repeated: set[Expr] = field(default_factory=set)
    done: list[Nest] = field(default_factory=list)
    known: dict[tuple, Nest] = field(default_factory=dict)


def lift(
    op: Op, facts: bounds.Facts, name: Callable[[str], str], shared: bool = False
) -> tuple[Nest, ...]:
    """The lifted nests of an op. `name` gives a free name for a new nest.

    `shared`: values that a line or its gradient would repeat are lifted too.
    """
    lifter = _Lifter(op, facts, name)
    for nest in op.nests:
        if kind_of(nest.dtype, op) == "float":
            if shared:
                seen = Counter(e for e in walk(nest.body) if isinstance(e, Call))
                lifter.repeated = {e for e, often in seen.items() if often > 1}
                read = (e.args for e in seen if e.fn != "where" and not _is_linear(e))
                lifter.repeated |= {a for args in read for a in args if isinstance(a, Call)}
            nest = replace(nest, body=_line(lifter, nest))
        lifter.done.append(nest)
    return tuple(lifter.done)


def _line(lifter: _Lifter, nest: Nest) -> Expr:
    casts, body = [], nest.body
    while isinstance(body, Cast):
        casts.append(body.dtype)
        body = body.arg
    if isinstance(body, Reduce) and kind_of(body.dtype, lifter.op) == "float":
        # A whole line may be any reducer; below it only sums may stand where they are.
        inner = _visit(lifter, nest, body.body, nest.box + body.binders, body.op == "sum")
        body = replace(body, body=inner)
    else:
        body = _visit(lifter, nest, body, nest.box, True)
    for dtype in reversed(casts):
        body = Cast(body, dtype)
    return body


def _visit(
    lifter: _Lifter, nest: Nest, expr: Expr, scope: tuple[Binder, ...], linear: bool
) -> Expr:
    """expr with its reducers and invariants lifted; `linear`: so is the line in expr."""
    in_force = {b.index for b in scope}
    match expr:
        case Reduce():
            if kind_of(expr.dtype, lifter.op) != "float":
                return expr
            used = free_indices(expr)
            stays = expr.op == "sum" and linear and in_force <= used
            own = tuple(b for b in scope if b.index in used) + expr.binders
            reduce = replace(expr, body=_visit(lifter, nest, expr.body, own, expr.op == "sum"))
            return reduce if stays else _name(lifter, nest, reduce, scope, expr.op)
        case Cast(arg):
            return replace(expr, arg=_visit(lifter, nest, arg, scope, linear))
        case Call(fn, args):
            inner = linear and _is_linear(expr)
            call = replace(expr, args=tuple(_visit(lifter, nest, a, scope, inner) for a in args))
            invariant = _is_costly(lifter, call) and free_indices(call) < in_force
            if invariant or (expr in lifter.repeated and kind_of(call.dtype, lifter.op) == "float"):
                return _name(lifter, nest, call, scope, fn)
            return call
    return expr


def _is_linear(call: Call) -> bool:
    """Whether no argument's value is needed for another's gradient."""
    if call.fn in ("add", "sub", "neg"):
        return True
    numbers = [_is_known(a) for a in call.args]
    return (call.fn == "mul" and any(numbers)) or (call.fn == "div" and numbers[1])


def _is_known(expr: Expr) -> bool:
    return all(isinstance(node, (Const, IndexValue, Cast, Call)) for node in walk(expr))


def _is_costly(lifter: _Lifter, expr: Call) -> bool:
    """Whether expr is a float that takes more than sums and products of what is read."""
    if kind_of(expr.dtype, lifter.op) != "float" or _is_known(expr):
        return False
    calls = [node for node in walk(expr) if isinstance(node, Call)]
    reads = any(isinstance(node, (Read, ScalarRef)) for node in walk(expr))
    return reads and any(c.fn not in CHEAP for c in calls)


def _name(lifter: _Lifter, nest: Nest, expr: Expr, scope: tuple[Binder, ...], what: str) -> Read:
    """A nest for expr over the indices that it depends on, and a read of it."""
    used = free_indices(expr)
    own = tuple(b for b in scope if b.index in used)
    earlier = lifter.known.get((expr, own))
    if earlier is None:
        earlier = line_over(own, expr, lifter.facts)
        earlier = replace(earlier, name=lifter.name(f"{nest.name}_{what}"))
        lifter.known[expr, own] = earlier
        lifter.done.append(earlier)
    return read_of(earlier, own)


def line_over(own: tuple[Binder, ...], expr: Expr, facts: bounds.Facts) -> Nest:
    """A nest for expr over these indices, still without a name."""
    # A dim starts at 0; place 0 is the index's first value, as what is before may be inf.
    first = {b.index: index(b.index) + b.lo for b in own}
    body = exprs.substitute(expr, exprs.by_name(first))
    box = tuple(Binder(b.index, ZERO, _extent(b, facts)) for b in own)
    coords = tuple(index(b.index) for b in own)
    return Nest("", box, coords, tuple(b.hi for b in box), body, expr.dtype)


def read_of(line: Nest, own: tuple[Binder, ...]) -> Read:
    """What the nest has for these values of its indices."""
    return Read(line.name, tuple(index(b.index) - b.lo for b in own), None, line.dtype)


def _extent(b: Binder, facts: bounds.Facts) -> Poly:
    extent = b.hi - b.lo
    known = bounds.prove(extent, ">=", ZERO, facts) is True
    return extent if known else extreme("max", (ZERO, extent))
