"""Results that a call may leave out: those of a gradient, each with a flag.

    def layer_norm_backward(x, w, dy, eps, need_dx: bool = True, need_dw: bool = True) -> ...

A result that is not wanted is None, and has no storage. A step runs if some result that depends on it is wanted. The results of
one kernel are computed together, but for those that it may leave out. `runtime/gradients.py` sets the flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tritongen.ir import nodes as ir
from tritongen.ir.names import unlike
from tritongen.schedule.aside import all_names
from tritongen.schedule.plan import Plan, Step


def flags(plan: Plan, host: ir.Op) -> dict[str, str]:
    """The flag of each result, by its name in the spec. None if all of them are always computed together."""
    if all(len(led) == len(plan.op.outputs) for led in needed_for(plan).values()):
        return {}
    taken = {name for op in (plan.op, plan.inner, host) for name in all_names(op)}
    return {o.name: unlike(f"need_{o.name}", taken) for o in plan.op.outputs}


def leads_to(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The outputs that follow from what each step stores, in the op's order."""
    order = [o.name for o in plan.inner.outputs]
    led = {s.name: set[str]().union(*(plan.leads[n] for n in s.stores)) for s in plan.steps}
    return {name: tuple(o for o in order if o in own) for name, own in led.items()}


def needed_for(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The outputs for which each stored value is computed: those of its step, or its own if the step may leave it out."""
    led = leads_to(plan)
    return {
        name: tuple(o for o in led[s.name] if name not in s.optional or o in plan.leads[name])
        for s in plan.steps
        for name in s.stores
    }


def left_out(plan: Plan, step: Step) -> frozenset[str]:
    """The values that a step leaves out of some call in which it runs."""
    led, needed = leads_to(plan)[step.name], needed_for(plan)
    return frozenset(name for name in step.stores if len(needed[name]) < len(led))


def any_there(outputs: Iterable[str]) -> str:
    """The condition under which a step that leads to these runs."""
    return " or ".join(f"{name} is not None" for name in outputs)


def conditions(plan: Plan) -> dict[str, str]:
    """The condition under which each stored value is needed, "" where all outputs follow from its step."""
    every, led = len(plan.inner.outputs), needed_for(plan)
    return {name: any_there(own) if len(own) < every else "" for name, own in led.items()}


def allocated_for(plans: Iterable[Plan], flag: Mapping[str, str]) -> dict[str, str]:
    """The condition under which each output is allocated: that what it is computed for is asked for, in some plan.

    "" where that is every result.
    """
    found: dict[str, set[str]] = {}
    for plan in plans:
        named = dict(zip((o.name for o in plan.inner.outputs), flag.values(), strict=True))
        for name, led in needed_for(plan).items():
            if name in named:
                found.setdefault(name, set()).update(named[o] for o in led)
    some = {o: own if len(own) < len(flag) else () for o, own in found.items()}
    return {o: " or ".join(n for n in flag.values() if n in own) for o, own in some.items()}
