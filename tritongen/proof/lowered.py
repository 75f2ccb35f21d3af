"""Compiles a few kernels of a file of ops on a machine without a GPU: a compiler may refuse what the interpreter takes.

    report = lower_spec(text, "specs/softmax.op", target="sm_90", seed=0)
    report["compiled"]    # {"sm_90": 5}

It draws one choice of dtypes, and runs Triton's own passes, for a fraction of a second a kernel. `crosscompile` builds
every kernel, down to machine code. The process must not have TRITON_INTERPRET (`pool.py` sees to it).
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

import triton

from tritongen import pipeline
from tritongen.proof.cases import NoCase, dtype_choices
from tritongen.proof.crosscompile import (
    COMMON_SIZE,
    each_kernel,
    launches_of,
    lower_one,
    moves_sums,
)
from tritongen.proof.parts import Say, nobody
from tritongen.runtime.load import load_text

MOST = 8


def lower_spec(text: str, name: str, target: str, seed: int, say: Say = nobody) -> dict[str, Any]:
    """Returns a report in the form of `runner.py`. `say` gets the progress."""
    start, random = time.monotonic(), Random(seed)
    say(f"{name}: building", "", 0.0)
    built = pipeline.build(text, name)
    module = load_text(built.name, built.raw)
    found = []
    for plan in (p for plans in built.plans.values() for p in plans):
        if not (choices := dtype_choices(plan.op, "cuda")):
            continue
        choice = random.choice(choices)
        try:
            launches = launches_of(module, plan, choice, target, COMMON_SIZE)
            found += [(plan, choice, *one) for one in each_kernel(launches, random)]
        except NoCase:  # there may be another typing
            continue
    drawn, failures = random.sample(found, min(MOST, len(found))), []
    for k, (plan, choice, variant, word, _, launch) in enumerate(drawn):
        op = plan.op.name
        label = ", ".join(f"{name}={dtype}" for name, dtype in choice.items()) or "fixed"
        kernel = launch.kernel.fn.__name__
        call = f"{kernel} ({label}), compiled for {target} by Triton {triton.__version__}"
        # Said before: a compiler may end the process.
        say(f"{op}: kernel {k + 1} of {len(drawn)}, {call}", f"for {target}", k / len(drawn))
        moves = moves_sums(plan, kernel)
        one = lower_one(launch, word, variant, label, target, moves)
        if one.problem:
            failure = {"op": op, "variant": variant, "problem": one.problem, "call": call}
            failures.append(failure | {"case": repr(choice)})
    seconds = round(time.monotonic() - start, 1)
    counted = {"calls": 0, "compiled": {target: len(drawn)}, "seconds": seconds}
    return {"spec": name, "device": target, "examples": 0, "failures": failures} | counted
