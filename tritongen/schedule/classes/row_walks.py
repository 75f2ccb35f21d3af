"""Rows by walks: what `rows.py` plans with levels and templates, lowered as any kernel of `tritongen/kernel` is.

It is planned where it is asked for (`only="row_walks"`), to compare both in the proof, in PTX and in time. A row is held
whole in registers, or walked in blocks, once for each fold that waits for another.
"""

from __future__ import annotations

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly
from tritongen.ir.free import binders_of, reads
from tritongen.kernel.lower import CannotLower, lower
from tritongen.kernel.nodes import Kernel, Walk
from tritongen.kernel.verify import verify
from tritongen.schedule.classes import rows
from tritongen.schedule.classes.crossed import ACROSS, is_plain, views_of, with_sums
from tritongen.schedule.members import Group, fetches, is_reducer
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Step, Variant


def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    """Rows of one index, with columns of one index, that are read at indices alone."""
    group = rows.classify(members, virtual, by_name, facts, extending)
    if group is None or len(group.row) != 1 or len(group.col) != 1:
        return None
    own = {b.index: b.hi for b in (*group.row, *group.col)}
    for n in group.nests:
        if any(b.lo.terms or own.get(b.index) != b.hi for b in (*n.box, *binders_of(n))):
            return None
        if is_reducer(n) and (n.fold.op not in ACROSS or n.fold.guards):
            return None
        if any(True for _ in fetches(n.body)) or not all(map(is_plain, reads(n.body))):
            return None
    try:
        for how in ("whole", "loop"):
            _lowered("", group, tuple(n.name for n in members), how, {})
    except CannotLower:
        return None
    return Group("row_walks", group.nests, group.row, group.col)


def _lowered(
    name: str, group: Group, stores: tuple[str, ...], how: str, dims: dict[str, tuple[Poly, ...]]
) -> tuple[Kernel, tuple[ir.Nest, ...]]:
    (row,), (col,) = group.row, group.col
    nests = group.nests if how == "whole" else with_sums(group.nests, col.hi, dims)
    block = "WIDTH" if how == "whole" else "BLOCK"
    walks = Walk(row.index, row.hi, "tile", "ROWS"), Walk(col.index, col.hi, how, block)
    kernel = lower(name, nests, walks, stores)
    verify(kernel, nests, stores)
    return kernel, nests


def make(name, group, stores, dims, facts) -> Step:
    (row,), (col,) = group.row, group.col
    seen = tuple(views_of(group, stores, dims))
    kernels = []
    for what, how in (("rows", "whole"), ("loop", "loop")):
        own, nests = _lowered(f"{name}_{what}", group, stores, how, dims)
        axes = tuple(Axis(w.index, (ir.Binder(w.index, Poly(), w.extent),)) for w in own.walks)
        kernels.append(KernelPlan(own.name, "fused", axes, nests, stores, views=seen, kernel=own))
    whole, loop = kernels
    fits = "cols <= (4096 if in_f64 else 16384)"
    variants = (
        Variant(
            "rows",
            fits,
            "rows fit in registers: each is read once",
            (
                ("WIDTH", "max(16, pow2(cols))"),
                ("ROWS", "max(1, 1024 // WIDTH)"),
                ("num_warps", "min(16, max(1, ROWS * WIDTH // 512))"),
            ),
            (Launch(whole.name, ("cdiv(rows, ROWS)",)),),
            requires=fits,
        ),
        Variant(
            "loop",
            "True",
            "any width",
            (("ROWS", "1"), ("BLOCK", "4096"), ("num_warps", "8"), ("STAGES", "2")),
            (Launch(loop.name, ("cdiv(rows, ROWS)",)),),
        ),
    )
    why = "folds over the columns of each row"
    return Step(
        name,
        "row_walks",
        why,
        stores,
        (("rows", row.hi), ("cols", col.hi)),
        (whole, loop),
        variants,
    )
