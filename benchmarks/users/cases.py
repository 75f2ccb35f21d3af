"""Turns a problem into what runs: the spec's function, its operands, and torch's answer.

    case, text = Case(problem), "N 3, D 37"
    tensors = case.operands(text, "cuda")
    case.ours(**tensors, **case.numbers(text)), case.reference(text)(**tensors)

`reference` is the spec's `ref`. `eager` is what you would time: the same, unless the table names another.

Not here: the problems (`problems.py`), checking and timing (`run.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.users.problems import Problem
from tritongen import pipeline
from tritongen.check import check
from tritongen.ir.algebra import evaluate
from tritongen.ir.nodes import BATCH_SIZE, Op, Tensor
from tritongen.runtime.load import load_text
from tritongen.syntax.parse import parse_file
from tritongen.syntax.ref import parse_ref, ref_python

HERE = Path(__file__).parent
Values = dict[str, Any]


def values(text: str) -> Values:
    """Sizes and constants by name: "M 5, slope 0.1, ... 3x37"; of two values the later holds."""
    found: Values = {}
    for item in text.split(", "):
        name, _, value = item.partition(" ")
        if name == "...":
            found[name] = tuple(map(int, value.split("x")))
        else:
            found[name] = float(value) if "." in value else int(value)
    return found


@dataclass
class Case:
    problem: Problem

    @property
    def path(self) -> Path:
        return HERE / f"{self.problem.spec}.op"

    @cached_property
    def op(self) -> Op:
        (checked,) = check(parse_file(self.path))
        return checked.typings[0]

    @cached_property
    def module(self) -> ModuleType:
        built = pipeline.build(self.path.read_text(), str(self.path))
        return load_text(built.name, built.raw)

    @property
    def ours(self) -> Callable[..., torch.Tensor]:
        return getattr(self.module, self.op.name)

    def sizes(self, which: str) -> str:
        """The table's text of the sizes called "given", "small" or "large"."""
        small, large = self.problem.odd
        return {"given": self.problem.given, "small": small, "large": large}[which]

    # ---- operands -------------------------------------------------------------------------------
    def numbers(self, text: str) -> Values:
        """The scalars and constants of a call, where the spec's defaults do not hold."""
        own = {p.name for p in self.op.params if not isinstance(p, Tensor)}
        return {name: value for name, value in values(text).items() if name in own}

    def shapes(self, text: str) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and dtype of each operand."""
        sizes = values(text)
        found = {}
        for tensor in self.op.tensors:
            dims = [sizes["..."] if d == BATCH_SIZE else (evaluate(d, sizes),) for d in tensor.dims]
            dtype = torch.int64 if tensor.dtype == "i64" else torch.float32
            found[tensor.name] = tuple(int(n) for dim in dims for n in dim), dtype
        return found

    def operands(self, text: str, device: str, seed: int = 0) -> dict[str, torch.Tensor]:
        """Fresh operands in f32: normal values, weights scaled so that what they give is normal too."""
        random = torch.Generator(device).manual_seed(seed)
        fills = dict(item.split(" ") for item in self.problem.fills.split(", ") if item)
        sizes = values(text)
        found = {}
        for name, (shape, _) in self.shapes(text).items():
            kind = fills.get(name, "weight" if name[0] == "w" else "normal")
            found[name] = fill(kind, shape, device, random, sizes)
        return found

    # ---- torch ----------------------------------------------------------------------------------
    def reference(self, text: str) -> Callable[..., torch.Tensor]:
        assert self.op.ref is not None
        return self._function(self.op.ref, text)

    def eager(self, text: str) -> Callable[..., torch.Tensor]:
        """What torch's user would write, with its constants as numbers in the text."""
        return self._function(self.problem.eager or self.op.ref, text)

    def _function(self, ref: str, text: str) -> Callable[..., torch.Tensor]:
        *steps, result = ref_python(parse_ref(ref)).splitlines()
        names = {p.name: p.default for p in self.op.params if not isinstance(p, Tensor)}
        scope: Values = {"torch": torch, **names, **self.numbers(text)}
        params = ", ".join(t.name for t in self.op.tensors)
        lines = [f"def {self.problem.spec}({params}):", *steps, f"return {result}"]
        exec(compile("\n    ".join(lines), f"<ref of {self.problem.spec}>", "exec"), scope)
        return scope[self.problem.spec]


def fill(
    kind: str, shape: tuple[int, ...], device: str, random: torch.Generator, sizes: Values
) -> torch.Tensor:
    def make(draw: Callable[..., torch.Tensor]) -> torch.Tensor:
        return draw(*shape, generator=random, device=device)

    match kind:
        case "normal":
            return make(torch.randn)
        case "weight":
            return make(torch.randn).mul_(math.prod(shape[1:]) ** -0.5)
        case "uniform":
            return make(torch.rand)
        case "signs":
            return make(torch.randn).sign_()
        case "near_one":  # so that a long product neither vanishes nor overflows
            return make(torch.randn).mul_(0.01).add_(1)
        case "upper":
            return make(torch.randn).triu_()
        case "symmetric":
            half = make(torch.randn)
            return (half + half.T) / 2
        case "labels":
            return torch.randint(sizes["V"], shape, generator=random, device=device)
    raise ValueError(f"unknown fill {kind!r}")
