"""Attention, loss heads and gradients of norms: kernels that fuse across a product or a row, in one table of one run.

    python benchmarks/fused.py [--json FILE] [--only PATTERN] [--seconds N]

Each result, and each gradient, is compared with f64 first: of some heads or rows, on the same rounded operands. Times are medians of
CUDA events, with the L2 cache flushed between calls (`triton.testing.do_bench`). Default schedules, fresh random data. TFLOP/s of
attention count the products of the scores that no mask excludes, and 2.5 times as many for a backward. A floor is what was asked of an
H100, where it is in this table.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.testing import do_bench

GENERATED = Path(__file__).resolve().parent.parent / "generated"
ERROR = 0.01  # relative, of bf16 results and gradients
HEADS = 3  # that are compared of each call
Call = Callable[[], torch.Tensor]


@dataclass
class Work:
    """One row of the table.

    amount: floating-point operations or bytes of one call, by the unit (TFLOP/s or GB/s); 0 where the unit is ms or us.
    operands: those that get gradients, if `backward`. exact: results or gradients in f64, and where ours has them.
    """

    name: str
    unit: str
    floor: float
    amount: float
    ours: Call
    rivals: dict[str, Call]
    operands: tuple[torch.Tensor, ...] = ()
    backward: bool = False
    whole: bool = False  # a forward and its backward
    exact: Callable[[torch.Tensor, tuple], list[tuple[torch.Tensor, torch.Tensor]]] | None = None


@dataclass
class Row:
    name: str
    unit: str
    floor: float
    ours: float
    rivals: dict[str, float] = field(default_factory=dict)
    error: float = math.nan


def op(name: str) -> Callable[..., torch.Tensor]:
    """A function of `generated/`."""
    spec = importlib.util.spec_from_file_location(f"generated_{name}", GENERATED / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def randn(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)


def relative(ours: torch.Tensor, exact: torch.Tensor) -> float:
    return ((ours.double() - exact).norm() / exact.norm()).item()


# ---- attention ----------------------------------------------------------------------------------
SHAPES = (  # batch, heads of q, heads of k, length, head size, and floors: full and causal, forward and backward
    (4, 32, 32, 4096, 128, (520, 490, 395, 365)),
    (4, 32, 32, 4096, 64, (440, 390, 345, 315)),
    (1, 32, 32, 16384, 128, (530, 540, 405, 370)),
    (2, 64, 8, 4096, 128, (530, 475, 0, 0)),
    (4, 32, 32, 4096, 96, (450, 400, 0, 0)),
    (4, 32, 32, 4096, 80, (400, 370, 0, 0)),
)


def head_by_head(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Callable[[int], torch.Tensor | None]
):
    """A check of some heads of attention, and of their gradients where ours are given. `mask`: of a batch, True where a score counts."""
    chosen = [(b, h) for b in range(q.shape[0]) for h in range(k.shape[1])]
    chosen = [chosen[i] for i in torch.randperm(len(chosen))[:HEADS].tolist()]
    share = q.shape[1] // k.shape[1]

    def check(o: torch.Tensor, gradients: tuple) -> list[tuple[torch.Tensor, torch.Tensor]]:
        pairs = []
        for b, h in chosen if gradients or q.shape[2] < 10_000 else chosen[:1]:
            kd, vd = (x[b, h].detach().double().requires_grad_() for x in (k, v))
            for g in range(h * share, h * share + (1 if not gradients else share)):
                qd = q[b, g].detach().double().requires_grad_()
                s = qd @ kd.mT / math.sqrt(q.shape[-1])
                kept = mask(b)
                s = s if kept is None else s.masked_fill(~kept, -math.inf)
                y = s.softmax(-1) @ vd
                if not gradients:
                    pairs.append((o[b, g], y.detach()))
                    continue
                dy, dq = gradients[0], gradients[1]
                y.backward(dy[b, g].double())
                pairs.append((dq[b, g], qd.grad))
            if gradients:
                pairs += [(gradients[2][b, h], kd.grad), (gradients[3][b, h], vd.grad)]
        return pairs

    return check


def attention() -> Iterator[Work]:
    full, causal = op("attention"), op("causal_attention")
    for b, h, g, s, d, floors in SHAPES:
        q, k, v = randn(b, h, s, d, grad=True), *(randn(b, g, s, d, grad=True) for _ in "kv")
        scale = d**-0.5
        triangle = torch.ones(s, s, device="cuda", dtype=torch.bool).tril()
        for masked in (False, True):
            if not masked and g < h:
                continue  # attention.op has a key for each query head
            ours = causal if masked else full
            flops = 4 * b * h * d * (s * (s + 1) / 2 if masked else s * s)
            name = f"{b} x {h}{'' if g == h else f' over {g}'} x {s} x {d}{', causal' * masked}"

            def sdpa(q=q, k=k, v=v, masked=masked):
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    return F.scaled_dot_product_attention(
                        q, k, v, is_causal=masked, enable_gqa=q.shape[1] != k.shape[1]
                    )

            exact = head_by_head(q, k, v, lambda b, m=masked, t=triangle: t if m else None)
            mine = lambda f=ours, q=q, k=k, v=v, scale=scale: f(q, k, v, scale)  # noqa: E731
            for backward in (False, True):
                floor = floors[masked + 2 * backward]
                what = "attention backward" if backward else "attention"
                yield Work(
                    f"{what} {name}", "TFLOP/s", floor, flops * (2.5 if backward else 1), mine, {"cuDNN": sdpa},
                    (q, k, v), backward, exact=exact,
                )  # fmt: skip


def masks() -> Iterator[Work]:
    s, d = 16384, 128
    q, k, v = (randn(1, 32, s, d) for _ in "qkv")
    i = torch.arange(s, device="cuda")
    window, document = op("window_attention"), op("document_attention")
    inside = (i[None] <= i[:, None]) & (i[None] > i[:, None] - 1024)
    ours = lambda: window(q, k, v, d**-0.5, 1024)  # noqa: E731
    exact = head_by_head(q, k, v, lambda b: inside)
    yield Work("window of 1024 in 16384, 32 x 128", "ms", 0.72, 0, ours, {}, exact=exact)
    ends = torch.randperm(s - 1, device="cuda")[:15].sort().values + 1
    starts = torch.cat([torch.zeros(1, device="cuda", dtype=torch.int64), ends])
    begin = starts[torch.searchsorted(ends, i, right=True)].to(torch.int32)[None].contiguous()
    kept = (i[None] <= i[:, None]) & (i[None] >= begin[0, :, None])
    ours = lambda: document(q, k, v, begin, d**-0.5)  # noqa: E731
    exact = head_by_head(q, k, v, lambda b: kept)
    yield Work("16 documents in 16384, causal, 32 x 128", "ms", 0, 0, ours, {}, exact=exact)


def decode() -> Iterator[Work]:
    b, h, g, keys, d = 16, 64, 8, 32768, 128
    for queries in (1, 8):
        q, k, v = randn(b, h, queries, d), randn(b, g, keys, d), randn(b, g, keys, d)
        length = torch.full((b,), keys, device="cuda", dtype=torch.int32)
        f = op("decode_attention")
        ours = lambda f=f, q=q, k=k, v=v, n=length: f(q, k, v, n, d**-0.5)  # noqa: E731

        def sdpa(q=q, k=k, v=v):
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        exact = head_by_head(q, k, v, lambda b: None)
        moved = 4 * b * g * keys * d
        name = f"decode: {queries} queries, {b} x {h} over {g}, {keys} keys"
        yield Work(
            name, "GB/s", 2750 if queries == 1 else 0, moved, ours, {"cuDNN": sdpa}, exact=exact
        )


# ---- norms and losses ---------------------------------------------------------------------------
NORMS = (  # rows, columns, floors: rms_norm and layer_norm
    (16384, 4096, 2550, 2500),
    (8192, 8192, 2600, 2550),
    (131072, 1024, 2600, 2600),
    (4096, 16384, 2050, 1450),
)


def gradients_of(f: Callable[..., torch.Tensor], *operands: torch.Tensor):
    """A check of all gradients of f, in f64, by blocks of rows of the first operand. Those of the others are added up."""

    def check(y: torch.Tensor, gradients: tuple) -> list[tuple[torch.Tensor, torch.Tensor]]:
        x, *others = operands
        dy, *given = gradients
        wide = [w.detach().double().requires_grad_() for w in others]
        pairs = []
        for rows in torch.arange(len(x), device=x.device).split(4096):
            part = x[rows].detach().double().requires_grad_()
            f(part, *wide).backward(dy[rows].double())
            pairs.append((given[0][rows], part.grad))
        return [*pairs, *((g, w.grad) for g, w in zip(given[1:], wide, strict=True))]

    return check


def norms() -> Iterator[Work]:
    for rows, cols, *floors in NORMS:
        x, w, b = randn(rows, cols, grad=True), randn(cols, grad=True), randn(cols, grad=True)
        moved = 6 * rows * cols
        rms, layer = op("rms_norm"), op("layer_norm")
        eager_rms = lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6)  # noqa: E731
        eager_layer = lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b)  # noqa: E731
        for name, floor, ours, eager, given in (
            ("rms_norm", floors[0], rms, eager_rms, (x, w)),
            ("layer_norm", floors[1], layer, eager_layer, (x, w, b)),
        ):
            yield Work(
                f"{name} backward {rows} x {cols}", "GB/s", floor, moved, lambda f=ours, g=given: f(*g),
                {"eager": lambda f=eager, g=given: f(*g)}, given, True, exact=gradients_of(eager, *given),
            )  # fmt: skip
        del x
    x = randn(8192, 8192, grad=True)
    softmax = op("softmax")
    yield Work(
        "softmax backward 8192 x 8192", "ms", 0.140, 0, lambda: softmax(x), {"eager": lambda: torch.softmax(x, -1)},
        (x,), True, exact=gradients_of(lambda x: torch.softmax(x, -1), x),
    )  # fmt: skip


def losses() -> Iterator[Work]:
    m, k, v = 2048, 4096, 128256
    x, w = randn(m, k, grad=True), (randn(v, k) / 64).requires_grad_()
    target = torch.randint(v, (m,), device="cuda")
    head, loss = op("linear_cross_entropy"), op("cross_entropy")

    def eager(x, w):
        return F.cross_entropy((x @ w.mT).float(), target, reduction="none")

    def exact(y: torch.Tensor, gradients: tuple) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """In f32, whose products are exact enough for bf16."""
        wide = [t.detach().float().requires_grad_() for t in (x, w)]
        z = F.cross_entropy(wide[0] @ wide[1].mT, target, reduction="none")
        if not gradients:
            return [(y, z.detach().double())]
        z.backward(gradients[0].float())
        return [
            (g, t.grad.double())
            for g, t in zip(gradients[1:], wide, strict=True)
            if t.grad is not None
        ]

    ours, theirs = lambda: head(x, w, target), lambda: eager(x, w)
    name = f"linear + cross entropy {m} x {k} x {v}"
    yield Work(f"{name}, forward", "ms", 2.95, 0, ours, {"eager": theirs}, exact=exact)
    yield Work(
        f"{name}, forward and backward",
        "ms",
        12.6,
        0,
        ours,
        {"eager": theirs},
        (x, w),
        True,
        True,
        exact,
    )
    rows = 4096
    z, goal = randn(rows, v, grad=True), torch.randint(v, (rows,), device="cuda")

    def check(y: torch.Tensor, gradients: tuple) -> list[tuple[torch.Tensor, torch.Tensor]]:
        some = torch.randperm(rows, device="cuda")[:256]
        part = z[some].detach().double().requires_grad_()
        F.cross_entropy(part, goal[some], reduction="none").backward(gradients[0][some].double())
        return [(gradients[1][some], part.grad)]

    yield Work(
        f"cross entropy {rows} x {v}, forward and backward", "ms", 1.07, 0, lambda: loss(z, goal),
        {"eager": lambda: F.cross_entropy(z, goal, reduction="none")}, (z,), True, True, check,
    )  # fmt: skip


# ---- the table ----------------------------------------------------------------------------------
def measured(work: Work) -> Row:
    """Compared, then timed, ours and each rival in turn."""
    y = work.ours()
    dy = torch.randn_like(y) if work.backward else None
    given = (dy, *torch.autograd.grad(y, work.operands, dy)) if dy is not None else ()
    assert work.exact is not None
    error = max(relative(mine.detach(), exact) for mine, exact in work.exact(y.detach(), given))
    del y, given
    torch.cuda.empty_cache()
    if not error <= ERROR:
        return Row(work.name, work.unit, work.floor, 0.0, {}, error)

    def timed(f: Call) -> float:
        if not work.backward:
            with torch.no_grad():
                return do_bench(f, warmup=20, rep=80, return_mode="median")
        if work.whole:
            both = lambda: torch.autograd.grad(f(), work.operands, dy)  # noqa: E731
            return do_bench(both, warmup=20, rep=80, return_mode="median")
        y = f()
        again = lambda: torch.autograd.grad(y, work.operands, dy, retain_graph=True)  # noqa: E731
        return do_bench(again, warmup=20, rep=80, return_mode="median")

    def rate(ms: float) -> float:
        return {"TFLOP/s": work.amount / ms / 1e9, "GB/s": work.amount / ms / 1e6}.get(
            work.unit, ms
        )

    ours = rate(timed(work.ours))
    return Row(
        work.name,
        work.unit,
        work.floor,
        ours,
        {n: rate(timed(f)) for n, f in work.rivals.items()},
        error,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="a pattern that the row's name holds")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no row after them")
    options = parser.parse_args()
    torch.manual_seed(time.time_ns() % 2**31)
    card = torch.cuda.get_device_name()
    versions = f"{card}, torch {torch.__version__}, triton {triton.__version__}"
    print(versions, flush=True)
    start, rows = time.monotonic(), []
    for work in (w for part in (attention, masks, decode, norms, losses) for w in part()):
        if not re.search(options.only, work.name) or time.monotonic() - start > options.seconds:
            continue
        try:
            row = measured(work)
        except Exception as problem:  # one row that fails must not hide the others
            row = Row(work.name, f"{type(problem).__name__}: {str(problem)[:200]}", work.floor, 0.0)
        rows.append(row)
        rivals = ", ".join(f"{n} {r:.4g}" for n, r in row.rivals.items())
        floor = f", floor {row.floor}" if row.floor else ""
        print(
            f"{row.name}: {row.ours:.4g} {row.unit}, {rivals}{floor}, error {row.error:.1e}",
            flush=True,
        )
    if options.json:
        told = {"versions": versions, "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(told, indent=1))
    return int(any(not r.error <= ERROR for r in rows))


if __name__ == "__main__":
    sys.exit(main())
