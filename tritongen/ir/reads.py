"""The reads of an expression, those in coordinates included.

Input: an expression. Output: what it reads, as `("x", (n, d), None)`, or the expression with fills
where only a guard kept a read inside its tensor. Not here: proofs about them (`bounds.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tritongen.ir import algebra
from tritongen.ir.algebra import Fetch, Idx, Poly, poly
from tritongen.ir.nodes import Binder, Expr, IndexValue, Op, Read, Reduce, rebuild, walk


def reads_of(
    expr: Expr,
) -> Iterator[tuple[str, tuple[Poly, ...], int | float | bool | None]]:
    """Every read below, those in coordinates included: tensor, coordinates, fill."""
    for node in walk(expr):
        polys: tuple[Poly, ...] = ()
        match node:
            case Read(tensor, coords, fill):
                yield tensor, coords, fill
                polys = coords
            case IndexValue(p):
                polys = (p,)
            case Reduce(guards=guards):
                polys = tuple(g.poly for g in guards)
        for p in polys:
            for atom in algebra.walk(p):
                if isinstance(atom, Fetch):
                    yield atom.tensor, atom.coords, atom.fill


def wide_names(op: Op) -> frozenset[str]:
    """Tensors whose numbers count without a cast: a narrower type wraps where coordinates do not."""
    operands = {t.name for t in op.tensors if t.dtype == "i64"}
    return frozenset(operands | {nest.name for nest in op.nests if nest.dtype == "i64"})


def switch_of(total: Reduce) -> str:
    """Which of torch's switches speaks of a sum of products: that of a product with a window is "conv".

    It has one where some coordinate adds an index that is kept and one that is reduced.
    """
    own = {b.index for b in total.binders}
    found = (algebra.indices(c) for _, coords, _ in reads_of(total.body) for c in coords)
    return "conv" if any(used & own and used - own for used in found) else "matmul"


def fill_reads(
    body: Expr, dims: Mapping[str, tuple[Poly, ...]], binders: dict[str, Binder]
) -> Expr:
    """A `where` proves no bound: reads that only the guard kept inside get a fill."""

    def whole(c: Poly, extent: Poly) -> bool:
        return any(c == poly(Idx(b.index)) and b.hi == extent for b in binders.values())

    def outer(c: Poly) -> bool:
        ((monomial, value),) = c.terms if len(c.terms) == 1 else (((), 0),)
        return (
            value == 1
            and len(monomial) == 1
            and isinstance(monomial[0][0], Idx)
            and (monomial[0][0].name not in binders)
        )

    def change(node: Expr) -> Expr:
        if not isinstance(node, Read) or node.fill is not None:
            return node
        pairs = zip(node.coords, dims[node.tensor], strict=True)
        if all(whole(c, d) or outer(c) for c, d in pairs):
            return node
        return replace(node, fill=False if node.dtype == "bool" else 0)

    return rebuild(body, change)
