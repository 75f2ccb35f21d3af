"""Draws, tests and compiles many specs in processes; groups findings by kind, shrinks them and writes them.

    summary = drive(seed=0, jobs=8, device="cpu", specs=range(1000))

Each of `jobs` threads asks two processes in turn: one interprets (or runs) kernels, one compiles them. If a process dies or
hangs, that is a finding, and the process is replaced.
"""

from __future__ import annotations

import math
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tritongen.proof.fuzz.draw import Drawn, draw_spec, own_names
from tritongen.proof.fuzz.names import renamed, unlucky
from tritongen.proof.pool import Worker

MODULE = "tritongen.proof.fuzz.worker"
LIMIT = 180.0  # seconds of one job
Finding = dict[str, Any]


@dataclass(slots=True)
class Summary:
    """The counts and findings of a run."""

    specs: int = 0
    calls: int = 0
    kernels: int = 0
    motifs: Counter = field(default_factory=Counter)
    refused: Counter = field(default_factory=Counter)
    refusals: int = 0
    skeletons: Counter = field(default_factory=Counter)
    variants: Counter = field(default_factory=Counter)
    seconds: Counter = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    begun: dict[str, float] = field(
        default_factory=dict
    )  # specs that are tried now, and since when

    def slow(self, seconds: float = 30) -> list[str]:
        """The specs that are tried for longer, as `1701-940`."""
        return [k for k, since in self.begun.items() if time.monotonic() - since > seconds]

    def kinds(self) -> dict[str, list[Finding]]:
        out: dict[str, list[Finding]] = {}
        for finding in self.findings:
            out.setdefault(kind_of(finding), []).append(finding)
        return out


def kind_of(finding: Finding) -> str:
    """The kind of a finding: its stage, and the problem without names and numbers."""
    problem = finding["problem"]
    if "kernels" in finding["stage"] and ": " in problem:
        problem = problem.split(": ", 1)[1]  # which ways
    head = problem.split("\n")[0]
    if "InterpreterError" in head:  # the same error in a helper's helper, quoted anew each time
        head = " ".join(re.findall(r"\w+Error(?=\()|[A-Za-z ]{12,}", head)[-2:])
    if "differ; first" in head:
        head = "nan" if "nan" in head else "differ"
    head = re.sub(r"`[^`]*`|'[^']*'|\b\w+_(backward|at)\b|\[[^\]]*\]", "..", head)
    if ": " in head and "names" in finding["stage"]:
        head = head.split(": ")[0]
    return f"{finding['stage']}: {re.sub(r'-?[0-9.]+(e[+-]?[0-9]+)?', '0', head)[:90]}"


class Pair:
    """The two processes of one thread."""

    def __init__(self, device: str, compiles: bool, all_ways: bool = False):
        self.device, self.all_ways = device, all_ways
        self.tries = Worker(device, MODULE)
        self.compiles = Worker("none", MODULE) if compiles else None

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.tries.stop()
        if self.compiles is not None:
            self.compiles.stop()

    def report(
        self,
        text: str,
        name: str,
        seed: int,
        only: str = "",
        grad: bool = True,
        twice: bool | None = None,
    ):
        """Both reports of a spec as one; `only` asks for one of "trial" and "compile"."""
        job = {"text": text, "name": name, "seed": seed, "device": self.device}
        out: dict[str, Any] = {"findings": [], "refused": [], "seconds": {}}
        if only != "compile":
            more = {"grad": grad, "all_ways": self.all_ways, "twice": twice}
            out |= self._ask(self.tries, job | {"kind": "trial"} | more)
        if self.compiles is not None and only != "trial" and not out["refused"]:
            other = self._ask(self.compiles, job | {"kind": "compile", "grad": grad})
            out["findings"] = out["findings"] + other["findings"]
            out["seconds"] = out["seconds"] | other["seconds"]
            out["kernels"] = other.get("kernels", 0)
        if self.device == "cuda" and out["findings"]:
            self.tries.stop()  # a device error of one spec must not fail the next
        return out

    def _ask(self, worker: Worker, job: dict[str, Any]) -> dict[str, Any]:
        report = worker.ask(job, LIMIT)
        if "findings" in report:
            return report
        (failure,) = report["failures"]
        finding = {"stage": f"process {job['kind']}"} | {k: failure[k] for k in ("problem", "call")}
        return {"findings": [finding], "refused": [], "seconds": {}}


def drawn(seed: int, k: int) -> Drawn:
    """Spec k of a run; some with names of the module that they become."""
    random = Random(f"{seed}-{k}")
    found = draw_spec(random)
    if not found.unlucky:
        return found
    from tritongen import pipeline

    try:
        own, raw = own_names(found.text), pipeline.build(found.text).raw
    except Exception:  # a trial of the plain spec shows it better
        return found
    return Drawn(renamed(found.text, unlucky(raw, own, random)), (*found.motifs, "unlucky"))


def drive(
    seed: int,
    jobs: int,
    device: str = "cpu",
    compiles: bool = True,
    specs: Iterable[int] = range(100),
    note: Callable[[Summary], None] = lambda summary: None,
    found: Callable[[Finding, Pair], None] = lambda finding, pair: None,
    every: Callable[[Finding], None] = lambda finding: None,
    all_ways: bool = False,
    seconds: float = math.inf,
) -> Summary:
    """Draws these specs of a seed and tests them.

    `found` gets the first finding of each kind, in the thread that met it. `every` gets each
    finding. After so many seconds no other spec is begun.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for k in specs:
        waiting.put(k)
    summary, lock, kinds = Summary(), threading.Lock(), set()
    end = time.monotonic() + seconds

    def serve() -> None:
        with Pair(device, compiles, all_ways) as pair:
            while time.monotonic() < end:
                try:
                    k = waiting.get_nowait()
                except queue.Empty:
                    return
                with lock:
                    summary.begun[f"{seed}-{k}"] = time.monotonic()
                spec = drawn(seed, k)
                report = pair.report(spec.text, f"drawn {seed}-{k}", k)
                fresh = []
                with lock:
                    del summary.begun[f"{seed}-{k}"]
                    for finding in report["findings"]:
                        finding |= {"text": spec.text, "seed": k, "drawn": f"{seed}-{k}"}
                        finding |= {"after": summary.specs + 1}
                        every(finding)
                        if kind_of(finding) not in kinds:
                            kinds.add(kind_of(finding))
                            fresh.append(finding)
                    _add(summary, spec, report)
                    note(summary)
                for finding in fresh:
                    found(finding, pair)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return summary


def _add(summary: Summary, spec: Drawn, report: dict[str, Any]) -> None:
    summary.specs += 1
    summary.calls += report.get("calls", 0)
    summary.kernels += report.get("kernels", 0)
    summary.motifs.update(spec.motifs)
    summary.refusals += bool(report["refused"])
    summary.refused.update(report["refused"])
    summary.skeletons.update(report.get("skeletons", {}).keys())
    summary.variants.update(report.get("variants", {}).keys())
    summary.seconds.update(report["seconds"])
    summary.findings += report["findings"]
