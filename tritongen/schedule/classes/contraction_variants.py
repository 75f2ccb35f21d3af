"""The variants of a contraction: the tiles of each, and the arguments of its estimate.

Input: a group of the class `contraction`. Output: its `Step`. Operands that lie in memory as tiles (one dim of m or n, one
of k) may be loaded by tensor descriptors. Then the variant with the least estimate runs (`lib.estimates`). All others are
loaded through pointers, by rules of their own (`when`).
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import fetches_of
from tritongen.schedule.classes import contraction_f32
from tritongen.schedule.classes.contraction_operands import (
    SMALL,
    WHOLE,
    converted,
    described,
    is_of_halves,
    stored_as,
    stored_whole,
    widened,
)
from tritongen.schedule.classes.contraction_stages import SUBTILES, fitted, itemsizes, multiplied
from tritongen.schedule.classes.contraction_tiles import (
    axes_of,
    columns,
    one_each,
    persistent,
    sizes_of,
    tile,
    variant,
    waves,
)
from tritongen.schedule.classes.packed import LEAST as LEAST_UNPACKED
from tritongen.schedule.classes.packed import group_along, shared, sides_of
from tritongen.schedule.classes.scales import run
from tritongen.schedule.estimates import of_product
from tritongen.schedule.plan import KernelPlan, Launch, Rule, Step, Variant
from tritongen.schedule.rules import conjunction
from tritongen.schedule.views import accesses, views

# How factors come to the tensor cores, by the kernel: a row of `lib.estimates`.
HOW = {"contraction": "pointers", "persistent": "descriptors", "subtiles": "subtiles"}
# The same of variants that have one of their own, and the bytes that are written before them.
OF_VARIANT = {
    "slim": ("slim", "0"),
    "lanes": ("lanes", "0"),
    "converted": ("descriptors", "K * N"),
    "presplit": ("presplit", "4 * {times}(M * K + K * N)"),
    "presplit_lhs": ("presplit lhs", "4 * {times}M * K"),
    "presplit_rhs": ("presplit rhs", "4 * {times}K * N"),
}
# Terms a step, and rows a warp, between bounds that operands hold. With more, a condition passes through shared memory, which
# fails an assertion in Triton 3.6 (Utility.cpp:242).
MOST_BETWEEN_READ, ROWS_BETWEEN_READ = 64, 16
WIDE = "128 // itemsize"  # K elements that make a 128-byte line
Sides = tuple[str, str, str, str, str]  # rows, columns and terms of a tile, its warps and stages


def make(name, group, stores, dims, facts) -> Step:
    p = group.product
    axes = axes_of(p)
    seen = views(list(accesses(group.nests, stores, dims)), dims, axes, facts)
    out = stored_whole(group, stores, axes, seen)

    def kernel(suffix: str, skeleton: str, axes=axes, **fields) -> KernelPlan:
        fields |= {"views": seen, "products": group.products}
        return KernelPlan(f"{name}_{suffix}", skeleton, axes, group.nests, stores, **fields)

    scale = group.nests[0].fold.scale
    narrow_ones = min(itemsizes(kernel("tiles", "contraction"))) <= 4  # in parts, or by descriptor
    tiles = described(group, axes, seen, dims, facts) if narrow_ones and not scale else ()
    most = run(scale, p.k[0].index, facts) if scale else MOST_BETWEEN_READ * reads_bounds(group)
    free = not any(n.fold.guards for n in group.nests[: group.products])
    bounds = sides_within(group, most) if free else {}
    splits = narrow_ones and free
    within = tuple((axis, group_) for axis, (_, group_) in bounds.items() if group_)
    packing = {"packed": tuple(bounds), "within": within, "exchanged": p.exchanged}
    pointers = kernel("tiles", "contraction", **packing, splits=splits)
    lanes = bool(tiles) and splits and not bounds and group.nests[0].dtype != "i64"
    alike = len({multiplied(n) for n in group.nests[: group.products]}) == 1
    pointers = replace(pointers, lanes=lanes and alike and 4 in itemsizes(pointers))
    finish = kernel("combine", "combine", axes_of(p, as_stored=True))
    kernels: tuple[KernelPlan, ...] = (pointers,)
    variants = by_pointers(pointers, bool(tiles))
    if splits:
        kernels = (pointers, finish)
        variants = (pointers_in_parts(pointers, finish, bool(tiles)), *variants)
    if pointers.lanes:
        variants = (few_by_lanes(pointers, finish), *variants)
    if most:
        bounds["k"] = (bounds.get("k", (0, 0))[0], most)
    for axis, (least, group_) in bounds.items():
        side = f"BLOCK_{axis.upper()}"
        variants = tuple(
            replace(v, config=within_bounds(v.config, side, least, group_)) for v in variants
        )
    if scale and (packs := widened(pointers)):
        variants = (ahead_of_scales(variants, packs, pointers.times), *variants)
    if tiles:
        whole = kernel("persistent", "persistent", tiles=tiles, stored=out, splits=True)
        packs = converted(whole, group.maybe_f8)
        wide = widest(whole)
        several: tuple[Variant, ...] = (wide, narrow(whole))
        kernels = (pointers, finish)
        if is_of_halves(group):
            subtiles = kernel("subtiles", "subtiles", tiles=tiles, stored=out)
            several = (in_subtiles(subtiles), *several)
            kernels = (subtiles, *kernels)
        if packs:
            # int8 weights of 4096^2 by 4096 rows of bf16: 16 us to convert and 176 to multiply. If each tile converts, 297.
            why = f"{wide.why}, the factor of 8 bits converted ahead"
            several = (replace(wide, name="converted", why=why, packs=packs), *several)
        kernels = (whole, *kernels)
        variants = (*in_parts(whole, finish), *several, *variants)
    split = () if scale else contraction_f32.split_tiles(group, axes, seen, dims, facts)
    ahead, when = contraction_f32.forms(kernel, group, stores, out, split)
    kernels, variants = (*ahead, *kernels), (*when, *variants)
    if tiles:
        variants = tuple(by_estimate(v, kernels, bool(packs)) for v in variants)
    why = "a sum of products of two factors"
    if group.products > 1:
        why = f"{group.products} sums of products that share a factor"
    return fitted(Step(name, "contraction", why, stores, sizes_of(axes), kernels, variants))


def ahead_of_scales(variants: tuple[Variant, ...], packs, times: str) -> Variant:
    """Large products of f8 with scales, both factors converted ahead: each tile would convert them, through shared memory."""
    medium = next(v for v in variants if v.name == "medium")
    many = f"M >= 512 and N >= 512 and {times}cdiv(M, 128) * cdiv(N, 64) >= sms"
    when = conjunction(many, medium.requires)
    why = f"{medium.why}, factors of 8 bits converted ahead"
    own = {"num_warps": "8", "num_stages": "3"}  # with 4 warps the two sums of a tile spill
    config = tuple((name, own.get(name, rule)) for name, rule in medium.config)
    return replace(medium, name="converted", when=when, why=why, config=config, packs=packs)


def by_estimate(variant: Variant, kernels: tuple[KernelPlan, ...], converts: bool) -> Variant:
    """Chosen wherever it is right and takes least. `converts`: a factor has 8 bits where the other one has more."""
    kernel = next(k for k in kernels if k.name == variant.launches[0].kernel)
    kind, ahead = OF_VARIANT.get(variant.name, (HOW.get(kernel.skeleton, ""), "0"))
    if converts and kind == "descriptors" and not variant.packs:
        kind = "converting"
    estimate = of_product(kind, kernel.products, ahead.format(times=kernel.times))
    return replace(variant, when=variant.requires, estimate=estimate)


def reads_bounds(group) -> bool:
    """Whether operands hold what bounds the terms."""
    polys = (g.poly for nest in group.nests[: group.products] for g in nest.fold.guards)
    return any(map(fetches_of, polys))


def sides_within(group, most: int) -> dict[str, tuple[int, int]]:
    """The least and the most of a tile along each axis of a factor that is unpacked; 0 for no such bound.

    `most` are the terms that a step may have, if not 0.
    """
    each = sides_of(group)
    own = [(axis, shared(side, ds), group_along(side, ds)) for side, axis, ds in each]
    if 0 < most < LEAST_UNPACKED or all(count == 1 for _, count, _ in own):
        return {}
    found = dict[str, tuple[int, int]]()
    for axis, count, group_ in own:
        least, within = found.get(axis, (0, most if axis == "k" else 0))
        if count > 1 or group_:
            found[axis] = (LEAST_UNPACKED if count > 1 else least, within or group_)
    return found


def within_bounds(
    config: tuple[tuple[str, str], ...], name: str, least: int, most: int
) -> tuple[tuple[str, str], ...]:
    """A config whose entry is `least` at least and `most` at most, where these are not 0."""
    rules = dict(config)
    for bound, limit in ((least, max), (most, min)):
        rule = rules.get(name, "")
        if bound and rule.isdigit():
            rules[name] = str(limit(bound, int(rule)))
        elif bound and rule:
            rules[name] = f"{limit.__name__}({bound}, {rule})"
    return tuple(rules.items())


# ---- tiles ---------------------------------------------------------------------------------------
def computes(kernel: KernelPlan) -> bool:
    """Whether anything but a conversion follows from the sums."""
    tail = kernel.nests[kernel.products :]
    return any(isinstance(e, ir.Call) for nest in tail for e in ir.walk(nest.body))


def widest(kernel: KernelPlan) -> Variant:
    """bf16 at 4096^3, TFLOP/s: 750 in tiles of 128 x 256, 670 in 128 x 128, 540 in 64 x 128."""
    # An epilogue wants one stage more: gelu by erf takes 225 us at 4096^3, in 3 stages 237. Without it 191, in 3 183. Half a
    # tile to store takes 64 KiB of f32, which leaves no room for 4 stages.
    stages = "4 if stored_bytes <= 2 else 3" if computes(kernel) else "3"
    config = tile("128", str(256 // columns(kernel)), WIDE, "8", stages, programs="1")
    why, requires = "by descriptors, in the widest tiles", "tma and itemsize <= 2"
    return persistent("persistent", kernel, requires, why, config)


def narrow(kernel: KernelPlan) -> Variant:
    """bf16, us (cuBLAS): 1024^3 9.6 in 4 stages, 10.3 in 3 (9.2); 128 x 4096 x 4096 18.9 in 6, 20.1 in 5 (18.7)."""
    wide, thin = 128 // columns(kernel), 64 // columns(kernel)
    config = tile(
        "64",
        f"{wide} if 7 * {waves(kernel, 64, wide)} <= 5 * {waves(kernel, 64, thin)} else {thin}",
        "256 // itemsize",
        "4",
        f"4 if BLOCK_N == {wide} else 6",
        programs="1",
    )
    why, requires = "by descriptors, in tiles of 64 rows, deep in K", "tma and itemsize <= 2"
    return persistent("narrow", kernel, requires, why, config)


def in_subtiles(kernel: KernelPlan) -> Variant:
    """Tiles of 192 x 128, for products where tiles of powers of two leave more of the last wave idle.

    A wave takes 0.76 to 0.81 of the time of a wave of 128 x 256. bf16 on an H200, us (best other tile; cuBLAS):

    - 1536^3: 18.8 (21.8; 15.9), 3072^3: 83.8 (91.7; 79.1), 4096 x 768 x 3072: 31.6 (37.4; 30.9)
    - too many waves: 4096^3: 210 (180), 2560^3: 73 (62)
    - behind a sum with gelu only one wave pays: 1536^3: 24.4 (29.4), but 3072^3: 108 (104)

    4 warps, since 8 read shared memory twice as often.
    """
    config = tile("64", "128", WIDE, "4", "4", programs="1")
    why = f"by descriptors, in tiles of {SUBTILES} subtiles of 64 rows"
    rows, requires = f"{SUBTILES} * BLOCK_M", "tma and itemsize == 2"
    return persistent("subtiles", kernel, requires, why, config, rows=rows)


# A part of f32 has at most 4,096 terms, since they share an accumulator. 251 x 263 of 524,287 terms in 16 parts was off by
# 15 units in the last place, torch's result by half a unit.
LEAST = "cdiv(K, 4096) if itemsize == 4 else 1"


def in_parts(part: KernelPlan, finish: KernelPlan) -> tuple[Variant, ...]:
    """Few sums of many terms: several programs share a tile.

    256 x 256 of 524,288 terms take 150 us (cuBLAS 144; reading the operands 130). The smaller tiles are for f32 and for few
    columns: 528 x 11 x 637232 takes 1,220 us, in the larger ones 1,630.
    """
    share = columns(part)
    requires = "tma and itemsize <= 4"
    depth = "256 // itemsize if itemsize <= 2 else 32"
    stages = f"min(6, 768 // ({rows_and_columns(share)}))"
    # Several sums of f32 in 4 warps spill 488 bytes a thread.
    full = 16384 if share == 1 else f"({16384 // share} if itemsize == 4 else 16384)"
    warps = f"8 if BLOCK_M * BLOCK_N >= {full} else 4"
    few = "4 if itemsize <= 2 else 3"
    large = (within("M", 128), within("N", 128 // share), depth, warps, stages)
    small = (within("M", 64), within("N", 64 // share), depth, "4", few)
    return (
        in_parts_of("split", part, finish, requires, large, 1),
        in_parts_of("split_small", part, finish, requires, small, 3),
    )


def in_parts_of(
    name: str,
    part: KernelPlan,
    finish: KernelPlan,
    requires: str,
    sides: Sides,
    programs: int | Rule,
    *entries: tuple[str, str],
    more: str = "",
) -> Variant:
    """`programs` a multiprocessor share tiles."""
    described = part.skeleton == "persistent"
    config = tile(*sides, *entries, programs=str(programs) if described else "")
    why = "in parts of K: several programs share a tile, and a second kernel adds up"
    if described:
        whole = persistent(name, part, requires, f"by descriptors, {why}", config, more)
    else:
        launch = one_each(part)
        whole = variant(name, requires, f"by pointers, {why}", config, launch, more)
    chunk = "BLOCK_K * cdiv(K, BLOCK_K * PARTS)"
    return added_up(whole, part, finish, str(programs), "cdiv(K, BLOCK_K)", chunk, LEAST)


def added_up(
    whole: Variant,
    part: KernelPlan,
    finish: KernelPlan,
    programs: str,
    steps: str,
    chunk: str,
    least: str = "",
    shared: str = "",
) -> Variant:
    """The variant with PARTS in its grid: several programs share a tile if there are fewer than `programs` a
    multiprocessor.

    `steps` are the steps of the loop over a tile's terms. CHUNK is how many of them each program takes. `least` is the
    smallest PARTS. `shared` is PARTS, if tiles are counted in another way.
    """
    busy = "sms" if programs == "1" else f"{programs} * sms"
    tiles = f"{part.times}cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"
    rows, cols = ("N", "M") if part.exchanged else ("M", "N")
    parts = shared or f"parts({', '.join(filter(None, (busy, tiles, steps, least)))})"
    shape = ("PARTS", *(["batches"] if part.times else []), rows, cols)
    left = tuple(
        (f"{head.name}_parts", "i32" if head.dtype == "i64" else head.dtype, shape)
        for head in part.nests[: part.products]
    )
    merged = f"{part.times}cdiv({rows}, BLOCK_M) * cdiv({cols}, BLOCK_N)"
    # Loads several parts at once. With 1,024 parts one after another, 6 x 35 sums waited for 200 of 255 us (H100).
    ahead = ("AHEAD", "min(64, pow2(PARTS))")
    wide = ("BLOCK_N", "max(32, min(256, 2048 // pow2(PARTS)))")
    launches = (
        replace(whole.launches[0], part=True, scratch=tuple(n for n, *_ in left)),
        Launch(finish.name, (merged,), (("BLOCK_M", "2"), wide, ("PARTS", "PARTS"), ahead)),
    )
    at = next(k for k, (name, _) in enumerate(whole.config) if name == "num_warps")
    entries = ("PARTS", parts), ("CHUNK", chunk)
    config = (*whole.config[:at], *entries, *whole.config[at:])
    return replace(whole, config=config, launches=launches, scratch=left)


def within(extent: str, most: int | str) -> str:
    """A side of a tl.dot tile that is not longer than its axis."""
    return f"max(16, min({most}, pow2({extent})))"


def no_deeper(kernel: KernelPlan, depth: str) -> str:
    """Terms a step, where a sum may have fewer: a tile would multiply zeros. Of fewer than 32 that follow from 8 bits Triton 3.6
    multiplies some twice."""
    if depth.isdigit():
        return depth
    kinds = {stored_as(side) for n in kernel.nests[: kernel.products] for side in n.fold.factors}
    plain = len(kinds) == 1 and kinds.isdisjoint(SMALL | {WHOLE, ""})
    return f"min({depth}, max({'16 if itemsize == 4 else 32' if plain else 32}, pow2(K)))"


def few_by_lanes(kernel: KernelPlan, finish: KernelPlan) -> Variant:
    """Up to four rows or two columns of f32. Each factor is read once, and lanes multiply it as it comes, exactly.

    us on an H100, M x N x K (`slim`; `split`; cuBLAS):

    - 1 x 11944 x 4967: 104 (148; 304; 104), 2 x 632 x 6072: 20 (96; 23; 24)

    Beside parts by pointers, us (those):

    - 3 x 9001 x 2047: 41 (54), 4 x 20011 x 3001: 99 (128)
    - eight rows, 8 x 8192 x 4096: 82 (64); four columns, 9001 x 4 x 2047: 77 (78)
    """
    share = columns(kernel)
    most = 4096 // share  # elements of the long factor a step, where there are few terms, too
    wide = f"{128 // share} if M > 2 else {most} // min(128, max(16, pow2(K)))"
    sides = (
        f"min(4, pow2(max(1, M))) if M <= N else {32 // share}",
        f"min(2, max(1, N)) if M > N else {wide}",
        f"{most} // max(BLOCK_M, BLOCK_N)",
        "4",
        "1",
    )
    requires = "itemsize == 4 and (M <= 4 or N <= 2)"
    return in_parts_of("lanes", kernel, finish, requires, sides, 16, ("LANES", "True"))


def pointers_in_parts(part: KernelPlan, finish: KernelPlan, described: bool) -> Variant:
    """Few tiles of factors that are computed, gathered or scaled: K is cut in parts, so that more programs run.

    bf16 on an H200, us (in one part):

    - 8 heads of attention, 1 row and 8192 keys: 36 (73), 2 heads of 512 rows and 16384 keys: 151 (378)
    - weights of 4 bits in groups of 128, 16 x 4096 x 14336: 39 (147; cuBLAS in bf16 43), 256 rows: 164 (228; 54)
    - the same, unpacked on the left: eight in a word, 16 x 14336 x 8192, in 4 parts 58 (in 2 parts 67; eager bf16 69); two in a
      byte, 64 x 14336 x 4096, in 1 part 48 (in 2 parts 57; 43)
    """
    share = columns(part)
    scaled = part.nests[0].fold.scale is not None
    width, programs, stages = (128, 3, "3") if scaled else (64, 8, "4")
    few = f"{part.times}cdiv(M, 64) * cdiv(N, {64 // share})"
    most = "2 * sms" if scaled else "sms"
    depth, wide = "256 // itemsize", str(width // share)
    warps = "4"
    if described:
        depth, stages = few_at_once(part.products)
        depth = no_deeper(part, depth)
        # A small product fits in a warp: 65,536 of 16 x 16 x 16.
        warps = "1 if BLOCK_M * BLOCK_N * BLOCK_K <= 4096 else 4"
        if share > 1:
            wide = f"{min(64, 128 // share)} if itemsize == 4 and not vectorized else {wide}"
    name = "split_pointers" if described else "split"
    shared: int | Rule = programs
    if part.exchanged:
        wide, shared = "64", "(8 if BLOCK_N <= 16 else 2)" if scaled else programs
    rows = "64" if part.exchanged else within("M", 64)
    sides = (rows, within("N", wide), depth, warps, stages)
    enough = f"(K >= 2048 and 2 * {few} <= sms or K >= 4096 and {few} <= {most})"
    return in_parts_of(name, part, finish, "itemsize <= 4", sides, shared, more=enough)


def shallow(held: str, depth: str = "256 // itemsize") -> str:
    """Fewer terms a step where lanes load single elements, unless a thread has registers for the addresses (`held`).

    Each element has an address of its own. In tiles of 64 x 128 and 128 x 64 a thread has 128 of them, and spills.
    """
    return f"{depth} if vectorized or {held} else min(64, 128 // itemsize)"


def rows_and_columns(sums: int) -> str:
    """Rows and columns of a tile."""
    return f"BLOCK_M + {'BLOCK_N' if sums == 1 else f'{sums} * BLOCK_N'}"


def few_at_once(sums: int) -> tuple[str, str]:
    """Terms a step, and stages, of a tile of few rows or columns whose lanes may have to load single elements.

    f32 on an H100, no row aligned, us (64 terms in one stage; cuBLAS):

    - tiles of 16 x 64, 32 terms in three stages: 5 x 13801 x 4367: 128 (173; 124)
    - tiles of 32 x 64, so: 30 x 3001 x 2999: 44 (59; 77)

    Tiles of 64 rows or more use wgmma, and one stage is faster: 9001 x 20 x 2047 takes 88, in three stages 180. If both
    sides are longer than 32, 64 terms are faster than 32: 62 x 433 x 168247 takes 310, with 32 terms 400.
    """
    side = "min(BLOCK_M, BLOCK_N)"
    deep = f"({side} > 32 if itemsize == 4 else {rows_and_columns(sums)} <= 80)"
    return shallow(deep), "4 if itemsize <= 2 or vectorized else 3 if BLOCK_M <= 32 else 1"


def staged(stages: str, described: bool) -> str:
    """The stages, or one stage if lanes load single elements of f32: each would be an asynchronous copy of its own.

    us on an H100, several stages and one: 62 x 433 x 168248 in 128 parts: 967 and 399 (cuBLAS 256); 12536 x 2941 x 208 in
    tiles of 64 x 64: 1,616 and 500. For few rows more stages are better, since only the bytes in flight count (`slim`).
    """
    return f"1 if itemsize == 4 and not vectorized else {stages}" if described else stages


def by_pointers(kernel: KernelPlan, described: bool, sums: int = 1) -> tuple[Variant, ...]:
    """`sums`: accumulators that a tile holds; of two, those of 128 x 256 leave a thread no registers.

    - `large`: gathered rows, 512 x 4096 x 4096, which has 128 tiles of 128 x 128: 35 us, in small ones 67 (cuBLAS 29).
    - `medium` of a sum with a scale is smaller, since a factor that is converted passes through shared memory, and the two
      sums of a tile take registers. 4096 x 4096 x 14336, us (tiles of 128 x 256; cuBLAS in bf16 600): 4 bits 2,250 (3,700),
      8 bits 1,820 (3,400), e4m3 1,770 (3,310).
    - `slim`: one wave of programs, or a line of 128 bytes of each row of k. bf16, us (cuBLAS): 16 x 4096 x 4096 18.3 (18.9),
      64 x 4096 x 4096 19.4 (17.8), 1 x 16384 x 16384 135 (133). Of more rows `narrow` is faster: bf16 64 x 4096 x 4096 21.8
      and 19.5 (18.0), 26 x 9088 x 5584 53.8 and 42.5.
    """
    share = columns(kernel)
    launch = one_each(kernel)

    def tiled(name: str, requires: str, more: str, why: str, sides: Sides) -> Variant:
        if not described:
            # Stages that no term fills take the room of other programs: 8,192 products of 64 x 64 x 64 took 160 KiB each.
            m, n, depth, warps, stages = sides
            ahead = f"min({stages}, max(2, cdiv(K, BLOCK_K)))"
            sides = m, n, no_deeper(kernel, depth), warps, ahead
        return variant(name, requires, f"by pointers, {why}", tile(*sides), launch, more)

    def tiles(m: int, n: int) -> str:
        return f"{kernel.times}cdiv(M, {m}) * cdiv(N, {n // share})"

    if kernel.nests[0].fold.scale:
        many = f"N > 32 and {kernel.times}cdiv(M, 128) * cdiv(N, 64) >= sms"
        medium, tall = ("128", "64", "256 // itemsize", "4", "2"), "in tiles of 128 x 64"
        if kernel.exchanged:
            medium = "128", "128 if N > 64 else 64", "256 // itemsize", "8", "3"
            tall = "in tiles of 128 rows"
        wide = [tiled("medium", "itemsize <= 4", many, tall, medium)]
    else:
        many = f"M > 64 and N > {64 // share} and 5 * {tiles(128, 128)} >= 4 * sms"
        # 1024 x 4096 x 4096 of 4 bits, along rows, on an H200: 250 us, of 32 terms a step 260; 256 rows: 95 and 104.
        deeper = "64" if kernel.exchanged else WIDE
        stages = staged("4 if itemsize <= 2 else 3", described)
        medium = "128", str(128 // share), deeper, "8", stages
        wide = [tiled("medium", "itemsize <= 4", many, "in square tiles", medium)]
        if sums == 1:
            many = f"M > 64 and N > {128 // share} and {tiles(128, 256)} >= sms"
            large = "128", str(256 // share), WIDE, "8", "3"
            wide.insert(0, tiled("large", "itemsize <= 2", many, "in the widest tiles", large))
    deep = "(512 if M <= 32 and N <= 64 * sms else 256) // itemsize"
    depth = shallow(f"{rows_and_columns(kernel.products)} <= 48", deep)
    depth = no_deeper(kernel, depth) if described else deep
    width = f"{32 if share < 4 else 16} if N <= 64 * sms else {64 // share if share < 4 else 16}"
    slim = "max(16, pow2(M))", width, depth, "4", "4 if M <= 32 else 5"
    if kernel.exchanged:
        slim = "64", "max(16, pow2(N))", deep, "4", "4"
    few = "(16 if tma and itemsize <= 2 else 64)" if described else "64"
    rows = "N" if kernel.exchanged else "M"
    thin = "64", "16", "256 // itemsize", "4", staged("4", described)
    narrow = f"(N <= 16 or itemsize == 4 and 2 * {tiles(64, 64)} <= sms)"
    small = "64", str(64 // share), "32", "4", staged("3 if itemsize <= 4 else 2", described)
    return (
        *wide,
        tiled("slim", f"itemsize <= 4 and {rows} <= {few}", "", "few rows, deep in K", slim),
        tiled("thin", "itemsize <= 4", narrow, "16 columns", thin),
        tiled("small", "True", "", "in small tiles", small),
    )
