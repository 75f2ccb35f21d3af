"""`...` anywhere, over operands of different rank: run by `test_batch.py`, with TRITON_INTERPRET=1.

Signatures and shapes are drawn; what is right is said by torch's own broadcasting, on operands whose named
dims were moved to the front. Nothing of the compiler is asked what it means.
"""

from __future__ import annotations

from math import prod
from random import Random

import pytest
import torch

from tritongen.ir import interp
from tritongen.pipeline import build
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text

SIZES = {"A": 3, "B": 4}
FOLDS = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "max": lambda x: x.amax(-1),
    "prod": lambda x: x.prod(-1),
    "argmax": lambda x: x.argmax(-1).double(),
}


def draw_dims(random: Random) -> list[str]:
    """Named dims on either side of `...`."""
    named = random.sample(sorted(SIZES), random.randrange(3))
    at = random.randrange(len(named) + 1)
    return [*named[:at], "...", *named[at:]]


def draw_batch(random: Random, whole: tuple[int, ...]) -> tuple[int, ...]:
    shape = tuple(1 if random.random() < 0.3 else n for n in whole)
    return shape[random.randrange(len(shape) + 1) :]


def read(name: str, dims: list[str]) -> str:
    return f"{name}[{', '.join(d.lower() for d in dims)}]" if dims else name


def front(t: torch.Tensor, dims: list[str]) -> torch.Tensor:
    """The operand as [A, B, *batch], of size 1 where it has not the dim."""
    at = dims.index("...")
    order = {d: k if k < at else k - len(dims) + t.dim() for k, d in enumerate(dims) if d != "..."}
    t = t.permute([*order.values(), *(k for k in range(t.dim()) if k not in order.values())])
    own = {d: k for k, d in enumerate(order)}
    t = t.permute([*(own[d] for d in sorted(own)), *range(len(own), t.dim())])
    return t.reshape(*(SIZES[d] if d in own else 1 for d in SIZES), *t.shape[len(own) :])


def back(t: torch.Tensor, dims: list[str], batch: tuple[int, ...]) -> torch.Tensor:
    """[A, B, *batch] as an output has it."""
    at = dims.index("...") if "..." in dims else len(dims)
    batch = batch if "..." in dims else ()
    t = t.reshape(*t.shape[:2], *(1,) * (2 + len(batch) - t.dim()), *t.shape[2:])
    t = t.expand(*(SIZES[d] if d in dims else 1 for d in SIZES), *batch)
    t = t.reshape([*(SIZES[d] for d in SIZES if d in dims), *batch])
    named = sorted(d for d in dims if d != "...")
    k = len(named)
    order = [named.index(d) for d in dims[:at]] + [*range(k, t.dim())]
    return t.permute([*order, *(named.index(d) for d in dims[at + 1 :])])


def held(text: str, x: torch.Tensor, z: torch.Tensor, want: dict[str, torch.Tensor]) -> None:
    """Every variant in the interpreter, the reference and the oracle."""
    built = build(text, "f.op")
    module = load_text("f", built.raw)
    args = {"x": x, "z": z}
    answers = {"reference": module.f_reference(x, z)}
    answers["oracle"] = tuple(interp.run(built.ops["f"][0], args).values())
    for way in ways(built.plans["f"][0]):
        with forced(module, built.plans["f"][0], way, small=True):
            answers[way.name] = module.f(x, z)
    for who, got in answers.items():
        for (name, right), value in zip(want.items(), got, strict=True):
            assert value.shape == right.shape, (who, name, value.shape, right.shape, text)
            close = torch.allclose(value.double(), right.double(), 1e-5, 1e-5)
            assert close, (who, name, x.shape, z.shape, text)


@pytest.mark.parametrize("seed", range(16))
def test_named_dims_stay_beside_what_broadcasts(seed):
    random = Random(seed)
    torch.manual_seed(seed)
    whole = random.choice([(2,), (3,), (2, 3), (2, 1, 3), (3, 5)])
    dims = {name: draw_dims(random) for name in "xz"}
    batches = {name: draw_batch(random, whole) for name in "xz"}
    operands = {}
    for name in "xz":
        at = dims[name].index("...")
        before, after = dims[name][:at], dims[name][at + 1 :]
        shape = [*(SIZES[d] for d in before), *batches[name], *(SIZES[d] for d in after)]
        operands[name] = torch.randn(shape) * 0.5
    named = sorted({d for own in dims.values() for d in own} - {"..."})
    random.shuffle(named)
    out = list(named)
    out.insert(random.randrange(len(out) + 1), "...")
    own = [d for d in dims["x"] if d != "..."]
    fold, other = random.choice(sorted(FOLDS)), random.choice(["sum", "mean", "max"])
    both = [d for d in out if d != "..."]
    text = f"""
op f<T: float>(x: {read("T", dims["x"]).upper()}, z: {read("T", dims["z"]).upper()})
    -> (y: {read("T", out).upper()}, s: {"i64" if fold == "argmax" else "T"}{read("", own).upper()}, p: {read("T", both).upper()}) {{
  e{read("", dims["x"])} = 2 * {read("x", dims["x"])} + 1
  s{read("", own)} = {fold}[...]({read("e", dims["x"])})
  p{read("", both)} = {other}[...]({read("e", dims["x"])} * {read("z", dims["z"])})
  y{read("", out)} = {read("e", dims["x"])} * {read("z", dims["z"])} - {read("s", own)}
}}"""
    x, z = (front(operands[n].double(), dims[n]) for n in "xz")
    batch = torch.broadcast_shapes(*batches.values())
    e = 2 * x + 1
    s = FOLDS[fold](e.flatten(2)) if e.dim() > 2 else FOLDS[fold](e[..., None])
    product = e.reshape(*e.shape[:2], *(1,) * (len(batch) - e.dim() + 2), *e.shape[2:])
    product = product * z.reshape(*z.shape[:2], *(1,) * (len(batch) - z.dim() + 2), *z.shape[2:])
    p = FOLDS[other](product.flatten(2) if batch else product[..., None])
    y = product - s.reshape(*s.shape, *(1,) * len(batch))
    want = {"y": back(y, out, batch), "s": back(s, own, ()), "p": back(p, both, ())}
    assert prod(batch) > 0
    held(text, operands["x"], operands["z"], want)


def test_lines_without_indices():
    text = "op f<T: float>(x: T[N, ...], z: T[N, ...]) -> (y: T[N, ...], w: T[N, ...]) { y = x + z w = y * z }"
    x, z = torch.randn(5, 3), torch.randn(5, 2, 3)
    y = x[:, None] + z
    held(text, x, z, {"y": y, "w": y * z})


def test_a_reducer_counts_what_its_body_reads():
    """Broadcast copies are no terms, of temporaries neither; an output's dims are the op's; so do callees."""
    text = """
op own<T: float>(x: T[...], z: T[...]) -> y: T[...] {
  m = sum[...](x[...]) + mean[...](x[...])
  y[...] = x[...] * z[...] - m
}
op f<T: float>(x: T[D], z: T[N, D]) -> (y: T[N, D], s: T, t: T) {
  y = own(x, z)
  s = sum[d](x[d])
  t = sum[n, d](y[n, d])
}"""
    x, z = torch.randn(3), torch.randn(2, 3)
    y = x * z - x.sum() - x.mean()
    held(text, x, z, {"y": y, "s": x.sum(), "t": y.sum()})
    text = """
op f<T: float>(x: T[...], z: T[...]) -> (y: T[...], s: T, t: T) {
  y = x * z
  s = sum[...](where(x[...] > 0, x[...], 0))
  t = sum[...](y[...])
}"""
    held(text, x, z, {"y": x * z, "s": x.relu().sum(), "t": (x * z).sum()})
