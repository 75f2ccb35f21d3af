"""Sums without the terms that a transposed convolution leaves out.

`(x[n, c, (p + pad - r) / stride] else 0) * w[c, f, r]` is 0 * w if the stride does not divide. That is 0, but NaN if w is
infinite. Kernels loop over the taps that meet an element, as torch's do, so both answers are right. Input: an op. Output: the
op whose sums skip those terms, or None if it has none.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, is_fractional, poly
from tritongen.ir.free import reads
from tritongen.ir.on_numbers import is_zero_outside

FAR = 1 << 40  # further out than any coordinate: the guard asks for a whole number alone


def without_divided(op: ir.Op) -> ir.Op | None:
    nests = tuple(replace(n, body=ir.rebuild(n.body, _guarded)) for n in op.nests)
    return replace(op, nests=nests) if nests != op.nests else None


def _guarded(node: ir.Expr) -> ir.Expr:
    if not (isinstance(node, ir.Reduce) and node.op == "sum"):
        return node
    guards = tuple(ir.Guard(c + poly(FAR), ">=") for c in _divided(node.body))
    return replace(node, guards=(*node.guards, *guards))


def _divided(term: ir.Expr) -> dict[Poly, None]:
    """Fractional coordinates of what is 0 if the division has a remainder."""
    found = dict.fromkeys(c for read in reads(term) for c in read.coords if is_fractional(c))
    return {c: None for c in found if is_zero_outside(term, c)}
