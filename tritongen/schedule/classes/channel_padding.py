"""Channels stored as a multiple of a few: what reads them takes 16 bytes at once, and needs no mask among them.

    x[n, c, p + r] of 3 channels   is   x_pad4[n, p + r, c] of 4, the last one zeros

and so are the weights, so that a term too many is 0 * 0. Two or three channels become four: indices in a term of
`tiles` cost more than its products, behind a transposed convolution of 3 channels 7,072 instructions a thread, 2,390
in fours. For tiles of channels at one tap any number becomes a multiple of 16: of 209, in f16, each access took 2
bytes (conv3d of 85 images 29 ms; cuDNN 0.7).
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices, size
from tritongen.schedule.canonical import binders_of, fresh, reads, same
from tritongen.schedule.classes.patches import MOST_DIMS
from tritongen.schedule.members import Group, Product
from tritongen.schedule.plan import Pack, pack_dims, stored_dims

PAD4, LINE = 4, 16


def with_padded_channels(group: Group) -> Group:
    """The group of a convolution with the sizes that its channels have in fours, and in whole lines."""
    product = group.product
    if product is None or not product.taps or len(product.k) != 1:
        return group
    (channel,) = product.k
    taken = {b.index for n in group.nests for b in (*n.box, *binders_of(n))}
    taken |= {n.name for n in group.nests} | {e.tensor for n in group.nests for e in reads(n.body)}
    pad4, padded = fresh(f"{channel.index}_pad4", taken), fresh(f"{channel.index}_padded", taken)
    defines = tuple(
        ir.Define(name, (channel.hi + step - 1) // step * step)
        for name, step in ((pad4, PAD4), (padded, LINE))
    )
    product = replace(product, pad4=pad4, padded=padded)
    return replace(group, product=product, defines=(*group.defines, *defines))


def widened(
    group: Group, width: str, packs: tuple[Pack, ...], dims: dict[str, tuple[Poly, ...]], facts
) -> tuple[Group, tuple[Pack, ...], dict[str, tuple[Poly, ...]]] | None:
    """The group over copies of so many channels, how they are made, and all dims; None where the channels of an

    operand are not those of the product, one for one.
    """
    product = group.product
    if product is None or not width or len(packs) != 2:
        return None
    (channel,), lanes = product.k, size(width)
    sides = (*reads(product.left), *reads(product.right))
    by_tensor = {p.tensor: p for p in packs}
    if len(sides) != 2 or {r.tensor for r in sides} != set(by_tensor):
        return None
    for read in sides:
        pack = by_tensor[read.tensor]
        own, inner = pack_dims(pack, dims[read.tensor]), pack.order[-1]
        if as_packed(read, pack, channel.index).coords[inner] != index(channel.index):
            return None
        if len(own) > MOST_DIMS or not same(facts, own[inner], channel.hi):
            return None
    suffix = width.removeprefix(f"{channel.index}_")
    step = PAD4 if width == product.pad4 else LINE
    stored = tuple(
        replace(p, stored=f"{p.tensor}_{suffix}", lanes=lanes, multiple=step) for p in packs
    )
    known = {p.stored: stored_dims(p, dims[p.tensor]) for p in stored}
    if set(known) & set(dims):
        return None

    def change(node: ir.Expr) -> ir.Expr:
        match node:
            case ir.Read(tensor) if tensor in by_tensor:
                pack = by_tensor[tensor]
                read = as_packed(node, pack, channel.index)
                coords = tuple(read.coords[k] for k in pack.order)
                return replace(node, tensor=f"{tensor}_{suffix}", coords=coords)
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


# ---- channels of groups ---------------------------------------------------------------------------
def split_by_groups(
    product: Product, read: ir.Read, at: int, dims: dict[str, tuple[Poly, ...]], facts
) -> tuple[Poly, Poly] | None:
    """The number of groups and of the channels in one, where a dim of an operand is walked by both."""
    (channel,) = product.k
    group = read.coords[at] - index(channel.index)
    for b in product.batch:
        if group == index(b.index) * channel.hi and not b.lo.terms:
            if same(facts, dims[read.tensor][at], b.hi * channel.hi):
                return b.hi, channel.hi
    return None


def as_packed(read: ir.Read, pack: Pack, channel: str) -> ir.Read:
    """The read of an operand with the dims that a pack speaks of."""
    return read if pack.split is None else as_split(read, pack.split[0], channel)


def as_split(read: ir.Read, at: int, channel: str) -> ir.Read:
    """The read of an operand whose dim `at` is two: groups, and the channels in one."""
    (group,) = indices(read.coords[at]) - {channel}
    split = index(group), index(channel)
    return replace(read, coords=(*read.coords[:at], *split, *read.coords[at + 1 :]))
