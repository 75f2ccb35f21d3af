"""The general nest: anything over one box, an element a lane, reducers as loops. Right for every op."""

from __future__ import annotations

from tritongen.schedule.members import Group, gather_lines, is_reducer
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Step, Variant


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    """One box: every member over it, reducers as loops."""
    names = members[0].over
    if any(n.over != names for n in members):
        return None
    if extending and any(is_reducer(n) for n in members[1:]):
        return None
    lines = gather_lines(members, virtual, names)
    if any(n.over - names for n in lines):
        return None
    return Group("nest", lines, members[0].box)


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    axes = (Axis("i", group.row),)
    kernel = KernelPlan(f"{name}_nest", "nest", axes, group.nests, stores)
    variant = Variant(
        "nest",
        "True",
        "right for every shape: an element a lane, reducers as loops",
        (("BLOCK", "256"), ("num_warps", "4")),
        (Launch(kernel.name, ("cdiv(total, BLOCK)",)),),
    )
    facts_ = (("total", axes[0].extent),)
    return Step(name, "nest", "no special form fits", stores, facts_, (kernel,), (variant,))
