"""Convolutions as contractions: what their launches choose and what their kernels hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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


# In a process of its own: Triton decides at import whether kernels are interpreted.
PATCHES = """
import json, sys
import torch
from torch.nn import functional as F
from tritongen import pipeline
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text

def check(name, want, *shapes, last=False, dtype=torch.float32, **numbers):
    text = open(f"specs/{name}.op").read()
    built = pipeline.build(text, name)
    module, plan = load_text(built.name, built.raw), built.plans[name][0]
    (way,) = (w for w in ways(plan) if "patches" in dict(w.variants).values())
    args = [torch.randn(s).to(dtype) / (4 if k else 1) for k, s in enumerate(shapes)]
    if last:
        formats = {3: torch.contiguous_format, 4: torch.channels_last, 5: torch.channels_last_3d}
        args = [a.to(memory_format=formats[a.dim()]) if a.dim() > 1 else a for a in args]
    boxes, own = [], module._patch
    module._patch = lambda *sizes: boxes.append(own(*sizes)) or boxes[-1]
    with forced(module, plan, way, small=True):
        got = getattr(module, name)(*args, **numbers)
    assert boxes, "patches were not run"
    wanted = want(*(a.double() for a in args))
    error = ((got.double() - wanted).abs() / (1 + wanted.abs())).max().item()
    results.append((error, name, numbers, boxes))

results, half = [], torch.float16
check("conv2d", lambda x, w, b: F.conv2d(x, w, b, 1, 3, 2), (2, 24, 5, 4), (20, 24, 3, 2), (20,), pad=3, dil=2)
check("conv2d", lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 3), (2, 48, 3, 5), (24, 16, 3, 3), (24,),
      last=True, dtype=half, pad=1, groups=3)
check("conv1d", lambda x, w, b: F.conv1d(x, w, b), (3, 16, 19), (10, 16, 5), (10,))
check("conv3d", lambda x, w, b: F.conv3d(x, w, b, 1, 1), (1, 16, 3, 4, 5), (12, 16, 3, 2, 3), (12,), last=True, pad=1)
check("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), (1, 16, 4, 5), (16, 12, 3, 4), stride=2, pad=1)
check("conv_group_norm_silu", lambda x, w, b, *g: F.silu(F.group_norm(F.conv2d(x, w, b, 1, 1), 8, *g)),
      (2, 16, 4, 5), (24, 16, 3, 3), (24,), (24,), (24,))
json.dump(results, sys.stdout)
"""


def test_patches_equal_torch():
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PATCHES],
        env=env,
        cwd=SPECS.parent,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    results = json.loads(run.stdout)
    assert len(results) == 6 and max(error for error, *_ in results) < 2e-3, results
