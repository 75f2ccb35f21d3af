"""Records one call of a generated function, and makes the text of a function that does only what was recorded.

    tape = Tape(values, varies)
    result = tape.record(function)     # runs it
    lines, names = tape.played(function, result)   # the text of a function that repeats it

Torch's dispatch mode shows every torch op of the call: allocations, copies, views. A wrapper around the kernels' `run` shows
the launches. A tape refuses what it cannot repeat: an unknown op, a result that no launch wrote, an argument that is not a
place in an operand or an allocation. Of a tuned kernel it records the launch that its table chose. A call that measures configs
is recorded `again` later.

Each event becomes text at once. Neither a tape nor a replay holds a tensor that the call has let go, so a recorded call takes no
more memory than any other: it may be one that runs in chunks to use less.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from tritongen.lib.replayed import arguments_of
from tritongen.runtime.held import Unheld, held_launch
from tritongen.runtime.kinds import every_reached

_ALLOCATES = frozenset(
    "empty empty_strided empty_permuted empty_like new_empty new_empty_strided zeros".split()
)
KERNELS = JITFunction
ALIGNMENT = 512  # bytes, as in torch's allocations
MOST_STEPS = 2048
_empty = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor begins: `offset` bytes behind the operand or allocation `name`, which has this shape and these strides."""

    name: str
    at: str  # the variable that holds its pointer
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    bytes: int = 0
    offset: int = 0

    @property
    def pointer(self) -> str:
        return f"{self.at} + {self.offset}" if self.offset else self.at


class Tape(TorchDispatchMode):
    """One call. `values`: as given, by position; `varies`: where a number decides nothing."""

    def __init__(self, values: Sequence[Any], varies: tuple[bool, ...]):
        super().__init__()
        self.refused = ""  # why there is no replay
        self.again = False  # whether a later call like this one may be noted nevertheless
        self.steps: list[str] = []
        self.names: dict[str, Any] = {}  # what the text speaks of
        self.written: set[str] = set()  # operands and allocations that some step gets
        self.made: dict[str, tuple[Place, int]] = {}  # allocations, and the step each is made for
        self.places: dict[tuple[int, torch.dtype], Place] = {}
        self.scalars: dict[int, str] = {}  # by identity
        self.defaults: set[int] = set()
        self.values = [*values]
        operands, self.device, self.index = 0, None, -1
        for k, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                self._put(value, f"v{k}", f"p{operands}")
                operands, self.device, self.index = operands + 1, value.device, value.get_device()
            elif type(value) is float and varies[k]:
                self.values[k] = value * 1.0  # its own object, by which launches are searched
                self.scalars[id(self.values[k])] = f"v{k}"

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would hide the method from torch.compile, which it imports for that: seconds, once."""
        return False

    # ---- the call
    def record(self, function: Callable[..., Any]) -> Any:
        reached = every_reached(function)
        tuners = [v for v in reached if isinstance(v, Autotuner)]
        measured = [len(tuner.cache) for tuner in tuners]
        kernels = [v for v in (*reached, *(t.fn for t in tuners)) if isinstance(v, KERNELS)]
        self.defaults = {id(d) for d in function.__defaults__ or () if self.scalars}
        with _noting(kernels, self), self:
            result = function(*self.values)
        if measured != [len(tuner.cache) for tuner in tuners]:
            self._refuse("configs were measured")
            self.again = True
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.refused:
            with self._refusing():
                self._note(func, args, result)
        return result

    def _note(self, func: Any, args: Any, result: Any) -> None:
        if isinstance(result, torch.Tensor) and result.is_meta:
            return  # it stands for a result that the call does not ask for; no kernel takes it
        match func._schema.name.removeprefix("aten::"):
            case name if name in _ALLOCATES:
                self._allocated(result)
                if name == "zeros":
                    self._zeroed(result)
            case "clone":
                self._allocated(result)
                self._copied(result, args[0])
            case "copy_":
                self._copied(args[0], args[1])
            case "zero_":
                if args[0].numel():
                    self._zeroed(args[0])
            case _ if _is_view(func, args, result):
                self._viewed(args[0], result)
            case _:
                raise Unheld(f"{func}: an op that a replay would leave out")

    def launched(self, kernel: Any, compiled: Any, grid: Any, args: Any, config: Any) -> None:
        bound = arguments_of(kernel, args, config)
        grid = grid(bound) if callable(grid) else grid
        if compiled is None or kernel.pre_run_hooks or not set(kernel.arg_names) <= set(bound):
            raise Unheld(f"{kernel}: a launch that leaves something to the JIT")
        if len(self.steps) >= MOST_STEPS:
            raise Unheld(f"more than {MOST_STEPS} launches")
        arguments = [bound[name] for name in kernel.arg_names]
        for a in arguments:
            if type(a) is float and self.scalars and id(a) not in {*self.scalars, *self.defaults}:
                raise Unheld("a number that was computed from an operand")
        held = held_launch(compiled, grid, arguments, self._passed, str(len(self.steps)))
        self.names |= held.names
        self.steps.append(held.text)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """There is no replay of what raises an error here: Unheld, or what another build of Triton lacks."""
        try:
            yield
        except Exception as reason:
            self._refuse(str(reason) if isinstance(reason, Unheld) else repr(reason))

    def _refuse(self, reason: str) -> None:
        self.refused = reason
        for record in (self.steps, self.names, self.made, self.places):
            record.clear()

    # ---- events
    def _put(self, t: torch.Tensor, name: str, at: str) -> Place:
        size = t.untyped_storage().nbytes()
        place = Place(name, at, t.shape, t.stride(), t.dtype, -(-size // ALIGNMENT) * ALIGNMENT)
        self.places[t.data_ptr(), t.dtype] = place
        return place

    def _allocated(self, t: torch.Tensor) -> None:
        if t.data_ptr() == 0 or t.device != self.device:
            raise Unheld("an allocation of nothing, or elsewhere")
        begin, end = t.data_ptr(), t.data_ptr() + t.untyped_storage().nbytes()
        for key in [key for key in self.places if begin <= key[0] < end]:
            del self.places[key]  # the call has let go what was there
        name = f"t{len(self.made)}"
        self.made[name] = self._put(t, name, f"{name}_at"), len(self.steps)

    def _viewed(self, t: torch.Tensor, part: torch.Tensor) -> None:
        """A view may begin elsewhere. Which operand it is of counts: another call may have them apart."""
        key, own = (part.data_ptr(), part.dtype), self.places.get((t.data_ptr(), t.dtype))
        if key[0] == t.data_ptr() or own is None:
            return
        place = replace(own, offset=own.offset + key[0] - t.data_ptr())
        if self.places.setdefault(key, place) != place:
            raise Unheld("a view that begins where another tensor does")

    def _zeroed(self, t: torch.Tensor) -> None:
        self.written.add(self._place(t).name)
        self.steps.append(f"{self._tensor(t)}.zero_()")

    def _copied(self, to: torch.Tensor, source: torch.Tensor) -> None:
        self.written.add(self._place(to).name)
        self.steps.append(f"{self._tensor(to)}.copy_({self._tensor(source)})")

    def _passed(self, value: Any) -> str:
        """The expression that a launch passes for a tensor or a float."""
        if value is None:
            return "None"
        if isinstance(value, float):
            name = f"number{len(self.names)}"
            if id(value) not in self.scalars:
                self.names[name] = value
            return self.scalars.get(id(value), name)
        place = self._place(value)
        self.written.add(place.name)
        return place.pointer

    def _place(self, t: Any) -> Place:
        place = isinstance(t, torch.Tensor) and self.places.get((t.data_ptr(), t.dtype))
        if not place:
            raise Unheld("a pointer that is no operand's, or seen by another dtype")
        return place

    def _tensor(self, t: torch.Tensor) -> str:
        """A tensor as torch ops see it."""
        place = self._place(t)
        if (t.shape, t.stride(), 0) == (place.shape, place.stride, place.offset):
            return place.name
        begin = f"{place.name}.storage_offset() + {place.offset // t.element_size()}"
        begin = f", {begin}" if place.offset else ""
        return f"{place.name}.as_strided({tuple(t.shape)}, {t.stride()}{begin})"

    # ---- what it comes to
    def played(self, result: Any) -> tuple[list[str], dict[str, Any]]:
        """The text that repeats the call, over the names of `kinds.Likeness`, and what it speaks of. Raises Unheld if the record is not sufficient."""
        if self.refused:
            raise Unheld(self.refused)
        outputs = result if isinstance(result, tuple) else (result,)
        # A gradient gives what it is asked for.
        returned = ["None" if y is None else self._returned(y) for y in outputs]
        lines = [f"stream = current_stream({self.index})", *self._with_memory(returned)]
        names = {**self.names, "empty": _empty, "current_stream": _stream}
        return [*lines, f"return {', '.join(returned)}"], names

    def _returned(self, y: torch.Tensor) -> str:
        text = self._tensor(y)
        if self._place(y).name not in self.written:
            raise Unheld("a result that nothing writes")
        if not text.isidentifier():
            raise Unheld("a part of an allocation")
        return text

    def _with_memory(self, returned: list[str]) -> list[str]:
        """The steps, the allocations in front of the first one that they are made for, and `del` behind the last.

        Scratch that lives equally long, and of which only the pointer is used, is one allocation.
        """
        last: dict[str, int] = {}
        tensors = {*returned}
        for k, step in enumerate(self.steps):
            for name, at in re.findall(r"\b(t\d+)(_at)?\b", step):
                last[name] = k
                if not at:
                    tensors.add(name)
        groups: dict[tuple[int, int, str], list[Place]] = {}
        for name, (place, begin) in self.made.items():
            if name in last or name in returned:
                own = name if name in tensors else ""
                groups.setdefault((begin, last.get(name, begin), own), []).append(place)
        above: list[list[str]] = [[] for _ in self.steps]
        below: list[list[str]] = [[] for _ in self.steps]
        for (begin, end, _), (first, *others) in groups.items():
            name, places, size = first.name, [], first.bytes
            for other in others:
                places.append(f"{other.at} = {first.at} + {size}")
                size += other.bytes
            shape, stride, dtype = (
                ((size,), (1,), torch.uint8)
                if others
                else (tuple(first.shape), first.stride, first.dtype)
            )
            self.names[f"{name}_dtype"] = dtype
            made = f"{name} = empty({shape}, {stride}, {name}_dtype)"
            above[begin] += [made, f"{first.at} = {name}.data_ptr()", *places]
            below[end] += [f"del {name}"] * (name not in returned)
        parts = zip(above, self.steps, below, strict=True)
        return [line for before, step, behind in parts for line in (*before, step, *behind)]


def _is_view(func: Any, args: Any, result: Any) -> bool:
    """Whether an op returns a view of its first operand, or of a part of it."""
    return (
        not func._schema.is_mutable
        and bool(args)
        and isinstance(args[0], torch.Tensor)
        and isinstance(result, torch.Tensor)
        and result.untyped_storage().data_ptr() == args[0].untyped_storage().data_ptr()
    )


# ---- launches -----------------------------------------------------------------------------------
_one_at_a_time = threading.RLock()


@contextmanager
def _noting(kernels: list[Any], tape: Tape) -> Iterator[None]:
    """While it lasts, this thread's launches of these kernels go to the tape too."""
    with _one_at_a_time:
        before = [(kernel, vars(kernel).get("run")) for kernel in kernels]
        for kernel in kernels:
            kernel.run = _noted(kernel, kernel.run, tape, threading.get_ident())
        try:
            yield
        finally:
            for kernel, own in before:
                if own is None:
                    del kernel.run
                else:
                    kernel.run = own


def _noted(kernel: Any, run: Callable[..., Any], tape: Tape, thread: int) -> Callable[..., Any]:
    def launch(*args: Any, grid: Any, warmup: bool, **config: Any) -> Any:
        if warmup or threading.get_ident() != thread:
            return run(*args, grid=grid, warmup=warmup, **config)
        try:
            compiled = run(*args, grid=grid, warmup=warmup, **config)
        except BaseException:
            tape._refuse("a launch that failed")
            raise
        if not tape.refused:
            with tape._refusing():
                tape.launched(kernel, compiled, grid, args, config)
        return compiled

    return launch
