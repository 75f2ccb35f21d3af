"""Ragged products: rows lie in segments, and each segment is multiplied by a factor of its own.

    sum[e < E, k](where(off[e] <= m and m < off[e + 1], x[m, k] * w[e, k, n], 0))     tokens sorted by expert

    sum[e < E, k](where(expert[m] == e, x[m, k] * w[e, k, n], 0))                     rows that name their segment

The device reads where segments begin. They may overlap, be empty, lie in any order or leave rows out. A tile of rows finds
the segments that may have rows of it, and loops over the terms of each. If rows are sorted, few tiles meet two segments. A
mask of the left factor's loads selects the rows of a segment.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices, poly, weight_of
from tritongen.ir.bounds import Facts
from tritongen.schedule.canonical import from_zero
from tritongen.schedule.classes import contraction
from tritongen.schedule.classes.contraction_stages import fitted
from tritongen.schedule.classes.contraction_tiles import axes_of, sizes_of
from tritongen.schedule.classes.contraction_variants import by_pointers
from tritongen.schedule.members import Group, Product
from tritongen.schedule.plan import Axis, KernelPlan, Step
from tritongen.schedule.views import accesses, views


def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    head, *others = members
    product = as_ragged(head, virtual, facts)
    if product is None or head.dtype == "i64":
        return None
    terms = ir.Call("mul", (product.left, product.right), head.dtype)
    head = replace(head, body=replace(from_zero(head.fold), body=terms))
    tail = contraction.epilogue((head,), others, virtual)
    return None if tail is None else Group("ragged", (head, *tail), product=product)


def as_ragged(head: ir.Nest, virtual, facts: Facts) -> Product | None:
    """The product within a segment, where one of the summed indices numbers segments of rows."""
    if not isinstance(head.body, ir.Reduce) or head.fold.op != "sum" or not head.fold.guards:
        return None
    fold = from_zero(head.fold)
    for segment in fold.binders:
        within = tuple(b for b in fold.binders if b != segment)
        body = replace(fold, binders=within, guards=())
        inner = replace(head, box=(*head.box, segment), body=body)
        product = contraction.as_product(inner, virtual, facts)
        found = None if product is None or product.taps else by_segments(product, segment)
        for says in (ends_rows, ends_segments):
            if found is not None and all(says(g, segment, found) for g in fold.guards):
                return found
    return None


def by_segments(p: Product, segment: ir.Binder) -> Product | None:
    """The product with a loop over the segments, and one index of rows."""
    if segment in p.m:  # rows are what has no factor of its own in each segment
        p = p.turned
    batch, n = (tuple(b for b in part if b != segment) for part in (p.batch, p.n))
    if len(p.m) != 1 or not n:
        return None
    return replace(p, batch=batch, n=n, segments=(segment,))


def ends_rows(guard: ir.Guard, segment: ir.Binder, p: Product) -> bool:
    """Whether it says where the rows of a segment begin or end."""
    rest = beside(guard.poly, p.m[0].index)
    own = {segment.index, *(b.index for b in p.batch)}
    used = indices(rest) if rest is not None and guard.op == ">=" else set()
    return segment.index in used and used <= own


def ends_segments(guard: ir.Guard, segment: ir.Binder, p: Product) -> bool:
    """Whether it says which segments a row is in: from one on, up to one, or a single one."""
    rest = beside(guard.poly, segment.index)
    own = {p.m[0].index, *(b.index for b in p.batch)}
    return rest is not None and p.m[0].index in indices(rest) and indices(rest) <= own


def beside(p: Poly, name: str) -> Poly | None:
    """The rest of an expression beside an index with weight 1 or -1."""
    weight = weight_of(p, name)
    return p - weight * index(name) if weight in (poly(1), poly(-1)) else None


def make(name, group, stores, dims, facts) -> Step:
    p = group.product
    axes = (*axes_of(p), Axis("segment", p.segments))
    seen = views(list(accesses(group.nests, stores, dims)), dims, axes, facts)
    own = f"{name}_tiles", "ragged", axes, group.nests, stores
    named = not all(ends_rows(g, p.segments[0], p) for g in group.nests[0].fold.guards)
    kernel = KernelPlan(*own, views=seen, named=named)
    # A segment's sums stand apart from those of the segments before.
    variants = by_pointers(kernel, False, sums=2)
    if not named:  # room for the segments that a tile looks through
        room = ("SEGMENTS", "max(1, pow2(segments))")
        variants = tuple(replace(v, config=(*v.config, room)) for v in variants)
    why = "a product of rows that lie in segments, each with a factor of its own"
    return fitted(Step(name, "ragged", why, stores, sizes_of(axes), (kernel,), variants))
