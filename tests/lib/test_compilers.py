"""What is mended while Triton compiles, and for which of its versions."""

from __future__ import annotations

import pytest
import triton

from tritongen import lib

TEXT = """\
  %98 = and <2 x i32> %97, <i32 31, i32 poison>
  %99 = shl nuw nsw <2 x i32> %97, <i32 31, i32 3>
  %12 = mul nsw <8 x i32> %11, %10
  %13 = shl nuw nsw i32 %9, 3
"""


@pytest.mark.parametrize("version, kept", [("3.6.0", False), ("3.7.1", True)])
def test_vectors_lose_promises_that_llvm_takes_for_whole_registers(monkeypatch, version, kept):
    """On an H200, `770-182` and `1901-747` of the fuzzer: `tests/fuzz/found/a_lane_that_overflows_into_the_next.op`."""
    seen = []
    monkeypatch.setattr(triton, "__version__", version)
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.add_stages_inspection_hook = lambda *given: seen.append(given)
        lib.mend_llvm()
        lib.mend_llvm()  # of another module
        for last in ("ptx", "amdgcn"):
            stages = {"llir": lambda src, metadata: src, last: None}
            triton.knobs.runtime.add_stages_inspection_hook("backend", stages, {}, "triton", 90)
            bare = TEXT.replace("shl nuw nsw <", "shl <").replace("mul nsw <", "mul <")
            assert stages["llir"](TEXT, {}) == (TEXT if kept or last == "amdgcn" else bare)
    assert len(seen) == 2  # somebody's own, once for each compile
