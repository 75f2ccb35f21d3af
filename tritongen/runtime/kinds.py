"""Decides which calls are alike: they allocate and launch the same, whatever their tensors hold.

    kind = kind_of(values, varies)              # a key to count by; None for a call that is not replayed
    fits = likeness(values, varies, function)   # a test for such calls
    fits(others)                                # the operands' pointers, or None for a call of another kind

Two calls are alike if these are equal: dtypes, shapes, strides, the device, the alignment of pointers, which tensors are the
same, and every number that may decide something. The functions of the module must be the same too.

A replay asks at every call. torch.compile's own guard looks at all tensors at once, ten times as fast as Python. It also
distinguishes the states of torch that dispatch by keys: inference, autocast, functorch, tracing.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Sequence
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
_function_modes = torch._C._len_torch_function_stack
_functorch_level = torch._C._functorch.peek_interpreter_stack
_tracing_state = torch._C._get_tracing_state
_deterministic = torch._C._get_deterministic_algorithms
_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
_hooks = knobs.runtime
_enter, _exit = _hooks.launch_enter_hook, _hooks.launch_exit_hook

Fits = Callable[[Sequence[Any]], tuple[int, ...] | None]


def kind_of(values: Sequence[Any], varies: tuple[bool, ...]) -> tuple[Any, ...] | None:
    """A hashable key of what decides how a call runs. None if it may not be replayed.

    `varies`: the parameters whose numbers decide nothing.
    """
    if len(values) > len(varies) or asks_more() or is_watched():
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


def likeness(values: Sequence[Any], varies: tuple[bool, ...], function: Callable[..., Any]) -> Fits:
    """Whether another call is like this one, as a function of its values."""
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
    names = {"check": guard.check, "scope": scope, "meant": meant, "were": meant(scope)}
    names |= {"asks_more": asks_more, "current_device": _device}
    asked = [f"len(values) == {len(values)}"]
    asked += [f"values[{k}] is values[{first[k]}]" for k in operands if k not in own]
    asked.append(f"check({', '.join(f'values[{k}]' for k in own)})")
    for k, value in enumerate(values):
        match value:
            case torch.Tensor():
                pass
            case int() if not isinstance(value, bool):
                asked.append(f"type(values[{k}]) is int and values[{k}] == {value}")
            case float():  # -0.0 == 0.0
                same = "" if varies[k] else f" and repr(values[{k}]) == {repr(value)!r}"
                asked.append(f"type(values[{k}]) is float{same}")
            case _:
                names[f"value{k}"] = value
                asked.append(f"values[{k}] is value{k}")
    asked += [f"current_device() == {_device()}", "meant(scope) == were", "not asks_more()"]
    lines = (
        "def fits(values):",
        f"if not ({' and '.join(asked)}):",
        "    return None",
        f"pointers = {''.join(f'values[{k}].data_ptr(), ' for k in operands)}",
        f"if not ({' and '.join(_placed([values[k].data_ptr() for k in operands]))}):",
        "    return None",
        "return pointers",
    )
    text = "\n    ".join(lines)
    exec(compile(text, f"<calls of {function.__name__}>", "exec"), names)
    return names["fits"]


def _placed(pointers: list[int]) -> list[str]:
    """A test of pointers: equal alignment, and the same pairs of equal pointers."""
    at = [f"pointers[{k}]" for k in range(len(pointers))]
    aligned = " | ".join(p for p, n in zip(at, pointers, strict=True) if not n & UNALIGNED)
    out = [f"not ({aligned}) & {UNALIGNED}"] if aligned else []
    for k, n in enumerate(pointers):
        if n & UNALIGNED:
            out.append(f"{at[k]} & {UNALIGNED} == {n & UNALIGNED}")
        if pointers.index(n) < k:  # a tape knows operands by their pointers: these are one
            out.append(f"{at[k]} == {at[pointers.index(n)]}")
    return [*out, f"len({{*pointers}}) == {len({*pointers})}"] if len(pointers) > 1 else out


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
    hidden = _functorch_level() is not None and forward_ad._current_level < 0
    return hidden or require_gradient(values)


def asks_more() -> bool:
    """Whether a call must do more than usual, or do it in another way, and a guard cannot detect it."""
    return bool(
        _function_modes()
        or forward_ad._current_level >= 0
        or _deterministic()
        or _hooks.launch_enter_hook is not _enter
        or _hooks.launch_exit_hook is not _exit
        or _enter.calls
        or _exit.calls
    )


def is_watched() -> bool:
    """Whether somebody watches or transforms torch's ops. A guard of a call outside does not fit there."""
    return _dispatch_modes() != 0 or _functorch_level() is not None or _tracing_state() is not None
