"""Tries the candidates of each step of a call and keeps what is faster than the plan's own.

    trials = tune(built, "softmax", op, case)     # every candidate: seconds, or why it was left out
    path = keep(built, "softmax", trials)         # the winners, on disk

Steps are tuned one after another, each with the winners of those before it in force. A candidate
that does not run, or whose result is wrong, is never timed. Not here: what is tried
(`candidates.py`), how a later call finds it (`runtime/tuned.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton

from tritongen.bench.measure import Call, Comparison, Timer, compare, interleaved, on_poison, tf32
from tritongen.bench.run import ours, reference
from tritongen.ir.nodes import Op
from tritongen.pipeline import Module
from tritongen.proof.cases import Case
from tritongen.proof.factors import words_of
from tritongen.runtime import tuned
from tritongen.runtime.choosers import Chooser, choosers
from tritongen.runtime.load import load_text
from tritongen.schedule.plan import Plan, Step, Variant
from tritongen.shapes import random_arguments
from tritongen.trace import H200, Calls, Choice, at_hand, trace
from tritongen.tune.candidates import Candidate, candidates, check_clause, device_limits

WORTH = 0.98  # less than 2% is within what the clocks do between two runs


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate of one step; without seconds where `problem` says why."""

    step: str
    candidate: Candidate
    seconds: float | None
    problem: str
    wins: bool
    entry: tuned.Entry | None  # of a winner, what to store; of the plan's own, what to drop


def tune(
    built: Module,
    op: Op,
    case: Case,
    device: str = "cuda",
    seed: int = 0,
    timer: Timer | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Trial]:
    """All trials of one call; nothing is stored."""
    module = load_text(built.name, built.raw)
    plan = next(p for plans in built.plans.values() for p in plans if p.op is op)
    steps = choosers(built.raw, op.name)
    args = random_arguments(op, case, device, seed)
    call = ours(module, op, args)
    with tf32(False):
        want = reference(module, op, args)()
    found: list[Trial] = []
    check_clause(op, list(_taken(plan, steps, _traced(module, plan, args, device))))
    with _restored(module):
        for step in plan.steps:
            progress(step.name)
            calls = _traced(module, plan, args, device)
            choice = next((c for c in calls.choices if c.step == step.name), None)
            if choice is None or step.name not in steps:
                continue  # nothing is launched, or a chooser of another shape
            own = _try_step(module, plan, steps[step.name], choice, args, call, want, timer)
            found += own
            winner = next((t for t in own if t.wins), None)
            if winner:
                _force(module, steps[step.name], winner.candidate)
    return found


def _taken(
    plan: Plan, steps: dict[str, Chooser], calls: Calls
) -> Iterator[tuple[Step, Variant, Chooser]]:
    """Each step of the call with its variant. Packs of operands stay as they are."""
    own = {s.name: s for s in plan.steps}
    for choice in calls.choices:
        if choice.step in own and choice.step in steps:
            step = own[choice.step]
            variant = next(v for v in step.variants if v.name == choice.variant)
            yield step, variant, steps[step.name]


def _traced(module: ModuleType, plan: Plan, args: dict[str, Any], device: str) -> Calls:
    return trace(module, plan.op.name, args, at_hand() if device == "cuda" else H200)


def _try_step(
    module: ModuleType,
    plan: Plan,
    chooser: Chooser,
    choice: Choice,
    args: dict[str, Any],
    call: Call,
    want: Any,
    timer: Timer | None,
) -> list[Trial]:
    step = next(s for s in plan.steps if s.name == choice.step)
    tried = candidates(plan.op, step, chooser, choice.facts, device_limits())
    bound = "tf32" in words_of(plan.op)
    verdicts: list[Comparison] = []
    sound: dict[str, Call] = {}
    for k, candidate in enumerate(tried):
        verdict = _verdict(module, chooser, candidate, call, want, bound)
        verdicts.append(verdict)
        if verdict.ok:
            sound[str(k)] = _forced_call(module, chooser, candidate, call)
    times = interleaved(sound, timer=timer) if sound else {}
    best = min(times, key=lambda k: times[k], default=None)
    default = times.get("0")
    worth = best not in (None, "0") and (default is None or times[best] < WORTH * default)
    trials = []
    for k, candidate in enumerate(tried):
        wins, seconds = worth and str(k) == best, times.get(str(k))
        told = wins or (k == 0 and not worth and seconds is not None)
        entry = _entry(module, plan, chooser, choice, candidate, args, times, k) if told else None
        trials.append(Trial(step.name, candidate, seconds, verdicts[k].problem, wins, entry))
    return trials


def _verdict(
    module: ModuleType, chooser: Chooser, candidate: Candidate, call: Call, want: Any, tf32_: bool
) -> Comparison:
    try:
        with _restored(module):
            _force(module, chooser, candidate)
            return compare(on_poison(call), want, tf32_)
    except Exception as error:  # a config that does not compile or launch is a finding, not a fault
        first = str(error).strip().splitlines()[:1]
        return Comparison(float("nan"), f"{type(error).__name__}: {''.join(first)[:200]}")


def _forced_call(module: ModuleType, chooser: Chooser, candidate: Candidate, call: Call) -> Call:
    """The call with one candidate. Swapping the chooser costs less than a microsecond."""
    name = chooser.tree.name
    forced = chooser.with_first(candidate.variant, candidate.knobs, vars(module))

    def run() -> Any:
        before = module.__dict__[name]
        module.__dict__[name] = forced
        try:
            return call()
        finally:
            module.__dict__[name] = before

    return run


def _force(module: ModuleType, chooser: Chooser, candidate: Candidate) -> None:
    name = chooser.tree.name
    vars(module)[name] = chooser.with_first(candidate.variant, candidate.knobs, vars(module))


@contextmanager
def _restored(module: ModuleType) -> Iterator[None]:
    before = dict(vars(module))
    try:
        yield
    finally:
        vars(module).update(before)


def _entry(
    module: ModuleType,
    plan: Plan,
    chooser: Chooser,
    choice: Choice,
    candidate: Candidate,
    args: dict[str, Any],
    times: dict[str, float],
    place: int,
) -> tuned.Entry:
    launched = _launch_arguments(module, plan, choice.step, args)
    flags = tuple((name, bool(choice.facts[name])) for name in chooser.flags())
    seconds = times[str(place)]
    return tuned.Entry(
        device=tuned.device_name(
            next(a.device for a in args.values() if isinstance(a, torch.Tensor))
        ),
        torch=torch.__version__,
        triton=triton.__version__,
        step=choice.step,
        tensors=tuned.tensors_of(launched),
        flags=flags,
        variant=candidate.variant,
        knobs=tuple(candidate.knobs.items()),
        microseconds=seconds * 1e6,
        default_microseconds=times.get("0", seconds) * 1e6,
    )


def _launch_arguments(
    module: ModuleType, plan: Plan, step: str, args: dict[str, Any]
) -> tuple[Any, ...]:
    """The arguments of the step's launch function in this call."""
    seen: list[tuple[Any, ...]] = []
    name = f"launch_{step}"
    with _restored(module):
        launch = vars(module)[name]

        def note(*given: Any) -> Any:
            seen.append(given)
            return launch(*given)

        vars(module)[name] = note
        ours(module, plan.op, args)()
    return seen[0]


def keep(built: Module, op: str, trials: list[Trial]) -> Path | None:
    """Stores the winners, and drops what was stored where the plan's own choice won; None: nothing to do."""
    new = [t.entry for t in trials if t.entry and t.wins]
    stale = {t.entry.key for t in trials if t.entry and not t.wins}
    if not new and not tuned.path_of(built.raw, op).exists():
        return None
    return tuned.store(built.raw, op, new, stale)
