"""The reads of an expression, those in coordinates included.

Input: an expression. Output: what it reads, as `("x", (n, d), None)`. Not here: proofs about them
(`bounds.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tritongen.ir.algebra import Poly, fetches_of, indices
from tritongen.ir.free import own_coordinates
from tritongen.ir.nodes import Expr, Op, Read, Reduce, walk


def reads_of(
    expr: Expr,
) -> Iterator[tuple[str, tuple[Poly, ...], int | float | bool | None]]:
    """Every read below, those in coordinates included: tensor, coordinates, fill."""
    for node in walk(expr):
        if isinstance(node, Read):
            yield node.tensor, node.coords, node.fill
        for p in own_coordinates(node):
            yield from ((a.tensor, a.coords, a.fill) for a in fetches_of(p))


def wide_names(op: Op) -> frozenset[str]:
    """Tensors whose numbers count without a cast: a narrower type wraps where coordinates do not."""
    operands = {t.name for t in op.tensors if t.dtype == "i64"}
    return frozenset(operands | {nest.name for nest in op.nests if nest.dtype == "i64"})


def switch_of(total: Reduce) -> str:
    """Which of torch's switches a sum of products follows: that of a product with a window is "conv".

    It has a window if some coordinate adds a kept index and a reduced one.
    """
    own = {b.index for b in total.binders}
    found = (indices(c) for _, coords, _ in reads_of(total.body) for c in coords)
    return "conv" if any(used & own and used - own for used in found) else "matmul"
