"""One process that proves files of ops: jobs come in as lines of JSON, reports go out as lines of JSON.

    {"text": "op relu...", "name": "specs/relu.op", "device": "cpu", "examples": 20, "seed": 0, "seconds": 60}

Started by `pool.py`. After an error that a device does not recover from, the process reports and ends.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from typing import Any

from tritongen.errors import SpecError, render


def main() -> None:
    faulthandler.enable()  # a compiler that divides by zero takes the process with it: this says where
    # What torch, triton or ptxas print must not mix with the reports.
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        report, lost = run_job(json.loads(line))
        reports.write(json.dumps(report) + "\n")
        reports.flush()
        if lost:
            os._exit(0)  # a lost device hangs in its destructors


def run_job(job: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The report of one job, and whether the device is lost to this process."""
    import numpy

    from tritongen.proof.runner import DeviceLost, report_of, run_spec

    try:
        with numpy.errstate(all="ignore"):  # the interpreter computes inf - inf in numpy
            return run_spec(**job), False
    except DeviceLost as error:
        return report_of(error.args[0], job["name"], 0.0), True
    except SpecError as error:
        problem = "\n".join(render(d) for d in error.diagnostics)
    except Exception:  # a broken compiler or oracle is a finding as well
        problem = traceback.format_exc(limit=-6)
    return broken(job, problem), False


def broken(job: dict[str, Any], problem: str) -> dict[str, Any]:
    """The report of a job that gave none."""
    failure = {"op": job["name"], "variant": "", "problem": problem, "call": "", "case": ""}
    return {"spec": job["name"], "device": job["device"], "examples": 0, "failures": [failure]}


if __name__ == "__main__":
    main()
