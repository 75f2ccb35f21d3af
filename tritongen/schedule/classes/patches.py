"""Convolutions with stride 1 by tensor descriptors: a tile of places is a patch, loaded as it lies in memory.

    x[n, c, p + r * dil - pad, q + s * dil - pad]

At one tap a patch of places reads a patch of x, moved by the tap: a tile of a descriptor with the channels
innermost. What a descriptor reads outside of the tensor is zero, and that is the padding. Operands that
no patch can be read from (steps over 1, fills other than 0, computed factors) go through pointers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, affine, index, indices, is_fractional
from tritongen.ir.bounds import Facts
from tritongen.schedule.canonical import reads, same
from tritongen.schedule.plan import KernelPlan, Launch, Variant, View
from tritongen.schedule.views import digits_of

MOST_DIMS = 5  # of a tensor descriptor
Run = tuple[str, ...]


# ---- how it runs ---------------------------------------------------------------------------------
def kernel(name, group, axes, stores, dims, facts) -> tuple[KernelPlan, dict[str, Poly]] | None:
    """The kernel, and facts of the call that its variant speaks of; None where an operand has no patches."""
    hops: dict[str, Poly] = {}
    tiles = described(group, axes, dims, facts, hops)
    if tiles is None:
        return None
    p = group.product
    out = stored(group, stores, axes, dims, facts, tiles[0])
    shared = dict(tiles=tiles, stored=out, lets=p.lets, ragged=p.ragged, slides=True)
    plan = KernelPlan(f"{name}_patches", "patches", "whole", axes, group.nests, stores, **shared)
    numbers = {f"hop_{place}": step for place, step in hops.items()}
    return plan, numbers if p.lets else {**numbers, "taps": axes[4].extent}


def variant(plan: KernelPlan, numbers: dict[str, Poly], packs, times: str) -> Variant:
    steps = "".join(f" and {name} == 1" for name in numbers if name != "taps")
    config = (
        ("BLOCK_N", "max(16, min(128, pow2(N)))"),
        ("BLOCK_M", "128"),
        ("BLOCK_K", "min(128 // itemsize, max(16, pow2(channels)))"),
        ("FLAT", "taps * cdiv(channels, BLOCK_K) <= 16" if "taps" in numbers else "False"),
        ("num_warps", "8 if BLOCK_N == 128 else 4"),
        ("num_stages", "3"),
    )
    tiles = f"{times}patches * cdiv(N, BLOCK_N)"
    return Variant(
        "patches",
        f"tma and 2 <= itemsize <= 4 and channels >= 16{steps} and {times}M * N * channels >= 2**26",
        "neighbouring places read neighbours at every tap: patches of them, by tensor descriptor",
        config,
        (Launch(plan.name, (f"min(3 * sms, {tiles}) if FLAT else {tiles}",)),),
        packs=packs,
    )


# ---- tensors as descriptors see them -------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Dim:
    """A dim of a tensor, or a part of one: `run` are the indices of the tile that walk it, all of it or none."""

    extent: Poly
    coordinate: Poly
    run: Run


def described(group, axes, dims, facts, hops: dict[str, Poly]) -> tuple[View, View] | None:
    """How the factors lie in memory: a dim for each index of places, one for all columns, one for the channel."""
    _, m, n, k, _ = axes
    head = group.nests[0].body
    left, right = (operand(side) for side in head.body.args)
    if left is None or right is None or left.dtype != right.dtype or head.guards:
        return None
    x = as_tiles(left, [(d.index,) for d in m.digits], axes, dims, facts, hops)
    w = as_tiles(right, [tuple(d.index for d in n.digits)], axes, dims, facts, {})
    return (x, w) if x and w and len(k.digits) == 1 else None


def operand(side: ir.Expr) -> ir.Read | None:
    """What a factor reads, where it is nothing else, and zero outside."""
    match side:
        case ir.Cast(ir.Read(fill=None | 0) as read, _):
            return read
    return None


def as_tiles(read: ir.Read, own: list[Run], axes, dims, facts, hops) -> View | None:
    """An operand with a dim for each run of `own` and one, all of it, for the channel; adds steps to `hops`."""
    channel = axes[3].digits[0]
    seen = spread(read.tensor, read.coords, axes, dims, facts)
    for dim in seen:
        parts = affine(dim.coordinate)
        if parts is None or is_fractional(dim.coordinate):
            return None
        if channel.index in dim.run:
            if dim.coordinate != index(channel.index) or not same(facts, dim.extent, channel.hi):
                return None
        elif len(dim.run) == 1 and dim.coordinate != index(*dim.run):
            step = parts[0].get(Idx(*dim.run))
            if step is None or indices(step) or dim.run not in own or len(own) == 1:
                return None
            if step.constant != 1:
                hops[dim.run[0]] = step
    runs = [dim.run for dim in seen]
    if len(runs) > MOST_DIMS or sorted(filter(None, runs)) != sorted([*own, (channel.index,)]):
        return None
    return View(read.tensor, tuple(dim.extent for dim in seen), tuple(runs))


def stored(group, stores, axes, dims, facts, x: View) -> tuple[View, ...]:
    """The outputs whose patches leave as they lie in memory: places in the order of x's, nothing beside them."""
    extents = {(d.index,): d.hi for d in axes[1].digits}
    places = [run for run in x.runs if run in extents]
    columns = tuple(d.index for d in axes[2].digits)
    wide, found = {group.nests[0].name}, []
    for nest in group.nests:
        if any(read.tensor in wide for read in reads(nest.body)):
            wide.add(nest.name)
        if nest.name not in wide & set(stores):
            continue
        seen = spread(nest.name, nest.coords, axes, dims, facts)
        whole = all(
            dim.coordinate == index(*dim.run) and same(facts, dim.extent, extents[dim.run])
            for dim in seen
            if dim.run in extents
        )
        runs = [dim.run for dim in seen if dim.run]
        if whole and len(seen) <= MOST_DIMS and [r for r in runs if r != columns] == places:
            found.append(View(nest.name, tuple(d.extent for d in seen), tuple(d.run for d in seen)))
    return tuple(found)


def spread(tensor: str, coords: tuple[Poly, ...], axes, dims, facts: Facts) -> tuple[Dim, ...]:
    """The dims of a tensor; one that several indices number together is taken apart, but for the columns."""
    extents = {d.index: d.hi - d.lo for axis in axes for d in axis.digits}
    columns = tuple(d.index for d in axes[2].digits)
    tile = {d.index for axis in axes[1:4] for d in axis.digits}
    found = []
    for coordinate, extent in zip(coords, dims[tensor], strict=True):
        known = indices(coordinate) <= set(extents)
        digits = (digits_of(coordinate, extents, extent, facts) if known else None) or ()
        if digits == columns:
            found.append(Dim(extent, coordinate, columns))
        elif len(digits) > 1:
            own = ((d, (d,) if d in tile else ()) for d in digits)
            found += [Dim(extents[d], index(d), run) for d, run in own]
        else:
            found.append(Dim(extent, coordinate, tuple(sorted(indices(coordinate) & tile))))
    return tuple(found)
