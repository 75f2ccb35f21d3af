"""Grids whose programs wait for each other, in Triton's interpreter, which runs one program after another.

    install_cooperative_grids()  # with TRITON_INTERPRET=1, before the first kernel runs
    kernel[grid](..., launch_cooperative_grid=True)  # programs now take turns at every atomic

Each program is a thread, of which one runs at a time: a program that polls a counter lets the next one run.
On a GPU nothing here is used: there a cooperative launch runs all programs at once, or fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import prod
from threading import Semaphore, Thread
from typing import Any

import triton.language as tl  # the interpreter looks for it in the globals of what it runs
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, interpreter_builder

ROUNDS = 1000  # turns without an end of any program, after which none will come
__all__ = ["install_cooperative_grids", "tl"]


class Turns:
    """The programs of one grid and whose turn it is."""

    def __init__(self) -> None:
        self.programs: list[Callable[[], None]] = []
        self.places: list[Any] = []
        self.problem: BaseException | None = None

    def add(self, program: Callable[[], None]) -> None:
        self.programs.append(program)
        self.places.append(interpreter_builder.grid_idx)

    def run(self) -> None:
        count = len(self.programs)
        self.turns = [Semaphore(0) for _ in range(count)]
        self.left = list(range(count))
        self.patience = ROUNDS * count
        threads = [Thread(target=self._program, args=(k,)) for k in range(count)]
        for thread in threads:
            thread.start()
        self._give(0)
        for thread in threads:
            thread.join()
        if self.problem is not None:
            raise self.problem

    def pass_on(self) -> None:
        """The turn of the running program goes to the next one, and comes back."""
        self.patience -= 1
        if self.patience < 0:
            raise RuntimeError("the programs of a grid wait for each other without end")
        own = self.running
        self._give(self._behind(own))
        self.turns[own].acquire()
        if self.problem is not None:
            raise SystemExit
        self._take(own)

    def _program(self, own: int) -> None:
        self.turns[own].acquire()
        try:
            if self.problem is None:
                self._take(own)
                self.programs[own]()
        except BaseException as problem:
            self.problem = self.problem or problem
        following = self._behind(own)
        self.left.remove(own)
        self.patience = ROUNDS * len(self.left)
        if self.left:
            self._give(following)

    def _take(self, own: int) -> None:
        self.running = own
        interpreter_builder.grid_idx = self.places[own]

    def _behind(self, own: int) -> int:
        return self.left[(self.left.index(own) + 1) % len(self.left)]

    def _give(self, place: int) -> None:
        self.turns[place].release()


def install_cooperative_grids() -> None:
    """Replaces how this process's interpreter runs a grid that is launched as cooperative."""
    plain_call, plain_atomic = GridExecutor.__call__, InterpreterBuilder.create_atomic_rmw
    running: list[Turns] = []

    def call(self: GridExecutor, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("launch_cooperative_grid"):
            return plain_call(self, *args, **kwargs)
        self.fn = gathered(self.fn, prod(self.grid))
        return plain_call(self, *args, **kwargs)

    def gathered(kernel: Callable[..., None], count: int) -> Callable[..., None]:
        turns = Turns()

        def program(**args: Any) -> None:
            turns.add(lambda: kernel(**args))
            if len(turns.programs) == count:
                running.append(turns)
                try:
                    turns.run()
                finally:
                    running.pop()

        program.__signature__ = inspect.signature(kernel)  # type: ignore[attr-defined]
        return program

    def atomic(self: InterpreterBuilder, *args: Any) -> Any:
        result = plain_atomic(self, *args)
        if running:
            running[-1].pass_on()
        return result

    GridExecutor.__call__ = call
    InterpreterBuilder.create_atomic_rmw = atomic
