"""Trains a GPT and a small ResNet with torch's layers and with tritongen's, eager and compiled.

    python benchmarks/train.py --model gpt|resnet --out FOLDER [--steps 300] [--device cuda] [--dtype bf16]
                               [--seeds 3] [--backend inductor] [--mode reduce-overhead] [--tiny]
    python benchmarks/train.py --model gpt-large|resnet50 --speed --seeds 1 --steps 15 --out FOLDER

First the gradients of step 0 are compared with torch's in f64: ours and torch's, in f32 and under autocast. Then the models
train: eager ones for each seed, compiled ones for the first seed. A seed gives the same weights and batches to torch and to
us.

It writes results.json (after each run), results.md, and curves.png if matplotlib is installed.

- **The rule.** A curve is inside torch's spread if its mean over every window of a tenth of the steps is no further from a
  curve of torch's eager seeds than these are from each other.
- **Speed** is of the last two thirds of the steps (200 of 300). The device is waited for at both ends.
- **Where the time goes** is one more step of the first seed under torch.profiler, behind all that is timed: a process that was
  once profiled launches kernels more slowly.
- The time of the first step is mostly compilation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton
from models import SIZES, TINY, TORCH, Batch, batches, make, ours
from torch import nn
from torch.profiler import ProfilerActivity, profile

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
WAYS = ("torch", "torch compiled", "tritongen", "tritongen compiled")
COLOURS = {"tritongen": "#d1495b", "tritongen compiled": "#7a5195", "torch compiled": "#00798c"}
TOP = 15  # kernels of a step that are listed


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    options = _options(arguments)
    sizes = (TINY if options.tiny else SIZES)[options.model]
    device = torch.device(options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    results: dict[str, Any] = {
        "model": options.model, "sizes": repr(sizes), "unit": sizes.unit, "dtype": options.dtype,
        "steps": options.steps, "torch": torch.__version__, "triton": triton.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu", "runs": [],
    }  # fmt: skip

    def model(way: str, seed: int = 0) -> nn.Module:
        parts = ours() if way.startswith("tritongen") else TORCH
        with device:  # the weights are drawn there: a large model takes long on a CPU
            made = make(options.model, parts, sizes, seed)
        compiled = {"backend": options.backend, "mode": options.mode}
        return torch.compile(made, **compiled) if way.endswith("compiled") else made

    dtype = DTYPES[options.dtype]
    results["gradients"] = {}
    if not options.speed:
        results["gradients"] = step_0(model, batches(options.model, sizes, 1, 0, device)[0], dtype)
    _say(results, options.out)
    for seed in range(options.seeds):
        made = batches(options.model, sizes, options.steps, seed, device)
        for way in WAYS if seed == 0 else WAYS[::2]:
            run = train(model(way, seed), made, dtype, sizes, device)
            results["runs"].append({"way": way, "seed": seed, **run})
            results["seconds"] = round(time.monotonic() - started, 1)
            _say(results, options.out)
    made = batches(options.model, sizes, 1, 0, device)
    for run in results["runs"]:
        run["outside"] = outside(run["losses"], results["runs"], len(run["losses"]) // 10)
        if run["seed"] == 0:
            step = stepper(model(run["way"]), dtype, sizes, device)
            run["kernels"] = kernels(lambda step=step: step(*made), device.type == "cuda")
    _say(results, options.out)
    return results


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=tuple(SIZES), required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--dtype", default="bf16", choices=tuple(DTYPES), help="of autocast")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--mode", help="of torch.compile: reduce-overhead records CUDA graphs")
    parser.add_argument(
        "--speed", action="store_true", help="no gradients in f64: for large models"
    )
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args(arguments)


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    return torch.autocast(device.type, dtype, enabled=dtype.itemsize == 2)


# ---- gradients of step 0 ------------------------------------------------------------------------
def step_0(model: Callable[[str], nn.Module], batch: Batch, low: torch.dtype) -> dict[str, Any]:
    """By how much the gradient of each parameter is off that of torch in f64, relative to its norm."""
    device = batch[0].device

    def gradients(way: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        made, (x, target) = model(way), batch
        if dtype == torch.float64:
            made, x = made.double(), x.double() if x.is_floating_point() else x
        with ieee(), autocast(device, dtype):
            made(x, target).backward()
        return {name: p.grad.double() for name, p in made.named_parameters()}

    def off(way: str, dtype: torch.dtype) -> dict[str, Any]:
        errors = {
            name: ((g - right[name]).norm() / right[name].norm()).item()
            for name, g in gradients(way, dtype).items()
        }
        worst = max(errors, key=errors.__getitem__)
        return {"largest": errors[worst], "parameter": worst, "all": errors}

    right = gradients("torch", torch.float64)
    ways = [(way, dtype) for dtype in (torch.float32, low) for way in ("tritongen", "torch")]
    names = {torch.float32: "f32", low: "f32" if low == torch.float32 else "autocast"}
    return {f"{way} {names[dtype]}": off(way, dtype) for way, dtype in ways}


@contextmanager
def ieee():
    """Products and convolutions of f32 in full, of torch's and ours alike."""
    switches = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = "ieee"
        yield
    finally:
        for switch, precision in zip(switches, before, strict=True):
            switch.fp32_precision = precision


# ---- a run --------------------------------------------------------------------------------------
def stepper(
    model: nn.Module, dtype: torch.dtype, sizes: Any, device: torch.device
) -> Callable[[Batch], torch.Tensor]:
    """A function that trains the model by one batch, and returns the loss."""
    rate, fused = sizes.rate, device.type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=fused)

    def step(batch: Batch) -> torch.Tensor:
        with autocast(device, dtype):
            loss = model(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach().clone()  # a CUDA graph overwrites it

    return step


def train(
    model: nn.Module, steps: list[Batch], dtype: torch.dtype, sizes: Any, device: torch.device
) -> dict[str, Any]:
    """The losses of all steps, and the speed of the last two thirds."""
    on_gpu, step = device.type == "cuda", stepper(model, dtype, sizes, device)
    untimed = len(steps) - max(1, 2 * len(steps) // 3)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    start = clock(device)
    losses = [step(steps[0])]
    first = clock(device) - start
    losses += [step(batch) for batch in steps[1:untimed]]
    start = clock(device)
    losses += [step(batch) for batch in steps[max(1, untimed) :]]
    seconds = (clock(device) - start) / max(1, len(steps) - max(1, untimed))
    return {
        "losses": torch.stack(losses).tolist(),
        "first_s": first,
        "step_ms": seconds * 1e3,
        "rate": sizes.items / seconds,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
    }


def clock(device: torch.device) -> float:
    """Seconds, when all that was launched is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def kernels(step: Callable[[], Any], on_gpu: bool) -> dict[str, Any]:
    """What the device ran in the third step, in microseconds; on a CPU, torch's ops and our references."""
    step(), step()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as profiler:
        step()
        if on_gpu:
            torch.cuda.synchronize()
    wanted = torch.autograd.DeviceType.CUDA if on_gpu else torch.autograd.DeviceType.CPU
    rows = [
        (e.key, e.count, e.self_device_time_total if on_gpu else e.self_cpu_time_total)
        for e in profiler.key_averages()
        if e.device_type == wanted and not e.is_user_annotation  # these hold kernels
    ]
    rows.sort(key=lambda row: -row[2])
    shown = [{"name": n, "calls": c, "us": us} for n, c, us in rows[:TOP]]
    return {"us": sum(us for *_, us in rows), "launches": sum(c for _, c, _ in rows), "top": shown}


# ---- the spread of seeds ------------------------------------------------------------------------
def outside(losses: list[float], runs: list[dict[str, Any]], window: int) -> list[int]:
    """The windows in which a curve is not inside torch's spread, by their first steps."""
    window = max(1, window)
    theirs = [windows(run["losses"], window) for run in runs if run["way"] == "torch"]
    found = []
    for k, mean in enumerate(windows(losses, window)):
        seen = [curve[k] for curve in theirs]
        if not min(abs(mean - s) for s in seen) <= max(seen) - min(seen):
            found.append(k * window)
    return found


def windows(losses: list[float], window: int) -> list[float]:
    starts = range(0, len(losses) - window + 1, window)
    return [sum(losses[k : k + window]) / window for k in starts]


# ---- what is written ----------------------------------------------------------------------------
def _say(results: dict[str, Any], out: Path) -> None:
    (out / "results.json").write_text(json.dumps(results, indent=1))
    (out / "results.md").write_text(text := table(results))
    if results["runs"] and "outside" in results["runs"][-1]:
        print(text)
        curves(results, out / "curves.png")
    elif results["runs"]:
        run = results["runs"][-1]
        speed = f"{run['rate']:,.0f} {results['unit']}/s, first step {run['first_s']:.1f} s"
        print(
            f"{run['way']}, seed {run['seed']}: loss {run['losses'][-1]:.4f}, {speed}", flush=True
        )


def table(results: dict[str, Any]) -> str:
    about = f"{results['model']} on {results['device']}, {results['dtype']} autocast, {results['steps']} steps"
    lines = [f"### {about}: torch {results['torch']}, triton {results['triton']}", ""]
    lines += [results["sizes"], "", "| gradients at step 0 | largest error | of |", "|---|---|---|"]
    for name, found in results["gradients"].items():
        lines.append(f"| {name} | {found['largest']:.1e} | `{found['parameter']}` |")
    unit = results["unit"]
    lines += ["", f"| run | seed | {unit}/s | step ms | kernels ms | launches | GiB | first step s | loss | outside |",
              "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for run in results["runs"]:
        last = windows(run["losses"], max(1, len(run["losses"]) // 10))[-1]
        gib = "" if run["peak_gib"] is None else f"{run['peak_gib']:.1f}"
        ran = run.get("kernels", {"us": 0, "launches": 0})
        times = f"{run['rate']:,.0f} | {run['step_ms']:.2f} | {ran['us'] / 1e3:.2f}"
        spread = ", ".join(map(str, run.get("outside", ["?"]))) or "nowhere"
        lines.append(
            f"| {run['way']} | {run['seed']} | {times} | {ran['launches']} | {gib} |"
            f" {run['first_s']:.1f} | {last:.4f} | {spread} |"
        )
    for run in results["runs"]:
        if "kernels" in run:
            lines += [
                "",
                f"| {run['way']}: where a step's time goes | calls | us |",
                "|---|---|---|",
            ]
            for row in run["kernels"]["top"]:
                lines.append(f"| `{row['name'][:80]}` | {row['calls']} | {row['us']:,.0f} |")
    return "\n".join(lines) + "\n"


def curves(results: dict[str, Any], path: Path) -> None:
    """The losses, smoothed by windows of a thirtieth, and what parts them; torch's seeds as a band."""
    try:
        from matplotlib.figure import Figure  # no pyplot: no window, no global state
    except ImportError:
        print("no matplotlib: no curves; pip install 'tritongen[bench]'")
        return
    window = max(1, results["steps"] // 30)
    seeds = [windows(r["losses"], window) for r in results["runs"] if r["way"] == "torch"]
    mean = [sum(step) / len(step) for step in zip(*seeds, strict=True)]
    places = [window * (k + 0.5) for k in range(len(mean))]
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for axes, base in ((above, [0.0] * len(mean)), (below, mean)):
        low, high = ([edge(s) for s in zip(*seeds, strict=True)] for edge in (min, max))
        edges = ([v - b for v, b in zip(edge, base, strict=True)] for edge in (low, high))
        axes.fill_between(places, *edges, color="#30638e", alpha=0.35, label="torch, all seeds")
        for run in results["runs"]:
            if run["way"] != "torch":
                named = {"label": run["way"]} if run["seed"] == 0 else {}
                style = "--" if run["way"].endswith("compiled") else "-"
                own = [v - b for v, b in zip(windows(run["losses"], window), base, strict=True)]
                axes.plot(places, own, style, linewidth=1, color=COLOURS[run["way"]], **named)
        axes.grid(True, alpha=0.25)
    above.set_ylabel("loss")
    below.set_ylabel("less the mean of torch's seeds")
    below.set_xlabel("step")
    above.set_title(f"{results['model']}, {results['dtype']} autocast, on {results['device']}")
    above.legend()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
