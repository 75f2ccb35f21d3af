"""A convolution whose window is one tap that stays in place: a product of matrices, found at the call.

    y[n, f, p, q] = sum[c, r, s](x[n, c, p * stride + r - pad, ...] * w[f, c, r, s])

is y[n, f, p, q] = sum[c](x[n, c, p, q] * w[f, c]) if r and s have one value, stride is 1 and pad is 0. Its rows are the
positions of all images (`rows`, if channels are stored last in everything that has positions) or of one image at a time
(`planes`). Nothing is gathered or packed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, affine, index, indices, poly, size, substitute, symbols
from tritongen.ir.bounds import Facts, require, simplify
from tritongen.ir.free import reads
from tritongen.schedule.canonical import same, with_ranges
from tritongen.schedule.classes import contraction_operands, contraction_variants
from tritongen.schedule.classes.contraction_tiles import axes_of, persistent, tile
from tritongen.schedule.estimates import of_convolution
from tritongen.schedule.members import Group, Product
from tritongen.schedule.plan import Axis, Estimate, KernelPlan, Run, Sizes, Step, Variant
from tritongen.schedule.views import accesses, holds_channels_last, views

WHOSE = {"rows": "all images", "planes": "one image"}


def beside(name: str, group: Group, stores, dims, facts: Facts, row: str) -> Step | None:
    """The additions to a convolution's step; `row`: how many elements of an image are neighbours in a row."""
    p = group.factors
    if not p.k or p.lets or group.nests[0].fold.guards:
        return None
    settled = settle(p, facts)
    if settled is None:
        return None
    asked, sizes, facts = settled
    group = in_place(group, sizes)
    dims = {t: tuple(substitute(d, sizes) for d in own) for t, own in dims.items()}
    slides = {i for i, _, _ in _hops(p)}
    p = group.factors
    still = tuple(b for b in p.m if b.index not in slides)
    places = tuple(b for b in p.m if b.index in slides)
    orders = _orders(group, stores, dims, p)
    by_rows = _kernel(f"{name}_rows", group, (), p.m, orders, stores, dims, facts)
    by_planes = _kernel(f"{name}_planes", group, still, places, {}, stores, dims, facts)
    if by_rows is None or by_planes is None:
        return None
    numbers = ("images", Axis("still", still).extent), ("places", Axis("places", places).extent)
    tests = (
        Sizes("one_tap", asked, tuple(v.tensor for v in by_rows.tiles)),
        Run("as_rows", tuple(orders.items())),
    )
    # No descriptor takes operands whose rows, of so many elements, are not aligned.
    copied = "operand_bytes if {} * itemsize % 16 else 0"
    as_rows = of_convolution("descriptors", "channels", copied.format("channels"))
    as_planes = of_convolution("planes", "channels", copied.format(row), places="places")
    one = "one_tap and as_rows and M < 2**31 - 2**16"
    each = "one_tap and places < 2**31 - 2**16"
    of_image = {"M": "places", "K": "channels", "batches": "images"}
    variants = (
        *_variants("rows", by_rows, one, {"K": "channels"}, as_rows),
        *_variants("planes", by_planes, each, of_image, as_planes),
    )
    kernels, why = (by_rows, by_planes), "a window of one tap that stays in place"
    return Step(name, "contraction", why, stores, numbers, kernels, variants, tests=tests)


# ---- what the call must be like ------------------------------------------------------------------
def settle(
    p: Product, facts: Facts
) -> tuple[tuple[tuple[Poly, int], ...], dict[str, int], Facts] | None:
    """What makes the numbers of taps and groups and every hop 1, and every shift 0: as tests, as sizes, and as facts.

    None if one of them depends on more than one size.
    """
    taps = Axis("tap", p.taps).extent
    wanted = [(b.hi - b.lo, 1) for b in (*p.taps, *p.batch)]
    wanted += [pair for _, weight, rest in _hops(p) for pair in ((weight, 1), (rest, 0))]
    tests: dict[Poly, int] = {}
    sizes: dict[str, int] = {}
    for value, at in wanted:
        value = simplify(value, facts)
        if value.constant is not None:
            if value.constant != at:
                return None
            continue
        deciding = [n for n in sorted(symbols(value)) if _settles(n, value, at, facts)]
        if len(deciding) != 1:
            return None
        (name,) = deciding
        sizes[name] = at
        tests[taps if name in symbols(taps) else size(name)] = at
        facts = require(facts, size(name), "==", poly(at))
    return tuple(tests.items()), sizes, facts


def _settles(name: str, value: Poly, at: int, facts: Facts) -> bool:
    """Whether value is `at` as soon as the size of that name is."""
    try:
        return same(require(facts, size(name), "==", poly(at)), value, at)
    except ZeroDivisionError:  # a size that another is divided by is never 0
        return False


def _hops(p: Product) -> Iterator[tuple[str, Poly, Poly]]:
    """(index, distance between the window's places, position of the first one) for every dim that it slides over."""
    taps, kept = {b.index for b in p.taps}, {b.index for b in p.m}
    for read in reads(p.left):
        for c in read.coords:
            parts = affine(c)
            if parts is not None and indices(c) & taps and indices(c) & kept:
                found = [(a.name, w) for a, w in parts[0].items() if isinstance(a, Idx)]
                yield from ((name, w, parts[1]) for name, w in found if name in kept)


# ---- the product ---------------------------------------------------------------------------------
def in_place(group: Group, sizes: dict[str, int]) -> Group:
    """The group without its taps and groups, each of which has one value."""
    p = group.factors
    gone = {b.index: b.lo for b in (*p.taps, *p.batch)}

    def place(c: Poly) -> Poly:
        return substitute(substitute(c, gone), sizes)

    def kept(binders: ir.Binders) -> ir.Binders:
        left = (b for b in binders if b.index not in gone)
        return tuple(replace(b, lo=place(b.lo), hi=place(b.hi)) for b in left)

    placed = (with_ranges(n, place, kept) for n in group.nests)
    nests = tuple(n.reading(lambda r: replace(r, fill=None)) for n in placed)
    return group.over(nests, batch=(), m=kept(p.m), n=kept(p.n), k=kept(p.k), taps=())


def _orders(group: Group, stores, dims, p: Product) -> dict[str, tuple[int, ...]]:
    """The dims of every tensor that has all positions, those first: channels are last."""
    rows = [b.index for b in p.m]
    found = {}
    for tensor, coords in accesses(group.nests, stores, dims):
        at = [next((k for k, c in enumerate(coords) if c == index(i)), -1) for i in rows]
        if -1 not in at:
            found[tensor] = (*at, *(k for k in range(len(coords)) if k not in at))
    return found


def _kernel(
    name: str,
    group: Group,
    batch: ir.Binders,
    m: ir.Binders,
    orders: dict[str, tuple[int, ...]],
    stores,
    dims,
    facts: Facts,
) -> KernelPlan | None:
    """The kernel with these indices as the rows of a tile; `orders`: of the dims in which tensors are seen."""
    group = replace(group, product=replace(group.factors, batch=batch, m=m))
    axes = axes_of(group.factors)
    order = {t: orders.get(t, tuple(range(len(d)))) for t, d in dims.items()}
    seen = [(t, tuple(c[k] for k in order[t])) for t, c in accesses(group.nests, stores, dims)]
    reordered = {t: tuple(own[k] for k in order[t]) for t, own in dims.items()}
    found = views(seen, reordered, axes, facts)
    if {v.tensor for v in found} != {t for t, _ in seen}:
        return None
    found = tuple(replace(v, order=orders.get(v.tensor, ())) for v in found)
    tiles = contraction_operands.described(group, axes, found, dims, facts)
    out = contraction_operands.stored_whole(group, stores, axes, found)
    # Seen in another order it is chosen for what is stored so.
    kept = all(v.order or holds_channels_last(v, dims, facts) for v in found if v.tensor in stores)
    plan = KernelPlan(name, "persistent", axes, group.nests, stores, found, any_format=kept)
    return replace(plan, tiles=tiles, stored=out) if tiles else None


def _variants(
    kind: str, kernel: KernelPlan, when: str, names: dict[str, str], estimate: Estimate
) -> tuple[Variant, ...]:
    """Some variants of a contraction, each under one condition more, with this step's names for its sizes."""

    def say(rule: str) -> str:
        return re.sub(r"\b([A-Z]|batches)\b", lambda word: names.get(word[0], word[0]), rule)

    def named(v: Variant) -> Variant:
        legal = f"{when} and {say(v.requires).removeprefix('tma and ')}"
        return replace(
            v,
            name=f"{kind}_{v.name}",
            when=legal,
            requires=legal,
            why=f"one tap, so a product whose rows are the positions of {WHOSE[kind]}; {v.why}",
            config=tuple((n, say(rule)) for n, rule in v.config),
            launches=tuple(replace(run, grid=tuple(map(say, run.grid))) for run in v.launches),
            estimate=estimate,
        )

    return tuple(map(named, forms(kernel)))


def forms(kernel: KernelPlan) -> tuple[Variant, ...]:
    """The widest tiles, square ones, and small ones for products that are bound by memory.

    These have fewer operations a byte than the chip does while it moves one. Three programs a multiprocessor take their
    tiles. bf16 with 200704 rows on an H200, us (cuDNN): N 64, K 256: 40.0 (43.5); N 256, K 64: 39.5 (41.9). One program
    of 128 x 256 a multiprocessor takes 42 to 44, programs of one tile each 52 to 57.
    """
    depth, least = contraction_variants.WIDE, "tma and itemsize <= 4"
    stages = "2 if BLOCK_N == 128 and itemsize <= 2 else 3"
    small = tile("64", "max(16, min(128, pow2(N)))", depth, "4", stages, programs="3")
    square = tile("128", "128", depth, "8", "5 if itemsize <= 2 else 3", programs="1")
    quickly = "by descriptors, in small tiles, three programs a multiprocessor"
    return (
        persistent("stream", kernel, least, quickly, small),
        contraction_variants.widest(kernel),
        persistent("square", kernel, least, "by descriptors, in square tiles", square),
    )
