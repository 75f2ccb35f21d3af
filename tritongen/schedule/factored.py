"""Sums of three factors and more, one index at a time if that saves products.

    y[m, n] = sum[k, l](a[m, k] * b[k, l] * c[l, n])

adds M * N * K * L terms. `sum[l](sum[k](a[m, k] * b[k, l]) * c[l, n])` is two contractions, of M * K * L terms and M * L *
N: the factors of one index depend on fewer indices than the whole sum.

Input and output: an op. If the factors of an index depend on all other indices (a bilinear form over a batch), nothing would
be saved, and nothing changes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce as fold
from itertools import combinations
from math import inf

from tritongen.ir import nodes as ir
from tritongen.ir.free import free_indices
from tritongen.schedule.canonical import uncast


def factored(op: ir.Op) -> ir.Op:
    """The op, with every sum of products split as far as that saves terms."""

    def change(node: ir.Expr) -> ir.Expr:
        match node:
            case ir.Reduce("sum", body=ir.Call(), dtype="compute" | "f32"):
                return ir.rebuild(_scaled_behind(node, op), _factored)
        return _factored(node)

    nests = (replace(n, body=ir.rebuild(n.body, change)) for n in op.nests)
    return replace(op, nests=tuple(nests))


def _factored(node: ir.Expr) -> ir.Expr:
    match node:
        case ir.Reduce("sum", binders, (), _, "compute" | "f32") if len(binders) > 1:
            everything = free_indices(node) | {b.index for b in binders}
            for own in binders:
                if (apart := _apart(node, own, everything)) is not None:
                    return _factored(apart)
    return node


def _scaled_behind(node: ir.Reduce, op: ir.Op) -> ir.Expr:
    """Moves a constant factor of a matrix product behind the sum. A scaled factor would be rounded to its half type once more."""
    factors = factors_of(node.body)
    numbers = [f for f in factors if isinstance(f, ir.Const) and 0 < abs(f.value) < inf]
    rest = [f for f in factors if f not in numbers]
    own = [free_indices(f) for f in rest]
    bare = (f for f in map(uncast, rest) if isinstance(f, ir.Read))
    if any(ir.kind_of(f.dtype, op) != "float" for f in bare):
        return node  # the number makes them floats
    if not numbers or not any(a - b and b - a for a, b in combinations(own, 2)):
        return node
    return multiplied([*numbers, replace(node, body=multiplied(rest, node.dtype))], node.dtype)


def _apart(whole: ir.Reduce, own: ir.Binder, everything: set[str]) -> ir.Reduce | None:
    """The sum with the one over `own` inside, where its factors leave an index out."""
    factors = factors_of(whole.body)
    mine = [f for f in factors if own.index in free_indices(f)]
    rest = [f for f in factors if f not in mine]
    if len(mine) < 2 or not rest or own.lo.terms:
        return None
    others = tuple(b for b in whole.binders if b is not own)
    reached = set().union(*map(free_indices, mine))
    if not others or reached >= everything or not reached & {b.index for b in others}:
        return None
    inner = replace(whole, binders=(own,), body=multiplied(mine, whole.dtype))
    return replace(whole, binders=others, body=multiplied([*rest, inner], whole.dtype))


def factors_of(expr: ir.Expr) -> list[ir.Expr]:
    match expr:
        case ir.Call("mul", (a, b)):
            return factors_of(a) + factors_of(b)
        case ir.Cast(ir.Call("mul") as product, dtype) if dtype == product.dtype:
            return factors_of(product)
    return [expr]


def multiplied(factors: list[ir.Expr], dtype: str) -> ir.Expr:
    return fold(lambda a, b: ir.Call("mul", (a, b), dtype), factors)
