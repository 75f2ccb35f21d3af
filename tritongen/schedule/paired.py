"""Paired folds: two folds of one row, the second depending on the first, that one pass can compute together.

    m = max[d](x)         s = sum[d](exp(x - m))       softmax and similar
    m = mean[d](x)        q = sum[d]((x - m)**2)       mean and variance

A pass in blocks keeps the state of both folds, and merges the state of each block into it. It can, because the second fold over two
blocks follows from those over each block and from the first folds. The matchers here define a kind algebraically. The text of its
steps is its row in `emit/folds.py`. Every other pair of folds takes one pass each.

Elsewhere `mean` is a sum and a division. In rows it is a fold of its own (`means.py`), so that differences from it keep all their
digits: x - mean(x) of a constant row is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly
from tritongen.ir.bounds import Facts
from tritongen.ir.free import binders_of, free_indices, leads_to
from tritongen.schedule.canonical import same
from tritongen.schedule.members import is_reducer
from tritongen.schedule.plan import Level, Pair

WIDE = ("compute", "f32", "f64")  # not for maxima of f64 below -3.4e38


@dataclass(frozen=True, slots=True)
class Row:
    """The input of a matcher: the nests of a group, the reduced indices, and the number of terms."""

    nests: dict[str, ir.Nest]
    col: frozenset[str]
    count: Poly
    facts: Facts

    def open(self, expr: ir.Expr, every: bool = False) -> ir.Expr:
        """expr with values over the tile written out where they are read; with `every`, row values too."""

        def change(read: ir.Read) -> ir.Expr:
            nest = self.nests.get(read.tensor)
            opened = nest and not is_reducer(nest) and (every or self.col & nest.over)
            return self.open(nest.body, every) if nest and opened else read

        return ir.with_reads(expr, change)


def _alike(a: ir.Expr, b: ir.Expr) -> bool:
    """Whether two expressions are one, whatever their calls know of stores."""

    def plain(e: ir.Expr) -> ir.Expr:
        return replace(e, stored="") if isinstance(e, ir.Call) else e

    return ir.rebuild(a, plain) == ir.rebuild(b, plain)


def max_sumexp(first: ir.Nest, second: ir.Nest, row: Row) -> Pair | None:
    """max(x), then sum(exp(x - g)): from (max, sum of exp(x - max)), for a row value g that is -inf only with the maximum.

    Elsewhere a term of -inf makes the sum NaN, and other terms make it inf: the state does not tell which there are.
    """
    if (first.fold.op, second.fold.op) != ("max", "sum"):
        return None
    match row.open(second.fold.body):
        case ir.Call("exp", (ir.Call("sub", (term, shift)),), stored=stored):
            alike = _alike(term, row.open(first.fold.body)) and not free_indices(shift) & row.col
            if alike and _is_low_with(row.open(shift, every=True), first, row):
                return Pair("max_sumexp", first.name, second.name, shift, stored)
    return None


def _is_low_with(value: ir.Expr, first: ir.Nest, row: Row) -> bool:
    """Whether a row value is -inf only where a maximum is. One that a half type rounds may be -inf elsewhere."""
    match value:
        case ir.Const(number):
            return number > -inf
        case ir.Read(tensor):
            return tensor == first.name
        case ir.Cast(arg, dtype):
            terms = row.open(first.fold.body)
            held = isinstance(terms, ir.Cast) and terms.arg.dtype == dtype  # nothing is rounded
            return (held or dtype in WIDE) and _is_low_with(arg, first, row)
        case ir.Call("detach", (arg,)):
            return _is_low_with(arg, first, row)
        case ir.Call("maximum", args):
            return any(_is_low_with(a, first, row) for a in args)
        case ir.Call("where", (_, *args)):
            return all(_is_low_with(a, first, row) for a in args)
    return False


def moments(first: ir.Nest, second: ir.Nest, row: Row) -> Pair | None:
    """mean(x), then sum((x - mean)**2): from (mean, squares about it, count), by Chan's merge."""
    if first.fold.op not in ("sum", "mean") or second.fold.op != "sum":
        return None
    terms = row.open(second.fold.body, every=True)
    apart = squared(terms)
    match terms:
        case ir.Call("mul", (a, b)) if _alike(a, b):
            apart = a
    match apart:
        case ir.Call("sub", (term, mean)) if is_mean(mean, first, row):
            if _alike(term, row.open(first.fold.body, every=True)):
                return Pair("moments", first.name, second.name, None)
    return None


def squared(e: ir.Expr) -> ir.Expr | None:
    """The value whose square is asked for by a function or a power."""
    match e:
        case ir.Call("pow_int", (value, ir.Const(2))) | ir.Call("square", (value,)):
            return value
    return None


def is_mean(e: ir.Expr, fold: ir.Nest, row: Row) -> bool:
    """Whether an expression is the mean of a row, where `fold` is the sum or the mean itself."""
    match e:
        case ir.Read(tensor):
            return tensor == fold.name and fold.fold.op == "mean"
        case ir.Call("div", (ir.Read(tensor), ir.IndexValue(count))):
            return tensor == fold.name and same(row.facts, count, row.count)
    return False


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table of pairs. Its texts are the row of that name in `emit/folds.py`.

    `state`: the names of the numbers that one part of a row stores. `by_lane`: whether a lane may keep its own state.
    """

    found: Callable[[ir.Nest, ir.Nest, Row], Pair | None]
    state: tuple[str, ...]
    by_lane: bool = False


KINDS = {
    "max_sumexp": Kind(max_sumexp, ("{first}_part", "{second}_part")),
    "moments": Kind(moments, ("{first}_part", "{second}_part", "{second}_count"), by_lane=True),
}


def row_of(nests: ir.Nests, count: Poly, facts: Facts) -> Row:
    col = frozenset(b.index for n in nests for b in binders_of(n))
    return Row({n.name: n for n in nests}, col, count, facts)


def pairs_of(nests: ir.Nests, count: Poly, facts: Facts) -> tuple[Pair, ...]:
    """The pairs among the folds of one row; a fold belongs to one at most."""
    row = row_of(nests, count, facts)
    found, taken = list[Pair](), set[str]()
    for second in filter(is_reducer, nests):
        needed = _waits_for(second, row)
        if len(needed) != 1 or (needed | {second.name}) & taken:
            continue
        first = row.nests[min(needed)]
        if _plain(first) and _plain(second):
            made = (kind.found(first, second, row) for kind in KINDS.values())
            if pair := next(filter(None, made), None):
                found.append(pair)
                taken |= {first.name, second.name}
    return tuple(found)


def _plain(fold: ir.Nest) -> bool:
    """Over every term, in the type that the call computes in."""
    return not fold.fold.guards and fold.dtype == fold.fold.body.dtype == "compute"


def _waits_for(fold: ir.Nest, row: Row) -> set[str]:
    """The folds that this one needs to be finished."""
    seen = leads_to(fold.fold.body, (n for n in row.nests.values() if not is_reducer(n)))
    return {t for t in seen & row.nests.keys() if is_reducer(row.nests[t])} - {fold.name}


def state_of(pair: Pair) -> tuple[str, ...]:
    """The names of the values that one part of a row stores for a pair."""
    names = KINDS[pair.kind].state
    return tuple(name.format(first=pair.first, second=pair.second) for name in names)


def numbers_of(levels: tuple[Level, ...]) -> int:
    """The largest number of values that a pair keeps for a row. 0 if there are no pairs."""
    return max((len(state_of(pair)) for level in levels for pair in level.pairs), default=0)
