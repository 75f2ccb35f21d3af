"""Jobs of the proof in processes of their own, since a process either interprets kernels or compiles them.

    for report in run_jobs(jobs, device="cpu", processes=2): ...

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


def run_jobs(
    jobs: Sequence[Job], device: str, processes: int = 1, timeout: float = 600
) -> Iterator[dict[str, Any]]:
    """A report for each job, as they finish."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    for _ in range(min(processes, len(jobs))):
        threading.Thread(target=_serve, args=(waiting, reports, device, timeout), daemon=True).start()
    for _ in jobs:
        yield reports.get()


def _serve(waiting, reports, device: str, timeout: float) -> None:
    worker = None
    while True:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        if worker is None or worker.poll() is not None:
            worker = _start(device)
        reports.put(_ask(worker, job, timeout))
        if device == "cuda":  # one spec a process: a device error of one must not fail the next
            _stop(worker)
            worker = None
    if worker is not None:
        _stop(worker)


def _start(device: str) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["OMP_NUM_THREADS"] = "1"
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", "tritongen.proof.worker"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def _ask(worker: subprocess.Popen, job: Job, timeout: float) -> dict[str, Any]:
    alarm = threading.Timer(timeout, worker.kill)
    alarm.start()
    try:
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except BrokenPipeError:
        line = ""
    finally:
        alarm.cancel()
    if line:
        return json.loads(line)
    worker.wait()
    return broken(job, f"the process ended with {worker.returncode} (limit {timeout:.0f} s)")


def _stop(worker: subprocess.Popen) -> None:
    try:
        worker.stdin.close()
        worker.wait(10)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        worker.kill()
