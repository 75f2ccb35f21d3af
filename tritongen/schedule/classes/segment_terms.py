"""Sums whose terms lie in segments, and whose terms are added where they belong: gradients of sums over segments.

    dx[n, d] = sum[g, off[g] <= n < off[g + 1]](dy[g, d])                            a term of a segment is the place itself
    dw[v, d] = sum[g, n, off[g] <= n < off[g + 1] and key[n] == v](dy[g, d] * x[n])  or it names its place

A program has one segment, and loops over the terms of that alone, as in `segments.py`. Its kernel is lowered like one that stores
each term. Then the store becomes an atomic addition. A second kernel has one program for all segments, and adds in a fixed order.

Input: a reducer and the lines that its terms are computed from. Output: both kernels. `scatter.py` makes variants of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, indices, poly, substitute
from tritongen.ir.bounds import Facts
from tritongen.ir.free import binders_of, folds_of, free_indices, reads
from tritongen.ir.names import fresh
from tritongen.kernel.lower import CannotLower, lower
from tritongen.kernel.nodes import Kernel, Loop, Stmt, Store, Walk
from tritongen.kernel.verify import verify
from tritongen.schedule.canonical import line_over, read_of, rename_nest
from tritongen.schedule.classes.contraction import as_product
from tritongen.schedule.classes.segments import (
    Config,
    config_of,
    ends_of,
    extent_of,
    grid_of,
    is_product,
    is_read_apart,
    numbers_of,
)
from tritongen.schedule.members import names_in
from tritongen.schedule.plan import KernelPlan, walked_axes

Places = Mapping[str, Poly]  # the kept indices that terms name, as in `scatter.targets`


@dataclass(frozen=True, slots=True)
class Added:
    """A kernel that adds the terms of sums, its grid and its config."""

    kernel: KernelPlan
    grid: str
    config: Config


# ---- what is one ---------------------------------------------------------------------------------
def walks_of_terms(sum_: ir.Nest, places: Places) -> tuple[Walk, ...]:
    """How a kernel walks the terms of a sum over the terms of segments, or over segments; none where it is neither.

    A program has a number of each index that says which segment it is, and of those that sums within a term have. An index of
    which nothing but the terms speaks is summed before they are added.
    """
    fold, kept = sum_.fold, [b for b in sum_.box if b.index not in places]
    points = {b.index: b for b in (*kept, *fold.binders)}
    ends = {name: ends_of(sum_, name) for name in points}
    loop = next((name for name, own in ends.items() if own), "")
    if not loop or any(b.lo.terms for b in (*points.values(), *sum_.box)):
        return ()
    held, over = _spoken(ends[loop]) - {loop}, sum_.reduced
    at = set().union(*map(indices, places.values()))
    if not held & over or not held <= points.keys() or loop not in at | {b.index for b in kept}:
        return ()
    deep = set().union(*map(free_indices, folds_of(fold.body)))
    named = at | held | {loop} | _spoken(fold.guards)
    inner = [name for name in points if name in over - named]
    if len(inner) > 1 or deep & {*inner}:
        return ()
    lanes = inner or [b.index for b in kept if b.index not in {*held, loop}][-1:]
    lanes = [name for name in lanes if name not in deep]
    rest = [b for name, b in points.items() if name not in (loop, *lanes)]
    how = ("loop", "INNER") if inner else ("tile", "COLS")
    return (
        *(Walk(b.index, b.hi, "program") for b in rest),
        Walk(loop, points[loop].hi, "loop", "TERMS"),
        *(Walk(i, points[i].hi, *how) for i in lanes),
    )


def _spoken(guards) -> set[str]:
    return set().union(*(indices(g.poly) for g in guards))


def is_by_segments(nest: ir.Nest, places: Places, virtual, facts: Facts) -> bool:
    """Whether the terms of a sum are added so, and not by another kernel."""
    if not (walks := walks_of_terms(nest, places)):
        return False
    loop = next(w.index for w in walks if w.block == "TERMS")
    own = {w.index for w in walks if w.how == "program"} & nest.reduced
    if any(is_read_apart(r, own, loop) for r in reads(nest.body)):
        return False
    return not is_product(as_product(nest, virtual, facts), _spoken(ends_of(nest, loop)))


# ---- its kernels ---------------------------------------------------------------------------------
def adding(
    name: str, sum_: ir.Nest, places: Places, lines: ir.Nests
) -> tuple[Added, Added, tuple[tuple[str, Poly], ...]] | None:
    """The kernels that add the terms of a sum: atomically, and in order. And the facts that their rules use."""
    if not (walks := walks_of_terms(sum_, places)):
        return None
    nests, walks = with_term(sum_, lines, walks)
    in_order = tuple(
        replace(w, how="each") if w.how == "program" and w.index in sum_.reduced else w
        for w in walks
    )
    try:
        fast = _added(f"{name}_segments", sum_, places, nests, walks)
        slow = _added(f"{name}_in_order", sum_, places, nests, in_order)
    except CannotLower:
        return None
    # Where terms name places, those of one block may name one twice.
    config = tuple((n, "1" if n == "TERMS" and places else rule) for n, rule in fast.config)
    slow = replace(slow, grid=grid_of(in_order, "alone"), config=config)
    return fast, slow, (("alone", extent_of(in_order, "program")), *numbers_of(walks))


def with_term(
    sum_: ir.Nest, lines: ir.Nests, walks: tuple[Walk, ...]
) -> tuple[ir.Nests, tuple[Walk, ...]]:
    """The lines and the term as one, the last; and how all their indices are walked."""
    known, taken = {w.index for w in walks}, names_in((*lines, sum_))
    within = {w.index for w in walks if w.block == "INNER"}
    inner = tuple(b for b in sum_.fold.binders if b.index in within)
    points = [w for w in walks if w.block != "INNER"]
    nests, again = list(lines), dict[str, str]()

    def line(wish: str, body: ir.Expr, own: set[str]) -> ir.Nest:
        box = tuple(ir.Binder(w.index, poly(0), w.extent) for w in points if w.index in own)
        return line_over(fresh(wish, taken), box, body, sum_.line)

    def lifted(e: ir.Expr) -> ir.Expr:
        """A sum within the terms is a line, over indices of its own."""
        if not isinstance(e, ir.Reduce):
            return e
        made = line(f"{sum_.name}_inner", e, free_indices(e))
        for i in sorted(made.reduced & known - again.keys()):
            again[i] = fresh(i, taken)
        made = rename_nest(made, {i: again[i] for i in made.reduced & known})
        before = next((n for n in nests if n.body == made.body), None)
        if before is None:
            nests.append(made)
        return read_of(before or made)

    body = ir.rebuild(sum_.fold.body, lifted)
    body = replace(sum_.fold, binders=inner, guards=(), body=body) if inner else body
    nests.append(line(f"{sum_.name}_term", body, {w.index for w in points}))
    more = {b.index: b for n in nests for b in binders_of(n) if b.index not in known}
    walks = (*walks, *(Walk(b.index, b.hi, "loop", "INNER") for b in more.values()))
    return tuple(nests), walks


def _added(
    name: str, sum_: ir.Nest, places: Places, nests: ir.Nests, walks: Sequence[Walk]
) -> Added:
    """The kernel with these walks, whose last line is the term; CannotLower where there is none."""
    own, stores = tuple(walks), (sum_.name,)
    kernel = with_adds(lower(name, nests, own, (nests[-1].name,)), sum_, nests[-1].name, places)
    verify(kernel, nests, stores)
    axes, lines = walked_axes(own), (*nests, sum_)
    plan = KernelPlan(name, "fused", axes, lines, stores, kernel=kernel)
    return Added(plan, grid_of(own), config_of(own))


def with_adds(kernel: Kernel, sum_: ir.Nest, term: str, places: Places) -> Kernel:
    """The kernel, which stores terms, where each of them is added at its place."""
    within = tuple(g for g in sum_.fold.guards if not indices(g.poly) & places.keys())
    coords = tuple(substitute(c, dict(places)) for c in sum_.coords)

    def changed(s: Stmt) -> Stmt:
        match s:
            case Store():
                return Store(sum_.name, coords, s.axes, (), term, True, within)
            case Loop(own, body):
                ends = ends_of(sum_, own)
                shared = tuple(g for g in within if g in ends) or s.within
                return replace(s, body=tuple(map(changed, body)), within=shared)
        return s

    return replace(kernel, body=tuple(map(changed, kernel.body)))
