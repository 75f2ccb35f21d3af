"""Answers that are right beside the expected one, by the kinds of kernels that a candidate launches.

    excused(candidate, args, "y", got, expected)    # Verdict(ok=True): each element is right in one of these ways

`oracle.py` computes what is expected, and `judge.py` compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tritongen.ir.binding import bind
from tritongen.ir.nodes import Op
from tritongen.kernel.nodes import is_dot
from tritongen.proof.divided import without_divided
from tritongen.proof.eager import on_host
from tritongen.proof.factors import words_of
from tritongen.proof.included import with_shared
from tritongen.proof.judge import Verdict, judge
from tritongen.proof.oracle import Expected, expect

if TYPE_CHECKING:
    from tritongen.proof.runner import Candidate

BY_TRITON = {
    "contraction",
    "taps",
    "persistent",
    "subtiles",
    "patches",
    "strips",
    "ragged",
}  # they leave tf32x3 to tl.dot
IN_PARTS = {"tf32x3", "tf32x3_half"}  # they split factors themselves
# Each sum goes on from the one before it, atomic adds from what is there, windows from tap to tap.
SERIAL = {"scan", "scan_part", "scan_finish", "scatter", "window", "runs"}
# A lane of a loop over blocks adds up what it meets of each. The interpreter's calls have kept to the tighter bound.
BY_BLOCKS = {"loop", "per_thread_part"}


def excused(
    candidate: Candidate, args, name: str, got: torch.Tensor, expected: Expected
) -> Verdict:
    """Whether the kinds of kernels explain it, and which element they do not."""
    return judge(got, expected, *others(candidate, on_host(args), name, got.is_cuda))


def others(candidate: Candidate, host: dict[str, Any], name: str, on_gpu: bool) -> list[Expected]:
    """The other answers that a kernel may give. A candidate may launch several kernels, so several reasons may apply.

    - The general nest, windows, scans and scatters may add term after term. So may the lanes of a lowered kernel whose loop
      carries a sum. On a GPU so may the lanes of a loop over blocks,
      products of f32 without tensor cores (there tl.dot is a chain of fused multiply-adds), and products of f64.
    - A transposed convolution leaves out terms of 0 * w. A product under a bound has such terms of other rows.
    - tf32x3 splits the factors of a product on a GPU, and wherever the kernels split by themselves. Triton's own split
      gives NaN or an infinity for factors that are infinite in TF32 only. These are accepted there, with what a function
      makes of them: relu(-inf) is 0.
    - Atomic adds of f32 to global memory read and write denormals as 0 (PTX ISA, `atom`).
    - A lowered kernel says by its folds whether it multiplies tiles, and whether a sum moves with a maximum. Then the
      factors are rounded beside another maximum.
    """
    op, kinds, words = candidate.plan.op, candidate.skeletons, _words(candidate.plan.op, host)
    dots = {id(kernel) for fold, kernel in candidate.folds if is_dot(fold, kernel)}
    if dots:
        kinds = kinds | {"contraction"}  # it takes its tiles to tl.dot as they do
    in_lanes = any(
        id(kernel) not in dots and fold.value.op == "sum" and {*fold.over} & {*kernel.loops}
        for fold, kernel in candidate.folds
    )
    moving = any(fold.moved_by for fold, _ in candidate.folds)
    doubles = bind(op, host).dtypes["compute"] == "f64"
    chains = BY_BLOCKS | (BY_TRITON if "ieee" in words or doubles else set())
    serial = (
        candidate.is_serial or in_lanes or bool(kinds & (SERIAL | (chains if on_gpu else set())))
    )
    sparse = without_divided(op)
    meanings = [op] if sparse is None else [op, sparse]
    if kinds & (BY_TRITON | IN_PARTS):
        meanings += [shared for m in meanings if (shared := with_shared(m)) is not None]
    splits = ["", *(_splits(kinds, on_gpu) if "tf32x3" in words else ())]
    flushed = on_gpu and "scatter" in kinds
    means = candidate.means
    return [
        expect(m, host, serial, split, flushed, moving, means)[name]
        for m in meanings
        for split in splits
    ]


def _words(op: Op, host: dict[str, Any]) -> set[str]:
    """How a call multiplies f32, if it does."""
    halves = {k for k, v in host.items() if isinstance(v, torch.Tensor) and v.dtype.itemsize <= 2}
    return words_of(op, halves)


def _splits(kinds: set[str], on_gpu: bool) -> list[str]:
    """Who makes tf32x3 of the products of a call: Triton, our kernels, or neither."""
    by = {"triton": BY_TRITON if on_gpu else set(), "ours": IN_PARTS}
    found = [who for who, skeletons in by.items() if kinds & skeletons]
    return [*found, *(("infinite", "nan") if "triton" in found else ())]
