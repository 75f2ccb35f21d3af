"""Calls of several classes of ops, drawn from a seed: op, dtype, sizes, layouts.

    draw("rows", seed=7, k=3)   # Draw(spec="specs/softmax.op", dtype="bf16", numbers={"D": 3001, ...}, layouts=...)

Sizes are log-uniform. Half of them are odd, and one in ten is at an edge: 1, 2, a power of two or beside one. Three of four
draws take 10 us to 5 ms by the roofline of an H200, the others less. Draw k of a seed is the same everywhere.
The class "attention backward" has the calls of "attention" and times their gradients. "attention small" has calls for a CPU.

Not here: operands and timing (`anyshape_jobs.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import torch

from benchmarks import anyshape_fused as fused
from benchmarks.users.cases import values
from benchmarks.users.problems import PROBLEMS
from tritongen import pipeline
from tritongen.cost import H200, least, op_cost
from tritongen.ir.nodes import BATCH_SIZE, Op
from tritongen.proof.cases import Case, all_sizes, shape_of
from tritongen.shapes import BATCH, BadShape, call_of, meta_arguments

ROOT = Path(__file__).resolve().parent.parent
LEAST_US, MOST_US, SMALL_US = 10.0, 5000.0, 0.5
MOST_BYTES = (
    4 << 30
)  # operands and results: in f64, and with what torch makes between them, 20 times that
LAYOUTS = ("contiguous",) * 6 + ("transposed", "sliced", "offset", "expanded")
# At least; the others ask for one.
DIMS = {"contiguous": 0, "transposed": 2, "channels last": 3, "heads inside": 4}
BACKWARD, SMALL = " backward", " small"  # behind the name of a class
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """An op and the ranges of its sizes; constants take one of some values. `batch`: elements of `...`.

    `rivals`: what torch computes it by, in the names of operands, where the spec's `ref` does not say it; `exact`: in
    f64, where no reference runs on a GPU, as none of integer products does. `spec` may be the text of an op.
    Of what torch has no single word for: `drawn` gives all numbers, `filled` the numbers in operands, `functions` torch's ways
    by name, `truth` the results in f64, and `made` the bytes that the ways need. `group` is its row of a report.
    """

    spec: str
    sizes: dict[str, Range]
    constants: dict[str, tuple[int, ...]] = field(default_factory=dict)
    batch: Range = (1, 1 << 20)
    dtypes: tuple[str, ...] = ("f16", "bf16", "f32")
    rivals: tuple[str, ...] = ()
    exact: str = ""
    layouts: tuple[str, ...] = LAYOUTS
    group: str = ""
    drawn: Callable[[Random], dict[str, Any]] | None = None
    filled: Callable[[dict[str, Any], torch.Generator], dict[str, Any]] | None = None
    functions: Callable[[dict[str, Any]], dict[str, Callable[..., Any]]] | None = None
    truth: Callable[..., Any] | None = None
    made: Callable[[dict[str, Any]], int] | None = None

    @property
    def title(self) -> str:
        return self.group or Path(self.spec).stem


@dataclass(frozen=True, slots=True)
class Draw:
    """One call. `layouts`: of operands by name; the rest lie as torch makes them."""

    kind: str
    seed: int
    k: int
    source: Source
    dtype: str
    numbers: dict[str, Any]
    layouts: dict[str, str]
    least_us: float
    bytes: int

    @property
    def group(self) -> str:
        if self.source.group:
            return self.source.group
        return {"f32": "f32", "f16": "half", "bf16": "half"}.get(self.dtype, "8 bits")


# ---- what is drawn ------------------------------------------------------------------------------
def specs(names: str, sizes: dict[str, Range], **options: Any) -> tuple[Source, ...]:
    return tuple(Source(f"specs/{name}.op", sizes, **options) for name in names.split())


def users(names: str, sizes: dict[str, Range], **options: Any) -> tuple[Source, ...]:
    return tuple(Source(f"benchmarks/users/{name}.op", sizes, **options) for name in names.split())


WIDE, ROW = (1, 1 << 30), (1, 1 << 20)
CHANNELS_LAST = (*LAYOUTS, "channels last", "channels last", "channels last")
IMAGE = {"N": (1, 256), "C": (1, 1024), "F": (1, 1024), "D": (1, 64), "H": (1, 256), "W": (1, 256)}
WINDOW = {"K": (1, 5), "R": (1, 7), "S": (1, 7), "L": (1, 65536)}
STEPS = {"stride": (1, 1, 1, 2, 2, 3), "pad": (0, 0, 1, 1, 2, 3), "dil": (1, 1, 1, 2)}
CONVOLVED = {
    "constants": STEPS | {"groups": (1, 1, 1, 1, 2, 4), "out_pad": (0,)},
    "layouts": CHANNELS_LAST,
}
POOLED = {"constants": {"win": (2, 3, 3, 5), "stride": (1, 2, 2, 3), "pad": (0, 0, 1), "dil": (1,)},
          "layouts": CHANNELS_LAST}  # fmt: skip
LONG, SIDE = (1, 1 << 20), (1, 16384)
PRODUCT = {"M": SIDE, "N": SIDE, "K": SIDE, "B": (1, 256)}
INT8 = ("torch._int_mm(x, w.t()) * sx[:, None] * sw", "(x.to(torch.bfloat16) @ w.t().to(torch.bfloat16)) * sx[:, None] * sw")  # fmt: skip
INT8_EXACT = "(x.double() @ w.double().t()) * sx.double()[:, None] * sw.double()"
HALVES, FULL = ("f16", "bf16"), ("f32",)


def products(dtypes: tuple[str, ...]) -> tuple[Source, ...]:
    named = "matmul linear linear_gelu swiglu_linear bmm"
    return (
        *specs(named, PRODUCT, dtypes=dtypes, batch=SIDE),
        *specs("matmul linear", PRODUCT | {"K": LONG, "M": (1, 1024), "N": (1, 1024)}, dtypes=dtypes, batch=(1, 1024)),
        *users("l1_016_matmul_transposed_a l1_018_matmul_transposed_both", PRODUCT, dtypes=dtypes),
    )  # fmt: skip


def attention(mask: str) -> Source:
    return Source(
        fused.MASKS[mask],
        {},
        dtypes=HALVES,
        layouts=("contiguous", "heads inside", "heads inside", "sliced"),
        group=mask,
        drawn=fused.attention_numbers(mask),
        filled=fused.attention_filled,
        functions=partial(fused.attention_rivals, mask),
        truth=partial(fused.attention_exact, mask),
        made=fused.attention_made,
    )


def loss_head(kind: str) -> Source:
    return Source(
        fused.HEADS[kind],
        {},
        dtypes=HALVES,
        layouts=("contiguous",) * 4 + ("sliced", "transposed"),
        group=kind,
        drawn=fused.loss_numbers,
        filled=fused.loss_filled,
        functions=partial(fused.loss_rivals, kind),
        truth=partial(fused.loss_exact, kind),
        made=fused.loss_made,
    )


CLASSES: dict[str, tuple[Source, ...]] = {
    "attention": tuple(map(attention, fused.MASKS)),
    "loss heads": tuple(map(loss_head, fused.HEADS)),
    "norm backwards": (
        *specs("layer_norm rms_norm", {"D": (8, 1 << 17)}, batch=ROW),
        *specs("group_norm", IMAGE, constants={"groups": (1, 2, 8, 32)}, batch=(1, 65536)),
        *specs("instance_norm", IMAGE, batch=(1, 65536)),
        *specs("batch_norm_train", IMAGE, layouts=CHANNELS_LAST),
    ),
    "pointwise": (
        *specs("relu gelu leaky_relu swiglu vector_add", {"N": WIDE}, batch=WIDE),
        *specs("add2d", {"M": ROW, "N": ROW}),
        *specs("bias_add", IMAGE, layouts=CHANNELS_LAST),
        *users("l1_027_selu l1_088_gelu_tanh", {"N": ROW, "D": ROW}, batch=WIDE),
    ),
    "rows": (
        *specs("softmax log_softmax layer_norm rms_norm logsumexp batch_max", {"D": ROW}, batch=ROW),
        *specs("row_sum row_max row_argmax max_with_index column_sum kl_div row_norm_max", {"N": ROW, "D": ROW}),
        *specs("full_sum mse huber", {}, batch=WIDE),
        *specs("cross_entropy", {"N": ROW, "V": ROW}),
        *specs("middle_mean", {"B": (1, 4096), "M": (1, 65536), "D": (1, 65536)}),
        *specs("batch_norm_train", IMAGE, layouts=CHANNELS_LAST),
        *specs("group_norm", IMAGE, constants={"groups": (1, 2, 8, 32)}, batch=(1, 65536)),
        *specs("instance_norm", IMAGE, batch=(1, 65536)),
    ),
    "products": products(HALVES),
    "products f32": products(FULL),
    "one long side": specs(
        "linear matmul",
        PRODUCT | {"M": (1, 256), "N": (20000, 600000), "K": (64, 1024)},
        dtypes=HALVES,
        batch=(1, 256),
    ),
    "few rows f32": (
        *specs("linear linear_gelu swiglu_linear", PRODUCT, dtypes=FULL, batch=(1, 8)),
        *specs("matmul bmm", PRODUCT | {"M": (1, 8)}, dtypes=FULL),
        *specs("matmul", PRODUCT | {"N": (1, 8), "K": LONG, "M": (1, 1024)}, dtypes=FULL),
    ),
    "products 8 bits": specs("int8_linear", PRODUCT, dtypes=HALVES, rivals=INT8, exact=INT8_EXACT),
    "convolutions": (
        *specs("conv1d conv2d conv3d conv_group_norm_silu", IMAGE | WINDOW, **CONVOLVED),
        *specs("depthwise_conv2d conv_transpose1d conv_transpose2d conv_transpose3d", IMAGE | WINDOW, **CONVOLVED),
    ),
    "one tap": specs(
        "conv1d conv2d",
        IMAGE | WINDOW | {"K": (1, 1), "R": (1, 1), "S": (1, 1)},
        constants={"stride": (1,), "pad": (0,), "dil": (1,), "groups": (1,)},
        layouts=CHANNELS_LAST,
    ),
    "few images": specs(
        "conv1d conv2d conv3d",
        {"N": (1, 4), "C": (64, 2048), "F": (64, 2048), "D": (1, 16), "H": (4, 64), "W": (4, 64)}
        | {"K": (1, 3), "R": (1, 5), "S": (1, 5), "L": (8, 4096)},
        **CONVOLVED,
    ),
    "few columns": (
        *specs("conv1d conv2d conv3d", IMAGE | WINDOW | {"F": (1, 7)}, **CONVOLVED),
        *specs("conv1d conv2d", IMAGE | WINDOW | {"F": (1, 512), "C": (1, 8)}, **CONVOLVED),
        *specs("depthwise_conv2d", IMAGE | WINDOW, **CONVOLVED),
    ),
    "windows": (
        *specs("max_pool1d max_pool2d max_pool3d avg_pool2d", IMAGE | WINDOW, **POOLED),
        *specs("cumsum cumprod exclusive_cumsum reverse_cumsum masked_cumsum", {"D": ROW}, batch=ROW),
        *specs("embedding index_add", {"V": (1, 262144), "D": (1, 8192), "N": (1, 262144)}),
    ),
    "chains": tuple(
        Source(
            f"benchmarks/users/{p.spec}.op",
            {n: (1, max(1, v)) for n, v in values(p.given).items() if isinstance(v, int) and n[0].isupper()},
            {n: (v,) for n, v in values(p.given).items() if isinstance(v, int) and n[0].islower()},
            dtypes=FULL,
            layouts=("contiguous",),
        )
        for p in PROBLEMS
        if p.level == 2 and not p.fills
    ),
}  # fmt: skip
FUSED = ("attention", "attention backward", "loss heads", "loss heads backward", "norm backwards")


def is_backward(kind: str) -> bool:
    return kind.removesuffix(SMALL).endswith((BACKWARD, "backwards"))


def base(kind: str) -> str:
    """The class whose calls these are."""
    return kind.removesuffix(SMALL).removesuffix(BACKWARD)


# ---- drawing ------------------------------------------------------------------------------------
def draw(kind: str, seed: int, k: int) -> Draw:
    """Call k of a class and a seed; RuntimeError where no sizes were found in a thousand tries."""
    sources = CLASSES[base(kind)]
    random = Random(f"{kind.replace(BACKWARD, '')}-{seed}-{k}")
    source = random.choice(sources)
    large = random.random() < 0.75 and not kind.endswith(SMALL)
    most = SMALL_US if kind.endswith(SMALL) else MOST_US
    for attempt in range(1000):
        if attempt % 100 == 99:
            source = random.choice(sources)
        dtype = random.choice(source.dtypes)
        numbers = _numbers(source, random)
        try:
            op, case = call_of(built(source.spec).ops[op_name(source)], numbers, dtype)
            seconds, moved = roofline(source, op, case)
        except (BadShape, ValueError, ZeroDivisionError):
            continue
        if (LEAST_US <= seconds * 1e6 <= most) == large and seconds * 1e6 <= most:
            shown = "i8" if source.rivals == INT8 else dtype
            layouts = _layouts(source, op, case, random)
            return Draw(
                kind, seed, k, source, shown, numbers | {"": dtype}, layouts, seconds * 1e6, moved
            )
    raise RuntimeError(f"{kind} {seed}-{k}: no sizes found")


def _numbers(source: Source, random: Random) -> dict[str, Any]:
    """Those that the op has: sizes, constants, and a batch of one to three dims."""
    if source.drawn is not None:
        return source.drawn(random)
    op, *_ = built(source.spec).ops[op_name(source)]
    said = {str(d) for t in op.tensors for d in t.dims} | {
        d for t in op.tensors for d in _names(t.dims)
    }
    numbers: dict[str, Any] = {
        n: log_uniform(*r, random) for n, r in source.sizes.items() if n in said
    }
    constants = {c.name for c in op.constants}
    numbers |= {n: random.choice(some) for n, some in source.constants.items() if n in constants}
    if any(BATCH_SIZE in t.dims for t in op.tensors):
        whole, shape = log_uniform(*source.batch, random), []
        for _ in range(random.choice((0, 0, 1, 2))):
            shape.append(log_uniform(1, max(1, min(64, whole)), random))
            whole = max(1, whole // shape[-1])
        numbers[BATCH] = (*shape, whole)
    return numbers


def _names(dims: Any) -> set[str]:
    return {name for d in dims for name in str(d).replace("*", " ").split() if name.isidentifier()}


def log_uniform(low: int, high: int, random: Random) -> int:
    """Half of them odd; one in ten 1, 2, a power of two or beside one."""
    n = round(math.exp(random.uniform(math.log(low), math.log(high))))
    if random.random() < 0.1:
        power = 1 << max(1, n.bit_length() - 1)
        return min(high, max(low, random.choice((1, 2, power, power - 1, power + 1))))
    if random.random() < 0.5:
        return min(high, n | 1)
    step = 8 if n >= 64 else 2 if n > 2 else 1
    return min(high, max(low, n // step * step))


def _layouts(source: Source, op: Op, case: Case, random: Random) -> dict[str, str]:
    """Of each operand one that it has enough dims for."""
    known, found = all_sizes(op, case.sizes), {}
    for t in op.tensors:
        rank = len(shape_of(t, known, case.batches))
        found[t.name] = random.choice([how for how in source.layouts if rank >= DIMS.get(how, 1)])
    return found


def roofline(source: Source, op: Op, case: Case) -> tuple[float, int]:
    """Seconds that an H200 takes at least, and bytes; ValueError where the call is too large, or empty."""
    plan = next(p for p in built(source.spec).plans[op.name] if p.op is op)
    cost = op_cost(plan, meta_arguments(op, case))
    if cost.bytes > MOST_BYTES or cost.bytes == 0:
        raise ValueError("too large, or empty")
    return least(cost, H200).seconds, cost.bytes


@cache
def built(spec: str, gradients: bool = False) -> pipeline.Module:
    if spec.startswith("op "):
        return pipeline.build(spec, "drawn.op", gradients=gradients)
    return pipeline.build((ROOT / spec).read_text(encoding="utf-8"), spec, gradients=gradients)


def is_differentiable(drawn: Draw) -> bool:
    name = op_name(drawn.source)
    items = {item.name: item for item in built(drawn.source.spec, gradients=True).items}
    return not items[name].no_gradient


def op_name(source: Source) -> str:
    return list(built(source.spec).ops)[-1]


def call(drawn: Draw) -> tuple[Op, Case]:
    numbers = dict(drawn.numbers)
    dtype = numbers.pop("")
    return call_of(built(drawn.source.spec).ops[op_name(drawn.source)], numbers, dtype)


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same numbers, or for "expanded" a part of them again and again, in another place."""
    if x.dim() == 0 or x.numel() == 0:
        return x
    match layout:
        case "transposed" if x.dim() > 1:
            return x.transpose(-1, -2).contiguous().transpose(-1, -2)
        case "sliced":
            wide = x.new_empty((*x.shape[:-1], x.shape[-1] + 8))[..., : x.shape[-1]]
            return wide.copy_(x)
        case "offset":
            return x.new_empty(x.numel() + 1)[1:].view(x.shape).copy_(x)
        case "expanded":
            return x[:1].expand(x.shape)
        case "heads inside" if x.dim() > 3:
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        case "channels last" if x.dim() > 2:
            return x.movedim(1, -1).contiguous().movedim(-1, 1)
    return x


def text_of(drawn: Draw) -> str:
    """`softmax bf16 D=3001, ... 7x64, x transposed`."""
    numbers = ", ".join(
        (
            f"... {'x'.join(map(str, v))}"
            if n == BATCH
            else f"{n}={v:.4g}" if isinstance(v, float) else f"{n}={v}"
        )
        for n, v in drawn.numbers.items()
        if n
    )
    moved = ", ".join(f"{n} {how}" for n, how in drawn.layouts.items() if how != "contiguous")
    return f"{drawn.source.title} {drawn.dtype} {numbers}{'; ' + moved if moved else ''}"
