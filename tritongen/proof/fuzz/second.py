"""Second derivatives of a spec as `compile_op` has them, against those of autograd of its reference, in f64."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from tritongen import api, lib, pipeline
from tritongen.check import check
from tritongen.errors import SpecError
from tritongen.ir.interp import run
from tritongen.ir.nodes import Op
from tritongen.proof import cases
from tritongen.proof.fuzz.trial import Trial, is_too_long
from tritongen.syntax.parse import parse

TOLERANCE = 1e-6


def try_second(seen: Trial, wide: str) -> None:
    """One call of the last op. Its tensors are on a CPU, where no kernel runs. `wide`: a text in f64."""
    op = check(parse(wide))[-1].typings[0]
    choice = {p.name: "f64" if "f64" in p.dtypes else p.dtypes[0] for p in op.typarams}
    try:
        drawn = [cases.draw_case(op, seen.random, choice, "cpu", 0.2) for _ in range(20)]
    except cases.NoCase:
        return
    drawn = [c for c in drawn if all((*c.sizes.values(), *sum(c.batches.values(), ())))]
    case = next((c for c in drawn[:5] if are_finite(op, arguments(op, c))), None)
    if case is None:
        return
    args = arguments(op, case)
    build = partial(pipeline.build, only="nest")  # the shortest to print
    with patch.object(lib, "runs_kernels", lambda x: False), patch.object(pipeline, "build", build):
        with patch.dict(api._compiled, clear=True):
            ours = api.compile_op(wide, op.name)
            wanted = derivatives(ours.reference, args)
            if not wanted:  # torch may refuse what has no result
                return
            try:
                given = derivatives(ours, args)
            except SpecError as error:
                if is_too_long(error):
                    return  # a gradient of a gradient may take too long to compile
                raise
    for name, theirs in wanted.items():
        room = TOLERANCE * (1 + theirs.abs().nan_to_num(0, 0, 0).amax())
        wrong = theirs.isfinite() & ~((given[name] - theirs).abs() <= room)
        for at in map(tuple, wrong.nonzero().tolist()[:1]):
            problem = f"{name}{list(at)}: ours {given[name][at]}, autograd {theirs[at]}"
            return seen.found("second", problem, repr(case), repr(case))


def arguments(op: Op, case: cases.Case) -> dict[str, Any]:
    """Those of a call, contiguous and of common values."""
    plain = {name: "contiguous" for name in case.layouts}
    return cases.arguments(op, cases.replace(case, values="normal", layouts=plain), "cpu")


def are_finite(op: Op, args: dict[str, Any]) -> bool:
    """Whether no result holds NaN or inf. Where a product shares such an element, both answers are right."""
    try:
        return all(y.to(torch.float64).isfinite().all() for y in run(op, args).values())
    except (ValueError, IndexError):
        return False


def derivatives(f: Callable[..., Any], args: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The first and second derivatives of a call by its operands and by what comes in for its results."""
    generator = torch.Generator().manual_seed(0)
    like = lambda t: torch.randn(t.shape, generator=generator, dtype=torch.float64)  # noqa: E731
    names = inspect.signature(f).parameters
    values = {n: v.clone() if torch.is_tensor(v) else v for n, v in args.items() if n in names}
    floats = {n: v for n, v in values.items() if torch.is_tensor(v) and v.is_floating_point()}
    xs = [x.requires_grad_() for x in floats.values()]
    results = f(**values)
    results = results if isinstance(results, tuple) else (results,)
    zero = sum(0 * x.sum() for x in xs)  # autograd knows of no result that is flat
    ys = [y + zero for y in results if y.is_floating_point()]
    if not xs or not ys or not all(y.numel() for y in ys):
        return {}  # over what is empty, autograd may have gradients that are not 0
    dys = [like(y).requires_grad_() for y in ys]
    options: Any = dict(allow_unused=True, materialize_grads=True)
    first = torch.autograd.grad(ys, xs, dys, create_graph=True, **options)
    total: Any = sum((g * like(g)).sum() for g in first) + zero + sum(0 * dy.sum() for dy in dys)
    second = torch.autograd.grad(total, (*xs, *dys), **options)
    own = [*(f"d {n}" for n in floats), *(f"d d {n}" for n in floats), *map(str, range(len(dys)))]
    return dict(zip(own, (g.detach() for g in (*first, *second)), strict=True))
