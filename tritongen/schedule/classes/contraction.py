"""Contractions: a sum of products whose two factors share the summed indices.

The pointwise nests over the same box behind the sum are the epilogue.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, affine, index, indices, poly
from tritongen.ir.bounds import Facts, prove
from tritongen.ir.free import coordinates, free_indices
from tritongen.schedule.canonical import from_zero, same, substitute_indices
from tritongen.schedule.classes import (
    channel_padding,
    contraction_variants,
    convolution,
    nest,
    phases,
)
from tritongen.schedule.classes.contraction_operands import WHOLE, in_floats, stored_as
from tritongen.schedule.classes.packed import is_of_group, is_unpacked
from tritongen.schedule.classes.scales import group_of, scaled
from tritongen.schedule.factored import factors_of, multiplied
from tritongen.schedule.members import Group, Product, Virtual, gather_lines, is_reducer, paste
from tritongen.schedule.plan import Axis, Step, under

MOST = 4  # accumulators that one tile's registers hold
I32_TERMS = 2**17  # products of i8 that an i32 holds the sum of


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    heads = [n for n in members if is_reducer(n)]
    if len(heads) > 1:
        return _several(heads, members, virtual, facts)
    head, *others = members
    if isinstance(head.body, ir.Reduce):
        head = replace(head, body=from_zero(head.body))
    product = as_product(head, virtual, facts)
    if product is None:
        return None
    if not head.fold.guards:
        product = as_multiplied(product)
    terms = None if head.fold.guards else scaled(product, head.dtype, facts)
    terms = terms or ir.Call("mul", (product.left, product.right), head.dtype)
    head = replace(head, body=replace(head.fold, body=terms))
    tail = epilogue((head,), others, virtual)
    if tail is None:
        return None
    whole = with_loops(Group("contraction", (head, *tail), product=product), facts)
    return channel_padding.with_padded_channels(phases.by_phases(whole))


def as_multiplied(p: Product) -> Product:
    """The product with the factor that is unpacked or converted on the left: Hopper's tensor cores take that one from registers.

    A right factor goes back to shared memory, and every step waits for it. What a tile has one group of goes to the other factor,
    where whole numbers are left: `(dy[m, n] * s[k // 128, n]) * q[k, n]`.
    """
    if p.taps or is_unpacked(p.left, p.m, p.k) or not is_unpacked(p.right, p.n, p.k):
        return p
    p = replace(p.turned, exchanged=True)
    dtype = p.left.dtype
    moved = [f for f in factors_of(p.left) if is_of_group(f, p.m)]
    rest = [f for f in factors_of(p.left) if f not in moved]
    if not moved or not rest or stored_as(multiplied(rest, dtype)) != WHOLE:
        return p
    if len(p.k) == 1 and any(group_of(f, p.k[0].index) for f in (*moved, *rest)):
        return p  # a scale of groups of terms
    return replace(p, left=multiplied(rest, dtype), right=multiplied([p.right, *moved], dtype))


def _several(heads, members, virtual, facts) -> Group | None:
    """Several sums over one tile that share a factor: silu(x @ w1) * (x @ w3) reads x once.

    All sums range over the same batch, m, n and k; k may have another name in each. The kernel has one loop, and one
    accumulator a sum.
    """
    if len(heads) > MOST or any(n.fold.guards for n in heads):
        return None
    first = as_product(heads[0], virtual, facts)
    if first is None or first.taps:
        return None
    lines = list[ir.Nest]()
    for head in heads:
        found = as_product(head, virtual, facts)
        p = found and aligned(found, first, facts)
        if p is None or not {p.left, p.right} & {first.left, first.right}:
            return None
        body = ir.Call("mul", (p.left, p.right), head.dtype)
        lines.append(replace(head, body=replace(head.fold, binders=p.k, body=body)))
    tail = epilogue(lines, [n for n in members if n not in heads], virtual)
    if tail is None:
        return None
    group = Group("contraction", (*lines, *tail), product=first, products=len(lines))
    return with_loops(group, facts)


def aligned(p: Product, first: Product, facts) -> Product | None:
    """The product with its factors and reduced indices as in the first one."""

    def box(p: Product) -> list[list[str]]:
        return [[b.index for b in part] for part in (p.batch, p.m, p.n)]

    p = p.turned if box(p.turned) == box(first) else p
    if box(p) != box(first) or p.taps or len(p.k) != len(first.k):
        return None
    if not all(same(facts, a.hi, b.hi) for a, b in zip(p.k, first.k, strict=True)):
        return None
    values = {a.index: index(b.index) for a, b in zip(p.k, first.k, strict=True)}
    left, right = (substitute_indices(side, values) for side in (p.left, p.right))
    return replace(p, k=first.k, left=left, right=right)


def with_loops(group: Group, facts: Facts) -> Group:
    """The group, and for sums of integers how they are added up where i32 does not hold them."""
    head = group.nests[0]
    terms = Axis("k", head.fold.binders).extent
    if head.dtype != "i64" or prove(terms, "<", poly(I32_TERMS), facts) is True:
        return group
    return replace(group, terms=terms, loops=group.nests)


def epilogue(heads, others, virtual) -> ir.Nests | None:
    """The lines behind the sums; None where one ranges over another box."""
    names = heads[0].over
    if any(is_reducer(n) or n.over != names for n in others):
        return None
    lines = gather_lines(others, virtual, names)
    return None if any(line.over - names for line in lines) else lines


def as_product(head: ir.Nest, virtual, facts: Facts) -> Product | None:
    """sum[k...](left(batch, m, k) * right(batch, n, k)), with m and n not empty."""
    found = product_or_reason(head, virtual, facts)
    return found if isinstance(found, Product) else None


def product_or_reason(head: ir.Nest, virtual: Virtual, facts: Facts) -> Product | str:
    """The product, or why a sum of several factors is none; nothing where it has no two."""
    if head not in virtual.products:
        found = two_factors(head, virtual)
        virtual.products[head] = found if isinstance(found, str) else _with_taps(found)
    return virtual.products[head]


def two_factors(head: ir.Nest, virtual: Virtual) -> Product | str:
    """The product wherever its factors are read, as a kernel may multiply it that computes them; or why there is none."""
    if not isinstance(head.body, ir.Reduce) or head.fold.op != "sum" or not head.fold.binders:
        return ""
    reduce = from_zero(head.fold)
    k = {b.index for b in reduce.binders}
    factors = [in_floats(f) for f in factors_of(paste(reduce.body, virtual, None))]
    used = [free_indices(f) for f in factors]
    if sum(bool(names & k) for names in used) < 2:
        return ""
    bytes_of = [_byte(factor) for factor in factors]
    exact = head.dtype == "i64" and all(bytes_of)
    if head.dtype not in ("compute", "f32") and not exact:
        return f"it adds up in {head.dtype}, and tensor cores in f32 or, for i8 by i8, in i32"
    left = next((i for i, names in enumerate(used) if names >= k), None)
    if left is None:
        return f"no factor varies with all of {_listed(k)}"
    mine: list[int] = [left]
    others: list[int] = []
    for i in range(len(factors)):
        if i != left:
            (mine if used[i] - k <= used[left] else others).append(i)
    if not others:
        return "one factor has every index that the others have: a matrix by a vector, or element by element"
    if not set().union(*(used[i] for i in others)) >= k:
        return f"only one of two factors varies with all of {_listed(k)}"
    a, b = (set().union(*(used[i] for i in part)) - k for part in (mine, others))
    box = {binder.index for binder in head.box}
    # Whose terms a bound alone says: sum[off[e] <= i < off[e + 1]](a[i, m] * b[i, n]) has a product for each e.
    bounding = set().union(*(indices(g.poly) for g in reduce.guards if _bounds(g, k)))
    a, b = (side | (box & bounding - a - b) for side in (a, b))
    if (a | b) != box:
        return f"no factor varies with {_listed(box - (a | b))}"
    if not (a - b) or not (b - a):
        return f"of the indices that are kept one factor has all: {_listed(box)}"
    if any(not (own := indices(g.poly) - k) <= a and not own <= b for g in reduce.guards):
        # No factor can be without a term that a row and a column keep together.
        return "whether a term counts depends on indices of both factors together"
    if exact and bytes_of != ["i8", "i8"]:
        return "tensor cores multiply no integers but i8 by i8"
    return Product(
        tuple(x for x in head.box if x.index in a & b),
        tuple(x for x in head.box if x.index in a - b),
        tuple(x for x in head.box if x.index in b - a),
        reduce.binders,
        multiplied([factors[i] for i in mine], head.dtype),
        multiplied([factors[i] for i in others], head.dtype),
    )


def _bounds(guard: ir.Guard, k: set[str]) -> bool:
    """Whether it ends a loop over one of k; `index[i] == e` ends none, and e products would take all terms each."""
    weights, _ = affine(guard.poly) or ({}, None)
    return guard.op == ">=" and any(weights.get(Idx(i)) in (poly(1), poly(-1)) for i in k)


def _byte(factor: ir.Expr) -> str:
    """i8 or u8, of a factor that is stored so; nothing for others."""
    match factor:
        case ir.Cast(ir.Read(dtype="i8" | "u8" as dtype)):
            return dtype
    return ""


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _with_taps(product: Product) -> Product | str:
    """The product with the factor that slides a window on the left; the reason where both do, or one has no strides."""
    reduced = {b.index for b in product.k}
    for p in (*coordinates(product.left), *coordinates(product.right)):
        parts = affine(p)
        if parts is None or any(not isinstance(atom, Idx) for atom in parts[0]):
            if indices(p) & reduced and indices(p) - reduced:
                return f"a factor is read at {p}, which is no sum of multiples of indices"
    sides = (product.left, product.m), (product.right, product.n)
    left, right = (_window(side, kept, product.k) for side, kept in sides)
    if left and right:
        return "both factors slide a window"
    if right:
        product = product.turned
    taps = tuple(b for b in product.k if b.index in left | right)
    return replace(product, taps=taps, k=tuple(b for b in product.k if b not in taps))


def _window(side: ir.Expr, kept, k) -> set[str]:
    """The reduced indices that share a coordinate with a kept one."""
    own, reduced = {b.index for b in kept}, {b.index for b in k}
    found = [indices(p) for p in coordinates(side)]
    return set().union(*(used & reduced for used in found if used & own))


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    make_one = convolution.make if group.product.taps else contraction_variants.make
    step = make_one(name, group, stores, dims, facts)
    if group.terms is None:
        return step
    loops = Group("nest", group.loops, group.loops[0].box)
    general = nest.make(name, loops, stores, dims, facts)
    why = "more terms than the tensor cores' i32 holds the sum of: in i64, by loops"
    last = tuple(replace(v, why=why) for v in general.variants)
    few = (under(f"terms < {I32_TERMS}", v) for v in step.variants)
    return replace(
        step,
        facts=(*step.facts, ("terms", group.terms), *general.facts),
        kernels=(*step.kernels[:-1], *general.kernels, step.kernels[-1]),
        variants=(*few, *last),
    )
