"""Checks all specs on this GPU: every variant and dtype against the oracle. Prints a table, and writes a JSON file.

    python benchmarks/gpu_check.py --json results.json
    python benchmarks/gpu_check.py specs/softmax.op --examples 60 --seconds 120

Most of the time goes into compilation, so there is one process a spec, as many at once as there are cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--examples", type=int, default=36)
    parser.add_argument("--seconds", type=float, default=75, help="what one spec may take")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    import torch
    import triton

    from tritongen.proof import check_specs

    specs = options.specs or sorted((ROOT / "specs").glob("*.op"))
    start = time.monotonic()
    results = []
    print(
        f"{'spec':26} {'examples':>8} {'calls':>6} {'seconds':>7}  slack used by dtype", flush=True
    )
    for result in check_specs(
        specs, options.device, options.examples, options.seed, options.processes, options.seconds
    ):
        results.append(result)
        print(row(result.report), flush=True)
        if not result.ok:
            print(result, flush=True)
    summary = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "seconds": round(time.monotonic() - start, 1),
        "specs": len(results),
        "examples": sum(r.report["examples"] for r in results),
        "calls": sum(r.report.get("calls", 0) for r in results),
        "failed": sorted(r.report["spec"] for r in results if not r.ok),
        "reports": sorted((r.report for r in results), key=lambda r: r["spec"]),
    }
    if options.json:
        options.json.write_text(json.dumps(summary, indent=1))
    shown = {k: v for k, v in summary.items() if k != "reports"}
    print(json.dumps(shown, indent=1))
    return 1 if summary["failed"] else 0


def row(report: dict) -> str:
    used = ", ".join(f"{k} {v}" for k, v in report.get("bound_used", {}).items() if v)
    name = Path(report["spec"]).stem + ("" if not report["failures"] else " FAILED")
    calls, seconds = report.get("calls", 0), report.get("seconds", 0)
    return f"{name:26} {report['examples']:8} {calls:6} {seconds:7}  {used}"


if __name__ == "__main__":
    raise SystemExit(main())
