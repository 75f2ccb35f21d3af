"""Several contractions over one tile that share an operand: silu(x @ w1) * (x @ w3) reads x once.

All sums range over the same batch, m, n and k; k may have another name in each. The pointwise nests behind them may read
all sums. The kernel has one loop, and one accumulator a sum.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index
from tritongen.schedule.canonical import same, substitute_indices
from tritongen.schedule.classes import contraction
from tritongen.schedule.members import Group, Product, is_reducer

MOST = 4  # accumulators that one tile's registers hold


def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    heads = [n for n in members if is_reducer(n)]
    if not 2 <= len(heads) <= MOST or any(n.fold.guards for n in heads):
        return None
    first, *others = (contraction.as_product(n, virtual, facts) for n in heads)
    if first is None or first.taps:
        return None
    products = [first]
    for other in others:
        p = aligned(other, first, facts) if other else None
        if p is None or not {p.left, p.right} & {first.left, first.right}:
            return None
        products.append(p)
    lines = tuple(as_nest(n, p) for n, p in zip(heads, products, strict=True))
    tail = contraction.epilogue(lines, [n for n in members if n not in heads], virtual)
    if tail is None:
        return None
    group = Group("contractions", (*lines, *tail), product=first, products=len(lines))
    return contraction.with_loops(group, facts)


def aligned(p: Product, first: Product, facts) -> Product | None:
    """The product with its factors and reduced indices as in the first one."""
    if names(p.m) == names(first.n) and names(p.n) == names(first.m):
        p = replace(p, m=p.n, n=p.m, left=p.right, right=p.left)
    alike = [
        names(x) == names(y) for x, y in ((p.batch, first.batch), (p.m, first.m), (p.n, first.n))
    ]
    if not all(alike) or p.taps or len(p.k) != len(first.k):
        return None
    if not all(same(facts, a.hi, b.hi) for a, b in zip(p.k, first.k, strict=True)):
        return None
    values = {a.index: index(b.index) for a, b in zip(p.k, first.k, strict=True)}
    left, right = (substitute_indices(side, values) for side in (p.left, p.right))
    return replace(p, k=first.k, left=left, right=right)


def names(binders: tuple[ir.Binder, ...]) -> list[str]:
    return [b.index for b in binders]


def as_nest(head: ir.Nest, p: Product) -> ir.Nest:
    product = ir.Call("mul", (p.left, p.right), head.dtype)
    return replace(head, body=replace(head.fold, binders=p.k, body=product))


make = contraction.make
