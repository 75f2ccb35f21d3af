"""What `choose_<step>` does, on a plan: which variants a call may take, and what each is estimated to take.

    holding(step, facts)[0]      # the variant that the call takes

`facts` are those that the generated function is given: sizes, dtypes and layouts of one call.
"""

from __future__ import annotations

from collections.abc import Mapping

from tritongen.runtime.products import product_us
from tritongen.schedule.plan import Step, Variant
from tritongen.schedule.rules import evaluate


def holding(step: Step, facts: Mapping[str, int]) -> list[Variant]:
    """The variants whose conditions hold, what is chosen first; the last one of a step takes any call."""
    found = [v for v in step.variants if evaluate(v.when, facts)]
    estimated = [v for v in found if v.estimate is not None]
    estimated.sort(key=lambda v: (microseconds(step, v, facts), v.name))
    return [*estimated, *(v for v in found if v.estimate is None)]


def microseconds(step: Step, variant: Variant, facts: Mapping[str, int]) -> float:
    """The estimate of a variant that has one."""
    estimate, config = variant.estimate, dict[str, int]()
    assert estimate is not None
    for name, rule in variant.config:
        config[name] = evaluate(rule, {**facts, **config})
    return product_us(
        estimate.kind,
        config,
        estimate.sums,
        evaluate(estimate.ahead, facts),
        (facts.get("batches", 1), facts["M"], facts["N"], facts["K"]),
        facts["itemsize"],
        facts["stored_bytes"],
        facts["copied_bytes"],
        facts["turned_bytes"],
        bool(facts["wide"]),
        bool(step.precision and facts["tf32x3"]),
        facts["sms"],
    )
