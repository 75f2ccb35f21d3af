"""Norms of images that are stored channels last: a loop order that needs no copy of them.

Input: a step over rows whose result is seen as rows. Output: the step, with the kernels and variants of that order behind
its own, which are for images in order. A row covers the channels of one place after the other, and no view of a tensor
merges images, channels and places. If a row has one channel (instance norm), neighbours in memory belong to different rows.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, indices
from tritongen.ir.bounds import Facts
from tritongen.schedule.plan import Axis, Dims, KernelPlan, Order, Step, Variant, under
from tritongen.schedule.row_schedules import (
    State,
    Traits,
    loop_variant,
    resident_variants,
    split_variant,
)
from tritongen.schedule.rules import conjuncts
from tritongen.schedule.views import views


def with_images(
    step: Step,
    resident: KernelPlan,
    loop: KernelPlan,
    state: tuple[State, ...],
    traits: Traits,
    touched,
    axes: tuple[Axis, Axis],
    dims: Dims,
    facts: Facts,
) -> Step:
    """The step for images of which every place is reduced; as it was for all else."""
    row, col = axes
    stored = [(t, c) for t, c in touched if t in step.stores and _is_images(dims[t])]
    reduced = {*col.names}
    if not stored or not all(indices(c) <= reduced for c in stored[0][1][2:]):
        return step
    result, written = stored[0]
    if not any(indices(c) for c in written[2:]):
        return step  # one place an image, `y[n, 0, 0, 0]`: it lies the same either way
    alike = [t for t, c in touched if t not in step.stores and len(c) == len(written)]
    if not alike or not all(_is_images(dims[t]) for t in alike):
        return step
    channels = tuple(d for d in col.digits if d.index in indices(written[1]))
    places = tuple(d for d in col.digits if d not in channels)
    walk = row, Axis("col", (*places, *channels))
    digits = [i for a in axes for i in a.names]
    cuts = tuple(min(indices(c), key=digits.index) for c in written[1:3] if indices(c))
    seen = views(touched, dims, walk, facts, cuts)

    def reordered(kernel: KernelPlan) -> KernelPlan:
        own = f"{step.name}_channels_{kernel.name.removeprefix(f'{step.name}_')}"
        return replace(kernel, name=own, axes=walk, views=seen)

    resident, loop = reordered(resident), reordered(loop)
    known = ("channels_last",) if channels else ("channels_last", "strided")
    split = split_variant(loop, state, True, False)
    held = resident_variants(resident, replace(traits, several=not traits.alone, odd=()))
    first = grouped_variants(split, held) if channels else (split, *held)
    # Long blocks would spill the digits of columns.
    more = (*first, loop_variant(loop, False, False, walked=False))
    # Else the result cannot be seen as rows.
    along = filter(_is_along, step.variants)
    kept = tuple(under("not channels_last", v) for v in along)
    used = {launch.kernel for v in kept for launch in v.launches}
    return replace(
        step,
        kernels=(*(k for k in step.kernels if k.name in used), resident, loop),
        variants=(*kept, *(replace(v, name=f"channels_{v.name}") for v in more)),
        orders=tuple(Order(fact, result, 1, -1) for fact in known),
    )


def grouped_variants(split: Variant, held: tuple[Variant, ...]) -> tuple[Variant, ...]:
    """Groups of a few channels: what lies beside them in memory is of other groups, so a tile holds eight.

    group_norm of channels last on an H200, us (a copy to channels first and its norm; torch): bf16 [32, 256, 56, 56] in 32
    groups 130 (212; 295; a group a program, in registers 610), f32 [32, 64, 112, 112] in 8 134 (268; 351; 181), f16
    [8, 320, 64, 64] in 32 70 (94; 136; 118), bf16 [17, 96, 33, 35] in 3 15 (31; 49; 111), f16 [4, 1280, 16, 16] in 32 19 (19; 32;
    41). Of [64, 512, 14, 14] in 32 a group in registers 17 (48; 82), eight of them 20.
    """
    parts = "pow2(max(1, min(256, cdiv(8 * sms, max(1, cdiv(rows, ROWS))), cdiv(cols, BLOCK))))"
    config = {"BLOCK": "256", "ROWS": "8", "PARTS": parts, "num_warps": "4"}
    wide = replace(
        split,
        when="cols > 4096",
        why="groups of a few channels: a tile holds eight, and several programs share them",
        config=tuple((name, config.get(name, rule)) for name, rule in split.config),
    )
    short = (replace(v, when=f"{v.when} and cols <= 4096") for v in held if _is_along(v))
    return (*short, wide)


def _is_along(v: Variant) -> bool:
    """Whether it is for rows that memory runs along, as it does where images are in order."""
    return "strided" not in conjuncts(v.when)


def _is_images(own: tuple[Poly, ...]) -> bool:
    """Whether a tensor of these dims may be stored channels last."""
    return ir.BATCH_SIZE not in own[:2] and (ir.BATCH_SIZE in own or len(own) in (4, 5))
