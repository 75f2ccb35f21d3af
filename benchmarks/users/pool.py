"""Jobs in processes of their own: one that dies or hangs costs its job, and is replaced.

    for job, answer in run(jobs, processes=14, seconds=60): ...

A job is (name of a function in `jobs.py`, its arguments); the answer is what it returns, or the text of
what went wrong. This process imports no torch, so that a child may decide how triton runs.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

Job = tuple[str, tuple[Any, ...]]


@dataclass(slots=True)
class Child:
    process: Any
    pipe: Connection
    job: Job | None = None
    deadline: float = 0.0

    def give(self, job: Job, seconds: float) -> None:
        self.job, self.deadline = job, time.monotonic() + seconds
        self.pipe.send(job)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run(
    jobs: Sequence[Job], processes: int, seconds: float
) -> Iterator[tuple[Job, dict[str, Any] | str]]:
    """Each job with its answer, as they end; `seconds` is what one may take."""
    waiting = list(reversed(jobs))
    children: list[Child] = []
    try:
        while waiting or any(c.job for c in children):
            for child in children:
                if child.job is None and waiting:
                    child.give(waiting.pop(), seconds)
            while waiting and len(children) < processes:
                children.append(start())
                children[-1].give(waiting.pop(), seconds)
            busy = [c for c in children if c.job]
            nearest = min(c.deadline for c in busy) - time.monotonic()
            ready = wait([c.pipe for c in busy], max(0.0, nearest))
            for child in busy:
                if child.pipe in ready or child.deadline <= time.monotonic():
                    job, child.job = child.job, None
                    answer, alive = answer_of(child, child.pipe in ready, seconds)
                    if not alive:
                        child.end()
                        children.remove(child)
                    yield job, answer
    finally:
        for child in children:
            child.end()


def answer_of(child: Child, ready: bool, seconds: float) -> tuple[dict[str, Any] | str, bool]:
    """The answer, and whether the child can take another job."""
    if not ready:
        return f"not done after {seconds:.0f} s", False
    try:
        return child.pipe.recv()
    except EOFError:
        child.process.join(5)
        return f"the process ended with {child.process.exitcode}", False


def start() -> Child:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return Child(process, ours)


def serve(pipe: Connection) -> None:
    """The child: one job after another until the parent hangs up."""
    from benchmarks.users import jobs

    while True:
        try:
            name, args = pipe.recv()
        except EOFError:
            return
        try:
            answer: dict[str, Any] | str = getattr(jobs, name)(*args)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            answer = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        pipe.send((answer, not jobs.is_device_lost(answer)))
