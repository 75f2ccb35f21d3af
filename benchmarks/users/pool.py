"""Runs jobs in processes of their own. If a process dies or hangs, its job fails and the process is replaced.

    with crew() as children:
        for job, answer in run(jobs, 14, 60, children): ...   # at most 14 at a time, of 60 s each
        for job, answer in run(others, 1, 60, children): ...  # each where its problem was before

A job is (name of a function in a module of jobs, its arguments, the problem first). The answer is what the function
returns, or the text of its error. This process does not import torch, so that a child may decide how triton runs.
"""

from __future__ import annotations

import importlib
import math
import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

Job = tuple[str, tuple[Any, ...]]


@dataclass(slots=True)
class Child:
    process: Any
    pipe: Connection
    job: Job | None = None
    deadline: float = 0.0
    seen: set[Any] = field(
        default_factory=set
    )  # problems: what a child keeps of one serves its next job

    def give(self, job: Job, seconds: float) -> None:
        self.job, self.deadline = job, time.monotonic() + seconds
        self.seen.update(job[1][:1])
        self.pipe.send(job)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def crew() -> Iterator[list[Child]]:
    """Children that outlive a run, and not this block."""
    children: list[Child] = []
    try:
        yield children
    finally:
        for child in children:
            child.end()


JOBS = "benchmarks.users.jobs"


def run(
    jobs: Sequence[Job],
    processes: int,
    seconds: float,
    children: list[Child],
    module: str = JOBS,
    until: float = math.inf,
) -> Iterator[tuple[Job, dict[str, Any] | str]]:
    """Each job with its answer, as they end; `seconds` is what one may take. None begins after `until`, of the clock `monotonic`."""
    waiting = list(reversed(jobs))
    while waiting or any(c.job for c in children):
        if time.monotonic() > until:
            waiting.clear()
        while waiting and sum(c.job is not None for c in children) < processes:
            child = child_for(waiting[-1], children, module)
            if child is None:
                break  # busy with another job
            child.give(waiting.pop(), seconds)
        busy = [c for c in children if c.job]
        if not busy:
            return
        nearest = min(c.deadline for c in busy) - time.monotonic()
        ready = wait([c.pipe for c in busy], max(0.0, nearest))
        for child in busy:
            if child.pipe in ready or child.deadline <= time.monotonic():
                assert child.job
                job, child.job = child.job, None
                answer, alive = answer_of(child, child.pipe in ready, seconds)
                if not alive:
                    child.end()
                    children.remove(child)
                yield job, answer


def child_for(job: Job, children: list[Child], module: str) -> Child | None:
    """The one that had the problem before, else an idle one or a new one; None where the first is busy."""
    for child in children:
        if child.seen.intersection(job[1][:1]):
            return None if child.job else child
    for child in children:
        if child.job is None:
            return child
    children.append(start(module))
    return children[-1]


def answer_of(child: Child, ready: bool, seconds: float) -> tuple[dict[str, Any] | str, bool]:
    """The answer, and whether the child can take another job."""
    if not ready:
        return f"not done after {seconds:.0f} s", False
    try:
        return child.pipe.recv()
    except EOFError:
        child.process.join(5)
        return f"the process ended with {child.process.exitcode}", False


def start(module: str) -> Child:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, module), daemon=True)
    process.start()
    theirs.close()
    return Child(process, ours)


def serve(pipe: Connection, module: str) -> None:
    """The child: one job after another until the parent hangs up."""
    jobs = importlib.import_module(module)
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
