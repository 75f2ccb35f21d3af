"""Scatters: sums whose terms name their place, `y[v, d] = sum[n](g[n, d] where idx[n] == v)`.

The gradient of a gather is one. An atomic add brings each term to its place: N * D additions instead of V * N * D. Their
order is not fixed, so floats may differ in their last bits from run to run. If torch is asked to be deterministic, or if
there are few places, where atomic adds would queue up, the sum runs as an ordinary reduction.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Fetch,
    Poly,
    extreme,
    fetches_of,
    floordiv,
    index,
    indices,
    poly,
    size,
    substitute,
    weight_of,
)
from tritongen.ir.free import all_indices, folds_of, free_indices, needed, tensors_read
from tritongen.ir.names import fresh
from tritongen.schedule.canonical import line_over, uncast
from tritongen.schedule.classes import box, nest, rows
from tritongen.schedule.classes.segment_terms import Added, adding, is_by_segments
from tritongen.schedule.members import Group, Virtual, is_reducer
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Step, Variant

ATOMIC = ("compute", "f64", "f32", "i64", "i32")  # what tl.atomic_add adds
UNORDERED = ", in no fixed order: the last bits may differ from run to run"
ADD = "cdiv(points, ROWS) * cdiv(width, BLOCK)"
BEHIND = "cdiv(box_rows, ROWS) * cdiv(box_cols, BLOCK)"
TILE: tuple[tuple[str, str], ...] = (
    ("BLOCK", "min(1024, max(16, pow2(width)))"),
    ("ROWS", "max(1, 1024 // BLOCK)"),
    ("num_warps", "4"),
)
BOX = tuple((name, rule.replace("width", "box_cols")) for name, rule in TILE[:2])


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    """Sums of the same terms' indices into one box, and the pointwise nests behind them."""
    if any(not n.fold.guards for n in members if is_reducer(n)):
        return None  # soon told, of nearly all
    found = nest.classify(members, virtual, by_name, facts)
    if found is None:
        return None
    found = replace(found, nests=tuple(settled(n) if is_reducer(n) else n for n in found.nests))
    sums = [n for n in found.nests if is_reducer(n)]
    shapes = {(frozenset(targets(n)), frozenset(n.reduced)) for n in sums}
    segmented = any(is_by_segments(n, targets(n), virtual, facts) for n in sums)
    if len(shapes) != 1 or not (segmented or all(map(targets, sums))):
        return None
    if segmented and len(sums) > 1:
        return None  # each has programs of its own
    if not segmented and any(folds_of(n.fold.body) for n in sums):
        return None  # its kernels take no sums within terms
    if any(n.dtype not in ATOMIC or n.fold.op != "sum" for n in sums):
        return None
    if any(tensors_read(n.body) & {other.name for other in sums} for n in sums):
        return None
    return replace(found, kind="scatter")


def settled(sum_: ir.Nest) -> ir.Nest:
    """Replaces a kept index by the place that the terms name, in all conditions but the one that names it.

    The gradient of a prefix's maximum has two: `k == at[n, d]`, and `d >= k`, which is `d >= at[n, d]` then.
    """
    guards = list(sum_.fold.guards)
    for b in sum_.box:
        places = {g: _solved(g, b.index) for g in guards if b.index in indices(g.poly)}
        named = [g for g, place in places.items() if place is not None and fetches_of(place)]
        if len(named) == 1 < len(places):
            there = {b.index: places[named[0]] or index(b.index)}
            guards = [
                g if g == named[0] else replace(g, poly=substitute(g.poly, there)) for g in guards
            ]
    return replace(sum_, body=replace(sum_.fold, guards=tuple(guards)))


def targets(sum_: ir.Nest, read: bool = True) -> dict[str, Poly]:
    """The kept indices that guards alone tie to the terms: index -> the place that a term names.

    One that a term only counts, as copies are dealt out, is none unless `read` is False.
    """
    reduce = sum_.fold
    used = free_indices(reduce.body).union(*(indices(b.lo) | indices(b.hi) for b in reduce.binders))
    found = {}
    for b in sum_.box:
        ties = [g for g in reduce.guards if b.index in indices(g.poly)]
        if b.index in used or len(ties) != 1:
            continue
        place = _solved(ties[0], b.index)
        if place is None:
            continue
        if not read or fetches_of(place):
            found[b.index] = place
    own = sum_.over - found.keys() | sum_.reduced
    return found if all(indices(p) <= own for p in found.values()) else {}


def _solved(guard: ir.Guard, name: str) -> Poly | None:
    """p where the guard says `name == p`."""
    weight = weight_of(guard.poly, name)
    if guard.op != "==" or weight not in (poly(1), poly(-1)):
        return None
    return index(name) - guard.poly * weight


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    sums = tuple(n for n in group.nests if is_reducer(n))
    places = targets(sums[0])
    points = (*(b for b in sums[0].box if b.index not in places), *sums[0].fold.binders)
    inner = sums[0].box[-1] if sums[0].box[-1] in points else points[-1]
    axes = Axis("row", tuple(b for b in points if b != inner)), Axis("col", (inner,))
    box_axes = Axis("row", sums[0].box[:-1]), Axis("col", sums[0].box[-1:])
    count = box_axes[0].extent * box_axes[1].extent
    # If lanes run along a kept index, a row of terms never queues up at one place.
    spread = inner in sums[0].box
    # Kernels and variants of each way to add.
    lines = tuple(n for n in needed(group.nests, (sums[0].name,)) if n not in sums)
    if len(sums) == 1 and (ways := adding(name, sums[0], places, lines)):
        return _by_segments(name, sums, group, stores, box_axes, *ways)
    own = tuple(n.name for n in sums)
    plan = KernelPlan(f"{name}_scatter", "scatter", axes, needed(group.nests, own), own)
    when = () if spread else ("places > 256",)
    each, (*direct, whole) = _plain(
        name, sums, group, stores, box_axes, Added(plan, ADD, TILE), when
    )
    dealing, copies = _in_copies(name, sums, group, stores, axes, spread)
    few, sparse = _sparse(name, sums, group, stores, axes, box_axes)
    few_copies = floordiv(poly(1 << 17), extreme("max", (poly(1), count)))
    numbers = (
        ("points", axes[0].extent),
        ("width", axes[1].extent),
        ("places", count),
        ("terms", Axis("col", sums[0].fold.binders).extent),
        ("COPIES", extreme("max", (poly(1), extreme("min", (poly(128), few_copies))))),
        ("box_rows", box_axes[0].extent),
        ("box_cols", box_axes[1].extent),
        *((f"extent_{k}", dim) for k, dim in enumerate(sums[0].dims)),
    )
    why = "each term names the place that it is added to"
    kernels, variants = (*each, *dealing, *few), (copies, *direct, *sparse, whole)
    step = Step(name, "scatter", why, stores, numbers, kernels, variants)
    if spread and is_exact(sums):
        return step
    plain = _reduction(box if spread else rows, name, group, stores, dims, facts)
    return replace(plain.beside(step), skeleton=step.skeleton, why=why)


def _by_segments(name, sums, group, stores, box_axes, fast, slow, numbers) -> Step:
    """Terms that lie in segments: one program adds those of a segment, or one those of all segments in their order."""
    kernels, variants = _plain(name, sums, group, stores, box_axes, fast)
    if not is_exact(sums):
        why = "one program adds up all segments, in their order"
        (ordered, *_), (*_, last) = _plain(name, sums, group, stores, box_axes, slow)
        kernels = [ordered, *kernels]
        last = replace(last, name="in_order", when="True", requires="True", why=why)
        variants = [*variants, last]
    behind = ("box_rows", box_axes[0].extent), ("box_cols", box_axes[1].extent)
    extents = ((f"extent_{k}", dim) for k, dim in enumerate(sums[0].dims))
    why = "each term of a segment is added where it belongs"
    numbers = (*numbers, *behind, *extents)
    return Step(name, "scatter", why, stores, numbers, tuple(kernels), tuple(variants))


def is_exact(sums: ir.Nests) -> bool:
    """Whether the order of additions does not matter."""
    return all(n.dtype in ("i64", "i32") for n in sums)


def _variant(name, sums, why, when, launches, scratch, zeroed, requires=(), config=TILE) -> Variant:
    """One that adds atomically, and so in no fixed order; `when`: the conditions beside what it requires."""
    ordered = () if is_exact(sums) else ("not deterministic",)
    return Variant(
        name,
        " and ".join((*requires, *when, *ordered)) or "True",
        why if is_exact(sums) else f"{why}{UNORDERED}",
        config,
        tuple(launches),
        tuple(scratch),
        zeroed=tuple(zeroed),
        requires=" and ".join((*requires, *ordered)) or "True",
    )


def _plain(name, sums, group: Group, stores, box_axes, add: Added, when: tuple[str, ...] = ()):
    """Terms are added into the output if it holds the dtype of the sums, else into zeroed scratch.

    Gradient of an embedding of 50,257 x 1,024 and 32,768 rows: 0.26 ms in f32 (torch 0.58). Many additions at few places
    queue up: 2^24 values of f32 into 256 places take 4.3 ms (as a reduction 3.6), into 64 4.9 (1.2), into 4 10.1 (0.11).
    """
    added, config = tuple(n.name for n in sums), add.config
    kernels, launches = [add.kernel], [Launch(add.kernel.name, (add.grid,))]
    apart = () if config == TILE else BOX  # what the second kernel needs beside that
    if behind := tuple(n for n in stores if n not in added):
        rest = tuple(n for n in group.nests if n not in sums)
        kernels.append(KernelPlan(f"{name}_epilogue", "tile", box_axes, rest, behind))
        warps = (("num_warps", "4"),) if apart else ()
        launches.append(Launch(kernels[-1].name, (BEHIND,), warps))
    why = "terms are added atomically where they belong"
    variants = []
    if _same_thing(sums, group, stores):
        into, fits = ((sums[0].name, stores[-1]),), ("stored_bytes == added_bytes",)
        straight = f"straight into {stores[-1]}: {why}"
        variants.append(
            _variant("direct", sums, straight, when, launches[:1], (), into, fits, config)
        )
    if behind:
        config = (*apart, *config)
    shapes = _shapes(sums)
    scratch = ((n.name, n.dtype, shapes[n.name]) for n in sums if n.name not in stores)
    zeroed = ((name, name) for name in added)
    whole = _variant("scatter", sums, why, when, launches, scratch, zeroed, (), config)
    return kernels, [*variants, whole]


def _shapes(sums) -> dict[str, tuple[str, ...]]:
    """The dims of each sum as numbers of the step, which has those of the first one."""
    named = {c: f"extent_{k}" for k, c in enumerate(sums[0].coords)}
    return {n.name: tuple(named[c] for c in n.coords) for n in sums}


def _in_copies(name, sums, group: Group, stores, axes, spread: bool):
    """Few places: additions are dealt out to copies of them, and a second kernel sums the copies.

    2^24 values into 64, 1,024 and 4,096 places, ms (with one copy): i64 0.22, 0.19, 0.19 (3.7, 0.90, 0.49); f32 0.20, 0.21,
    0.19 (4.9, 1.4, 0.50). torch.bincount takes 0.27, 0.22, 0.24.
    """
    copy = ir.Binder(fresh("copy", all_indices(group.nests)), poly(0), size("COPIES"))
    number = index(sums[0].fold.binders[-1].index)
    turn = number - floordiv(number, copy.hi) * copy.hi
    tie = ir.Guard(index(copy.index) - turn, "==")
    dealt, merged = {}, {}
    for n in sums:
        at = (index(copy.index), *n.coords)
        body = replace(n.fold, guards=(*n.fold.guards, tie))
        apart = f"{n.name}_copies"
        box, dims = (copy, *n.box), (copy.hi, *n.dims)
        dealt[n.name] = ir.Nest(apart, box, at, dims, body, n.dtype, n.name)
        whole = ir.Reduce("sum", (copy,), (), ir.Read(apart, at, None, n.dtype), n.dtype)
        merged[n.name] = replace(n, body=whole)
    lines = tuple(dealt.get(n.name, n) for n in needed(group.nests, dealt))
    rest = tuple(merged.get(n.name, n) for n in group.nests)
    own = tuple(n.name for n in dealt.values())
    add = KernelPlan(f"{name}_deal", "scatter", axes, lines, own)
    walked = Axis("row", sums[0].box), Axis("col", (copy,))
    merge = KernelPlan(f"{name}_merge", "rows", walked, rest, stores)
    when = ["places <= 32768", "points * width > 16 * places"]
    when += [] if spread else ["places > 8"]
    why = "many terms at few places: they are added atomically to copies of them"
    together = (("BLOCK", "pow2(COPIES)"), ("ROWS", "1024 // pow2(COPIES)"), ("num_warps", "4"))
    launches = (
        Launch(add.name, (ADD,)),
        Launch(merge.name, ("cdiv(places, 1024 // pow2(COPIES))",), together),
    )
    shapes = _shapes(sums)
    scratch = ((n.name, n.dtype, ("COPIES", *shapes[sum_])) for sum_, n in dealt.items())
    zeroed = ((name, name) for name in own)
    return (add, merge), _variant("copies", sums, why, when, launches, scratch, zeroed)


def _sparse(name, sums, group: Group, stores, axes, box_axes):
    """A scatter with fewer terms than places; nothing where this does not suffice.

        last[v]    = max[n](n + 1 where index[n] == v)              # the last term that names a place stands for it
        kept[t, d] = sum[n](x[n, d] where last[index[n]] - 1 == t)  # sums of these terms
        y[v, d]    = kept[last[v] - 1, d] else 0

    Places that no term names cost neither zeros nor a second read. us on an H100 (`scatter`; torch):

    - gradient of an embedding in bf16, 8,192 terms of 50,257 x 1,024: 101 (207; 263), of 128,256 x 4,096: 603 (1,812; 899)
    - index_add in f32 of 4,000 terms of 9,000 x 333, which fits in L2: 33 (28; 20)
    """
    places, binders = targets(sums[0]), sums[0].fold.binders
    if any(targets(n) != places or n.name in stores for n in sums):
        return (), ()
    if any(b.lo.terms for b in (*binders, *sums[0].box)):
        return (), ()
    if any(indices(p) - sums[0].reduced for p in places.values()):
        return (), ()
    number, walked = poly(0), (Axis("row", ()), Axis("col", binders))
    for b in binders:
        number = number * b.hi + index(b.index)
    named = tuple(b for b in sums[0].box if b.index in places)
    ties = tuple(g for g in sums[0].fold.guards if indices(g.poly) & places.keys())
    body = ir.Reduce("max", binders, ties, ir.IndexValue(number + 1, "i64"), "i64")
    last = line_over(f"{sums[0].name}_last", named, body, sums[0].line)
    row = ir.Binder(fresh("t", all_indices(group.nests)), poly(0), walked[1].extent)

    def kept_at(coords: tuple[Poly, ...]) -> Poly:
        return poly(Fetch(last.name, coords, 0)) - 1

    tie = ir.Guard(index(row.index) - kept_at(tuple(places[b.index] for b in named)), "==")
    summed, at = {}, {}
    for n in sums:
        others = tuple(g for g in n.fold.guards if not indices(g.poly) & places.keys())
        still = tuple(b for b in n.box if b.index not in places)
        terms = replace(n.fold, guards=(*others, tie))
        summed[n.name] = line_over(f"{n.name}_kept", (row, *still), terms, n.name)
        at[n.name] = [n.coords.index(index(b.index)) for b in (*named, *still)]

    def change(e: ir.Read) -> ir.Read:
        if e.tensor not in at:
            return e
        coords = [e.coords[k] for k in at[e.tensor]]
        place, still = tuple(coords[: len(named)]), coords[len(named) :]
        return ir.Read(f"{e.tensor}_kept", (kept_at(place), *still), 0, e.dtype)

    rest = tuple(n.reading(change) for n in group.nests if n not in sums)
    lines = tuple(summed.get(n.name, n) for n in needed(group.nests, summed))
    kept_sums = tuple(n.name for n in summed.values())
    kernels = (
        KernelPlan(f"{name}_last", "scatter", walked, (last,), (last.name,)),
        KernelPlan(f"{name}_sparse", "scatter", axes, lines, kept_sums),
        KernelPlan(f"{name}_gather", "tile", box_axes, rest, stores),
    )
    launches = (
        Launch(kernels[0].name, ("cdiv(terms, 1024)",), (("BLOCK", "1024"), ("ROWS", "1"))),
        Launch(kernels[1].name, (ADD,)),
        Launch(kernels[2].name, (BEHIND,)),
    )
    extents = {b: f"extent_{sums[0].coords.index(index(b.index))}" for b in sums[0].box}
    beside = tuple(extents[b] for b in sums[0].box if b not in named)
    kept = ((n.dtype, ("max(0, terms)", *beside)) for n in sums)
    scratch = [(last.name, "i64", tuple(extents[b] for b in named))]
    scratch += [(name, *own) for name, own in zip(kept_sums, kept, strict=True)]
    why = "few terms: sums of the places that they name, and no others"
    when = ("points * width <= places and places >= 1 << 23",)
    zeroed = ((tensor, tensor) for tensor, *_ in scratch)
    return kernels, (_variant("sparse", sums, why, when, launches, scratch, zeroed),)


def _same_thing(sums, group, stores) -> bool:
    """Whether all that is stored is the one sum, but for its dtype, under another name alone."""
    rest = [n for n in group.nests if n not in sums]
    if [n.name for n in rest] != [*stores] or len(rest) > 1 or len(sums) > 1:
        return False
    if rest[0].coords != sums[0].coords:
        return False
    read = uncast(rest[0].body)
    return isinstance(read, ir.Read) and read.coords == sums[0].coords


def _reduction(kind, name, group, stores, dims, facts) -> Step:
    """The same sums term by term. All kernels of a step see its tensors alike, here dim by dim.

    Values over fewer indices than the box, such as `exp(a[v])` of a row, are no members: the members compute them.
    """
    members = tuple(n for n in group.nests if n.over == group.rows)
    virtual = Virtual(n for n in group.nests if n not in members)
    for other in (kind, box, nest):
        found = other.classify(members, virtual, {}, facts)
        if found is not None:
            told = replace(found, doubles=group.doubles, bools=group.bools)
            step = other.make(name, told, stores, dims, facts)
            return replace(step, kernels=tuple(replace(k, views=()) for k in step.kernels))
    raise AssertionError("the general nest takes any box")
