"""Runs the derived tests of one file of ops in this process: every variant on many examples.

    report = run_spec(text, "specs/softmax.op", device="cpu", examples=20, seed=0)
    report["failures"]    # [] where all is well; each a dict with the smallest example found

On "cpu" the kernels run in Triton's interpreter: TRITON_INTERPRET=1 must be set before triton is imported (`pool.py` sees
to it). Reports are plain data, ready for JSON.

Not here: drawing examples (`cases.py`), the bounds (`oracle.py`), processes (`pool.py`).
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from types import ModuleType
from typing import Any

import torch

from tritongen import pipeline
from tritongen.emit.op_plans import OpPlans
from tritongen.ir.batches import own_batches
from tritongen.ir.nodes import Reduce
from tritongen.kernel.nodes import Fold, Kernel
from tritongen.proof.cases import Case, NoCase, arguments, draw_case, dtype_choices, simpler
from tritongen.proof.eager import against_torch, on_host
from tritongen.proof.excuses import excused
from tritongen.proof.guarded import guarded
from tritongen.proof.judge import judge
from tritongen.proof.oracle import Expected, expect
from tritongen.proof.parts import Say, nobody
from tritongen.proof.reference import disagreements
from tritongen.proof.variants import Way, forced, watched, ways
from tritongen.runtime.load import load_text
from tritongen.runtime.precision import precision
from tritongen.schedule.plan import KernelPlan, Plan

PLAIN = ("normal", "integers")
ATTEMPTS = {"cpu": 40, "cuda": 12}
MOST_WAYS = 4  # of one example: attention has 13, at a second each in the interpreter


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run one typing: a module, its plan, and what is forced on it."""

    name: str
    module: ModuleType
    plan: Plan
    way: Way | None = None

    @property
    def is_serial(self) -> bool:
        """Whether some kernel that it may launch adds term after term."""
        return bool(self.skeletons & {"box", "nest"})

    @property
    def kernels(self) -> tuple[KernelPlan, ...]:
        """Those that it may launch."""
        forced_ones = dict(self.way.variants) if self.way else {}
        return tuple(
            step.kernel(run.kernel)
            for step in self.plan.steps
            for variant in step.variants
            for run in variant.launches
            if forced_ones.get(step.name, variant.name) == variant.name
        )

    @property
    def skeletons(self) -> set[str]:
        return {kernel.skeleton for kernel in self.kernels}

    @property
    def folds(self) -> tuple[tuple[Fold, Kernel], ...]:
        """Of the kernels that were lowered, each with its kernel."""
        lowered = [k.kernel for k in self.kernels if k.kernel is not None]
        return tuple((s, k) for k in lowered for s in k.folds)

    @property
    def means(self) -> frozenset[str]:
        """Lines of the op that its kernels compute as means which look again at what they leave of their terms."""
        lines = own_batches(self.plan.op)[0].nests
        names = {a.name: b.name for a, b in zip(self.plan.inner.nests, lines, strict=True)}
        folds = (n for k in self.kernels for n in k.nests if isinstance(n.body, Reduce))
        return frozenset(names[n.name] for n in folds if n.fold.op == "mean" and n.name in names)

    def call(
        self, args: dict[str, Any], small: bool, number: bool
    ) -> tuple[Candidate, dict[str, torch.Tensor]]:
        """This candidate as it went, which says what the kernels may be excused for, and its outputs."""
        op, way = self.plan.op, self.way
        asked = forced(self.module, self.plan, way, small) if way else nullcontext()
        with asked, watched(self.module, self.plan) as told:
            with guarded(self.module, number) as fences:
                got = getattr(self.module, op.name)(**args)
        results = got if isinstance(got, tuple) else (got,)
        if not fences.intact():
            raise AssertionError("a kernel wrote outside its outputs")
        taken = dict(way.variants if way else ()) | told
        went = replace(self, way=Way(self.name, tuple(taken.items())))
        return went, dict(zip((o.name for o in op.outputs), results, strict=True))


@dataclass(slots=True)
class Progress:
    """The results so far, for one file."""

    device: str
    examples: int = 0
    calls: int = 0
    rejected: int = 0
    gradients: int = 0  # examples of them
    dtypes: Counter = field(default_factory=Counter)
    variants: Counter = field(default_factory=Counter)
    used: dict[str, float] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    attempts: int = 0  # calls that a failure may cost while it is made smaller
    say: Say = nobody
    typing: int = 0  # of so many `typings`, the one that is at work
    typings: int = 1

    def tell(self, text: str, stage: str, done: int, of: int) -> None:
        """Reports progress: how many of this typing's examples are done."""
        self.say(text, stage, (self.typing + done / of) / self.typings)


def run_spec(
    text: str,
    name: str,
    device: str,
    examples: int,
    seed: int = 0,
    seconds: float = 1e9,
    source: str | None = None,
    stop: bool = False,
    part: int = 0,
    parts: int = 1,
    gradients: bool = False,
    only: str | None = None,
    say: Say = nobody,
) -> dict[str, Any]:
    """Tests every op and typing of the file. It stops drawing examples when `seconds` have passed.

    `source`: a module to test in place of the spec's own, such as an edited or an old one.
    `stop`: stop at the first example that fails.
    `part`: test only the examples part, part + parts, ...
    `gradients`: also test derived gradients, on a fifth of the examples.
    `only`: as in `pipeline.build`.
    `say`: gets the progress.
    """
    warnings.filterwarnings("ignore", message=".*cached copy.*")
    warnings.filterwarnings("ignore", message="Using a target size")  # refs of ops that broadcast
    start = time.monotonic()
    progress = Progress(device, attempts=0 if stop else ATTEMPTS[device], say=say)
    say(f"{name}: building", "", 0.0)
    built = pipeline.build(text, name, only=only, gradients=gradients)
    universal = pipeline.build(text, name, only="nest", gradients=gradients)
    modules = load_text(built.name, source or built.raw), load_text(
        f"{built.name}_nest", universal.raw
    )
    typings = list(_typings(built, universal))
    progress.typings = len(typings)
    for k, (of, item, nest, plan, nest_plan) in enumerate(typings):
        candidates = candidates_of(modules, plan, nest_plan)
        progress.typing = k
        share = seconds / len(typings)
        deadline = start + share * (k + 1)
        gradients_from = deadline - share * (0.3 if gradients else 0)
        if source is None and part == 0:
            progress.failures += disagreements(plan.op, modules[0], seed)
        if not (stop and progress.failures):
            share_of = range(part, examples, parts)
            _run_typing(progress, candidates, share_of, Random(seed), gradients_from, stop)
        if source is not None or not gradients or progress.failures:
            continue
        if plan.op is not item.differentiated:
            continue
        from tritongen.proof.gradients import derived_of, prove

        if item.no_gradient.startswith(pipeline.UNREADABLE):
            finding = {"op": item.name, "variant": "gradient", "call": "", "case": ""}
            progress.failures.append(finding | {"problem": item.no_gradient})
        if derived := derived_of(of, item, nest, modules):
            fewer = range(part, max(2, examples // 5), parts)
            prove(progress, derived, fewer, seed, deadline)
    return report_of(progress, name, time.monotonic() - start)


def _typings(
    built: pipeline.Module, universal: pipeline.Module
) -> Iterator[tuple[OpPlans, OpPlans, OpPlans, Plan, Plan]]:
    """Each op: its own typings in both modules, then those of what runs in its place where a gradient is wanted."""
    for pair in zip(built.items, universal.items, strict=True):
        for item, nest in (pair, tuple(own.forward for own in pair)):
            if item is not None and nest is not None:
                for plan, nest_plan in zip(item.plans, nest.plans, strict=True):
                    yield pair[0], item, nest, plan, nest_plan


def report_of(progress: Progress, name: str, seconds: float) -> dict[str, Any]:
    """The results as plain data."""
    return {
        "spec": name,
        "device": progress.device,
        "examples": progress.examples,
        "calls": progress.calls,
        "rejected": progress.rejected,
        "dtypes": dict(progress.dtypes),
        "variants": dict(progress.variants),
        "gradients": progress.gradients,
        "compiled": {},
        "bound_used": {k: round(v, 3) for k, v in progress.used.items()},
        "failures": progress.failures,
        "seconds": round(seconds, 1),
    }


def candidates_of(modules, plan: Plan, nest_plan: Plan) -> tuple[Candidate, ...]:
    """The module as it chooses, each variant forced, and the module of general nests."""
    own = tuple(Candidate(way.name, modules[0], plan, way) for way in ways(plan))
    return Candidate("chosen", modules[0], plan), *own, Candidate("nest", modules[1], nest_plan)


def _run_typing(
    progress: Progress, candidates, share: range, random: Random, deadline: float, stop: bool
) -> None:
    op = candidates[0].plan.op
    choices = dtype_choices(op, progress.device)
    failed: set[tuple[str, str]] = set()
    for k in range(share.stop if choices else 0):
        if time.monotonic() > deadline or (stop and progress.failures):
            return
        try:
            case = draw_case(op, random, choices[k % len(choices)], progress.device)
        except NoCase:
            progress.rejected += k in share
            continue
        if k not in share:  # drawn all the same, since what follows depends on it
            continue
        args = arguments(op, case, progress.device)
        with precision(case.precision):
            wanted = _expected(candidates[0], args)
        if wanted is None:
            progress.rejected += 1
            continue
        progress.examples += 1
        dtypes = "+".join(dict.fromkeys(case.dtypes.values())) or "fixed"
        progress.dtypes[dtypes] += 1
        with precision(case.precision):
            for candidate in taking_turns(candidates, case.seed):
                what = f"{op.name}, {dtypes}: example {k + 1} of {share.stop}, {candidate.name}"
                progress.tell(what, "examples", k, share.stop)
                _try(progress, candidate, case, args, wanted, k, failed)


def taking_turns(candidates: Sequence[Candidate], seed: int) -> list[Candidate]:
    """The module's choice, the general nest, and a few variants, which differ from example to example."""
    chosen, *forced_ones, nest = candidates
    drawn = Random(seed).sample(range(len(forced_ones)), min(MOST_WAYS, len(forced_ones)))
    return [chosen, *(forced_ones[k] for k in sorted(drawn)), nest]


def _try(
    progress: Progress, candidate: Candidate, case: Case, args, wanted, k: int, failed
) -> None:
    """One candidate on one example; its first failure of a kind is made small and kept."""
    small = k % 3 > 0
    progress.calls += 1
    problem, used = problem_with(candidate, args, wanted, small, k % 2 == 1, case.values)
    progress.variants[candidate.name] += 1
    if problem is None:
        kind = str(candidate.plan.op.outputs[0].dtype)
        concrete = case.dtypes.get(kind, kind)
        progress.used[concrete] = max(progress.used.get(concrete, 0.0), used)
        return
    if not _is_recoverable(problem):
        progress.failures.append(_failure(candidate, case, problem, small, k))
        raise DeviceLost(progress)
    key = (candidate.name, problem.split(":")[0][:20])
    if key in failed or len(progress.failures) > 8:
        return
    failed.add(key)
    case, problem = shrink(candidate, case, problem, small, k % 2 == 1, progress)
    progress.failures.append(_failure(candidate, case, problem, small, k))


class DeviceLost(Exception):
    """The device takes no more work from this process; carries what was seen."""


def _is_recoverable(problem: str) -> bool:
    lost = ("illegal", "device-side assert", "misaligned", "unspecified launch", "CUDA error")
    return not any(t in problem for t in lost)


def problem_with(
    candidate: Candidate,
    args: dict[str, Any],
    wanted: dict[str, Expected] | str,
    small: bool,
    number: bool,
    values: str,
) -> tuple[str | None, float]:
    """What is wrong with one call, or None, and how much of the slack it took.

    `number`: poison outputs with a number. `values`: the kind of values in the operands, since torch's own error is no
    measure for all.
    """
    try:
        went, got = candidate.call(args, small, number)
    except ValueError as error:
        return (None, 0.0) if isinstance(wanted, str) else (f"ValueError: {error}", 0.0)
    except Exception as error:  # any exception of a kernel or its launch is a finding
        return f"{type(error).__name__}: {str(error)[:600]}", 0.0
    if isinstance(wanted, str):
        return f"expected ValueError: {wanted}", 0.0
    if went.means:
        wanted = expect(went.plan.op, on_host(args), means=went.means)
    used = 0.0
    for name, expected in wanted.items():
        if name in went.plan.op.kept and any(fold.moved_by for fold, _ in went.folds):
            # A kept maximum need not be NaN where a term is: the sum that moves with it is, and so is the gradient.
            unseen = expected.value.isnan().to(got[name].device)
            got[name] = torch.where(unseen, torch.nan, got[name])
        verdict = judge(got[name], expected)
        if not verdict.ok:
            excuse = excused(went, args, name, got[name], expected)
            if not excuse.ok:
                return f"{name}: {excuse.detail}", 0.0
        used = max(used, verdict.used)
    if values not in PLAIN or went.is_serial:
        return None, used
    op = candidate.plan.op
    function = getattr(candidate.module, op.name)
    return against_torch(op, function, args, got, wanted, values), used


def _expected(candidate: Candidate, args: dict[str, Any]) -> dict[str, Expected] | str | None:
    """The oracle's result, or its error if the call must be refused. None if it is not a call."""
    try:
        return expect(candidate.plan.op, on_host(args))
    except ValueError as error:
        return str(error)
    except IndexError:
        return None  # a gather that leaves its tensor: the caller's error, not checked at run time


# ---- failures -----------------------------------------------------------------------------------
def shrink(
    candidate: Candidate, case: Case, problem: str, small: bool, number: bool, progress: Progress
) -> tuple[Case, str]:
    """A simpler example that still fails."""
    op, left = candidate.plan.op, progress.attempts
    while True:
        for simple in simpler(op, case):
            if left == 0:
                return case, problem
            left -= 1
            args = arguments(op, simple, progress.device)
            wanted = _expected(candidate, args)
            found = None
            if wanted is not None:
                found, _ = problem_with(candidate, args, wanted, small, number, simple.values)
            if found is not None:
                case, problem = simple, found
                break
        else:
            return case, problem


def _failure(candidate: Candidate, case: Case, problem: str, small: bool, k: int) -> dict[str, Any]:
    return {
        "op": candidate.plan.op.name,
        "variant": candidate.name,
        "small": small,
        "problem": problem,
        "call": call_text(candidate, case),
        "case": repr(case),
    }


def call_text(candidate: Candidate, case: Case) -> str:
    """The call as a person reads it."""
    op = candidate.plan.op
    args = arguments(op, case, "cpu")
    parts = []
    for p in (*op.params, *op.free_typarams):
        value = args.get(p.name)
        if isinstance(value, torch.Tensor):
            kind = str(value.dtype).removeprefix("torch.")
            parts.append(f"{p.name}={kind}{list(value.shape)} {case.layouts[p.name]}")
        else:
            parts.append(f"{p.name}={value!r}")
    products = f", {case.precision}" if any(s.precision for s in candidate.plan.steps) else ""
    return f"{op.name}({', '.join(parts)})  # values {case.values!r}, seed {case.seed}{products}"
