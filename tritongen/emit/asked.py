"""Results that a call may leave out: those of a gradient, each with a flag.

    def layer_norm_backward(x, w, dy, eps, need_dx: bool = True, need_dw: bool = True) -> ...

A result that is not wanted is None, and has no storage. A step runs if some result that depends on it is wanted. The results of
one kernel are computed together. `runtime/gradients.py` sets the flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tritongen.emit.facts import touched
from tritongen.ir import nodes as ir
from tritongen.schedule.aside import all_names
from tritongen.schedule.plan import Plan


def flags(plan: Plan, host: ir.Op) -> dict[str, str]:
    """The flag of each result, by its name in the spec. None if one step computes all of them."""
    if all(len(led) == len(plan.op.outputs) for led in leads_to(plan).values()):
        return {}
    taken = {name for op in (plan.op, plan.inner, host) for name in all_names(op)}
    found: dict[str, str] = {}
    for output in plan.op.outputs:
        flag = f"need_{output.name}"
        while flag in taken:
            flag += "_"
        found[output.name] = flag
    return found


def leads_to(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The outputs that follow from what each step stores, in the op's order."""
    found: dict[str, set[str]] = {}
    for step in reversed(plan.steps):
        later = (s for s in plan.steps if s.name in found and set(touched(s)) & set(step.stores))
        own = set(step.stores) & {o.name for o in plan.inner.outputs}
        found[step.name] = own.union(*(found[s.name] for s in later))
    order = [o.name for o in plan.inner.outputs]
    return {name: tuple(o for o in order if o in led) for name, led in found.items()}


def any_there(outputs: Iterable[str]) -> str:
    """The condition under which a step that leads to these runs."""
    return " or ".join(f"{name} is not None" for name in outputs)


def allocated_for(plans: Iterable[Plan], flag: Mapping[str, str]) -> dict[str, str]:
    """The condition under which each output is allocated: that one of those of its step is asked for, in some plan."""
    found: dict[str, dict[str, None]] = {}
    for plan in plans:
        named = dict(zip((o.name for o in plan.inner.outputs), flag.values(), strict=True))
        led = leads_to(plan)
        for step in plan.steps:
            for o in named.keys() & set(step.stores):
                found.setdefault(o, {}).update(
                    dict.fromkeys(named[name] for name in led[step.name])
                )
    return {
        o: " or ".join(name for name in flag.values() if name in own) for o, own in found.items()
    }
