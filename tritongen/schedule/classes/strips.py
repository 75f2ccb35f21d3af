"""Sums over places by tensor descriptors: a step adds up one strip of places.

    dw[f, c, r, s] = sum[n, p, q](dy[n, f, p, q] * x[n, c, p * stride + r * dil - pad, q * stride + s * dil - pad])

The gradient of a convolution's weights is a convolution too, of many taps (p, q) and few places (r, s). If channels are
stored last, tensor cores can take both operands as they lie: a strip of (n, p, q) has rows of c in x and of f in dy. A
program computes a tile of c and f at one (r, s), for which the strips of x are moved. A descriptor reads zeros outside of the
tensor, which are the padding.

A strip is BLOCK_K long along one of n, p and q. Triton 3.6 loads blocks with two long sides through registers.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, affine, index, indices, is_fractional, poly
from tritongen.ir.bounds import Facts
from tritongen.schedule.canonical import same
from tritongen.schedule.classes.contraction_tiles import variant
from tritongen.schedule.classes.contraction_variants import added_up
from tritongen.schedule.classes.patches import MOST_DIMS, Dim, along, number, operand, steps_of
from tritongen.schedule.estimates import of_convolution
from tritongen.schedule.members import Group
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Pack, Step, View, stored_dims

LINE = 8  # elements of 16 bits: a descriptor's rows begin at multiples of 16 bytes
Run = tuple[str, ...]
Side = tuple[ir.Read, tuple[Dim, ...]]


def beside(
    name: str, group: Group, axes: tuple[Axis, ...], finish, stores, dims, facts: Facts
) -> Step | None:
    """The additions to a convolution's step. None if its operands have no strips."""
    p, head = group.factors, group.nests[0]
    terms = (*p.k, *p.taps)
    if head.fold.guards or p.lets or any(b.lo.terms or indices(b.hi) for b in terms):
        return None
    pair = sides(head, axes)
    if pair is None or not _ends_with_terms(pair[1], group, axes, dims, facts):
        return None
    (x, of_x), _ = pair
    order = [dim.run[0] for dim in of_x if is_term(dim, axes)]
    packs = tuple(_pack(side, order, axes, dims) for side in pair)
    known = {p.stored: stored_dims(p, dims[p.tensor]) for p in packs}
    if set(known) & set(dims):
        return None
    group = _over_copies(group, {p.tensor: p for p in packs})
    tiles = tuple(
        View(p.stored, known[p.stored], tuple(seen[k].run for k in p.order))
        for p, (_, seen) in zip(packs, pair, strict=True)
    )
    plan = KernelPlan(
        f"{name}_strips", "strips", axes, group.nests, stores, tiles=tiles, slides=True, splits=True
    )
    extent = {d.index: d.hi - d.lo for d in axes[1].digits}
    columns = extent.pop(next(dim.run[0] for dim in of_x if dim.run and not is_term(dim, axes)))
    facts_of = {"columns": columns, "hops": prod(extent.values(), start=poly(1))}
    steps = steps_of(of_x, dims[x.tensor], "strip_step", "strip_over")
    grouped = _grouped(pair, group, (columns, axes[2].extent), axes)
    if grouped is None or steps is None:
        return None
    stepped = " and 0 < strip_step and strip_over == 0" if steps else ""
    facts_of |= steps
    each = f"{plan.times}hops * cdiv(columns, BLOCK_M) * cdiv(N, BLOCK_N)"
    # With two programs on a multiprocessor, one loads while the other stores. Small tiles leave room for four.
    busy = "(4 if BLOCK_M + BLOCK_N <= 128 else 2) * sms"
    parts = f"max(1, min({busy} // max(1, {each}), cdiv(strips, 4)))"
    config = (
        ("BLOCK_M", "128 if columns > 64 else 64"),
        ("BLOCK_N", "max(16, min(128, pow2(N)))"),
        ("BLOCK_K", "strip_terms"),
        ("num_warps", "4"),
        ("num_stages", "3 if BLOCK_K == 64 else 5"),
    )
    rows = "hops * BLOCK_M * cdiv(columns, BLOCK_M)"
    estimate = of_convolution("strips", "BLOCK_K * strips", "strip_bytes", places=rows)
    way = variant(
        "strips",
        f"as_strips and 0 <= strip_dim and itemsize == 2 and depth < 2**31 - 2**16{stepped}{grouped}",
        "by tensor descriptor: a strip of places is a factor as it lies, if channels are stored last",
        config,
        Launch(plan.name, (f"PARTS * {each}",)),
        "strips_fit",
        packs=packs,
        estimate=estimate,
    )
    way = added_up(way, plan, finish, "1", "strips", "cdiv(strips, PARTS)", shared=parts)
    why = "a sum over places, whose operands have their channels last"
    return Step(name, "contraction", why, stores, tuple(facts_of.items()), (plan,), (way,))


# ---- operands as descriptors see them ------------------------------------------------------------
def sides(head: ir.Nest, axes: tuple[Axis, ...]) -> tuple[Side, Side] | None:
    """Both operands of a sum with their dims. None if one has no strips."""
    _, m, n, *reduced = axes
    terms = {i for axis in reduced for i in axis.names}
    x, w = (operand(side) for side in head.fold.factors)
    if x is None or w is None or x.dtype != w.dtype or x.tensor == w.tensor:
        return None
    of_x = _walked(x, m, [(d.index,) for d in m.digits], terms)
    of_w = _walked(w, n, [n.names], terms)
    if of_x is None or of_w is None or max(len(of_x), len(of_w)) > MOST_DIMS:
        return None
    return (x, of_x), (w, of_w)


def is_term(dim: Dim, axes: tuple[Axis, ...]) -> bool:
    """Whether a summed index runs along the dim."""
    return bool({i for axis in axes[3:] for i in axis.names}.intersection(dim.run))


def _walked(read: ir.Read, kept: Axis, runs: list[Run], terms: set[str]) -> tuple[Dim, ...] | None:
    """The dims of an operand: one for each term, one for the channels, and others that no term changes.

    `runs`: the indices that may run along the channels, which are last or, by torch's convention, behind the batch.
    """
    last = len(read.coords) - 1
    found = (_channels(read, k, kept, runs, terms) for k in dict.fromkeys((last, min(1, last))))
    at, run = next(filter(None, found), (None, ()))
    if at is None:
        return None
    dims, seen = list[Dim](), list[str]()
    for k, coordinate in enumerate(read.coords):
        if k == at:
            dims.append(Dim(run, poly(1), coordinate - number(run, kept)))
            continue
        used = sorted(indices(coordinate) & terms)
        dim = along(coordinate, tuple(used), kept) if len(used) <= 1 else None
        if dim is None or indices(coordinate) & set(run) or indices(dim.rest) & terms:
            return None
        dims.append(dim)
        seen += used
    return tuple(dims) if sorted(seen) == sorted(terms) else None


def _channels(
    read: ir.Read, at: int, kept: Axis, runs: list[Run], terms: set[str]
) -> tuple[int, Run] | None:
    """The dim, and what runs along it, if nothing else of the tile and no term does."""
    own = {*kept.names} | terms
    if affine(read.coords[at]) is None or is_fractional(read.coords[at]):
        return None
    for run in runs:
        if run and not indices(read.coords[at] - number(run, kept)) & own:
            return at, run
    return None


def _ends_with_terms(side: Side, group: Group, axes, dims, facts: Facts) -> bool:
    """Whether an operand has just the terms, so that a descriptor reads zeros behind the last one."""
    read, seen = side
    ends = {b.index: b.hi for b in (*group.factors.k, *group.factors.taps)}
    return all(
        dim.step == poly(1) and not dim.rest.terms and same(facts, extent, ends[dim.run[0]])
        for dim, extent in zip(seen, dims[read.tensor], strict=True)
        if is_term(dim, axes)
    )


def _grouped(
    pair: tuple[Side, Side], group: Group, widths: tuple[Poly, Poly], axes: tuple[Axis, ...]
) -> str | None:
    """The rule by which the channels of each group begin at a multiple of 16 bytes. None if there is no such rule."""
    rules = []
    for (_, seen), width, name in zip(pair, widths, ("columns", "N"), strict=True):
        rest = next(dim.rest for dim in seen if dim.run and not is_term(dim, axes))
        if rest.terms:
            if rest not in [index(b.index) * width for b in group.factors.batch]:
                return None
            rules.append(f"{name} % {LINE} == 0")
    return f" and (batches == 1 or {' and '.join(rules)})" if rules else ""


# ---- copies with the channels last ---------------------------------------------------------------
def _pack(side: Side, order: list[str], axes, dims) -> Pack:
    """The copy of an operand: its terms in this order, and then its channels."""
    read, seen = side
    terms = [k for k, dim in enumerate(seen) if is_term(dim, axes)]
    terms.sort(key=lambda k: order.index(seen[k].run[0]))
    (last,) = (k for k, dim in enumerate(seen) if dim.run and k not in terms)
    others = (k for k in range(len(seen)) if k not in (*terms, last))
    at = (*others, *terms, last)
    stored, lanes = f"{read.tensor}_packed", dims[read.tensor][last]
    return Pack(read.tensor, at, stored=stored, lanes=lanes, multiple=LINE)


def _over_copies(group: Group, packs: dict[str, Pack]) -> Group:
    """The group whose factors are read from copies."""

    def change(read: ir.Read) -> ir.Read:
        if (pack := packs.get(read.tensor)) is None:
            return read
        coords = tuple(read.coords[k] for k in pack.order)
        return replace(read, tensor=pack.stored, coords=coords)

    head, *tail = group.nests
    return group.over((head.reading(change), *tail))
