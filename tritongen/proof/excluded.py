"""Tests elements that no output depends on: whatever they hold, the gradient must be the same.

    problem(op, back, args, dys, random)    # "dq: another number where k[3, 0] is excluded and holds inf"

An element is excluded if NaN in it leaves the outputs the same, bit by bit. Examples are a branch that is not taken, and a
term outside of bounds. The test then puts 1000, 1e20, an infinity and NaN there. No gradient may change.

It runs in f64, by the interpreter of the IR. It skips calls in which a line has no element: there a window's gradient
multiplies what it reads outside of `dy`, which is 0, with everything else.

Not here: gradients of included elements (`gradients.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan
from random import Random
from typing import Any

import torch

from tritongen.ir.binding import bind
from tritongen.ir.interp import run
from tritongen.ir.nodes import Op

TRIED = 6  # elements of an operand
HELD = (1000.0, -1000.0, 1e20, inf, -inf, nan)


def problem(
    op: Op, back: Op, args: Mapping[str, Any], dys: Mapping[str, Any], random: Random
) -> str:
    """How what is excluded shows in a gradient; empty where it does not. `dys`: by name, `dy`."""
    bound = bind(op, args)
    if not all(bound.size(d) for nest in op.nests for d in nest.dims):
        return ""
    outputs = run(op, args)
    params = [p.name for p in back.params]

    def gradients(given: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        known = {**given, **outputs, **dys}
        return run(back, {name: known[name] for name in params})

    right: dict[str, torch.Tensor] | None = None
    for name, x in args.items():
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.numel():
            continue
        for _ in range(min(TRIED, x.numel())):
            at = tuple(random.randrange(n) for n in x.shape)
            for value in (nan, random.choice(HELD)):
                other = {**args, name: _with(x, at, value)}
                if not _same(run(op, other), outputs):
                    break
                right = gradients(args) if right is None else right
                for grad, found in gradients(other).items():
                    if not torch.allclose(found, right[grad], 1e-6, 1e-9, equal_nan=True):
                        return f"{grad}: another number where {name}{list(at)} is excluded and holds {value}"
    return ""


def _with(x: torch.Tensor, at: tuple[int, ...], value: float) -> torch.Tensor:
    changed = x.clone()
    changed[at] = value
    return changed


def _same(found: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether outputs are the same, and numbers."""
    return all(torch.equal(found[name], y) for name, y in outputs.items())
