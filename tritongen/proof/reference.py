"""Compares torch with the body: the `ref`, which is a claim, and the printed reference, in f64.

    disagreements(op, module, seed=0)   # at most one finding for each of the two

A wrong ref would otherwise hide behind kernels that are right by the body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import ModuleType
from typing import Any

import torch

from tritongen.ir.algebra import evaluate
from tritongen.ir.nodes import Op
from tritongen.proof.cases import (
    Case,
    NoCase,
    arguments,
    draw_case,
    dtype_choices,
    known_sizes,
)
from tritongen.proof.oracle import Expected, expect

TRIES = 12
DRAWS = 40  # of which a call is taken whose lines all have elements
# On infinities torch's own functions differ from their definitions.
PLAIN = ("normal", "positive", "integers", "huge")


def disagreements(op: Op, module: ModuleType, seed: int) -> list[dict[str, Any]]:
    """The first example on which each of them differs."""
    said = {"reference": "the reference"} | (
        {} if op.ref is None else {"equals": f"ref {op.ref!r}"}
    )
    own = getattr(module, op.name)
    found = (_first(op, getattr(own, kind), who, seed) for kind, who in said.items())
    return [finding for finding in found if finding is not None]


def _first(op: Op, function: Callable[..., Any], who: str, seed: int) -> dict[str, Any] | None:
    choices = dtype_choices(op, "cpu") or dtype_choices(op, "cuda")
    wide = next((c for c in choices if set(c.values()) == {"f64"}), choices[0])
    random = Random(seed)
    refused, compared = "", 0
    for k in range(8 * TRIES):
        late = k >= 4 * TRIES  # torch took none so far
        if compared == TRIES or compared and late:
            return None
        try:
            case = _drawn(op, random, wide, DRAWS if late else 1)
        except NoCase:
            return None
        case = replace(case, values=PLAIN[k % len(PLAIN)])
        try:
            problem = disagreement(op, function, case)
        except Exception as error:  # torch refuses some shapes that the op takes, but not all
            refused = f"{type(error).__name__}: {str(error)[:300]}"
            continue
        compared += problem is not None
        if problem:
            where = {
                "op": op.name,
                "variant": who.split()[0],
                "call": repr(case),
                "case": repr(case),
            }
            return where | {"problem": f"{who} is not what the body says: {problem}"}
    if refused and not compared:
        where = {"op": op.name, "variant": who.split()[0], "call": "", "case": ""}
        return where | {"problem": f"{who} takes none of {8 * TRIES} examples: {refused}"}
    return None


def _drawn(op: Op, random: Random, wide: dict[str, str], draws: int) -> Case:
    """A call whose lines all have elements, if one of the draws is. Torch refuses windows that are larger than what they are in."""
    for _ in range(draws):
        case = draw_case(op, random, wide)
        sizes = known_sizes(op, case.sizes, case.batches)
        if all(evaluate(d, sizes) > 0 for n in op.nests for d in n.dims):
            break
    return case


def disagreement(op: Op, function: Callable[..., Any], case: Case) -> str | None:
    """How the function differs from the body on one call; empty where it does not, None where it is no call."""
    args = arguments(op, case, "cpu")
    # Over nothing some of torch's give another shape (conv3d), or end the process (attention).
    if any(isinstance(v, torch.Tensor) and not v.numel() for v in args.values()):
        return None
    try:
        wanted = expect(op, args)
    except (ValueError, IndexError):
        return None
    given = function(**args)
    given = given if isinstance(given, tuple) else (given,)
    for output, theirs in zip(op.outputs, given, strict=True):
        problem = differ(theirs, wanted[output.name])
        if problem:
            return f"{output.name}{problem}"
    return ""


def differ(given: torch.Tensor, expected: Expected, *others: Expected) -> str:
    """Where a result is neither what is expected nor one of `others`; "" if it is everywhere."""
    value = expected.value
    if tuple(given.shape) != tuple(value.shape):
        return f" has shape {list(value.shape)} by the body, here {list(given.shape)}"
    if not value.numel():
        return ""
    same = _same(given, expected)
    for other in others:
        same = same | _same(given, other)
    if bool(same.all()):
        return ""
    at = tuple((~same).nonzero()[0].tolist())
    return f"{list(at) or ''} is {value[at].item()!r} by the body, here {given[at].item()!r}"


def _same(given: torch.Tensor, expected: Expected) -> torch.Tensor:
    """Which elements are as expected."""
    given, value = given.to(torch.float64), expected.value.to(torch.float64)
    room = 0.0 if expected.slack is None else 64 * expected.slack
    if expected.dtype.is_floating_point:
        # Of the largest value: torch's own functions cancel where ours do not (gelu's left tail).
        largest = value.abs().nan_to_num(0.0, 0.0).max()
        room = room + 64 * torch.finfo(expected.dtype).eps * largest
    same = (given == value) | (given.isnan() & value.isnan()) | ((given - value).abs() <= room)
    if expected.slack is not None:
        same = same | expected.slack.isinf()  # a NaN, too: nothing is said
    return same
