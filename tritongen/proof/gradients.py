"""Proves the gradient that is derived from an op, as the op itself is proved: its meaning, and its kernels.

    derived = derived_of(item, item, nest, modules)  # None where there is none
    wrong_sense(derived, Random(0))               # "dx: along a random direction 0.37, by finite differences 0.52"
    prove(progress, derived, range(4), seed=0)    # all of it; findings go where `runner` notes its own

- **Meaning.** `gradient(op)` in f64, by the interpreter of the IR, is compared with finite differences of the op, and with
  torch's autograd of the `ref`.
- **Kernels.** Every variant is compared with the oracle of the gradient. Operands and outputs come from an op that has run,
  and the incoming gradient has any layout. Every third call has empty tensors, or NaN and infinities.
- **`backward()`.** For some operands and some outputs, it must give what those kernels give.

Other values are smooth: without ties, and far from kinks, where a derivative is a matter of convention.

Not here: the forward (`runner.py`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from types import ModuleType
from typing import Any

import torch

from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.emit.op_plans import OpPlans
from tritongen.ir.batches import batched, reduced_alone
from tritongen.ir.interp import run, run_rounded
from tritongen.ir.nodes import BATCH_SIZE, Call, Op, Tensor, kind_of, walk
from tritongen.ir.print import print_op
from tritongen.proof import excluded
from tritongen.proof.cases import (
    Case,
    NoCase,
    arguments,
    draw_case,
    dtype_choices,
    has_few_points,
    known_sizes,
)
from tritongen.proof.oracle import Expected, expect
from tritongen.proof.runner import Candidate, Progress, candidates_of, problem_with, taking_turns
from tritongen.proof.values import Filling, fill_tensor
from tritongen.runtime.gradients import expanded, fitted
from tritongen.runtime.precision import precision
from tritongen.schedule.plan import Plan
from tritongen.syntax.parse import parse
from tritongen.syntax.ref import parse_ref, ref_python

STEPS = (
    1e-5,
    1e-6,
    3e-5,
)  # of a finite difference: a kink that one of them crosses another may not
CLOSE = 1e-5  # of the parts of the difference
DRAWS = 12  # of one example
MORE = 8.0  # times the points of a forward's call, a gradient's may have
# Layouts of dy. `y.sum().backward()` makes the second.
LAYOUTS = ("contiguous", "expanded", "transposed", "sliced", "offset")


@dataclass(frozen=True, slots=True)
class Derived:
    """An op's gradient as an op of its own, in a module that chooses and one of general nests.

    `plans`: of both, for each set of dtypes; none where every gradient is one that comes in, `handed_on`.
    """

    forward: Op
    plans: tuple[tuple[Plan, Plan], ...]
    own: Op | None
    handed_on: Mapping[str, tuple[str, tuple[int, ...]]]
    modules: tuple[ModuleType, ModuleType]
    of: Op  # the spec's: of fewer results, where the forward keeps values for the gradient behind them

    @property
    def op(self) -> Op:
        assert self.own is not None
        return self.own

    def plans_for(self, dtypes: Mapping[str, str]) -> tuple[Plan, Plan]:
        """The plans that take a call of these dtypes."""
        takes = (
            all(dtypes.get(p.name, d) in p.dtypes for p in own[0].op.typarams for d in p.dtypes[:1])
            for own in self.plans
        )
        return self.plans[next(k for k, fit in enumerate(takes) if fit)]


def derived_of(
    of: OpPlans, item: OpPlans, nest: OpPlans, modules: tuple[ModuleType, ModuleType]
) -> Derived | None:
    """The gradient that stands behind `item` in both modules; None where there is none.

    `item` is the op `of` the spec, or what runs in its place.
    """
    back, general = item.backward, nest.backward
    plans = tuple(zip(back.plans, general.plans, strict=True)) if back and general else ()
    if not plans and not item.handed_on:
        return None
    own = back.typings[0] if back else None
    return Derived(item.differentiated, plans, own, item.handed_on, modules, of.differentiated)


# ---- calls ----------------------------------------------------------------------------------------
def smooth_case(op: Op, random: Random, dtypes: Mapping[str, str] | None, device: str) -> Case:
    """A call of an op where it is smooth, as far as values go, and not empty."""
    for _ in range(50):
        case = draw_case(op, random, dtypes, device)
        if all(case.sizes.values()) and all(n for b in case.batches.values() for n in b):
            break
    return replace(case, values="positive" if random.random() < 0.2 else "normal")


def edge_case(op: Op, random: Random, dtypes: Mapping[str, str] | None, device: str) -> Case:
    """A call with no element along some dim, where one can be had, or with NaN and infinities among the values."""
    empty = random.random() < 0.5
    for _ in range(50):
        case = draw_case(op, random, dtypes, device)
        if empty == (0 in case.sizes.values()):
            break
    return replace(case, values="special")


def backward_arguments(derived: Derived, case: Case, device: str) -> dict[str, Any]:
    """What the gradient is called on: the operands of a call, its outputs, and what comes in.

    NoCase where that is much more work than the call: of an empty result, to large operands. And where `backward()` refuses it.
    """
    if not derived.plans:
        return {}
    op = derived.forward
    if not has_few_points(derived.op, known_sizes(op, case.sizes, case.batches), device, MORE):
        raise NoCase(f"{derived.op.name}: too much work")
    empty = {name for name, dims in case.batches.items() if 0 in dims}
    if empty and reduced_alone(op) - empty:
        raise NoCase(f"{derived.op.name}: an empty batch beside an operand that is reduced alone")
    args = arguments(op, case, device)
    host = {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in args.items()}
    outputs = run_rounded(op, host)
    known = args | {k: v.to(device) for k, v in outputs.items()}
    layout = LAYOUTS[case.seed % len(LAYOUTS)]
    for k, (name, y) in enumerate(outputs.items()):
        filling = Filling("special" if case.values == "special" else "normal", case.seed * 7 + k)
        known[f"d{name}"] = fill_tensor(tuple(y.shape), y.dtype, layout, filling, device)
    params = {p.name: p for p in derived.op.params}
    return {
        k: v if isinstance(params[k], Tensor) or not isinstance(v, torch.Tensor) else v.reshape(())
        for k, v in known.items()
        if k in params
    }


def expected(derived: Derived, args: Mapping[str, Any]) -> dict[str, Expected]:
    host = {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in args.items()}
    return expect(derived.op, host)


# ---- what it means ----------------------------------------------------------------------------------
@lru_cache(maxsize=16)
def wide_ops(op: Op) -> tuple[Op, Op]:
    """The op in f64, and the gradient of that."""
    wide = replace(in_f64(op), kept=op.kept)
    return wide, gradient(wide)


def in_f64(op: Op) -> Op:
    """The op with every float in f64, casts included: what finite differences can see."""
    narrow = "f32|f16|bf16|f8e4m3|f8e5m2"  # of a tensor, a cast, a number
    text = re.sub(rf"\b({narrow})(?=[\[(])|(?<=: )({narrow})(?= [{{=]|[,)])", "f64", print_op(op))
    names = "|".join(p.name for p in op.typarams if kind_of(p.name, op) == "float") or "-"
    text = re.sub(rf"([<,] *(?:{names}): )[a-z0-9 |]+", r"\1f64", text, count=len(op.typarams))
    return check(parse(text))[-1].typings[0]


def wrong_sense(derived: Derived, random: Random) -> str:
    """How the gradient differs from what the op's own values say; empty where it does not, or nothing can."""
    wide, back = wide_ops(derived.forward)
    if any(isinstance(e, Call) and e.fn == "detach" for n in wide.nests for e in walk(n.body)):
        return ""  # its derivative is not that of its value
    case = smooth_case(wide, random, {p.name: p.dtypes[0] for p in wide.typarams}, "cpu")
    args = arguments(wide, replace(case, layouts=dict.fromkeys(case.layouts, "contiguous")), "cpu")
    try:
        outputs = run(wide, args)
    except (ValueError, IndexError):
        return ""  # no call of the op
    floats = [o.name for o in _results(wide) if kind_of(o.dtype, wide) == "float"]
    if not all(bool(outputs[name].isfinite().all()) for name in floats):
        return ""
    seed = torch.Generator().manual_seed(case.seed)
    dys = {n: torch.randn(outputs[n].shape, generator=seed, dtype=torch.float64) for n in floats}
    known = {**args, **outputs, **{f"d{name}": dy for name, dy in dys.items()}}
    found = run(back, {p.name: known[p.name] for p in back.params})
    incoming = {f"d{name}": dy for name, dy in dys.items()}
    if shown := excluded.problem(wide, back, args, incoming, random):
        return f"{shown} ({case!r})"
    for o in back.outputs:
        name = o.name[1:]
        if not isinstance(args.get(name), torch.Tensor):
            continue
        ours = found[o.name] = _fitted(found[o.name], wide, args[name], name)
        if (problem := _by_differences(wide, args, dys, name, ours, seed)) is not None:
            return f"{o.name}: {problem} ({case!r})"
    theirs = _by_torch(wide, derived.of.ref, args, dys, [o.name[1:] for o in back.outputs])
    for name, grad in theirs.items():
        ours = found[f"d{name}"]
        room = 1e-6 * (1 + float(grad.abs().max())) if grad.numel() else 0.0
        if grad.isfinite().all() and not bool(((ours - grad).abs() <= room).all()):
            off = float((ours - grad).abs().max())
            return f"d{name}: {off:.2g} off torch's gradient of ref {derived.of.ref!r} ({case!r})"
    return ""


def _fitted(grad: torch.Tensor, op: Op, x: torch.Tensor, name: str) -> torch.Tensor:
    """Sums a gradient over broadcast elements, to the shape of the operand."""
    places = [t.dims.index(BATCH_SIZE) for t in batched(op) if t.name == name]
    return fitted(grad, x.shape, places[0] if places else 0)


def _by_differences(
    op: Op, args: dict[str, Any], dys: dict[str, torch.Tensor], name: str, ours: torch.Tensor, seed
) -> str | None:
    """Along a random direction: what the outputs change by, and what the gradient says they do."""
    x = args[name]
    along = torch.randn(x.shape, generator=seed, dtype=torch.float64)
    said = float((ours * along).sum())
    size = float((ours * along).abs().sum())
    if not torch.isfinite(ours).all():
        return "not finite where the outputs are"
    seen = []
    for step in STEPS:
        ends = [run(op, args | {name: x + way * step * along}) for way in (1, -1)]
        change = sum(((ends[0][k] - ends[1][k]) * dy).sum() for k, dy in dys.items())
        seen.append(float(change) / (2 * step))
        weight = sum(float((ends[0][k] * dy).abs().sum()) for k, dy in dys.items())
        if abs(seen[-1] - said) <= CLOSE * (size + abs(seen[-1])) + 1e-13 * weight / step + 1e-9:
            return None
    return f"along a random direction {said:.8g}, by finite differences {seen[0]:.8g}"


def _results(op: Op) -> tuple[Tensor, ...]:
    """The results for the caller, without what is kept for the gradient."""
    return tuple(o for o in op.outputs if o.name not in op.kept)


def _by_torch(
    op: Op,
    ref: str | None,
    args: dict[str, Any],
    dys: dict[str, torch.Tensor],
    names: list[str],
) -> dict[str, torch.Tensor]:
    """Autograd of the op's `ref`; nothing where there is none, or torch refuses the call."""
    if ref is None:
        return {}
    leaves = {n: args[n].clone().requires_grad_() for n in names if torch.is_tensor(args.get(n))}
    *steps, result = ref_python(parse_ref(ref)).split("\n")
    scope = {**args, **leaves, "torch": torch}
    try:
        exec("\n".join(steps), scope)
        given = eval(result, scope)
        given = given if isinstance(given, tuple) else (given,)
        pairs = [
            (y, dys[o.name]) for o, y in zip(_results(op), given, strict=True) if o.name in dys
        ]
        ys, cotangents = zip(*pairs, strict=True)
        found = torch.autograd.grad(ys, list(leaves.values()), cotangents, allow_unused=True)
    except Exception:  # torch refuses some calls that the op takes: those say nothing
        return {}
    return {n: g for n, g in zip(leaves, found, strict=True) if g is not None}


# ---- together -----------------------------------------------------------------------------------
def prove(progress: Progress, derived: Derived, share: range, seed: int, deadline: float) -> None:
    """The gradient of one op on a few examples; what is found goes into `progress`."""
    op = derived.forward
    progress.tell(f"{op.name}: its gradient", "gradients", 0, 1)
    choices = dtype_choices(op, progress.device)
    before = len(progress.failures)
    for k in share if choices else ():
        if time.monotonic() > deadline or len(progress.failures) > before:
            return
        random = Random(seed * 1009 + k)
        draw = edge_case if k % 3 == 2 else smooth_case
        called = drawn_call(derived, draw, random, choices[k % len(choices)], progress.device)
        if called is None:
            continue
        case, args = called
        candidates: tuple[Candidate, ...] = ()
        if derived.plans:
            candidates = candidates_of(derived.modules, *derived.plans_for(case.dtypes))
        try:
            problem = wrong_sense(derived, random) if draw is smooth_case else ""
        except (NoCase, ValueError, IndexError):  # no call of the op in f64
            continue
        if problem:
            progress.failures.append(_finding(op, "gradient", problem))
            return
        with precision(case.precision):
            turns = while_time(taking_turns(candidates, case.seed) if candidates else [], deadline)
            progress.tell(f"{op.name}: its gradient", "gradients", k, share.stop)
            prove_call(progress, derived, turns, case, args, k)


def drawn_call(
    derived: Derived, draw: Callable[..., Case], random: Random, dtypes: Mapping, device: str
) -> tuple[Case, dict[str, Any]] | None:
    """A case and what the gradient is called on; drawn anew where it is no call of the op, or one of too much work."""
    for _ in range(DRAWS):
        try:
            case = draw(derived.forward, random, dtypes, device)
            return case, backward_arguments(derived, case, device)
        except (NoCase, ValueError, IndexError):
            continue
    return None


def while_time(candidates: Iterable[Candidate], deadline: float) -> Iterator[Candidate]:
    """The first, then others until the deadline: some take minutes in the interpreter."""
    for k, candidate in enumerate(candidates):
        if k > 0 and time.monotonic() > deadline:
            return
        yield candidate


def prove_call(
    progress: Progress, derived: Derived, candidates: Iterable[Candidate], case: Case, args, k: int
) -> None:
    """`backward()` of one call, and all kernels on what its own were given."""
    try:
        with repeatable():
            known, problem = through_autograd(derived, case, args, progress.device)
    except Exception as error:  # any exception of a kernel or its launch is a finding
        known, problem = args, f"{type(error).__name__}: {str(error)[:600]}"
    if problem:
        finding = _finding(derived.forward, "autograd", problem)
        progress.failures.append(finding | {"call": repr(case)})
    elif not derived.plans:
        progress.gradients += 1
    else:
        _try_kernels(progress, derived, candidates, case, known, k)


@contextmanager
def repeatable() -> Iterator[None]:
    """Two runs of the same kernels are compared: atomic adds, whose order is no other's, step aside."""
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


def through_autograd(
    derived: Derived, case: Case, args: Mapping[str, Any], device: str
) -> tuple[dict[str, Any], str]:
    """The arguments of the gradient that `backward()` called, and how its result differs from a call with them.

    The second is "" if it does not differ.

    `args` are arguments of the gradient. The operands that need a gradient, and the outputs that get one, are drawn.
    """
    op, module, random = derived.of, derived.modules[0], Random(case.seed)
    operands = arguments(op, case, device)
    floats = [
        k for k, v in operands.items() if isinstance(v, torch.Tensor) and v.is_floating_point()
    ]
    leaves = {k: operands[k].detach().requires_grad_() for k in some_of(floats, random)}
    given = getattr(module, op.name)(**(operands | leaves))
    given = given if isinstance(given, tuple) else (given,)
    outputs = dict(zip((o.name for o in op.outputs), given, strict=True))
    heads = some_of([n for n, y in outputs.items() if y.requires_grad], random)
    wanted = {p.name for p in derived.op.params} if derived.plans else set()
    known = {k: v for k, v in (operands | dict(args)).items() if k in wanted}
    known |= {n: y.detach() for n, y in outputs.items() if n in wanted}
    if derived.forward.kept:
        with torch.no_grad():
            values = getattr(module, derived.forward.name)(**operands)
        named = zip((o.name for o in derived.forward.outputs), values, strict=True)
        known |= {n: y for n, y in named if n in wanted}
    for n in outputs.keys() - heads:
        if f"d{n}" in wanted:
            known[f"d{n}"] = torch.zeros_like(outputs[n], memory_format=torch.contiguous_format)
    if not heads:
        # Its scalars may all be numbers of Python's, which want no gradient.
        nothing = not leaves or derived.plans and not derived.op.outputs
        return known, "" if nothing else "no output of it requires a gradient"
    dys = [known.get(f"d{n}", _rising(outputs[n])) for n in heads]
    ys = [outputs[n] for n in heads]
    found = torch.autograd.grad(ys, list(leaves.values()), dys, allow_unused=True)
    incoming = {n: torch.zeros_like(y) for n, y in outputs.items()}
    incoming |= zip(heads, dys, strict=True)
    direct = {f"d{n}": incoming[n] for n in outputs}
    if derived.plans:
        with torch.no_grad():
            results = getattr(module, derived.op.name)(**known)
        results = results if isinstance(results, tuple) else (results,)
        direct |= zip((o.name for o in derived.op.outputs), results, strict=True)
    direct |= {
        f"d{name}": expanded(direct[of], operands[name].shape, dims)
        for name, (of, dims) in derived.handed_on.items()
        if name in leaves  # a number of Python's has no shape
    }
    for (name, leaf), theirs in zip(leaves.items(), found, strict=True):
        if problem := _differs(op, name, leaf, direct.get(f"d{name}"), theirs):
            return known, f"d{name}: {problem}"
    return known, ""


def _rising(like: torch.Tensor) -> torch.Tensor:
    """Numbers that differ: what comes in for an output that no kernel reads."""
    rising = torch.linspace(-1, 1, like.numel(), device=like.device)
    return rising.reshape(like.shape).to(like.dtype)


def some_of(names: list[str], random: Random) -> list[str]:
    """A non-empty part of them, in order."""
    kept = {random.choice(names)} if names else set()
    return [name for name in names if name in kept or random.random() < 0.7]


def _differs(op: Op, name: str, leaf: torch.Tensor, ours, theirs) -> str:
    """How what autograd gives for an operand differs from what the gradient does."""
    if ours is None:
        return "autograd has one, the gradient gives none" if theirs is not None else ""
    if theirs is None or theirs.shape != leaf.shape or theirs.dtype != leaf.dtype:
        return f"expected {leaf.dtype}{list(leaf.shape)}, autograd gives {theirs!r:.80}"
    ours = _fitted(ours, op, leaf, name).to(leaf.dtype)
    if not torch.allclose(ours.double(), theirs.double(), 1e-5, 1e-5, equal_nan=True):
        return f"backward() does not give what {op.name}_backward does"
    return ""


def _try_kernels(
    progress: Progress, derived: Derived, candidates: Iterable[Candidate], case: Case, args, k: int
) -> None:
    try:
        wanted = expected(derived, args)
    except (ValueError, IndexError) as error:
        finding = _finding(derived.forward, "gradient", f"refuses what the op takes: {error}")
        progress.failures.append(finding | {"call": call_text(derived, args, case)})
        return
    progress.gradients += 1
    for candidate in candidates:
        small = k % 3 > 0
        what = f"{derived.op.name}: example {progress.gradients}, {candidate.name}"
        progress.say(what, "", 0.0)
        progress.calls += 1
        problem, _ = problem_with(candidate, args, wanted, small, k % 2 == 1, "smooth")
        if problem is not None:
            finding = _finding(derived.forward, candidate.name, problem)
            progress.failures.append(finding | {"call": call_text(derived, args, case)})


def _finding(op: Op, variant: str, problem: str) -> dict[str, Any]:
    name = f"{op.name}_backward"
    return {"op": name, "variant": variant, "problem": f"{name}: {problem}", "call": "", "case": ""}


def call_text(derived: Derived, args: Mapping[str, Any], case: Case) -> str:
    """The call as a person reads it."""
    parts = [
        (
            f"{k}={str(v.dtype).removeprefix('torch.')}{list(v.shape)} by {list(v.stride())}"
            if isinstance(v, torch.Tensor)
            else f"{k}={v!r}"
        )
        for k, v in args.items()
    ]
    return f"{derived.op.name}({', '.join(parts)})  # seed {case.seed}, {case.precision}"
