"""Runs the gradient of a generated op under autograd: what the forward saves, and what the backward calls.

    rule = Rule(vars(module), ("x",), Backward("softmax_backward", wrt=("x",), outputs=("y",)))

The gradient is an op of the same module. It is found by its name when it is first wanted. If the forward would have to be computed again,
a second form of the op also returns the values that the gradient needs, and runs in the op's place (`first_results` of `lib/alone.py`). The
parameters of the gradient say what is saved: operands, scalars, constants and outputs of the op, and `dy`, the gradient of
output y. If the gradient has flags, only what autograd asks for is computed. The gradient has the batch dims of the whole
call; here it is summed to the shape of a broadcast operand.

`registry.py` registers the torch op and replays. `lib/alone.py` does this for standalone modules.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tritongen.lib.alone import askers, expanded, fitted


@dataclass(frozen=True, slots=True)
class Backward:
    """The gradient of an op, which is an op of the same module. It returns the gradients of the operands and scalars in `wrt`, in order.

    `name`: the name of the gradient. It is empty if all gradients are handed on.
    `outputs`: the outputs of the op.
    `flags`: the parameters that say which gradients are wanted, one for each of `wrt`. A gradient that is not wanted may be None.
    `before`: the number of dims in front of the batch dims, for operands that have such, and for those that may be f8.
    `handed_on`: operands whose gradient is another one, of an output or of one of `wrt`, and its name, such as "dy". If it is `along`
        dims, it is the same along those dims of the operand.
    `alone`: operands over whose batch dims alone the op reduces.
    """

    name: str
    wrt: tuple[str, ...]
    outputs: tuple[str, ...]
    flags: tuple[str, ...] = ()
    before: Mapping[str, int] = field(default_factory=dict)
    handed_on: Mapping[str, str] = field(default_factory=dict)
    along: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    alone: tuple[str, ...] = ()


class Rule:
    """What a call saves for its backward, and the backward.

        rule.keep(ctx, values, output)
        rule.pulls[asked](ctx, *gradients)

    `asked`: for which of the values a gradient is wanted. It may begin with others, which have none. Both functions are compiled when
    they are first wanted, for then the module has the gradient. Their text has no loop over operands.
    """

    keep: Callable[..., None]
    pulls: Mapping[tuple[bool, ...], Callable[..., tuple[Any, ...]]]

    def __init__(self, module: Mapping[str, Any], names: tuple[str, ...], backward: Backward):
        self._module, self._names, self._said = module, names, backward
        self.keep, self.pulls = self._first_keep, _Pulls(self._pull)

    def _first_keep(self, ctx: Any, values: Sequence[Any], output: Any) -> None:
        self.keep = self._keep()
        self.keep(ctx, values, output)

    @functools.cached_property
    def _taken(self) -> dict[str, Any]:
        """The parameters of the gradient in order, and their annotations."""
        if not self._said.name:
            return {}
        wanted = inspect.signature(self._module[self._said.name], eval_str=True).parameters
        return {name: p.annotation for name, p in wanted.items()}

    @functools.cached_property
    def _read(self) -> dict[str, tuple[bool, bool]]:
        """Those that are values and outputs of the op: whether they may be tensors, and whether they may be anything else."""
        others = {*(f"d{y}" for y in self._said.outputs), *self._said.flags}
        kinds = {n: getattr(t, "__args__", (t,)) for n, t in self._taken.items() if n not in others}
        return {n: (torch.Tensor in t, t != (torch.Tensor,)) for n, t in kinds.items()}

    @functools.cached_property
    def _partly(self) -> list[int]:
        """The outputs whose gradient is read, unless that of every output is."""
        read = {*self._taken, *self._said.handed_on.values()}
        outputs = self._said.outputs
        found = [j for j, y in enumerate(outputs) if f"d{y}" in read]
        return found if len(found) < len(outputs) else []

    @functools.cached_property
    def _shaped(self) -> list[str]:
        return [n for n in self._names if n in self._said.before or n in self._said.along]

    def _keep(self) -> Callable[..., None]:
        outputs = self._said.outputs
        own = ["output"] if len(outputs) == 1 else [f"output[{j}]" for j in range(len(outputs))]
        at = {name: f"values[{k}]" for k, name in enumerate(self._names)}
        at |= dict(zip(outputs, own, strict=True))
        lines, tensors, numbers = [], [], []
        for k, (name, (is_tensor, is_other)) in enumerate(self._read.items()):
            if is_tensor and is_other:
                lines += [f"s{k}, n{k} = None, {at[name]}", f"if isinstance(n{k}, Tensor):"]
                lines += [f"    s{k}, n{k} = n{k}, None"]
            tensors += [f"s{k}" if is_other else at[name]] * is_tensor
            numbers += [f"n{k}" if is_tensor else at[name]] * is_other
        if tensors:
            lines.append(f"ctx.save_for_backward({', '.join(tensors)})")
        if numbers:
            lines.append(f"ctx.numbers = {', '.join(numbers)},")
        if self._partly:
            # Else autograd makes zeros of what is only kept for the gradient, too.
            lines.append("ctx.set_materialize_grads(False)")
            likes = [f"({own[j]}.shape, {own[j]}.dtype, {own[j]}.device)" for j in self._partly]
            lines.append(f"ctx.likes = {', '.join(likes)},")
        if self._shaped:
            lines.append(f"ctx.shapes = {', '.join(f'{at[n]}.shape' for n in self._shaped)},")
        return _function("keep", "ctx, values, output", lines or ["pass"], Tensor=torch.Tensor)

    def _pull(self, asked: tuple[bool, ...]) -> Callable[..., tuple[Any, ...]]:
        said, names = self._said, self._names
        front = len(asked) - len(names)
        wanted = dict(zip(names, asked[front:], strict=True))
        gradients = {f"d{y}": f"g{j}" for j, y in enumerate(said.outputs)}
        lines = []
        for k, j in enumerate(self._partly):
            lines += [f"if g{j} is None:", f"    g{j} = zeros(*ctx.likes[{k}])"]
        asked_by = askers(said.wrt, said.handed_on)
        asks = {name: any(wanted[n] for n in by) for name, by in asked_by.items()}
        results = {name: f"r{k}" for k, name in enumerate(said.wrt)}
        if any(asks.values()):
            read = [*enumerate(self._read.items())]
            tensors = [f"s{k}, " for k, (_, (is_tensor, _)) in read if is_tensor]
            numbers = [f"n{k}, " for k, (_, (_, is_other)) in read if is_other]
            lines += [f"{''.join(tensors)}= ctx.saved_tensors"] if tensors else []
            lines += [f"{''.join(numbers)}= ctx.numbers"] if numbers else []
            given = dict(gradients)
            given |= {flag: str(asks[n]) for flag, n in zip(said.flags, said.wrt, strict=False)}
            for k, (name, (is_tensor, is_other)) in read:
                given[name] = f"n{k}" if is_other else f"s{k}"
                if is_tensor and is_other:
                    lines += [f"if n{k} is None:", f"    n{k} = s{k}"]
            call = f"backward({', '.join(given[name] for name in self._taken)})"
            lines.append(f"{', '.join(results.values())} = {call}")
        known = gradients | {f"d{name}": result for name, result in results.items()}
        found = results | {name: known[of] for name, of in said.handed_on.items()}
        shapes = {name: f"ctx.shapes[{k}]" for k, name in enumerate(self._shaped)}
        found |= {n: f"expanded({found[n]}, {shapes[n]}, {dims})" for n, dims in said.along.items()}
        # Autograd itself sums over missing leading dims, but for f8, and casts to another dtype.
        for name in [name for name in said.before if wanted[name]]:
            own = name if name in said.alone else ""
            found[name] = f"fitted({found[name]}, {shapes[name]}, {said.before[name]}, {own!r})"
        out = [found[name] if wanted[name] else "None" for name in names]
        lines.append(f"return {', '.join(['None'] * front + out)},")
        return _function(
            "pull",
            ", ".join(["ctx", *gradients.values()]),
            lines,
            backward=self._module.get(said.name),
            expanded=expanded,
            fitted=fitted,
            zeros=_zeros,
        )


class _Pulls(dict[tuple[bool, ...], Callable[..., tuple[Any, ...]]]):
    def __init__(self, make: Callable[[tuple[bool, ...]], Callable[..., tuple[Any, ...]]]):
        super().__init__()
        self._make = make

    def __missing__(self, asked: tuple[bool, ...]) -> Callable[..., tuple[Any, ...]]:
        self[asked] = made = self._make(asked)
        return made


def _function(name: str, parameters: str, lines: list[str], **scope: Any) -> Callable[..., Any]:
    text = "\n    ".join([f"def {name}({parameters}):", *lines])
    exec(compile(text, f"<{name} of a gradient>", "exec"), scope)
    return scope[name]


def _zeros(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


class NoRule:
    """The same for an op without a gradient: nothing is kept, and a backward raises an error with the reason."""

    def __init__(self, op: str, reason: str):
        self._op, self._reason = op, reason
        self.pulls = _Pulls(lambda asked: self._pull)

    def keep(self, ctx: Any, values: Sequence[Any], output: Any) -> None:
        pass

    def _pull(self, ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        raise RuntimeError(
            f"{self._op}: no gradient: {self._reason}. Call it under torch.no_grad(), or detach its operands; in the spec,"
            " `grad { }` gives one, `detach(...)` leaves a part of it out, and `grad none` says that there is none"
        )
