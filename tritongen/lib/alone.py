"""Gradients of a standalone module, in place of `tritongen.runtime`. For autograd only.

    @differentiable("softmax_backward", takes=("y", "dy"), wrt=("x",), outputs=("y",))
    @replayed()                     # `replayed.py`
    def softmax(x): ...

It is the part of `runtime/gradients.py` that one module needs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch


def f32_precision(asked: str) -> str:
    """The precision of f32 products: the spec's word, or else torch's switch."""
    if asked in ("matmul", "conv"):
        switch = torch.backends.cudnn.conv if asked == "conv" else torch.backends.cuda.matmul
        allowed = switch.fp32_precision == "tf32" and not torch.version.hip
        asked = "tf32" if allowed else "tf32x3"
    return "ieee" if asked == "tf32x3" and torch.version.hip else asked


def is_seen(values: tuple[Any, ...]) -> bool:
    """Whether autograd must see a call: a gradient is wanted, or torch.func or forward mode transforms it."""
    if torch.is_grad_enabled() and any(
        [isinstance(v, torch.Tensor) and v.requires_grad for v in values]
    ):
        return True
    within = torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack()
    return bool(within) or torch.autograd.forward_ad._current_level >= 0


def in_memory(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values. A tensor with a conjugate or negative bit, such as `z.conj().imag`, is copied."""
    return tuple([v.resolve_neg() if isinstance(v, torch.Tensor) else v for v in values])


def resolved(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates an op whose kernels read memory directly: it resolves conjugate and negative bits first."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(kwargs, in_memory((*kwargs.values(),)), strict=True))
        return function(*in_memory(args), **given)

    return call


def own(results: Any) -> Any:
    """The results of an op. On a CPU torch may give views of what is gone, which autograd lets nobody change in place."""
    if isinstance(results, tuple):
        return tuple([own(y) for y in results])
    return results.data if results is not None and results._is_view() else results


def fitted(gradient: torch.Tensor, shape: torch.Size, before: int, alone: str = "") -> torch.Tensor:
    """The gradient for an operand of this shape: summed over batch dims that the operand lacks, or has with size 1.

    `before`: the number of its dims in front of the batch dims. `alone`: the name of an operand over whose batch dims alone the op
    reduces. If those of the call are empty, no element of the gradient says what such a reducer passes on.
    """
    if gradient.shape == shape:
        return gradient
    if alone and not gradient.numel() and shape.numel():
        raise ValueError(
            f"{alone}: no gradient: the batch dims of the call are empty, and those of {alone}, which the op reduces over, are not"
        )
    missing = (1,) * (gradient.dim() - len(shape))
    wide = gradient.float() if gradient.element_size() == 1 else gradient  # torch adds no f8
    total = wide.sum_to_size(*shape[:before], *missing, *shape[before:])
    return total.reshape(shape).to(gradient.dtype)


def expanded(gradient: torch.Tensor, shape: torch.Size, along: tuple[int, ...]) -> torch.Tensor:
    """The gradient for an operand of this shape, if it is the same `along` these dims, which `gradient` lacks. It is a view.

    `along`: the dims in order, from the first dim, then negative numbers from the last one.
    """
    for dim in along:
        gradient = gradient.unsqueeze(dim)
    sizes = [-1] * gradient.dim()
    for dim in along:
        sizes[dim] = shape[dim]
    return gradient.expand(sizes)


def askers(wrt: tuple[str, ...], handed_on: Mapping[str, str]) -> dict[str, list[str]]:
    """The operands for which each gradient is computed: its own, and those to which it is handed on."""
    return {name: [name, *(n for n, of in handed_on.items() if of == f"d{name}")] for name in wrt}


def differentiable(
    back: str = "",
    takes: tuple[str, ...] = (),
    wrt: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    before: Mapping[str, int] = {},  # noqa: B006
    handed_on: Mapping[str, str] = {},  # noqa: B006
    along: Mapping[str, tuple[int, ...]] = {},  # noqa: B006
    alone: tuple[str, ...] = (),
    no_gradient: str = "",
    fit: Any = None,
    expand: Any = None,
) -> Callable[..., Any]:
    """Decorates an op with its gradient `back`, an op of its module.

    Args:
        back: the name of the gradient.
        takes: the operands and outputs that it takes, and `dy` for an output y.
        wrt: the operands whose gradients it returns. `flags` say which of them are wanted.
        before: dims in front of an operand's batch dims, for `fit`.
        handed_on: operands whose gradient is another one, of an output or of one of `wrt`, `expand`ed `along` these of its dims.
        alone: operands over whose batch dims alone the op reduces.
        no_gradient: the reason why there is none.
    """
    read = {y for y in outputs if f"d{y}" in {*takes, *handed_on.values()}}
    asked_by = askers(wrt, handed_on)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        names = tuple(signature.parameters)

        def forward(ctx: Any, *values: Any) -> Any:
            result = own(function(*values))
            results = result if isinstance(result, tuple) else (result,)
            known = dict(zip((*names, *outputs), (*values, *results), strict=False))
            kept = {name: known[name] for name in takes if name in known}
            tensors = [name for name, v in kept.items() if isinstance(v, torch.Tensor)]
            ctx.save_for_backward(*[kept.pop(name) for name in tensors])
            ctx.tensors, ctx.numbers = tensors, kept
            ctx.shapes = {name: known[name].shape for name in (*before, *along)}
            ctx.set_materialize_grads(False)  # of what is kept only, too
            ctx.like = {
                y: dict(size=known[y].shape, dtype=known[y].dtype, device=known[y].device)
                for y in read
            }
            return result

        def backward(ctx: Any, *gradients: Any) -> Any:
            if no_gradient:
                end = "Call it under torch.no_grad(), or detach its operands"
                raise RuntimeError(f"{function.__name__}: no gradient: {no_gradient}. {end}")
            asked = dict(zip(names, ctx.needs_input_grad, strict=True))
            given = dict(zip(outputs, gradients, strict=True))
            given |= {y: torch.zeros(**ctx.like[y]) for y in read if given[y] is None}
            asks = {name: any(asked[n] for n in by) for name, by in asked_by.items()}
            found = dict[str, Any]()
            if any(asks.values()):
                known = ctx.numbers | dict(zip(ctx.tensors, ctx.saved_tensors, strict=True))
                known |= {f"d{y}": dy for y, dy in given.items()}
                known |= {flag: asks[name] for flag, name in zip(flags, wrt, strict=False)}
                results = function.__globals__[back](*[known[name] for name in takes])
                found |= zip(
                    wrt, results if isinstance(results, tuple) else (results,), strict=True
                )
            gradients_of = {f"d{name}": g for name, g in (given | found).items()}
            found |= {name: gradients_of.get(of) for name, of in handed_on.items()}
            for name, dims in along.items():
                found[name] = expand(found[name], ctx.shapes[name], dims)
            for name, dims in before.items():
                if asked[name]:
                    who = name if name in alone else ""
                    found[name] = fit(found[name], ctx.shapes[name], dims, who)
            return tuple(found.get(name) if asked[name] else None for name in names)

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        applied: Any = type(function.__name__, (torch.autograd.Function,), members)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not is_seen((*args, *kwargs.values()) if kwargs else args):
                return function(*args, **kwargs)
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # says what is wrong
            given.apply_defaults()
            return applied.apply(*given.args)

        return call

    return decorate


def first_results(module: Mapping[str, Any], forward: str, count: int) -> Callable[..., Any]:
    """Calls the op that keeps values for a gradient, behind its first `count` results, and gives those."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results = module[forward](*args, **kwargs)
        return results[0] if count == 1 else results[:count]

    return call


def differentiable_by(forward: str, count: int) -> Callable[..., Any]:
    """Decorates an op that another op of its module replaces if a gradient is wanted. `count`: the number of its results."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        keeping = first_results(function.__globals__, forward, count)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not is_seen((*args, *kwargs.values())):
                return function(*args, **kwargs)
            return keeping(*args, **kwargs)

        return call

    return decorate
