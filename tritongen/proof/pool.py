"""Runs jobs of the proof in processes of their own, since a process either interprets kernels or compiles them.

    for report in run_jobs(jobs, device="cpu", processes=2): ...   # of a file each, as they finish
    with Worker("cpu") as worker:
        report = worker.ask(job)

If a process dies or hangs, its job gets a failing report, and the process is replaced.

The cost of a file is not known ahead: kernels of some files take seconds to compile. So each file is cut in `parts`. The
first part of every file runs first. Then the files whose first part took longest go on.

Not here: what a job does (`runner.py`).
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tritongen.proof.parts import Job, Report, Say, Shares, joined, nobody, parts_of
from tritongen.proof.worker import broken


class Worker:
    """A process that proves one file of ops after another; `module` is what it runs.

    Only a process for "cpu" interprets kernels.
    """

    def __init__(self, device: str, module: str = "tritongen.proof.worker"):
        self.device, self.module = device, module
        self.process: subprocess.Popen | None = None
        self.over = False  # it takes no more jobs

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def ask(self, job: Job, timeout: float = 600, say: Say = nobody) -> dict[str, Any]:
        """Returns the report. `say` gets the progress meanwhile."""
        if self.process is None or self.process.poll() is not None:
            self.process = _start(self.device, self.module)
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        alarm = threading.Timer(timeout, _kill, (process,))
        alarm.start()
        at = ""
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            while (line := process.stdout.readline()) and "at" in (found := json.loads(line)):
                at = found["at"]
                say(at, found.get("stage", ""), found.get("share", 0.0))
        except (BrokenPipeError, ValueError):  # it was killed in the middle of a line
            line = ""
        finally:
            alarm.cancel()
        if line:
            return found
        how = _ending(process.wait())
        return broken(job, f"the process ended with {how} (limit {timeout:.0f} s)", at)

    def kill(self) -> None:
        """At once, from another thread than the one that asks."""
        self.over = True
        if (process := self.process) is not None:
            _kill(process)

    def stop(self) -> None:
        if self.process is None:
            return
        process, self.process = self.process, None
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.close()  # there are no more jobs
            process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            _kill(process)
            process.wait()
        process.stdout.close()


@dataclass(order=True, slots=True)
class _Turn:
    """A job in the queue, the least `rank` first; without one there is no more to do."""

    rank: float
    file: int
    job: Job | None = field(compare=False, default=None)


Turns = queue.PriorityQueue[_Turn]
Reports = queue.SimpleQueue[tuple[int, Report]]


def run_jobs(
    jobs: Sequence[Job],
    device: str,
    processes: int = 1,
    timeout: float = 600,
    say: Say = nobody,
) -> Iterator[Report]:
    """Yields a report for each job, in the order in which they finish. The processes end with the iterator, however it ends.

    There is one process that compiles for a target for every four that run kernels.
    """
    reports: Reports = queue.SimpleQueue()
    parts = [parts_of(job) for job in jobs]
    shares = Shares([list(jobs) for jobs in parts], say)
    found: list[list[Report]] = [[] for _ in jobs]
    targets = {job["target"]: -(-processes // 4) for job in jobs if "target" in job}
    counts = {device: processes} | targets
    waiting: dict[str, Turns] = {d: queue.PriorityQueue() for d in counts}
    for file, (first, *_) in enumerate(parts):
        waiting[device].put(_Turn(-math.inf, file, first))
    workers = [Worker(d) for d, count in counts.items() for _ in range(count)]
    for worker in workers:
        arguments = (worker, waiting[worker.device], reports, timeout, shares)
        threading.Thread(target=_serve, args=arguments, daemon=True).start()
    left = len(jobs)
    try:
        while left:
            file, report = _next(reports)
            found[file].append(report)
            if len(found[file]) == 1:
                if "calls" not in report:  # no kernel ran: the other parts would not either
                    parts[file] = parts[file][:1]
                for job in parts[file][1:]:
                    waiting[job["device"]].put(_Turn(-report["seconds"], file, job))
            if len(found[file]) == len(parts[file]):
                left -= 1
                yield joined(found[file])
    finally:
        for worker in workers:
            if left:  # an interrupt, or a closed pipe
                worker.kill()
            waiting[worker.device].put(_Turn(math.inf, 0))


def _next(reports: Reports) -> tuple[int, Report]:
    """The next report; looks up twice a second, since another thread may be the one that is interrupted."""
    while True:
        try:
            return reports.get(timeout=0.5)
        except queue.Empty:
            pass


def _serve(
    worker: Worker, waiting: Turns, reports: Reports, timeout: float, shares: Shares
) -> None:
    with worker:
        while (turn := waiting.get()).job is not None and not worker.over:
            try:
                report = worker.ask(turn.job, timeout, partial(shares.tell, turn.file, turn.job))
                shares.finish(turn.file, turn.job)
            except Exception as error:  # otherwise the caller would wait for the report forever
                report = broken(turn.job, f"no process: {type(error).__name__}: {error}")
            reports.put((turn.file, report))
            if worker.device == "cuda" and report["failures"]:
                worker.stop()  # a device error of one file must not fail the next


def _ending(code: int) -> str:
    """How a process ended: `SIGABRT` is a compiler's assertion, `SIGKILL` the limit or the machine's memory."""
    return signal.Signals(-code).name if -code in set(signal.Signals) else str(code)


def _start(device: str, module: str) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["OMP_NUM_THREADS"] = "1"
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", module]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


def _kill(process: subprocess.Popen) -> None:
    """Kills a process and its children. Otherwise ptxas may run on for hours."""
    with suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(process.pid, signal.SIGKILL)
