"""Whether a spec's body and its `ref` say the same: the oracle against torch's function, in f64.

    disagreements(op, module, seed=0)   # [] or one finding, which names the ref

Also, what torch's own function is called on where its error is a measure of ours. Not here: kernels. A wrong ref would hide behind every kernel that is right by the body.
"""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import torch

from tritongen.ir.nodes import Op
from tritongen.proof.cases import Case, NoCase, arguments, draw_case, dtype_choices
from tritongen.proof.oracle import Expected, expect, tf32, words_of

TRIES = 12
PLAIN = (
    "normal",
    "positive",
    "integers",
)  # on infinities torch's own functions differ from their definitions


def disagreements(op: Op, module: ModuleType, seed: int) -> list[dict[str, Any]]:
    """At most one finding, the first."""
    if op.ref is None:
        return []
    choices = dtype_choices(op, "cpu") or dtype_choices(op, "cuda")
    wide = next((c for c in choices if set(c.values()) == {"f64"}), choices[0])
    random = Random(seed)
    for k in range(TRIES):
        try:
            case = draw_case(op, random, wide)
        except NoCase:
            return []
        case = Case(**{**_fields(case), "values": PLAIN[k % len(PLAIN)]})
        problem = disagreement(op, module, case)
        if problem:
            where = {"op": op.name, "variant": "ref", "call": repr(case), "case": repr(case)}
            return [{**where, "problem": f"the body and ref {op.ref!r} differ: {problem}"}]
    return []


def _fields(case: Case) -> dict[str, Any]:
    return {name: getattr(case, name) for name in Case.__slots__}


def disagreement(op: Op, module: ModuleType, case: Case) -> str:
    """How the two differ on one call; empty where they do not, or where one of them refuses it."""
    args = arguments(op, case, "cpu")
    # Over nothing some of its functions give another shape (conv3d), or end the process (attention).
    if any(isinstance(v, torch.Tensor) and not v.numel() for v in args.values()):
        return ""
    try:
        wanted = expect(op, args)
        given = getattr(module, f"{op.name}_reference")(**args)
    except Exception:  # torch refuses some shapes that the op takes: those say nothing
        return ""
    given = given if isinstance(given, tuple) else (given,)
    for output, theirs in zip(op.outputs, given, strict=True):
        problem = _differ(theirs, wanted[output.name])
        if problem:
            return f"{output.name}: {problem}"
    return ""


def _differ(given: torch.Tensor, expected: Expected) -> str:
    value = expected.value
    if tuple(given.shape) != tuple(value.shape):
        return f"shape {list(value.shape)} and {list(given.shape)}"
    if not value.numel():
        return ""
    given, value = given.to(torch.float64), value.to(torch.float64)
    room = 0.0 if expected.slack is None else 64 * expected.slack
    if expected.dtype.is_floating_point:
        # Of the largest value: torch's own functions cancel where ours do not (gelu's left tail).
        largest = value.abs().nan_to_num(0.0, 0.0).max()
        room = room + 64 * torch.finfo(expected.dtype).eps * largest
    same = (given == value) | (given.isnan() & value.isnan()) | ((given - value).abs() <= room)
    if bool(same.all()):
        return ""
    at = tuple((~same).nonzero()[0].tolist())
    return f"{value[at].item()!r} and {given[at].item()!r} at {list(at)}"


def operands_of_torch(
    op: Op, args: dict[str, Any], values: str, on_gpu: bool
) -> dict[str, Any] | None:
    """What torch's own function is called on; None where its error is no measure.

    In TF32 a GPU takes 11 digits of an operand: torch is given what TF32 leaves of them, since
    cuDNN chooses by size whether to use TF32 at all. Integers lose nothing so, but the values between two
    products may have more digits than they.
    """
    if not on_gpu or "tf32" not in words_of(op):
        return args
    return None if values == "integers" else {name: as_tf32(v) for name, v in args.items()}


def as_tf32(value: Any) -> Any:
    """An operand as the tensor cores take it."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        return tf32(value.to(torch.float64)).to(torch.float32)
    return value
