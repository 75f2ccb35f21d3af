"""Checks and times the problems of `problems.py`: at odd sizes and at the given ones, beside torch.

    python -m benchmarks.users.run --check                # odd sizes, against f64
    python -m benchmarks.users.run --check --given        # the given ones too, against f32
    python -m benchmarks.users.run --time --json out.json # given sizes: ours, eager, torch.compile
    python -m benchmarks.users.run --time --no-compile --only conv3d
    python -m benchmarks.users.run --check --device cpu   # in the interpreter, the small odd size

Most of the time goes into compilation. So it comes first, in as many processes as there are cores. Timing then has the GPU
for itself, in the process that holds what torch.compile made. A problem that fails, hangs or kills its process becomes a
row like the others. If you end a run (SIGTERM, Ctrl-C), it reports what it has.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.users import pool
from benchmarks.users.problems import BY_SPEC, KINDS, PROBLEMS

Row = dict[str, Any]
Crew = list[pool.Child]


def main() -> int:
    options = arguments()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # the processes are the parallelism
    # Else a workspace that stays in what `reserve` took keeps all of it from the other processes.
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    specs = [
        p.spec
        for p in PROBLEMS
        if re.search(options.only, p.spec) and options.level in (0, p.level)
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report: dict[str, Any] = {"check": [], "time": []}
    try:
        with pool.crew() as crew:
            ((_, report["about"]),) = pool.run([("about", ())], 1, 60, crew)
            if options.check:
                checked(specs, options, crew, report["check"])
            if options.time:
                timed(specs, options, crew, report["time"])
    finally:
        if report["time"]:
            report["classes"] = classes(report["time"])
            print(table(report["classes"]))
        if options.json:
            options.json.write_text(json.dumps(report, indent=1))
    return int(any(row["verdict"] != "ok" for row in report["check"] + report["time"]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--given", action="store_true", help="check at the given sizes too")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--kernels", action="store_true", help="time each of our kernels too")
    parser.add_argument("--only", default="", help="a pattern that the spec's name holds")
    parser.add_argument("--level", type=int, default=0, choices=(0, 1, 2))
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--seconds", type=float, default=40, help="what one problem may take")
    parser.add_argument("--slow-ms", type=float, default=500, help="calls over this run once")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not (options.check or options.time):
        parser.error("--check, --time or both")
    if options.device == "cpu" and (options.time or options.given):
        parser.error("the interpreter checks odd sizes only")
    return options


# ---- phases ------------------------------------------------------------------------------------
def checked(specs: list[str], options: argparse.Namespace, crew: Crew, rows: list[Row]) -> None:
    sizes = ["small"] if options.device == "cpu" else ["small", "large"]
    sizes += ["given"] * options.given
    jobs = [("check", (spec, size, options.device)) for size in sizes for spec in specs]
    start = time.monotonic()
    for (_, (spec, size, _)), answer in pool.run(jobs, options.processes, options.seconds, crew):
        rows.append({"spec": spec, "size": size} | as_row(answer))
        if rows[-1]["verdict"] != "ok":
            print(f"{spec:62} {size:6} {rows[-1]['verdict'][:300]}", flush=True)
    right = sum(row["verdict"] == "ok" for row in rows)
    print(f"check: {right} of {len(rows)} right, {time.monotonic() - start:.0f} s", flush=True)


def timed(specs: list[str], options: argparse.Namespace, crew: Crew, rows: list[Row]) -> None:
    prepare([("prepare", (spec, not options.no_compile)) for spec in specs], options, crew)
    how = (not options.no_compile, options.slow_ms, options.kernels)
    jobs = [("measure", (spec, *how)) for spec in specs]
    print(f"{'problem':62} {'ours':>8} {'eager':>8} {'compile':>8} {'x eager':>8} {'x comp':>7}")
    for (_, (spec, *_)), answer in pool.run(jobs, 1, options.seconds, crew):
        row = {"spec": spec} | as_row(answer)
        rows.append(row)
        ours, eager, compiled = (row.get(k, math.nan) for k in ("ours", "eager", "compile"))
        print(
            f"{spec:62} {ours:8.3f} {eager:8.3f} {compiled:8.3f} {eager / ours:8.2f}"
            f" {compiled / ours:7.2f}  {row['verdict'][:120] if row['verdict'] != 'ok' else ''}",
            flush=True,
        )
        for name, spent in row.get("kernels", {}).items():
            print(f"    {spent:8.3f} {name}", flush=True)


def prepare(jobs: list[pool.Job], options: argparse.Namespace, crew: Crew) -> None:
    """Compile ahead; what fails here is compiled, or fails, where it is timed."""
    start = time.monotonic()
    for (_, (spec, _)), answer in pool.run(jobs, options.processes, 4 * options.seconds, crew):
        if isinstance(answer, str):
            print(f"compiling {spec}: {answer[:300]}", flush=True)
    print(f"compiled in {time.monotonic() - start:.0f} s", flush=True)


def as_row(answer: dict[str, Any] | str) -> Row:
    return {"error": math.nan, "verdict": answer} if isinstance(answer, str) else answer


# ---- the table ---------------------------------------------------------------------------------
def classes(rows: list[Row]) -> list[Row]:
    """Per class, level 2 by what it begins with: shares that are faster, geometric means of ratios."""
    members: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        problem = BY_SPEC[row["spec"]]
        members[problem.kind if problem.level == 1 else f"level 2: {problem.kind}"].append(row)
        members[f"all of level {problem.level}"].append(row)
        members["all"].append(row)
    names = [*KINDS, "all of level 1", *(f"level 2: {kind}" for kind in KINDS), "all of level 2"]
    return [summary(name, members[name]) for name in [*names, "all"] if members[name]]


def summary(name: str, rows: list[Row]) -> Row:
    """A wrong or missing result of ours counts as not faster, and has no ratio."""
    out: Row = {"class": name, "problems": len(rows)}
    right = [row for row in rows if row["verdict"] == "ok" and "ours" in row]
    out["right"] = len(right)
    for rival in ("eager", "compile"):
        ratios = [row[rival] / row["ours"] for row in right if rival in row]
        out[f"faster than {rival}"] = sum(ratio > 1 for ratio in ratios)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
        out[f"x {rival}"] = mean
    return out


def table(rows: list[Row]) -> str:
    rivals = [
        r for r in ("eager", "compile") if any(row[f"x {r}"] == row[f"x {r}"] for row in rows)
    ]
    head = [
        "class",
        "problems",
        "right",
        *(h for r in rivals for h in (f"faster than {r}", "geomean")),
    ]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        cells = [row["class"], str(row["problems"]), str(row["right"])]
        for rival in rivals:
            faster = row[f"faster than {rival}"]
            cells += [f"{faster} ({faster / row['problems']:.0%})", f"{row[f'x {rival}']:.2f}"]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    sys.exit(main())
