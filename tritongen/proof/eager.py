"""The accuracy of torch's own function on a call. No kernel may be much worse.

    against_torch(op, ops.softmax, args, got, wanted, "normal")   # the problem, or None

`oracle.py` bounds the error of a kernel by itself.
"""

from __future__ import annotations

from typing import Any

import torch

from tritongen.ir.nodes import Op
from tritongen.proof.factors import tf32, words_of
from tritongen.proof.judge import FEW, largest_error, no_worse_than_torch
from tritongen.proof.oracle import Expected, expect

# Against torch's own largest error. Half types, and f32 through tf32x3, meet less even ground.
TIMES_TORCH = {torch.float32: 4.0, torch.float16: 3.0, torch.bfloat16: 3.0}


def against_torch(
    op: Op,
    function: Any,
    args: dict[str, Any],
    got: dict[str, torch.Tensor],
    wanted: dict[str, Expected],
    values: str,
) -> str | None:
    """Where an answer is worse than torch's own function, if the spec names one."""
    if op.ref is None or any(e.slack is None for e in wanted.values()):
        return None
    if max(v.numel() for v in got.values()) < FEW:
        return None  # luck decides; and over nothing some of torch's functions end the process
    theirs = errors_of_torch(op, function, args, wanted, values)
    problem = _worse(got, wanted, theirs)
    beside = apart(args) if problem else None
    if beside is None:
        return problem
    others = errors_of_torch(op, function, beside, expect(op, on_host(beside)), values)
    return _worse(got, wanted, {name: max(e, others.get(name, e)) for name, e in theirs.items()})


def _worse(got, wanted: dict[str, Expected], theirs: dict[str, float]) -> str | None:
    for name, error in theirs.items():
        times = TIMES_TORCH.get(got[name].dtype)
        if times is not None and bool(wanted[name].value.isfinite().all()):
            verdict = no_worse_than_torch(got[name], error, wanted[name], times)
            if not verdict.ok:
                return f"{name}: {verdict.detail}"
    return None


def errors_of_torch(
    op: Op, function: Any, args, wanted: dict[str, Expected], values: str
) -> dict[str, float]:
    """The largest error of each output by torch's own function, where that is a measure."""
    on_gpu = any(isinstance(v, torch.Tensor) and v.is_cuda for v in args.values())
    given = operands_of_torch(op, on_host(args), values, on_gpu)
    if given is None:
        return {}
    try:
        eager = function.equals(**given)
    except Exception:  # torch refuses some shapes that the op takes
        return {}
    eager = eager if isinstance(eager, tuple) else (eager,)
    return {
        o.name: largest_error(y, wanted[o.name])
        for o, y in zip(op.outputs, eager, strict=True)
        if y.shape == wanted[o.name].value.shape
    }


def operands_of_torch(
    op: Op, args: dict[str, Any], values: str, on_gpu: bool
) -> dict[str, Any] | None:
    """The operands for torch's own function; None if its error is no measure.

    In TF32 a GPU uses 11 digits of an operand. So torch gets operands with 11 digits, since cuDNN decides by size whether
    to use TF32 at all. Integers lose nothing, but the values between two products may have more digits.
    """
    if not on_gpu or "tf32" not in words_of(op):
        return args
    return None if values == "integers" else {name: as_tf32(v) for name, v in args.items()}


def as_tf32(value: Any) -> Any:
    """An operand as the tensor cores take it."""
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        return tf32(value.to(torch.float64)).to(torch.float32)
    return value


def apart(args: dict[str, Any]) -> dict[str, Any] | None:
    """The operands, with repeated numbers moved by up to a unit; None if no number repeats.

    For equal terms, the error of a norm is the error of their mean times rsqrt(eps). Welford's method, which torch's norms
    use, has no error in that mean. A sum does. With the numbers moved, torch shows its usual error.
    """

    def repeats(v: Any) -> bool:
        floats = isinstance(v, torch.Tensor) and v.dtype.is_floating_point
        return floats and any(n > 1 and not s for n, s in zip(v.shape, v.stride(), strict=True))

    def moved(v: torch.Tensor) -> torch.Tensor:
        random = torch.Generator().manual_seed(0)
        up = torch.rand(v.shape, generator=random).to(v.device) < 0.5
        return torch.where(up, v * (1 + torch.finfo(v.dtype).eps), v)

    found = {name: moved(v) for name, v in args.items() if repeats(v)}
    return {**args, **found} if found else None


def on_host(args: dict[str, Any]) -> dict[str, Any]:
    return {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in args.items()}
