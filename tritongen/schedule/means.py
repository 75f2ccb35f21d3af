"""Means of rows as folds of their own, if a sum of squares about the mean stands beside them.

    mu_sum[n] = sum[d](x[n, d]);  mu[n] = mu_sum[n] / D      is    mu[n] = mean[d](x[n, d])

in kernels of rows. A sum of large, nearly equal terms loses digits. The difference x - mu shows the loss, and a norm divides it
by nearly nothing: layer_norm of a row of equal numbers must be 0. A fold for the mean adds the mean of the remaining
differences. Input and output: nests, and their groups. Lines that read the sum only for its mean read the mean.

The mean of some terms, as in `mean[d < n[b]](x[b, d])`, has no such fold. `with_second_looks` writes the same as lines.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import inf

from tritongen.ir import nodes as ir
from tritongen.ir.bounds import Facts, terms_between, within
from tritongen.ir.free import tensors_read
from tritongen.ir.names import fresh, unlike
from tritongen.schedule.canonical import read_of, rename_nest, same, uncast
from tritongen.schedule.classes.rows import slid
from tritongen.schedule.members import Group, Product, is_reducer
from tritongen.schedule.paired import Row, is_mean, pairs_of, row_of, squared
from tritongen.schedule.plan import Axis


def with_means(
    nests: ir.Nests, groups: tuple[Group, ...], facts: Facts, outputs: Collection[str]
) -> tuple[ir.Nests, tuple[Group, ...]]:
    for k, group in enumerate(groups):
        if group.kind not in ("rows", "crossed") or slid(group.nests, group.row, group.col, facts):
            continue
        count = Axis("col", group.col).extent
        pairs = pairs_of(group.nests, count, facts)
        for first in [pair.first for pair in pairs if pair.kind == "moments"]:
            row = row_of(groups[k].nests, count, facts)
            fold = _fold(row, first, outputs, {n.name for n in nests})
            sums = alike(row, first)
            parts = (nests, *(g.nests for g in groups))
            every = [_with_fold(part, fold, row, sums) for part in parts]
            read = set(outputs).union(*(tensors_read(n.body) for part in every for n in part))
            nests, *own = (_without(part, sums, read) for part in every)
            products = [_factors(g.product, fold, row, sums) for g in groups]
            each = zip(groups, own, products, strict=True)
            groups = tuple(replace(g, nests=n, product=p) for g, n, p in each)
    return nests, groups


def with_second_looks(lines: ir.Nests, names: Collection[str], facts: Facts) -> ir.Nests:
    """Lines in which the mean of some terms has the mean of what is left added, if squares about it are summed.

    m[n] = m_sum[n] / c[n]      becomes      m_first[n] = m_sum[n] / c[n]
                                             m_rest[n] = sum[d < c[n]](x[n, d] - m_first[n])
                                             m[n] = m_first[n] + m_rest[n] / c[n]
    """
    by_name, taken = {n.name: n for n in lines}, {*names, *(n.name for n in lines)}
    looked: dict[str, ir.Nests] = {}
    for squares in lines:
        found = _mean_below(squares, by_name, facts)
        if found is None or found[0].name in looked:
            continue
        mean, total, count = found
        kind, whole = total.dtype, ir.Call("div", (read_of(total), count), total.dtype)
        name = fresh(f"{mean.name}_first", taken)
        first = replace(mean, name=name, body=whole, dtype=kind, part_of=mean.name)
        left = ir.Call("sub", (total.fold.body, read_of(first)), kind)
        name = fresh(f"{mean.name}_rest", taken)
        rest = replace(total, name=name, body=replace(total.fold, body=left))
        size, zero = ir.Call("abs", (read_of(first),), kind), ir.Const(0.0, kind)
        finite = ir.Call("lt", (size, ir.Const(inf, kind)), "bool")
        more = ir.Call("div", (read_of(rest), count), kind)
        both = ir.Call("add", (read_of(first), ir.Call("where", (finite, more, zero), kind)), kind)
        body = replace(mean.body, arg=both) if isinstance(mean.body, ir.Cast) else both
        looked[mean.name] = first, rest, replace(mean, body=body)
    return tuple(n for line in lines for n in looked.get(line.name, (line,)))


def _mean_below(
    squares: ir.Nest, by_name: dict[str, ir.Nest], facts: Facts
) -> tuple[ir.Nest, ir.Nest, ir.Expr] | None:
    """The mean of some terms about which a line sums the squares of the same terms: its line, that of its sum, the count."""
    if not is_reducer(squares) or squares.fold.op != "sum" or not squares.fold.guards:
        return None
    match squared(squares.fold.body):
        case ir.Call("sub", (term, ir.Read(name, coords) | ir.Cast(ir.Read(name, coords)))) if (
            name in by_name
        ):
            mean = by_name[name]
        case _:
            return None
    match uncast(mean.body):
        case ir.Call("div", (ir.Read(tensor, at), count)) if tensor in by_name:
            total = by_name[tensor]
        case _:
            return None
    alike = mean.box == total.box == squares.box
    if not (alike and mean.coords == coords == at == total.coords and is_reducer(total)):
        return None
    if not _is_number_of(total, uncast(count), by_name, facts):
        return None
    own = _renamed(total, squares.fold.binders)
    same_terms = own is not None and own.fold == replace(squares.fold, body=term)
    return (mean, total, count) if same_terms else None


def _is_number_of(
    total: ir.Nest, count: ir.Expr, by_name: dict[str, ir.Nest], facts: Facts
) -> bool:
    """Whether a value is the number of terms of a sum. A sum that is divided by another number is no mean."""
    match count:
        case ir.IndexValue(number):
            known = within(facts, {b.index: (b.lo, b.hi) for b in total.box})
            terms = terms_between(total.fold.binders, total.fold.guards, known)
            return terms is not None and same(facts, number, terms)
        case ir.Read(tensor, at) if tensor in by_name and is_reducer(by_name[tensor]):
            ones = by_name[tensor]
            if not ones.box == total.box or not ones.coords == at == total.coords:
                return False
            own = _renamed(total, ones.fold.binders)
            one = ir.Const(1, ones.fold.body.dtype)
            return own is not None and ones.fold == replace(own.fold, body=one, dtype=ones.dtype)
    return False


def _renamed(total: ir.Nest, binders: ir.Binders) -> ir.Nest | None:
    """A sum by the names of other binders."""
    own = total.fold.binders
    if len(own) != len(binders):
        return None
    return rename_nest(total, {b.index: c.index for b, c in zip(own, binders, strict=True)})


def alike(row: Row, first: str) -> list[str]:
    """The sums of a row that are the same: `x - mean[k](x)` beside the square of it has two."""
    total = row.nests[first]
    return [n.name for n in row.nests.values() if replace(n, name=first) == total]


def _fold(row: Row, first: str, outputs: Collection[str], taken: set[str]) -> ir.Nest:
    """Called as the line that divides, if one does nothing else."""
    total = row.nests[first]
    lines = (n for n in row.nests.values() if n.name not in outputs and is_mean(n.body, total, row))
    mean = replace(total.fold, op="mean")
    if (line := next(lines, None)) is not None:
        return replace(line, body=mean)
    return replace(total, name=unlike(f"{first}_mean", taken), body=mean)


def _with_fold(nests: ir.Nests, fold: ir.Nest, row: Row, sums: list[str]) -> ir.Nests:
    """The fold behind the first of the sums, where that is one of the nests, and read by all in their place."""
    found: list[ir.Nest] = []
    for nest in nests:
        if nest.name != fold.name:
            found.append(replace(nest, body=_reading(nest.body, fold, row, sums)))
        if nest.name in sums and fold not in found:
            found.append(fold)
    return tuple(found)


def _factors(product: Product | None, fold: ir.Nest, row: Row, sums: list[str]) -> Product | None:
    """The factors of a group's product read the fold too. What is packed before the kernel is named by them."""
    if product is None:
        return None
    left, right = (_reading(side, fold, row, sums) for side in (product.left, product.right))
    return replace(product, left=left, right=right)


def _reading(body: ir.Expr, fold: ir.Nest, row: Row, sums: list[str]) -> ir.Expr:
    """The expression with the fold in place of each of the sums divided by its number of terms."""

    def change(e: ir.Expr) -> ir.Expr:
        match e:
            case ir.Call(_, (ir.Read(tensor) as read, _)) if tensor in sums:
                return replace(read, tensor=fold.name) if is_mean(e, row.nests[tensor], row) else e
        return e

    return ir.rebuild(body, change)


def _without(nests: ir.Nests, sums: list[str], read: Collection[str]) -> ir.Nests:
    """A sum stays where it is read for something else."""
    return tuple(n for n in nests if n.name not in sums or n.name in read)
