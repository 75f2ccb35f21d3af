"""Forces every way to run an op: a module's `choose_<step>` functions answer as told.

    for way in ways(plan):
        with forced(module, plan, way, small=True):
            module.softmax(x)

`small` shrinks the blocks, so that small shapes meet several tiles, loops and parts. `tritongen.trace` says which variant a
call would choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

from tritongen import lib
from tritongen.choice import of_gpu
from tritongen.schedule.plan import Plan, Step, Variant
from tritongen.schedule.rules import evaluate
from tritongen.schedule.tunable import asked

SMALL = {
    **{"BLOCK": 16, "ROWS": 2, "STEPS": 2, "PARTS": 4, "TERMS": 64},
    **{"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 2},
    **{"num_warps": 4},
}


@dataclass(frozen=True, slots=True)
class Way:
    """A variant for each step; where a step has fewer, or the call rules it out, its last: any call fits that."""

    name: str
    variants: tuple[tuple[str, str], ...]  # step, variant


def ways(plan: Plan) -> tuple[Way, ...]:
    count = max(len(s.variants) for s in plan.steps)
    found = {}
    for k in range(count):
        chosen = tuple((s.name, s.variants[min(k, len(s.variants) - 1)].name) for s in plan.steps)
        found["+".join(dict.fromkeys(v for _, v in chosen))] = chosen
    return tuple(Way(name, chosen) for name, chosen in found.items())


@contextmanager
def watched(module: ModuleType, plan: Plan) -> Iterator[dict[str, str]]:
    """Records the variant that each step took in the calls inside. A call may rule out what is forced."""
    told: dict[str, str] = {}
    before = {f"choose_{s.name}": getattr(module, f"choose_{s.name}") for s in plan.steps}
    for step in plan.steps:
        setattr(module, f"choose_{step.name}", _noting(before[f"choose_{step.name}"], step, told))
    try:
        yield told
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _noting(choose: Any, step: Step, told: dict[str, str]) -> Any:
    def answer(**facts: int) -> tuple[str, dict[str, int]]:
        told[step.name], config = choose(**facts)
        return told[step.name], config

    return answer


@contextmanager
def forced(
    module: ModuleType, plan: Plan, way: Way, small: bool, least_parts: int = 1
) -> Iterator[None]:
    """`least_parts`: that share a sum, where the variant has any: calls of a common size have one."""
    before = {}
    for step_name, variant_name in way.variants:
        step = next(s for s in plan.steps if s.name == step_name)
        variant = next(v for v in step.variants if v.name == variant_name)
        name = f"choose_{step_name}"
        before[name] = getattr(module, name)
        setattr(module, name, _chooser(step, variant, small, least_parts))
    try:
        with chunks_forced(small):
            yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def chunks_forced(small: bool) -> AbstractContextManager[Any]:
    """Several chunks, where calls of a common size have one."""
    return patch.object(lib, "chunk_size", _thirds) if small else nullcontext()


def _thirds(size: int, each: int) -> int:
    """Three chunks, of which the last may be shorter."""
    return max(1, -(-size // 3))


def _chooser(step: Step, variant: Variant, small: bool, least_parts: int) -> Any:
    def answer(**facts: Any) -> tuple[str, dict[str, int]]:
        facts = of_gpu(facts)
        chosen = variant if may_run(variant, facts) else step.variants[-1]
        return chosen.name, config_of(step, chosen, facts, small, least_parts)

    return answer


def may_run(variant: Variant, facts: Mapping[str, int]) -> bool:
    """Whether the variant is right for such a call, be it the best one or not."""
    return bool(evaluate(variant.requires, facts))


def config_of(
    step: Step, variant: Variant, facts: dict[str, int], small: bool, least_parts: int = 1
) -> dict[str, int]:
    """The variant's config for these facts; a later rule may speak of an earlier entry."""
    kept = asked(step, variant)
    config: dict[str, int] = {}
    for name, rule in variant.config:
        value = evaluate(rule, {**facts, **config})
        if small and name in SMALL and name not in kept:
            value = SMALL[name]
        config[name] = max(value, least_parts) if name == "PARTS" else value
    kernels = (step.kernel(run.kernel).kernel for run in variant.launches)
    for w in (w for k in kernels if k and small for w in k.walks if w.rest):
        if not config[w.rest]:  # calls of a common size have one block
            config[w.block] = config[w.rest] = max(16, config[w.block] // 2)
    return config
