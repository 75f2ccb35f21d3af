"""Records one call of a generated function, and makes the text of a function that does only what was recorded.

    tape = Tape(values, varies)
    result = tape.record(function)     # runs it
    lines, names = tape.played(function, result)   # the text of a function that repeats it

Torch's dispatch mode shows every torch op of the call: allocations, copies, views. A wrapper around the kernels' `run` shows
the launches. A tape refuses what it cannot repeat: an unknown op, a result that no launch wrote, an argument that is not a
place in an operand or an allocation. A replay holds text, numbers and compiled kernels, and no tensor. Of a tuned kernel it records
the launch that its table chose. A call that measures configs is recorded `again` later.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
_empty = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class Tape(TorchDispatchMode):
    """One call. `values`: as given, by position; `varies`: where a number decides nothing."""

    def __init__(self, values: Sequence[Any], varies: tuple[bool, ...]):
        super().__init__()
        self.refused = ""  # why there is no replay
        self.again = False  # whether a later call like this one may be noted nevertheless
        self.events: list[tuple[Any, ...]] = []
        self.names: dict[str, Any] = {}  # what the text speaks of
        self.kept: list[torch.Tensor] = []  # allocations; alive, so that no two share a pointer
        # By pointer and dtype: the pointer and its tensor.
        self.places: dict[tuple[int, torch.dtype], tuple[str, str, torch.Tensor]] = {}
        self.scalars: dict[int, str] = {}  # by identity
        self.values = [*values]
        operands, self.device, self.index = 0, None, -1
        for k, value in enumerate(values):
            if isinstance(value, torch.Tensor):
                place = f"p{operands}", f"v{k}", value
                self.places[value.data_ptr(), value.dtype] = place
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
        with _noting(kernels, self), self:
            result = function(*self.values)
        if measured != [len(tuner.cache) for tuner in tuners]:
            self._refuse("configs were measured")
            self.again = True
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.refused:
            return result
        match func._schema.name.removeprefix("aten::"):
            case name if name in _ALLOCATES:
                self._allocated(result)
                if name == "zeros":
                    self.events.append(("zero", result))
            case "clone":
                self._allocated(result)
                self.events.append(("copy", result, args[0]))
            case "copy_":
                self.events.append(("copy", args[0], args[1]))
            case "zero_":
                if args[0].numel():
                    self.events.append(("zero", args[0]))
            case _ if not _is_view(func, args, result) or not self._begins_known(args[0], result):
                self._refuse(f"{func}: an op that a replay would leave out")
        return result

    def _refuse(self, reason: str) -> None:
        """Ends the record. What the call has let go is free at once: it may have been cut into chunks to use less memory."""
        self.refused = reason
        self.events.clear()
        self.places.clear()
        self.kept.clear()

    def _allocated(self, tensor: torch.Tensor) -> None:
        if tensor.data_ptr() == 0 or tensor.device != self.device:
            return self._refuse("an allocation of nothing, or elsewhere")
        name = f"t{len(self.kept)}"
        self.kept.append(tensor)
        self.places[tensor.data_ptr(), tensor.dtype] = f"{name}_at", name, tensor
        self.events.append(("allocate", name, tensor))

    def launched(self, kernel: Any, compiled: Any, grid: Any, args: Any, config: Any) -> None:
        bound = arguments_of(kernel, args, config)
        grid = grid(bound) if callable(grid) else grid
        if compiled is None or kernel.pre_run_hooks or not set(kernel.arg_names) <= set(bound):
            self._refuse(f"{kernel}: a launch that leaves something to the JIT")
        else:
            arguments = [bound[name] for name in kernel.arg_names]
            self.events.append(("launch", compiled, grid, arguments))

    # ---- what it comes to
    def played(self, function: Callable[..., Any], result: Any) -> tuple[list[str], dict[str, Any]]:
        """The text that repeats the call, over the names of `kinds.Likeness`, and what it speaks of. Raises Unheld if the record is not sufficient."""
        if self.refused:
            raise Unheld(self.refused)
        defaults = {id(d) for d in function.__defaults__ or () if self.scalars}
        written: set[int] = set()
        steps: list[str] = []
        begins: dict[str, int] = {}  # by allocation: the step that it is made for
        for k, event in enumerate(self.events):
            if event[0] == "allocate":
                begins[event[1]] = len(steps)
            else:
                steps.append(self._step(event, str(k), defaults, written))
        outputs = result if isinstance(result, tuple) else (result,)
        there = [y for y in outputs if y is not None]  # a gradient gives what it is asked for
        if any(y.data_ptr() not in written for y in there):
            raise Unheld("a result that nothing writes")
        returned = ["None" if y is None else self._tensor(y, whole=True) for y in outputs]
        lines = self._with_memory(steps, begins, returned)
        lines = [f"stream = current_stream({self.index})", *lines, f"return {', '.join(returned)}"]
        return lines, {**self.names, "empty": _empty, "current_stream": _stream}

    def _with_memory(
        self, steps: list[str], begins: dict[str, int], returned: list[str]
    ) -> list[str]:
        """The steps, the allocations in front of the first one that they are made for, and `del` behind the last.

        Scratch that lives equally long, and of which only the pointer is used, is one allocation.
        """
        groups: dict[tuple[int, int, str], list[str]] = {}
        for name, begin in begins.items():
            used = [k for k, step in enumerate(steps) if re.search(rf"\b{name}(_at)?\b", step)]
            is_tensor = any(re.search(rf"\b{name}\b", steps[k]) for k in used)
            if used or name in returned:
                own = name if is_tensor or name in returned else ""
                groups.setdefault((begin, max(used, default=begin), own), []).append(name)
        above: list[list[str]] = [[] for _ in steps]
        below: list[list[str]] = [[] for _ in steps]
        for (begin, end, _), (name, *others) in groups.items():
            t, places, size = self._own(name), [], self._bytes(name)
            for other in others:
                places.append(f"{other}_at = {name}_at + {size}")
                size += self._bytes(other)
            shape, stride, dtype = (
                ((size,), (1,), torch.uint8) if others else (tuple(t.shape), t.stride(), t.dtype)
            )
            self.names[f"{name}_dtype"] = dtype
            made = f"{name} = empty({shape}, {stride}, {name}_dtype)"
            above[begin] += [made, f"{name}_at = {name}.data_ptr()", *places]
            below[end] += [f"del {name}"] * (name not in returned)
        parts = zip(above, steps, below, strict=True)
        return [line for before, step, behind in parts for line in (*before, step, *behind)]

    def _own(self, name: str) -> torch.Tensor:
        return self.kept[int(name[1:])]

    def _bytes(self, name: str) -> int:
        size = self._own(name).untyped_storage().nbytes()
        return -(-size // ALIGNMENT) * ALIGNMENT

    def _step(self, event: tuple[Any, ...], tag: str, defaults: set[int], written: set[int]) -> str:
        match event:
            case ("zero", t):
                written.add(t.data_ptr())
                return f"{self._part(t)}.zero_()"
            case ("copy", to, source):
                written.add(to.data_ptr())
                return f"{self._tensor(to)}.copy_({self._tensor(source)})"
            case ("launch", compiled, grid, arguments):
                for a in arguments:
                    place = getattr(a, "base", a)
                    if isinstance(place, torch.Tensor):
                        written.add(place.data_ptr())
                    elif type(a) is float and self.scalars:
                        if id(a) not in self.scalars and id(a) not in defaults:
                            raise Unheld("a number that was computed from an operand")
                held = held_launch(compiled, grid, arguments, self._place, tag)
                self.names |= held.names
                return held.text
        raise AssertionError(event)

    def _place(self, value: Any) -> str:
        """The expression that a launch passes for a tensor or a float."""
        if value is None:
            return "None"
        if isinstance(value, float):
            name = f"number{len(self.names)}"
            if id(value) not in self.scalars:
                self.names[name] = value
            return self.scalars.get(id(value), name)
        return self._known(value)[0]

    def _begins_known(self, t: torch.Tensor, part: torch.Tensor) -> bool:
        """Whether a view begins where its tensor does, or is of an allocation of the call."""
        return part.data_ptr() == t.data_ptr() or self._allocation(part) is not None

    def _allocation(self, t: torch.Tensor) -> int | None:
        storage = t.untyped_storage().data_ptr()
        return next(
            (k for k, own in enumerate(self.kept) if own.untyped_storage().data_ptr() == storage),
            None,
        )

    def _part(self, t: torch.Tensor) -> str:
        """Any part of an allocation, such as the channels behind those of an operand."""
        k = self._allocation(t)
        if k is None or self.kept[k].dtype != t.dtype:
            return self._tensor(t, whole=True)
        if (t.shape, t.stride()) == (self.kept[k].shape, self.kept[k].stride()):
            return f"t{k}"
        return f"t{k}.as_strided({tuple(t.shape)}, {t.stride()}, {t.storage_offset()})"

    def _tensor(self, t: torch.Tensor, whole: bool = False) -> str:
        """A tensor that begins where an operand or an allocation does, as torch ops see it."""
        _, name, own = self._known(t)
        if (t.shape, t.stride()) == (own.shape, own.stride()):
            return name
        if whole:
            raise Unheld("a part of an allocation")
        return f"{name}.as_strided({tuple(t.shape)}, {t.stride()})"

    def _known(self, t: Any) -> tuple[str, str, torch.Tensor]:
        place = (t.data_ptr(), t.dtype) if isinstance(t, torch.Tensor) else None
        if place not in self.places:
            raise Unheld("a pointer that is no operand's, or seen by another dtype")
        return self.places[place]


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
            tape.launched(kernel, compiled, grid, args, config)
        return compiled

    return launch
