"""Few channels, stored as a multiple of four: a load then takes 16 bytes of f32, one mask and one address for all of a tap.

    x[n, c, p + r] of 3 channels   is   x_lanes[n, p + r, c] of 4, the last one zeros

and so are the weights, so that a term too many is 0 * 0. Indices in a term of `tiles` cost more than its products:
behind a transposed convolution of 3 channels 7,072 instructions a thread, 2,390 in lanes.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, size
from tritongen.schedule.canonical import binders_of, fresh, reads, same
from tritongen.schedule.members import Group
from tritongen.schedule.plan import Pack

LANES = 4


def with_lanes(group: Group) -> Group:
    """The group of a convolution with the size that its channels have in lanes."""
    product = group.product
    if product is None or not product.taps or len(product.k) != 1:
        return group
    (channel,) = product.k
    taken = {b.index for n in group.nests for b in (*n.box, *binders_of(n))}
    taken |= {n.name for n in group.nests} | {e.tensor for n in group.nests for e in reads(n.body)}
    name = fresh(f"{channel.index}_lanes", taken)
    define = ir.Define(name, (channel.hi + LANES - 1) // LANES * LANES)
    return replace(group, product=replace(product, lanes=name), defines=(*group.defines, define))


def in_lanes(
    group: Group, packs: tuple[Pack, ...], dims: dict[str, tuple[Poly, ...]], facts
) -> tuple[Group, tuple[Pack, ...], dict[str, tuple[Poly, ...]]] | None:
    """The group over copies in lanes, how they are made, and all dims; None where the channels of an operand

    are not those of the product, one for one.
    """
    product = group.product
    if product is None or not product.lanes or len(packs) != 2:
        return None
    (channel,), lanes = product.k, size(product.lanes)
    sides = (*reads(product.left), *reads(product.right))
    by_tensor = {p.tensor: p for p in packs}
    if len(sides) != 2 or {r.tensor for r in sides} != set(by_tensor):
        return None
    for read in sides:
        inner = by_tensor[read.tensor].order[-1]
        if read.coords[inner] != index(channel.index):
            return None
        if not same(facts, dims[read.tensor][inner], channel.hi):
            return None
    stored = tuple(replace(p, stored=f"{p.tensor}_lanes", lanes=lanes) for p in packs)
    known = {p.stored: (*(dims[p.tensor][k] for k in p.order[:-1]), lanes) for p in stored}
    if set(known) & set(dims):
        return None

    def change(node: ir.Expr) -> ir.Expr:
        match node:
            case ir.Read(tensor, coords) if tensor in by_tensor:
                order = by_tensor[tensor].order
                return replace(
                    node, tensor=f"{tensor}_lanes", coords=tuple(coords[k] for k in order)
                )
            case ir.Reduce(_, binders):
                return replace(node, binders=tuple(map(widen, binders)))
        return node

    def widen(b: ir.Binder) -> ir.Binder:
        return replace(b, hi=lanes) if b.index == channel.index else b

    head, *tail = group.nests
    head = replace(head, body=ir.rebuild(head.body, change))
    product = replace(
        product,
        k=(widen(channel),),
        left=ir.rebuild(product.left, change),
        right=ir.rebuild(product.right, change),
    )
    return replace(group, nests=(head, *tail), product=product), stored, dims | known
