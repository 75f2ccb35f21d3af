"""Pools and depthwise convolutions on one GPU beside torch eager and torch.compile, in one run.

    python benchmarks/windows.py [--json FILE] [--only TEXT] [--no-compile]

Default schedules. A share is of a large copy in the same run; input and output count once. Every output is compared with
torch's, on poisoned storage, before it is timed. Times are medians of calls in turns, with the L2 cache overwritten in
between. `#41` is a problem of `benchmarks/users`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from tritongen.bench.measure import ceilings, compare, interleaved, on_poison, tf32
from tritongen.pipeline import build
from tritongen.runtime.load import load_text

ROOT = Path(__file__).resolve().parent.parent
AVG_POOL3D = """op avg_pool3d<T: float>(
    x: T[N, C, D, H, W], const win: int = 2, const stride: int = 2, const pad: int = 0)
    -> y: T[N, C, O, P, Q]
    with O = (D + 2 * pad - win) // stride + 1, P = (H + 2 * pad - win) // stride + 1,
         Q = (W + 2 * pad - win) // stride + 1, 2 * pad <= win {
  y[n, c, o, p, q] = mean[k < win, r < win, s < win](
      x[n, c, o * stride + k - pad, p * stride + r - pad, q * stride + s - pad] else 0)
}
"""


@dataclass(frozen=True)
class Case:
    name: str
    op: str
    operands: Callable[[], tuple[torch.Tensor, ...]]
    numbers: tuple[int, ...]
    eager: Callable
    floor: str = "0.8x"


@dataclass(frozen=True)
class Row:
    """`share` is per cent of copy, `against` how many times as long each peer takes."""

    name: str
    floor: str
    milliseconds: float
    share: float
    against: dict[str, float]
    error: float


def randn(*shape: int, dtype=torch.float32, last: bool = False) -> torch.Tensor:
    x = torch.randn(*shape, device="cuda", dtype=dtype)
    return x.to(memory_format=torch.channels_last) if last else x


def pools() -> Iterator[Case]:
    wide, both = (64, 64, 256, 512), "80%, 0.8x"
    for op, win, torch_op in (
        ("max_pool2d", (2, 2, 0), F.max_pool2d),
        ("max_pool2d", (3, 2, 1), F.max_pool2d),
        ("avg_pool2d", (2, 2, 0), F.avg_pool2d),
        ("avg_pool2d", (3, 2, 1), F.avg_pool2d),
    ):
        name = f"{op} {win[0]}x{win[0]} stride {win[1]}, f32 {'x'.join(map(str, wide))}"
        yield Case(name, op, lambda: (randn(*wide),), win, torch_op, both)
    small = (64, 64, 112, 112)
    yield Case(
        "max_pool2d 3x3 stride 2, bf16 64x64x112x112 channels last", "max_pool2d",
        lambda: (randn(*small, dtype=torch.bfloat16, last=True),), (3, 2, 1), F.max_pool2d,
    )  # fmt: skip
    yield Case(
        "#41 max_pool1d 8, dilation 3, f32 64x192x65536", "max_pool1d",
        lambda: (randn(64, 192, 65536),), (8, 1, 4, 3), F.max_pool1d,
    )  # fmt: skip
    yield Case(
        "#42 max_pool2d 4x4 stride 1, f32 32x64x512x512", "max_pool2d",
        lambda: (randn(32, 64, 512, 512),), (4, 1, 1), F.max_pool2d,
    )  # fmt: skip
    yield Case(
        "#45 avg_pool2d 11x11 stride 11, f32 16x64x2048x2048", "avg_pool2d",
        lambda: (randn(16, 64, 2048, 2048),), (11, 11, 0), F.avg_pool2d,
    )  # fmt: skip
    yield Case(
        "#46 avg_pool3d 3x3x3 stride 2, f32 16x32x128x128x256", "avg_pool3d",
        lambda: (randn(16, 32, 128, 128, 256),), (3, 2, 1), F.avg_pool3d,
    )  # fmt: skip


def depthwise() -> Iterator[Case]:
    shape = (16, 64, 512, 512)

    def eager(x, w, b, stride, pad):
        return F.conv2d(x, w[:, None], b, stride, pad, 1, len(w))

    def grouped(x, w, b, stride, pad, dil, groups):
        return F.conv2d(x, w, b, stride, pad, dil, groups)

    def operands(dtype, last):
        def make():
            x = randn(*shape, dtype=dtype, last=last)
            return x, randn(64, 3, 3, dtype=dtype), randn(64, dtype=dtype)

        return make

    for dtype in (torch.float32, torch.bfloat16):
        for last in (False, True):
            order = "last" if last else "first"
            name = f"depthwise 3x3, {str(dtype)[6:]} 16x64x512x512 channels {order}"
            yield Case(name, "depthwise_conv2d", operands(dtype, last), (1, 0), eager)

    def apart():
        x, w, b = operands(torch.float32, False)()
        return x, w[:, None].contiguous(), b

    name = "the same by conv2d with groups=64, f32 channels first"
    yield Case(name, "conv2d", apart, (1, 0, 1, 64), grouped)


def function(op: str) -> Callable:
    path = ROOT / f"specs/{op}.op"
    text = path.read_text() if path.exists() else AVG_POOL3D
    return getattr(load_text(op, build(text, f"{op}.op").raw), op)


def measured(case: Case, copy: float, compiles: bool) -> Row:
    tensors, ours = case.operands(), function(case.op)
    with tf32(False):
        want = case.eager(*tensors, *case.numbers)
    verdict = compare(on_poison(lambda: ours(*tensors, *case.numbers)), want)
    if not verdict.ok:
        raise RuntimeError(verdict.problem)
    moved = sum(t.numel() * t.element_size() for t in (*tensors, want))
    del want
    functions = {
        "ours": lambda: ours(*tensors, *case.numbers),
        "eager": lambda: case.eager(*tensors, *case.numbers),
    }
    if compiles:
        torch._dynamo.reset()
        compiled = torch.compile(case.eager, dynamic=False)
        functions["compile"] = lambda: compiled(*tensors, *case.numbers)
    times = interleaved(functions, seconds=0.05)
    against = {k: t / times["ours"] for k, t in times.items() if k != "ours"}
    share = 100 * moved / times["ours"] / copy
    return Row(case.name, case.floor, 1e3 * times["ours"], share, against, verdict.error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    copy = ceilings().copy
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {copy / 1e9:.0f} GB/s\n"
    )
    print("| windows | floor | ms | of copy | eager | torch.compile | error |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for case in (*pools(), *depthwise()):
        if options.only not in case.name:
            continue
        try:
            row = measured(case, copy, not options.no_compile)
        except Exception as problem:  # one row's failure leaves the others
            print(f"| {case.name} | {case.floor} | {str(problem)[-200:]!r} | | | | |", flush=True)
            continue
        rows.append(row)
        shown = [f"{row.against[k]:.2f}x" if k in row.against else "" for k in ("eager", "compile")]
        print(
            f"| {row.name} | {row.floor} | {row.milliseconds:.3f} | {row.share:.0f}% | {shown[0]} | {shown[1]} "
            f"| {row.error:.0e} |",
            flush=True,
        )
        torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))


if __name__ == "__main__":
    main()
