"""The parameters of a generated function, and the values of a call in the form of a torch op: all by position.

params = params_of(layer_norm)
f"layer_norm({slots(params, ())}) -> {results(annotation)}"     # Tensor a0, ..., float a3, Tensor? a3_tensor
splitter(params)(x, w, b, eps)                                   # the values of that op: a scalar twice
merge(params, values)                                            # and back
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real
from typing import Any

import torch

NUMBERS = (Real, torch.SymInt, torch.SymFloat, torch.SymBool)  # numpy's are of the first


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: a "tensor", "optional" (a run-time scalar: a number or a 0-dim tensor), or a constant."""

    name: str
    kind: str
    type: str  # in the schema
    default: Any


def params_of(function: Callable[..., Any]) -> tuple[Param, ...]:
    return tuple(_param(p) for p in inspect.signature(function, eval_str=True).parameters.values())


def _param(p: inspect.Parameter) -> Param:
    if p.annotation is torch.Tensor:
        return Param(p.name, "tensor", "Tensor", p.default)
    if p.annotation is torch.dtype:
        return Param(p.name, "constant", "ScalarType", p.default)
    if p.annotation in (int, float, bool):
        type_ = p.annotation.__name__
        return Param(p.name, "constant", type_, p.default)
    numbers = [t for t in getattr(p.annotation, "__args__", ()) if t in (int, float, bool)]
    if len(numbers) == 1 and torch.Tensor in p.annotation.__args__:
        type_ = {int: "SymInt", float: "float", bool: "bool"}[numbers[0]]
        return Param(p.name, "optional", type_, p.default)
    raise TypeError(f"parameter {p.name}: no torch schema for the annotation {p.annotation!r}")


def results(annotation: Any) -> str:
    """The result types of a schema. A result that is not wanted is None, for which torch's schemas have only Tensor."""
    if annotation is torch.Tensor:
        return "Tensor"
    parts = getattr(annotation, "__args__", ())
    if parts and all(t in (torch.Tensor, torch.Tensor | None) for t in parts):
        return f"({', '.join(['Tensor'] * len(parts))})"
    raise TypeError(f"no torch schema for the result annotation {annotation!r}")


def answers_of(asked: tuple[str, ...], values: Sequence[Any]) -> dict[str, str]:
    """The last arguments of the torch op, by what they answer."""
    return dict(zip(asked, values[len(values) - len(asked) :], strict=True))


def slots(params: tuple[Param, ...], precision: tuple[str, ...], symbolic: bool = False) -> str:
    """All values by position. A scalar takes two slots: the number, and the 0-dim tensor in its place.

    `symbolic`: the number may be a torch.SymFloat.
    """
    slots = []
    for i, p in enumerate(params):
        takes_any = symbolic and p.kind == "optional" and p.type == "float"
        slots.append(f"{'Scalar' if takes_any else p.type} a{i}")
        if p.kind == "optional":
            slots.append(f"Tensor? a{i}_tensor")
    slots += [f"str precision{i}" for i in range(len(precision))]
    return ", ".join(slots)


def binder(
    name: str, params: tuple[Param, ...]
) -> Callable[[Sequence[Any], dict[str, Any]], Sequence[Any]]:
    """A function that gives the values of a call in the order of the parameters, with defaults."""
    names, defaults = [p.name for p in params], [p.default for p in params]
    required = defaults.count(inspect.Parameter.empty)

    def in_order(args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        if len(args) > len(params):
            raise TypeError(f"{name}() takes {len(params)} arguments but {len(args)} were given")
        if not kwargs and len(args) >= required:
            return *args, *defaults[len(args) :]
        values, rest = list(args), dict(kwargs)
        for p in params[len(args) :]:
            if p.name in rest:
                values.append(rest.pop(p.name))
            elif p.default is not inspect.Parameter.empty:
                values.append(p.default)
            elif unknown := [k for k in rest if k not in names]:
                raise TypeError(_unexpected(name, params, unknown[0]))
            else:
                raise TypeError(f"{name}() missing the argument {p.name!r}")
        if rest:
            raise TypeError(_unexpected(name, params, next(iter(rest))))
        return values

    return in_order


def quick_binder(params: tuple[Param, ...]) -> Callable[..., tuple[Any, ...]]:
    """The same for right calls, by Python's own means, in a fifth of the time. Raises TypeError for a wrong one."""
    empty = inspect.Parameter.empty
    taken = [p.name if p.default is empty else f"{p.name}=d[{k}]" for k, p in enumerate(params)]
    text = f"lambda {', '.join(taken)}: ({''.join(f'{p.name}, ' for p in params)})"
    return eval(text, {"d": [p.default for p in params]})


def _unexpected(name: str, params: tuple[Param, ...], given: str) -> str:
    names = [p.name for p in params]
    if given in names:
        return f"{name}() got the argument {given!r} twice"
    near = get_close_matches(given, names, 1)
    known = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}"
    return f"{name}() has no argument {given!r}: {known}"


def expect(name: str, params: tuple[Param, ...], values: Sequence[Any]) -> None:
    """TypeError where a call gives something else for a tensor or a scalar, or a tensor that is not strided."""
    for p, value in zip(params, values, strict=False):
        if isinstance(value, torch.Tensor):
            if p.kind != "constant" and value.layout is not torch.strided:
                given = f"{value.layout}: pass {p.name}.to_dense()"
                raise TypeError(f"{name}: {p.name}: expected a strided tensor, given {given}")
        elif p.kind == "tensor":
            raise TypeError(f"{name}: {p.name}: expected a tensor, given {type(value).__name__}")
        elif p.kind == "optional" and not isinstance(value, NUMBERS):
            wanted = {"SymInt": "int"}.get(p.type, p.type)
            given = type(value).__name__
            if type(value).__module__ == "numpy":  # whose bool is called as Python's
                given = f"numpy.{given}: pass {p.name}.item()"
            raise TypeError(f"{name}: {p.name}: expected {wanted} or a 0-dim tensor, given {given}")
        elif p.type == "SymInt" and not hasattr(value, "__index__"):
            # The schema would take its whole part.
            given = repr(value)
            raise ValueError(f"{name}: {p.name}: expected int or a 0-dim tensor, given {given}")


def splitter(params: tuple[Param, ...]) -> Callable[..., tuple[Any, ...]]:
    """A function that gives the values of a call as the schema wants them. As text: torch.compile goes through it at each call."""
    taken, given = [f"a{k}" for k in range(len(params))], list[str]()
    for own, p in zip(taken, params, strict=True):
        nothing = "False" if p.type == "bool" else "0"
        optional = f"*(({nothing}, {own}) if isinstance({own}, Tensor) else ({own}, None))"
        given.append(optional if p.kind == "optional" else own)
    text = f"lambda {', '.join(taken)}: ({''.join(f'{own}, ' for own in given)})"
    return eval(text, {"Tensor": torch.Tensor})


def without_symbols(params: tuple[Param, ...], values: Sequence[Any]) -> list[Any]:
    """The values, where each number that torch.compile has as a symbol is a 0-dim tensor.

    The schema's `float` would make it a constant, and another value would need another graph.
    """
    device = next(v.device for v in values if isinstance(v, torch.Tensor))
    found, at = list(values), 0
    for p in params:
        if p.kind == "optional":
            if p.type == "float" and isinstance(found[at], (torch.SymFloat, torch.SymInt)):
                number = torch.zeros((), dtype=torch.float64, device=device) + found[at]
                found[at : at + 2] = [0, number]
            at += 1
        at += 1
    return found


def slot_names(params: tuple[Param, ...]) -> tuple[str, ...]:
    """The parameter that each of those values is of."""
    return tuple(p.name for p in params for _ in range(2 if p.kind == "optional" else 1))


def merge(params: tuple[Param, ...], values: Sequence[Any]) -> list[Any]:
    """The inverse of `splitter`: what the function's own parameters take."""
    rest = iter(values)
    args = []
    for p in params:
        value = next(rest)
        if p.kind == "optional":
            tensor = next(rest)
            value = value if tensor is None else tensor
        args.append(value)
    return args
