"""Jobs of the proof in processes of their own, since a process either interprets kernels or compiles them.

    for report in run_jobs(jobs, device="cpu", processes=2): ...
    with Worker("cpu") as worker:
        report = worker.ask(job)

A process that dies or hangs costs its job a failing report and is replaced. Not here: what a job
does (`runner.py`).
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tritongen.proof.worker import broken

Job = dict[str, Any]


class Worker:
    """A process that proves one file of ops after another."""

    def __init__(self, device: str):
        self.device = device
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def ask(self, job: Job, timeout: float = 600) -> dict[str, Any]:
        if self.process is None or self.process.poll() is not None:
            self.process = _start(self.device)
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


def run_jobs(
    jobs: Sequence[Job], device: str, processes: int = 1, timeout: float = 600
) -> Iterator[dict[str, Any]]:
    """A report for each job, as they finish."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    for _ in range(min(processes, len(jobs))):
        arguments = (waiting, reports, device, timeout)
        threading.Thread(target=_serve, args=arguments, daemon=True).start()
    for _ in jobs:
        yield reports.get()


def _serve(waiting, reports, device: str, timeout: float) -> None:
    with Worker(device) as worker:
        while True:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            reports.put(worker.ask(job, timeout))
            if device == "cuda":  # one file a process: a device error of one must not fail the next
                worker.stop()


def _start(device: str) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["OMP_NUM_THREADS"] = "1"
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", "tritongen.proof.worker"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
