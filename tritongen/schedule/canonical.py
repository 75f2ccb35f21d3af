"""Brings nests into the form in which kernels are recognised: one reducer a nest, at its root.

Input: a verified op. Output: nests. Each body is one `Reduce`, whose own body has no reducer, or is pointwise. Reducers
inside expressions become temporaries of their own:

    y[n, d] = e[n, d] / sum[k](e[n, k])    is    y_sum[n] = sum[k](e[n, k]);  y[n, d] = e[n, d] / y_sum[n]

Indices over the same dim of the same tensor get one name in all nests. Nothing is fused here, and no index is split
(`digits.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import prod

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Idx,
    Poly,
    PolyLike,
    Sym,
    affine,
    atoms,
    extreme,
    index,
    indices,
    poly,
    substitute,
    symbols,
)
from tritongen.ir.bounds import Facts, prove, simplify
from tritongen.ir.dtypes import HALVES, is_exact
from tritongen.ir.free import (
    all_indices,
    fetches,
    folds_of,
    free_indices,
    needed,
    reads,
    with_coordinates,
)
from tritongen.ir.names import fresh
from tritongen.ir.reducers import REDUCERS
from tritongen.schedule.aside import names_of
from tritongen.schedule.plan import Dims


def canonical(op: ir.Op, facts: Facts) -> ir.Nests:
    """The op's nests, one reducer each, with indices named alike."""
    nests = needed(op.nests, {o.name for o in op.outputs})
    nests = as_rounded(tuple(replace(n, body=without_equal_terms(n.body)) for n in nests))

    bodies = (ir.with_folds(n.body, lambda fold: _none_reversed(fold, facts)) for n in nests)
    nests = tuple(replace(n, body=body) for n, body in zip(nests, bodies, strict=True))
    return unify(lift(replace(op, nests=nests)), facts, names_of(op))


def _none_reversed(reduce: ir.Reduce, facts: Facts) -> ir.Reduce:
    """Ranges around another reducer are dims of what is stored of that one: two lengths below 0 have a product that is not."""
    if not folds_of(reduce.body):
        return reduce
    ends = (
        b.hi if prove(b.hi, ">=", b.lo, facts) is True else extreme("max", (b.lo, b.hi))
        for b in reduce.binders
    )
    binders = zip(reduce.binders, ends, strict=True)
    return replace(reduce, binders=tuple(replace(b, hi=end) for b, end in binders))


def as_rounded(nests: ir.Nests) -> ir.Nests:
    """Gives temporaries that are rounded to another type that type, as outputs have it: `h[m, k] = T(silu(x[m, k]))`.

    The values are the same. They take less memory when they are stored, and products multiply them as they are stored. A
    temporary that some line reads with a value such as `else 0.1` keeps its type: no half type represents 0.1.
    """
    rounded = dict[str, str]()
    read = [r for n in nests for r in reads(n.body)]
    wide = {r.tensor for r in read if r.fill is not None and not is_exact(r.fill, HALVES)}

    def change(read: ir.Read) -> ir.Expr:
        dtype = rounded.get(read.tensor)
        return ir.Cast(replace(read, dtype=dtype), read.dtype) if dtype else read

    found = []
    for nest in nests:
        nest = nest.reading(change)
        match nest.body:
            case ir.Cast(ir.Cast(_, dtype) as body, "compute") if (
                nest.dtype == "compute" != dtype and nest.name not in wide
            ):
                rounded[nest.name] = dtype
                nest = replace(nest, body=body, dtype=dtype)
        found.append(nest)
    return tuple(found)


def without_equal_terms(expr: ir.Expr) -> ir.Expr:
    """Replaces a sum, product or extreme of one term, or of equal terms, by one term.

    `max[j](x[m, j])` over a dim of size 1 is its term. `sum[k < K](x[n])`, as a mean's gradient has it, is K times its term. It needs no
    loop, and no row of equal numbers in the registers of every thread.
    """

    def change(node: ir.Expr) -> ir.Expr:
        match node:
            case ir.Reduce(op, binders, (), body, dtype) if (
                binders
                and REDUCERS[op].of_two
                and body.dtype == dtype
                and all((b.hi - b.lo).constant == 1 for b in binders)
            ):
                return substitute_indices(body, {b.index: b.lo for b in binders})
            case ir.Reduce("sum", binders, guards, body, dtype) if body.dtype == dtype:
                return _counted(node, _unspoken(binders, guards, body))
        return node

    return ir.rebuild(expr, change)


def _unspoken(binders, guards, body) -> ir.Binders:
    """Those that count terms and nothing else, from 0 to a product of sizes."""
    spoken = free_indices(body).union(*(indices(g.poly) for g in guards))
    spoken |= set().union(*(indices(p) for b in binders for p in (b.lo, b.hi)))
    return tuple(b for b in binders if b.index not in spoken and not b.lo.terms and _counts(b.hi))


def _counts(p: Poly) -> bool:
    """Whether p is a product of sizes, which is not below 0."""
    return len(p.terms) == 1 and p.terms[0][1] > 0 and all(isinstance(a, Sym) for a in atoms(p))


def _counted(node: ir.Reduce, alike: ir.Binders) -> ir.Expr:
    """A sum without these binders, times what they count; 0 where that is 0, whatever its terms."""
    if not alike:
        return node
    times = ir.IndexValue(prod((b.hi for b in alike), start=poly(1)), node.dtype)
    rest = tuple(b for b in node.binders if b not in alike)
    one = replace(node, binders=rest) if rest or node.guards else node.body
    if isinstance(one, ir.Const):
        return times if one.value == 1 else ir.Call("mul", (times, one), node.dtype)
    some = ir.Call("gt", (replace(times, dtype="i64"), ir.Const(0, "i64")), "bool")
    total = ir.Call("mul", (one, times), node.dtype)
    return ir.Call("where", (some, total, ir.Const(0, node.dtype)), node.dtype)


def same(facts: Facts, a: PolyLike, b: PolyLike) -> bool:
    """Whether two sizes are equal whatever the call, by the facts."""
    return not simplify(poly(a) - b, facts).terms


# ---- reducers into nests of their own -----------------------------------------------------------
def lift(op: ir.Op) -> ir.Nests:
    """One reducer a nest: each inner reducer becomes a temporary over the indices it depends on."""
    taken = names_beside(op, op.nests) | all_indices(op.nests)
    done: list[ir.Nest] = []
    for nest in op.nests:
        if isinstance(nest.body, ir.Reduce) and nest.dtype == nest.body.dtype:
            body: ir.Expr = _lift_below(nest.body, nest, nest.box, taken, done)
        else:
            body = _lift(nest.body, nest, nest.box, taken, done)
        done.append(replace(nest, body=body))
    return tuple(done)


def _lift_below(reduce: ir.Reduce, nest, scope, taken, done) -> ir.Reduce:
    if folds_of(reduce.body):
        reduce = from_zero(reduce)
    inner = scope + reduce.binders
    return replace(reduce, body=_lift(reduce.body, nest, inner, taken, done))


def from_zero(reduce: ir.Reduce) -> ir.Reduce:
    """`sum[-M // 3 <= t < 0]` with t from 0: neither a temporary over t nor a tile has a place -1."""
    late = {b.index: b.lo for b in reduce.binders if b.lo.terms}
    if not late:
        return reduce
    moved = substitute_indices(reduce, {i: index(i) + lo for i, lo in late.items()})
    assert isinstance(moved, ir.Reduce)
    binders = tuple(ir.Binder(b.index, Poly(), b.hi - b.lo) for b in reduce.binders)
    return replace(moved, binders=binders)


def _lift(expr: ir.Expr, nest: ir.Nest, scope: ir.Binders, taken: set[str], done: list) -> ir.Expr:
    match expr:
        case ir.Reduce():
            reduce = _lift_below(expr, nest, scope, taken, done)
            used = free_indices(reduce)
            box = tuple(b for b in scope if b.index in used)
            for earlier in done:  # the same sum twice is one sum
                if earlier.body == reduce and earlier.box == box and earlier.name != nest.name:
                    return read_of(earlier)
            name = fresh(f"{nest.name}_{reduce.op}", taken)
            done.append(line_over(name, box, reduce, nest.line))
            return read_of(done[-1])
    return ir.with_parts(expr, lambda e: _lift(e, nest, scope, taken, done))


def line_over(name: str, box: ir.Binders, body: ir.Expr, part_of: str = "") -> ir.Nest:
    """A line with a dim for each index of its box, which starts at 0."""
    coords, dims = tuple(index(b.index) for b in box), tuple(b.hi for b in box)
    return ir.Nest(name, box, coords, dims, body, body.dtype, part_of)


def read_of(nest: ir.Nest) -> ir.Read:
    """The value of a line at its own place."""
    return ir.Read(nest.name, nest.coords, None, nest.dtype)


def names_beside(op: ir.Op, nests: Iterable[ir.Nest]) -> set[str]:
    """What no new line of these nests may be called: they, operands and outputs."""
    return {n.name for n in nests} | {p.name for p in (*op.params, *op.outputs)}


def names_spoken(nests: Iterable[ir.Nest], dims: Dims) -> set[str]:
    """The tensors, sizes and scalars of the kernels of these nests."""
    scalars = {e.name for n in nests for e in ir.walk(n.body) if isinstance(e, ir.ScalarRef)}
    return scalars.union(dims, *(symbols(p) for d in dims.values() for p in d))


# ---- other indices -------------------------------------------------------------------------------
def uncast(expr: ir.Expr) -> ir.Expr:
    """The value inside of a cast, unless it is first rounded to another type."""
    return expr.arg if isinstance(expr, ir.Cast) else expr


def substitute_indices(expr: ir.Expr, values: dict[str, Poly]) -> ir.Expr:
    """expr with indices replaced by coordinates, binders included where they map to an index."""

    def rename(binder: ir.Binder) -> ir.Binder:
        new = values.get(binder.index)
        if new is None:
            return binder
        return replace(binder, index=next(a.name for a in atoms(new) if isinstance(a, Idx)))

    if not values:
        return expr
    moved = with_coordinates(expr, lambda p: substitute(p, values))
    return ir.with_folds(moved, lambda e: replace(e, binders=tuple(map(rename, e.binders))))


def with_ranges(
    nest: ir.Nest, coordinate: Callable[[Poly], Poly], ranges: Callable[[ir.Binders], ir.Binders]
) -> ir.Nest:
    """A nest over other indices: `coordinate` of each place, `ranges` of its box and of each reducer."""

    coords, moved = tuple(map(coordinate, nest.coords)), with_coordinates(nest.body, coordinate)
    body = ir.with_folds(moved, lambda fold: replace(fold, binders=ranges(fold.binders)))
    return replace(nest, box=ranges(nest.box), coords=coords, body=body)


def rename_nest(nest: ir.Nest, names: dict[str, str]) -> ir.Nest:
    """A nest with its indices renamed, box, coordinates and body alike."""
    values = {old: index(new) for old, new in names.items() if old != new}
    if not values:
        return nest

    def renamed(binders: ir.Binders) -> ir.Binders:
        return tuple(replace(b, index=names.get(b.index, b.index)) for b in binders)

    return with_ranges(nest, lambda p: substitute(p, values), renamed)


# ---- one name for one dim -----------------------------------------------------------------------
def unify(nests: ir.Nests, facts: Facts, taken: frozenset[str]) -> ir.Nests:
    """Gives indices that subscript the same dim of the same tensor over the same range one name.

    That of `...` is no other one's: a gradient walks a batch twice, by `...` and by a name. `taken`: names that no index may get,
    those of tensors and sizes.
    """
    parent: dict = {}
    within: dict = {}  # the nests that a class has an index of

    def find(x):
        while parent.setdefault(x, x) != x:
            x = parent[x]
        return x

    # Dims that one nest reads at two places come last. If queries and keys are packed in one tensor, two indices subscript a dim of it.
    links = [(nest, *place) for nest in nests for place in places(nest)]
    read: dict = {}
    for nest, tensor, dim, coordinate in links:
        read.setdefault((nest.name, tensor, dim), set()).add(coordinate)
    packed = {(tensor, dim) for (_, tensor, dim), found in read.items() if len(found) > 1}
    ranges = {n.name: {b.index: b for b in n.ranges} for n in nests}
    for nest, tensor, dim, coordinate in sorted(links, key=lambda link: link[1:3] in packed):
        for name, weight in digits_of(coordinate):
            b = ranges[nest.name][name]
            step, extent = (str(simplify(p, facts)) for p in (weight, b.hi - b.lo))
            one = find(("index", nest.name, name))
            other = find(("dim", tensor, dim, step, extent, str(b.lo), name == ir.BATCH))
            ours = within.setdefault(one, {nest.name})
            theirs = within.setdefault(other, set())
            if one != other and not ours & theirs:
                parent[one] = other
                theirs |= ours
    return _rename_classes(nests, find, set(taken) | {n.name for n in nests})


def places(nest: ir.Nest) -> Iterator[tuple[str, int, Poly]]:
    """(tensor, dim, coordinate) of all that a nest writes, reads or fetches."""
    for tensor, coords in (
        (nest.name, nest.coords),
        *((r.tensor, r.coords) for r in reads(nest.body)),
        *((a.tensor, a.coords) for a in fetches(nest.body)),
    ):
        yield from ((tensor, dim, coordinate) for dim, coordinate in enumerate(coords))


def digits_of(coordinate: Poly) -> list[tuple[str, Poly]]:
    """(index, weight) for every index of an affine coordinate."""
    weights, _ = affine(coordinate) or ({}, None)
    return [(atom.name, weight) for atom, weight in weights.items() if isinstance(atom, Idx)]


def _rename_classes(nests, find, taken: set[str]) -> ir.Nests:
    """Name each class by its last writer's index (outputs stand last), never two classes alike."""
    names: dict = {}
    for nest in reversed(nests):
        for b in nest.ranges:
            root = find(("index", nest.name, b.index))
            if root not in names:
                names[root] = ir.BATCH if b.index == ir.BATCH else fresh(b.index, taken)

    def own(nest: ir.Nest) -> dict[str, str]:
        every = (b.index for b in nest.ranges)
        return {i: names[find(("index", nest.name, i))] for i in every}

    return tuple(rename_nest(nest, own(nest)) for nest in nests)
