"""Which layouts the kernels of a plan can store: what `allocation.py` may ask for.

Input: an op's plans. Output: for each output any layout, channels last or torch's own, with those stored together.
"""

from __future__ import annotations

from tritongen.emit.allocation import ANY, CHANNELS_LAST
from tritongen.emit.op_plans import OpPlans
from tritongen.ir import nodes as ir
from tritongen.schedule.plan import Plan, Step


def kept(item: OpPlans) -> dict[str, tuple[str, tuple[str, ...]]]:
    """What layouts each output may have, and the outputs that have the same one: they are stored together."""
    known = [layouts(p, host) for p, host in zip(item.plans, item.hosts, strict=True)]
    return {o.name: min(k.get(o.name, ("", ())) for k in known) for o in item.hosts[0].outputs}


def layouts(plan: Plan, host: ir.Op) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Outputs of any layout, or channels last, by what `host` calls them."""
    own = {o.name: p.name for o, p in zip(plan.inner.outputs, host.outputs, strict=True)}
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for step in plan.steps:
        together = tuple(own[name] for name in step.stores if name in own)
        for name in own.keys() & set(step.stores):
            if step.merged:
                found[own[name]] = ANY, together
            elif all(takes_images(s, name) for s in plan.steps):
                found[own[name]] = CHANNELS_LAST, (own[name],)
    return found


def takes_images(step: Step, tensor: str) -> bool:
    """Whether a tensor may be stored channels last: a step asks for strides, and does not reshape it."""
    asks = step.orders or any(k.slides or k.any_format for k in step.kernels)
    reshaping = [k for k in step.kernels if not (step.orders or k.any_format)]
    if asks and all(v.tensor != tensor for k in reshaping for v in k.views):
        return True
    return tensor not in step.touched


def alike(plan: Plan) -> dict[str, str]:
    """Temporaries between steps, with the output whose layout they share, if all steps take strides."""
    known = layouts(plan, plan.inner)
    found = {}
    for nest in plan.scratch:
        if len(nest.dims) in (4, 5) and all(takes_images(s, nest.name) for s in plan.steps):
            for o in plan.inner.outputs:
                if o.dims == nest.dims and o.name in known:
                    found[nest.name] = o.name
    return found
