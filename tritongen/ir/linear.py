"""Finds the operands in which an op is linear. There the derivative along a direction is the op of that direction.

    linear_in(linear)     # y = sum[k](x[m, k] * w[n, k]) + b[n]:  (("x", "b"), ("w", "b"))

An output is a sum of terms. It is linear in some operands together if each term is the product of one of them and of
factors without any of them. What places and bounds are read from counts as read. Input: an op. Rounding is ignored, as in any
derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from tritongen.ir.algebra import fetches_of
from tritongen.ir.free import own_coordinates
from tritongen.ir.nodes import (
    Call,
    Cast,
    Const,
    Expr,
    Op,
    Read,
    Reduce,
    Scalar,
    ScalarRef,
    Tensor,
    kind_of,
    parts,
)

MOST = 64  # terms of a value; one with more is taken for one that says nothing
MOST_OPERANDS = 8

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class Term:
    """A product: each of `factors` once, and something that depends on `others` in any way."""

    factors: Names = frozenset()
    others: Names = frozenset()

    @property
    def names(self) -> Names:
        return self.factors | self.others

    def times(self, other: Term) -> Term:
        others = self.others | other.others | self.factors & other.factors
        return Term((self.factors | other.factors) - others, others)


Terms = frozenset[Term]


def linear_in(op: Op) -> tuple[tuple[str, ...], ...]:
    """The largest groups of operands and scalars in which together every floating output is linear."""
    params: tuple[Tensor | Scalar, ...] = (*op.tensors, *op.scalars)
    names = [p.name for p in params if kind_of(p.dtype, op) == "float"]
    floats = [o.name for o in op.outputs if kind_of(o.dtype, op) == "float"]
    if len(names) > MOST_OPERANDS:
        return ()
    lines: dict[str, Terms] = {}
    for nest in op.nests:
        lines[nest.name] = lines.get(nest.name, frozenset()) | terms(nest.body, names, lines, op)
    every = frozenset().union(*(lines[name] for name in floats))  # of integers the derivative is 0
    found: list[tuple[str, ...]] = []
    for count in range(len(names), 0, -1):  # what no term holds goes with the others
        for group in combinations(names, count):
            if not any(set(own) >= set(group) for own in found) and is_linear(every, group):
                found.append(group)
    return tuple(found)


def is_linear(found: Iterable[Term], group: tuple[str, ...]) -> bool:
    return all(len(t.factors & set(group)) == 1 and not t.others & set(group) for t in found)


def terms(expr: Expr, names: Iterable[str], lines: Mapping[str, Terms], op: Op) -> Terms:
    """The terms of a value as a sum. None for 0."""

    def of(e: Expr) -> Terms:
        return terms(e, names, lines, op)

    found = _terms(expr, of, names, lines, op)
    fetched = [a.tensor for p in own_coordinates(expr) for a in fetches_of(p)]
    places = opaque(t for name in fetched for t in lines.get(name, ()))
    return frozenset(t.times(own) for t in found for own in places)


def _terms(
    expr: Expr,
    of: Callable[[Expr], Terms],
    names: Iterable[str],
    lines: Mapping[str, Terms],
    op: Op,
) -> Terms:
    """Those of a value whose places are fixed."""
    match expr:
        case Const(value):
            return frozenset([Term()]) if value else frozenset()
        case ScalarRef(name) | Read(name):
            own = lines.get(name, frozenset([Term(frozenset({name} & set(names)))]))
            return own | {Term()} if getattr(expr, "fill", None) else own
        case Cast(arg, dtype) if kind_of(dtype, op) == "float":
            return of(arg)
        case Reduce("sum", body=body) | Call("neg", (body,)):
            return of(body)
        case Call("add" | "sub", (a, b)):
            return within(of(a) | of(b))
        case Call("mul", (a, b)):
            return within(frozenset(s.times(t) for s in of(a) for t in of(b)))
        case Call("div", (a, b)):
            below = Term(others=frozenset().union(*(t.names for t in of(b))))
            return frozenset(t.times(below) for t in of(a))
        case Call("where", (condition, a, b)):
            chosen = Term(others=frozenset().union(*(t.names for t in of(condition))))
            return within(frozenset(t.times(chosen) for t in of(a) | of(b)))
    return opaque(t for e in parts(expr) for t in of(e))


def within(found: Terms) -> Terms:
    return opaque(found) if len(found) > MOST else found


def opaque(found: Iterable[Term]) -> Terms:
    """One term, that depends on all that these do."""
    return frozenset([Term(others=frozenset().union(*(t.names for t in found)))])
