"""Convolutions as contractions: what their launches choose and what their kernels hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import torch
import triton.language as tl

from tritongen import lib, pipeline, trace
from tritongen.choice import microseconds, of_gpu
from tritongen.ir.binding import torch_dtype
from tritongen.proof.crosscompile import compile_one, lower_one, nvidia, wrong_instructions
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text
from tritongen.schedule.rules import evaluate

SPECS = Path(__file__).parents[2] / "specs"


def launches(name: str, **call):
    spec = name.removesuffix("_backward")
    text = (SPECS / f"{spec}.op").read_text()
    built = pipeline.build(text, f"{spec}.op", gradients=spec != name)
    module = load_text(built.name, built.raw)
    return trace.trace(module, name, call).launches


def meta(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


def test_coordinates_of_a_long_operand_have_64_bits():
    """Few places, far apart: p * stride passes 2^31 where N * P does not."""
    call = dict(w=meta(16, 64, 3), b=meta(16), stride=1_000_000)
    near, far = (launches("conv1d", x=meta(1, 64, n), **call)[-1] for n in (10**9, 3 * 10**9))
    assert (near.config["INDEX"], far.config["INDEX"]) == (tl.int32, tl.int64)


def test_a_transposed_convolution_walks_the_taps_of_its_phase():
    source = pipeline.build((SPECS / "conv_transpose2d.op").read_text(), "c.op").raw
    taps = source[source.index("def conv_transpose2d_taps") :]
    loop = taps[taps.index("for start") : taps.index("tl.store")]
    assert "% stride" not in loop and "r_taps" in taps and "s_taps" in loop
    *_, one = launches("conv_transpose2d", x=meta(1, 16, 9, 9), w=meta(16, 16, 3, 3), stride=2)
    assert one.grid == (2 * 2,)  # a program a phase: each has 100 places


def test_places_that_are_stored_apart_come_first():
    """Columns are apart too: Triton 3.6 then lays lanes along the first dim, which as columns were 0.23x of cuDNN."""
    call = dict(x=meta(64, 64, 128, 128), w=meta(64, 64, 4, 4), stride=2, pad=1)
    launch = launches("conv_transpose2d", **call)[-1]
    assert launch.kernel.fn.__name__ == "conv_transpose2d_patches"
    code = trace.compile_launch(launch, "sm_90").asm["ttgir"]
    assert re.findall(r"tt\.store .*tensor<(\w+)x!tt\.ptr<f32>", code) == ["128x64"]
    assert (
        "batch = tl.cast(tile % batches" in launch.kernel.src
    )  # the phases of a patch run side by side


def test_patches_are_of_images_whose_places_count_in_32_bits(monkeypatch):
    """With a stride, a descriptor's row reaches over the rows in between, to its 2^31st element at most."""
    assert "stepped=True" in pipeline.build((SPECS / "conv2d.op").read_text(), "c.op").raw
    monkeypatch.setattr(lib.descriptors, "takes_tiles", lambda *operands: True)
    w = meta(64, 3, 3, 64)
    assert lib.takes_patches(meta(8, 1024, 1024, 64), w, stepped=True)
    assert lib.takes_patches(meta(8, 64, 2**20, 2048), w)
    assert not lib.takes_patches(meta(8, 64, 2**20, 2048), w, stepped=True)


def test_an_image_that_repeats_itself_is_no_matrix():
    """Descriptors would take a copy of each, which no estimate of one tap counts."""
    built = pipeline.build((SPECS / "conv2d.op").read_text(), "conv2d.op")
    module, one = load_text(built.name, built.raw), meta(1, 64, 32, 32)

    def one_tap(x: torch.Tensor) -> bool:
        calls = trace.trace(module, "conv2d", dict(x=x, w=meta(64, 64, 1, 1), b=meta(64)))
        return calls.choices[0].facts["one_tap"]

    assert one_tap(meta(8, 64, 32, 32)) and not one_tap(one.expand(8, -1, -1, -1))


def test_few_places_are_summed_in_parts():
    """Four tiles of 132 multiprocessors otherwise: an image of 7 x 7, and the gradient of few weights."""
    x, w = meta(1, 512, 7, 7, dtype=torch.bfloat16), meta(512, 512, 3, 3, dtype=torch.bfloat16)
    *_, taps, combine = launches("conv2d", x=x, w=w, b=meta(512, dtype=torch.bfloat16), pad=1)
    assert combine.kernel.fn.__name__ == "conv2d_combine"
    assert combine.config["PARTS"] >= 8 and taps.grid[0] >= 64
    x, w = meta(64, 64, 56, 56), meta(64, 64, 3, 3)
    *_, whole = launches("conv2d", x=x, w=w, b=meta(64), pad=1)
    assert whole.kernel.fn.__name__ != "conv2d_combine"


def test_eight_channels_are_loaded_16_bytes_at_a_time():
    call = dict(x=meta(64, 8, 225, 225), w=meta(128, 8, 5, 5), b=meta(128), stride=2)
    *_, launch = launches("conv2d", **call)
    assert launch.kernel.fn.__name__ in ("conv2d_taps", "conv2d_tiles")
    code = trace.ptx(launch, "sm_90")
    sizes = set(re.findall(r"cp\.async\.c[ag]\.shared\.global [^;]*?, (0x\w+),", code))
    assert sizes == {"0x10"}


ROWS = """op f<T: float>(x: T[N, B, L], w: T[F, C, R]) -> y: T[N, F, P] with P = L - R + 1, B == %s {
  y[n, f, p] = sum[c, r](x[n, %s, p + r] * w[f, c, r])
}"""


@pytest.mark.parametrize(
    "size, channel, channels, run",
    [("C", "c", 449, True), ("C", "c", 1, False), ("2 * C", "c + c", 32, None)],
)
def test_lanes_lie_along_channels_that_lie_side_by_side(size, channel, channels, run):
    """And load no more than does: of one channel whose taps are 16 apart Triton 3.6 would have loaded eight at once."""
    built = pipeline.build(ROWS % (size, channel))
    module, (plan,) = load_text("f", built.raw), built.plans["f"]
    way = next(w for w in ways(plan) if "terms" in w.name)
    x = meta(4, 64, 16 * -(-2 * channels // 16), dtype=torch.float16)[
        ..., : (2 if run is None else 1) * channels
    ]
    call = dict(x=x.mT, w=meta(64, channels, 16, dtype=torch.float16))
    with forced(module, plan, way, small=False):
        launch = trace.trace(module, "f", call).launches[-1]
    assert launch.config.get("RUN_X") is run
    code = trace.compile_launch(launch, "sm_90").asm
    slides = re.search(r"%x\w* = tt\.load [^\n]*#(blocked\d*)>", code["ttgir"])[1]
    order = re.search(rf"#{slides} = .*order = (\[[01], [01]\])", code["ttgir"])[1]
    assert order == "[1, 0]" or not run
    assert set(re.findall(r"ld\.global\S*", code["ptx"])) == {"ld.global.b16"}


def test_packed_operands_are_those_whose_channels_lie_apart():
    x, w, b = meta(64, 32, 58, 58), meta(64, 32, 3, 3), meta(64)
    last = dict(memory_format=torch.channels_last)
    names = [launch.kernel.fn.__name__ for launch in launches("conv2d", x=x, w=w, b=b)]
    assert names == ["_copy", "_copy", "conv2d_patches"]
    (only,) = launches("conv2d", x=x.to(**last), w=w.to(**last), b=b)
    assert only.kernel.fn.__name__ == "conv2d_patches"


def test_one_tap_that_stays_in_place_is_a_product_of_matrices():
    """Said at the call: with one tap more, or a stride, the window slides. In patches 69 us, so 42 (H200)."""
    half = dict(dtype=torch.bfloat16)
    first, w, b = meta(64, 64, 56, 56, **half), meta(256, 64, 1, 1, **half), meta(256, **half)
    last = torch.empty_like(first, memory_format=torch.channels_last)

    def kernels(**call):
        return [run.kernel.fn.__name__ for run in launches("conv2d", b=b, **call)]

    assert kernels(x=last, w=w) == ["conv2d_rows"]
    assert kernels(x=first, w=w) == ["conv2d_planes"]  # nothing is packed
    for slides in (dict(stride=2), dict(pad=1)):
        assert not {"conv2d_rows", "conv2d_planes"} & set(kernels(x=last, w=w, **slides))


def test_a_result_whose_channels_one_tap_sees_as_one_dim_with_more_is_not_channels_last():
    """`planes` sees y as [N, C * H, Q], which no result stored channels last can be."""
    body = "sum[f, s]((g[n, f, 0, q - s] else 0) * x[f, c, h, s])"
    text = (
        "op f(g: f32[N, F, 1, Q], x: f32[F, C, H, S]) -> y: f32[N, C, H, Q] { y[n, c, h, q] = %s }"
    )
    raw = pipeline.build(text % body).raw
    assert "y = y.view(N, C * H, Q)" in raw and "memory_format" not in raw


def test_a_patch_reaches_the_tensor_cores_from_shared_memory():
    """As the first factor it came through registers, from a buffer that was refilled before all had read it."""
    call = dict(
        x=meta(8, 64, 56, 56, dtype=torch.bfloat16), w=meta(64, 64, 3, 3, dtype=torch.bfloat16)
    )
    call |= dict(b=meta(64, dtype=torch.bfloat16), pad=1)
    launch = launches("conv2d", **call)[-1]
    code = trace.ptx(launch, "sm_90")
    assert launch.kernel.fn.__name__ == "conv2d_patches"
    assert "wgmma.mma_async" in code and "cp.async.bulk.tensor.5d" in code
    assert "ldmatrix" not in code[: code.rindex("wgmma.mma_async")]  # behind it: rows are stored


def test_gradients_of_channels_last_images_take_operands_as_they_lie():
    """Before, both operands were copied, and dx of a stride of 2 had four times the products (H200: 619 us, torch 193)."""
    shapes = dict(x=(128, 128, 56, 56), w=(128, 128, 3, 3), dy=(128, 128, 28, 28))
    call = {name: meta(*shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    call = {name: t.to(memory_format=torch.channels_last) for name, t in call.items()}
    call |= dict(stride=2, pad=1)
    found = {launch.kernel.fn.__name__: launch for launch in launches("conv2d_backward", **call)}
    assert {"conv2d_backward_dx_phases", "conv2d_backward_dw_strips"} < found.keys()
    code = trace.ptx(found["conv2d_backward_dw_strips"], "sm_90")
    assert "ldmatrix" not in code[: code.rindex("wgmma.mma_async")]  # they come from shared memory


def test_strips_reach_beyond_the_last_term_only_where_all_is_read_anyway():
    random = Random(0)
    for _ in range(2000):
        whole, terms, hops = (random.randint(1, n) for n in (80, 70, 4))
        step, first, apart = random.randint(1, 3), random.randint(-3, 2), random.randint(-2, 3)

        def read(*counts, step=step, first=first, apart=apart, hops=hops, whole=whole):
            at = {t * step + first + h * apart for h in range(hops) for t in range(*counts)}
            return at & {*range(whole)}

        beyond = read(terms, terms + 63) <= read(terms)
        assert lib.rereads(whole, terms, step, first, apart, hops) == beyond
    # A launch asks, so a long window may not cost its square: 40 s.
    assert lib.rereads(40_000, 20_001, 1, 0, 1, 20_000)


def test_patches_are_long_where_places_are_stored_side_by_side():
    """A row two places longer than a power of two was covered by twos: with the fewest patches, at 56 TFLOP/s."""
    assert lib.patch(128, 64, 65538, steps=10) == (1, 128)
    assert lib.patch(128, 64, 254, 254, steps=18) == (1, 1, 128)
    assert lib.patch(128, 64, 56, 56, steps=144) == (2, 8, 8)  # a seventh more is too many
    assert lib.patch(128, 64, 56, 56, steps=9) == (1, 2, 64)  # and pays where stores are most of it
    assert lib.patch(128, 168, 6, 81, 13, steps=15)[-1] == 16
    assert lib.patch(128, 168, 6, 81, 13, steps=15, apart=120)[-1] == 1  # stored channels last
    assert lib.patch(128, 128, 14, 21, steps=4, apart=3)[-1] == 32  # phases, which share sectors
    assert lib.covered(256, 16, 16) == 256 * 256 and lib.covered(256, 3, 3) == 256 * 12


def test_rows_of_places_are_stored_as_wide_as_their_length_allows():
    """Triton by itself knows of multiples of 16 alone: of 5,988 places a thread stored 64 times two bytes."""
    built = pipeline.build((SPECS / "conv1d.op").read_text(), "c.op")
    module, (plan,) = load_text("c", built.raw), built.plans["conv1d"]
    patches = next(w for w in ways(plan) if w.name == "patches")

    def stores(length):
        x, w = (meta(*s, dtype=torch.bfloat16) for s in ((29, 64, length), (512, 64, 3)))
        call = dict(x=x, w=w, b=meta(512, dtype=torch.bfloat16), pad=1)
        with forced(module, plan, patches, small=False):
            launch = trace.trace(module, "conv1d", call).launches[-1]
        assert launch.kernel.fn.__name__ == "conv1d_patches"
        return set(re.findall(r"st\.global\S*", trace.ptx(launch, "sm_90")))

    assert stores(5984) == stores(5992) == {"st.global.v4.b32"}
    assert stores(5988) == {"st.global.v2.b32"} and stores(5989) == {"st.global.b16"}


PART = """op f<T: float>(x: T[N, C, H], w: T[F, D, R], const step: int = 1) -> y: T[N, F, P]
    with P = (H - R) // step + 1, C >= D {
  y[n, f, p] = sum[c < D, r](x[n, c, p * step + r] * w[f, c, r])
}"""


@pytest.mark.parametrize("channels, step", [(48, 1), (88, 1), (48, 2)])
def test_steps_of_patches_end_with_the_channels_where_no_zeros_follow(channels, step):
    """48 channels were taken as 64: behind them come the rest of 88, and at a stride of 2 those of the place between."""
    built = pipeline.build(PART)
    module, (plan,) = load_text(built.name, built.raw), built.plans["f"]
    patches = next(w for w in ways(plan) if w.name == "patches")
    x = torch.randn(2, 24, channels, dtype=torch.float16).mT
    w = torch.randn(8, 3, 48, dtype=torch.float16).mT
    with forced(module, plan, patches, small=False):
        got = module.f(x, w, step=step)
    wanted = torch.nn.functional.conv1d(x[:, :48].float(), w.float(), stride=step)
    torch.testing.assert_close(got.float(), wanted, rtol=1e-2, atol=3e-2)


def test_three_channels_are_stored_as_four():
    """So that a load takes 16 bytes; more channels, and other types, go other ways."""
    built = pipeline.build(
        """op f<T: float>(x: T[N, C, H, W], w: T[F, C, R, S], b: T[F]) -> y: T[N, F, P, Q]
            with P = H - R + 1, Q = W - S + 1 { y = conv2d(x, w, b) }"""
    )
    module = load_text(built.name, built.raw)

    def last(channels, dtype=torch.float32):
        x, w = meta(64, channels, 128, 128, dtype=dtype), meta(64, channels, 5, 5, dtype=dtype)
        call = dict(x=x, w=w, b=meta(64, dtype=dtype))
        return trace.trace(module, "f", call).launches[-1]

    few = last(3)
    assert few.kernel.fn.__name__ == "f_tiles" and few.args[0].shape == (64, 4, 128, 128)
    loads = set(re.findall(r"ld\.global\S*", trace.ptx(few, "sm_90")))
    assert "ld.global.v4.b32" in loads and "ld.global.b32" not in loads
    assert last(3, torch.float64).kernel.fn.__name__ == "f_tiles"
    assert last(16).kernel.fn.__name__ == "f_patches"


def test_an_activation_before_a_norm_is_computed_once():
    """Stored in place of the sum; what reads the sum itself beside it keeps the sum."""
    op = """op f<T: float>(x: T[M, K], w: T[N, K]) -> %s {
      h[m, n] = sum[k](x[m, k] * w[n, k])
      a[m, n] = gelu(h[m, n])
      y[m, n] = a[m, n] / sum[j](a[m, j])
      %s
    }"""
    both = "(y: T[M, N], z: T[M])", "z[m] = max[n](h[m, n])"
    for more, stored in ((("y: T[M, N]", ""), "a"), (both, "h")):
        ((plan,),) = pipeline.build(op % more).plans.values()
        assert [n.name for n in plan.scratch] == [stored]


# In a process of its own: Triton decides at import whether kernels are interpreted.
PATCHES = """
import json, sys
import torch
from torch.nn import functional as F
from tritongen import lib, pipeline
from tritongen.proof.crosscompile import nvidia, wrong_instructions
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text
from tritongen.schedule.rules import evaluate

PATCH = lib.patch

def check(name, want, *shapes, text="", last=False, dtype=torch.float32, small=True, **numbers):
    text = text or open(f"specs/{name}.op").read()
    built = pipeline.build(text, name)
    module, plan = load_text(built.name, built.raw), built.plans[name][0]
    (way,) = (w for w in ways(plan) if "patches" in dict(w.variants).values())
    args = [torch.randn(s).to(dtype) / (4 if k else 1) for k, s in enumerate(shapes)]
    if last:
        formats = {3: torch.contiguous_format, 4: torch.channels_last, 5: torch.channels_last_3d}
        args = [a.to(memory_format=formats[a.dim()]) if a.dim() > 1 else a for a in args]
    boxes = []
    lib.patch = lambda *sizes, **most: boxes.append(PATCH(*sizes, **most)) or boxes[-1]
    with forced(module, plan, way, small=small):
        got = getattr(module, name)(*args, **numbers)
    assert boxes, "patches were not run"
    wanted = want(*(a.double() for a in args))
    error = ((got.double() - wanted).abs() / (1 + wanted.abs())).max().item()
    results.append((error, name, numbers, boxes))

results, half = [], torch.float16
check("conv2d", lambda x, w, b: F.conv2d(x, w, b, 1, 3, 2), (2, 32, 5, 4), (20, 32, 3, 2), (20,), pad=3, dil=2)
check("conv2d", lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 3), (2, 48, 3, 5), (24, 16, 3, 3), (24,),
      last=True, dtype=half, pad=1, groups=3)
check("conv2d", lambda x, w, b: F.conv2d(x, w, b, 2, 1, 2), (2, 64, 4, 6), (12, 64, 3, 2), (12,),
      last=True, dtype=half, stride=2, pad=1, dil=2)
check("conv1d", lambda x, w, b: F.conv1d(x, w, b), (3, 16, 19), (10, 16, 5), (10,))
# 48 channels in a step of 64: what is behind them reads as zero, also where another group's are.
check("conv2d", lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 2), (2, 96, 3, 4), (24, 48, 2, 3), (24,),
      last=True, dtype=half, small=False, pad=1, groups=2)
check("conv1d", lambda x, w, b: F.conv1d(x, w, b), (2, 48, 9), (10, 48, 3), (10,), small=False)
check("conv3d", lambda x, w, b: F.conv3d(x, w, b, 1, 1), (1, 16, 3, 4, 5), (12, 16, 3, 2, 3), (12,), last=True, pad=1)
check("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), (1, 16, 4, 5), (16, 12, 3, 4), stride=2, pad=1)
# Of a stride that is a literal: the number of phases is no argument of the kernel.
check("up", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), (1, 16, 3, 4), (16, 5, 3, 4), text='''
op up(x: f32[N, C, H, W], w: f32[C, F, R, S]) -> y: f32[N, F, P, Q] with P = 2 * H - 4 + R, Q = 2 * W - 4 + S {
  y[n, f, p, q] = sum[c, r, s]((x[n, c, (p + 1 - r) / 2, (q + 1 - s) / 2] else 0) * w[c, f, r, s])
}''')
check("conv_group_norm_silu", lambda x, w, b, *g: F.silu(F.group_norm(F.conv2d(x, w, b, 1, 1), 8, *g)),
      (2, 16, 4, 5), (24, 16, 3, 3), (24,), (24,), (24,))
json.dump(results, sys.stdout)
"""


@pytest.mark.slow
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
    assert len(results) == 10 and max(error for error, *_ in results) < 2e-3, results


@pytest.mark.parametrize("spec", ["conv_transpose2d", "conv_transpose3d"])
def test_nothing_divides_by_the_taps_of_a_phase_that_may_have_none(spec):
    """Hoisted out of a loop of no turn, `x % 0` tells LLVM that there are taps: one read past the weights (on an H200)."""
    built = pipeline.build((SPECS / f"{spec}.op").read_text(), spec, gradients=True)
    divisors = set(re.findall(r"(?://|%) (\(?(?:[a-z]_)?taps)\b", built.raw))
    assert "s_taps_or_1 = tl.maximum(s_taps, 1)" in built.raw and not divisors


NO_PLACES = """
op f(x: f64[..., C, L, H], d: f64[..., F, P, Q], s: f64[R, S]) -> w: f64[F, C, R, S] {
  w[f, c, r, s_] = s[r, s_] * sum[..., p, q](d[..., f, p, q] * (x[..., c, p + r, q + s_] else 0))
}"""
NO_TAPS = """
op f(x: f16[N, W, A, L], y: f16[N, B, W, K, H]) -> u: f16[N, B, E, P]
    with E = A - K + 1, P = L - H + 1 {
  u[n, b, p, q] = sum[w, r, s](x[n, w, p + r, q + s] * y[n, b, w, r, s])
}"""


@pytest.mark.parametrize(
    ("spec", "shapes"),
    [
        (NO_PLACES, dict(x=(4, 8, 64, 9), d=(4, 8, 9, 0), s=(3, 3))),
        (NO_TAPS, dict(x=(2, 16, 6, 5), y=(2, 8, 16, 3, 0))),
    ],
)
def test_nothing_divides_by_a_size_that_is_known_to_be_0(spec, shapes):
    """The loads in front of a loop that has no turn were of no address, under no mask (1903-994, 31337-14, on a GPU)."""
    built = pipeline.build(spec, "f.op")
    (plan,) = built.plans["f"]
    dtypes = {t.name: torch_dtype(t.dtype) for t in plan.op.tensors}
    args = {name: meta(*shape, dtype=dtypes[name]) for name, shape in shapes.items()}
    unspared = re.sub(r"(\w+_or_1) = tl\.maximum\((.*), 1\)", r"\1 = \2", built.raw)
    assert _says_of_0(plan, built.raw, args) == ""
    assert "constant 0" in _says_of_0(plan, unspared, args)


def _says_of_0(plan, source, args) -> str:
    """What is said of the kernels of every way of a call, where two programs share a sum."""
    module, said = load_text("f", source), set()
    for way in ways(plan):
        with forced(module, plan, way, small=False, least_parts=2):
            launches = trace.trace(module, "f", args).launches
        for launch in launches:
            said.add(wrong_instructions("", "", trace.compile_launch(launch, "sm_90").asm["ttir"]))
    return "".join(said)


def convolution(taps, channels, M, N, itemsize, **more):
    """The step of conv2d, and the facts of a call whose operands are packed."""
    built = pipeline.build((SPECS / "conv2d.op").read_text(), "conv2d.op")
    ((plans),) = built.plans.values()
    facts = dict(batches=1, phases=1, conv_stride=1, over=0, patched=True, gpu=lib.Gpu(), covered=M)
    facts |= dict(packed_bytes=0, pad4_bytes=0, padded_bytes=0, padded=-(-channels // 16) * 16)
    facts |= dict(taps=taps, channels=channels, M=M, N=N, depth=taps * channels, itemsize=itemsize)
    facts |= dict(
        stored_bytes=itemsize, operand_bytes=itemsize * M * channels, one_tap=False, row=16
    )
    facts |= dict(terms=taps * channels, channels_last=False, stored_last=False)  # windows' own
    windows = "outer lanes lanes_extent along lines cols cols_extent steps lane_stride dilation line abreast"
    return plans[0].steps[0], of_gpu(facts | dict.fromkeys(windows.split(), 1) | more)


def test_what_takes_least_is_chosen():
    """Timed on an H200: three channels in fours 269 us, one by one 478; with stride 2 patches 53, 256 columns 68."""
    copied = dict.fromkeys(("packed_bytes", "pad4_bytes", "padded_bytes"), 9_633_792)
    room = dict.fromkeys(("pad4_fits", "padded_fits"), True)
    for call, best in (
        (convolution(49, 3, 16 * 218**2, 64, 4, **copied), "pad4"),
        (convolution(9, 128, 64 * 28**2, 256, 2, conv_stride=2), "patches"),
    ):
        step, facts = call[0], call[1] | room
        timed = [v for v in step.variants if v.estimate and evaluate(v.when, facts)]
        assert min(timed, key=lambda v: microseconds(step, v, facts)).name == best  # noqa: B023


def test_copies_are_no_larger_than_the_call():
    """One channel that is padded to 16 took 916 MiB beside 76 of operands and results."""
    built = pipeline.build((SPECS / "conv1d.op").read_text(), "conv1d.op")
    call = dict(x=meta(10_000_000, 1, 3), w=meta(1, 1, 3), b=meta(1))
    (choice,) = trace.trace(load_text(built.name, built.raw), "conv1d", call).choices
    step = next(s for s in built.plans["conv1d"][0].steps if s.name == choice.step)
    assert not next(v for v in step.variants if v.name == choice.variant).packs


@pytest.mark.parametrize("filters, taps, best", [(773, 1, "runs"), (5, 3, "terms")])
def test_windows_are_compared_with_products(filters, taps, best):
    """us: many columns of two terms 87 by lanes, by patches 307 (H200); of 114 dilated ones `runs` 706, `terms` 110 (H100)."""
    channels, L = (2, 5984) if taps == 1 else (38, 55211)
    x, w, b = meta(9, channels, L), meta(filters, channels, taps), meta(filters)
    call = dict(x=x, w=w, b=b, pad=1, dil=taps - 1 or 1)
    built = pipeline.build((SPECS / "conv1d.op").read_text(), "conv1d.op")
    (choice,) = trace.trace(load_text(built.name, built.raw), "conv1d", call).choices
    assert choice.variant == best


@pytest.mark.parametrize(
    "count, beside, widened", [("C", "F", "C"), ("C", "C", "c_count"), ("3", "F", "c_count")]
)
def test_channels_in_fours_have_a_number_of_their_own(count, beside, widened):
    """Where C were four for three, `p < C` would read behind r; and a literal cannot become another."""
    built = pipeline.build(
        f"op f(x: f32[N, {count}, L], w: f32[F, {count}, R], r: f32[N, {beside}]) -> y: f32[N, F, P] with P = L - R + 1 {{\n"
        "  y[n, f, p] = sum[c, s](x[n, c, p + s] * w[f, c, s]) + (r[n, p] else 0)\n}\n",
        "f.op",
    )
    assert f"{widened} = 4 * lib.cdiv({widened}, 4)" in built.raw


def test_a_mask_behind_windows_asks_for_the_channels_that_there_are():
    """Of the copy that `pad4` reads as x it took a zero for `else 1`: wrong where f + 1 is C."""
    built = pipeline.build(
        "op f<T: float>(x: T[N, C, L], w: T[F, C, S]) -> y: T[N, F, P] with P = L - S + 1 {\n"
        "  y[n, f, p] = (x[n, f + 1, p] else 1) + sum[c, s](x[n, c, p + s] * w[f, c, s])\n}\n",
        "f.op",
    )
    assert "c_count = 4 * lib.cdiv(c_count, 4)" in built.raw


@pytest.mark.parametrize(
    "channels, N, rows, warps",
    [(25, 185, 128, 8), (64, 184, 256, 8), (64, 185, 128, 8), (25, 60, 128, 4)],
)
def test_tiles_of_128_columns_have_8_warps(channels, N, rows, warps):
    """Of 4 a thread spilled 1,552 bytes where rows are odd: 7 channels in 245 columns 330 us, by taps 111 (H200).

    Of 8 and 256 places 480: 62 channels in 303 columns 253, by taps 77 (H100).
    """
    step, known = convolution(18, channels, 1_169_280, N, 2)
    patches = next(v for v in step.variants if v.name == "patches")
    for name, rule in patches.config:
        known[name] = evaluate(rule, known)
    assert (known["BLOCK_M"], known["num_warps"]) == (rows, warps)


def test_taps_of_phases_fit_into_registers():
    """13 channels to 136, stride 2: a thread of 4 warps spilled 1,472 bytes, 2,850 us; cuDNN 274 (H200)."""
    built = pipeline.build((SPECS / "conv_transpose2d.op").read_text(), "c.op")
    module, (plan,) = load_text("c", built.raw), built.plans["conv_transpose2d"]
    x, w = (meta(*s, dtype=torch.float16) for s in ((6, 13, 163, 176), (13, 136, 5, 3)))
    with forced(module, plan, next(w for w in ways(plan) if w.name == "taps"), small=False):
        launch = trace.trace(module, "conv_transpose2d", dict(x=x, w=w, stride=2)).launches[-1]
    assert launch.kernel.fn.__name__ == "conv_transpose2d_taps"
    _, spilled = nvidia(trace.compile_launch(launch, "sm_90").asm["cubin"])
    assert spilled is not None and spilled <= 256


@pytest.mark.slow
def test_corners_of_patches_have_32_bits_where_places_need_64():
    """Descriptors take no others; taps of a phase were counted as places are, and with these no kernel was compiled."""
    name = "conv_transpose2d"
    built = pipeline.build((SPECS / f"{name}.op").read_text(), name)
    x, w = (meta(*s, dtype=torch.float16) for s in ((1 << 16, 16, 200, 200), (16, 16, 3, 3)))
    module, (plan,) = load_text(name, built.raw), built.plans[name]
    patches = next(way for way in ways(plan) if way.name == "patches")
    with forced(module, plan, patches, small=False):
        *_, launch = trace.trace(module, name, dict(x=x, w=w, pad=1), lib.Gpu()).launches
    assert launch.config["INDEX"] == tl.int64
    assert not lower_one(launch, "", "patches", "f16", "sm_90").problem


def test_a_warp_has_16_rows_between_bounds_that_an_operand_holds():
    """Triton 3.6 fails an assertion for 128 rows in 4 warps."""
    text = """op f<T: float>(a: i64[D], c: T[D, L], u: T[K, L]) -> z: T[D, K] {
      z[d, i] = sum[a[d] <= q < a[d] + 3]((c[d, q - d] else 0) * exp(u[i, q]))
    }"""
    built = pipeline.build(text, "f.op")
    module, (plan,) = load_text("f", built.raw), built.plans["f"]
    (terms,) = (way for way in ways(plan) if "terms" in way.name)
    half = torch.float16
    call = dict(a=meta(64, dtype=torch.int64), c=meta(64, 8, dtype=half), u=meta(8, 8, dtype=half))
    with forced(module, plan, terms, small=False):
        (launch,) = trace.trace(module, "f", call, trace.H200).launches
    assert launch.config["BLOCK_M"] == 128 and launch.config["num_warps"] == 8
    assert not compile_one(launch, "", "terms", "f16", "sm_90").problem


def test_channels_that_others_see_in_groups_are_one_index_of_a_product():
    """Their digits would be addressed one by one, and not packed: dx behind group_norm 22 ms, cuDNN 1.8 (H100)."""
    text = (SPECS / "conv_group_norm_silu.op").read_text()
    (item,) = pipeline.build(text, "conv_group_norm_silu", gradients=True).items
    steps = {s.name.rsplit("_", 1)[1]: s for s in item.forward.backward.plans[0].steps}
    for name in ("dx", "dw"):
        variants = {v.name: v for v in steps[name].variants}
        assert variants["taps"].packs and "patches" in variants


def test_a_mean_behind_a_convolution_has_products_for_gradients():
    """What comes in is the same at each place: a sum that reads it so is no product. 23.0 ms by rows, 0.67 so."""
    text = """
    op f<T: float>(x: T[N, C, H, W], w: T[F, C, R, S]) -> y: T[N, F] {
      h[n, f, p < H - R + 1, q < W - S + 1] = sum[c, r, s](x[n, c, p + r, q + s] * w[f, c, r, s])
      y[n, f] = mean[p, q](h[n, f, p, q])
    }"""
    (item,) = pipeline.build(text, gradients=True).items
    kinds = {s.name.rsplit("_", 1)[1]: s.skeleton for s in item.backward.plans[0].steps}
    assert (kinds["dx"], kinds["dw"]) == ("contraction", "contraction")
