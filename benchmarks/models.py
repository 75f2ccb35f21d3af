"""The models of train.py, each one class over torch's layers or over tritongen's, and data for them to learn.

    make("gpt", TORCH, sizes), make("gpt", ours(), sizes)      # of one seed: the same weights by the same names
    loss = model(*batch)

The attention of `ours()` is the op ATTENTION below, since specs/attention.op takes only half types and no mask. Its
gradient is derived. The GPT adds its residual stream by torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tritongen
import tritongen.nn

# What `exp` is shifted by cancels, so that nothing flows back through it.
ATTENTION = """
op attention<T: float>(q: T[B, S, H, E], k: T[B, S, H, E], v: T[B, S, H, E], scale: f32) -> o: T[B, S, H, E] {
  s[b, h, i, j] = scale * sum[e](q[b, i, h, e] * k[b, j, h, e])
  m[b, h, i]    = detach(max[j <= i](s[b, h, i, j]))
  p[b, h, i, j] = exp(s[b, h, i, j] - m[b, h, i])
  o[b, i, h, e] = sum[j <= i](T(p[b, h, i, j]) * v[b, j, h, e]) / sum[j <= i](p[b, h, i, j])
  autocast low
}"""
MAX_POOL = """
op max_pool<T: float>(x: T[N, C, H, W], const win: int = 2) -> y: T[N, C, P, Q]
    with P = (H + 2 * (win // 3) - win) // 2 + 1, Q = (W + 2 * (win // 3) - win) // 2 + 1, win >= 2 {
  y = max_pool2d(x, win, 2, win // 3)
}"""
MEAN_POOL = "op mean_pool<T: float>(x: T[N, C, ...]) -> y: T[N, C] { y = global_avg_pool(x) }"
Batch = tuple[Tensor, Tensor]  # what goes in, and what is right


@dataclass(frozen=True)
class Parts:
    """What a model is made of."""

    layers: Any
    gelu_linear: Callable[[int, int], nn.Module]
    norm_relu: Callable[[int], nn.Module]  # of images
    norm_add_relu: Callable[[int], nn.Module]  # of images and what is added to them
    # Causal, of [batch, length, heads, head size]: q, k and v are slices of one product.
    attention: Callable[[Tensor, Tensor, Tensor], Tensor]
    # Of 2 x 2, or of 3 x 3 with padding, at each second place.
    max_pool: Callable[[Tensor, int], Tensor]
    mean_pool: Callable[[Tensor], Tensor]


class GeluLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(super().forward(x))


class NormRelu(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(super().forward(x))


class NormAddRelu(nn.BatchNorm2d):
    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return F.relu(super().forward(x) + residual)


TORCH = Parts(
    nn,
    GeluLinear,
    NormRelu,
    NormAddRelu,
    lambda q, k, v: F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
    ).transpose(1, 2),
    lambda x, win: F.max_pool2d(x, win, 2, win // 3),
    lambda x: x.mean((2, 3)),
)


@cache
def ours() -> Parts:
    attention = tritongen.compile_op(ATTENTION)
    return Parts(
        tritongen.nn,
        lambda width, hidden: tritongen.nn.Linear(width, hidden, activation="gelu"),
        lambda width: tritongen.nn.BatchNorm2d(width, activation="relu"),
        lambda width: tritongen.nn.BatchNorm2d(width, activation="relu"),
        lambda q, k, v: attention(q, k, v, q.shape[-1] ** -0.5),
        tritongen.compile_op(MAX_POOL),
        tritongen.compile_op(MEAN_POOL),
    )


# ---- GPT ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Text:
    """Sizes of a GPT and of its batches."""

    blocks: int = 6
    width: int = 512
    heads: int = 8
    vocabulary: int = 512
    length: int = 512
    batch: int = 16
    rate: float = 6e-4

    unit = "tokens"

    @property
    def items(self) -> int:
        return self.batch * self.length


class Block(nn.Module):
    def __init__(self, parts: Parts, width: int, heads: int):
        super().__init__()
        self.heads, self.attention = heads, parts.attention
        self.norm1 = parts.layers.LayerNorm(width)
        self.qkv = parts.layers.Linear(width, 3 * width)
        self.out = parts.layers.Linear(width, width)
        self.norm2 = parts.layers.LayerNorm(width)
        self.up = parts.gelu_linear(width, 4 * width)
        self.down = parts.layers.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, s, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(n, s, 3, self.heads, width // self.heads)
        o = self.attention(*qkv.unbind(2))
        x = x + self.out(o.reshape(n, s, width))
        return x + self.down(self.up(self.norm2(x)))


class GPT(nn.Module):
    """The loss of the next tokens."""

    def __init__(self, parts: Parts, sizes: Text):
        super().__init__()
        layers, width = parts.layers, sizes.width
        self.tokens = layers.Embedding(sizes.vocabulary, width)
        self.places = layers.Embedding(sizes.length, width)
        self.blocks = nn.ModuleList(
            Block(parts, width, sizes.heads) for _ in range(sizes.blocks)
        )  # fmt: skip
        self.norm = layers.LayerNorm(width)
        self.head = layers.Linear(width, sizes.vocabulary, bias=False)
        self.loss = layers.CrossEntropyLoss()

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.loss(self.head(self.norm(h)).flatten(0, 1), target.flatten())


def text_batches(sizes: Text, count: int, seed: int, device: torch.device) -> list[Batch]:
    """Of a Markov chain, the same for every seed: 4 tokens may follow each, at 1.21 nats of entropy."""
    chain = torch.Generator().manual_seed(0)
    follow = torch.randint(sizes.vocabulary, (sizes.vocabulary, 4), generator=chain)
    g = torch.Generator().manual_seed(seed)
    rows = count * sizes.batch
    odds = torch.tensor([0.5, 0.25, 0.125, 0.125])
    turns = torch.multinomial(odds, rows * sizes.length, replacement=True, generator=g)
    tokens = [torch.randint(sizes.vocabulary, (rows,), generator=g)]
    for turn in turns.view(sizes.length, rows):
        tokens.append(follow[tokens[-1], turn])
    found = torch.stack(tokens, 1).view(count, sizes.batch, -1).to(device)
    return [(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()) for batch in found]


# ---- ResNet -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Images:
    """Sizes of a ResNet and of its batches. With `wide`, blocks have three convolutions and 4 times their width, as in ResNet-50.

    `stem`: the first convolution's kernel; 7 has a stride of 2 and a pool of 3 x 3 behind it.
    """

    widths: tuple[int, ...] = (64, 128, 256)
    depths: tuple[int, ...] = (2, 2, 2)
    wide: bool = False
    stem: int = 3
    channels_last: bool = False
    classes: int = 10
    side: int = 32
    noise: float = 2.0
    batch: int = 256
    rate: float = 1e-3

    unit = "images"

    @property
    def items(self) -> int:
        return self.batch


class Residual(nn.Module):
    """Convolutions and what goes around them: 3 x 3 twice, or 1 x 1, 3 x 3 and 1 x 1."""

    def __init__(self, parts: Parts, before: int, width: int, stride: int, wide: bool):
        super().__init__()
        layers, out = parts.layers, 4 * width if wide else width
        forms = [(width, 3, stride), (width, 3, 1)]
        if wide:
            forms = [(width, 1, 1), (width, 3, stride), (out, 1, 1)]
        self.convs, self.norms, last = nn.ModuleList(), nn.ModuleList(), before
        for channels, kernel, step in forms:
            conv = layers.Conv2d(last, channels, kernel, step, kernel // 2, bias=False)
            self.convs.append(conv)
            last_one = len(self.norms) + 1 == len(forms)
            norm = parts.norm_add_relu if last_one else parts.norm_relu
            self.norms.append(norm(channels))
            last = channels
        self.beside = nn.Sequential()
        if stride > 1 or before != out:
            beside = layers.Conv2d(before, out, 1, stride, bias=False)
            self.beside = nn.Sequential(beside, layers.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y, (*convs, conv), (*norms, norm) = x, self.convs, self.norms
        for above, own in zip(convs, norms, strict=True):
            y = own(above(y))
        return norm(conv(y), self.beside(x))


class ResNet(nn.Module):
    """The loss of the images' classes."""

    def __init__(self, parts: Parts, sizes: Images):
        super().__init__()
        layers, first = parts.layers, sizes.widths[0]
        self.max_pool, self.mean_pool = parts.max_pool, parts.mean_pool
        stride = 2 if sizes.stem == 7 else 1
        self.stem = layers.Conv2d(3, first, sizes.stem, stride, sizes.stem // 2, bias=False)
        self.pool = 1 + stride
        self.norm = parts.norm_relu(first)
        blocks, before = [], first
        for width, depth in zip(sizes.widths, sizes.depths, strict=True):
            for k in range(depth):
                stride = 2 if k == 0 and width != first else 1
                blocks.append(Residual(parts, before, width, stride, sizes.wide))
                before = 4 * width if sizes.wide else width
        self.blocks = nn.Sequential(*blocks)
        self.head = layers.Linear(before, sizes.classes)
        self.loss = layers.CrossEntropyLoss()

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        h = self.max_pool(self.norm(self.stem(x)), self.pool)
        return self.loss(self.head(self.mean_pool(self.blocks(h))), target)


def image_batches(sizes: Images, count: int, seed: int, device: torch.device) -> list[Batch]:
    """Each class is a picture, the same for every seed, moved about and under noise; no image comes twice."""
    pictures = torch.randn(
        sizes.classes, 3, sizes.side, sizes.side, generator=torch.Generator().manual_seed(0)
    )
    g, noise = torch.Generator().manual_seed(seed), torch.Generator(device).manual_seed(seed)
    found = []
    for _ in range(count):
        target = torch.randint(sizes.classes, (sizes.batch,), generator=g)
        moves = torch.randint(sizes.side, (sizes.batch, 2), generator=g).tolist()
        moved = [p.roll(by, (1, 2)) for p, by in zip(pictures[target], moves, strict=True)]
        x = torch.stack(moved).to(device)
        x += sizes.noise * torch.randn(x.shape, generator=noise, device=device)
        x = x.contiguous(memory_format=torch.channels_last) if sizes.channels_last else x
        found.append((x, target.to(device)))
    return found


# ---- both ---------------------------------------------------------------------------------------
SIZES = {
    "gpt": Text(),
    "resnet": Images(),
    "gpt-large": Text(24, 2048, 16, 8192, 2048, 8, 1e-4),
    "resnet50": Images(
        (64, 128, 256, 512), (3, 4, 6, 3), True, 7, True, classes=1000, side=224, batch=128
    ),
}
TINY = {
    "gpt": Text(blocks=2, width=32, heads=2, vocabulary=16, length=12, batch=2, rate=1e-2),
    "resnet": Images((8, 16), (1, 1), classes=3, side=8, noise=0.2, batch=12, rate=1e-2),
    "gpt-large": Text(blocks=3, width=32, heads=2, vocabulary=16, length=12, batch=2, rate=1e-2),
    "resnet50": Images(
        (8, 16), (1, 1), True, 7, True, classes=3, side=32, noise=0.2, batch=12, rate=1e-2
    ),
}


def make(model: str, parts: Parts, sizes: Any, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    if isinstance(sizes, Text):
        return GPT(parts, sizes)
    made = ResNet(parts, sizes)
    return made.to(memory_format=torch.channels_last) if sizes.channels_last else made


def batches(model: str, sizes: Any, count: int, seed: int, device: torch.device) -> list[Batch]:
    made = text_batches if isinstance(sizes, Text) else image_batches
    return made(sizes, count, seed, device)
