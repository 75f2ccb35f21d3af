"""The examples of one file as several jobs, so that a file of many kernels does not end long after all others.

    jobs = parts_of(job, 4)      # the same examples, every fourth each
    report = joined(reports)     # as if one job had tried them all

Not here: running them (`pool.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

Job = dict[str, Any]
Report = dict[str, Any]
Say = Callable[
    [str, str, float], None
]  # what is being done, in which stage, how much of it is done
MOST = 4  # the dtypes that most ops take: each part then compiles kernels of its own


def nobody(text: str, stage: str, share: float) -> None:
    """A `Say` that discards its arguments."""


class Shares:
    """How much of each stage is done, over all parts of all files.

    `say(text, stage, share)` is told what is being done, and which share of its stage that makes in all; "" for no stage.
    """

    def __init__(self, parts: Sequence[Sequence[Job]], say: Say):
        self.parts, self.say = parts, say
        self.shares: dict[str, dict[tuple[int, int], float]] = {}

    def tell(self, file: int, job: Job, text: str, stage: str, share: float) -> None:
        """Reports what one part does now."""
        if stage:
            done = self.shares.setdefault(stage, {})
            done[file, self.parts[file].index(job)] = share
            share = sum(done.values()) / self._count(job["device"])
        self.say(text, stage, share)

    def finish(self, file: int, job: Job) -> None:
        """One part is done with each stage that it began."""
        for stage, done in list(self.shares.items()):
            if (file, self.parts[file].index(job)) in done:
                self.tell(file, job, "", stage, 1.0)

    def _count(self, device: str) -> int:
        return sum(job["device"] == device for jobs in self.parts for job in jobs)


def parts_of(job: Job) -> list[Job]:
    """Cuts examples into parts of at least four, because each part builds the modules again. With a `target`, one part compiles for it."""
    plain = {k: v for k, v in job.items() if k != "target"}
    parts = max(1, min(MOST, job["examples"] // 4))
    ran = [plain | {"part": k, "parts": parts} for k in range(parts)]
    return [*ran, plain | {"device": job["target"]}] if "target" in job else ran


def joined(reports: Sequence[Report]) -> Report:
    """Joins the reports of all parts of one file, with each kind of failure once."""
    first = reports[0]
    failures: dict[tuple[str, ...], Any] = {}
    for failure in (f for report in reports for f in report["failures"]):
        failures.setdefault(kind_of_failure(failure), failure)
    out: Report = {"spec": first["spec"], "device": first["device"]}
    for key in ("examples", "calls", "rejected", "gradients"):
        out[key] = sum(report.get(key, 0) for report in reports)
    for key in ("dtypes", "variants", "compiled"):
        out[key] = dict(sum((Counter(report.get(key, {})) for report in reports), Counter()))
    used: dict[str, float] = {}
    for report in reports:
        for dtype, share in report.get("bound_used", {}).items():
            used[dtype] = max(used.get(dtype, 0.0), share)
    seconds = round(sum(report.get("seconds", 0.0) for report in reports), 1)
    return out | {"bound_used": used, "failures": list(failures.values()), "seconds": seconds}


def kind_of_failure(failure: dict[str, Any]) -> tuple[str, ...]:
    return failure["op"], failure["variant"], failure["problem"].split(":")[0][:20]
