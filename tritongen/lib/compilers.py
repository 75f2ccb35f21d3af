"""Works around faults of the compilers below Triton on NVIDIA GPUs, by changing the text that passes between them.

    lib.mend_compilers()     # before a module's kernels are compiled: `runtime.op` calls it, or `replayed` in a standalone module

It affects all kernels of the process. Triton's cache stores them under keys of their own, so older entries are not used.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import triton
from triton.backends import backends


def mend_compilers() -> None:
    """Puts `mended_llvm` (for Triton 3.6 only) and `mended_ptx` behind Triton's own stages, once.

    Its hash is part of the keys of Triton's cache.
    """
    nvidia = backends.get("nvidia")
    if nvidia is None or hasattr(nvidia.compiler.make_ptx, "mends"):
        return
    nvidia.compiler.hash = followed_by(
        nvidia.compiler.hash, "{}-mended-1".format
    )  # other mends, another number
    nvidia.compiler.make_ptx = followed_by(nvidia.compiler.make_ptx, mended_ptx)
    if triton.__version__.startswith("3.6."):
        nvidia.compiler.make_llir = followed_by(nvidia.compiler.make_llir, mended_llvm)


def followed_by(stage: Callable[..., str], mend: Callable[[str], str]) -> Callable[..., str]:
    """A stage of Triton, followed by a function that changes its text."""

    @functools.wraps(stage)
    def mended(*args, **kwargs):
        return mend(stage(*args, **kwargs))

    mended.mends = True  # type: ignore[attr-defined]
    return mended


def mended_llvm(text: str) -> str:
    """Removes `nuw` and `nsw` from shifts and products of vectors, which Triton 3.6's LLVM lowers wrongly to PTX.

    For `shl nuw nsw <2 x i32> %v, <31, 3>`, whose first element nothing reads, LLVM puts both elements into one 64-bit register.
    The first element overflows there into the second one, which is a lane's row. Kernels were wrong, or failed with `misaligned
    address`. The flags are promises that such an element breaks. Nothing else needs them.
    """
    return re.sub(r"\b(shl|mul) (?:nuw )?(?:nsw )?<", r"\1 <", text)


def mended_ptx(text: str) -> str:
    """Splits a sum of two 16-bit integers in one register into two sums: ptxas 12.8, of Triton 3.6 and 3.7, gets some wrong.

    If ptxas computes such a sum again for one of its halves, it adds 0 instead of the constant (`VIADD.16x2 R0, R0, 0x0`). LLVM makes
    such sums of values that it knows to be short, as `x + 1` of an x that is u8.
    """
    two = (
        r"{ .reg .b16 a0, a1, b0, b1; mov.b32 {a0, a1}, \2; mov.b32 {b0, b1}, \3;"
        r" add.s16 a0, a0, b0; add.s16 a1, a1, b1; mov.b32 \1, {a0, a1}; }"
    )
    return re.sub(r"\badd\.s16x2\s+(%\w+), (%\w+), (%\w+);", two, text)
