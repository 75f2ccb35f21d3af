"""Means of rows as folds of their own, if a sum of squares about the mean stands beside them.

    mu_sum[n] = sum[d](x[n, d]);  mu[n] = mu_sum[n] / D      is    mu[n] = mean[d](x[n, d])

in kernels of rows. A sum of large, nearly equal terms loses digits. The difference x - mu shows the loss, and a norm divides it
by nearly nothing: layer_norm of a row of equal numbers must be 0. A fold for the mean adds the mean of the remaining
differences. Input and output: nests, and their groups. Lines that read the sum only for its mean read the mean.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.bounds import Facts
from tritongen.ir.free import tensors_read
from tritongen.schedule.classes.rows import slid
from tritongen.schedule.members import Group
from tritongen.schedule.paired import Row, is_mean, pairs_of, row_of
from tritongen.schedule.plan import Axis

Nests = tuple[ir.Nest, ...]


def with_means(
    nests: Nests, groups: tuple[Group, ...], facts: Facts, outputs: Collection[str]
) -> tuple[Nests, tuple[Group, ...]]:
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
            groups = tuple(replace(g, nests=p) for g, p in zip(groups, own, strict=True))
    return nests, groups


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
    name = f"{first}_mean"
    while name in taken:
        name += "_"
    return replace(total, name=name, body=mean)


def _with_fold(nests: Nests, fold: ir.Nest, row: Row, sums: list[str]) -> Nests:
    """The fold behind the first of the sums, where that is one of the nests, and read by all in their place."""

    def change(e: ir.Expr) -> ir.Expr:
        match e:
            case ir.Call(_, (ir.Read(tensor) as read, _)) if tensor in sums:
                return replace(read, tensor=fold.name) if is_mean(e, row.nests[tensor], row) else e
        return e

    found: list[ir.Nest] = []
    for nest in nests:
        if nest.name != fold.name:
            found.append(replace(nest, body=ir.rebuild(nest.body, change)))
        if nest.name in sums and fold not in found:
            found.append(fold)
    return tuple(found)


def _without(nests: Nests, sums: list[str], read: Collection[str]) -> Nests:
    """A sum stays where it is read for something else."""
    return tuple(n for n in nests if n.name not in sums or n.name in read)
