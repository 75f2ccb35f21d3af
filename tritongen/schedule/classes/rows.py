"""Rows: reducers over the same indices (col) that keep the same indices (row), and pointwise nests over row or over both.

Figures are for one H200 unless a comment says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, indices, is_affine_map, poly, weight_of
from tritongen.ir.bounds import Facts
from tritongen.ir.free import binders_of, fetches, free_indices, reads, tensors_read
from tritongen.ir.names import unlike
from tritongen.ir.reads import reads_of
from tritongen.kernel.lower import CannotLower, lower
from tritongen.kernel.nodes import Walk
from tritongen.kernel.verify import verify
from tritongen.schedule.canonical import names_spoken, same
from tritongen.schedule.classes import box, contraction
from tritongen.schedule.classes.crossed import ACROSS, is_plain, views_of
from tritongen.schedule.images import with_images
from tritongen.schedule.members import Group, gather_lines, is_reducer, operands
from tritongen.schedule.paired import KINDS, numbers_of, pairs_of, state_of
from tritongen.schedule.plan import Axis, Dims, KernelPlan, Level, Pair, Step, View, walked_axes
from tritongen.schedule.row_schedules import (
    PAIRED,
    SINGLE,
    STORED,
    Traits,
    across_variant,
    held_columns,
    lines_variants,
    loop_variant,
    resident_variants,
    split_variant,
    three_fit,
    tiled_types,
    two_pass_variant,
)
from tritongen.schedule.row_values import with_row_values
from tritongen.schedule.views import accesses, digits_of, holds_channels_last, views


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    reducers = [n for n in members if is_reducer(n)]
    if (
        not reducers
        or (extending or len(reducers) > 1)
        and any(contraction.as_product(n, virtual, facts) for n in reducers)
    ):
        return None  # products share a tile of tl.dot, not a row
    first = reducers[0]
    row, col = first.box, binders_of(first)
    row_names, col_names = first.over, first.reduced
    tile = row_names | col_names
    if not col or row_names & col_names:
        return None
    ranges = {b.index: (b.lo, b.hi) for b in (*row, *col)}
    lines = gather_lines(members, virtual, tile, (row_names, tile))
    for nest in lines:
        if is_reducer(nest):
            if nest.over != row_names or nest.reduced != col_names:
                return None
        elif nest.over not in (tile, row_names):
            return None
        for b in nest.ranges:
            lo, hi = ranges[b.index]
            if not same(facts, lo, b.lo) or not same(facts, hi, b.hi):
                return None
        if any(b.lo.terms for b in nest.box):  # its storage starts at 0
            return None
    if moved := virtual.slides(by_name.values()) and slid(lines, row, col, facts):
        alone = all(nest.over == row_names for nest in lines)
        if not alone or not all(map(is_affine_map, moved)):
            return None
    return Group("rows", lines, row, _col_order(lines, col))


def slid(nests, row, col, facts: Facts) -> list[Poly]:
    """The coordinates that mix kept and reduced indices, but for digits of one number, `g * length + c`: what slides."""
    kept, reduced = ({b.index for b in axis} for axis in (row, col))
    ranges = {b.index: b.hi - b.lo for b in (*row, *col)}
    found = (c for nest in nests for read in reads(nest.body) for c in read.coords)
    mixed = (c for c in found if indices(c) & kept and indices(c) & reduced)

    def is_number(c: Poly) -> bool:
        whole = math.prod((ranges[i] for i in indices(c)), start=poly(1))
        return digits_of(c, ranges, whole, facts) is not None

    return [c for c in mixed if not is_number(c)]


def _col_order(lines, col):
    """The reduced indices, in the order of the dims of the reads, unless an argmax numbers them."""
    if any(is_reducer(n) and n.fold.is_place for n in lines):
        return col
    names = {b.index for b in col}
    widest = max(
        (r for n in lines for r in reads(n.body)),
        key=lambda r: len(set().union(*(indices(c) for c in r.coords)) & names),
        default=None,
    )
    if widest is None:
        return col
    place = {
        name: (dim, weight_of(c, name) == poly(1))  # the lowest digit of a number last
        for dim, c in enumerate(widest.coords)
        for name in indices(c)
    }
    return tuple(sorted(col, key=lambda b: place.get(b.index, (99, False))))


def varying(group: Group) -> list[tuple[ir.Read, bool, bool]]:
    """The operands: whether each varies along the rows, and whether along the columns."""
    found = ((r, free_indices(r)) for r in operands(group.nests))
    return [(r, bool(own & group.rows), bool(own & group.cols)) for r, own in found]


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    group = replace(group, nests=with_row_values(group.nests, group.row, dims))
    touched = list(accesses(group.nests, stores, dims))
    row = _in_storage_order(group.row, touched, dims, facts)
    axes = (Axis("row", row), Axis("col", group.col))
    seen = views(touched, dims, axes, facts)
    row_axis, col_axis = _by_runs(axes, seen)
    levels = levels_of(group.nests, pairs_of(group.nests, axes[1].extent, facts), stores)
    whole, walked = (row_axis, axes[1]), (row_axis, col_axis)
    moved = slid(group.nests, group.row, group.col, facts)
    kept = all(holds_channels_last(v, dims) for v in seen if v.tensor in stores)
    like = KernelPlan(
        name, "", whole, group.nests, stores, seen, levels, any_format=kept, slides=bool(moved)
    )

    def walking(skeleton: str, axes: tuple[Axis, Axis] = walked, **fields: Any) -> KernelPlan:
        return replace(like, name=f"{name}_{skeleton}", skeleton=skeleton, axes=axes, **fields)

    resident, loop = walking("rows", whole), walking("loop", splits=True)
    by_name = {n.name: n for n in group.nests}
    state = tuple(tuple(level_state(level, by_name)) for level in levels[1:])
    written = any(n.name in stores and n.over != group.rows for n in group.nests)
    wide_tiles = written and not levels[1].stores
    places = any(is_reducer(n) and n.fold.is_place for n in group.nests)
    counts = places and not wide_tiles
    runs, once = col_axis.tail and wide_tiles and not places, len(levels) == 2
    paired = numbers_of(levels) > 0
    by_lane = bool(runs) and once and _by_lane(levels[1])
    in_lines, across, two_pass = list[KernelPlan](), list[KernelPlan](), list[KernelPlan]()
    if runs:
        in_lines.append(walking("lines", (axes[0], col_axis)))
    if by_lane:
        in_lines.append(walking("lines_loop", (axes[0], col_axis)))
    if by_lane or runs and once and not paired:
        across.append(walking("parts_merge"))
        across += [walking("per_thread_part")] if by_lane else []
    if wide_tiles and once and not row_axis.tail and not col_axis.tail:
        two_pass = [walking("two_pass", counter=unlike("tickets", names_spoken(group.nests, dims)))]
    stored, single = bool(levels[1].stores), not (wide_tiles or paired or places)
    fits = three_fit(loop, group.doubles)
    behind, ahead = single and stored, single and not stored and len(tiled_types(loop)) == 1
    loop = replace(loop, fetches=bool(across or behind or ahead))
    traits = _traits(group, touched, levels, wide_tiles, counts, col_axis.tail, paired)
    variants = (
        *(two_pass_variant(kernel, state[0]) for kernel in two_pass),
        *((across_variant(loop, state[0], group.doubles, *across),) if across else ()),
        *lines_variants(*in_lines),
        split_variant(loop, state, wide_tiles, counts, by_lane, fits if behind else ""),
        *resident_variants(resident, traits),
        loop_variant(loop, wide_tiles, counts, fits=fits if ahead else ""),
    )
    lowered = whole_rows(resident.name, group, stores, dims)
    kernels = (lowered or resident, *in_lines, loop, *two_pass, *across)
    why = "reducers over one set of indices"
    step = Step(name, "rows", why, stores, _numbers(row_axis, col_axis), kernels, variants)
    if not any(in_cols for _, _, in_cols in varying(group)):
        # Nothing to keep in registers: terms that bounds alone let through. Of 32,768 of these LLVM takes minutes.
        few = tuple(v for v in variants if v.launches[0].kernel != resident.name)
        return replace(step, variants=few, kernels=kernels[1:])
    if moved:
        along = [b.hi for b in group.col if b.index in indices(moved[-1])]
        one = box.make(name, group, stores, dims, facts, "places", "slid")
        return _beside_box(step, math.prod(along, start=poly(1)), one)
    if kept or counts:
        return step
    return with_images(step, resident, loop, state, traits, touched, axes, dims, facts)


def whole_rows(name: str, group: Group, stores: tuple[str, ...], dims: Dims) -> KernelPlan | None:
    """The kernel over ROWS rows of BLOCK columns, lowered as any of `tritongen/kernel` is; None for other rows.

    They have one index, and columns of one index that lie along memory, and are read at indices alone. They take 0.99 of the
    time of the template that prints other rows (docs/lab/listed.md).
    """
    if len(group.row) != 1 or len(group.col) != 1:
        return None
    # Each line takes every element of each row alike.
    if any(is_reducer(n) and (n.fold.op not in ACROSS or n.fold.guards) for n in group.nests):
        return None
    if any([*fetches(n.body)] or not all(map(is_plain, reads(n.body))) for n in group.nests):
        return None
    (row,), (col,) = group.row, group.col
    own = {row.index: row.hi, col.index: col.hi}
    every = (b for n in group.nests for b in n.ranges)
    if any(b.lo.terms or own.get(b.index) != b.hi for b in every):
        return None
    seen = tuple(views_of(group, stores, dims))
    if any(view.runs[-1] != (col.index,) for view in seen):
        return None
    walks = Walk(row.index, row.hi, "tile", "ROWS"), Walk(col.index, col.hi, "whole", "BLOCK")
    try:
        kernel = lower(name, group.nests, walks, stores)
    except CannotLower:
        return None
    verify(kernel, group.nests, stores)
    return KernelPlan(
        name, "fused", walked_axes(walks), group.nests, stores, views=seen, kernel=kernel
    )


def _traits(
    group, touched, levels, wide_tiles: bool, counts: bool, tail: int, paired: bool
) -> Traits:
    """The traits that decide how rows are held in registers. `tail`: that of the axis of columns."""
    read = varying(group)
    columns = _has_columns(touched, group)
    several = len({r.tensor for r, in_rows, in_cols in read if in_rows and in_cols}) > 1
    odd: tuple[int, ...] = STORED if wide_tiles else PAIRED if paired else SINGLE
    if tail or counts or columns and several:
        odd = ()
    dtypes = {r.dtype for r, _, in_cols in read if in_cols} | {n.dtype for n in group.nests}
    # Two softmaxes and sums over both, the gradient of a distillation loss, with 32,768 columns in 32 warps: 872 bytes a
    # thread were spilled, and 2,048 rows took 2.6 ms. With 8,192 columns in 16 warps nothing is spilled.
    deep = several and sum(len(level.folds) for level in levels) > 4
    widest = "8192" if deep else held_columns(dtypes, group.doubles)
    plain, alone = not (tail or wide_tiles or counts or paired), is_alone(group)
    return Traits(columns, counts, alone, several, group.doubles, widest, odd, plain, deep)


def _beside_box(step: Step, line: Poly, box: Step) -> Step:
    """The step, of terms that slide; or lanes run along what is kept, where lines of terms are shorter: `sum[r](x[p + r])`."""
    why = "lines of terms are shorter than what they slide along: lanes run along that"
    along = tuple(replace(v, when="line < slid", why=why) for v in box.variants)
    return step.beside(replace(box, facts=(("line", line), *box.facts), variants=along))


def _by_lane(level: Level) -> bool:
    """Whether each lane may keep a state of its own for all folds."""
    kinds = (KINDS[pair.kind] for pair in level.pairs)
    return level.paired == set(level.folds) and all(kind.by_lane for kind in kinds)


def _by_runs(axes: tuple[Axis, Axis], seen) -> tuple[Axis, Axis]:
    """Both axes, where a tile walks only one run of each tensor that is read along the columns.

    Take `x[b, m, d]` summed over m. A tile takes neighbouring d of one b, so that lanes lie along memory. A gain of each
    channel of a group splits the columns too, so that a block has one gain.
    """
    every, cols = ({i for a in which for i in a.names} for which in (axes, axes[1:]))
    digits = {v.tensor: {d for run in v.runs for d in run} for v in seen}
    out = []
    for axis, least in zip(axes, (every, cols), strict=False):
        wide = [v for v in seen if digits[v.tensor] & cols and digits[v.tensor] >= least - cols]
        names = [*axis.names]
        tail = len(names)
        while any(not _is_run(tuple(names[-tail:]), v) for v in wide) and tail > 1:
            tail -= 1
        out.append(replace(axis, tail=0 if tail == len(names) else tail))
    return out[0], out[1]


def _is_run(digits: tuple[str, ...], view: View) -> bool:
    """Whether a tensor has these digits in one run, or none of them."""
    own = [run for run in view.runs if set(run) & set(digits)]
    return not own or any(set(digits) <= set(run) for run in own)


def _numbers(row: Axis, col: Axis) -> tuple[tuple[str, Poly], ...]:
    """The facts of the rules. If a tile covers a run of an axis, `run` is its length."""
    numbers = [("rows", row.extent), ("cols", col.extent)]
    for axis in (row, col):
        if axis.tail:
            numbers.append((f"{axis.name}_run", axis.run.extent))
            numbers.append((f"{axis.name}_runs", axis.outer.extent))
    return tuple(numbers)


def is_alone(group) -> bool:
    """Whether one operand alone is a tile of rows and columns, and none is a number a row, a bound's too."""
    row, col = group.rows, group.cols
    computed = {n.name for n in group.nests}
    read = [(t, coords) for n in group.nests for t, coords, _ in reads_of(n.body)]
    used = [(t, set().union(*map(indices, c))) for t, c in read if t not in computed]
    beside = any(own & row and not own & col for _, own in used)
    return not beside and len({t for t, own in used if own & row}) <= 1


def _has_columns(touched, group) -> bool:
    """Whether some operand is the same for all rows (a gain, a bias), and a value over the tile is stored."""
    used = [u for _, coords in touched if (u := set().union(*map(indices, coords)))]
    alike = any(u <= group.cols for u in used) and any(u >= group.rows | group.cols for u in used)
    return bool(group.row) and alike


def fold_state(nest: ir.Nest) -> tuple[tuple[str, str], ...]:
    """(name, dtype) of the values that one part of a reduction stores."""
    if nest.fold.is_place:
        return (f"{nest.name}_best", nest.fold.body.dtype), (f"{nest.name}_at", "i64")
    return ((f"{nest.name}_part", nest.dtype),)


def level_state(level: Level, by_name: dict[str, ir.Nest]):
    """(name, dtype) of the values that one part of a row stores for all folds of a level."""
    for pair in level.pairs:
        yield from ((name, "compute") for name in state_of(pair))
    for name in level.folds:
        if name not in level.paired:
            yield from fold_state(by_name[name])


def levels_of(
    nests, pairs: tuple[Pair, ...] = (), stores: tuple[str, ...] = ()
) -> tuple[Level, ...]:
    """Folds by the number of walks that they wait for. Each level has the row values that it allows.

    Level 0 has no folds, only row values that need none.
    """
    firsts = {pair.second: pair.first for pair in pairs}
    depth: dict[str, int] = {}
    for nest in nests:
        below = max((depth[t] for t in tensors_read(nest.body) if t in depth), default=0)
        if nest.name in firsts:
            depth[nest.name] = depth[firsts[nest.name]]
        else:
            depth[nest.name] = below + (1 if is_reducer(nest) else 0)
    count = max(depth[n.name] for n in nests if is_reducer(n))
    row = next(n.over for n in nests if is_reducer(n))
    levels = []
    for k in range(count + 1):
        here = [n for n in nests if depth[n.name] == k]
        lines = (n.name for n in here if not is_reducer(n) and n.over == row)
        folds = tuple(n.name for n in here if is_reducer(n))
        own = tuple(pair for pair in pairs if pair.first in folds)
        levels.append(Level(folds, tuple(lines), own))
    # Of `stores`, values over the tile: where one waits for a fold all are stored behind, in a pass that reads again.
    wide = {n.name: depth[n.name] for n in nests if n.name in stores and n.over != row}
    if not any(wide.values()):
        levels[1] = replace(levels[1], stores=tuple(wide))
    return tuple(levels)


def _in_storage_order(row, touched, dims, facts):
    """The kept indices in the order of the dims of the widest tensor, so that they make few runs."""
    names = {b.index for b in row}
    best: tuple[str, ...] = ()
    for _, coords in touched:
        flat = [n for c in coords for n in _ordered(c, names)]
        if len(flat) > len(best) and len(set(flat)) == len(flat):
            best = tuple(flat)
    place = {n: k for k, n in enumerate(best)}
    return tuple(sorted(row, key=lambda b: place.get(b.index, len(place))))


def _ordered(coordinate: Poly, names: set[str]) -> list[str]:
    """The indices of one coordinate, the one with the largest weight first."""
    found = [n for n in sorted(indices(coordinate)) if n in names]
    return sorted(found, key=lambda n: weight_of(coordinate, n) == poly(1))
