"""A box of any nests, as tiles: rows are decoded once a row, lanes lie along the last index, reducers are loops.

It takes what the general nest takes, and is right for every op. The general nest, one element a lane, is what all other
kernels are compared with.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index
from tritongen.schedule.classes import nest
from tritongen.schedule.members import Group
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Order, Step, Variant
from tritongen.schedule.taps import of_whole_quotients


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    found = nest.classify(members, virtual, by_name, facts, extending)
    if found is None or any(b.lo.terms for b in found.row):
        return None
    return replace(found, kind="box")


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts, rows="rows", cols="cols") -> Step:
    """`rows`, `cols`: what its rules call how many there are, in a step that has other rows."""
    group = replace(group, nests=tuple(of_whole_quotients(n, facts) for n in group.nests))
    numbers, kernel, variant = _tiles(
        f"{name}_box", "box", group, stores, group.row[-1], rows, cols
    )
    why = "no special form fits"
    step = Step(name, "box", why, stores, numbers, (kernel,), (variant,))
    channel = _channel(group, stores) if group.kind == "box" else None
    if channel is None:
        return step
    own, kernel, variant = _tiles(
        f"{name}_box_channels", "channels", group, stores, channel, "outer", "lanes"
    )
    variant = replace(variant, when="stored_last", why=f"{variant.why}, lanes along the channels")
    return replace(
        step,
        facts=(*step.facts, *own),
        kernels=(kernel, *step.kernels),
        variants=(variant, *step.variants),
        orders=(Order("stored_last", stores[-1], 1, -1),),
    )


def _tiles(kernel: str, name: str, group: Group, stores, col: ir.Binder, rows: str, cols: str):
    """The sizes, the kernel and the variant whose lanes lie along one index."""
    axes = (Axis("row", tuple(b for b in group.row if b != col)), Axis("col", (col,)))
    plan = KernelPlan(kernel, "box", axes, group.nests, stores)
    variant = Variant(
        name,
        "True",
        "right for every shape: reducers as loops",
        (
            ("BLOCK", f"max(1, min(256, pow2({cols})))"),
            ("ROWS", "256 // BLOCK"),
            ("num_warps", "4"),
        ),
        (Launch(kernel, (f"cdiv({rows}, ROWS) * cdiv({cols}, BLOCK)",)),),
    )
    return ((rows, axes[0].extent), (cols, axes[1].extent)), plan, variant


def _channel(group: Group, stores) -> ir.Binder | None:
    """The index of the channels, if torch has a format for results that store them last."""
    coords = next(n.coords for n in group.nests if n.name == stores[-1])
    if len(coords) not in (4, 5) or len(group.row) != len(coords):
        return None
    return next((b for b in group.row if coords[1] == index(b.index)), None)
