"""What is mended between Triton's stages: `tests/fuzz/found/` has the specs that were wrong on an H200."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch

from tritongen import pipeline, trace
from tritongen.lib import compilers
from tritongen.runtime.load import load_text

STRANGER = '''
import triton
import triton.language as tl


@triton.jit
def of_a_stranger(x_ptr, y_ptr):
    """Its sums of bytes are those that ptxas gets wrong."""
    at = tl.arange(0, 1024)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x.to(tl.int16) + 1)
'''
BOTH = """
import importlib, json, os, sys
import torch
from tritongen import trace  # imports no module of kernels

def compiled(kernel, cache, *dtypes):
    os.environ["TRITON_CACHE_DIR"] = cache
    args = [torch.empty(1024, dtype=d, device="meta") for d in dtypes]
    made = trace.compile_launch(trace.Launch(kernel, (1,), tuple(args), {}), "sm_90")
    return made.hash, made.asm["ptx"]

def stranger(cache, prepare=lambda kernels: None):
    sys.modules.pop("stranger", None)
    kernel = importlib.import_module("stranger").of_a_stranger
    prepare([kernel])
    return compiled(kernel, cache, torch.uint8, torch.int16)

before = stranger("first")
from tritongen import lib, pipeline
from tritongen.runtime.load import load_text
text = "op f(x: u8[N]) -> y: i16[N] { y[n] = i16(x[n]) + 1 }"
module = load_text("f", pipeline.build(text).raw)
call = trace.trace(module, "f", {"x": torch.empty(1024, dtype=torch.uint8, device="meta")}, trace.H200)
ours = [trace.ptx(launch, "sm_90") for launch in call.launches]
after = stranger("second")
asked = stranger("third", lib.mend_kernels)
alone = stranger("fourth")
print(json.dumps([before, after, alone, asked, ours]))
"""


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


def test_pairs_of_f8_values_are_joined_by_prmt():
    """ptxas took the second of two equal pairs from a register that nothing wrote: lanes of 0 were -1.5."""
    text = "op f(x: f32[N], d: f32[D]) -> y: f8e5m2[N, D] { y[n, k] = where(k + 1 == D, x[n], 0) }"
    module = load_text("f", pipeline.build(text).raw)
    given = {"x": torch.empty(64, device="meta"), "d": torch.empty(8, device="meta")}
    for launch in trace.trace(module, "f", given, trace.H200).launches:
        ptx = trace.ptx(launch, "sm_90")
        assert "e5m2x2" in ptx and "prmt.b32" in ptx and not compilers.pairs_of_f8(ptx)
    plain = "cvt.rn.f16x2.f32 %r1, %r2, %r3;\nmov.b32 %r4, {%rs1, %rs1};\n"
    assert compilers.mended_ptx(plain) == plain


def test_descriptors_of_one_address_share_no_sum_of_64_bits():
    """ptxas took the address of masked tiles from a register that the loop before had overwritten: dx was 0."""
    text = """{
	or.b64 	%rd3, %rd1, 4611686293305294848;
	add.s64 	%rd4, %rd1, -4611685949707911136;
	or.b64 	%rd5, %rd2, 4611686293305294848;
	wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%r1,%r2}, %rd3, %rd5, 0, 1, 1, 1, 1;
	wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%r1,%r2}, {%r3,%r4}, %rd4, %p9, 1, 1, 1;
}"""
    mended = compilers.mended_ptx(text)
    assert compilers.descriptors_of_two_layouts(text)
    assert not compilers.descriptors_of_two_layouts(mended)
    assert "or.b32 lo, lo, 0; mov.b64 %rd3, {lo, 1073741888};" in mended
    assert "add.s32 lo, lo, 32; mov.b64 %rd4, {lo, 3221225488};" in mended
    assert "or.b64 	%rd5, %rd2, 4611686293305294848;" in mended


def test_kernels_of_others_are_compiled_as_without_us(tmp_path):
    """Before a module of ours is there, behind one that was compiled, and behind one of theirs that asked for the mends."""
    (tmp_path / "stranger.py").write_text(STRANGER)
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    run = [sys.executable, "-c", BOTH]
    done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after, alone, asked, ours = json.loads(done.stdout)
    assert before == after == alone and "add.s16x2" in before[1]
    assert asked[0] != before[0] and "add.s16x2" not in asked[1]
    assert ours and not any("add.s16x2" in text for text in ours)
