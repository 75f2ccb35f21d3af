"""Jobs of the proof in processes of their own, since a process either interprets kernels or compiles them.

    for report in run_jobs(jobs, device="cpu", processes=2): ...   # of a file each, as they finish
    with Worker("cpu") as worker:
        report = worker.ask(job)

A process that dies or hangs costs its job a failing report and is replaced. Not here: what a job
does (`runner.py`).

What a file costs is not known before: kernels of some take seconds to compile. So each file is cut in
`parts`, the first of all run first, and where one took longest the others of its file go next.
"""

from __future__ import annotations

import json
import math
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tritongen.proof.parts import Job, Report, joined, parts_of
from tritongen.proof.worker import broken


class Worker:
    """A process that proves one file of ops after another; `module` is what it runs.

    Only a process for "cpu" interprets kernels.
    """

    def __init__(self, device: str, module: str = "tritongen.proof.worker"):
        self.device, self.module = device, module
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def ask(self, job: Job, timeout: float = 600) -> dict[str, Any]:
        if self.process is None or self.process.poll() is not None:
            self.process = _start(self.device, self.module)
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        alarm = threading.Timer(timeout, process.kill)
        alarm.start()
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            alarm.cancel()
        if line:
            return json.loads(line)
        process.wait()
        return broken(job, f"the process ended with {process.returncode} (limit {timeout:.0f} s)")

    def stop(self) -> None:
        if self.process is None:
            return
        process, self.process = self.process, None
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.close()  # there are no more jobs
            process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
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
    jobs: Sequence[Job], device: str, processes: int = 1, timeout: float = 600
) -> Iterator[Report]:
    """A report for each job, as they finish."""
    waiting: Turns = queue.PriorityQueue()
    reports: Reports = queue.SimpleQueue()
    parts = [parts_of(job) for job in jobs]
    found: list[list[Report]] = [[] for _ in jobs]
    for file, (first, *_) in enumerate(parts):
        waiting.put(_Turn(-math.inf, file, first))
    for _ in range(processes):
        arguments = (waiting, reports, device, timeout)
        threading.Thread(target=_serve, args=arguments, daemon=True).start()
    left = len(jobs)
    while left:
        file, report = reports.get()
        found[file].append(report)
        if "calls" not in report:  # no kernel ran: the other parts would not either
            parts[file] = parts[file][:1]
        if len(found[file]) == 1:
            for job in parts[file][1:]:
                waiting.put(_Turn(-report["seconds"], file, job))
        if len(found[file]) == len(parts[file]):
            left -= 1
            yield joined(found[file])
    for _ in range(processes):
        waiting.put(_Turn(math.inf, 0))


def _serve(waiting: Turns, reports: Reports, device: str, timeout: float) -> None:
    with Worker(device) as worker:
        while (turn := waiting.get()).job is not None:
            report = worker.ask(turn.job, timeout)
            reports.put((turn.file, report))
            if device == "cuda" and report["failures"]:
                worker.stop()  # a device error of one file must not fail the next


def _start(device: str, module: str) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["OMP_NUM_THREADS"] = "1"
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", module]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
