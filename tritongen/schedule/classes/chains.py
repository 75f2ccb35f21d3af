"""Pairs of indices whose values only folds read, so that none of them has to be stored.

    s[i, j] = sum[e](q[i, e] * k[j, e])                     # a product over rows i and columns j
    m[i]    = max[j](s[i, j])                               # folds over one of the two
    o[i, e] = sum[j](exp(s[i, j] - m[i]) * v[j, e])         # second products
    g[j, e] = sum[i](s[i, j] * x[i, e])                     # and folds over the other one
    d[i, j] = sum[b](s[b, i, j])                            # or over batch dims: a bias's gradient

Input: canonical nests. Output: a `Pair` for (i, j). Kernels that walk blocks of one index and loop over the other compute
its values tile by tile (`classes/fused.py`), and so do kernels of a tile of both; a value that two need is computed by both.

Each kernel computes the first product again; so does a kernel of a second product that has no room for all columns of its
rows. So second products, and results over both indices, make a pair only where the first product has batch dims: the head of
an attention is narrow, a matrix of weights is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import fetches_of, indices, weight_of
from tritongen.ir.bounds import Facts
from tritongen.ir.free import all_indices, free_indices, needed, reads, tensors_read
from tritongen.ir.names import fresh
from tritongen.ir.rename import renamed
from tritongen.schedule.canonical import line_over, names_beside, read_of, rename_nest
from tritongen.schedule.classes.contraction import as_product
from tritongen.schedule.classes.contraction_operands import left_out, storage_dtype
from tritongen.schedule.members import Product, Virtual, is_reducer
from tritongen.schedule.plan import Dims


@dataclass(frozen=True, slots=True)
class Pair:
    """Two indices, the last of a product's rows and of its columns.

    `inside`: the values over both that follow from a product. `folds`: what reads them, folds and outputs over both.
    `batched`: whether each of the products has batch dims.
    """

    ends: tuple[ir.Binder, ir.Binder]
    inside: frozenset[str]
    folds: ir.Nests
    batched: bool

    @property
    def indices(self) -> frozenset[str]:
        return frozenset(b.index for b in self.ends)

    def loops(self, fold: ir.Nest) -> frozenset[str]:
        """Which of the two indices a fold sums over."""
        return self.indices & fold.reduced


def pairs(op: ir.Op, nests: ir.Nests, facts: Facts) -> tuple[Pair, ...]:
    """The pairs of an op; no value belongs to two of them."""
    # The gradient of a scalar does not count: it is f64 in each op that has a call in f64, also for calls in half types.
    told = replace(op, outputs=tuple(o for o in op.outputs if o.dims))
    if ir.may_compute_f64(told):
        return ()  # no tensor core adds up in f64 what is stored in half types
    outputs = {o.name for o in op.outputs}
    found, taken = list[Pair](), set[str]()
    for pair in all_pairs(op, nests, facts):
        own = pair.inside | {f.name for f in pair.folds}
        if own & taken or not _is_read_by_folds(pair, nests, outputs):
            continue
        inner = {b.index for n in nests if n.name in pair.inside for b in n.box}
        seconds = [f for f in pair.folds if f.over - inner]
        again = bool(seconds) or not all(map(pair.loops, pair.folds))
        if (pair.batched or not again) and all(
            is_multiplied(f) and is_half(f, op) for f in seconds
        ):
            found.append(pair)
            taken |= own
    return tuple(found)


def all_pairs(op: ir.Op, nests: ir.Nests, facts: Facts) -> Iterator[Pair]:
    """The pair of each product whose values are no outputs, whatever reads them."""
    outputs = {o.name for o in op.outputs}
    pointwise = Virtual(n for n in nests if not is_reducer(n) and n.name not in outputs)
    products = {n.name: p for n in nests if (p := _product(n, op, pointwise, facts))}
    for product in products.values():
        pair = _pair((product.m[-1], product.n[-1]), products, nests, outputs)
        if not pair.inside & outputs:
            yield pair


def _product(n: ir.Nest, op: ir.Op, pointwise: Virtual, facts: Facts) -> Product | None:
    """The nest as a product with one summed index, of factors stored in a half type."""
    product = as_product(n, pointwise, facts) if is_multiplied(n) and is_half(n, op) else None
    if product is None or product.taps:
        return None
    return product if len(product.k) == 1 else None


def _pair(
    ends: tuple[ir.Binder, ir.Binder],
    products: dict[str, Product],
    nests: ir.Nests,
    outputs: set[str],
) -> Pair:
    last = outputs - set().union(*(tensors_read(n.body) for n in nests))
    inside = set[str]()
    for n in nests:
        if {b.index for b in ends} <= n.over:
            p = products.get(n.name)
            if p and {p.m[-1], p.n[-1]} == set(ends):
                inside.add(n.name)
            elif tensors_read(n.body) & inside and not is_reducer(n) and n.name not in last:
                inside.add(n.name)
    folds = (n for n in nests if n.name not in inside and tensors_read(n.body) & inside)
    batched = all(products[name].batch for name in inside & products.keys())
    return Pair(ends, frozenset(inside), tuple(folds), batched)


def _is_read_by_folds(pair: Pair, nests: ir.Nests, outputs: set[str]) -> bool:
    """Whether all who read the values of a pair are folds or outputs, and read them where they are; some of them is a fold."""
    own = {n.name: n.coords for n in nests if n.name in pair.inside}
    in_place = all(reads_in_place(n, own) for n in nests)
    results = all(is_reducer(f) or f.name in outputs for f in pair.folds)
    return in_place and results and any(map(is_reducer, pair.folds))


def with_copies(op: ir.Op, nests: ir.Nests, facts: Facts) -> ir.Nests:
    """The nests, with copies of a pair's values for each reader that no fused kernel takes. The copies are stored.

        dtable[b, h, r] = sum[j](ds[b, h, j + S - 1 - r, j] else 0)
        dtable[b, h, t] = sum[i, j if bucket[i, j] == t](ds[b, h, i, j])

    are gradients of tables of relative positions, one for each batch. Without a copy of `ds` no other reader of it would be fused.
    """
    outputs = {o.name for o in op.outputs}
    for pair in all_pairs(op, nests, facts):
        own = {n.name: n.coords for n in nests if n.name in pair.inside}
        inner = {b.index for n in nests if n.name in pair.inside for b in n.box}
        odd = [f for f in pair.folds if not reads_in_place(f, own) or _scatters(f, inner)]
        rest = tuple(n for n in nests if n not in odd)
        fewer = replace(pair, folds=tuple(f for f in pair.folds if f in rest))
        if len(rest) < len(nests) and _is_read_by_folds(fewer, rest, outputs):
            return _copied(op, nests, pair.inside, rest)
    return nests


def reads_in_place(n: ir.Nest, own: Dims) -> bool:
    """Whether a line reads each of these values at its own place: `x[2, j]` is one that another program has."""
    found = (r for r in reads(n.body) if r.tensor in own)
    return all(r.coords == own[r.tensor] and r.fill is None for r in found)


def _scatters(n: ir.Nest, inner: set[str]) -> bool:
    """Whether an operand says which terms belong to an element: the gradient of a table that it reads."""
    if not isinstance(n.body, ir.Reduce):
        return False
    own = n.over - inner
    asked = (g.poly for g in n.fold.guards if indices(g.poly) & own)
    return any(map(fetches_of, asked))


def _copied(op: ir.Op, nests: ir.Nests, inside: frozenset[str], rest: ir.Nests) -> ir.Nests:
    """The nests. Those outside of `rest` read copies, each of which stands behind the value that it copies."""
    read = set[str]().union(*(tensors_read(n.body) for n in nests if n not in rest))
    copied = {n.name: n for n in needed(tuple(n for n in nests if n.name in inside), read)}
    taken = names_beside(op, nests)
    names = {n.name: fresh(f"{n.name}_all", taken) for n in nests if n.name in copied}
    taken |= all_indices(nests)
    both = dict.fromkeys(b.index for name in sorted(copied) for b in copied[name].box)
    aside = {i: fresh(i, taken) for i in both if i != ir.BATCH}  # those of another pair
    found = list[ir.Nest]()
    for n in nests:
        if n.name in copied:
            body = renamed(n.body, names)
            copy = replace(n, name=names[n.name], body=body, part_of=n.line)
            found += [n, rename_nest(copy, aside)]
        else:
            found.append(n if n in rest else replace(n, body=renamed(n.body, names)))
    return tuple(found)


def is_multiplied(n: ir.Nest) -> bool:
    match n.body:
        case ir.Reduce("sum", body=ir.Call("mul")):
            return True
    return False


def is_half(n: ir.Nest, op: ir.Op) -> bool:
    """Whether both factors are stored in one half type. Not where a condition leaves out some of one: chains have guards for that."""
    return not any(map(left_out, n.fold.factors)) and multiplies_halves(n, op)


def multiplies_halves(n: ir.Nest, op: ir.Op) -> bool:
    """Whether a product multiplies numbers of one half type."""
    narrow = storage_dtype(*n.fold.factors, op)
    return bool(narrow) and set(ir.dtypes_of(narrow, op)) <= {"f16", "bf16"}


def by_rows(op: ir.Op, nests: ir.Nests, facts: Facts) -> ir.Nests:
    """The nests, each sum over both indices of a pair as a sum of sums over one.

    dscale = sum[b, i, j](ds[b, i, j] * s[b, i, j])    is    rows[b, i] = sum[j](...);  dscale = sum[b, i](rows[b, i])
    """
    split = {
        f.name: pair.ends[1].index
        for pair in pairs(op, nests, facts)
        for f in pair.folds
        if len(pair.loops(f)) == 2 and f.fold.op == "sum"
    }
    taken = names_beside(op, nests) | all_indices(nests)
    found: list[ir.Nest] = []
    for n in nests:
        if n.name in split:
            rows, n = _rows(n, split[n.name], fresh(f"{n.name}_rows", taken))
            found.append(rows)
        found.append(n)
    return tuple(found)


def _rows(n: ir.Nest, loop: str, name: str) -> tuple[ir.Nest, ir.Nest]:
    """The sums over one index, and the sum of them."""
    own = tuple(b for b in n.fold.binders if b.index == loop)
    rest = tuple(b for b in n.fold.binders if b.index != loop)
    rows = line_over(name, (*n.box, *rest), replace(n.fold, binders=own), n.line)
    whole = replace(n.fold, binders=rest, guards=(), body=read_of(rows))
    return rows, replace(n, body=whole)


# ---- which elements no row has -------------------------------------------------------------------
def tells_terms(n: ir.Nest, row: str) -> bool:
    """Whether the ends of a tile's loop say which elements of the other factor some row has. True for folds that are no product.

    A kernel sets elements that no row has to 0, since they may be NaN. If data gives one end of each row's terms, the loop's end
    is enough. If data gives two ends or an equality, it is not, and the factor needs a flag (`with_seen`).
    """
    if not is_multiplied(n) or sum(row in free_indices(e) for e in n.fold.factors) != 1:
        return True
    asked = [g for g in n.fold.guards if row in indices(g.poly)]
    by_data = any(not weight_of(g.poly, row) for g in asked)
    said = any(isinstance(e, ir.Call) and e.fn == "seen" for e in n.fold.factors)
    return said or not by_data or len(asked) == 1 and asked[0].op == ">="


def with_seen(op: ir.Op, nests: ir.Nests, facts: Facts) -> ir.Nests:
    """The nests, with a flag for each element of a second product's factor: whether some row has it.

        o[i, e] = sum[begin[i] <= j <= i](p[i, j] * v[j, e])

    becomes

        seen[j] = any[i](begin[i] <= j <= i)
        o[i, e] = sum[begin[i] <= j <= i](p[i, j] * where(seen[j], v[j, e], 0))

    The plan writes this `where` as the call `seen`, which exists only in plans. Flags are added where `tells_terms` is False.
    """
    taken = names_beside(op, nests)
    flags: dict[tuple[object, ...], ir.Nest] = {}
    changed: dict[str, ir.Nest] = {}
    for pair in pairs(op, nests, facts):
        for f in pair.folds:
            row, *others = pair.indices - pair.loops(f) or {""}
            if others or tells_terms(f, row):
                continue
            asked = set().union(*(indices(g.poly) for g in f.fold.guards))
            (factor,) = (e for e in f.fold.factors if row not in free_indices(e))
            used = asked & free_indices(factor)
            own = tuple(b for b in (*f.box, *f.fold.binders) if b.index in used)
            rest = tuple(b for b in f.box if b.index in asked and b not in own)
            key = (*own, f.fold.guards)
            if key not in flags:
                some = ir.Reduce("any", rest, f.fold.guards, ir.Const(True, "bool"), "bool")
                flags[key] = line_over(fresh("seen", taken), own, some, f.line)
            said = ir.Call("seen", (read_of(flags[key]), factor), factor.dtype)
            sides = tuple(said if e is factor else e for e in f.fold.factors)
            product = ir.Call("mul", sides, f.fold.body.dtype)
            changed[f.name] = replace(f, body=replace(f.fold, body=product))
    found, left, waiting = list[ir.Nest](), {n.name for n in nests}, [*flags.values()]
    for n in nests:  # each flag stands behind the bounds that it reads
        ready = [f for f in waiting if not tensors_read(f.body) & left]
        found += [*ready, changed.get(n.name, n)]
        waiting = [f for f in waiting if f not in ready]
        left.discard(n.name)
    return tuple(found)
