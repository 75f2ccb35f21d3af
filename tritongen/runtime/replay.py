"""Replay: a call like a recorded one launches what that one launched, and does nothing else.

    call = Replay(function, params_of(function)).over(otherwise)
    call((x, w, 1e-5))    # the first call of its kind runs the function
    call((x, w, 1e-5))    # the second one runs it too, and is recorded
    call((x, w, 1e-6))    # later calls: allocate, launch, return

`kinds.py` decides which calls are of one kind; the precision of f32 is part of it. Only the generated function checks,
allocates and chooses. This module knows nothing about an op. A call is never recorded or replayed in a state of torch or
Triton that asks for more than launches, or for something else.

What Triton reads from its environment at each launch (TRITON_DEBUG and the like) is read only when a call is recorded.

`tape.py` records a call and makes its replay. `held.py` launches a compiled kernel without its JIT.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tritongen.runtime.kinds import MISSED, Likeness, kind_of, likeness, require_gradient
from tritongen.runtime.precision import asker, decided
from tritongen.runtime.schema import Param
from tritongen.runtime.tape import Tape

MOST_ENTRIES = 512  # shapes and constants of calls that one op replays
PATIENCE = 16  # calls before a kind takes another's place: a note costs 1 ms, a replay saves 0.05
MOST_SEEN = 4096  # and those that it has seen at all
MOST_WAYS = 32  # of each: by other operands, or where functions are replaced by turns, as by tuning

_is_grad_enabled = torch.is_grad_enabled


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded call. `call(values, differentiable)` repeats it, or returns MISSED for a call of another kind.

    `text`: what `call` does. `refused`: the reason if it runs the function instead.
    """

    call: Callable[..., Any]
    text: str
    refused: str


class Replay:
    """The recorded calls of one function. `precision`: its questions to `f32_precision`."""

    __slots__ = (
        "answers",
        "entries",
        "function",
        "precision",
        "seen",
        "_constants",
        "_first",
        "_lock",
        "_varies",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        params: tuple[Param, ...],
        precision: tuple[str, ...] = (),
    ):
        self.function = function
        self.precision = precision
        self.answers = asker(precision)
        # Keyed by the shape of the first operand, the precision and the constants. Few keys have more than one entry.
        self.entries: dict[tuple[Any, ...], tuple[Entry, ...]] = {}
        self.seen: dict[tuple[Any, ...], int] = {}  # calls that were not replayed
        kinds = [p.kind for p in params]
        self._first = kinds.index("tensor")
        self._constants = tuple(k for k, kind in enumerate(kinds) if kind == "constant")
        # Run-time scalars reach kernels as they are, and decide nothing.
        self._varies = tuple(kind == "optional" for kind in kinds)
        self._lock = threading.Lock()

    def over(
        self,
        otherwise: Callable[[Sequence[Any]], Any],
        differentiable: Callable[..., Any] = lambda run, *values: run[0](values, run),
        before: str = "",
        **names: Any,
    ) -> Callable[..., Any]:
        """A function that replays a call if it can.

        Args:
            otherwise: takes the values of a call that is not replayed.
            differentiable: `differentiable(run, *values)` is `run[0](values, run)` for a call that wants a gradient. Behind
                the function in `run` are the pointers of the operands.
            before: the lines of the function in front of that, over `names`. They may take other arguments than all values by
                position, and leave the values in `args`.
        """
        key = [f"args[{self._first}].shape"]
        key += ["answers()"] if self.precision else []
        key += [f"args[{k}]" for k in self._constants]
        text = _CALL.format(
            name=self.function.__name__,
            before=before,
            key=f"({', '.join(key)})" if len(key) > 1 else key[0],
        )
        scope = dict(
            answers=self.answers,
            entries=self.entries,
            differentiable=differentiable,
            is_missed=MISSED,
            missed=self._missed,
            otherwise=otherwise,
            **names,
        )
        exec(compile(text, f"<a call of {self.function.__name__}>", "exec"), scope)
        return scope[self.function.__name__]

    def _run(self, values: Sequence[Any], run: Any) -> Any:
        return self.function(*values)

    def _missed(
        self,
        key: tuple[Any, ...],
        values: Sequence[Any],
        otherwise: Callable[[Sequence[Any]], Any],
        differentiable: Callable[..., Any],
    ) -> Any:
        """A call that no entry knows: counted, and noted where its kind was seen often enough."""
        kind = kind_of(values, self._varies)
        if kind is None:
            return otherwise(values)
        # From the key: a switch of torch may change meanwhile.
        named = key[1] if self.precision else ()
        kind = (*named, *kind)
        before = self.seen.get(kind, 0)
        room = len(self.entries) < MOST_ENTRIES and len(self.entries.get(key, ())) < MOST_WAYS
        enough = before >= (1 if room else PATIENCE)
        with self._lock:
            _put(self.seen, kind, 1 if enough else before + 1, MOST_SEEN)
        wants = require_gradient(values)
        run: Callable[..., Any] = self._run
        if enough and self._may_note():
            alike = likeness(values, self._varies, self.function)
            run = functools.partial(self._note, key, alike, wants)
        with decided(dict(zip(self.precision, named, strict=True))):
            if wants and _is_grad_enabled():
                return differentiable((run,), *values)
            return run(values, (run,))

    def _may_note(self) -> bool:
        """Whether a call may be recorded: not during a graph's capture, and not if `torch` was replaced (`proof.guarded`)."""
        if self.function.__globals__.get("torch") is not torch:
            return False
        return not torch.cuda.is_current_stream_capturing()

    def _note(
        self,
        key: tuple[Any, ...],
        alike: Likeness,
        wants: bool,
        values: Sequence[Any],
        run: Any,
    ) -> Any:
        tape = Tape(values, self._varies)
        result = tape.record(self.function)
        if tape.again:
            return result
        refused = ""
        try:
            lines, names = tape.played(result)
        except Exception as reason:  # Unheld, or what another build of Triton lacks
            refused = f"{type(reason).__name__}: {reason}"
            lines, names = ["return function(*values)"], {"function": self.function}
        entry = _entry(self.function.__name__, alike, wants, lines, names, refused)
        with self._lock:
            ways = (entry, *self.entries.get(key, ()))[:MOST_WAYS]
            _put(self.entries, key, ways, MOST_ENTRIES)
        return result


def _entry(
    name: str, alike: Likeness, wants: bool, lines: list[str], names: dict[str, Any], refused: str
) -> Entry:
    """The entry of a recorded call. `wants`: whether an operand requires a gradient."""
    given = f"{', '.join(alike.given)},"
    pointers = f"{', '.join(alike.at)},"
    text = ["def call(values, differentiable):", f"    {given} = values", *_indented(alike.lines)]
    if wants:
        head = ["def play(values, run):", f"    {given} = values", f"    _, {pointers} = run"]
        wanting = f"differentiable((play, {pointers}), {given})"
        text = [
            *head,
            *_indented(lines),
            *text,
            "    if is_grad_enabled():",
            f"        return {wanting}",
        ]
    text += _indented(lines)
    scope = {**alike.names, **names, "is_grad_enabled": _is_grad_enabled}
    exec(compile("\n".join(text), f"<replay of {name}>", "exec"), scope)
    return Entry(scope["call"], "\n".join(text), refused)


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


# Text, since each Python function that a call goes through costs as much as a test.
_CALL = """
def {name}(*args, **kwargs):
    {before}
    try:
        key = {key}
        ways = entries.get(key, ())
    except (AttributeError, RuntimeError, TypeError):
        # An argument has no key: it is no tensor, a tensor without sizes or with symbolic ones, or a list.
        return otherwise(args)
    for entry in ways:
        result = entry.call(args, differentiable)
        if result is not is_missed:
            return result
    return missed(key, args, otherwise, differentiable)
"""


def _put(table: dict, key: tuple[Any, ...], value: Any, most: int) -> None:
    """Adds to a table; what has been there for longest makes room."""
    table.pop(key, None)
    while len(table) >= most:
        table.pop(next(iter(table)))
    table[key] = value
