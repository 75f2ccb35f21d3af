"""Convolutions as contractions: what their launches choose and what their kernels hold."""

from __future__ import annotations

import re
from pathlib import Path

import torch
import triton.language as tl

from tritongen import pipeline, trace
from tritongen.runtime.load import load_text

SPECS = Path(__file__).parent.parent / "specs"


def launches(name: str, **call):
    built = pipeline.build((SPECS / f"{name}.op").read_text(), f"{name}.op")
    module = load_text(built.name, built.raw)
    return trace.trace(module, name, call).launches


def meta(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def test_coordinates_of_a_long_operand_have_64_bits():
    """Few places, far apart: p * stride passes 2^31 where N * P does not."""
    call = dict(w=meta(16, 16, 3), b=meta(16), stride=1_000_000)
    near, far = (launches("conv1d", x=meta(1, 16, n), **call)[-1] for n in (10**9, 3 * 10**9))
    assert (near.config["INDEX"], far.config["INDEX"]) == (tl.int32, tl.int64)


def test_a_transposed_convolution_walks_the_taps_of_its_phase():
    source = pipeline.build((SPECS / "conv_transpose2d.op").read_text(), "c.op").raw
    taps = source[source.index("def conv_transpose2d_taps") :]
    loop = taps[taps.index("for start") : taps.index("tl.store")]
    assert "% stride" not in loop and "r_taps" in taps and "s_taps" in loop
    *_, one = launches("conv_transpose2d", x=meta(1, 16, 9, 9), w=meta(16, 16, 3, 3), stride=2)
    assert one.grid == (2 * 2,)  # a program a phase: each has 100 places


def test_eight_channels_are_loaded_16_bytes_at_a_time():
    call = dict(x=meta(2, 8, 32, 32), w=meta(16, 8, 3, 3), b=meta(16))
    code = trace.ptx(launches("conv2d", **call)[-1], "sm_90")
    sizes = set(re.findall(r"cp\.async\.c[ag]\.shared\.global [^;]*?, (0x\w+),", code))
    assert sizes == {"0x10"}


def test_packed_operands_are_those_whose_channels_lie_apart():
    x, w, b = meta(2, 32, 8, 8), meta(16, 32, 3, 3), meta(16)
    last = dict(memory_format=torch.channels_last)
    names = [launch.kernel.fn.__name__ for launch in launches("conv2d", x=x, w=w, b=b)]
    assert names == ["conv2d_x_packed_tile", "conv2d_w_packed_tile", "conv2d_taps"]
    x, w = torch.empty(2, 32, 8, 8).to(**last), torch.empty(16, 32, 3, 3).to(**last)
    (only,) = launches("conv2d", x=x, w=w, b=b)
    assert only.kernel.fn.__name__ == "conv2d_taps"
