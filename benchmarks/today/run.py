"""Ops of today: ours beside torch eager and torch.compile, forward and backward, on one GPU.

    python -m benchmarks.today.run --out today.json [--seconds1 150 --seconds2 120] [--ops a,b] [--resume FILE] [--shard 0/2]
    TRITON_INTERPRET=1 python -m benchmarks.today.run --device cpu --out today.json --processes 1    # only whether it runs

Phase 1 compiles everything in parallel processes. Phase 2 runs one op at a time, in the process that compiled it, with the others
idle. Each op's line is written when it is done. A table ends the output: ours over the best of torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = str(HERE.parent.parent)
BANDWIDTH = 4.3e6  # bytes in a microsecond: a copy, read and written


def main() -> int:
    options = arguments()
    shared = os.environ.get("TODAY_CACHE") or tempfile.mkdtemp(prefix="today_")
    for name, folder in (("TRITON_CACHE_DIR", "triton"), ("TORCHINDUCTOR_CACHE_DIR", "inductor")):
        os.environ.setdefault(name, f"{shared}/{folder}")
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
    }
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
    from benchmarks.users import pool

    names = names_of(options)
    earlier = [json.loads(line) for line in open(options.resume)] if options.resume else []
    earlier = [row for row in earlier if "failed" not in row]
    names = [n for n in names if n not in {row["op"] for row in earlier}]
    first, every = map(int, options.shard.split("/"))
    names = names[first::every]
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict] = []
    start = time.monotonic()
    with pool.crew() as crew, out.open("a") as file:
        prepared: dict[str, dict] = {}
        notes = {n: f"{shared}/note_{n}" for n in names}
        jobs = [("prepare", (n, options.device, notes[n])) for n in names]
        found = pool.run(
            jobs,
            options.processes,
            options.limit,
            crew,
            "benchmarks.today.jobs",
            start + options.seconds1,
        )
        for (_, (name, *_)), answer in found:
            if isinstance(answer, str):
                reached = open(notes[name]).read().split() if os.path.exists(notes[name]) else []
                answer = {"failed": answer[:300], "reached": reached[-1] if reached else ""}
            prepared[name] = answer
            told = {k: v for k, v in answer.items() if not k.endswith("_s")}
            total = sum(v for k, v in answer.items() if k.endswith("_s"))
            if told or total > 30:
                print(f"prepare {name} ({total:.0f} s): {json.dumps(told)[:600]}", flush=True)
        print(
            f"{len(prepared)} of {len(names)} prepared in {time.monotonic() - start:.0f} s",
            flush=True,
        )
        second = time.monotonic()
        jobs = [("measure", (n, options.device)) for n in names if n in prepared]
        found = pool.run(
            jobs, 1, options.limit, crew, "benchmarks.today.jobs", second + options.seconds2
        )
        for (_, (name, *_)), answer in found:
            row = answer if isinstance(answer, dict) else {"op": name, "failed": answer[:300]}
            row["prepare"] = prepared[name]
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
        left = [n for n in names if n not in {r["op"] for r in rows}]
        print(
            f"{len(rows)} measured in {time.monotonic() - second:.0f} s; not measured: {', '.join(left) or 'none'}",
            flush=True,
        )
    print(table([*earlier, *rows]), flush=True)
    return 0


def names_of(options: argparse.Namespace) -> list[str]:
    """In the order of the file, without importing torch here."""
    import re

    names = re.findall(r'^@case\(\s*"(\w+)"', (HERE / "ops.py").read_text(), re.M)
    if options.ops:
        wanted = options.ops.split(",")
        if unknown := set(wanted) - set(names):
            raise SystemExit(f"unknown: {unknown}")
        return wanted
    return names


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="today.json")
    parser.add_argument("--seconds", type=float, help="of each phase; instead of the two below")
    parser.add_argument("--seconds1", type=float, default=150)
    parser.add_argument("--seconds2", type=float, default=120)
    parser.add_argument(
        "--limit", type=float, default=60, help="seconds that one op may take in a phase"
    )
    parser.add_argument("--processes", type=int, default=13)
    parser.add_argument("--ops", default="")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument(
        "--resume", default="", help="a file of an earlier run, whose ops are left out"
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    if options.seconds:
        options.seconds1 = options.seconds2 = options.seconds
    return options


# ---- the table -----------------------------------------------------------------------------------
def ratio(times: dict[str, float]) -> float | None:
    rest = [t for n, t in times.items() if n != "ours"]
    return times["ours"] / min(rest) if "ours" in times and rest else None


def judged(row: dict, key: str) -> str:
    """Empty where ours is as right as torch is."""
    found = row.get(key, {})
    if "ours" not in found:
        return "none" if key in row or "backward" in row else ""
    bound = max(3 * found.get("eager", 0.0), 1e-2 if row["dtype"] in ("bf16", "f16") else 1e-4)
    return (
        ""
        if found["ours"] <= bound
        else f"OFF {found['ours']:.1e} (eager {found.get('eager', 0):.1e})"
    )


def table(rows: list[dict]) -> str:
    lines = []
    for what, kernels, memory, amount, error in (
        ("forward", "kernels", "peak_mb", "bytes", "error"),
        ("backward", "grad_kernels", "train_peak_mb", "grad_bytes", "grad_error"),
    ):
        lines.append(
            f"\n{what:26} ours/best     ours    eager  compile    other    least  kernels o/c     MB ours/compile   error"
        )
        told = []
        for row in rows:
            times = row.get(what, {})
            if not times:
                continue
            r = ratio(times)
            other = min(
                (t for n, t in times.items() if n not in ("ours", "eager", "compile")), default=None
            )
            cells = [
                times.get("ours"),
                times.get("eager"),
                times.get("compile"),
                other,
                row.get(amount, 0) / BANDWIDTH or None,
            ]
            k, m = row.get(kernels, {}), row.get(memory, {})
            told.append(
                (
                    -(r or 99),
                    f"{row['op']:26} {'   -' if r is None else f'{r:9.2f}'} "
                    + " ".join("        " if c is None else f"{c:8.1f}" for c in cells)
                    + f"  {k.get('ours', '-')!s:>4}/{k.get('compile', '-')!s:<4}  {m.get('ours', '-')!s:>9}/{m.get('compile', '-')!s:<9} "
                    + judged(row, error),
                )
            )
        lines += [text for _, text in sorted(told)]
    for row in rows:
        if "failed" in row or row.get("problems"):
            lines.append(f"{row['op']}: {row.get('failed') or json.dumps(row['problems'])[:300]}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
