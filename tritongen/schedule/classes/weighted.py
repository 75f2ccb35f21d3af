"""Sums of weighted products: the heads of a scan's gradient, each with weights over rows and columns.

    dz[t, s] = sum[h, p](dy[t, h, p] * x[s, h, p] * w[h, t, s])

is no product of two factors, since the weight has both indices. As

    terms[h, t, s] = sum[p](dy[t, h, p] * x[s, h, p])
    dz[t, s]       = sum[h](terms[h, t, s] * w[h, t, s])

it is a fold of a product's values, which a fused kernel never stores (`chains.py`).
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.bounds import Facts
from tritongen.ir.forms import reaching
from tritongen.ir.free import free_indices
from tritongen.ir.names import fresh
from tritongen.schedule.canonical import line_over, names_beside, read_of
from tritongen.schedule.classes.chains import pairs
from tritongen.schedule.factored import factors_of, multiplied
from tritongen.schedule.members import is_reducer


def with_weighted(op: ir.Op, nests: tuple[ir.Nest, ...], facts: Facts) -> tuple[ir.Nest, ...]:
    """The nests, each sum of weighted products in two, where no kernel has to store the products."""
    taken = names_beside(op, nests)
    split = {n.name: two for n in nests if (two := _in_two(n, op, taken))}
    changed = tuple(line for n in nests for line in split.get(n.name, (n,)))
    found = pairs(op, changed, facts) if split else ()
    inside = frozenset[str]().union(*(pair.inside for pair in found))
    split = {name: two for name, two in split.items() if two[0].name in inside}
    return tuple(line for n in nests for line in split.get(n.name, (n,)))


def _in_two(n: ir.Nest, op: ir.Op, taken: set[str]) -> tuple[ir.Nest, ir.Nest] | None:
    """The products and their sum; None where it is no sum of such terms."""
    if not is_reducer(n) or n.fold.op != "sum" or n.fold.guards or len(n.fold.binders) < 2:
        return None
    factors, kept = factors_of(n.fold.body), n.over
    for own in n.fold.binders:
        mine = [f for f in factors if own.index in free_indices(f)]
        rest = [f for f in factors if f not in mine]
        if len(mine) != 2 or not rest or own.lo.terms:
            continue
        left, right = (free_indices(f) & kept for f in mine)
        used = map(free_indices, rest)
        if not any(own & (left - right) and own & (right - left) for own in used):
            continue
        others = tuple(b for b in n.fold.binders if b is not own)
        reached = free_indices(mine[0]) | free_indices(mine[1])
        box = tuple(b for b in (*others, *n.box) if b.index in reached)
        if any(b.lo.terms for b in box):
            continue
        to = n.fold.body.stored if isinstance(n.fold.body, ir.Call) else ""

        def product(*sides: ir.Expr, to: str = to) -> ir.Expr:
            return reaching(multiplied([*sides], n.fold.dtype), to, op.typarams)

        line = replace(n.fold, binders=(own,), body=product(*mine))
        terms = line_over(fresh(f"{n.name}_terms", taken), box, line, n.line)
        body = product(read_of(terms), *rest)
        return terms, replace(n, body=replace(n.fold, binders=others, body=body))
    return None
