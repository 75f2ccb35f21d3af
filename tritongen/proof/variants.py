"""Every way to run an op, forced: a module's `choose_<step>` functions answer as told.

    for way in ways(plan):
        with forced(module, plan, way, small=True):
            module.softmax(x)

`small` shrinks the blocks, so that small shapes meet several tiles, loops and parts. Not here: which
variant a call would choose (`tritongen.trace`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tritongen.runtime.precision import f32_precision
from tritongen.schedule.plan import Plan, Step, Variant
from tritongen.schedule.rules import conjuncts, evaluate, names, parse

SMALL = {
    **{"BLOCK": 16, "ROWS": 2, "STEPS": 2, "PARTS": 4, "TERMS": 64},
    **{"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32, "GROUP_M": 2},
    **{"num_warps": 4},
}
# facts without which a variant that speaks of them cannot run
NEEDED = frozenset({"tma", "patched", "one_tap", "as_rows", "tf32x3", "in_order"})


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


def meant_for(
    plan: Plan, way: Way, args: Mapping[str, Any], hip: bool = False, tma: bool = True
) -> bool:
    """Whether what the conditions say of the device, an element's size and products of f32 lets such a call come."""
    itemsize = max(
        (v.element_size() for v in args.values() if hasattr(v, "element_size")), default=1
    )
    for step_name, variant_name in way.variants:
        step = next(s for s in plan.steps if s.name == step_name)
        when = next(v.when for v in step.variants if v.name == variant_name)
        known = {"itemsize": itemsize, "hip": hip, "tma": tma, "patched": tma}
        if step.precision:
            known["tf32x3"] = f32_precision(step.precision) == "tf32x3"
        settled = [p for p in conjuncts(when) if names(p) and names(p) <= set(known)]
        if not all(evaluate(part, known) for part in settled):
            return False
    return True


@contextmanager
def forced(module: ModuleType, plan: Plan, way: Way, small: bool) -> Iterator[None]:
    before = {}
    for step_name, variant_name in way.variants:
        step = next(s for s in plan.steps if s.name == step_name)
        variant = next(v for v in step.variants if v.name == variant_name)
        name = f"choose_{step_name}"
        before[name] = getattr(module, name)
        setattr(module, name, _chooser(before[name], step, variant, small))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _chooser(choose: Any, step: Step, variant: Variant, small: bool) -> Any:
    names = choose.__code__.co_varnames[: choose.__code__.co_argcount]

    def answer(*facts: int) -> tuple[str, dict[str, int]]:
        known = dict(zip(names, facts, strict=True))
        chosen = variant if may_run(variant, known) else step.variants[-1]
        return chosen.name, config_of(step, chosen, known, small)

    return answer


def may_run(variant: Variant, facts: Mapping[str, int]) -> bool:
    """Whether what is more than a matter of speed holds: equations, that something is there at all, and

    that what is unrolled (`terms`) is little enough to compile, and what is NEEDED.
    """
    if any(not facts[name] for name in NEEDED & names(variant.when)):
        return False
    if "not channels_last" in conjuncts(variant.when) and facts["channels_last"]:
        return False  # the result cannot be seen as rows
    for part in ast.walk(parse(variant.when)):
        if not isinstance(part, ast.Compare):
            continue
        sides = (part.left, *part.comparators)
        for left, op, right in zip(sides, part.ops, sides[1:], strict=False):
            there = isinstance(left, ast.Constant) and left.value == 0 and isinstance(op, ast.Lt)
            few = isinstance(left, ast.Name) and left.id == "terms"
            if there or few or isinstance(op, ast.Eq):
                if not evaluate(ast.unparse(ast.Compare(left, [op], [right])), facts):
                    return False
    return True


def config_of(step: Step, variant: Variant, facts: dict[str, int], small: bool) -> dict[str, int]:
    """The variant's config for these facts; a later rule may speak of an earlier entry."""
    skeletons = {step.kernel(run.kernel).skeleton for run in variant.launches}
    whole = {"rows", "lines", "lines_loop", "nest"}  # a BLOCK holds rows or lines; slow where many
    kept = {"BLOCK"} if skeletons & whole else set()
    kept |= {"BLOCK", "ROWS"} if "box" in skeletons else set()
    kept |= {"BLOCK_K"} if "patches" in skeletons else set()  # divides the channels
    config: dict[str, int] = {}
    for name, rule in variant.config:
        value = evaluate(rule, {**facts, **config})
        if small and name in SMALL and name not in kept:
            value = SMALL[name]
        config[name] = value
    return config
