"""Products that may be NaN although a term is not there, because its factor belongs to another row.

`sum[k <= i](a[i, k] * b[k, m])` has no term b[2, m] in row 1. Row 2 has it, and tensor cores multiply both rows at once. So
row 1 has 0 * b[2, m]: that is 0, but NaN where b[2, m] is infinite, as in torch.tril(a) @ b. Both answers are right if some
row has the element. An element that no row has must never be seen.

Input: an op. Output: the op whose products have those terms; None if there are none.

Not here: conditions that name no summed index, such as `sum[k](where(c[i] > 0, a[i, k] * b[k, m], 0))`, and the segments of
a ragged product. These say for a whole row whether it has the product. A row without it is 0, whatever other rows have.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Atom,
    Floor,
    Poly,
    index,
    indices,
    poly,
    substitute,
    substitute_atoms,
)
from tritongen.ir.free import free_indices, reads
from tritongen.proof.factors import products_of
from tritongen.schedule.canonical import from_zero
from tritongen.schedule.classes.contraction import Product, two_factors
from tritongen.schedule.factored import factors_of
from tritongen.schedule.members import Virtual, paste


def with_shared(op: ir.Op) -> ir.Op | None:
    inside = products_of(op)

    def change(nest: ir.Nest) -> ir.Nest:
        def more(node: ir.Expr) -> ir.Expr:
            if not (isinstance(node, ir.Reduce) and node.op == "sum" and node.guards):
                return node
            own = free_indices(node)
            box = tuple(b for b in nest.box if b.index in own)
            return _more(replace(nest, box=box, body=node, dtype=node.dtype), node, inside)

        return replace(nest, body=ir.rebuild(nest.body, more))

    nests = tuple(map(change, op.nests))
    return replace(op, nests=nests) if nests != op.nests else None


def _more(head: ir.Nest, node: ir.Reduce, inside: Virtual) -> ir.Expr:
    """`inside`: temporaries whose factors are multiplied with those that share their rows."""
    reduce = from_zero(head.fold)
    product = _product(replace(head, body=reduce), inside)
    if product is None or head.dtype == "i32":
        return node
    out: ir.Expr = node
    summed = {b.index for b in reduce.binders}
    whole = tuple(g for g in reduce.guards if not indices(g.poly) & summed)
    for factor, others in ((product.left, product.n), (product.right, product.m)):
        near = _in_quotients(factor, product.batch)
        others = tuple(b for b in (*others, *near) if b in head.box)
        elsewhere = {b.index: index(f"{b.index}'") for b in others}
        if not any(indices(g.poly) & elsewhere.keys() for g in reduce.guards if g not in whole):
            continue
        rows = tuple(replace(b, index=f"{b.index}'") for b in others)
        asked = tuple(replace(g, poly=substitute(g.poly, elsewhere)) for g in reduce.guards)
        asked += tuple(ir.Guard(substitute(q, elsewhere) - q, "==") for q in near.values())
        there = ir.Reduce("any", rows, asked, ir.Const(True, "bool"), "bool")
        zero = ir.Const(0.0, head.dtype)
        shared = ir.Call("where", (there, factor, zero), head.dtype)
        term = ir.Call(
            "mul", (zero, shared), head.dtype
        )  # a product: what tf32x3 loses of it counts
        terms = ir.Reduce("sum", reduce.binders, whole, term, head.dtype)
        out = ir.Call("add", (out, terms), head.dtype)
    return out


def _product(head: ir.Nest, inside: Virtual) -> Product | None:
    """The product of a sum, its factors computed in place or read.

    A loop may go around it, over the summed indices that one factor alone has.
    """
    for given in (inside, Virtual(())):
        used = [free_indices(f) for f in factors_of(paste(head.fold.body, given, None))]
        alone = [b for b in head.fold.binders if sum(b.index in names for names in used) == 1]
        inner = replace(head.fold, binders=tuple(b for b in head.fold.binders if b not in alone))
        looped = replace(head, box=(*head.box, *alone), body=inner)
        for own in (head, looped):
            if isinstance(found := two_factors(own, given), Product):
                return found
    return None


def _in_quotients(factor: ir.Expr, batch: tuple[ir.Binder, ...]) -> dict[ir.Binder, Poly]:
    """Indices that the factor reads only as a quotient. Rows i = 2 and 3 of `b[i // 2, k]` belong to one product."""
    coords = [c for read in reads(factor) for c in read.coords]
    found = {b: _quotient(coords, b.index) for b in batch}
    return {b: q for b, q in found.items() if q is not None}


def _quotient(coords: list[Poly], name: str) -> Poly | None:
    """The quotient by which the coordinates read an index. None if there are several, or if they also read the index itself."""
    found = set[Poly]()

    def without(atom: Atom) -> Poly | None:
        if not (isinstance(atom, Floor) and atom.num == index(name)):
            return None
        found.add(poly(atom))
        return Poly()

    left = [substitute_atoms(c, without) for c in coords]
    alone = len(found) == 1 and not any(name in indices(c) for c in left)
    return found.pop() if alone else None
