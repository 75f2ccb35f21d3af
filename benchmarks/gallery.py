"""What the gallery shows, measured on one GPU: each spec beside torch, at the sizes of `website/gallery.json`.

    python -m benchmarks.gallery                   # writes benchmarks/gallery.json
    python -m benchmarks.gallery --only softmax    # one spec again

The file is written after each spec. A run ends after `--minutes`, and the next run goes on where it ended: it leaves out what
the file holds of this GPU and these versions of torch and Triton. Each result is compared before it is timed, as by
`tritongen bench`. torch.compile is timed at the largest size only.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton

from tritongen import pipeline
from tritongen.bench import run
from tritongen.bench.measure import Timer, ceilings
from tritongen.cost import Ceilings
from tritongen.runtime.load import load_text
from tritongen.shapes import call_of, parse_shapes, random_arguments, shape_text

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks" / "gallery.json"
PRECISIONS = ("bf16", "tf32", "tf32x3", "ieee", "f64", "f8", "i8")
WORKERS = min(8, os.cpu_count() or 1)


def shapes() -> dict[str, str]:
    """The sizes of each spec, by its name."""
    groups = json.loads((ROOT / "website" / "gallery.json").read_text(encoding="utf-8"))
    return {name: shape for names in groups.values() for name, shape in names.items()}


# ---- one spec -----------------------------------------------------------------------------------
def calls_of(built: pipeline.Module, shape: str) -> list[Any]:
    ((_, plans),) = built.plans.items()
    return [call_of([p.op for p in plans], numbers) for numbers in parse_shapes([shape])]


def rivals(calls: Sequence[Any], call: Any) -> tuple[str, ...]:
    return ("eager", "compile") if call is calls[-1] else ("eager",)


def prepared(name: str, shape: str) -> pipeline.Module:
    """Builds a spec. On a GPU it also runs its calls once, so that the caches of Triton and torch hold their kernels."""
    text = (ROOT / "specs" / f"{name}.op").read_text(encoding="utf-8")
    built = pipeline.build(text, f"specs/{name}.op", gradients=True)
    if torch.cuda.is_available():
        try:
            _run(built, calls_of(built, shape))
        except Exception:  # `measure` says why
            pass
    return built


def _run(built: pipeline.Module, calls: Sequence[Any]) -> None:
    module = load_text(built.name, built.raw)
    torch._dynamo.reset()  # it compiles a function no more than eight times; that of each spec is one to it
    for call in calls:
        args = random_arguments(*call, "cuda", 0)
        run.ours(module, call[0], args)()
        for function in run.rivals(call[0], args, rivals(calls, call)).values():
            function()
    torch.cuda.empty_cache()


def measure(
    built: pipeline.Module,
    shape: str,
    peaks: Ceilings,
    device: str = "cuda",
    timer: Timer | None = None,
) -> dict[str, Any]:
    """The report of one spec, as JSON. A size that fails, such as for want of memory, is named under `failed`."""
    ((name, plans),) = built.plans.items()
    calls, rows, failed = calls_of(built, shape), [], []
    by_op = {id(p.op): p for p in plans}
    own = set(run.precisions(by_op, calls))
    matmul = {name: rate for name, rate in peaks.matmul.items() if name in own}
    torch._dynamo.reset()  # as in `_run`
    for call in calls:
        try:
            found = run.bench(
                built,
                name,
                [call],
                rivals(calls, call),
                device,
                0,
                timer,
                replace(peaks, matmul=matmul),
            )
            rows += [_short(row) for row in found.as_json()["rows"]]
        except Exception as error:
            first = str(error).strip().splitlines()[:1]
            failed.append(f"{shape_text(*call)}: {type(error).__name__}: {''.join(first)}")
        if torch.cuda.is_available():
            _empty()
    return dict(**machine(device), copy=peaks.copy, matmul=matmul, failed=failed, rows=rows)


def _empty() -> None:
    try:
        torch.cuda.empty_cache()
    except RuntimeError:  # the device failed; `main` sees it
        pass


def machine(device: str) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device == "cuda" else device
    return dict(device=name, torch=torch.__version__, triton=triton.__version__)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Four digits of each figure; JSON has no NaN."""
    found = {}
    for key, value in row.items():
        if isinstance(value, float):
            value = float(f"{value:.4g}") if math.isfinite(value) else None
        found[key] = value
    return found


# ---- all specs ----------------------------------------------------------------------------------
def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write(file: Path, reports: Mapping[str, Any]) -> None:
    """One line a row."""
    parts = []
    for name, report in sorted(reports.items()):
        head = json.dumps({k: v for k, v in report.items() if k != "rows"})
        rows = ",\n".join(json.dumps(row) for row in report["rows"])
        parts.append(f'{json.dumps(name)}: {head[:-1]}, "rows": [\n{rows}\n]}}')
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def builds(wanted: Mapping[str, str], seconds: float) -> dict[str, pipeline.Module]:
    """The modules of the specs that several processes could prepare in so many seconds, by name."""
    end = time.monotonic() + seconds
    with get_context("spawn").Pool(WORKERS, _one_thread) as pool:
        found = {n: pool.apply_async(prepared, (n, s)) for n, s in wanted.items()}
        while not all(job.ready() for job in found.values()) and time.monotonic() < end:
            time.sleep(0.2)
        return {n: job.get() for n, job in found.items() if job.ready() and job.successful()}


def _one_thread() -> None:
    """torch.compile starts no processes of its own."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", help="names of specs; these are measured again")
    parser.add_argument("--file", type=Path, default=FILE, help="what is written")
    parser.add_argument(
        "--minutes", type=float, default=7, help="start no spec later; half of it may go to builds"
    )
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        raise SystemExit("This needs a GPU: `tritongen doctor` says what is missing.")
    begun, reports, here = time.monotonic(), read(given.file), machine("cuda")
    wanted = {n: s for n, s in shapes().items() if not given.only or n in given.only}
    if not given.only:
        wanted = {n: s for n, s in wanted.items() if not here.items() <= reports.get(n, {}).items()}
    ready = builds(wanted, 30 * given.minutes)
    print(f"{len(ready)} specs are built after {time.monotonic() - begun:.0f} s", flush=True)
    peaks = ceilings(PRECISIONS)
    left = set(wanted)
    for name, built in ready.items():
        if time.monotonic() - begun > 60 * given.minutes:
            break
        reports[name] = measure(built, wanted[name], peaks)
        left.remove(name)
        write(given.file, reports)
        problems = [row["problem"] for row in reports[name]["rows"] if row["problem"]]
        print(name, *reports[name]["failed"], *problems, sep="; ", flush=True)
        try:
            torch.cuda.synchronize()
        except (
            RuntimeError
        ) as error:  # a device does not recover from some errors in the same process
            print(f"the device failed: {error}")
            break
    rest = f"run this again for {', '.join(sorted(left))}" if left else "all are measured"
    print(f"{time.monotonic() - begun:.0f} s: {rest}")


if __name__ == "__main__":
    main()
