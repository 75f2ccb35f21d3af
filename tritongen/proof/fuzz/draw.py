"""A whole spec from a source of chance: a few motifs over shared sizes and tensors, then names and types.

    text, motifs = draw_spec(Random(7))
    strategy()                              # the same for Hypothesis

Every draw comes from one `random.Random`: the same seed is the same spec, everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random

from tritongen.proof.fuzz import (
    motifs,
    motifs_chains,
    motifs_diagonal,
    motifs_places,
    motifs_products,
    motifs_whole,
    names,
)
from tritongen.proof.fuzz.sketch import Sketch

MOTIFS = {
    motifs.pointwise: 5,
    motifs.reduction: 8,
    motifs.logical: 1.5,
    motifs.arg: 3,
    motifs.scan: 5,
    motifs.rows: 5,
    motifs.two_ways: 2,
    motifs.earlier: 3,
    motifs_products.contraction: 9,
    motifs_products.ragged: 2,
    motifs_products.quantised: 2,
    motifs_products.integers: 2,
    motifs_products.widened: 2,
    motifs_products.attention: 2,
    motifs_products.convolution: 5,
    motifs_chains.chain: 4,
    motifs_chains.nearest: 1,
    motifs_chains.loss_head: 1,
    motifs_places.window: 5,
    motifs_places.moving: 3,
    motifs_places.shared: 3,
    motifs_places.crop: 3,
    motifs_places.part: 2,
    motifs_places.concat: 1,
    motifs_places.gather: 4,
    motifs_places.scatter: 4,
    motifs_places.segments: 2,
    motifs_places.digits: 3,
    motifs_diagonal.diagonal: 3,
    motifs_whole.flat: 3,
    motifs_whole.dots: 4,
    motifs_whole.chain: 4,
    motifs_whole.call: 3,
}
FAMILIES = {"float": 12, "f16 | bf16": 2, "f32": 2, "f32 | f64": 1, "f16 | f32": 1}
OTHERS = {"float": 6, "f16 | bf16": 1, "f8e4m3 | f16": 1, "f8e4m3 | f8e5m2": 1}  # of operands alone


@dataclass(frozen=True, slots=True)
class Drawn:
    text: str
    motifs: tuple[str, ...]
    unlucky: bool = False  # it asks for names that its module has for itself


def draw_spec(random: Random) -> Drawn:
    s = Sketch(random)
    s.typarams = {"T": s.weighted(FAMILIES), "U": s.weighted(OTHERS), "I": "i64 | i32"}
    for _ in range(s.weighted({1: 6, 2: 4, 3: 1})):
        s.weighted(MOTIFS)(s)
    drawn = Drawn(s.text(), tuple(dict.fromkeys(s.motifs)), s.maybe(0.12))
    if s.typarams["T"] == "f32 | f64" and s.maybe(0.5):
        return replace(drawn, text=of_f64_alone(drawn.text))
    return drawn


def of_f64_alone(text: str) -> str:
    """The last op of a text, with f64 for its type parameter T. Kernels for narrower types are dropped then."""
    start = [m.start() for m in re.finditer(r"^op ", text, re.M)][-1]
    own = re.sub(r"T: f32 \| f64(, )?", "", text[start:], count=1).replace("<>", "", 1)
    return text[:start] + re.sub(r"\bT\b", "f64", own)


def own_names(text: str) -> dict[str, str]:
    """The names of a drawn spec: of its sizes, and of everything else."""
    from tritongen.syntax import ast
    from tritongen.syntax.parse import parse

    item = [i for i in parse(text, "<drawn>").items if isinstance(i, ast.OpDef)][-1]
    words = set(names.WORD.findall(text.split(f"op {item.name}")[-1]))
    sizes = {w: "size" for w in sorted(words) if w in names.SIZES}
    roles = names.TENSORS + names.INDICES + names.SCALARS + names.CONSTS
    return sizes | {w: "value" for w in sorted(words) if w in roles} | {item.name: "value"}


def strategy():
    """Drawn specs for Hypothesis."""
    from hypothesis import strategies as st

    return st.randoms(use_true_random=False).map(draw_spec)
