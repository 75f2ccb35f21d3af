"""Tests the derived gradient of a spec: its text, its kernels, `backward()`, and autograd of the emitted reference.

    try_gradients(seen, text, nests)

If torch's gradient and ours differ, a difference quotient decides. At ties and kinks both may be right, and it says
nothing.
"""

from __future__ import annotations

import re
from random import Random
from types import ModuleType
from typing import Any

import torch

from tritongen import pipeline
from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.errors import SpecError
from tritongen.ir.batches import reduced_alone
from tritongen.ir.interp import count_points, run
from tritongen.ir.nodes import BATCH_SIZE, Op, kind_of
from tritongen.ir.print import print_op
from tritongen.ir.print_poly import NotWritable
from tritongen.ir.verify import verify
from tritongen.proof import cases, excluded, runner
from tritongen.proof.fuzz.second import try_second
from tritongen.proof.fuzz.trial import Trial, is_too_long, try_built, try_calls
from tritongen.proof.gradients import backward_arguments, derived_of, prove_call
from tritongen.proof.variants import chunks_forced
from tritongen.runtime.load import load_text
from tritongen.runtime.precision import precision
from tritongen.syntax.parse import parse

TOLERANCE = 1e-5
MOST_POINTS = 2**24  # that the oracle visits for a gradient: some ten seconds


def try_gradients(seen: Trial, text: str, nests: pipeline.Module) -> None:
    """Tests the gradients of the file's last op, which was built as general nests, for one of its typings."""
    op = check(parse(text, nests.name))[-1].typings[0]
    given = [*(t.dtype for t in op.tensors), *(p.dtype for p in op.scalars)]
    if not any(kind_of(d, op) == "float" for d in given) or not any(
        kind_of(o.dtype, op) == "float" for o in op.outputs
    ):
        return
    with seen.stage("derive"):
        back = gradient(op)
        verify(back)
    if seen.refused or seen.findings:
        seen.refused.clear()  # no gradient is no refusal of the spec
        return
    printed, built = "", None
    with seen.stage("gradient text"):
        printed = _written(back)
        built = _built(seen, back, printed) if printed else None
    if seen.findings:
        return
    if built is not None:
        try_built(seen, *built, min(1, seen.effort.calls), "gradient ")
    with seen.stage("backward"):
        try_backward(seen, text, nests.name)
    with seen.stage("autograd"):
        try_autograd(seen, text, nests)
    if seen.twice:
        with seen.stage("second"):
            try_second(seen, in_f64(text))


def _built(seen: Trial, back: Op, printed: str) -> tuple[pipeline.Module, pipeline.Module] | None:
    """The gradient from its text, chosen and as general nests; None if the text is longer than a spec may be."""
    try:
        again = check(parse(printed, "gradient"))[-1].typings[0]
    except SpecError as error:
        if is_too_long(error):
            return None
        raise
    if print_op(again) != printed:
        seen.found("gradient text", f"it prints otherwise once parsed:\n{printed}")
    verify(again)
    return pipeline.build(printed, "gradient"), pipeline.build(printed, "gradient", only="nest")


def _written(op: Op) -> str:
    try:
        return print_op(op)
    except NotWritable:
        return ""


def try_backward(seen: Trial, text: str, name: str) -> None:
    """`backward()` of drawn calls of the op, any values: what it gives, and its kernels by the oracle."""
    built = pipeline.build(text, name, gradients=True)
    module = load_text(built.name, built.raw)
    item = built.items[-1]
    runs = item.forward or item
    derived = derived_of(item, runs, runs, (module, module))
    if derived is None:
        seen.found("backward", f"no gradient: {item.no_gradient}")
        return
    if item.through:  # the op runs those kernels if no gradient is wanted, too
        candidates = runner.candidates_of((module, module), item.plans[0], item.plans[0])
        try_calls(seen, candidates, seen.effort.calls, "backward")
    progress = runner.Progress(seen.device)
    choices = cases.dtype_choices(derived.forward, seen.device)
    for k in range(max(1, seen.effort.calls) if choices else 0):
        try:
            choice = seen.random.choice(choices)
            case = cases.draw_case(derived.forward, seen.random, choice, seen.device, 0.2)
            args = backward_arguments(derived, case, seen.device)
        except (cases.NoCase, ValueError, IndexError):  # no call of the op
            continue
        plans = derived.plans_for(case.dtypes)[:1] if derived.plans else ()
        chosen = [runner.Candidate("chosen", module, plan) for plan in plans]
        with precision(case.precision), chunks_forced(k % 2 == 0):
            prove_call(progress, derived, chosen, case, args, k)
        for finding in progress.failures:
            seen.found("backward", finding["problem"], finding["call"], repr(case))
        if progress.failures:
            return
    seen.calls += progress.calls


def try_autograd(seen: Trial, text: str, nests: pipeline.Module) -> None:
    """The oracle of the gradient against autograd of the reference, in f64."""
    wide = in_f64(text)
    # Its reference needs no kernel, and general nests are the shortest to print.
    built = nests if wide == text else pipeline.build(wide, "wide", only="nest")
    module = load_text(built.name, built.raw)
    op = check(parse(wide))[-1].typings[0]
    back = gradient(op)
    choice = {p.name: "f64" if "f64" in p.dtypes else p.dtypes[0] for p in op.typarams}
    try:
        case = cases.draw_case(op, seen.random, choice)
    except cases.NoCase:
        return
    plain = {name: "contiguous" for name in case.layouts}
    case = cases.replace(case, values="normal", layouts=plain)
    sizes = cases.known_sizes(op, case.sizes, case.batches)
    if count_points(back, sizes) > MOST_POINTS:
        return
    args = cases.arguments(op, case, "cpu")
    problem = disagreement(op, back, module, args, seen.random)
    if problem:
        seen.found("autograd", f"{problem}\n{_written(back)}", repr(case), repr(case))


def in_f64(text: str) -> str:
    """A spec with f64 in place of narrower floats."""

    def types(head: re.Match[str]) -> str:
        wide = re.sub(r"\b(b?f16|f32|f8\w+)\b( \| \w+)*", "float", head[0])
        return wide.replace("= float", "= f64")

    wide = re.sub(r"\bop \w+<[^>]*>", types, text)
    wide = re.sub(r"\b(f32|f16|bf16|f8e4m3|f8e5m2)\[", "f64[", wide)
    return re.sub(r"\bf32\(", "f64(", wide)


def disagreement(op: Op, back: Op, module: ModuleType, args: dict[str, Any], random: Random) -> str:
    """The gradient that is wrong. Empty if none is, or if the call is not valid."""
    forward = getattr(module, op.name).reference
    leaves = {
        k: v.clone().requires_grad_()
        for k, v in args.items()
        if isinstance(v, torch.Tensor) and v.is_floating_point()
    }
    for scalar in op.scalars:
        if isinstance(args[scalar.name], float):
            leaves[scalar.name] = torch.tensor(
                args[scalar.name], dtype=torch.float64
            ).requires_grad_()
    try:
        outputs = run(op, args)
    except (ValueError, IndexError):
        return ""
    given = forward(**{**args, **leaves})
    given = given if isinstance(given, tuple) else (given,)
    generator = torch.Generator().manual_seed(random.randrange(1 << 16))
    dys = {
        f"d{o.name}": torch.randn(y.shape, generator=generator, dtype=torch.float64)
        for o, y in zip(op.outputs, given, strict=True)
        if kind_of(o.dtype, op) == "float"
    }
    known = {**args, **outputs, **dys}
    ours = run(back, {p.name: known[p.name] for p in back.params})
    if shown := excluded.problem(op, back, args, dys, random):
        return shown
    ys = [y.to(torch.float64) for y in given if y.is_floating_point()]
    pairs = [(y, dy) for y, dy in zip(ys, dys.values(), strict=True) if y.requires_grad]
    if pairs:
        heads, seeds = zip(*pairs, strict=True)
        grads: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            heads, list(leaves.values()), seeds, allow_unused=True
        )
    else:
        grads = tuple(None for _ in leaves)
    for (name, leaf), theirs in zip(leaves.items(), grads, strict=True):
        if f"d{name}" not in ours:
            continue
        theirs = torch.zeros_like(leaf) if theirs is None else theirs
        own = ours[f"d{name}"].to(torch.float64)
        if name in reduced_alone(op) and leaf.numel() and not own.numel():
            continue  # `backward()` refuses the call
        own = summed_to(op, name, own, leaf.shape)
        room = TOLERANCE * (1 + theirs.abs().nan_to_num(0, 0, 0).amax() if theirs.numel() else 1)
        wrong = theirs.isfinite() & ~((own - theirs).abs() <= room)
        for at in wrong.nonzero().tolist()[:4]:
            if _slope_says(op, args, dys, name, tuple(at), float(theirs[tuple(at)])):
                wrote, right = float(own[tuple(at)]), float(theirs[tuple(at)])
                return f"d{name}{at}: ours {wrote!r}, autograd {right!r}, and so the slope"
    return ""


def summed_to(op: Op, name: str, grad: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """A gradient added up over what the operand's `...` broadcast to."""
    dims = next((t.dims for t in op.tensors if t.name == name), ())  # a scalar has none
    before = dims.index(BATCH_SIZE) if BATCH_SIZE in dims else 0
    missing = grad.dim() - len(shape)
    wide = (*shape[:before], *[1] * missing, *shape[before:])
    return grad.sum_to_size(wide).reshape(shape)


def _slope_says(op: Op, args, dys, name: str, at: tuple[int, ...], claimed: float) -> bool:
    """Whether both one-sided slopes are what autograd claims."""
    h = 1e-6

    def total(step: float) -> float:
        moved = torch.as_tensor(args[name], dtype=torch.float64).clone()
        moved[at] += step
        outputs = run(op, {**args, name: moved})
        return sum(float((outputs[k[1:]] * v).sum()) for k, v in dys.items())

    here = total(0.0)
    slopes = (total(h) - here) / h, (here - total(-h)) / h
    return all(abs(s - claimed) <= 1e-3 * (1 + abs(claimed)) for s in slopes)
