"""Replay: a call like one that was noted before launches what that one launched, and does nothing else.

    call = Replay(function, scalars=frozenset({"eps"})).over(function)
    call(x, w, eps=1e-5)    # the first call of its kind runs the function
    call(x, w, eps=1e-5)    # the second one too, and what it does is noted
    call(x, w, eps=1e-6)    # from then on: allocate, launch, return

Calls are of one kind where dtypes, shapes, strides, the device, the alignment of pointers, which of them
are the same, every number that may decide something and the precision of f32 are equal. The generated function stays the only place that checks,
allocates and chooses; nothing about an op is known here. A call in a state of torch or Triton in which
more is asked for than launches, or something else, is never noted or replayed.

What Triton reads from its environment at each launch (TRITON_DEBUG and the like) is read when a call
is noted, and no more.

Not here: what is noted, and what a replay is made of (`tape.py`); how a compiled kernel is launched
without its JIT (`held.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from triton import knobs

from tritongen.runtime.precision import answers_to, decided
from tritongen.runtime.tape import Entry, Tape

MOST_ENTRIES = 512  # kinds of calls that one op replays
PATIENCE = 16  # calls before a kind takes another's place: a note costs 1 ms, a replay saves 0.05
MOST_SEEN = 4096  # and those that it has seen at all
MOST_WAYS = 8  # of one kind, where the module's functions are replaced by turns: tuning does

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_CONSTANTS = frozenset({int, bool, float, type(None), torch.dtype})
_UNALIGNED = 15  # Triton, and descriptors, ask whether a pointer is a multiple of 16 bytes

_is_grad_enabled = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_functorch_level = torch._C._functorch.peek_interpreter_stack
_tracing_state = torch._C._get_tracing_state
_deterministic = torch._C._get_deterministic_algorithms
_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)
_hooks = knobs.runtime
_enter, _exit = _hooks.launch_enter_hook, _hooks.launch_exit_hook


class Replay:
    """What is known of the calls of one function; `scalars`: parameters that reach kernels as they are.

    `precision`: what the function asks `f32_precision`.
    """

    __slots__ = ("entries", "function", "precision", "seen", "_lock", "_scalars", "_varies")

    def __init__(
        self, function: Callable[..., Any], scalars: frozenset[str], precision: tuple[str, ...] = ()
    ):
        self.function = function
        self.precision = precision
        self.entries: dict[tuple[Any, ...], tuple[Entry, ...]] = {}
        self.seen: dict[tuple[Any, ...], int] = {}  # calls that were not replayed
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        self._scalars = scalars
        self._varies = tuple(name in scalars for name in names)
        self._lock = threading.Lock()

    def over(self, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """The function, replayed where it can be; `otherwise` takes the calls that are none to replay."""
        # Local names: looking these up costs a tenth of a call.
        function, entries = self.function, self.entries
        in_order, missed, precision = self._varies, self._missed, self.precision

        def call(*args: Any, **kwargs: Any) -> Any:
            named = answers_to(precision) if precision else ()
            values, varies = args, in_order
            if kwargs:
                values, varies = self._with_names(args, kwargs)
                named = (*named, *kwargs)
            pointers: list[int] = []
            key = _kind_of(values, varies, named, pointers)
            if key is None:
                return otherwise(*args, **kwargs)
            for entry in entries.get(key, ()):
                if entry.holds():
                    if entry.play is None:
                        return function(*args, **kwargs)
                    return entry.play(values, pointers, key[0])
            return missed(key, args, kwargs, varies)

        return call

    def _with_names(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
        values = (*args, *kwargs.values())
        return values, (*self._varies[: len(args)], *(name in self._scalars for name in kwargs))

    def _missed(
        self,
        key: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        varies: tuple[bool, ...],
    ) -> Any:
        """A call that no entry knows: counted, and noted where its kind was seen often enough."""
        before = self.seen.get(key, 0)
        enough = before >= (1 if len(self.entries) < MOST_ENTRIES else PATIENCE)
        with self._lock:
            _put(self.seen, key, 1 if enough else before + 1, MOST_SEEN)
        # As the key says: somebody may turn a switch of torch's meanwhile.
        answers = dict(zip(self.precision, key[1:], strict=False))
        with decided(answers):
            if enough and self._may_note():
                return self._note(key, args, kwargs, varies)
            return self.function(*args, **kwargs)

    def _may_note(self) -> bool:
        """Not in a graph's capture, nor where `torch` is not torch's: see `proof.guarded`."""
        if self.function.__globals__.get("torch") is not torch:
            return False
        return not torch.cuda.is_current_stream_capturing()

    def _note(
        self,
        key: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        varies: tuple[bool, ...],
    ) -> Any:
        tape = Tape(args, kwargs, varies)
        result = tape.record(self.function)
        try:
            entry = tape.entry(self.function, result)
        except Exception as reason:  # Unheld, or what another build of Triton lacks
            entry = Entry(None, f"{type(reason).__name__}: {reason}", self.function)
        with self._lock:
            ways = (entry, *self.entries.get(key, ()))[:MOST_WAYS]
            _put(self.entries, key, ways, MOST_ENTRIES)
        return result


def _put(table: dict, key: tuple[Any, ...], value: Any, most: int) -> None:
    """Adds to a table; what has been there for longest makes room."""
    table.pop(key, None)
    while len(table) >= most:
        table.pop(next(iter(table)))
    table[key] = value


def _kind_of(
    values: tuple[Any, ...], varies: tuple[bool, ...], named: tuple[str, ...], pointers: list[int]
) -> tuple[Any, ...] | None:
    """The device and all else that decides how a call runs; None where it may not be replayed.

    Fills in the operands' pointers. In this order, what a call off the GPU pays is little.
    """
    if len(values) > len(varies):
        return None
    grad = _is_grad_enabled()
    parts: list[Any] = [None, *named]
    device = None
    try:
        for value, may_vary in zip(values, varies, strict=False):
            kind = type(value)
            if kind in _PLAIN:
                if not value.is_cuda or (grad and value.requires_grad) or value.is_neg():
                    return None
                if device is None:
                    device = value.get_device()
                elif device != value.get_device():
                    return None
                pointer = value.data_ptr()
                if pointer in pointers:  # a tape knows operands by their pointers: these are one
                    parts.append(pointers.index(pointer))
                pointers.append(pointer)
                parts += (value.dtype, value.shape, value.stride(), pointer & _UNALIGNED)
            elif kind is float and may_vary:
                parts.append(float)
            elif kind in _CONSTANTS:
                parts += (kind, repr(value) if kind is float else value)  # -0.0 == 0.0
            else:
                return None
    except RuntimeError:  # storage of another kind: sparse, quantized
        return None
    if device is None or device != _device():
        return None
    parts[0] = device
    return None if _asks_more() else tuple(parts)


def _asks_more() -> bool:
    """Whether somebody watches or transforms what a call does, or wants it done in another way."""
    return (
        _dispatch_modes() != 0
        or _function_modes() != 0
        or _functorch_level() is not None
        or forward_ad._current_level >= 0
        or _tracing_state() is not None
        or _deterministic()
        or _hooks.launch_enter_hook is not _enter
        or _hooks.launch_exit_hook is not _exit
        or bool(_enter.calls)
        or bool(_exit.calls)
    )
