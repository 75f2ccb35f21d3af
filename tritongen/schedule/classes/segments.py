"""Segments: reducers over the terms between two numbers that operands hold, `y[g, d] = sum[off[g] <= n < off[g + 1]](x[n, d])`.

A program has one segment, and loops over the terms of that segment alone: it reads where they begin and end. Its lanes lie
along the terms and along one index that is kept. Kernels are lowered from walks (`tritongen/kernel`), so a softmax over a
segment and the sum behind it are one loop.

Not here: terms that have a value for each segment (`x[g, n]`), which rows read once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import isfinite, prod

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, fetches_of, index, indices, poly, weight_of
from tritongen.ir.conditions import guards_of, where_known
from tritongen.ir.free import binders_of, tensors_read
from tritongen.ir.names import fresh
from tritongen.kernel.lower import CannotLower, lower
from tritongen.kernel.nodes import Walk
from tritongen.kernel.verify import verify
from tritongen.schedule.canonical import rename_nest
from tritongen.schedule.classes.chain_lines import with_nan
from tritongen.schedule.classes.contraction import as_product
from tritongen.schedule.members import (
    Group,
    Product,
    gather_lines,
    is_reducer,
    names_in,
    operands,
    results,
)
from tritongen.schedule.plan import KernelPlan, Launch, Step, Variant, walked_axes

Config = tuple[tuple[str, str], ...]
NUMBERS = {"TERMS": "longest", "COLS": "width", "INNER": "inner"}  # how many there are in all
FOLDS = ("sum", "max", "min", "argmax", "argmin")
LONG = "longest > 256 * segments"  # so many terms in a segment that several warps share them


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    reducers = [n for n in members if is_reducer(n)]
    if not reducers or any(len(n.fold.binders) != 1 for n in reducers):
        return None
    (loop,) = reducers[0].fold.binders
    ends = ends_of(reducers[0], loop.index)
    if not ends or any(ends_of(n, loop.index) != ends for n in reducers):
        return None
    held = set().union(*(indices(g.poly) for g in ends)) - {loop.index}
    kept = {b.index: b for n in members for b in n.box}
    if loop.index in kept or not held <= kept.keys():
        return None
    if any(is_product(as_product(n, virtual, facts), held) for n in reducers):
        return None
    own = {*kept, loop.index}
    lines = gather_lines(members, virtual, own)
    if any(n.over - own for n in lines):
        return None
    lines = tuple(n if n in members else with_own(n, own, names_in(lines)) for n in lines)
    # A sum within each term uses the lanes for its own index, so none are left for columns.
    deep = set[str]().union(*(n.over for n in lines if is_reducer(n) and n not in reducers))
    columns = [name for name in kept if name not in held][-1:]
    columns = [name for name in columns if name not in deep]
    # A dim that programs number may be empty. A line without that dim would not be stored then.
    row = {*kept} - {*columns}
    if not all(row <= n.over for n in members):
        return None
    if any(n.fold.op not in FOLDS for n in lines if is_reducer(n)):
        return None
    if any(is_read_apart(r, held, loop.index) for r in operands(lines)):
        return None
    programs = tuple(b for b in kept.values() if b.index in row)
    group = Group("segments", lines, programs, (loop, *(kept[name] for name in columns)))
    names, here = frozenset(by_name) | names_in(lines), {n.name for n in lines}
    outside = (n for n in by_name.values() if n.name not in here)
    others = frozenset().union(*(tensors_read(n.body) for n in outside))
    try:
        kernel = lower("", lines, walks_of(group), results(lines))
        group = with_nan(group, kernel, frozenset(), names, others)
        lower("", group.nests, walks_of(group), results(lines))
    except CannotLower:
        return None
    return group


def with_own(n: ir.Nest, walked: set[str], taken: set[str]) -> ir.Nest:
    """The line, with indices of its own for those that it sums over and that the kernel walks, too."""
    return rename_nest(n, {i: fresh(i, taken) for i in sorted(n.reduced & walked)})


def is_product(p: Product | None, held: set[str]) -> bool:
    """Whether a sum is a product of tiles within each segment."""
    return p is not None and all({b.index for b in side} - held for side in (p.m, p.n))


def is_read_apart(read: ir.Read, held: set[str], loop: str) -> bool:
    """Whether each segment has terms of its own there: of rows, which are read once."""
    used = set().union(*map(indices, read.coords))
    return {loop, *held} <= used


def ends_of(nest: ir.Nest, loop: str) -> frozenset[ir.Guard]:
    """The guards that say where the terms of a segment begin and end; none if there is not one of each, held by operands."""
    found = [g for g in nest.fold.guards if g.op == ">=" and is_end(g, loop)]
    signs = {weight_of(g.poly, loop) for g in found}
    return frozenset(found) if signs == {poly(1), poly(-1)} else frozenset()


def is_end(guard: ir.Guard, loop: str) -> bool:
    """Whether a number that an operand holds for the segment ends the loop."""
    weight = weight_of(guard.poly, loop)
    if weight not in (poly(1), poly(-1)):
        return False
    rest = guard.poly - weight * index(loop)
    return loop not in indices(rest) and any(indices(poly(f)) for f in fetches_of(rest))


def with_ends(nests: tuple[ir.Nest, ...]) -> tuple[ir.Nest, ...]:
    """The nests, where sums whose terms are 0 outside of a segment, as gradients have them, leave those terms out."""
    lines, found = {n.name: n for n in nests if not is_reducer(n)}, []
    for n in nests:
        if is_reducer(n) and n.fold.op == "sum" and (asked := zero_outside(n.fold.body, lines)):
            points = n.over | n.reduced
            more = replace(n, body=replace(n.fold, guards=(*n.fold.guards, *asked)))
            ends = {g for e in points if not ends_of(n, e) for g in ends_of(more, e)}
            guards = tuple(g for g in asked if g in ends and g not in n.fold.guards)
            if all(indices(g.poly) <= points for g in guards):
                body = where_known(n.fold.body, guards)
                n = replace(n, body=replace(n.fold, guards=(*n.fold.guards, *guards), body=body))
        found.append(n)
    return tuple(found)


def zero_outside(e: ir.Expr, lines: Mapping[str, ir.Nest]) -> tuple[ir.Guard, ...]:
    """Guards outside of which a value is 0, whatever it is made of."""
    match e:
        case ir.Call("where", (condition, yes, ir.Const(0))):
            asked, _ = guards_of(lambda dtype: "int" if dtype in ir.INTS else "", condition)
            return (*asked, *zero_outside(yes, lines))
        case ir.Call("where", (_, a, b)) | ir.Call("add" | "sub", (a, b)):
            both = zero_outside(b, lines)
            return tuple(g for g in zero_outside(a, lines) if g in both)
        case ir.Call("mul", (ir.Const(value), a) | (a, ir.Const(value))) if isfinite(value):
            return zero_outside(a, lines)
        case ir.Call("neg", (a,)) | ir.Cast(a):
            return zero_outside(a, lines)
        case ir.Read(tensor, coords, None) if tensor in lines and coords == lines[tensor].coords:
            return zero_outside(lines[tensor].body, lines)
    return ()


def inside(nests: tuple[ir.Nest, ...], stored: Collection[str]) -> set[str]:
    """Sums that each term of a segment has of its own, and that nothing else reads: they are never stored.

    Of all segments by all terms, few are terms of a segment.
    """
    by_name, found = {n.name: n for n in nests}, set[str]()
    readers: dict[str, list[ir.Nest]] = {n.name: [] for n in nests}
    for n in nests:
        for name in tensors_read(n.body) & by_name.keys():
            readers[name].append(n)
    for n in filter(is_reducer, nests):
        box = n.over
        if n.name in stored or n.fold.op != "sum" or n.fold.guards or len(n.fold.binders) > 1:
            continue
        ahead, ends = [n], list[ir.Nest]()
        while ahead:
            for reader in readers[ahead.pop().name]:
                virtual = not is_reducer(reader) and reader.name not in stored
                (ahead if virtual else ends).append(reader)
        if ends and all(is_reducer(e) and any(is_term(e, i, box) for i in box) for e in ends):
            found.add(n.name)
    return found


def is_term(nest: ir.Nest, loop: str, box: set[str]) -> bool:
    """Whether a value over these indices belongs to a term of a segment of this reducer."""
    ends = ends_of(nest, loop)
    return are_offsets(ends) and set().union(*(indices(g.poly) for g in ends)) <= box


def are_offsets(ends: Collection[ir.Guard]) -> bool:
    """Whether a segment ends where the next one begins. Segments that overlap may share terms, which suits products of tiles."""
    found = [f for g in ends for f in fetches_of(g.poly)]
    tensors, places = {f.tensor for f in found}, {f.coords for f in found}
    plain = not any(fetches_of(c) for f in found for c in f.coords)
    return len(tensors) == 1 and len(places) == 2 and plain


# ---- how it runs ---------------------------------------------------------------------------------
def walks_of(group: Group) -> tuple[Walk, ...]:
    loop, *col = group.col
    return (
        *(Walk(b.index, b.hi, "program") for b in group.row),
        Walk(loop.index, loop.hi, "loop", "TERMS"),
        *(Walk(b.index, b.hi, "loop", "INNER") for b in inner_of(group.nests, loop.index)),
        *(Walk(b.index, b.hi, "tile", "COLS") for b in col),
    )


def inner_of(nests: tuple[ir.Nest, ...], loop: str) -> tuple[ir.Binder, ...]:
    """What the terms are sums over."""
    found = (b for n in nests for b in binders_of(n) if b.index != loop)
    return tuple({b.index: b for b in found}.values())


def make(name, group, stores, dims, facts) -> Step:
    walks, nests = walks_of(group), group.nests
    kernel = lower(f"{name}_segments", nests, walks, stores)
    verify(kernel, nests, stores)
    plan = KernelPlan(kernel.name, "fused", walked_axes(walks), nests, stores, kernel=kernel)
    why = "each program takes the terms of one segment"
    launch = Launch(kernel.name, (grid_of(walks),))
    variant = Variant("segments", "True", why, config_of(walks), (launch,))
    why, numbers = "reducers over terms between numbers that operands hold", numbers_of(walks)
    return Step(name, "segments", why, stores, numbers, (plan,), (variant,))


def extent_of(walks: Iterable[Walk], how: str) -> Poly:
    return prod((w.extent for w in walks if w.how == how), start=poly(1))


def numbers_of(walks: tuple[Walk, ...]) -> tuple[tuple[str, Poly], ...]:
    blocks = {w.block: w.extent for w in walks}
    found = {NUMBERS[b]: extent for b, extent in blocks.items() if b}
    return ("segments", extent_of(walks, "program")), *found.items()


def grid_of(walks: tuple[Walk, ...], programs: str = "segments") -> str:
    tiled = any(w.how == "tile" for w in walks)
    return f"{programs} * max(1, cdiv(width, COLS))" if tiled else programs


def config_of(walks: tuple[Walk, ...]) -> Config:
    """A thread has up to 32 elements of a tile, four of them adjacent. Short segments ask for no more lanes than they fill.

    Long segments are few: more programs share the columns of one. A block of one column has no mask, but there may be none.
    """
    sides = [b for b in ("COLS", "INNER") if any(w.block == b for w in walks)]
    lanes = f"(8192 if {LONG} else 1024)"
    most = {"COLS": f"32 if {LONG} else 128", "INNER": "128"}
    own = f"{lanes} // {sides[0] if len(sides) == 1 else 'max(COLS, INNER)'}" if sides else lanes
    return (
        *((b, f"max(2, min({most[b]}, pow2(max(1, {NUMBERS[b]}))))") for b in sides),
        ("TERMS", f"max(8, min({own}, pow2(cdiv(2 * longest, max(1, segments)))))"),
        ("STAGES", "1"),
        ("num_warps", f"8 if {LONG} else 1"),
    )
