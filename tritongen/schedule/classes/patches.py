"""Convolutions by tensor descriptors: a tile of places is a patch, loaded as it lies in memory.

    x[n, c, p * stride + r * dil - pad, q * stride + s * dil - pad]

At one tap, a patch of places reads a patch of x that is moved by the tap: a tile of a descriptor with the channels
innermost. A descriptor reads zeros outside of the tensor, which are the padding. With a stride, the descriptor sees every
stride-th element, and the first of them is an offset along its last dim: p * stride + rest is p + rest // stride,
rest % stride rows on. Operands that no patch can be read from (fills other than 0, computed factors) go through pointers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, affine, extreme, index, indices, is_fractional, poly
from tritongen.schedule.canonical import same
from tritongen.schedule.classes.contraction_tiles import variant
from tritongen.schedule.estimates import TAPPED, of_convolution
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Variant, View

MOST_DIMS = 5  # of a tensor descriptor


# ---- how it runs ---------------------------------------------------------------------------------
def kernel(
    name, group, axes, stores, dims, facts
) -> tuple[KernelPlan, dict[str, Poly], bool] | None:
    """The kernel, the facts of the call that its variant names, and whether patches hold zeros behind the channels.

    They do if the sum takes all channels that there are: `sum[c < D, r](x[n, c, p + r] * ...)` may be of a part.

    None if an operand has no patches.
    """
    head, p = group.nests[0].fold, group.factors
    reads = [read for side in head.factors if (read := operand(side)) is not None]
    if head.guards or len(reads) < 2 or reads[0].dtype != reads[1].dtype or len(p.k) != 1:
        return None
    x, w = (walked(read, axes[place], axes[3]) for read, place in zip(reads, (1, 2), strict=True))
    if x is None or w is None or len(x) > MOST_DIMS:
        return None
    tiles = tuple(
        View(read.tensor, dims[read.tensor], tuple(dim.run for dim in seen))
        for read, seen in zip(reads, (x, w), strict=True)
    )
    shared = dict(tiles=tiles, lets=p.lets, ragged=p.ragged, slides=True)
    plan = KernelPlan(f"{name}_patches", "patches", axes, group.nests, stores, **shared)
    numbers: dict[str, Poly] = {"row": axes[1].digits[-1].hi - axes[1].digits[-1].lo}
    stepped = steps_of(x, dims[reads[0].tensor], "conv_stride", "over")
    if stepped is None:
        return None
    numbers |= stepped
    channel = p.k[0]
    at = next(k for k, dim in enumerate(x) if dim.run == (channel.index,))
    every = same(facts, dims[reads[0].tensor][at], channel.hi)
    return plan, numbers, every and x[at].rest == poly(0)


def by_patches(
    plan: KernelPlan, numbers: dict[str, Poly], zeros: bool, packs, times: str, digits: int
) -> Variant:
    """The variant by patches. Its tiles were measured on one H200, in TFLOP/s (`taps`; cuDNN):

    - bf16, 512 -> 512 channels of 64^2: 729 in tiles of 256 places x 128 columns, 692 in 128 x 128 (647; 806)
    - f32 as TF32, channels first, 64 -> 128 channels of 512 x 1024, with packing: 225 (141; 167)
    - 16 channels: 157 with 4 warps, 137 with 8 (-; 112)
    - 64 columns and few steps: 355 flattened with three programs a multiprocessor, 264 as one tile a program (-; 339)

    Phases of transposed convolutions of stride 2, f32 as TF32, ms with packing (`taps`; cuDNN): 4x4 of 64 -> 64 channels
    1.00 (1.43; 1.39), 3x3x3 of 32 -> 32 channels 1.06 (1.77; 1.85).
    """
    steps = " and 0 < conv_stride and over == 0" if "conv_stride" in numbers else ""
    copied = all(p.stored for p in packs)  # and so of a multiple of 16 channels
    requires = f"patched and 2 <= itemsize <= 4{'' if copied else ' and padded % 16 == 0'}{steps}"
    why = "by tensor descriptor: neighbouring places read neighbours at every tap"
    # Rows of 32 bytes are loaded slowly, but longer ones may hold more zeros: 48 channels of f32 reach 110 TFLOP/s in steps
    # of 16, 92 in steps of 32. If the channels of another group follow instead of zeros, steps end with the channels.
    # So they do where a descriptor sees every stride-th place: what lies in between follows.
    depth = "64 if padded % 64 == 0 else 32 if padded % 32 == 0 else 16"
    if zeros:
        few = "padded % 32 and (itemsize > 2 or padded < 32)"
        longer = f"16 if {few} else 64 if 2 * cdiv(padded, 64) == cdiv(padded, 32) else 32"
        depth = f"(({longer}) if conv_stride == 1 else {depth})" if steps else longer
    # Lanes of phases store single elements anyway. Channels are stored last if they lie last in both operands.
    uneven = "" if plan.lets else "(row if packed_bytes else N) * stored_bytes % 16"
    # 256 x 128 beside stores of an element each spills: 303 channels of 248 x 62 x 287 253 us, by `taps` 77 (H100).
    whole = f" and {uneven} == 0" if uneven else ""
    many = f"{times}cdiv(M, 256) * cdiv(N, 128) >= 4 * sms"
    tall = f"itemsize <= 2 and N > 64 and padded % 64 == 0{whole} and {many}"
    short = "itemsize <= 2 and BLOCK_N <= 64 and taps * cdiv(padded, BLOCK_K) <= 16"
    config = (
        ("BLOCK_M", f"256 if {tall} else 128"),
        ("BLOCK_N", "max(16, min(128, pow2(N)))"),
        ("BLOCK_K", f"min(128 // itemsize, {depth})"),
        ("FLAT", "False" if plan.lets else short),
        ("num_warps", "8 if BLOCK_N == 128 else 4"),
        ("num_stages", "3"),
    )
    tiles = f"{times}PATCHES * cdiv(N, BLOCK_N)"
    launch = Launch(plan.name, (f"min(3 * sms, {tiles}) if FLAT else {tiles}",))
    apart = f"{uneven} > 0" if uneven else "False"
    estimate = of_convolution(
        "patches", TAPPED, "padded_bytes", digits, places="covered", uneven=apart
    )
    more = "padded_fits" if packs else ""
    return variant("patches", requires, why, config, launch, more, packs=packs, estimate=estimate)


# ---- operands as descriptors see them ------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Dim:
    """A dim of an operand: the tile's indices along it, their steps, and the start."""

    run: tuple[str, ...]
    step: Poly
    rest: Poly


def steps_of(
    seen: tuple[Dim, ...], extents: tuple[Poly, ...], step: str, over: str
) -> dict[str, Poly] | None:
    """The one step of all dims that have another than 1, and how many elements no step reaches, as facts. None if steps differ."""
    found: dict[str, Poly] = {}
    for dim, extent in zip(seen, extents, strict=True):
        if dim.step != poly(1):
            if found.setdefault(step, dim.step) != dim.step:
                return None
            # The launch divides by a step before any variant is refused, and a size may be 0.
            by = dim.step if dim.step.constant else extreme("max", (poly(1), dim.step))
            found[over] = found.get(over, poly(0)) + extent - extent // by * by
    return found


def operand(side: ir.Expr) -> ir.Read | None:
    """The read of a factor, if the factor is only this read and is zero outside."""
    match side:
        case ir.Cast(ir.Read(fill=None | 0) as read, _):
            return read
    return None


def walked(read: ir.Read, kept: Axis, k: Axis) -> tuple[Dim, ...] | None:
    """An operand's dims: one for all columns, or one for each index of places, and one for the channel."""
    places = [(d.index,) for d in kept.digits]
    runs = places if kept.name == "m" else [kept.names]
    channel = (k.digits[0].index,)
    found = []
    every = {i for r in (*runs, channel) for i in r}
    for coordinate in read.coords:
        run = next((r for r in (*runs, channel) if set(r) & indices(coordinate)), ())
        dim = along(coordinate, run, kept)
        if dim is None or indices(dim.rest) & every or dim.step != poly(1) and run not in places:
            return None
        found.append(dim)
    whole = sorted(dim.run for dim in found if dim.run) == sorted([*runs, channel])
    return tuple(found) if whole else None


def along(coordinate: Poly, run: tuple[str, ...], axis: Axis) -> Dim | None:
    """The dim as steps along a run, if they are steps forwards; of none, the step is 1."""
    parts = affine(coordinate)
    if parts is None or is_fractional(coordinate):
        return None
    step = parts[0].get(Idx(run[-1]), poly(0)) if run else poly(1)
    forwards = step.constant is None or step.constant >= 1
    if indices(step) or not forwards:
        return None
    return Dim(run, step, coordinate - step * number(run, axis))


def number(run: tuple[str, ...], axis: Axis) -> Poly:
    """The number that the digits of an axis make; an index alone is itself."""
    total, weight = poly(0), poly(1)
    extents = {d.index: d.hi - d.lo for d in axis.digits}
    for name in reversed(run):
        total = total + weight * index(name)
        weight = weight * extents.get(name, poly(1))
    return total
