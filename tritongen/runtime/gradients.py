"""How autograd runs the gradient of a generated op: what the forward call saves, what the backward calls.

    @differentiable("softmax_backward", wrt=("x",), outputs=("y",))
    def softmax(x): ...

The gradient is an op of the same module, found by its name when it is first wanted. An op that computes what its
gradient would compute again has a twin that gives this too, and runs in its place (`first_results`). Its parameters say what is
saved: operands, scalars and constants of the op, its outputs, and `dy`, the gradient of output y. What
autograd does not ask for is not computed, where the gradient has flags for it. It has the batch dims of the
whole call: here it is summed to an operand that was broadcast.

A standalone module holds a copy of these functions. Not here: the torch op, and replays (`registry.py`).
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Backward:
    """The op of the same module that is an op's gradient.

    It gives the gradients of the operands and scalars in `wrt`, in order. `outputs`: the op's. `flags`: where
    not all is always computed, its parameters that ask for each of `wrt`; what is not asked for may be None.
    `before`: of operands that have dims before their batch dims, how many.
    """

    name: str
    wrt: tuple[str, ...]
    outputs: tuple[str, ...]
    flags: tuple[str, ...] = ()
    before: Mapping[str, int] = field(default_factory=dict)


def keep_and_pull(
    module: Mapping[str, Any],
    names: tuple[str, ...],
    backward: str,
    wrt: tuple[str, ...],
    outputs: tuple[str, ...],
    flags: tuple[str, ...] = (),
    before: Mapping[str, int] = {},  # noqa: B006
) -> tuple[Callable[..., None], Callable[..., tuple[Any, ...]]]:
    """What calls leave for their backward, and that: of an autograd.Function whose values are those of `names`.

    `module`: what the names of the op's module mean. Of a name that stands twice, the last value that is not None
    counts. The rest is as in `Backward`.
    """

    @functools.cache
    def gradient() -> tuple[Callable[..., Any], tuple[str, ...]]:
        function = module[backward]
        return function, tuple(inspect.signature(function).parameters)

    def keep(ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        known = dict(zip(names, values, strict=False))
        known.update(
            (name, value) for name, value in zip(names, values, strict=False) if value is not None
        )
        given = output if isinstance(output, tuple) else (output,)
        known.update(zip(outputs, given, strict=True))
        _, wanted = gradient()
        kept = {name: known[name] for name in wanted if name in known}
        tensors = {name: value for name, value in kept.items() if isinstance(value, torch.Tensor)}
        ctx.save_for_backward(*tensors.values())
        ctx.saved_names = tuple(tensors)
        ctx.numbers = {name: kept[name] for name in kept if name not in tensors}
        ctx.like = [(v.shape, v.dtype) if isinstance(v, torch.Tensor) else None for v in values]

    def pull(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        function, wanted = gradient()
        known = dict(zip(ctx.saved_names, ctx.saved_tensors, strict=True)) | ctx.numbers
        incoming = zip(outputs, gradients, strict=True)
        known.update((f"d{y}", dy) for y, dy in incoming if f"d{y}" in wanted)
        places = enumerate(zip(names, ctx.like, strict=False))
        asked = {name: k for k, (name, like) in places if like and ctx.needs_input_grad[k]}
        known.update((flag, name in asked) for flag, name in zip(flags, wrt, strict=False))
        results = function(*map(known.__getitem__, wanted))  # names would cost the host more
        results = results if isinstance(results, tuple) else (results,)
        found: list[Any] = [None] * len(ctx.like)
        for name, result in zip(wrt, results, strict=True):
            if name in asked and result is not None:
                shape, dtype = ctx.like[asked[name]]
                found[asked[name]] = fitted(result, shape, before.get(name, 0)).to(dtype)
        return tuple(found)

    return keep, pull


def first_results(module: Mapping[str, Any], forward: str, count: int) -> Callable[..., Any]:
    """Calls the op that keeps values for a gradient, behind its first `count` results, and gives those."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results = module[forward](*args, **kwargs)
        return results[0] if count == 1 else results[:count]

    return call


def without(op: str, reason: str) -> tuple[Callable[..., None], Callable[..., tuple[Any, ...]]]:
    """The same of an op that has no gradient: nothing is left, and who asks for it is told why."""

    def keep(ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        pass

    def pull(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        raise RuntimeError(
            f"{op}: no gradient: {reason}. Call it under torch.no_grad(), or detach its operands; in the spec,"
            " `grad { }` gives one, `detach(...)` leaves a part of it out, and `grad none` says that there is none"
        )

    return keep, pull


def fitted(gradient: torch.Tensor, shape: torch.Size, before: int) -> torch.Tensor:
    """The gradient of an operand of this shape: summed over batch dims that it lacks, or has but once.

    It has `before` dims in front of those.
    """
    if gradient.shape == shape:
        return gradient
    missing = (1,) * (gradient.dim() - len(shape))
    return gradient.sum_to_size(*shape[:before], *missing, *shape[before:]).reshape(shape)


def differentiable(
    backward: str = "", no_gradient: str = "", **said: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function with its gradient, for autograd alone; `said`: as in `Backward`.

    `no_gradient`: why there is none.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        names = tuple(signature.parameters)
        if backward:
            keep, pull = keep_and_pull(function.__globals__, names, backward, **said)
        else:
            keep, pull = without(function.__name__, no_gradient)

        def forward(ctx: Any, *values: Any) -> Any:
            output = function(*values)
            keep(ctx, values, output)
            return output

        members = {"forward": staticmethod(forward), "backward": staticmethod(pull)}
        own: Any = type(function.__name__, (torch.autograd.Function,), members)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            return own.apply(*given.args)

        return call

    return decorate


def differentiable_by(
    forward: str, count: int
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function in whose place another of its module runs where a gradient is wanted."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        kept = first_results(function.__globals__, forward, count)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = (*args, *kwargs.values())
            wanted = any(isinstance(v, torch.Tensor) and v.requires_grad for v in given)
            return (kept if wanted and torch.is_grad_enabled() else function)(*args, **kwargs)

        return call

    return decorate
