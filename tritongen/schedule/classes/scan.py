"""Scans: prefix sums, running maxima, and the pointwise nests over the same box, before and behind them.

A scan is a reducer over `k <= d` (or `<`, `>=`, `>`), where d is kept and the term does not depend on it. It is written
over its own scanned index: `sum[k < d](x[n, k])` becomes the terms `x[n, d - 1]` at 1 <= d < D, and y[n, d] combines the
terms up to d. So all scans of a group run along one axis together, whatever their shifts are. Figures are for one H200.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import affine, index, indices, is_size, substitute
from tritongen.ir.bounds import Facts, prove
from tritongen.ir.free import free_indices
from tritongen.ir.reducers import REDUCERS
from tritongen.schedule.canonical import rename_nest, same, substitute_indices
from tritongen.schedule.classes.rows import fold_state, is_alone, levels_of
from tritongen.schedule.members import Group, Virtual, gather_lines, is_reducer, paste
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Step, Variant
from tritongen.schedule.views import accesses, views


# ---- what is one ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Scan:
    """A scan. `nest` is written over the scanned index `along`; its reducer called it `over`."""

    nest: ir.Nest
    along: ir.Binder
    over: str
    reverse: bool


def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    """Scans along one axis in one direction that do not depend on each other."""
    reducers = [n for n in members if is_reducer(n)]
    found = {n.name: as_scan(n, virtual, facts) for n in reducers}
    scans = {name: s for name, s in found.items() if s is not None}
    last = next(reversed(scans.values()), None)  # whose names the spec's outputs share
    if last is None or len(scans) < len(found):
        return None
    if any(s.reverse != last.reverse for s in scans.values()):
        return None
    alike = {name for s in scans.values() for name in (s.along.index, s.over)}
    box = {b.index: b for b in last.nest.box}

    def in_step(nest: ir.Nest) -> ir.Nest:
        """A nest with the name that the last scan uses for the scanned index."""
        old = (nest.over & alike) - {last.along.index}
        if len(old) != 1 or last.along.index in nest.over:
            return nest
        return rename_nest(nest, {old.pop(): last.along.index})

    members = [in_step(scans[n.name].nest if n.name in scans else n) for n in members]
    if any(n.fold.binders[0].index != last.along.index for n in members if n.name in scans):
        return None  # along another axis
    lines = gather_lines(members, Virtual(map(in_step, virtual.values())), set(box))
    names = {n.name for n in members}
    for nest in lines:
        if not nest.over <= box.keys() or nest.name in names and nest.over != box.keys():
            return None
        for b in nest.box:
            if b.lo.terms or not same(facts, b.hi, box[b.index].hi):
                return None
    if len(levels_of(lines)) > 2:
        return None  # a scan of a scan is a step of its own
    row = tuple(b for b in last.nest.box if b != last.along)
    return Group("scan", lines, row, (last.along,), reverse=last.reverse)


def as_scan(nest: ir.Nest, virtual, facts: Facts) -> Scan | None:
    """reduce[k](term(k)) under `k <= d + shift`, or `k >= d - shift`."""
    reduce = nest.fold
    if len(reduce.binders) != 1 or any(b.lo.terms for b in nest.box):
        return None
    (k,) = reduce.binders
    found = [(g, e) for g in reduce.guards if (e := _end(g, k, nest.box)) is not None]
    if len(found) != 1:
        return None
    ((guard, (along, shift, reverse)),) = found
    row = REDUCERS[reduce.op]
    texts = row.behind if reverse else row.scan
    # Its row may have no text of a scan, or none of one from the end.
    if not row.is_place and ("bool" if reduce.body.dtype == "bool" else "float") not in texts:
        return None
    if reduce.is_place and shift.terms:
        return None  # its value is the reduced index's own, not that of the place it is walked at
    others = tuple(g for g in reduce.guards if g is not guard)
    used = free_indices(paste(reduce.body, virtual, frozenset()))
    if along.index in used.union(*(indices(g.poly) for g in others)):
        return None
    # Every term needs a place on the walked axis at or before the first result that it counts in.
    lo, hi = k.lo + shift, k.hi + shift
    if not (prove(hi, "<=", along.hi, facts) if reverse else prove(lo, ">=", along.lo, facts)):
        return None
    at = index(along.index) - shift
    term = replace(
        reduce,
        binders=(ir.Binder(along.index, lo, hi),),
        guards=tuple(replace(g, poly=substitute(g.poly, {k.index: at})) for g in others),
        body=substitute_indices(reduce.body, {k.index: at}),
    )
    return Scan(replace(nest, body=term), along, k.index, reverse)


def _end(guard: ir.Guard, k: ir.Binder, box):
    """(kept index, shift, reverse) where the guard ends k at a kept index: `d - k - shift >= 0`."""
    parts = affine(guard.poly)
    if guard.op != ">=" or parts is None or not is_size(parts[1]):
        return None
    weights = {getattr(a, "name", ""): w.constant for a, w in parts[0].items()}
    along = next((b for b in box if b.index in weights), None)
    if along is None or len(weights) != 2 or set(weights) != {along.index, k.index}:
        return None
    if weights == {along.index: 1, k.index: -1}:
        return along, -parts[1], False
    if weights == {along.index: -1, k.index: 1}:
        return along, parts[1], True
    return None


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    row, outer = _split(group)
    axes = (Axis("row", row), Axis("col", group.col), *([Axis("outer", outer)] if outer else []))
    seen = views(list(accesses(group.nests, stores, dims)), dims, axes, facts)
    walk = KernelPlan(
        f"{name}_scan", "scan", axes, group.nests, stores, seen, reverse=group.reverse
    )
    part = replace(walk, name=f"{name}_part", skeleton="scan_part")
    finish = replace(walk, name=f"{name}_finish", skeleton="scan_finish")
    numbers = [("rows", axes[0].extent), ("cols", axes[1].extent)]
    if outer:
        numbers.append(("outers", axes[2].extent))
    times = "outers * " if outer else ""
    variants = (
        _split_variant(part, finish, group, times),
        *_walk_variants(walk, (f"{times}cdiv(rows, ROWS)",), times, is_alone(group)),
    )
    if group.reverse:
        variants = tuple(replace(v, config=(*v.config, _run(group, v))) for v in variants)
    why = "each value combines the terms before it along one index"
    kernels = (walk, part, finish)
    return Step(name, "scan", why, stores, tuple(numbers), kernels, variants)


def _split(group: Group):
    """(row, outer): kept indices that are stored behind the scanned one are the rows of a tile."""
    (along,) = group.col
    last = next(n for n in reversed(group.nests) if {along, *group.row} == set(n.box))
    order = [name for c in last.coords for name in sorted(indices(c))]
    at = {b.index: order.index(b.index) for b in (along, *group.row)}
    inner = [b for b in group.row if at[b.index] > at[along.index]]
    outer = [b for b in group.row if b not in inner]
    row, outer = (inner, outer) if inner else (outer, [])
    return tuple(tuple(sorted(part, key=lambda b: at[b.index])) for part in (row, outer))


def _run(group: Group, variant: Variant) -> tuple[str, str]:
    """How many elements keep their order if a block is walked from its end: the elements of one load.

    If memory runs across the walk, the elements of one store, which may run along it. None if a scan keeps a place in its
    state.
    """
    if any(n.fold.is_place for n in scans_of(group)):
        return "RUN", "1"
    wide = "min(8, 16 // itemsize)"
    names = {"strided": "8", "split": f"8 if strided else {wide}"}
    return "RUN", names.get(variant.name, wide)


def scans_of(group: Group) -> ir.Nests:
    return tuple(n for n in group.nests if is_reducer(n))


def _split_variant(part, finish, group, times: str) -> Variant:
    """Few rows: several programs share a row, and read it twice.

    That reaches at most 67% of copy (1 x 2^26 and 8 x 4M: 60 to 61%).

    One program a row keeps only one block in flight: 135 x 549,261 in bf16 takes 585 us, so 299. Short rows are faster by
    `few`: one to 64 rows of 5,217 columns 7.5 to 8.1 us (so 9.7 to 14.6), of 12,001 columns 11 to 12 (10 to 15).
    """
    grid = ("PARTS", f"{times}cdiv(rows, ROWS)")
    shape = ("outers", "rows", "PARTS") if times else ("rows", "PARTS")
    state = tuple((name, dtype, shape) for n in scans_of(group) for name, dtype in fold_state(n))
    most = "min(512 if strided else 1024, cdiv(cols, BLOCK))"
    config = (
        ("ROWS", "max(1, min(32, pow2(rows))) if strided else 1"),
        ("BLOCK", "32 if strided else 4096"),
        ("PARTS", f"spread(8 * sms, {times}cdiv(rows, ROWS), {most})"),
        ("CHUNK", "BLOCK * cdiv(cols, BLOCK * PARTS)"),
        ("STAGES", "1"),
        ("num_warps", "1 if strided else 8"),
    )
    return Variant(
        "split",
        f"{times}cdiv(rows, 64 if strided else 1) < (1 if strided else 2) * sms"
        " and cols > (256 if strided else 16384)",
        "too few rows to fill the GPU: several programs share a row",
        config,
        (Launch(part.name, grid), Launch(finish.name, grid)),
        state,
    )


def _walk_variants(walk, grid, times: str, alone: bool) -> tuple[Variant, ...]:
    """The variants that read each row once.

    **Along the rows**, in per cent of copy on an H200, sums in f32 (bf16):

    - 32,768 x 32,768: blocks of 1,024 in 2 warps 94 (94), in 4 warps 95 (88)
    - the same from the end, 8,192 rows: 90 (89), with loads in flight for 3 blocks 93 (91)
    - a program has one block in flight, so few rows take wide ones: 512 rows 90 with 8,192 elements, 69 with 1,024. Wider
      blocks spill in f64.

    **Across the rows**, in us on an H100 (torch.compile):

    - 64 x 32 in 2 warps and 32 x 64 in 1: cumprod of 52317 x 765 in f16: 248 and 116 (142)
    - from the end, 64 x 16 and 16 x 64: bf16 of 14377 x 1008: 286 and 46 (67), f32 of 20000 x 1000: 391 and 70 (147)

    **Short rows that are not aligned**, in us on an H200: 1,024 elements in 2 warps and 512 in 4: f32 420887 x 3: 23 and 9.
    Rows that are not aligned take one warp, unless there are other operands: f16 of 60000 x 601: 130 and 72.
    """
    launch = (Launch(walk.name, grid),)
    # Beside other operands as many as before: from the end, two scans in one warp have 255 registers and spill.
    across = "1 if itemsize <= 4 else 2"
    if not alone:
        across = "2" if walk.reverse else "1 if itemsize <= 2 else 2"
    most_rows = "16" if walk.reverse else "32 if itemsize <= 2 else 16"
    strided = (
        ("ROWS", f"max(1, min({most_rows}, pow2(rows)))"),
        ("BLOCK", "max(16, min(64, pow2(cols)))"),
        ("STAGES", "1" if walk.reverse else "3 if itemsize <= 2 else 1"),
        ("num_warps", across),
    )
    few = (
        ("ROWS", "1"),
        ("BLOCK", "4096" if walk.reverse else "8192"),
        ("STAGES", "1"),
        ("num_warps", "8"),
    )
    most = "256 if 512 < cols <= 1024 else 512" if alone else "128 if cols <= 1024 else 512"
    warps = "2 if aligned or cols > 1024 else 1" if alone else "2"
    least = 16 if walk.reverse else 4
    blocks = (
        ("BLOCK", f"min(1024 if aligned else {most}, max({least}, pow2(cols)))"),
        ("ROWS", "max(1, (1024 if aligned else 512) // BLOCK)"),
        ("STAGES", "3 if cols > BLOCK else 1" if walk.reverse else "1"),
        ("num_warps", f"4 if BLOCK <= 32 else {warps}"),
    )
    across_why = "memory runs across the rows: adjacent rows make whole cache lines"
    few_when = f"{times}rows < (8 if aligned else 2) * sms and cols > 4096"
    few_why = "few rows: wide blocks keep enough bytes in flight"
    why = "a row is scanned in blocks, or at once if it fits"
    return (
        Variant("strided", "strided", across_why, strided, launch),
        Variant("few", few_when, few_why, few, launch),
        Variant("blocks", "True", why, blocks, launch),
    )
