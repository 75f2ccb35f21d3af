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
    """Puts `mended_llvm` (Triton 3.6 alone: later ones lower it right) and `mended_ptx` behind Triton's own stages; once.

    The hash is part of the keys of Triton's cache.
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
    """A stage whose text is mended."""

    @functools.wraps(stage)
    def mended(*args, **kwargs):
        return mend(stage(*args, **kwargs))

    mended.mends = True  # type: ignore[attr-defined]
    return mended


def mended_llvm(text: str) -> str:
    """Shifts and products of vectors without `nuw` and `nsw`, which Triton 3.6's LLVM lowers wrongly to PTX.

    Of `shl nuw nsw <2 x i32> %v, <31, 3>`, whose first element nobody reads, it puts both into one register of 64 bits; the
    first overflows there into the second, a lane's row. Kernels were wrong so, or failed with `misaligned address`. The
    flags are promises that such an element breaks; nothing else asks for them.
    """
    return re.sub(r"\b(shl|mul) (?:nuw )?(?:nsw )?<", r"\1 <", text)


def mended_ptx(text: str) -> str:
    """Sums of two 16-bit integers in one register as two sums: ptxas 12.8, of Triton 3.6 and 3.7, gets some wrong.

    Where it computes one again for one of its halves, it adds 0 in place of the constant (`VIADD.16x2 R0, R0, 0x0`). LLVM makes such
    sums of what it knows to be short, as `x + 1` of an x that is u8.
    """
    two = (
        r"{ .reg .b16 a0, a1, b0, b1; mov.b32 {a0, a1}, \2; mov.b32 {b0, b1}, \3;"
        r" add.s16 a0, a0, b0; add.s16 a1, a1, b1; mov.b32 \1, {a0, a1}; }"
    )
    return re.sub(r"\badd\.s16x2\s+(%\w+), (%\w+), (%\w+);", two, text)
