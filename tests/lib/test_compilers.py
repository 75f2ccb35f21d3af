"""What is mended between Triton's stages: `tests/fuzz/found/` has the specs that were wrong on an H200."""

from __future__ import annotations

from triton.backends import backends

from tritongen import lib
from tritongen.lib import compilers


def test_vectors_lose_promises_that_llvm_takes_for_whole_registers():
    scalar = "  %13 = shl nuw nsw i32 %9, 3\n"
    text = (
        "  %99 = shl nuw nsw <2 x i32> %97, <i32 31, i32 3>\n  %12 = mul nsw <8 x i32> %11, %10\n"
    )
    bare = "  %99 = shl <2 x i32> %97, <i32 31, i32 3>\n  %12 = mul <8 x i32> %11, %10\n"
    assert compilers.mended_llvm(text + scalar) == bare + scalar


def test_sums_of_two_16_bit_integers_in_one_register_are_two():
    """`wrong_instructions` looks for others in whatever is cross-compiled."""
    mended = compilers.mended_ptx("\tadd.s16x2 \t%r22, %r20, %r21;\n\tadd.s16 \t%rs1, %rs2, 1;\n")
    assert "s16x2" not in mended and mended.count("add.s16 ") == 3
    assert "mov.b32 {a0, a1}, %r20; mov.b32 {b0, b1}, %r21;" in mended
    assert "mov.b32 %r22, {a0, a1}; }\n\tadd.s16 \t%rs1, %rs2, 1;" in mended


def test_stages_are_followed_once():
    lib.mend_compilers()
    stages = backends["nvidia"].compiler.make_ptx, backends["nvidia"].compiler.make_llir
    lib.mend_compilers()  # of another module
    assert stages == (backends["nvidia"].compiler.make_ptx, backends["nvidia"].compiler.make_llir)
    assert compilers.followed_by(str.upper, str.lower)("X") == "x" and stages[0].mends
