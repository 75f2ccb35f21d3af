"""Runs the gradient of a generated op under autograd: what the forward saves, and what the backward calls.

    keep, pull = keep_and_pull(vars(module), ("x",), "softmax_backward", wrt=("x",), outputs=("y",))

The gradient is an op of the same module. It is found by its name when it is first wanted. If the forward would have to be computed again,
a second form of the op also returns the values that the gradient needs, and runs in the op's place (`first_results`). The
parameters of the gradient say what is saved: operands, scalars, constants and outputs of the op, and `dy`, the gradient of
output y. If the gradient has flags, only what autograd asks for is computed. The gradient has the batch dims of the whole
call; here it is summed to the shape of a broadcast operand.

`registry.py` registers the torch op and replays. `lib/alone.py` does this for standalone modules.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tritongen.lib.alone import expanded, fitted


@dataclass(frozen=True, slots=True)
class Backward:
    """The gradient of an op, which is an op of the same module. It returns the gradients of the operands and scalars in `wrt`, in order.

    `name`: the name of the gradient. It is empty if all gradients are handed on.
    `outputs`: the outputs of the op.
    `flags`: the parameters that say which gradients are wanted, one for each of `wrt`. A gradient that is not wanted may be None.
    `before`: the number of dims in front of the batch dims, for operands that have such.
    `handed_on`: operands whose gradient is that of an output. If it is `along` dims, it is the same along those dims of the operand.
    """

    name: str
    wrt: tuple[str, ...]
    outputs: tuple[str, ...]
    flags: tuple[str, ...] = ()
    before: Mapping[str, int] = field(default_factory=dict)
    handed_on: Mapping[str, str] = field(default_factory=dict)
    along: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def keep_and_pull(
    module: Mapping[str, Any],
    names: tuple[str, ...],
    backward: str,
    wrt: tuple[str, ...],
    outputs: tuple[str, ...],
    flags: tuple[str, ...] = (),
    before: Mapping[str, int] = {},  # noqa: B006
    handed_on: Mapping[str, str] = {},  # noqa: B006
    along: Mapping[str, tuple[int, ...]] = {},  # noqa: B006
) -> tuple[Callable[..., None], Callable[..., list[Any]]]:
    """What a call saves for its backward, `keep(ctx, values, output)`, and the backward, `pull(ctx, asked, *gradients)`.

    `names`: the names of the values. `asked`: for which of them a gradient is wanted. `module`: the names of the op's module. The rest
    is as in `Backward`.
    """

    at = [names.index(name) for name in wrt]
    given = [(names.index(name), outputs.index(y)) for name, y in handed_on.items()]
    several = len(outputs) > 1

    @functools.cache
    def plan() -> tuple[Callable[..., Any], list[int], list[int], list[int]]:
        """The gradient, which values and outputs it reads, which of these may be numbers, where all it takes then is."""
        function = module[backward] if backward else lambda: ()
        wanted = inspect.signature(function, eval_str=True).parameters
        then = [*(f"d{y}" for y in outputs), *flags]
        read = [name for name in wanted if name not in then]
        loose = [k for k, n in enumerate(read) if wanted[n].annotation is not torch.Tensor]
        here, then = [*names, *outputs], [*then, *read]
        return function, [here.index(n) for n in read], loose, [then.index(n) for n in wanted]

    def keep(ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        _, read, loose, _ = plan()
        here = (*values, *output) if isinstance(output, tuple) else (*values, output)
        saved = [here[k] for k in read]
        if loose:
            ctx.numbers = {k: saved[k] for k in loose if not isinstance(saved[k], torch.Tensor)}
            saved = [None if k in ctx.numbers else v for k, v in enumerate(saved)]
        ctx.save_for_backward(*saved)
        if several:
            # Else autograd makes zeros of what is only kept for the gradient, too.
            ctx.set_materialize_grads(False)
            ctx.zeros = [
                functools.partial(torch.zeros, y.shape, dtype=y.dtype, device=y.device)
                for y in output
            ]
        if before or along:
            ctx.shapes = {name: values[names.index(name)].shape for name in (*before, *along)}

    def pull(ctx: Any, asked: tuple[bool, ...], *gradients: Any) -> list[Any]:
        function, _, loose, taken = plan()
        if several:
            read = {*taken, *(j for _, j in given)}
            made = enumerate(zip(gradients, ctx.zeros, strict=True))
            gradients = tuple(zero() if g is None and j in read else g for j, (g, zero) in made)
        found: list[Any] = [None] * len(names)
        for k, j in given:
            if asked[k]:
                found[k] = gradients[j]
        for name, dims in along.items():
            k = names.index(name)
            if asked[k]:
                found[k] = expanded(found[k], ctx.shapes[name], dims)
        if any([asked[k] for k in at]):
            saved = ctx.saved_tensors
            if loose:
                saved = [ctx.numbers.get(k, v) for k, v in enumerate(saved)]
            then = *gradients, *[asked[k] for k in at[: len(flags)]], *saved
            results = function(*[then[k] for k in taken])  # names would cost the host more
            results = results if isinstance(results, tuple) else (results,)
            for k, result in zip(at, results, strict=True):
                if asked[k]:
                    found[k] = result
        # Autograd itself sums over missing leading dims, and casts to another dtype.
        for name, leading in before.items():
            k = names.index(name)
            if asked[k]:
                found[k] = fitted(found[k], ctx.shapes[name], leading)
        return found

    return keep, pull


def first_results(module: Mapping[str, Any], forward: str, count: int) -> Callable[..., Any]:
    """Calls the op that keeps values for a gradient, behind its first `count` results, and gives those."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results = module[forward](*args, **kwargs)
        return results[0] if count == 1 else results[:count]

    return call


def without(op: str, reason: str) -> tuple[Callable[..., None], Callable[..., list[Any]]]:
    """The same for an op without a gradient: nothing is kept, and a backward raises an error with the reason."""

    def keep(ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        pass

    def pull(ctx: Any, asked: Any, *gradients: Any) -> list[Any]:
        raise RuntimeError(
            f"{op}: no gradient: {reason}. Call it under torch.no_grad(), or detach its operands; in the spec,"
            " `grad { }` gives one, `detach(...)` leaves a part of it out, and `grad none` says that there is none"
        )

    return keep, pull
