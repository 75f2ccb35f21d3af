"""A generated op under functorch: one more batch dim under vmap, and forward mode for linear ops.

    transformed("softmax", overload, setup_context, pull, names, batch, linear=())(x)

- If the elements of the batch dims are independent (`Batch`), a dim that vmap maps is one more batch dim: one launch.
- Otherwise, and if an operand without batch dims is mapped, the op runs once for each entry.
- If an op is linear in some operands, its forward-mode derivative is the op, called on their tangents.

`registry.py` calls this module. `gradients.py` handles reverse mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad


@dataclass(frozen=True, slots=True)
class Batch:
    """The position of the batch dims of an op whose batch elements are independent.

    `operands`: the numbers of dims before and behind them, for each operand that has batch dims. `outputs`: the numbers of dims before
    them, for each output.
    """

    operands: Mapping[str, tuple[int, int]]
    outputs: tuple[int, ...]


def vmap_rule(
    op: str, call: Callable[..., Any], names: Sequence[str], batch: Batch | None
) -> Callable[..., tuple[Any, Any]]:
    """`vmap` as torch asks for it, of a call that takes values of these names, and others behind them."""

    def rule(info: Any, in_dims: Sequence[int | None], *values: Any) -> tuple[Any, Any]:
        mapped = [name for name, dim in zip(names, in_dims, strict=False) if dim is not None]
        if batch is None or not batch.operands.keys() >= set(mapped):
            return _one_by_one(op, call, info.batch_size, in_dims, values)
        wide = list(values)
        for k, view in _wider(names, in_dims, values, batch.operands, info.batch_size).items():
            wide[k] = view
        given = call(*wide)
        return given, batch.outputs if isinstance(given, tuple) else batch.outputs[0]

    return rule


def _wider(
    names: Sequence[str],
    in_dims: Sequence[int | None],
    values: Sequence[Any],
    places: Mapping[str, tuple[int, int]],
    size: int,
) -> dict[int, torch.Tensor]:
    """The operands that have batch dims, by position, with the mapped dim in front of the batch dims.

    All of them get it, with as many batch dims behind it as are needed to align.
    """
    found = {}
    for k, (name, dim) in enumerate(zip(names, in_dims, strict=False)):
        if name in places:
            x, (before, behind) = values[k], places[name]
            shape = (*x.shape[:before], size, *x.shape[before:])
            x = x.unsqueeze(before).expand(shape) if dim is None else x.movedim(dim, before)
            found[k] = x, before, x.dim() - before - behind
    most = max(count for _, _, count in found.values())
    return {
        k: x[(slice(None),) * (before + 1) + (None,) * (most - count)]
        for k, (x, before, count) in found.items()
    }


def _one_by_one(
    op: str,
    call: Callable[..., Any],
    size: int,
    in_dims: Sequence[int | None],
    values: Sequence[Any],
) -> tuple[Any, Any]:
    if size == 0:
        raise RuntimeError(f"{op}: vmap over a dim of size 0, of an op that runs entry by entry")
    pairs = list(zip(values, in_dims, strict=True))
    results = [call(*(v if d is None else v.select(d, k) for v, d in pairs)) for k in range(size)]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results), 0
    given = [None if own[0] is None else torch.stack(own) for own in zip(*results, strict=True)]
    return tuple(given), tuple(None if y is None else 0 for y in given)


def transformed(
    name: str,
    overload: Callable[..., Any],
    setup_context: Callable[..., None],
    pull: Callable[..., Any],
    names: Sequence[str],
    batch: Batch | None,
    linear: tuple[tuple[str, ...], ...],
) -> Callable[..., Any]:
    """The torch op as functorch takes it: what torch makes of register_autograd refuses its grad."""

    def again(*values: Any) -> Any:
        return own.apply(*values)

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        setup_context(ctx, inputs, output)
        ctx.zeros = None
        if forward_ad._current_level >= 0:
            tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
            ctx.save_for_forward(*tensors)
            ctx.inputs = [None if isinstance(v, torch.Tensor) else v for v in inputs]
            ctx.places = [k for k, v in enumerate(inputs) if isinstance(v, torch.Tensor)]
            ctx.set_materialize_grads(False)  # a zero tangent would be wasted work
            given = output if isinstance(output, tuple) else (output,)
            ctx.zeros = [
                partial(torch.zeros, y.shape, dtype=y.dtype, device=y.device) for y in given
            ]

    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.zeros is not None:
            pairs = zip(gradients, ctx.zeros, strict=True)
            gradients = tuple(zeros() if dy is None else dy for dy, zeros in pairs)
        return pull(ctx, *gradients)

    def jvp(ctx: Any, *tangents: Any) -> Any:
        values = list(ctx.inputs)
        for k, v in zip(ctx.places, ctx.saved_tensors, strict=True):
            values[k] = v
        return along(name, again, names, values, tangents, linear)

    members = {
        "forward": overload,
        "setup_context": keep,
        "backward": backward,
        "vmap": vmap_rule(name, again, names, batch),
        "jvp": jvp,
    }
    functions = {key: staticmethod(function) for key, function in members.items()}
    own: Any = type(name, (torch.autograd.Function,), functions)
    return own.apply


def along(
    op: str,
    call: Callable[..., Any],
    names: Sequence[str],
    values: Sequence[Any],
    tangents: Sequence[Any],
    linear: tuple[tuple[str, ...], ...],
) -> Any:
    """The tangents of the results: for each group of operands in which the op is linear, the op of their tangents."""
    left = {name: t for name, t in zip(names, tangents, strict=False) if t is not None}
    total: tuple[Any, ...] | None = None
    single = False
    while left:
        first = next(iter(left))
        group = next((own for own in linear if first in own), None)
        if group is None:
            raise RuntimeError(
                f"{op}: no forward-mode derivative: it is not linear in {first}. Use reverse mode"
            )
        given = call(*_replaced(names, values, group, left))
        left = {name: t for name, t in left.items() if name not in group}
        single = isinstance(given, torch.Tensor)
        parts = (given,) if single else given
        parts = tuple(y if y is not None and y.is_floating_point() else None for y in parts)
        total = parts if total is None else tuple(map(_plus, total, parts))
    assert total is not None  # torch asks where there is a tangent
    return total[0] if single else total


def _plus(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    return None if a is None or b is None else a + b


def _replaced(
    names: Sequence[str],
    values: Sequence[Any],
    group: tuple[str, ...],
    tangents: Mapping[str, torch.Tensor],
) -> list[Any]:
    """The values of a call, those of the group by their tangents: zeros where there is none."""
    found = list(values)
    for k, (name, v) in enumerate(zip(names, values, strict=False)):
        if name in group and isinstance(v, torch.Tensor):
            found[k] = tangents.get(name, torch.zeros_like(v))
        elif name in group and v is not None:
            found[k] = type(v)(0)
    return found
