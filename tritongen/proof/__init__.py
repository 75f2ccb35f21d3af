"""The proof: tests that follow from a spec alone, and their findings.

    result = check_spec(Path("specs/softmax.op"), device="cpu", examples=100)
    result.ok, str(result), result.report

- `cases` draws examples from the op.
- `oracle` bounds the right answers in f64.
- `variants` forces every variant, on poisoned, fenced outputs (`guarded`).
- `gradients` does the same for derived gradients.
- `crosscompile` builds the kernels for other GPUs, `lowered` a few of them with every check.

Importing this imports neither torch nor triton.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Result", "check_spec", "check_specs"]

TARGET = "sm_90"  # the compile target without a GPU


@dataclass(frozen=True, slots=True)
class Result:
    """The result for one file. `report` is plain data."""

    report: dict[str, Any]

    @property
    def ok(self) -> bool:
        return not self.report["failures"] and not self.nothing_drawn

    @property
    def nothing_drawn(self) -> bool:
        """Whether the op accepted none of the random calls. Then nothing is tested."""
        return self.report.get("rejected", 0) > 0 and self.report["examples"] == 0

    def __str__(self) -> str:
        report = self.report
        if self.ok:
            dtypes = ", ".join(report["dtypes"])
            variants = ", ".join(report["variants"])
            back = f" and {report['gradients']} of gradients" if report["gradients"] else ""
            head = f"{report['spec']}: {report['examples']} examples{back} on {report['device']}"
            built = "".join(f"{n} kernels compile for {t}, " for t, n in report["compiled"].items())
            return f"{head} ({dtypes}; {variants}): all right, {built}{report['seconds']} s"
        if self.nothing_drawn and not report["failures"]:
            tried = report["rejected"]
            return (
                f"{report['spec']}: nothing tested: the op accepted none of {tried} random calls"
                " (check the facts after `with`, and that gathered indices stay inside)"
            )
        lines = [f"{report['spec']}: {len(report['failures'])} findings on {report['device']}"]
        for failure in report["failures"]:
            lines.append(f"  {failure['variant'] or 'build'}: {failure['problem']}")
            lines += [f"    {failure['call']}"] if failure["call"] else []
        return "\n".join(lines)


def check_spec(spec: Path, device: str | None = None, examples: int = 100, seed: int = 0) -> Result:
    """Tests one spec file. Takes the first arguments of `check_specs`, and returns its `Result`."""
    return next(check_specs([spec], device, examples, seed))


def check_specs(
    specs: Iterable[Path],
    device: str | None = None,
    examples: int = 100,
    seed: int = 0,
    processes: int | None = None,
    seconds: float = 300,
    say: Callable[[str, str, float], None] = lambda text, stage, share: None,
    gradients: bool = True,
    compiles: bool = True,
) -> Iterator[Result]:
    """Tests spec files in processes of their own, and yields a `Result` for each, in the order in which they finish.

    Args:
        specs: the spec files.
        device: "cuda", or "cpu", where kernels run in Triton's interpreter. Default: cuda if there is a GPU.
        examples: random calls for each file.
        seed: the seed of the random calls.
        processes: how many to run at once. Default: one for each part of a file, but at most one per core, and at most 16.
        seconds: the time that one file may take.
        say: gets what is being done, the stage, and the part of the stage that is done. It is called from other threads.
        gradients: also test derived gradients.
        compiles: on "cpu", also compile a few kernels for a GPU.

    Raises:
        SpecError: a file cannot be read.
    """
    from tritongen.proof.parts import MOST
    from tritongen.proof.pool import run_jobs
    from tritongen.syntax.limits import read_source

    device = device or default_device()
    target = {"target": TARGET} if compiles and device == "cpu" else {}
    jobs = [
        {
            **target,
            "text": read_source(spec).text,
            "name": _shown(spec),
            "device": device,
            "examples": examples,
            "seed": seed,
            "seconds": seconds,
            "gradients": gradients,
        }
        for spec in specs
    ]
    processes = processes or min(MOST * len(jobs), os.cpu_count() or 1, 16)
    for report in run_jobs(jobs, device, processes, timeout=seconds + 120, say=say):
        yield Result(report)


def default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _shown(spec: Path) -> str:
    try:
        return spec.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return spec.name
