"""Convolutions on one GPU beside cuDNN (torch eager) and torch.compile, in one run.

    python benchmarks/convolutions.py [--json FILE] [--only TEXT]

Default schedules. Every output is compared with torch in f32 without TF32, on poisoned storage, before it is timed. Ratios
are medians of calls in turns, with the L2 cache overwritten in between.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from tritongen.bench.measure import compare, interleaved, on_poison, tf32
from tritongen.pipeline import build
from tritongen.runtime.load import load_text

ROOT = Path(__file__).resolve().parent.parent
PLAIN = """
op conv<T: float>(x: T[N, C, H, W], w: T[F, C, R, S], const stride: int = 1, const pad: int = 0)
    -> y: T[N, F, P, Q]
    with P = (H + 2 * pad - R) // stride + 1, Q = (W + 2 * pad - S) // stride + 1 {
  y[n, f, p, q] = sum[c, r, s](
      (x[n, c, p * stride + r - pad, q * stride + s - pad] else 0) * w[f, c, r, s])
  precision tf32
}
op conv_bias_relu<T: float>(
    x: T[N, C, H, W], w: T[F, C, R, S], b: T[F], const stride: int = 1, const pad: int = 0)
    -> y: T[N, F, P, Q]
    with P = (H + 2 * pad - R) // stride + 1, Q = (W + 2 * pad - S) // stride + 1 {
  y[n, f, p, q] = relu(b[f] + sum[c, r, s](
      (x[n, c, p * stride + r - pad, q * stride + s - pad] else 0) * w[f, c, r, s]))
  precision tf32
}
"""


@dataclass(frozen=True)
class Row:
    """`ratio` is the best of `against` over ours; the floor is the issue's."""

    name: str
    floor: float
    ratio: float
    tflops: float
    against: dict[str, float]
    error: float


def modules() -> dict[str, Callable]:
    plain = load_text("convs", build(PLAIN, "convs.op").raw)
    found = {"conv": plain.conv, "conv_bias_relu": plain.conv_bias_relu}
    for name in ("conv3d", "conv_transpose2d", "conv_transpose3d", "depthwise_conv2d"):
        text = (
            (ROOT / f"specs/{name}.op").read_text().replace("\n  ref", "\n  precision tf32\n  ref")
        )
        found[name] = getattr(load_text(f"{name}_tf32", build(text, f"{name}.op").raw), name)
    return found


def cases() -> Iterator[tuple]:
    """(name, floor, flops, ours, eager, whether compile is a peer, bf16)."""
    ops = modules()
    cuda, bf16 = "cuda", torch.bfloat16

    def image(n, c, *dims, dtype=torch.float32):
        return torch.randn(n, c, *dims, device=cuda, dtype=dtype)

    def last(t):
        return t.to(memory_format=torch.channels_last)

    for n, c, h, f, r, stride, floor in (
        (64, 64, 56, 64, 3, 1, 0.85),
        (64, 128, 28, 128, 3, 1, 0.85),
        (64, 256, 14, 256, 3, 1, 0.85),
        (16, 512, 64, 512, 3, 1, 0.85),
        (64, 64, 56, 128, 3, 2, 0.7),
        (64, 128, 56, 256, 3, 2, 0.7),
        (64, 256, 56, 64, 1, 1, 1.0),
        (64, 64, 56, 256, 1, 1, 1.0),
    ):
        x, pad = last(image(n, c, h, h, dtype=bf16)), r // 2
        w, b = (
            last(image(f, c, r, r, dtype=bf16) / (c * r * r) ** 0.5),
            image(f, 1, dtype=bf16)[:, 0],
        )
        out = (h + 2 * pad - r) // stride + 1
        flops = 2 * n * f * out**2 * c * r * r
        name = f"{r}x{r} stride {stride}, {n}x{c}x{h}x{h} -> {f}, bf16 channels last"
        yield (
            name, floor, flops, lambda: ops["conv"](x, w, stride, pad),
            lambda: F.conv2d(x, w, None, stride, pad), False,
        )  # fmt: skip
        if stride == 1:
            yield (
                f"{name}, bias + relu", 1.2, flops, lambda: ops["conv_bias_relu"](x, w, b, stride, pad),
                lambda: F.relu(F.conv2d(x, w, b, stride, pad)), False,
            )  # fmt: skip
    for n, c, dims, f, window in (
        (8, 64, (512, 1024), 128, (3, 3)),
        (8, 32, (512, 512), 64, (5, 9)),
        (16, 3, (224, 224), 64, (7, 7)),
        (16, 16, (512, 512), 128, (3, 3)),
    ):
        x, w = image(n, c, *dims), image(f, c, *window) / (c * window[0] * window[1]) ** 0.5
        flops = 2 * n * f * c * window[0] * window[1]
        flops *= (dims[0] - window[0] + 1) * (dims[1] - window[1] + 1)
        name = f"{window[0]}x{window[1]}, {n}x{c}x{dims[0]}x{dims[1]} -> {f}, f32 as TF32"
        yield name, 0.8, flops, lambda: ops["conv"](x, w), lambda: F.conv2d(x, w), True
    for c, f, d, window in ((3, 64, (16, 128, 128), (3, 5, 7)), (32, 64, (16, 64, 64), (3, 3, 3))):
        x, b = image(8, c, *d), image(f, 1)[:, 0]
        taps = window[0] * window[1] * window[2]
        w = image(f, c, *window) / (c * taps) ** 0.5
        flops = 2 * 8 * f * c * taps
        for extent, size in zip(d, window, strict=True):
            flops *= extent - size + 1
        name = (
            f"3-d {'x'.join(map(str, window))}, 8x{c}x{'x'.join(map(str, d))} -> {f}, f32 as TF32"
        )
        yield name, 0.8, flops, lambda: ops["conv3d"](x, w, b), lambda: F.conv3d(x, w, b), True
    x, w, b = image(16, 64, 512, 512), image(64, 3, 3), image(64, 1)[:, 0]
    yield (
        "depthwise 3x3, 16x64x512x512, f32", 0.8, 18 * x.numel(),
        lambda: ops["depthwise_conv2d"](x, w, b, 1, 1),
        lambda: F.conv2d(x, w[:, None], b, 1, 1, 1, 64), True,
    )  # fmt: skip
    for n, c, h, f, r, stride, pad in ((8, 64, 512, 64, 3, 1, 0), (64, 64, 128, 64, 4, 2, 1)):
        x, w = image(n, c, h, h), image(c, f, r, r) / (c * r * r) ** 0.5
        name = f"transposed {r}x{r} stride {stride}, {n}x{c}x{h}x{h} -> {f}, f32 as TF32"
        yield (
            name, 0.8, 2 * x.numel() * f * r * r, lambda: ops["conv_transpose2d"](x, w, stride, pad),
            lambda: F.conv_transpose2d(x, w, None, stride, pad), True,
        )  # fmt: skip
    for c, f, stride in ((48, 48, 1), (32, 32, 2)):
        x, b = image(4, c, 32, 64, 64), image(f, 1)[:, 0]
        w = image(c, f, 3, 3, 3) / (27 * c) ** 0.5
        name = f"transposed 3-d 3x3x3 stride {stride}, 4x{c}x32x64x64 -> {f}, f32 as TF32"
        yield (
            name, 0.8, 2 * x.numel() * f * 27, lambda: ops["conv_transpose3d"](x, w, b, stride, 1),
            lambda: F.conv_transpose3d(x, w, b, stride, 1), True,
        )  # fmt: skip


def exact(eager: Callable) -> torch.Tensor:
    """torch's own result with plain f32 products; operands in bf16 are multiplied exactly all the same."""
    with tf32(False):
        return eager()


def measured(name, floor, flops, ours, eager, compiles) -> Row:
    want = exact(eager)
    verdict = compare(on_poison(ours), want, tf32=True)
    if not verdict.ok:
        raise RuntimeError(verdict.problem)
    del want
    functions = {"ours": ours, "eager": eager}
    if compiles:
        torch._dynamo.reset()
        functions["compile"] = torch.compile(eager, dynamic=False)
    times = interleaved(functions, seconds=0.1)
    against = {k: t / times["ours"] for k, t in times.items() if k != "ours"}
    return Row(
        name, floor, min(against.values()), flops / times["ours"] / 1e12, against, verdict.error
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| convolution | floor | ours | TFLOP/s | eager | torch.compile | error |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for case in cases():
        if options.only not in case[0]:
            continue
        try:
            row = measured(*case)
        except Exception as problem:  # one row's failure leaves the others
            print(f"| {case[0]} | {case[1]}x | {str(problem)[-200:]!r} | | | | |", flush=True)
            continue
        rows.append(row)
        shown = [f"{row.against[k]:.2f}x" if k in row.against else "" for k in ("eager", "compile")]
        print(
            f"| {row.name} | {row.floor}x | {row.ratio:.2f}x | {row.tflops:.0f} | {shown[0]} | {shown[1]} "
            f"| {row.error:.0e} |",
            flush=True,
        )
        torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))


if __name__ == "__main__":
    main()
