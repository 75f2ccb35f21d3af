"""Convolutions with stride 1 by tensor descriptors: a tile of places is a patch, loaded as it lies in memory.

    x[n, c, p + r * dil - pad, q + s * dil - pad]

At one tap a patch of places reads a patch of x, moved by the tap: a tile of a descriptor whose innermost dim
are the channels. What a descriptor reads outside the tensor is zero, which is the padding. Operands that a
patch cannot be read from (strides over 1, fills other than 0, computed factors) go through pointers.
"""

from __future__ import annotations

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, affine, index, indices, is_fractional
from tritongen.ir.bounds import Facts
from tritongen.schedule.canonical import reads, same
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Variant, View
from tritongen.schedule.views import digits_of

MOST_DIMS = 5  # of a tensor descriptor


def kernel(name, group, axes, stores, dims, facts, seen) -> tuple[KernelPlan, tuple[tuple[str, Poly], ...]]:
    """The kernel, and facts of the call: its taps, and the steps, which must all be 1."""
    tiles, hops = seen
    p = group.product
    out = stored_whole(group, stores, axes, dims, facts, tiles[0])
    shared = dict(tiles=tiles, stored=out, lets=p.lets, ragged=p.ragged, slides=True)
    kernel = KernelPlan(f"{name}_patches", "patches", "whole", axes, group.nests, stores, **shared)
    numbers = [(f"hop_{index}", step) for index, step in hops.items()]
    if not p.lets:
        numbers.append(("taps", axes[4].extent))
    return kernel, tuple(numbers)


def variant(kernel: KernelPlan, numbers, packs, times: str) -> Variant:
    tile = (
        ("BLOCK_N", "max(16, min(128, pow2(N)))"),
        ("BLOCK_M", "128"),
        ("BLOCK_K", "min(128 // itemsize, max(16, pow2(channels)))"),
        ("FLAT", "taps * cdiv(channels, BLOCK_K) <= 16" if not kernel.lets else "False"),
        ("num_warps", "8 if BLOCK_N == 128 else 4"),
        ("num_stages", "3"),
    )
    steps = "".join(f" and {name} == 1" for name, _ in numbers if name != "taps")
    tiles = f"{times}patches * cdiv(N, BLOCK_N)"
    return Variant(
        "patches",
        f"tma and 2 <= itemsize <= 4 and channels >= 16{steps} and {times}M * N * channels >= 2**26",
        "neighbouring places read neighbours at every tap: patches of them, by tensor descriptor",
        tile,
        (Launch(kernel.name, (f"min(3 * sms, {tiles}) if FLAT else {tiles}",)),),
        packs=packs,
    )


def described(group, axes, dims, facts) -> tuple[tuple[View, View], dict[str, Poly]] | None:
    """How the two factors lie in memory, and the steps by index that must be 1; None where one is no such operand."""
    _, m, n, k, _ = axes
    head = group.nests[0]
    left, right = (stored(side) for side in head.body.body.args)
    if left is None or right is None or left.dtype != right.dtype or head.body.guards:
        return None
    if len(k.digits) != 1 or len(n.digits) != 1:
        return None
    hops: dict[str, Poly] = {}
    x, w = (as_tiles(read, own, axes, dims, facts, hops) for read, own in ((left, m), (right, n)))
    return ((x, w), hops) if x and w else None


def stored(side: ir.Expr) -> ir.Read | None:
    """The operand, where a factor is nothing else, and zero outside."""
    match side:
        case ir.Cast(ir.Read(fill=None | 0) as read, _):
            return read
    return None


def as_tiles(read: ir.Read, own: Axis, axes, dims, facts, hops: dict[str, Poly]) -> View | None:
    """The operand with one dim for each index of `own` and one, all of it, for k; adds to `hops`."""
    (k,) = axes[3].digits
    moving, runs, shape = {d.index for d in own.digits}, [], []
    for extent, coordinate in spread(read, axes, dims, facts):
        parts, found = affine(coordinate), indices(coordinate) & (moving | {k.index})
        if parts is None or is_fractional(coordinate) or len(found) > 1:
            return None
        if k.index in found and (coordinate != index(k.index) or not same(facts, extent, k.hi)):
            return None
        for name in found & moving:
            step = parts[0][Idx(name)]
            if indices(step):
                return None
            if step.constant != 1:
                hops[name] = step
        runs.append(tuple(found))
        shape.append(extent)
    if len(runs) > MOST_DIMS or sorted(filter(None, runs)) != sorted((i,) for i in moving | {k.index}):
        return None
    return View(read.tensor, tuple(shape), tuple(runs))


def stored_whole(group, stores, axes, dims, facts, x: View) -> tuple[View, ...]:
    """The outputs that a patch of sums covers as it lies in memory, places in the order of x's."""
    extents = {d.index: d.hi for axis in axes[1:3] for d in axis.digits}
    places = [run for run in x.runs if run and run[0] in {d.index for d in axes[1].digits}]
    wide, found = {group.nests[0].name}, []
    for nest in group.nests:
        if nest is group.nests[0] or wide & {read.tensor for read in reads(nest.body)}:
            wide.add(nest.name)
        if nest.name in stores and nest.name in wide:
            seen = spread(ir.Read(nest.name, nest.coords, None, nest.dtype), axes, dims, facts)
            runs = [tuple(indices(c) & set(extents)) for _, c in seen]
            whole = [
                len(run) < 2 and (not run or c == index(*run) and same(facts, n, extents[run[0]]))
                for (n, c), run in zip(seen, runs, strict=True)
            ]
            if all(whole) and len(runs) <= MOST_DIMS and [r for r in runs if r in places] == places:
                found.append(View(nest.name, tuple(n for n, _ in seen), tuple(runs)))
    return tuple(found)


def spread(read: ir.Read, axes, dims, facts: Facts) -> tuple[tuple[Poly, Poly], ...]:
    """(extent, coordinate) of an operand's dims; one that several indices number together taken apart."""
    extents = {d.index: d.hi - d.lo for axis in axes for d in axis.digits}
    found = []
    for coordinate, dim in zip(read.coords, dims[read.tensor], strict=True):
        known = indices(coordinate) <= set(extents)
        digits = (digits_of(coordinate, extents, dim, facts) if known else None) or ()
        if len(digits) > 1:
            found += [(extents[name], index(name)) for name in digits]
        else:
            found.append((dim, coordinate))
    return tuple(found)
