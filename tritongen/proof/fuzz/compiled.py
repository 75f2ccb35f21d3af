"""Every kernel of a spec, and of its gradient, compiled for a GPU that need not be there.

    report = compile_spec(text, "drawn", seed=0)
    report["findings"]

For one drawn choice of dtypes; every variant is forced. The interpreter takes much that the compiler
refuses. Needs a process without TRITON_INTERPRET. Not here: running anything (`trial.py`).
"""

from __future__ import annotations

import time
import warnings
from random import Random
from typing import Any

from tritongen import pipeline
from tritongen.errors import SpecError
from tritongen.proof.cases import NoCase, dtype_choices
from tritongen.proof.crosscompile import compiled_plan
from tritongen.proof.fuzz import defined
from tritongen.runtime.load import load_text

SIZES = (64, 64, 16, 24, 7, 130)


def compile_spec(
    text: str, name: str, seed: int, target: str = "sm_90", seconds: float = 120
) -> dict[str, Any]:
    """Plain data: what did not compile, how many kernels did."""
    from tritongen.show import CannotShow, gradient_text

    warnings.filterwarnings("ignore")
    random, start = Random(seed), time.monotonic()
    findings: list[dict[str, str]] = []
    kernels = 0
    texts = {"": text}
    try:
        texts["gradient "] = gradient_text(text, name)
    except (SpecError, CannotShow, RecursionError, AssertionError):
        pass  # no gradient, or a fault that the trial reports
    for stage, source in texts.items():
        try:
            built = pipeline.build(source, name)
        except Exception:
            continue  # likewise
        if defined.problems(built.raw):
            continue
        module = load_text(built.name, built.raw)
        for plans in built.plans.values():
            for plan in plans:
                choices = dtype_choices(plan.op, "cuda")
                choice = random.choice(choices)
                label = ", ".join(f"{k}={v}" for k, v in choice.items()) or "fixed"
                try:
                    found = compiled_plan(
                        module, plan, choice, label, [target], random.choice(SIZES)
                    )
                    for one in found:
                        kernels += 1
                        if one.problem:
                            findings.append(_finding(stage, one))
                        if time.monotonic() - start > seconds:
                            break
                except NoCase:
                    pass
                except Exception as error:
                    problem = f"{type(error).__name__}: {str(error)[:600]}"
                    findings.append({"stage": f"{stage}trace", "problem": problem, "call": label})
    return {
        "findings": findings,
        "refused": [],
        "kernels": kernels,
        "seconds": {"compile": round(time.monotonic() - start, 3)},
    }


def _finding(stage: str, one) -> dict[str, str]:
    where = f"{one.kernel} ({one.variant}; {one.dtype}) for {one.target}"
    return {"stage": f"{stage}compile", "problem": one.problem, "call": where}
