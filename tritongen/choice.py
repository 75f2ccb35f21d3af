"""Evaluates `choose_<step>` on a plan: the variants that a call may take, and the estimate of each.

    holding(step, facts)[0]      # the variant that the call takes

`facts` are the arguments of the generated function: sizes, dtypes and layouts of one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritongen.lib import estimates
from tritongen.schedule.estimates import in_turn, shared
from tritongen.schedule.plan import Step, Variant
from tritongen.schedule.rules import OF_GPU, evaluate


def of_gpu(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a call, and by its `gpu`, if it has one, those that rules speak of."""
    known = {name: getattr(facts["gpu"], name) for name in OF_GPU} if "gpu" in facts else {}
    return {**facts, **known}


def holding(step: Step, facts: Mapping[str, Any]) -> list[Variant]:
    """The variants whose conditions hold, the chosen one first. The last variant of a step takes any call."""
    first, compared, others = in_turn(step)
    held = {v.name for v in step.variants if evaluate(v.when, facts)}
    found = sorted(
        (v for v in compared if v.name in held),
        key=lambda v: (microseconds(step, v, facts), v.name),
    )
    return [v for v in (*first, *found, *others) if v.name in held]


def microseconds(step: Step, variant: Variant, facts: Mapping[str, Any]) -> float:
    """The estimate of a variant that has one."""
    estimate, config = variant.estimate, dict[str, int]()
    assert estimate is not None
    for name, rule in variant.config:
        config[name] = evaluate(rule, {**facts, **config})
    asked = (evaluate(rule, {**facts, **config}) for rule in estimate.asked)
    sizes, others = shared(step)
    call = tuple(evaluate(rule, facts) for rule in sizes), *(evaluate(r, facts) for r in others)
    return getattr(estimates, estimate.model)(call, config, estimate.kind, *asked)
