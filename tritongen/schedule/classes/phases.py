"""Transposed convolutions by phases: every place p is p1 * stride + p0, and each p0 is a phase.

    y[n, f, p] = sum[c, r](x[n, c, (p + pad - r) / stride] * w[c, f, r])

For one phase only every stride-th tap reads x, and p1 reads the neighbour of what p1 - 1 reads: a convolution with stride 1.

The gradient of a convolution's image is a transposed convolution, too, but with dilated taps: r * dil. If a call has dil = 1,
it can run by phases. `beside` adds a kernel for such calls.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Idx,
    Poly,
    affine,
    denominator,
    index,
    is_fractional,
    numerator,
    poly,
    size,
    substitute,
    symbols,
)
from tritongen.ir.free import reads
from tritongen.ir.names import fresh
from tritongen.ir.on_numbers import is_zero_outside
from tritongen.schedule.canonical import with_ranges
from tritongen.schedule.classes import channel_padding, patches
from tritongen.schedule.classes.contraction_tiles import axes_of
from tritongen.schedule.estimates import TAPPED, of_convolution
from tritongen.schedule.members import Group, names_in
from tritongen.schedule.plan import Axis, Launch, Pack, Step


def by_phases(group: Group) -> Group:
    """The group with every coordinate (p + a - r) / q of the left factor made whole.

    p becomes p1 * q + p0, and r becomes r1 * q + r_first with r_first = (p0 + a) % q. The coordinate is then p1 + (p0 + a)
    // q - r1. The phase p0 is a batch index. p1 is ragged, since q need not divide P.
    """
    found = {c for c in _coordinates(group.factors) if is_fractional(c)}
    for coordinate in sorted(found, key=str):
        pair = _phase(group.factors, coordinate)
        if pair is not None:
            group = _split(group, coordinate, *pair)
    return group


def _coordinates(product) -> set[Poly]:
    return {c for read in reads(product.left) for c in read.coords}


def _phase(product, coordinate: Poly) -> tuple[ir.Binder, ir.Binder] | None:
    """(p, r) of a coordinate (p + a - r) / q, if no other coordinate of left uses r.

    Taps at which it is not whole are left out, so left must be 0 there: `x[...] else 0` is, and `cos(x[...] else 0)` is not.
    """
    if coordinate not in _coordinates(product):
        return None  # it shares p with one that was split, and has another form since
    if not is_zero_outside(product.left, coordinate):
        return None
    parts = affine(numerator(coordinate))
    if parts is None or len(parts[0]) != 2:
        return None
    by_weight = {w: a for a, w in parts[0].items()}
    if by_weight.keys() != {poly(1), poly(-1)}:
        return None
    p = next((b for b in product.m if Idx(b.index) == by_weight[poly(1)]), None)
    r = next((b for b in product.taps if Idx(b.index) == by_weight[poly(-1)]), None)
    if p is None or r is None or p.lo.terms or r.lo.terms:
        return None
    elsewhere = _coordinates(product) - {coordinate}
    if any(Idx(r.index) in (affine(c) or ({}, 0))[0] for c in elsewhere):
        return None
    return p, r


def _split(group: Group, coordinate: Poly, p: ir.Binder, r: ir.Binder) -> Group:
    product, q, taken = group.factors, denominator(coordinate), names_in(group.nests)
    high, phase = fresh(f"{p.index}1", taken), fresh(f"{p.index}0", taken)
    first, shift = fresh(f"{r.index}_first", taken), fresh(f"{p.index}_shift", taken)
    count = fresh(f"{r.index}_taps", taken)
    start = numerator(coordinate) - index(p.index) + index(r.index) + index(phase)
    steps = fresh(f"{p.index}_steps", taken)
    lets = (
        (first, start - (start // q) * q),
        (shift, start // q),
        (count, (r.hi - index(first) + q - 1) // q),
    )
    whole = index(high) + index(shift) - index(r.index)
    number, tap = index(high) * q + index(phase), index(r.index) * q + index(first)
    digits = (ir.Binder(phase, Poly(), q), ir.Binder(high, Poly(), size(steps)))

    def place(c: Poly) -> Poly:
        return whole if c == coordinate else substitute(c, {p.index: number, r.index: tap})

    def ranges(binders: ir.Binders) -> ir.Binders:
        own = {p.index: digits, r.index: (replace(r, hi=index(count)),)}
        return tuple(new for b in binders for new in own.get(b.index, (b,)))

    group = group.over(
        tuple(with_ranges(n, place, ranges) for n in group.nests),
        batch=(*product.batch, digits[0]),
        m=tuple(digits[1] if b.index == p.index else b for b in product.m),
        taps=ranges(product.taps),
        lets=(*product.lets, *lets),
        ragged=(*product.ragged, (number, p.hi)),
        phases=(*product.phases, q),
        whole_taps=product.whole_taps or product.taps,
    )
    return replace(group, defines=(*group.defines, ir.Define(steps, (p.hi + q - 1) // q)))


# ---- if a call's taps are neighbours -------------------------------------------------------------
def beside(name: str, group: Group, packs: tuple[Pack, ...], stores, dims, facts) -> Step | None:
    """The addition to the step of a transposed convolution with dilated taps: a kernel for calls whose dilation is 1."""
    found = _undilated(group)
    wide = found and channel_padding.widened(found[0], packs, dims, facts)
    if found is None or wide is None or len({*found[0].factors.phases}) != 1:
        return None
    (padded, copies, padded_dims), (own, dilation) = wide, found
    p = padded.factors
    axes = (*axes_of(p), Axis("tap", p.taps))
    made = patches.kernel(name, padded, axes, stores, padded_dims, facts)
    if made is None:
        return None
    plan, _, zeros = made
    plan = replace(plan, name=f"{name}_phases")
    times = "batches * " if group.factors.batch else ""
    way = patches.by_patches(plan, {}, zeros, copies, times, 2 * len(p.taps))
    legal = "tap_step == 1 and 0 < place_step"
    estimate = of_convolution(
        "patches",
        f"cdiv({TAPPED}, phase_count)",
        "padded_bytes",
        2 * len(p.taps),
        places="phase_count * covered",
        uneven="phase_count > 1",
    )
    way = replace(
        way,
        name="phases",
        when=f"{legal} and {way.when}",
        requires=f"{legal} and {way.requires}",
        why=f"{way.why}; of each phase",
        launches=(Launch(plan.name, (f"phase_count * {times}PATCHES * cdiv(N, BLOCK_N)",)),),
        estimate=estimate,
    )
    numbers = {
        "tap_step": dilation,
        "place_step": p.phases[0],
        "phase_count": prod(p.phases, start=poly(1)),
    }
    defines = own.defines[len(group.defines) :]
    why = "a transposed convolution by phases, whose taps are neighbours"
    step = Step(name, "contraction", why, stores, tuple(numbers.items()), (plan,), (way,))
    return replace(step, defines=defines)


def _undilated(group: Group) -> tuple[Group, Poly] | None:
    """The group by phases with a dilation of 1, and the dilation. None if its taps have none, or several."""
    product = group.factors
    taps, dilations = {b.index for b in product.taps}, set[Poly]()
    for coordinate in filter(is_fractional, _coordinates(product)):
        parts = affine(numerator(coordinate))
        for atom, weight in (parts[0] if parts else {}).items():
            if isinstance(atom, Idx) and atom.name in taps and weight.constant is None:
                dilations.add(-weight)
    names = set().union(*map(symbols, dilations))
    if len(names) != 1 or dilations != {size(name) for name in names}:
        return None
    (name,) = names

    def place(c: Poly) -> Poly:
        return substitute(c, {name: 1})

    at_one = (with_ranges(n, place, lambda binders: binders) for n in group.nests)
    phased = by_phases(group.over(tuple(at_one)))
    return (phased, size(name)) if phased.factors.phases else None
