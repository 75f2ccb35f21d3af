"""Tests everything that must hold of one spec, in this process.

    report = trial(text, "drawn", seed=0, device="cpu")
    report["findings"]     # [] where all is well; else stage, problem, call
    report["refused"]      # codes of a spec that the compiler refuses

On drawn calls, the kernels of every variant, the general nest, the emitted reference and the oracle must agree. So must
those of the gradient (`gradients.py`). On "cpu" the process has TRITON_INTERPRET=1.

Not here: compiling kernels (`compiled.py`).
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

from tritongen import pipeline
from tritongen.autodiff import NotDifferentiable
from tritongen.errors import SpecError
from tritongen.faults import CompilerFault
from tritongen.ir.algebra import symbols
from tritongen.ir.nodes import Op
from tritongen.kernel.nodes import is_dot
from tritongen.proof import cases, runner
from tritongen.proof.fuzz import defined
from tritongen.proof.included import with_shared
from tritongen.proof.reference import differ
from tritongen.runtime.load import load_text
from tritongen.runtime.precision import precision

TURNS = 5.0  # how much larger than those the call is that meets several blocks
DRAWS = 8  # of which the call is chosen that meets every way
LARGE = 0.1  # of the calls may be as large as `check` draws them
TWICE = 4  # every so many specs
PLAIN = ("normal", "positive", "integers")


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is tried of an op: its calls, the ways forced on each, and those of one more call, which meets many."""

    calls: int
    each: int
    last: int
    seconds: float  # of each call, for forced ways


# In the interpreter, a way takes some 50 ms. On a GPU it compiles its kernels, which takes seconds: there, one call is tried.
IN_INTERPRETER, ON_GPU = Effort(2, 4, 99, 2.0), Effort(0, 0, 2, 60.0)
ALL_WAYS = Effort(2, 8, 99, 60.0)


@dataclass(slots=True)
class Trial:
    """The results for one spec."""

    device: str
    random: Random
    deadline: float
    effort: Effort = IN_INTERPRETER
    twice: bool = False  # whether the gradient of the gradient is derived, too
    findings: list[dict[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    skeletons: Counter = field(default_factory=Counter)
    variants: Counter = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    lost: bool = False  # the device takes no more work from this process

    def found(self, stage: str, problem: str, call: str = "", case: str = "") -> None:
        self.findings.append({"stage": stage, "problem": problem, "call": call, "case": case})

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time goes to the stage, and so does whatever is raised."""
        start = time.perf_counter()
        try:
            yield
        except SpecError as error:
            located = all(d.span is not None or d.code == "E701" for d in error.diagnostics)
            none = name == "derive" and isinstance(error, NotDifferentiable)
            if none or (located and name == "build"):
                self.refused += [d.code for d in error.diagnostics if d.severity == "error"]
            else:
                self.found(name, f"SpecError: {error}")
        except CompilerFault as fault:
            self.found(name, last_lines(fault.__cause__ or fault))
        except Exception as error:
            self.found(name, last_lines(error))
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def is_too_long(error: SpecError) -> bool:
    """Whether a text that was derived is refused for its length alone."""
    return {d.code for d in error.diagnostics} == {"E009"}


def last_lines(error: BaseException) -> str:
    """The exception first, for its kind; then where it came from."""
    lines = "".join(traceback.format_exception(error, limit=-4)).strip().split("\n")
    return "\n".join([lines[-1][:600], *lines[1:-1]])


def trial(
    text: str,
    name: str,
    seed: int,
    device: str = "cpu",
    seconds: float = 60,
    grad: bool = True,
    all_ways: bool = False,
    twice: bool | None = None,
) -> dict[str, Any]:
    """Plain data about one spec; see the module. `twice`: whether with second derivatives; by default the seed says."""
    from tritongen.proof.fuzz.gradients import try_gradients

    warnings.filterwarnings("ignore")
    effort = ALL_WAYS if all_ways else ON_GPU if device == "cuda" else IN_INTERPRETER
    end, twice = time.monotonic() + seconds, seed % TWICE == 0 if twice is None else twice
    seen = Trial(device, Random(seed), end, effort, twice)
    with seen.stage("build"):
        built = pipeline.build(text, name)
        nests = pipeline.build(text, name, only="nest")
        try_built(seen, built, nests, effort.calls)
        if grad and not seen.findings and not seen.refused:
            try_gradients(seen, text, nests)
    return {
        "findings": seen.findings,
        "refused": sorted(set(seen.refused)),
        "skeletons": dict(seen.skeletons),
        "variants": dict(seen.variants),
        "seconds": {k: round(v, 3) for k, v in seen.seconds.items()},
        "calls": seen.calls,
    }


def try_built(
    seen: Trial, built: pipeline.Module, nests: pipeline.Module, calls: int, stage: str = ""
) -> None:
    """The names of both modules, then calls of each op in each typing."""
    for module in (built, nests):
        for problem in defined.problems(module.raw):
            seen.found(f"{stage}names", problem)
    if seen.findings:
        return
    for plans in built.plans.values():
        for plan in plans:
            seen.skeletons.update({stage + step.skeleton for step in plan.steps})
            seen.variants.update({stage + v.name for step in plan.steps for v in step.variants})
    with seen.stage(f"{stage}kernels"):
        modules = load_text(built.name, built.raw), load_text(nests.name, nests.raw)
        for op_name, plans in built.plans.items():
            for plan, nest_plan in zip(plans, nests.plans[op_name], strict=True):
                candidates = runner.candidates_of(modules, plan, nest_plan)
                few = calls if len(plans) == 1 and len(built.plans) == 1 else (calls + 1) // 2
                try_calls(seen, candidates, few, f"{stage}kernels")
                if not stage:
                    try_reference(seen, plan.op, modules[0])


def try_calls(seen: Trial, candidates, calls: int, stage: str) -> None:
    """A few drawn calls: each as chosen and by the general nest, the forced ways dealt out among them.

    One more meets every way, none of its sizes 0 or 1 if that can be. Where the kernels are of products, it has several
    blocks of rows and of terms.
    """
    op = candidates[0].plan.op
    choices = list(cases.dtype_choices(op, seen.device))
    seen.random.shuffle(choices)
    effort = seen.effort
    # Loops of kernels that were lowered go round several times.
    large = 0.5 if candidates[0].folds else LARGE
    long = long_sizes(op, candidates[:1])
    ways, end = list(candidates[1:-1]), time.process_time() + effort.seconds
    seen.random.shuffle(ways)
    for k in range(max(1, calls + bool(long or ways)) if choices else 0):
        if seen.lost or time.monotonic() > seen.deadline:
            return
        last = k == calls  # no other call depends on what it draws
        random = copy(seen.random) if last else seen.random
        typing = choices[k % len(choices)]
        try:
            if last:
                case = full_case(op, random, typing, seen.device, long)
            else:
                share = 1.0 if random.random() < large else 0.2
                case = cases.draw_case(op, random, typing, seen.device, share)
        except cases.NoCase:
            continue
        forced_ones = ways[: effort.last] if last else ways[k::calls][: effort.each]
        if last:
            k, end = 0, time.process_time() + effort.seconds
        with precision(case.precision):
            problems = problems_of(seen, (candidates[0], candidates[-1]), forced_ones, case, k, end)
        for problem, names in problems.items():
            call = runner.call_text(candidates[0], case)
            seen.found(stage, f"{', '.join(names)}: {problem}", call, repr(case))
        if problems:
            return


def full_case(op: Op, random: Random, typing, device: str, long: tuple[str, ...]) -> cases.Case:
    """Of some calls that with the longest shortest size. On a GPU, every other one is as it was drawn."""
    share, names = TURNS if long else 1.0, cases.free_sizes(op)
    draws = random.choice((1, DRAWS)) if device == "cuda" else DRAWS
    drawn = [cases.draw_case(op, random, typing, device, share, long) for _ in range(draws)]

    def shortest(case: cases.Case) -> int:
        sizes = (*(case.sizes[n] for n in names), *map(prod, case.batches.values()))
        return min(sizes, default=0)

    return max(drawn, key=shortest)


def long_sizes(op: Op, candidates) -> tuple[str, ...]:
    """The sizes that kernels of products walk by blocks of rows and of terms."""
    kernels = dict.fromkeys(k for c in candidates for f, k in c.folds if is_dot(f, k))
    walks = (w for k in kernels for w in k.walks if w.block in ("BLOCK_M", "BLOCK_N"))
    found = dict.fromkeys(s for w in walks for s in sorted(symbols(w.extent)))
    return tuple(s for s in found if s in cases.free_sizes(op))


def problems_of(
    seen: Trial, always, while_time, case: cases.Case, k: int, end: float
) -> dict[str, list[str]]:
    """The problems of the k-th call, and the candidates that have them."""
    args = cases.arguments(always[0].plan.op, case, seen.device)
    wanted = runner._expected(always[0], args)
    problems: dict[str, list[str]] = {}
    if wanted is None:
        return problems
    for candidate in (*always, *while_time):
        if candidate in while_time and time.process_time() > end:
            break
        seen.calls += 1
        problem, _ = runner.problem_with(
            candidate, args, wanted, k % 2 == 0, k % 2 == 1, case.values
        )
        if problem is not None:
            problems.setdefault(problem, []).append(candidate.name)
            if not runner._is_recoverable(problem):
                seen.lost = True
                break
    return problems


def try_reference(seen: Trial, op: Op, module: Any) -> None:
    """The emitted reference against the oracle, in the widest types."""
    choices = cases.dtype_choices(op, "cpu")
    if not choices:
        return
    wide = next((c for c in choices if set(c.values()) == {"f64"}), choices[0])
    for _ in range(2):
        with seen.stage("reference"):
            try:
                case = cases.draw_case(op, seen.random, wide)
            except cases.NoCase:
                return
            case = cases.replace(case, values=PLAIN[seen.random.randrange(3)])
            problem = reference_problem(op, module, case)
            if problem:
                seen.found("reference", problem, repr(case), repr(case))
                return


def reference_problem(op: Op, module: Any, case: cases.Case) -> str:
    """How the reference differs from the oracle, and from the other answer that products may give (`proof/included.py`)."""
    args = cases.arguments(op, case, "cpu")
    try:
        wanted = [runner.expect(meaning, args) for meaning in (op, with_shared(op)) if meaning]
    except (ValueError, IndexError):
        return ""
    given = getattr(module, op.name).reference(**args)
    given = given if isinstance(given, tuple) else (given,)
    for output, theirs in zip(op.outputs, given, strict=True):
        problem = differ(theirs, *(values[output.name] for values in wanted))
        if problem:
            return f"{output.name}: {problem}"
    return ""
