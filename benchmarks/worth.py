"""What each variant of a class is worth: how much slower the drawn calls become without it.

    python -m benchmarks.anyshape --class rows,products --seed 7 --draws 200 --regret --resume regret.jsonl   # on a GPU
    python benchmarks/worth.py regret.jsonl [--mean 1.01] [--worst 1.15]

For a set of variants, a call takes the time of the fastest one that can run it. The table shows this time without one variant,
relative to the time with all: the geometric mean over all calls, and the worst call. `in turn` is what is lost when variants
are removed one after another, the cheapest first, until the next one would lose more than `--mean` or `--worst` allow. An empty
entry is a variant that stays.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

Times = dict[str, float]  # microseconds of one call, by variant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--mean", type=float, default=1.01)
    parser.add_argument("--worst", type=float, default=1.15)
    options = parser.parse_args()
    calls: dict[str, list[tuple[str, Times]]] = {}
    for line in (line for file in options.files for line in file.read_text().splitlines()):
        row = json.loads(line)
        if isinstance(row["variants"], dict):  # else the call failed
            timed = row["variants"]
            calls.setdefault(row["key"][0], []).append((timed["choice"], timed["us"]))
    print(
        "| class | variant | can run | chosen | fastest | mean without | worst without | in turn |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kind, drawn in calls.items():
        every = [us for _, us in drawn]
        gone = removed(every, options.mean, options.worst)
        for name in sorted({n for us in every for n in us}):
            mean, worst = loss(every, {name})
            chosen = sum(choice == name for choice, _ in drawn)
            fastest = sum(min(us, key=us.__getitem__) == name for us in every)
            turn = f"{gone[name][0]:.3f}, {gone[name][1]:.2f}" if name in gone else ""
            can = sum(name in us for us in every)
            shown = f"{mean:.3f} | {worst:.2f} | {turn}"
            print(f"| {kind} | {name} | {can} | {chosen} | {fastest} | {shown} |")
        print(f"| {kind} | **{len(every)} calls** | | | | | | |")


def loss(calls: Sequence[Times], without: set[str]) -> tuple[float, float]:
    """The mean and the worst call without these variants; infinite where no other can run one."""
    ratios = []
    for us in calls:
        left = [t for name, t in us.items() if name not in without]
        ratios.append(min(left, default=math.inf) / min(us.values()))
    return math.exp(sum(map(math.log, ratios)) / len(ratios)), max(ratios)


def removed(calls: Sequence[Times], mean: float, worst: float) -> dict[str, tuple[float, float]]:
    """The variants that may go, in the order in which they go, with what is lost by then."""
    names, gone = {name for us in calls for name in us}, dict[str, tuple[float, float]]()
    while left := names - gone.keys():
        (least, most), name = min((loss(calls, {*gone, n}), n) for n in left)
        if least > mean or most > worst:
            break
        gone[name] = least, most
    return gone


if __name__ == "__main__":
    main()
