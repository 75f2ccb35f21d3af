"""Speed at random shapes: drawn calls of a class, tritongen beside the better of torch eager and torch.compile.

    python -m benchmarks.anyshape --class rows --seed 7 --draws 100
    python -m benchmarks.anyshape --class products --seed commit --draws 100      # three seeds, of the commit's hash
    python -m benchmarks.anyshape --class rows --seed 7 --draws 400 --shard 0/4 --resume rows.jsonl
    python -m benchmarks.anyshape --class fused --seed 7 --draws 16 --minutes 8 --worst 0   # attention, loss heads, norms
    python -m benchmarks.anyshape --class "attention small" --seed 7 --draws 4 --device cpu   # only whether it runs

A class is one of `anyshape_draws.CLASSES`; give several with commas, or `all`, or `fused` for attention, loss heads and norms with
their gradients.

- Everything is compiled first, in as many processes as there are cores. A contender whose result is not right is not timed.
- The **ratio** is torch's best time divided by ours, at most 2. Below 10 us, a difference of 1 us counts as none.
- The twenty worst calls are timed again, with every variant that can run them.
- Each row is written to the file of `--resume` at once. A later run skips the rows of that file.
- `--minutes` ends a run in time. The first draws of all classes come first. Half of the time is for compiling.

`--regret` times every variant of every draw instead, and gives the time of the chosen one divided by the best.
`--gradients` times the gradients of the draws, by autograd, behind a call that is not timed. Classes whose names end with
`backward` or `backwards` are timed so in any case. `--spills` needs no GPU: it compiles what an H200 would run, and lists the
kernels whose threads spill most.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.users import pool

JOBS = "benchmarks.anyshape_jobs"
CLIP, EQUAL_US, SHORT_US, FAST = 2.0, 1.0, 10.0, 0.97
WORST = 20
SPILLED = 2048  # bytes a thread: behind the loop of a product some spill that cost it little, within one none may
THEIRS = ("eager", "compile", "sdpa", "cudnn", "flash", "efficient", "flex")  # names begin so
Key = tuple[str, int, int]
Row = dict[str, Any]


def main() -> int:
    options = arguments()
    os.environ["OMP_NUM_THREADS"] = os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    from benchmarks.anyshape_draws import (
        CLASSES,
        FUSED,
        base,
        draw,
        is_backward,
        is_differentiable,
        text_of,
    )

    named = {"all": list(CLASSES), "fused": list(FUSED)}
    kinds = [k for one in options.kind.split(",") for k in named.get(one, [one])]
    if unknown := set(map(base, kinds)) - set(CLASSES):
        print(f"--class {unknown.pop()}: one of {', '.join(CLASSES)}, or all", file=sys.stderr)
        return 2
    first, every = map(int, options.shard.split("/"))
    numbers = range(first, options.draws, every)
    keys = [(kind, seed, k) for k in numbers for seed in seeds(options.seed) for kind in kinds]
    rows = {tuple(row["key"]): row for row in known(options.resume)}
    if options.gradients:
        keys = [key for key in keys if is_differentiable(draw(*key))]
    keys_left = [key for key in keys if key not in rows]
    start = time.monotonic()
    halfway, end = (start + 60 * share * options.minutes for share in (0.5, 1.0))
    if options.regret:
        return of_choices(keys, keys_left, rows, options)
    if options.spills:
        return of_registers(keys, options)
    with pool.crew() as crew:
        asked = {key: options.gradients or is_backward(key[0]) for key in keys_left}
        jobs = [("prepare", (key, options.device, asked[key])) for key in keys_left]
        ready = set[Key]()
        most = min(300, 20 * options.minutes)
        for (_, (key, *_)), answer in pool.run(jobs, options.processes, most, crew, JOBS, halfway):
            ready.add(key)
            if isinstance(answer, str):
                print(f"compiling {key}: {answer[:200]}", flush=True)
        print(
            f"{len(ready)} of {len(keys_left)} draws compiled in {time.monotonic() - start:.0f} s",
            flush=True,
        )
        jobs = [("measure", (key, options.device, asked[key])) for key in keys_left if key in ready]
        for (_, (key, *_)), answer in pool.run(jobs, 1, options.seconds, crew, JOBS, end):
            drawn = draw(*key)
            row = {
                "key": key,
                "call": text_of(drawn),
                "group": drawn.group,
                "least": drawn.least_us,
            }
            row |= {"error": answer} if isinstance(answer, str) else answer
            rows[key] = row | {"ratio": ratio(row)}
            note(options.resume, rows[key])
        found = [rows[key] for key in keys if key in rows]
        timed = sorted((r for r in found if r["ratio"] is not None), key=lambda r: r["ratio"])
        forwards = [r for r in timed if not (options.gradients or is_backward(r["key"][0]))]
        worst = forwards[: options.worst]
        jobs = [
            ("variants", (tuple(r["key"]), options.device)) for r in worst if "variants" not in r
        ]
        for (_, (key, *_)), answer in pool.run(jobs, 1, 2 * options.seconds, crew, JOBS, end):
            rows[key]["variants"] = answer
            note(options.resume, rows[key])
    print(report(found))
    return int(any(row["ratio"] is None for row in found))


def of_choices(keys: list[Key], left: list[Key], rows: dict[Key, Row], options: Any) -> int:
    """Times every variant of every draw, and prints how far what is chosen is from the best."""
    from benchmarks.anyshape_draws import draw, text_of

    with pool.crew() as crew:
        jobs = [("prepare_variants", (key, options.device)) for key in left]
        for (_, (key, *_)), answer in pool.run(jobs, options.processes, 300, crew, JOBS):
            if isinstance(answer, str):
                print(f"compiling {key}: {answer[:200]}", flush=True)
        jobs = [("variants", (key, options.device)) for key in left]
        for (_, (key, *_)), answer in pool.run(jobs, 1, 2 * options.seconds, crew, JOBS):
            rows[key] = {"key": key, "call": text_of(draw(*key)), "variants": answer}
            note(options.resume, rows[key])
    print(regrets([rows[key] for key in keys if key in rows]))
    return int(any(isinstance(row["variants"], str) for row in rows.values()))


def of_registers(keys: list[Key], options: Any) -> int:
    """Prints the kernels whose threads spill most; 1 where some call does not compile, or a thread spills SPILLED."""
    from benchmarks.anyshape_draws import draw, text_of

    told, failed = list[tuple[int, str]](), 0
    with pool.crew() as crew:
        jobs = [("spills", (key, "sm_90")) for key in keys]
        for (_, (key, _)), answer in pool.run(jobs, options.processes, options.seconds, crew, JOBS):
            if isinstance(answer, str):
                failed += 1
                print(f"compiling {key}: {answer[:200]}", flush=True)
                continue
            call = text_of(draw(*key))
            for kernel, count in answer["spills"]:
                if count:
                    told.append((count, f"| {count} | {kernel} | {answer['choice']} | {call} |"))
    told.sort(reverse=True)
    lines = ["| bytes a thread | kernel | chosen | call |", "|---|---|---|---|"]
    print("\n".join([*lines, *(line for _, line in told[: options.worst])]))
    print(f"{len(keys)} calls, {len(told)} kernels that spill")
    return int(failed > 0 or bool(told) and told[0][0] > SPILLED)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--class", dest="kind", required=True)
    parser.add_argument("--seed", default="commit", help="numbers, or commit: three of its hash")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th draw, from the i-th")
    parser.add_argument("--resume", type=Path, help="a file of rows: read, and added to")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--worst", type=int, default=WORST, help="calls timed by every variant")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--regret",
        action="store_true",
        help="what is chosen beside every variant, nothing of torch",
    )
    what.add_argument("--gradients", action="store_true", help="of the calls, by autograd")
    what.add_argument("--spills", action="store_true", help="what is chosen, compiled: no GPU")
    parser.add_argument("--seconds", type=float, default=60, help="what one draw may take")
    parser.add_argument("--minutes", type=float, default=math.inf, help="what a run may take")
    return parser.parse_args()


def seeds(asked: str) -> list[int]:
    """Numbers, or three of the hash of the commit that is measured."""
    if asked != "commit":
        return [int(seed) for seed in asked.split(",")]
    sha = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    return [int(sha.stdout[k : k + 6], 16) for k in (0, 6, 12)]


# ---- rows ---------------------------------------------------------------------------------------
def known(path: Path | None) -> Iterator[Row]:
    if path is not None and path.exists():
        yield from map(json.loads, path.read_text().splitlines())


def note(path: Path | None, row: Row) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def ratio(row: Row) -> float | None:
    """None where ours is wrong or has no time, or torch has none."""
    theirs = of_torch(row)
    if "ours" not in row or not theirs:
        return None
    ours, best = row["ours"], min(theirs.values())
    if max(ours, best) < SHORT_US and abs(ours - best) <= EQUAL_US:
        return 1.0
    return min(CLIP, best / ours)


def of_torch(row: Row) -> dict[str, float]:
    """The times of torch's ways, by name."""
    return {n: us for n, us in row.items() if n.startswith(THEIRS) and isinstance(us, float)}


# ---- the report ---------------------------------------------------------------------------------
def report(rows: list[Row]) -> str:
    lines = [
        "",
        "| class | group | seed | draws | wrong | geomean | median | p10 | worst | >= 0.97 |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    members: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        kind, seed, _ = row["key"]
        for group in (row["group"], "all"):
            for one in (str(seed), "all"):
                members.setdefault((kind, group, one), []).append(row)
    for (kind, group, seed), some in sorted(members.items()):
        lines.append(f"| {kind} | {group} | {seed} | {len(some)} | {summary(some)} |")
    told = sorted((r for r in rows if r["ratio"] is not None), key=lambda r: r["ratio"])[:WORST]
    lines += ["", *beside(rows)]
    lines += [
        "",
        "| ratio | ours, us | torch | least | chosen | call | best variants |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [told_of(row) for row in told]
    lines += [
        "",
        *(
            f"no ratio: {r['call']}: {r.get('error') or r.get('problems')}"
            for r in rows
            if r["ratio"] is None
        ),
    ]
    return "\n".join(lines)


def summary(rows: list[Row]) -> str:
    found = sorted(r["ratio"] for r in rows if r["ratio"] is not None)
    if not found:
        return f"{len(rows)} | | | | |"
    mean = math.exp(sum(map(math.log, found)) / len(found))
    p10 = found[len(found) // 10]
    fast = sum(r >= FAST for r in found) / len(found)
    middle = statistics.median(found)
    return f"{len(rows) - len(found)} | {mean:.2f} | {middle:.2f} | {p10:.2f} | {found[0]:.2f} | {fast:.0%}"


def beside(rows: list[Row]) -> list[str]:
    """The time of each of torch's ways over ours, where both are right."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for name, us in of_torch(row).items() if "ours" in row else ():
            found.setdefault((row["key"][0], name), []).append(us / row["ours"])
    lines = ["| class | beside | calls | geomean | worst |", "|---|---|---|---|---|"]
    for (kind, name), some in sorted(found.items()):
        mean = math.exp(sum(map(math.log, some)) / len(some))
        lines.append(f"| {kind} | {name} | {len(some)} | {mean:.2f} | {min(some):.2f} |")
    return lines


def regrets(rows: list[Row]) -> str:
    """Regret: the time of what was chosen over that of the best variant."""
    lines = ["", "| class | draws | geomean | p90 | worst |", "|---|---|---|---|---|"]
    told, by_class = [], dict[str, list[float]]()
    for row in rows:
        timed = row["variants"]
        if isinstance(timed, str) or timed["choice"] not in timed["us"]:
            told.append((math.inf, f"| | {row['call']} | {str(timed)[:200]} |"))
            continue
        us = sorted(timed["us"].items(), key=lambda pair: pair[1])
        value = timed["us"][timed["choice"]] / us[0][1]
        by_class.setdefault(row["key"][0], []).append(value)
        best = ", ".join(f"{name} {time:.1f}" for name, time in us[:3])
        told.append((value, f"| {value:.2f} | {timed['choice']} | {row['call']} | {best} |"))
    for kind, found in sorted(by_class.items()):
        found.sort()
        mean = math.exp(sum(map(math.log, found)) / len(found))
        p90 = found[len(found) * 9 // 10]
        lines.append(f"| {kind} | {len(found)} | {mean:.2f} | {p90:.2f} | {found[-1]:.2f} |")
    lines += ["", "| regret | chosen | call | best variants, us |", "|---|---|---|---|"]
    told.sort(key=lambda pair: -pair[0])
    return "\n".join([*lines, *(text for _, text in told[:WORST])])


def told_of(row: Row) -> str:
    theirs = ", ".join(f"{name} {us:.1f}" for name, us in of_torch(row).items())
    timed = row.get("variants")
    every = timed["us"].items() if isinstance(timed, dict) else ()
    best = sorted(every, key=lambda pair: pair[1])[:3]
    others = ", ".join(f"{name} {us:.1f}" for name, us in best)
    return f"| {row['ratio']:.2f} | {row['ours']:.1f} | {theirs} | {row['least']:.1f} | {row['choice']} | {row['call']} | {others} |"


if __name__ == "__main__":
    sys.exit(main())
