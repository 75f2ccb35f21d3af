"""One process that proves files of ops. Jobs come in as lines of JSON, and reports go out as lines of JSON.

    {"text": "op relu...", "name": "specs/relu.op", "device": "cpu", "examples": 20, "seed": 0, "seconds": 60}

On "cpu" or "cuda" kernels run. For another device, such as sm_90, a few kernels are compiled. `pool.py` starts the process.

Lines about progress stand between the reports: `{"at": "relu, f32: example 3 of 20", "stage": "examples", "share": 0.1}`.
After an error from which a device does not recover, the process reports and ends. It also ends when nobody reads its
reports any more.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from typing import Any

from tritongen.errors import SpecError, render
from tritongen.proof.parts import Say, nobody

SELDOM = 0.2  # seconds between two lines that say what is done


def main() -> None:
    faulthandler.enable()  # a compiler that divides by zero takes the process with it: this says where
    # Output of torch, triton or ptxas must not mix with the reports.
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process ends it

    def write(line: dict[str, Any]) -> None:
        reports.write(json.dumps(line) + "\n")
        reports.flush()

    def tell(text: str, stage: str, share: float) -> None:
        write({"at": text, "stage": stage, "share": share})

    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        report, lost = run_job(json.loads(jobs.get()), tell)
        write(report)
        if lost:
            os._exit(0)  # a lost device hangs in its destructors


def _listen(jobs: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        jobs.put(line)
    os._exit(0)  # no more jobs, or the caller is gone: no one reads the progress


def _seldom(say: Say) -> Say:
    """Says what is done, but not each of a hundred things a second."""
    last = 0.0

    def now_and_then(text: str, stage: str, share: float) -> None:
        nonlocal last
        if time.monotonic() - last > SELDOM:
            last = time.monotonic()
            say(text, stage, share)

    return now_and_then


def run_job(job: dict[str, Any], say: Say = nobody) -> tuple[dict[str, Any], bool]:
    """The report of one job, and whether the device is lost to this process."""
    import numpy

    from tritongen.proof.lowered import lower_spec
    from tritongen.proof.runner import DeviceLost, report_of, run_spec

    try:
        if job["device"] not in ("cpu", "cuda"):
            return lower_spec(job["text"], job["name"], job["device"], job["seed"], say), False
        with numpy.errstate(all="ignore"):  # the interpreter computes inf - inf in numpy
            return run_spec(**job, say=_seldom(say)), False
    except DeviceLost as error:
        return report_of(error.args[0], job["name"], 0.0), True
    except SpecError as error:
        problem = "\n".join(render(d) for d in error.diagnostics)
    except Exception:  # a broken compiler or oracle is a finding as well
        problem = traceback.format_exc(limit=-6)
    return broken(job, problem), False


def broken(job: dict[str, Any], problem: str, call: str = "") -> dict[str, Any]:
    """The report of a job that gave none; `call` is what was being done."""
    failure = {"op": job["name"], "variant": "", "problem": problem, "call": call, "case": ""}
    return {"spec": job["name"], "device": job["device"], "examples": 0, "failures": [failure]}


if __name__ == "__main__":
    main()
