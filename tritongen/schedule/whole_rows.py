"""Rows that fit in registers, lowered as any kernel of `tritongen/kernel` is: the first kernel of a step of rows.

    whole_rows(name, group, stores, dims)    # a KernelPlan over ROWS rows of BLOCK columns; None for other rows

They take 0.99 of the time of the template that prints other rows (docs/lab/listed.md).
"""

from __future__ import annotations

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly
from tritongen.ir.free import reads
from tritongen.kernel.lower import CannotLower, lower
from tritongen.kernel.nodes import Walk
from tritongen.kernel.verify import verify
from tritongen.schedule.classes.crossed import ACROSS, is_plain, views_of
from tritongen.schedule.members import Group, fetches, is_reducer
from tritongen.schedule.plan import KernelPlan, walked_axes


def whole_rows(
    name: str, group: Group, stores: tuple[str, ...], dims: dict[str, tuple[Poly, ...]]
) -> KernelPlan | None:
    """Rows of one index, with columns of one index that lie along memory, read at indices alone."""
    if len(group.row) != 1 or len(group.col) != 1 or not all(map(_is_whole, group.nests)):
        return None
    (row,), (col,) = group.row, group.col
    own = {row.index: row.hi, col.index: col.hi}
    every = (b for n in group.nests for b in n.ranges)
    if any(b.lo.terms or own.get(b.index) != b.hi for b in every):
        return None
    seen = tuple(views_of(group, stores, dims))
    if any(view.runs[-1] != (col.index,) for view in seen):
        return None
    walks = Walk(row.index, row.hi, "tile", "ROWS"), Walk(col.index, col.hi, "whole", "BLOCK")
    try:
        kernel = lower(name, group.nests, walks, stores)
    except CannotLower:
        return None
    verify(kernel, group.nests, stores)
    return KernelPlan(
        name, "fused", walked_axes(walks), group.nests, stores, views=seen, kernel=kernel
    )


def _is_whole(nest: ir.Nest) -> bool:
    """Whether a line takes every element of each row alike."""
    if is_reducer(nest) and (nest.fold.op not in ACROSS or nest.fold.guards):
        return False
    return not any(True for _ in fetches(nest.body)) and all(map(is_plain, reads(nest.body)))
