"""A box of any nests, as tiles: rows are decoded once a row, lanes lie along the last index, reducers are loops.

It takes what the general nest takes, and is right for every op. The general nest, one element a lane, is what all other
kernels are compared with.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.schedule.classes import nest
from tritongen.schedule.members import Group
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Step, Variant


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    found = nest.classify(members, virtual, by_name, facts, extending)
    if found is None or any(b.lo.terms for b in found.row):
        return None
    return replace(found, kind="box")


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts, rows="rows", cols="cols") -> Step:
    """`rows`, `cols`: what its rules call how many there are, in a step that has other rows."""
    axes = (Axis("row", group.row[:-1]), Axis("col", group.row[-1:]))
    kernel = KernelPlan(f"{name}_box", "box", axes, group.nests, stores)
    variant = Variant(
        "box",
        "True",
        "right for every shape: reducers as loops",
        (
            ("BLOCK", f"max(1, min(256, pow2({cols})))"),
            ("ROWS", "256 // BLOCK"),
            ("num_warps", "4"),
        ),
        (Launch(kernel.name, (f"cdiv({rows}, ROWS) * cdiv({cols}, BLOCK)",)),),
    )
    numbers = ((rows, axes[0].extent), (cols, axes[1].extent))
    return Step(name, "box", "no special form fits", stores, numbers, (kernel,), (variant,))
