"""Convolutions: contractions whose left factor slides a window over the kept indices.

    y[n, f, p, q] = sum[c, r, s](x[n, c, p * stride + r - pad, ...] * w[f, c, r, s])

This is a contraction over m = (n, p, q), n = (f) and k = (c, r, s). Its left tile is gathered from x as it is needed
(implicit GEMM).

A transposed convolution reads x at (p + pad - r) / stride. `phases.py` splits p by the stride. Each phase is then a
convolution with stride 1 over every stride-th tap, and no product has a zero in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from math import prod

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import indices, poly
from tritongen.ir.free import reads
from tritongen.schedule.classes import channel_padding, one_tap, patches, phases, strips, window
from tritongen.schedule.classes.contraction_stages import fitted, itemsizes
from tritongen.schedule.classes.contraction_tiles import axes_of, one_each, sizes_of, tile, variant
from tritongen.schedule.classes.contraction_variants import (
    ROWS_BETWEEN_READ,
    added_up,
    reads_bounds,
)
from tritongen.schedule.estimates import TAPPED, of_convolution
from tritongen.schedule.plan import Axis, Estimate, KernelPlan, Order, Pack, Step, Variant
from tritongen.schedule.views import accesses, views

FITS, HALVES = "itemsize <= 4", "itemsize <= 2"
COLUMNS, WARPS = "max(16, min(128, pow2(N)))", "8 if BLOCK_N == 128 else 4"
TERMS = "taps * channels"
# Without wgmma both factors lie in registers, and f32 takes two parts of each. In tiles of 128 x 128 a thread spilled 376 to
# 512 bytes (sm_80, sm_89, sm_120), in 64 x 128 none.
ROWS = "128 if itemsize <= 2 or shared >= 227 else 64"
BUSY = "(4 if BLOCK_N <= 64 else 2)"  # programs a multiprocessor, where they share tiles
# Channels that lanes load one by one. They take one stage, since each would be an asynchronous copy of its own: 129 channels
# of f32, stored last, take 33 us by terms, in several stages 122 (H100).
APART = "channels % 4 > 0 and channels > 1"


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    """`taps` if there are channels enough for a tile of them, else `tiles` over all terms.

    A term is a tap and a channel, and the channel runs fastest. If channels are packed, neighbouring terms are neighbours
    in memory.
    """
    p = group.product
    each = (*axes_of(p), Axis("tap", p.taps))
    outer = each[:3]
    packs = _packs(group, dims, facts)
    whole = channel_padding.widened(group, packs, dims, facts) or (group, packs, dims)
    wide, copies, wide_dims = whole
    tapped = (*outer, Axis("k", wide.factors.k), Axis("tap", p.taps))
    counted, fours = channel_padding.in_fours(group, packs, dims, facts) or (group, ())
    flat = (*outer, Axis("k", (*p.taps, *counted.factors.k)))
    terms = _kernel(f"{name}_tiles", "contraction", flat, counted, stores, dims, facts)
    # Those in parts have no form for f64.
    whole_terms = bool(p.k) and not p.lets and not group.nests[0].fold.guards
    splits = whole_terms and min(itemsizes(terms)) <= 4
    terms = replace(terms, splits=splits)
    taps: tuple[KernelPlan, ...] = ()
    if p.k:
        by_tap = _kernel(f"{name}_taps", "taps", tapped, wide, stores, wide_dims, facts)
        taps = (replace(by_tap, splits=splits),)
    finish: tuple[KernelPlan, ...] = ()
    if splits:
        joined = _kernel(f"{name}_combine", "combine", outer, group, stores, dims, facts)
        finish = (replace(joined, slides=False),)
    digits = len(p.taps) * (2 if p.phases else 1)
    variants = tuple(_variants((*taps, terms), finish, packs, copies, fours, digits))
    if reads_bounds(group):
        variants = tuple(map(_in_more_warps, variants))
    numbers = dict(sizes_of(outer)) | {
        "channels": Axis("k", p.k).extent,
        "padded": tapped[3].extent,
        "taps": Axis("tap", p.whole_taps or p.taps).extent,
        "phases": prod(p.phases, start=poly(1)),
    }
    if not p.lets:
        numbers["depth"] = Axis("k", (*p.taps, *p.k)).extent
    if len(packs) == 2 and (made := patches.kernel(name, wide, tapped, stores, wide_dims, facts)):
        plan, own, zeros = made
        taps, numbers = (plan, *taps), numbers | own
        variants = (patches.by_patches(plan, own, zeros, copies, plan.times, digits), *variants)
    row = "(places if packed_bytes else channels)" if packs else "places"
    others = [one_tap.beside(name, group, stores, dims, facts, row)]
    if len(packs) == 2:
        others.append(phases.beside(name, group, packs, stores, dims, facts))
    if finish:
        others.append(strips.beside(name, group, each, finish[0], stores, dims, facts))
    if p.batch and not p.lets:
        # Few output channels per group, or few terms: each lane adds up its own window.
        rows = replace(group, row=group.nests[0].box)
        others.append(window.beside(name, rows, stores, dims, facts, _of_window))
    why = "a sum of products, one factor gathered by a sliding window"
    step = Step(name, "contraction", why, stores, tuple(numbers.items()), taps, variants)
    step = reduce(Step.beside, filter(None, others), step)
    return fitted(replace(step, kernels=(*step.kernels, *finish, terms)))


def _in_more_warps(v: Variant) -> Variant:
    rules = dict(v.config)
    rules["num_warps"] = f"max({rules['num_warps']}, BLOCK_M // {ROWS_BETWEEN_READ})"
    return replace(v, config=tuple(rules.items()))


def _of_window(way: Variant, orders: tuple[Order, ...]) -> Estimate:
    """The estimate of variants whose lanes add up one sum each. Lanes outside of the result take as long as others.

    Odd lines are loaded element by element. So are lines that lie apart, as those of channels that are stored last: a
    conv1d of 32 such channels of f32 takes 150 us, by products 39. If lanes run along lines but the result lies along its
    channels, each lane stores to a memory sector of its own.
    """
    sums = f"{way.launches[0].grid[0]} * ROWS * STEPS * BLOCK"
    together, stored = "8", orders[1].fact if orders else "False"
    if way.name == "channels":
        stored = "N > 1"
    elif way.name == "runs":
        together = "1 if line % 2 else 2 if line % 4 else 8"
        together = f"1 if {orders[0].fact} else {together}" if orders else together
    elif orders:
        together = f"max(1, 128 // max(32, channels * itemsize)) if {orders[0].fact} else 8"
    return of_convolution(way.name, TERMS, "0", 2, together, sums, stored)


def _variants(kernels, finish, packs, copies, fours, digits: int) -> Iterator[Variant]:
    """All variants through pointers. The tiles were measured on one H200 (times cuDNN's speed with its bias):

    - bf16, channels last, 3x3 over 64 x 64 x 56^2: 1.23 in 128 x 64 x 64 with 4 warps, 1.01 with 8
    - bf16, 512 -> 512 channels of 64^2: 0.91 in 128 x 256, 0.80 in 128 x 128
    - f32 as TF32, 16 channels: 1.39 with BLOCK_K 16, 1.11 with 32
    - 3 channels, 11 x 11, by terms: 0.91 in 128 x 128 x 16, 0.66 in 64 x 64 x 32

    Channels packed in fours take an 11 x 11 window of 3 channels from 2.08 to 0.67 ms. Behind a transposed convolution one
    stage is best (1.59 ms; 2, 3 and 4 stages 1.75, 2.17, 2.61).

    Phases of a transposed convolution have no tiles of 256 columns: their columns lie apart, and in 14 drawn calls such
    tiles took 1.1 to 45 times as long as the best variant. Stores of single elements spill: 1,472 bytes a thread with 4
    warps in tiles of 128 columns. The same happens where rows of columns are not a multiple of 16.
    """
    *tapped, terms = kernels
    phases = bool(terms.lets)

    def by_pointers(
        name: str, kernel, why: str, config, estimate, copied=(), requires=FITS, more="", parts=()
    ) -> Variant:
        """`parts`: steps of the loop, and how many of them a program takes, where several share a tile."""
        launch, fields = one_each(kernel), {"packs": copied, "estimate": estimate}
        whole = variant(name, requires, f"by pointers, {why}", config, launch, more, **fields)
        if not parts or not finish:
            return whole
        return added_up(whole, kernel, finish[0], BUSY, *parts)

    def parts_of(count: str) -> tuple[str, str]:
        """In parts, where there are few tiles: convolutions of one image, and gradients of weights.

        512 channels of 7 x 7 and 512 filters of 3 x 3 have four tiles. `count`: the terms of the sum.
        """
        return f"cdiv({count}, BLOCK_K)", f"BLOCK_K * cdiv({count}, BLOCK_K * PARTS)"

    for taps in tapped:
        deep = "min(128 // itemsize, max(16, 32 // itemsize, pow2(channels)))"
        by_tap = of_convolution("taps", TAPPED, "padded_bytes" if copies else "0", digits)
        room = "padded_fits" if copies else ""
        if not phases:
            why = "one tap and its packed channels a step, 256 columns"
            config = tile("128", "256", deep, "8", "3")
            # Other columns spill 1,100 to 1,500 bytes a thread behind the loop. Calls of many terms still gain (H200). Calls
            # of few terms took up to 2.6 times their estimate.
            more = " and ".join(filter(None, ("(N % 16 == 0 or depth >= 3072)", room)))
            yield by_pointers("wide", taps, why, config, by_tap, copies, HALVES, more)
        # With one channel, places are adjacent in memory.
        even = "1 if channels % 2 else 2 if channels % 4 else 4 if channels % 8 else 8"
        together = f"8 if channels == 1 else {even}"
        why = "terms of several taps a step, channels packed"
        config = tile(ROWS, COLUMNS, "128 // itemsize", WARPS, f"1 if {APART} else 3")
        packed = of_convolution("packed", TERMS, "packed_bytes" if packs else "0", digits, together)
        yield by_pointers("mixed", terms, why, config, packed, packs, parts=parts_of(TERMS))
        many = f"{terms.times}cdiv(M, 128) * cdiv(N, 128) >= sms"
        rows = f"128 if (itemsize <= 2 or shared >= 227) and {many} else 64"
        warps = "8 if BLOCK_N == 128 and (itemsize == 4 or N % 16 > 0) else 4"
        why = "one tap and its packed channels a step"
        config = tile(rows, COLUMNS, deep, WARPS if phases else warps, "3")
        steps = "taps * cdiv(padded, BLOCK_K)"  # of one tap each, and counted by themselves
        parts = steps, f"cdiv({steps}, PARTS)"
        yield by_pointers("taps", taps, why, config, by_tap, copies, more=room, parts=parts)
    if fours:
        count = "taps * 4 * cdiv(channels, 4)"
        why = "terms of several taps a step, channels packed in fours: a load takes four"
        stages = "1" if phases else "4 if depth > 128 else 1"
        config = tile(ROWS, COLUMNS, "32", WARPS, stages)
        padded = of_convolution("pad4", count, "pad4_bytes", digits)
        room = "pad4_fits"
        yield by_pointers(
            "pad4", terms, why, config, padded, fours, more=room, parts=parts_of(count)
        )
    gathered = of_convolution("gathered", TERMS, "0", digits)
    stages = f"1 if {APART} and 2 * packed_bytes < operand_bytes else 4" if packs else "4"
    why = "operands as they lie"
    config = tile(ROWS, COLUMNS, "64 // itemsize", WARPS, stages)
    yield by_pointers("terms", terms, why, config, gathered)
    why, config = f"{why}, in small tiles", tile("64", "64", "32", "4", "1")
    yield by_pointers("small", terms, why, config, gathered, requires="True")


def _kernel(name, skeleton, axes, group, stores, dims, facts) -> KernelPlan:
    # Results are addressed dim by dim, so that they may be stored channels last.
    read = [(t, c) for t, c in accesses(group.nests, stores, dims) if t not in stores]
    seen = views(read, dims, axes, facts)
    p = group.product
    shared = dict(lets=p.lets, ragged=p.ragged, slides=True)
    return KernelPlan(name, skeleton, axes, group.nests, stores, seen, **shared)


def _packs(group, dims, facts) -> tuple[Pack, ...]:
    """Copies of the factors with the channels innermost, if each channel index is in one dim of one operand."""
    p, found = group.product, []
    if len(p.k) != 1 or p.k[0].index == ir.BATCH:  # `...` may be any number of dims, or none
        return ()
    channel = p.k[0].index
    for side in (p.left, p.right):
        for read in reads(side):
            inner = [k for k, c in enumerate(read.coords) if channel in indices(c)]
            if len(inner) != 1 or len(read.coords) < 2:
                continue
            (at,) = inner
            parts = channel_padding.split_by_groups(p, read, at, dims, facts)
            last = (at,) if parts is None else (at, at + 1)
            count = len(read.coords) + len(last) - 1
            order = (*(k for k in range(count) if k not in last), *last)
            found.append(Pack(read.tensor, order, split=parts and (at, parts)))
    return tuple(found)
