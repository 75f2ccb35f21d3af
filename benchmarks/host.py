"""The time that a call keeps the host, ours beside torch's: without a gradient, with one wanted, and with its backward.

    python benchmarks/host.py [--device cpu] [--standalone]

Microseconds, the least of many rounds. The device is idle when a round starts, and a round launches less than its queue
holds. On a CPU nothing is replayed: there it only shows that the script runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
import torch.nn.functional as F

from tritongen.pipeline import build
from tritongen.runtime.load import load_text

ROUNDS, CALLS = 30, 100
SPECS = Path(__file__).resolve().parent.parent / "specs"


def cases(
    device: str, standalone: bool
) -> list[tuple[str, Callable, Callable, list[torch.Tensor]]]:
    def op(name: str) -> Callable:
        text = (SPECS / f"{name}.op").read_text()
        module = build(text, f"{name}.op", standalone, gradients=True)
        return getattr(load_text(name, module.raw), name)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device)

    x, w, b = randn(256, 1024), randn(1024), randn(1024)
    square = randn(512, 512)
    return [
        ("relu", op("relu"), torch.relu, [x]),
        ("vector_add", op("vector_add"), torch.add, [randn(4096), randn(4096)]),
        ("bias_add", op("bias_add"), lambda x, b: x + b[:, None, None], [randn(4, 8, 16, 16), randn(8)]),
        ("softmax", op("softmax"), lambda x: torch.softmax(x, -1), [x]),
        ("layer_norm", op("layer_norm"), lambda x, w, b: F.layer_norm(x, (1024,), w, b), [x, w, b]),
        ("matmul", op("matmul"), torch.matmul, [x, randn(1024, 512)]),
        ("matmul x x", op("matmul"), torch.matmul, [square, square]),
    ]  # fmt: skip


def least(call: Callable[[], object], device: str) -> float:
    """Microseconds of one call."""
    times = []
    for _ in range(ROUNDS):
        if device == "cuda":
            torch.cuda.synchronize()
        start = perf_counter()
        for _ in range(CALLS):
            call()
        times.append(perf_counter() - start)
    return min(times) / CALLS * 1e6


def measured(f: Callable, operands: list[torch.Tensor], device: str) -> list[float]:
    """Of a call without a gradient, of one that wants it, and of that with its backward."""
    leaves = [x.clone().requires_grad_() for x in operands]
    dy = torch.ones_like(f(*operands))
    calls = (
        lambda: f(*operands),
        lambda: f(*leaves),
        lambda: torch.autograd.grad(f(*leaves), leaves, dy),
    )
    return [least(call, device) for call in calls]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument(
        "--standalone", action="store_true", help="modules that import nothing of tritongen"
    )
    options = parser.parse_args()
    device = options.device
    print(f"{'':12s}  ours, torch, ratio: without a gradient, wanting one, with its backward")
    for name, ours, theirs, operands in cases(device, options.standalone):
        pairs = zip(*(measured(f, operands, device) for f in (ours, theirs)), strict=True)
        print(f"{name:12s}", *(f"{a:7.1f} {b:6.1f} {a / b:5.2f}  " for a, b in pairs), flush=True)


if __name__ == "__main__":
    main()
