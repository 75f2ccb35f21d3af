"""Copies of operands whose channels are padded with zeros, so that a load takes 16 bytes and needs no mask among them.

    x[n, c, p + r] of 3 channels   is   x_padded[n, p + r, c] of 16, where 13 of them are zeros

The weights are padded too, so an extra term is 0 * 0. Computed factors are those of zeros there: `exp(x) * w` is 1 * 0, but
`exp(x) * cos(w)` is 1, and `log(x) * w` NaN. Such products have no padded copies.

- Tiles of channels at one tap: the channels become a multiple of 16. Without this, 209 channels in f16 are loaded 2 bytes
  at a time (a conv3d of 85 images took 29 ms; cuDNN 0.7).
- `tiles`: two or three channels become four, and the variant reads the copies as its operands. Indices inside a term cost
  more than its products (a transposed convolution of 3 channels: 7,072 instructions a thread; with four channels 2,390).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices, size, symbols
from tritongen.ir.free import coordinates, reads
from tritongen.ir.names import fresh
from tritongen.ir.on_numbers import at_zeros
from tritongen.schedule.canonical import same
from tritongen.schedule.classes.patches import MOST_DIMS
from tritongen.schedule.members import Group, Product, names_in
from tritongen.schedule.plan import Dims, Pack, pack_dims, stored_dims

FOUR, LINE = 4, 16
Packs = tuple[Pack, ...]


def with_padded_channels(group: Group) -> Group:
    """The group of a convolution with the sizes that its channels have in whole lines, and by a name of their own."""
    product = group.product
    if product is None or not product.taps or len(product.k) != 1:
        return group
    (channel,) = product.k
    taken = names_in(group.nests)
    padded = fresh(f"{channel.index}_padded", taken)
    counted = fresh(f"{channel.index}_count", taken)
    whole = (channel.hi + LINE - 1) // LINE * LINE
    product = replace(product, padded=padded, counted=counted)
    defines = (ir.Define(padded, whole), ir.Define(counted, channel.hi))
    return replace(group, product=product, defines=(*group.defines, *defines))


def in_fours(group: Group, packs: Packs, dims: Dims, facts) -> tuple[Group, Packs] | None:
    """The group that reads copies with a multiple of four channels, and how these are made; None where this is not
    possible.

    The number of channels gets a name of its own if its name has another meaning too: `w: T[C, C, R, S]`, or 3.
    """
    product = group.factors
    if not product.counted or not _one_for_one(product, packs, dims, facts):
        return None
    read_behind = {read.tensor for n in group.nests[1:] for read in reads(n.body)}
    behind = [p for p in packs if p.tensor in read_behind]
    if any(p.split for p in behind):
        return None  # `x[n, g * C + 1, p]` behind the sum says where a group begins
    (channel,) = product.k
    name = next(iter(symbols(channel.hi)), "")
    # Behind the sum a mask asks how many channels an operand has: `x[n, f + 1, p] else 1`.
    if behind or channel.hi != size(name) or _says_more(name, group, packs, dims):
        name = product.counted
        group = _by_own_name(group, packs)
    return group, tuple(replace(p, widens=name, multiple=FOUR) for p in packs)


def _says_more(name: str, group: Group, packs: Packs, dims: Dims) -> bool:
    """Whether a size is used elsewhere too, beside the channels of the packed operands: in an index, a bound or a mask."""
    product = group.factors
    (channel,) = product.k
    by_tensor = {p.tensor: p for p in packs}

    def change(node: ir.Expr) -> ir.Expr:
        match node:
            case ir.Read(tensor) if tensor in by_tensor:
                return as_packed(node, by_tensor[tensor], channel.index)
            case ir.Reduce(_, binders):
                return replace(node, binders=tuple(b for b in binders if b != channel))
        return node

    said = [p for n in group.nests for p in coordinates(ir.rebuild(n.body, change))]
    said += [p for n in group.nests for b in n.box for p in (b.lo, b.hi)]
    said += [p for n in group.nests for p in n.coords]
    said += [p for _, p in product.lets] + [p for both in product.ragged for p in both]
    for tensor in {read.tensor for n in group.nests for read in reads(n.body)}:
        own = dims.get(tensor, ())
        if pack := by_tensor.get(tensor):
            own = tuple(pack_dims(pack, own)[k] for k in pack.order[:-1])
        said += own
    return any(name in symbols(p) for p in said)


def _by_own_name(group: Group, packs: Packs) -> Group:
    """The group whose channels are as many as the size that is defined as their number says."""
    product = group.factors
    (channel,), count = product.k, size(product.counted)
    by_tensor = {p.tensor: p for p in packs}

    def read(node: ir.Read) -> ir.Read:
        pack = by_tensor.get(node.tensor)
        if pack is None or pack.split is None:
            return node
        at = pack.split[0]
        first, last = as_packed(node, pack, channel.index).coords[at : at + 2]
        coords = (*node.coords[:at], first * count + last, *node.coords[at + 1 :])
        return replace(node, coords=coords)

    return _over(group, count, read)


def _over(group: Group, channels: Poly, read: Callable[[ir.Read], ir.Read]) -> Group:
    """The group with so many channels, its factors read otherwise."""
    (channel,) = group.factors.k
    own = replace(channel, hi=channels)

    def folded(fold: ir.Reduce) -> ir.Reduce:
        return replace(fold, binders=tuple(own if b == channel else b for b in fold.binders))

    head, *tail = group.nests
    body = ir.with_folds(head.reading(read).fold, folded)
    return group.over((replace(head, body=body), *tail), k=(own,))


def widened(group: Group, packs: Packs, dims: Dims, facts) -> tuple[Group, Packs, Dims] | None:
    """The group over copies whose channels are whole lines, how they are made, and all dims; None where it can't be."""
    product = group.factors
    if not product.padded or not _one_for_one(product, packs, dims, facts):
        return None
    (channel,), lanes = product.k, size(product.padded)
    by_tensor = {p.tensor: p for p in packs}
    suffix = product.padded.removeprefix(f"{channel.index}_")
    stored = tuple(
        replace(p, stored=f"{p.tensor}_{suffix}", lanes=lanes, multiple=LINE) for p in packs
    )
    known = {p.stored: stored_dims(p, dims[p.tensor]) for p in stored}
    if set(known) & set(dims):
        return None

    def read(node: ir.Read) -> ir.Read:
        if node.tensor not in by_tensor:
            return node
        pack = by_tensor[node.tensor]
        split = as_packed(node, pack, channel.index)
        coords = tuple(split.coords[k] for k in pack.order)
        return replace(node, tensor=f"{node.tensor}_{suffix}", coords=coords)

    return _over(group, lanes, read), stored, dims | known


def _one_for_one(product: Product, packs: Packs, dims: Dims, facts) -> bool:
    """Whether the channels of both operands are those of the product, and more of them add 0."""
    extra = at_zeros(product.left), at_zeros(product.right)
    if None in extra or 0 not in extra:
        return False
    sides = (*reads(product.left), *reads(product.right))
    by_tensor = {p.tensor: p for p in packs}
    if len(packs) != 2 or len(sides) != 2 or {r.tensor for r in sides} != set(by_tensor):
        return False
    (channel,) = product.k
    for read in sides:
        pack = by_tensor[read.tensor]
        own, inner = pack_dims(pack, dims[read.tensor]), pack.order[-1]
        if as_packed(read, pack, channel.index).coords[inner] != index(channel.index):
            return False
        if len(own) > MOST_DIMS or not same(facts, own[inner], channel.hi):
            return False
    return True


# ---- channels of groups ---------------------------------------------------------------------------
def split_by_groups(
    product: Product, read: ir.Read, at: int, dims: Dims, facts
) -> tuple[Poly, Poly] | None:
    """The number of groups and of channels in a group, if both index one dim of an operand."""
    (channel,) = product.k
    group = read.coords[at] - index(channel.index)
    for b in product.batch:
        if group == index(b.index) * channel.hi and not b.lo.terms:
            if same(facts, dims[read.tensor][at], b.hi * channel.hi):
                return b.hi, channel.hi
    return None


def as_packed(read: ir.Read, pack: Pack, channel: str) -> ir.Read:
    """The read of an operand with the dims that a pack speaks of: one may be two, groups and the channels in one."""
    if pack.split is None:
        return read
    at, _ = pack.split
    (group,) = indices(read.coords[at]) - {channel}
    split = index(group), index(channel)
    return replace(read, coords=(*read.coords[:at], *split, *read.coords[at + 1 :]))
