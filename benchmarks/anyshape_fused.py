"""What is drawn of attention, loss heads and gradients of norms, and what torch computes each by.

    SOURCES["attention"]                   # for `anyshape_draws.CLASSES`
    attention_rivals(numbers, args)        # {"eager": ..., "cudnn": ..., "flex": ...}, functions of operands by name

Masks are made before a rival is called, as a model would keep them, and are not timed. The exact results are computed in f64,
head by head and rows by rows, and again in the backward: nothing as large as the scores of all heads is kept.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

Function = Callable[..., torch.Tensor]
Numbers = dict[str, Any]
MOST_SCORES = 1 << 30  # that a rival stores whole, and logits: 6 GiB in two types
ROWS = 1024  # of a loss that are exact at once

# ---- attention ----------------------------------------------------------------------------------
ATTENTION = """op attention<T: f16 | bf16>(q: T[B, H, S, E], k: T[B, G, {keys}, E], v: T[B, G, {keys}, F]{more}) -> o: T[B, H, S, F] with R = H // G, H == G * R {{
  s[b, h, i, j] = scale * sum[e](q[b, h, i, e] * k[b, h // R, j, e])
  m[b, h, i]    = max[{bound}](s[b, h, i, j])
  p[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i])
  o[b, h, i, f] = sum[{bound}](T(p[b, h, i, j]) * v[b, h // R, j, f]) / sum[{bound}](p[b, h, i, j])
}}
"""  # fmt: skip
SCALE = ", scale: f32"
MASKS = {
    "none": ATTENTION.format(keys="L", more=SCALE, bound="j"),
    "causal": ATTENTION.format(keys="S", more=SCALE, bound="j <= i"),
    "window": ATTENTION.format(
        keys="S", more=SCALE + ", const width: int = 1024", bound="i - width < j <= i"
    ),
    "prefix": ATTENTION.format(keys="L", more=", len: i32[B]" + SCALE, bound="j < len[b]"),
}


def attention_numbers(mask: str) -> Callable[[Random], Numbers]:
    """Heads that share keys, rows and keys of any count, widths of heads that models have and others."""

    def drawn(random: Random) -> Numbers:
        heads = _log(1, 32, random)
        found: Numbers = {"B": _log(1, 16, random), "G": heads}
        found["H"] = heads * random.choice((1, 1, 1, 2, 4, 8))
        few = mask in ("none", "prefix") and random.random() < 0.3  # queries of a decoding step
        found["S"] = random.randint(1, 16) if few else _log(16, 16384, random)
        if mask in ("none", "prefix"):
            same = not few and random.random() < 0.5
            found["L"] = found["S"] if same else _log(16, 65536, random)
        width = random.choice((64, 64, 128, 128, 32, 80, 96, 8 * random.randint(2, 16)))
        found["E"] = found["F"] = width
        if random.random() < 0.1:
            found["F"] = random.choice((32, 64, 96, 128))
        if mask == "window":
            found["width"] = _log(16, 4096, random)
        return found | {"scale": width**-0.5}

    return drawn


def _log(low: int, high: int, random: Random) -> int:
    """Log-uniform; half of them multiples of 8, where they are larger."""
    n = round(math.exp(random.uniform(math.log(low), math.log(high))))
    return n // 8 * 8 if n >= 16 and random.random() < 0.5 else n


def attention_filled(args: Numbers, random: torch.Generator) -> Numbers:
    """Each sequence has one key or more."""
    if "len" in args:
        keys, count = args["k"].shape[2], args["len"].shape
        args["len"] = torch.randint(
            1, keys + 1, count, generator=random, device=args["k"].device
        ).int()
    return args


def _seen(args: Numbers) -> Callable[..., torch.Tensor] | None:
    """Whether a query meets a key, for FlexAttention; None: all do."""
    if "len" in args:
        return lambda b, h, i, j: j < args["len"][b]
    if "width" in args:
        return lambda b, h, i, j: (j <= i) & (j > i - args["width"])
    return None


def attention_rivals(kind: str, args: Numbers) -> dict[str, Function]:
    q, k = args["q"], args["k"]
    (batch, heads, rows, _), (_, groups, keys, _) = q.shape, k.shape
    causal, shared = kind == "causal", heads // groups
    seen = (lambda b, h, i, j: j <= i) if causal else _seen(args)
    on_gpu = q.device.type == "cuda"
    mask = _mask(seen, batch, rows, keys, q.device) if seen else None
    given = None if causal else mask

    def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, **_: Any):
        return F.scaled_dot_product_attention(
            q, k, v, given, is_causal=causal, scale=scale, enable_gqa=shared > 1
        )

    def by(backend: SDPBackend) -> Function:
        def run(**args: Any) -> torch.Tensor:
            with sdpa_kernel(backend), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # why it can't: then it has no time
                return fused(**args)

        return run

    def repeated(k: torch.Tensor, v: torch.Tensor, **args: Any) -> torch.Tensor:
        """For the one that wants as many heads of keys."""
        k, v = (x.repeat_interleave(shared, 1) if shared > 1 else x for x in (k, v))
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return F.scaled_dot_product_attention(
                args["q"], k, v, given, is_causal=causal, scale=args["scale"]
            )

    def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, **_: Any):
        k, v = (x.repeat_interleave(shared, 1) if shared > 1 else x for x in (k, v))
        s = (q @ k.transpose(-1, -2)).float() * scale
        if mask is not None:
            s = s.masked_fill(~mask, -math.inf)
        return torch.softmax(s, -1).to(v.dtype) @ v

    blocks = None
    if seen is not None:
        lead = batch if "len" in args else None
        blocks = create_block_mask(seen, lead, None, rows, keys, device=q.device.type)

    def flex(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, **_: Any):
        return flex_attention(q, k, v, block_mask=blocks, scale=scale, enable_gqa=shared > 1)

    found = {"eager": eager} if batch * heads * rows * keys <= MOST_SCORES else {}
    if not on_gpu:
        return found | {"sdpa": fused, "flex": flex}
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    named = {name: by(one) for name, one in backends.items()}
    return found | named | {"efficient": repeated, "flex": flex}


def _mask(seen: Any, batch: int, rows: int, keys: int, device: torch.device) -> torch.Tensor:
    b, i, j = (torch.arange(n, device=device) for n in (batch, rows, keys))
    mask = seen(b[:, None, None, None], 0, i[:, None], j)
    return mask if mask.dim() == 4 else mask[None, None]


def attention_exact(
    kind: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    **rest: Any,
) -> torch.Tensor:
    """In the type of the operands, one head after another."""
    (batch, heads, rows, _), (_, groups, keys, _) = q.shape, k.shape
    seen = (lambda b, h, i, j: j <= i) if kind == "causal" else _seen(rest)
    i, j = torch.arange(rows, device=q.device)[:, None], torch.arange(keys, device=q.device)

    def head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, b: int) -> torch.Tensor:
        s = q @ k.t() * scale
        if seen is not None:
            s = s.masked_fill(~seen(b, 0, i, j), -math.inf)
        return torch.softmax(s, -1) @ v

    every = [
        checkpoint(
            head, q[b, h], k[b, h * groups // heads], v[b, h * groups // heads], b, use_reentrant=False
        )
        for b in range(batch)
        for h in range(heads)
    ]  # fmt: skip
    return torch.stack(every).view(batch, heads, rows, v.shape[-1])


def attention_made(numbers: Numbers) -> int:
    """Bytes of scores that a rival stores, and of a mask."""
    keys = numbers.get("L", numbers["S"])
    scores = numbers["B"] * numbers["H"] * numbers["S"] * keys
    return 14 * scores * (scores <= MOST_SCORES) + 9 * numbers["B"] * numbers["S"] * keys


# ---- loss heads ---------------------------------------------------------------------------------
LOSS = """op {name}<T: f16 | bf16>(x: T[M, K], w: T[V, K], target: i64[M]{more}) -> loss: f32[M] {{
  z[m, v] = {logit}
  a[m]    = max[v](z[m, v])
  lse[m]  = a[m] + log(sum[v](exp(z[m, v] - a[m])))
  hit[m]  = sum[v](where(v == target[m], z[m, v], 0))
  loss[m] = {loss}
}}
"""
PRODUCT = "sum[k](x[m, k] * w[v, k])"
HEADS = {
    "ignore": LOSS.format(
        name="ignoring_loss",
        more=", const ignore: int = -100",
        logit=PRODUCT,
        loss="where(target[m] == ignore, 0, lse[m] - hit[m])",
    ),
    "cap": LOSS.format(
        name="capped_loss",
        more="",
        logit=f"30.0 * tanh({PRODUCT} / 30.0)",
        loss="lse[m] - hit[m]",
    ),
    "z": LOSS.format(
        name="z_loss", more="", logit=PRODUCT, loss="lse[m] - hit[m] + 1e-4 * lse[m] ** 2"
    ),
    "smooth": LOSS.format(
        name="smooth_loss",
        more="",
        logit=PRODUCT,
        loss="lse[m] - 0.9 * hit[m] - 0.1 * mean[v](z[m, v])",
    ),
}


def loss_numbers(random: Random) -> Numbers:
    rows, words = _log(16, 16384, random), _log(1000, 262144, random)
    return {"M": min(rows, MOST_SCORES // words), "K": _log(64, 8192, random), "V": words}


def loss_filled(args: Numbers, random: torch.Generator) -> Numbers:
    """Logits of a size that does not depend on K; one target in ten is ignored, where one may be."""
    rows, (vocabulary, width) = args["target"].shape, args["w"].shape
    device = args["w"].device
    target = torch.randint(0, vocabulary, rows, generator=random, device=device)
    if "ignore" in args:
        target[torch.rand(rows, generator=random, device=device) < 0.1] = args["ignore"]
    return args | {"w": args["w"] * width**-0.5, "target": target}


def _loss(kind: str, z: torch.Tensor, target: torch.Tensor, ignore: int = -100) -> torch.Tensor:
    if kind == "cap":
        z = 30.0 * torch.tanh(z / 30.0)
    smoothing = 0.1 if kind == "smooth" else 0.0
    loss = F.cross_entropy(
        z, target, reduction="none", ignore_index=ignore, label_smoothing=smoothing
    )
    return loss + 1e-4 * torch.logsumexp(z, -1) ** 2 if kind == "z" else loss


def loss_rivals(kind: str, args: Numbers) -> dict[str, Function]:
    def eager(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor, ignore: int = -100, **_: Any):
        return _loss(kind, F.linear(x, w).float(), target, ignore)

    return {"eager": eager}


def loss_exact(
    kind: str,
    x: torch.Tensor,
    w: torch.Tensor,
    target: torch.Tensor,
    ignore: int = -100,
    **_: Any,
) -> torch.Tensor:
    """In the type of the operands, some rows after others."""

    def rows(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return _loss(kind, F.linear(x, w), target, ignore)

    pairs = zip(x.split(ROWS), target.split(ROWS), strict=True)
    return torch.cat([checkpoint(rows, a, b, use_reentrant=False) for a, b in pairs])


def loss_made(numbers: Numbers) -> int:
    return 24 * numbers["M"] * numbers["V"] + 24 * numbers["V"] * numbers["K"]
