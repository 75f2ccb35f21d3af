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
from tritongen.proof import cases
from tritongen.proof.fuzz.trial import Trial
from tritongen.syntax.parse import parse

TOLERANCE = 1e-6
DRAWS = 20  # for a call without empty dims, over which autograd may have gradients that are not 0


def try_second(seen: Trial, wide: str) -> None:
    """One call of the last op. Its tensors are on a CPU, where no kernel runs. `wide`: a text in f64."""
    op = check(parse(wide))[-1].typings[0]
    choice = {p.name: "f64" if "f64" in p.dtypes else p.dtypes[0] for p in op.typarams}
    try:
        drawn = [cases.draw_case(op, seen.random, choice, "cpu", 0.2) for _ in range(DRAWS)]
    except cases.NoCase:
        return
    sizes = ((c, [*c.sizes.values(), *(n for b in c.batches.values() for n in b)]) for c in drawn)
    case = next((c for c, own in sizes if all(own)), None)
    if case is None:
        return
    plain = {name: "contiguous" for name in case.layouts}
    args = cases.arguments(op, cases.replace(case, values="normal", layouts=plain), "cpu")
    build = partial(pipeline.build, only="nest")  # the shortest to print
    with (
        patch.object(lib, "runs_kernels", lambda x: False),
        patch.object(pipeline, "build", build),
        patch.dict(api._compiled, clear=True),
    ):
        ours = api.compile_op(wide, op.name)
        wanted = derivatives(ours.reference, args)
        try:
            given = derivatives(ours, args)
        except SpecError as error:
            if {d.code for d in error.diagnostics} == {"E009"}:
                return  # a gradient of a gradient may take too long to compile
            raise
    for name, theirs in wanted.items():
        room = TOLERANCE * (1 + theirs.abs().nan_to_num(0, 0, 0).amax() if theirs.numel() else 1)
        wrong = (theirs.isfinite() & ~((given[name] - theirs).abs() <= room)).nonzero().tolist()
        for at in map(tuple, wrong[:1]):
            own, right = float(given[name][at]), float(theirs[at])
            problem = f"{name}{list(at)}: ours {own!r}, autograd {right!r} ({len(wrong)} places)"
            seen.found("second", problem, repr(case), repr(case))
            return


def derivatives(f: Callable[..., Any], args: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The first and second derivatives of a call by its operands and by what comes in for its results."""
    generator = torch.Generator().manual_seed(0)

    def like(t: torch.Tensor) -> torch.Tensor:
        return torch.randn(t.shape, generator=generator, dtype=torch.float64)

    def pulled(total: torch.Tensor, by: list[torch.Tensor], again: bool) -> list[torch.Tensor]:
        options = dict(create_graph=again, allow_unused=True, materialize_grads=True)
        return (
            [*torch.autograd.grad(total, by, **options)]
            if total.requires_grad
            else [*map(torch.zeros_like, by)]
        )

    names = inspect.signature(f).parameters
    values = {n: v.clone() if torch.is_tensor(v) else v for n, v in args.items() if n in names}
    floats = {n: v for n, v in values.items() if torch.is_tensor(v) and v.is_floating_point()}
    xs = [x.requires_grad_() for x in floats.values()]
    results = f(**values)
    ys = [
        y for y in (results if isinstance(results, tuple) else (results,)) if y.is_floating_point()
    ]
    dys = [like(y).requires_grad_() for y in ys]
    first = pulled(sum((y * dy).sum() for y, dy in zip(ys, dys, strict=True)), xs, True)
    second = pulled(sum((g * like(g)).sum() for g in first), [*xs, *dys], False)
    own = [*floats, *(f"d result {k}" for k in range(len(dys)))]
    found = {f"d {n}": g.detach() for n, g in zip(floats, first, strict=True)}
    return found | {f"d d {n}": g for n, g in zip(own, second, strict=True)}
