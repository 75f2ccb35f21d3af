"""Chains of a product, folds over its columns and a second product: attention, and all that has its shape.

    s[i, j] = sum[e](q[i, e] * k[j, e])      o[i, e] = sum[j](exp(s[i, j] - max[j](s[i, j])) * v[j, e])

A program walks a block of rows i and loops over blocks of columns j, so that s is never stored. What makes a chain is
found in the nests (`chains`); the kernel is lowered from walks (`tritongen/kernel`).

Asked for by `only="fused"` alone: a row all of whose terms are -inf gives a sum of 0 where the spec says NaN, and the
proof does not yet know which of its factors rows share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices
from tritongen.ir.bounds import Facts
from tritongen.ir.free import binders_of, reads, tensors_read
from tritongen.kernel.lower import CannotLower, lower
from tritongen.kernel.nodes import PARTS, Fold, Kernel, Let, Loop, Store, Walk, is_dot, statements
from tritongen.kernel.parts import PART, in_parts, merging
from tritongen.kernel.verify import verify
from tritongen.schedule.classes.contraction import as_product
from tritongen.schedule.classes.contraction_operands import storage_dtype
from tritongen.schedule.members import Group, Virtual, gather_lines, is_reducer
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Sizes, Step, Variant

FOLDS = ("sum", "max", "min")


def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    """The members as one kernel: a product whose columns a second product sums over, and folds and lines around them."""
    if extending or sum(map(is_multiplied, members)) < 2:
        return None  # `chains` says which nests are together: another class may store what lies between
    indices = {b.index for n in members for b in (*n.box, *binders_of(n))}
    lines = gather_lines(members, virtual, indices)
    second = next((n for n in reversed(lines) if _is_second(n, lines, virtual, facts)), None)
    if second is None:
        return None
    product = as_product(second, virtual, facts)
    assert product is not None
    count = sum(map(is_multiplied, lines))
    group = Group("fused", lines, product.m, product.k, product=product, products=count)
    try:
        kernels = [kernel_of("", group, walks_of(group, wide), ()) for wide in (False, True)]
    except CannotLower:
        return None
    return group if all(map(is_printable, kernels)) else None


def _is_second(n: ir.Nest, lines, virtual, facts: Facts) -> bool:
    """Whether it is a product of one row, one column and one summed index, over which another product has columns."""
    product = as_product(n, virtual, facts) if is_reducer(n) else None
    if (
        product is None
        or product.taps
        or not len(product.m) == len(product.n) == len(product.k) == 1
    ):
        return False
    (summed,), row = product.k, product.m[0]
    heads = (as_product(m, virtual, facts) for m in lines if is_reducer(m) and m is not n)
    own = ({b.index for b in (*p.m, *p.n)} for p in heads if p is not None and not p.taps)
    return {row.index, summed.index} in own


def walks_of(group: Group, wide: bool) -> tuple[Walk, ...]:
    """How the kernel walks each index; `wide`: of columns of any number, in blocks of which each computes the rows' terms again."""
    p = group.factors
    (row,), (loop,), (column,) = p.m, p.k, p.n
    found = [Walk(b.index, b.hi, "program") for b in p.batch]
    found.append(Walk(row.index, row.hi, "tile", "BLOCK_M"))
    if wide:
        found.append(Walk(column.index, column.hi, "tile", "BLOCK_D"))
    found.append(Walk(loop.index, loop.hi, "loop", "BLOCK_N"))
    known = {w.index for w in found}
    rest = {
        b.index: b for n in group.nests for b in (*n.box, *binders_of(n)) if b.index not in known
    }
    blocks: dict[Poly, str] = {}
    for b in rest.values():
        name = blocks.setdefault(b.hi, f"BLOCK_D{len(blocks) + 1}" if blocks else "BLOCK_D")
        how = "loop" if wide and b != column else "whole"
        found.append(Walk(b.index, b.hi, how, "BLOCK_K" if how == "loop" else name))
    return tuple(found)


def kernel_of(name: str, group: Group, walks: tuple[Walk, ...], stores: tuple[str, ...]) -> Kernel:
    read = set().union(*(tensors_read(n.body) for n in group.nests))
    last = tuple(n.name for n in group.nests if n.name not in read)
    return lower(name, group.nests, walks, stores or last)


def is_printable(kernel: Kernel) -> bool:
    """Whether it has one loop outside of others, blocks of two dims, and folds that loops can carry."""
    outer = [s for s in kernel.body if isinstance(s, Loop)]
    for s in statements(kernel.body):
        match s:
            case Fold(value=value, axes=axes):
                count = len({*axes, *s.over})
                if (
                    value.op not in FOLDS
                    or count > (3 if is_dot(s, kernel) else 2)
                    or len(s.over) != 1
                ):
                    return False
            case Let(axes=axes) if len(axes) > 2:
                return False
    return len(outer) == 1


# ---- which nests of an op ------------------------------------------------------------------------
def chains(op: ir.Op, nests: tuple[ir.Nest, ...], facts: Facts) -> Iterator[frozenset[str]]:
    """The values of each chain of an op: products, folds, what lies between, and the lines that follow row by row."""
    outputs = {o.name for o in op.outputs}
    virtual = Virtual(n for n in nests if not is_reducer(n) and n.name not in outputs)
    taken: frozenset[str] = frozenset()
    for second in filter(is_multiplied, nests):
        product = as_product(second, virtual, facts)
        if product is None or len(product.k) != 1 or second.name in taken:
            continue
        found = chain_of(second, product.k[0].index, nests, outputs)
        if found is None or found & taken or not in_order(found, nests):
            continue
        roots = [n for n in nests if n.name in found and (is_reducer(n) or n.name in outputs)]
        halves = all(is_half(n, op) for n in filter(is_multiplied, roots))
        if halves and classify(roots, virtual, {}, facts) is not None:
            yield found
            taken |= found


def chain_of(
    second: ir.Nest, loop: str, nests: tuple[ir.Nest, ...], outputs: set[str]
) -> frozenset[str] | None:
    """What a kernel computes that loops over the index of this sum; None where a value of the loop is an output."""
    read = {n.name: tensors_read(n.body) for n in nests}
    inside = {n.name for n in nests if loop in {b.index for b in n.box}}
    folds = {n.name for n in nests if loop in {b.index for b in binders_of(n)}}
    found, before = {second.name}, set[str]()
    while found != before:
        before = set(found)
        found |= {t for name in found for t in read[name] & (inside | folds)}
        found |= {name for name, own in read.items() if own & found & inside}
    if found & inside & outputs:
        return None
    own = {b.index for b in second.box}
    for n in nests:  # the lines that follow
        behind = read[n.name] & found and read[n.name] & read.keys() <= found
        if behind and not is_reducer(n) and {b.index for b in n.box} <= own:
            found.add(n.name)
    return frozenset(found)


def in_order(found: frozenset[str], nests: tuple[ir.Nest, ...]) -> bool:
    """Whether all that the chain reads stands in front of its first value: then it can be one step."""
    before = set[str]()
    for n in nests:
        if n.name in found:
            break
        before.add(n.name)
    read = set().union(*(tensors_read(n.body) for n in nests if n.name in found))
    return read & {n.name for n in nests} <= before | found


def is_multiplied(n: ir.Nest) -> bool:
    match n.body:
        case ir.Reduce("sum", body=ir.Call("mul")):
            return True
    return False


def is_half(n: ir.Nest, op: ir.Op) -> bool:
    """Whether both factors are stored in one half type."""
    narrow = storage_dtype(*n.fold.factors, op)
    return bool(narrow) and set(ir.dtypes_of(narrow, op)) <= {"f16", "bf16"}


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    p = group.factors
    (row,), (column,) = p.m, p.n
    sizes = {f"batch{k}": b.hi for k, b in enumerate(p.batch)}
    batches = "".join(f"{n} * " for n in sizes)
    sizes |= {"rows": row.hi, "columns": column.hi, "terms": p.k[0].hi}
    held = {w.block: w.extent for w in walks_of(group, False) if w.how == "whole"}
    sizes |= {f"whole{k}": extent for k, extent in enumerate(held.values())}
    blocks = tuple((block, f"max(16, pow2(whole{k}))") for k, block in enumerate(held))
    several = [f"whole{k}" for k in range(len(held))]
    widest = f"max({', '.join(several)})" if len(several) > 1 else several[0]
    fits = f"{widest} <= 256"
    tiles = f"{batches}cdiv(rows, BLOCK_M)"

    walks, wide = walks_of(group, False), walks_of(group, True)
    kernel = kernel_of(f"{name}_rows", group, walks, stores)
    part = in_parts(f"{name}_part", kernel, group.nests)
    behind = merging(kernel, group.nests)
    merge = lower(f"{name}_merge", behind, merge_walks(group, walks), stores)
    many = kernel_of(f"{name}_wide", group, wide, stores)
    by_tiles = described(group, walks)
    verify(kernel, group.nests, stores)
    verify(many, group.nests, stores)
    verify(part, group.nests, [s.tensor for s in part.body if isinstance(s, Store)])
    verify(merge, behind, stores)

    def planned(own: Kernel, nests: tuple[ir.Nest, ...], boxes: tuple[str, ...] = ()) -> KernelPlan:
        axes = tuple(Axis(w.index, (ir.Binder(w.index, Poly(), w.extent),)) for w in own.walks)
        return KernelPlan(own.name, "fused", axes, nests, stores, kernel=own, boxes=boxes)

    kernels = [
        planned(replace(kernel, name=f"{name}_tiles"), group.nests, by_tiles),
        planned(kernel, group.nests),
        planned(part, group.nests),
        planned(merge, behind),
        planned(many, group.nests),
    ]

    def config(
        m: str, n: str, stages: str, *others: tuple[str, str]
    ) -> tuple[tuple[str, str], ...]:
        options = (("num_warps", "4"), ("num_stages", stages))
        return (("BLOCK_M", m), ("BLOCK_N", n), *(others or blocks), *options)

    short = "16 if rows <= 16 else "
    loops = {w.block for w in wide if w.how == "loop"} - {"BLOCK_N"}
    variants = [
        Variant(
            "parts",
            f"{batches}cdiv(rows, 64) < sms and terms >= 1024 and {fits}",
            "few rows: programs share the loop over a row's terms, and a second kernel merges what they leave",
            (
                *config(f"{short}64", "64", "2"),
                ("PARTS", f"max(1, min(cdiv(4 * sms, {tiles}), cdiv(terms, 4 * BLOCK_N), 64))"),
                ("BLOCK_P", "pow2(PARTS)"),
            ),
            (
                Launch(part.name, (f"PARTS * {tiles}",)),
                Launch(
                    merge.name,
                    (f"{batches}rows * cdiv(columns, BLOCK_D)",),
                    (("BLOCK_D", "64"), ("num_warps", "1")),
                ),
            ),
            tuple(
                _scratch(s, kernel, group.nests, sizes) for s in part.body if isinstance(s, Store)
            ),
            requires=fits,
        ),
        Variant(
            "tiles",
            f"tiled and {fits}",
            "tiles of all factors by descriptor",
            config(f"{short}128 if 64 < {widest} <= 128 and rows > 64 else 64", "64", "2"),
            (Launch(kernels[0].name, (tiles,)),),
            requires=f"tiled and {fits}",
        ),
        Variant(
            "rows",
            fits,
            "a row's columns fit in registers",
            config(f"{short}64", f"64 if {widest} <= 128 else 32", f"3 if {widest} <= 128 else 2"),
            (Launch(kernel.name, (tiles,)),),
            requires=fits,
        ),
        Variant(
            "wide",
            "True",
            "any number of columns: each block of them computes the products of its rows again",
            config("64", "64", "2", ("BLOCK_D", "64"), *((b, "64") for b in sorted(loops))),
            (Launch(kernels[4].name, (f"{tiles} * cdiv(columns, BLOCK_D)",)),),
        ),
    ]
    if not by_tiles:
        del kernels[0], variants[1]
    tests = (Sizes("tiled", (), by_tiles),) if by_tiles else ()
    why = "a product, folds over its columns, and a product that sums over them: what lies between is never stored"
    numbers = tuple(sizes.items())
    return Step(name, "fused", why, stores, numbers, tuple(kernels), tuple(variants), tests=tests)


def merge_walks(group: Group, walks: tuple[Walk, ...]) -> tuple[Walk, ...]:
    """A row a program, all of its parts, a block of its columns."""
    (column,) = group.factors.n
    found = [replace(w, how="program", block="") for w in walks if w.how in ("program", "tile")]
    found.append(Walk(PART, PARTS, "whole", "BLOCK_P"))
    return (*found, Walk(column.index, column.hi, "tile", "BLOCK_D"))


def _scratch(
    s: Store, kernel: Kernel, nests: tuple[ir.Nest, ...], sizes: dict[str, Poly]
) -> tuple[str, str, tuple[str, ...]]:
    """Storage for a state of all parts."""
    nest = next(n for n in nests if n.name == s.value)
    called = {extent: name for name, extent in reversed(sizes.items())}
    return s.tensor, nest.dtype, ("PARTS", *(called[d] for d in nest.dims))


def described(group: Group, walks: tuple[Walk, ...]) -> tuple[str, ...]:
    """The operands of products whose tiles descriptors take: two dims walked by blocks, a number of the program in others."""
    how = {w.index: w.how for w in walks}
    own = {n.name for n in group.nests}
    found: dict[str, bool] = {}
    for n in filter(is_multiplied, group.nests):
        for read in (r for r in reads(n.body) if r.tensor not in own):
            blocks = [c for c in read.coords if any(how[i] != "program" for i in indices(c))]
            bare = all(c == index(next(iter(indices(c)))) for c in blocks)
            plain = len(blocks) == 2 and blocks[-1] == read.coords[-1] and bare
            fits = (
                plain
                and read.fill is None
                and ir.BATCH not in {i for c in read.coords for i in indices(c)}
            )
            found[read.tensor] = found.get(read.tensor, True) and fits
    return tuple(t for t, fits in found.items() if fits)
