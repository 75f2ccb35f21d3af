"""Works around faults of the compilers below Triton on NVIDIA GPUs, by changing the text that passes between them.

    lib.mend_kernels(globals().values())     # before they are compiled: `runtime.op` and `replayed` call it

Only these kernels are changed. Triton's cache stores them under keys of their own. Whatever else the process compiles has the
keys and the machine code that it would have without us.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import triton
from triton.backends import backends


def mend_kernels(values: Iterable[Any]) -> None:
    """The kernels among the values are compiled with `mended_llvm` (Triton 3.6 only) and `mended_ptx` from now on."""
    if "nvidia" not in backends:
        return
    compiler = backends["nvidia"].compiler
    if not hasattr(compiler.make_ptx, "asked"):
        asked = threading.local()  # whether this thread compiles a kernel of ours
        compiler.make_ptx = followed_by(compiler.make_ptx, mended_ptx, asked)
        if triton.__version__.startswith("3.6."):
            compiler.make_llir = followed_by(compiler.make_llir, mended_llvm, asked)
    for value in values:
        kernel = value.fn if isinstance(value, triton.runtime.Autotuner) else value
        if isinstance(kernel, triton.JITFunction) and hasattr(kernel, "device_caches"):
            caches = kernel.device_caches  # which the interpreter's kernels have none of
            if not hasattr(caches.default_factory, "asked"):
                make = mending(kernel, caches.default_factory, compiler.make_ptx.asked)
                caches.default_factory = make


def followed_by(
    stage: Callable[..., str], mend: Callable[[str], str], asked: threading.local
) -> Callable[..., str]:
    """A stage of Triton, followed by a function that changes its text where that is asked for."""

    @functools.wraps(stage)
    def mended(*args: Any, **kwargs: Any) -> str:
        text = stage(*args, **kwargs)
        return mend(text) if getattr(asked, "now", False) else text

    mended.asked = asked  # type: ignore[attr-defined]
    return mended


def mending(kernel: Any, binder: Callable[[], Any], asked: threading.local) -> Callable[[], Any]:
    """What prepares a kernel for a device: the compiler that it takes there asks for the mends."""

    def prepared() -> Any:
        made = binder()
        plain, source = kernel.compile, kernel.ASTSource

        def compile(*args: Any, **kwargs: Any) -> Any:
            asked.now = True
            try:
                return plain(*args, **kwargs)
            finally:
                asked.now = False

        def key(self: Any) -> str:
            return f"{source.hash(self)}-mended-3"  # other mends, another number

        kernel.compile, kernel.ASTSource = compile, type("Mended", (source,), {"hash": key})
        return made

    prepared.asked = asked  # type: ignore[attr-defined]
    return prepared


def mended_llvm(text: str) -> str:
    """Removes `nuw` and `nsw` from shifts and products of vectors, which Triton 3.6's LLVM lowers wrongly to PTX.

    For `shl nuw nsw <2 x i32> %v, <31, 3>`, whose first element nothing reads, LLVM puts both elements into one 64-bit register.
    The first element overflows there into the second one, which is a lane's row. Kernels were wrong, or failed with `misaligned
    address`. The flags are promises that such an element breaks. Nothing else needs them.
    """
    return re.sub(r"\b(shl|mul) (?:nuw )?(?:nsw )?<", r"\1 <", text)


def mended_ptx(text: str) -> str:
    """Changes what ptxas 12.8, of Triton 3.6 and 3.7, gets wrong: sums of two 16-bit integers, f8 values, descriptors of `wgmma`.

    If ptxas computes a sum of two 16-bit integers in one register again for one of its halves, it adds 0 instead of the constant
    (`VIADD.16x2 R0, R0, 0x0`). LLVM makes such sums of values that it knows to be short, as `x + 1` of an x that is u8. Such a sum
    becomes two sums.

    Where ptxas sees that two pairs of converted f8 values are equal, as all lanes of a row that are 0, it takes the second
    pair from a register that nothing wrote (`F2FP.SATFINITE.E5M2.F32.PACK_AB_MERGE_C R6, RZ, RZ, R0`). `prmt` joins pairs instead.

    Where tiles of two layouts lie at one address of shared memory, their descriptors differ in the upper 32 bits. ptxas adds
    64-bit constants to the address that they share, and took that from a uniform register which a loop had overwritten
    (`UIADD3 UR46, UP2, UR46, 0x20, URZ`). The lower 32 bits are computed alone instead, and the upper ones are a constant: the
    address has 14 bits, so no sum carries.
    """
    two = (
        r"{ .reg .b16 a0, a1, b0, b1; mov.b32 {a0, a1}, \2; mov.b32 {b0, b1}, \3;"
        r" add.s16 a0, a0, b0; add.s16 a1, a1, b1; mov.b32 \1, {a0, a1}; }"
    )
    text = re.sub(r"\badd\.s16x2\s+(%\w+), (%\w+), (%\w+);", two, text)
    for whole, joined, low, high in pairs_of_f8(text):
        both = f"cvt.u32.u16 lo, {low}; cvt.u32.u16 hi, {high}; prmt.b32 {joined}, lo, hi, 0x5410;"
        text = text.replace(whole, f"{{ .reg .b32 lo, hi; {both} }}")
    for whole, op, made, base, constant in descriptors_of_two_layouts(text):
        high, low = divmod(int(constant) % 2**64, 2**32)
        half = f"mov.b64 {{lo, hi}}, {base}; {op}32 lo, lo, {low}; mov.b64 {made}, {{lo, {high}}};"
        text = text.replace(whole, f"{{ .reg .b32 lo, hi; {half} }}")
    return text


def pairs_of_f8(text: str) -> list[tuple[str, str, str, str]]:
    """The instructions that join two pairs of f8 values, which were converted: the text, the result, and both pairs."""
    converted = set(re.findall(r"\bcvt\.\w+(?:\.\w+)*\.e[45]m[23]x2\.\w+\s+(%\w+),", text))
    joins = re.findall(r"(\bmov\.b32\s+(%\w+), \{(%\w+), (%\w+)\};)", text)
    return [own for own in dict.fromkeys(joins) if {own[2], own[3]} <= converted]


def descriptors_of_two_layouts(text: str) -> list[tuple[str, str, str, str, str]]:
    """The instructions that make descriptors for `wgmma` of one address and constants whose upper 32 bits differ.

    Of each its text, its operation, its result, the register of the address, and the constant.
    """
    operands = re.findall(r"\bwgmma\.mma_async\S*\s+\{[^}]*\},([^;]*);", text)
    taken = set(re.findall(r"%rd\d+", " ".join(operands)))
    sums = re.findall(r"(\b(or\.b|add\.s)64\s+(%rd\d+), (%rd\d+), (-?\d+);)", text)
    made = [own for own in dict.fromkeys(sums) if own[2] in taken]
    layouts: dict[str, set[int]] = {}
    for *_, base, constant in made:
        layouts.setdefault(base, set()).add(int(constant) >> 32)
    return [own for own in made if len(layouts[own[3]]) > 1]
