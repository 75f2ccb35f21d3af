"""Pointwise: nests without reducers over one box, walked flat where every operand lies in one run, else as tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices, poly, size
from tritongen.ir.functions import FUNCTIONS
from tritongen.schedule.canonical import same
from tritongen.schedule.classes import nest
from tritongen.schedule.members import Group, is_reducer
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Step, Variant, View
from tritongen.schedule.views import accesses, digits_by_dim, views


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    if any(is_reducer(n) for n in members):
        return None
    found = nest.classify(members, virtual, by_name, facts)
    ends = {b.index: b.hi for b in members[0].box}
    every = (b for n in members[1:] for b in n.box)
    if found is None or not all(same(facts, ends[b.index], b.hi) for b in every):
        return None
    return replace(found, kind="pointwise")


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    whole, touched = (Axis("i", group.row),), [*accesses(group.nests, stores, dims)]
    seen = views(touched, dims, whole, facts)
    box = tuple(index(b.index) for b in group.row)
    merged = all(len(v.runs) == 1 and len(v.runs[0]) == len(box) for v in seen)
    if merged and len(seen) == len({t for t, _ in touched}) and all(c == box for _, c in touched):
        return _flat(name, group, stores, whole, seen)
    return _tile(name, group, stores, touched, dims, facts)


def _flat(name, group, stores, axes, seen) -> Step:
    if merged := _as_run(group):
        return _merged(name, merged, stores)
    kernel = KernelPlan(f"{name}_flat", "flat", axes, group.nests, stores, seen)
    variant = _flat_variant(kernel, "True", "every operand is walked as one run of elements")
    numbers = (("total", axes[0].extent),)
    return Step(name, "pointwise", "no reducer", stores, numbers, (kernel,), (variant,))


def _as_run(group: Group) -> Group | None:
    """The group over the number of an element, which means the same in any order; None where indices are values."""
    if len(group.row) == 1 and group.row[0].index != ir.BATCH:
        return None  # one dim has one order
    if _counts(group):
        return None
    run = (ir.Binder(ir.BATCH, Poly(), ir.BATCH_SIZE),)
    nests = tuple(_over(n, run, (index(ir.BATCH),)) for n in group.nests)
    return replace(group, nests=nests, row=run)


def _counts(group: Group) -> bool:
    """Whether some index is a value."""
    values = (e for n in group.nests for e in ir.walk(n.body) if isinstance(e, ir.IndexValue))
    return any(indices(e.poly) for e in values)


def _flat_variant(kernel: KernelPlan, when: str, why: str) -> Variant:
    """One access of 16 bytes a thread, or of 32 where a function keeps the thread busy. Programs have four warps.

    us on an H200, with 16 and with 32 bytes: f32 leaky_relu of 2^28 elements 503 and 508 (a copy 505); f32 gelu of 2^27 323
    and 313; bf16 gelu of 2^28 272 and 255.
    """
    calls = (e for n in kernel.nests for e in ir.walk(n.body) if isinstance(e, ir.Call))
    # A function that takes more than an instruction, which rounds once.
    size = 4096 if any(FUNCTIONS[e.fn].ulp > 0.5 for e in calls) else 2048
    config = (("BLOCK", f"{size} // itemsize"), ("num_warps", "4"))
    launches = (Launch(kernel.name, ("cdiv(total, BLOCK)",)),)
    return Variant("flat", when, why, config, launches, requires=when)


def _merged(name, group, stores) -> Step:
    """A box of batch dims alone: the launch merges them to three dims, to one where all lie in one run."""
    tensors = dict.fromkeys(t for t, coords in accesses(group.nests, stores, None) if coords)
    one = Axis("i", (ir.Binder(ir.BATCH, Poly(), size("total")),))
    run = tuple(View(t, (poly(1), poly(1), size("total")), ((), (), (ir.BATCH,))) for t in tensors)
    kernel = KernelPlan(f"{name}_flat", "flat", (one,), group.nests, stores, run)
    flat = _flat_variant(kernel, "outer * middle == 1", "every operand lies in one run")
    step = _strided(name, group, stores, tuple((t, ()) for t in tensors))
    numbers = (*step.facts, ("total", size("total")))
    kernels, variants = (kernel, *step.kernels), (flat, *step.variants)
    return replace(step, facts=numbers, kernels=kernels, variants=variants)


MERGED_DIMS = ("outer", "middle", "inner")


def _strided(name, group, stores, merged: tuple[tuple[str, tuple[int, ...]], ...]) -> Step:
    """Operands of any rank and strides, as three dims."""
    digits = tuple(ir.Binder(f"{d}_at", Poly(), size(d)) for d in MERGED_DIMS)
    axes = tuple(Axis(d, (digit,)) for d, digit in zip(MERGED_DIMS, digits, strict=True))
    # A tensor without the last dim has one element for each line along that dim. Tensors with the same dims share an axis.
    without = [at for _, at in merged if at and len(group.row) - 1 not in at]
    names = {at: f"line{k or ''}" for k, at in enumerate(dict.fromkeys(without))}
    own = ((at, name, replace(digits[-1], index=f"{name}_at")) for at, name in names.items())
    lines = {at: Axis(name, (digit,)) for at, name, digit in own}
    along = {t: (*axes[:2], lines.get(at, axes[2])) for t, at in merged}
    places = {t: tuple(index(a.digits[0].index) for a in own) for t, own in along.items()}
    place = tuple(index(d.index) for d in digits)
    nests = tuple(_over(n, digits, place, places) for n in group.nests)
    shape = tuple(size(d) for d in MERGED_DIMS)
    seen = tuple(View(t, shape, tuple(a.names for a in own)) for t, own in along.items())
    axes += tuple(lines.values())
    kernel = KernelPlan(f"{name}_strided", "strided", axes, nests, stores, seen)
    # bias_add, us with 4,096 elements in 8 warps and as here: f32 184 x 955 x 288 147 and 102, bf16 128 x 80 x 1254 37 and 28.
    elements = "(4096 if transposed else 1024)"
    square = "max(64, 4096 // max(1, middle))"
    other = "max(512 if inner >= 4096 else 128, 1024 // max(1, outer * middle))"
    config = (
        # If the middle dim is short, the square takes more of the last dim, so that no lane is idle.
        ("BLOCK", f"pow2(max(1, min(inner, {square} if transposed else {other})))"),
        ("ROWS", f"pow2(max(1, min(middle, {elements} // BLOCK)))"),
        ("OUTER", f"pow2(max(1, min(outer, {elements} // (BLOCK * ROWS))))"),
        ("num_warps", "8 if transposed else 2"),
    )
    why = "any strides: a square tile where memory runs along the middle dim of an operand"
    grid = ("cdiv(outer, OUTER) * cdiv(middle, ROWS) * cdiv(inner, BLOCK)",)
    variant = Variant("strided", "True", why, config, (Launch(kernel.name, grid),))
    numbers = tuple((d, size(d)) for d in MERGED_DIMS)
    step = Step(name, "pointwise", "no reducer", stores, numbers, (kernel,), (variant,))
    return replace(step, merged=merged)


def _over(
    nest: ir.Nest,
    box: ir.Binders,
    place: tuple[Poly, ...],
    places: Mapping[str, tuple[Poly, ...]] = MappingProxyType({}),
) -> ir.Nest:
    """A nest that reads and writes at one place, with that place as these coordinates. `places`: those of some tensors."""

    nest = nest.reading(lambda r: replace(r, coords=places.get(r.tensor, place)) if r.coords else r)
    return replace(nest, box=box, coords=place if nest.coords else ())


def _tile(name, group, stores, touched, dims, facts) -> Step:
    if (merged := _merged_dims(group, stores, touched, dims)) is not None:
        return _strided(name, group, stores, merged)
    split = _column_digits(group, touched, dims, facts)
    axes = (Axis("row", group.row[:split]), Axis("col", group.row[split:]))
    seen = views(touched, dims, axes, facts)
    kernel = KernelPlan(f"{name}_tile", "tile", axes, group.nests, stores, seen)
    if _disagree(seen, axes):
        config = (
            ("BLOCK", "min(64, max(4, pow2(cols)))"),
            ("ROWS", "4096 // BLOCK"),
            ("num_warps", "8"),
        )
        why = "operands disagree on the fastest axis: a square tile reads and writes whole lines"
    else:
        # Rows that are not aligned take smaller tiles: gathered rows of 152 in bf16 67 us, in the tiles of aligned ones 95.
        # 64 x 16 in one warp takes 57, but Triton 3.6 has been seen to get it wrong where operands lie along the rows.
        aligned, others = "min(1024, max(16, pow2(cols)))", "min(128, max(4, pow2(cols)))"
        config = (
            ("BLOCK", f"{aligned} if aligned else {others}"),
            ("ROWS", "max(1, (2048 if aligned else 1024) // BLOCK)"),
            ("num_warps", "4 if aligned else 2"),
        )
        why = "rows of the fastest axis"
    grid = ("cdiv(rows, ROWS) * cdiv(cols, BLOCK)",)
    variant = Variant("tile", "True", why, config, (Launch(kernel.name, grid),))
    numbers = (("rows", axes[0].extent), ("cols", axes[1].extent))
    return Step(name, "pointwise", "no reducer", stores, numbers, (kernel,), (variant,))


def _merged_dims(
    group: Group, stores, touched, dims
) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """The tensors, and which dims of the result each has, each once; None where indices are more than places in them."""
    box = [index(b.index) for b in group.row]
    extents = [b.hi - b.lo for b in group.row]
    merged: dict[str, tuple[int, ...]] = {}
    for tensor, coords in touched:
        at = tuple(box.index(c) for c in coords if c in box)
        own = [extents[k] for k in at]
        behind = set(range(min(at, default=0), len(box))) - set(at)
        if (
            len(set(at)) < len(coords)
            or at != tuple(sorted(at))
            or own != list(dims[tensor])
            or any(extents[k] == ir.BATCH_SIZE for k in behind)
            or behind
            and ir.BATCH_SIZE in own[1:]
            or tensor in stores
            and len(at) < len(box)
            or merged.setdefault(tensor, at) != at
        ):
            return None
    if len(box) < 2 or _counts(group):
        return None
    # Neighbours that the same tensors have are one dim. If more than three are left, as in x[b, s, h, e] * c[s, e], a tensor would be copied.
    having = [{t for t, at in merged.items() if k in at} for k in range(len(box))]
    if sum(a != b for a, b in pairwise(having)) >= len(MERGED_DIMS):
        return None
    return tuple((t, at) for t, at in merged.items() if at)


def _column_digits(group, touched, dims, facts) -> int:
    """The split of the box into rows and columns: the longest tail that every tensor uses whole or not at all."""
    box = [b.index for b in group.row]
    extents = {b.index: b.hi - b.lo for b in group.row}
    most = max(len(box) - 1, 0)
    for split in range(1, most + 1):
        if all(_walks_whole(at, dims[t], box[split:], extents, facts) for t, at in touched):
            return split
    return most


def _walks_whole(coords, dims, tail, extents, facts) -> bool:
    used = set().union(*(indices(c) for c in coords)) & set(tail)
    if not used:
        return True
    digits = digits_by_dim(coords, dims, extents, facts)
    if digits is None or used != set(tail):
        return False
    start = digits.index(tail[0])
    return list(digits[start : start + len(tail)]) == tail


def _disagree(seen: tuple[View, ...], axes) -> bool:
    """Whether the memory of some view runs along rows, and that of another along columns. A view of rows alone does not count: it is small."""
    cols = {*axes[1].names}
    last = {v.runs[-1] for v in seen if any(cols & {*run} for run in v.runs)}
    return any(run and not cols & {*run} for run in last) and any(cols & {*run} for run in last)
