"""One process that tries specs: a line of JSON in, a line of JSON out. Started by `drive.py`.

{"kind": "trial", "text": "op f...", "name": "drawn", "device": "cpu", "seed": 0}
{"kind": "compile", ...}

Before each kernel that it compiles stands a line `{"at": "f_runs (runs; T=bf16) for sm_90, Triton 3.7.0"}`.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def main() -> None:
    faulthandler.enable()
    reports = os.fdopen(os.dup(1), "w")  # what torch, triton or ptxas print must not mix with them
    os.dup2(2, 1)

    def write(line: dict[str, Any]) -> None:
        reports.write(json.dumps(line) + "\n")
        reports.flush()

    for line in sys.stdin:
        write(run_job(json.loads(line), lambda text: write({"at": text})))


def run_job(job: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    import numpy
    import torch

    torch.set_num_threads(1)
    try:
        if job["kind"] == "compile":
            from tritongen.proof.fuzz.compiled import compile_spec

            return compile_spec(job["text"], job["name"], job["seed"], say=say, grad=job["grad"])
        from tritongen.proof.fuzz.trial import trial

        with numpy.errstate(all="ignore"):  # the interpreter computes inf - inf in numpy
            options = {"grad": job["grad"], "all_ways": job["all_ways"]}
            return trial(job["text"], job["name"], job["seed"], job["device"], **options)
    except Exception:
        problem = traceback.format_exc(limit=-6)
        finding = {"stage": f"harness {job['kind']}", "problem": problem, "call": ""}
        return {"findings": [finding], "refused": [], "seconds": {}}


if __name__ == "__main__":
    main()
