"""Decides which calls are alike: they allocate and launch the same, whatever their tensors hold.

    kind = kind_of(values, varies)               # a key to count by; None for a call that is not replayed
    alike = likeness(values, varies, function)   # a test for such calls, as the beginning of a function's text

Two calls are alike if these are equal: dtypes, shapes, strides, the device, the alignment of pointers, which tensors are the
same, and every number that may decide something. The functions of the module must be the same too.

A replay asks at every call. torch.compile's own guard looks at all tensors at once, ten times as fast as Python. It also
distinguishes the states of torch that dispatch by keys: inference, autocast, functorch, tracing.
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad
from triton import knobs

from tritongen import lib

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
CONSTANTS = frozenset({int, bool, float, type(None), torch.dtype})
UNALIGNED = 15  # Triton, and descriptors, ask whether a pointer is a multiple of 16 bytes

_is_grad_enabled = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_level = torch._C._functorch.peek_interpreter_stack
_tracing_state = torch._C._get_tracing_state
_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
_version: Callable[[dict[str, Any]], int] = torch._C._dynamo.guards.dict_version
_hooks = knobs.runtime
_enter, _exit = _hooks.launch_enter_hook, _hooks.launch_exit_hook


def _is_hooked() -> bool:
    return _hooks.launch_enter_hook is not _enter or _hooks.launch_exit_hook is not _exit


# Whether a call must do more than usual, or do it in another way, and a guard cannot detect it.
_STATES = {
    "function_modes": torch._C._len_torch_function_stack,
    "forward_ad": forward_ad,
    "deterministic": torch._C._get_deterministic_algorithms,
    "own_knobs": vars(_hooks),  # what was assigned: nearly always nothing
    "is_hooked": _is_hooked,
    "enter": _enter,
    "exit_": _exit,
}
_ASKS_MORE = (
    "function_modes() or forward_ad._current_level >= 0 or deterministic()"
    " or own_knobs and is_hooked() or enter.calls or exit_.calls"
)
_asks_more: Callable[[], bool] = eval(f"lambda: {_ASKS_MORE}", _STATES)

MISSED = object()  # what a function returns for a call of another kind


@dataclass(frozen=True, slots=True)
class Likeness:
    """A test for calls, as text for a function of `values`.

    `lines`: they return MISSED for a call of another kind. Behind them the values are called `given`, and the pointers `at`.
    """

    lines: list[str]
    given: list[str]
    at: list[str]
    names: dict[str, Any]


def kind_of(values: Sequence[Any], varies: tuple[bool, ...]) -> tuple[Any, ...] | None:
    """A hashable key of what decides how a call runs. None if it may not be replayed.

    `varies`: the parameters whose numbers decide nothing.
    """
    if len(values) > len(varies) or _asks_more() or is_watched():
        return None
    parts: list[Any] = []
    pointers: list[int] = []
    try:
        for value, may_vary in zip(values, varies, strict=False):
            kind = type(value)
            if kind in PLAIN:
                if not value.is_cuda or value.get_device() != _device() or value.is_neg():
                    return None
                pointers.append(value.data_ptr())
                same, unaligned = pointers.index(pointers[-1]), pointers[-1] & UNALIGNED
                parts += (value.dtype, value.shape, value.stride(), same, unaligned)
            elif kind in CONSTANTS:
                parts += (kind, None if kind is float and may_vary else repr(value))
            else:
                return None
    except RuntimeError:  # storage of another kind: sparse, quantized
        return None
    return (_device(), *parts) if pointers else None


def likeness(
    values: Sequence[Any], varies: tuple[bool, ...], function: Callable[..., Any]
) -> Likeness:
    """A test for calls that are like this one."""
    operands = [k for k, value in enumerate(values) if isinstance(value, torch.Tensor)]
    first = {k: next(j for j in operands if values[j] is values[k]) for k in operands}
    own = [k for k in operands if first[k] == k]  # a guard takes no tensor twice
    tensors = [values[k] for k in own]
    guard = torch._C._dynamo.guards.TensorGuards(
        *tensors,
        dynamic_dims_sizes=[list(t.shape) for t in tensors],  # type: ignore[misc]
        dynamic_dims_strides=[list(t.stride()) for t in tensors],  # type: ignore[misc]
    )
    scope = function.__globals__
    meant = operator.itemgetter(*reached(function), "__name__")
    unchanged = _unchanged(scope, meant, meant(scope))
    names = {"check": guard.check, "scope": scope, "version": _version, "unchanged": unchanged}
    names |= {**_STATES, "current_device": _device, "missed": MISSED, "seen": [-1]}
    asked = [f"v{k} is v{first[k]}" for k in operands if k not in own]
    asked.append(f"check({', '.join(f'v{k}' for k in own)})")
    for k, value in enumerate(values):
        match value:
            case torch.Tensor():
                pass
            case int() if not isinstance(value, bool):
                asked.append(f"type(v{k}) is int and v{k} == {value}")
            case float():  # -0.0 == 0.0
                same = "" if varies[k] else f" and repr(v{k}) == {repr(value)!r}"
                asked.append(f"type(v{k}) is float{same}")
            case _:
                names[f"value{k}"] = value
                asked.append(f"v{k} is value{k}")
    asked += [f"current_device() == {_device()}", "(version(scope) == seen[0] or unchanged(seen))"]
    asked.append(f"not ({_ASKS_MORE})")
    at = [f"p{k}" for k in range(len(operands))]
    placed = _placed(at, [values[k].data_ptr() for k in operands])
    lines = [f"if not ({' and '.join(asked)}):", "    return missed"]
    lines += [f"{name} = v{k}.data_ptr()" for name, k in zip(at, operands, strict=True)]
    lines += [f"if not ({' and '.join(placed)}):", "    return missed"]
    return Likeness(lines, [f"v{k}" for k in range(len(values))], at, names)


def _unchanged(
    scope: dict[str, Any], meant: Callable[..., Any], were: Any
) -> Callable[[list[int]], bool]:
    """Whether a module still has the same functions. If so, it notes the version of its dict in `seen`."""

    def unchanged(seen: list[int]) -> bool:
        version = _version(scope)
        if meant(scope) != were:
            return False
        seen[0] = version
        return True

    return unchanged


def _placed(at: list[str], pointers: list[int]) -> list[str]:
    """A test of pointers: equal alignment, and the same pairs of equal pointers."""
    aligned = " | ".join(p for p, n in zip(at, pointers, strict=True) if not n & UNALIGNED)
    out = [f"not ({aligned}) & {UNALIGNED}"] if aligned else []
    for k, n in enumerate(pointers):
        if n & UNALIGNED:
            out.append(f"{at[k]} & {UNALIGNED} == {n & UNALIGNED}")
        if pointers.index(n) < k:  # a tape knows operands by their pointers: these are one
            out.append(f"{at[k]} == {at[pointers.index(n)]}")
    apart = [at[k] for k, n in enumerate(pointers) if pointers.index(n) == k]
    if len(apart) > 3:
        return [*out, f"len({{{', '.join(apart)}}}) == {len(apart)}"]
    return [*out, *(f"{p} != {q}" for p, q in itertools.combinations(apart, 2))]


def reached(function: Callable[..., Any]) -> dict[str, Any]:
    """The globals of its module that a function speaks of, and those that these functions do."""
    return _reached(function)[0]


def every_reached(function: Callable[..., Any]) -> list[Any]:
    """The same, and what the functions of the library among them speak of: each once."""
    found, said = _reached(function)
    ahead = (
        [getattr(lib, name) for name in said if name in vars(lib)] if lib in found.values() else []
    )
    every = [*found.values()]
    while ahead:
        item = ahead.pop()
        if not any(item is other for other in every):
            every.append(item)
            if isinstance(item, types.FunctionType):
                ahead += reached(item).values()
    return every


def _reached(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, None]]:
    """These functions, and every name that they use, attributes included."""
    scope = function.__globals__
    found: dict[str, Any] = {}
    said: dict[str, None] = {}
    ahead: list[Any] = [function]
    while ahead:
        item = getattr(ahead[-1], "__wrapped__", ahead[-1])
        ahead.pop()
        if isinstance(item, types.FunctionType) and item.__globals__ is scope:
            item = item.__code__
        if not isinstance(item, types.CodeType):
            continue
        ahead += [c for c in item.co_consts if isinstance(c, types.CodeType)]
        said |= dict.fromkeys(item.co_names)
        for name in item.co_names:
            if name in scope and name not in found:
                found[name] = scope[name]
                ahead.append(scope[name])
    return found, said


def require_gradient(values: Iterable[Any]) -> bool:
    return any([isinstance(v, torch.Tensor) and v.requires_grad for v in values])


def wants_gradient(values: Iterable[Any]) -> bool:
    """Whether a call may leave something for a backward: what vmap wraps does not tell."""
    if not _is_grad_enabled():
        return False
    if require_gradient(values):
        return True
    return _functorch_level() is not None and forward_ad._current_level < 0


def is_watched() -> bool:
    """Whether somebody watches or transforms torch's ops. A guard of a call outside does not fit there."""
    return _dispatch_modes() != 0 or _functorch_level() is not None or _tracing_state() is not None
