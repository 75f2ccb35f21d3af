"""Compiles every kernel of a spec, and of its gradient, for a GPU that need not be there.

    report = compile_spec(text, "drawn", seed=0)
    report["findings"]

It draws one choice of dtypes, forces every variant, and compiles each kernel in the config of one of them. The interpreter
takes much that the compiler refuses. The process must not have TRITON_INTERPRET.

Not here: running kernels (`trial.py`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from random import Random
from types import ModuleType
from typing import Any

import triton

from tritongen import pipeline, trace
from tritongen.proof.cases import NoCase, dtype_choices
from tritongen.proof.crosscompile import (
    compile_one,
    each_kernel,
    launches_of,
    lower_one,
    moves_sums,
)
from tritongen.proof.fuzz import defined
from tritongen.proof.fuzz.trial import last_lines
from tritongen.runtime.load import load_text
from tritongen.schedule.plan import Plan
from tritongen.show import gradient_text

SIZES = (64, 64, 16, 24, 7, 130)
MORE = 2  # configs beyond one of each kernel
WHOLE = 1  # kernels of an op that become machine code; the others go through Triton's own passes


def compile_spec(
    text: str,
    name: str,
    seed: int,
    target: str = "sm_90",
    more: int = MORE,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Returns plain data: what did not compile, and how many kernels did. `say` gets each kernel before its turn."""
    warnings.filterwarnings("ignore")
    start, findings, kernels = time.monotonic(), [], 0
    random = Random(seed)
    for stage, module, plan in _plans(text, name):
        try:
            choice = random.choice(dtype_choices(plan.op, "cuda"))
            label = ", ".join(f"{k}={v}" for k, v in choice.items()) or "fixed"
            launches = _launches(module, plan, choice, random, target, more)
            for k, (variant, word, _, launch) in enumerate(launches):
                build = compile_one if k >= len(launches) - WHOLE else lower_one
                kernel = launch.kernel.fn.__name__
                where = f"{kernel} ({variant}; {label}) for {target}, Triton {triton.__version__}"
                say(stage + where)  # a compiler may end the process
                one = build(launch, word, variant, label, target, moves_sums(plan, kernel))
                kernels += 1
                if one.problem:
                    finding = {"stage": f"{stage}compile", "problem": one.problem, "call": where}
                    findings.append(finding)
        except NoCase:
            continue
        except Exception as error:
            problem = last_lines(error)
            findings.append({"stage": f"{stage}trace", "problem": problem, "call": plan.op.name})
    seconds = {"compile": round(time.monotonic() - start, 3)}
    return {"findings": findings, "refused": [], "kernels": kernels, "seconds": seconds}


def _plans(text: str, name: str) -> Iterator[tuple[str, ModuleType, Plan]]:
    """The plans of the spec and of its gradient, if they build. The trial reports failures."""
    for stage in ("", "gradient "):
        try:
            source = gradient_text(text, name) if stage.startswith("gradient") else text
            built = pipeline.build(source, name)
            if defined.problems(built.raw):
                continue
            module = load_text(built.name, built.raw)
        except Exception:
            continue
        for plan in (plan for plans in built.plans.values() for plan in plans):
            yield stage, module, plan


def _launches(
    module: ModuleType, plan: Plan, choice: dict[str, str], random: Random, target: str, more: int
) -> list[tuple[str, str, bool, trace.Launch]]:
    """One of each kernel, in a config of one of its variants; and a few more."""
    every = list(launches_of(module, plan, choice, target, random.choice(SIZES)))
    first = each_kernel(every, random)
    taken = {id(one) for one in first}  # what a launch passes need not be comparable
    others = [one for one in every if id(one) not in taken]
    random.shuffle(others)
    return [*first, *others[:more]]
