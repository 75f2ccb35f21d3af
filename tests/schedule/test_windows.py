"""Windows: what a call of one chooses, and that the compiler merges what neighbours share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tritongen import pipeline, trace
from tritongen.proof.crosscompile import nvidia
from tritongen.runtime.load import load_text

ROOT = Path(__file__).parents[2]


def traced(name: str, x: torch.Tensor, **more) -> trace.Calls:
    text = (ROOT / "specs" / f"{name}.op").read_text()
    module = load_text(name, pipeline.build(text, name).raw)
    return trace.trace(module, name, {"x": x, **more})


def images(*shape: int, **options) -> torch.Tensor:
    return torch.empty(shape, device="meta").to(**options)


@pytest.mark.parametrize(
    ("x", "win", "stride", "variant"),
    [
        (images(4, 64, 56, 56), 3, 2, "runs"),
        (images(4, 64, 56, 56), 3, 3, "window"),  # no tile is three times another
        (images(4, 64, 56, 56, memory_format=torch.channels_last), 3, 2, "channels"),
        (images(4, 64, 56, 56), 16, 2, "box"),
    ],
)
def test_lanes_run_where_memory_does_and_wide_windows_are_loops(x, win, stride, variant):
    calls = traced("max_pool2d", x, win=win, stride=stride)
    assert [c.variant for c in calls.choices] == [variant]


def test_a_result_is_stored_as_its_operand_is():
    text = (ROOT / "specs" / "max_pool2d.op").read_text()
    module = load_text("max_pool2d", pipeline.build(text, "max_pool2d").raw)
    for x in (images(2, 3, 8, 8), images(2, 3, 8, 8, memory_format=torch.channels_last)):
        y = module.allocate_max_pool2d(x)
        assert y.stride() == torch.empty_like(x)[:, :, :4, :4].clone().stride()


def test_a_window_whose_line_moves_with_the_lanes_has_no_runs():
    """A run holds what several lanes read, of one line: here each lane has its own."""
    text = "op f(x: f32[N, W]) -> y: f32[N] { y[n] = sum[k < 3](x[%s, n + k] else 0) }"
    assert "def f_runs" in pipeline.build(text % "0").raw
    assert "def f_window" in (raw := pipeline.build(text % "n").raw) and "def f_runs" not in raw


def test_neighbouring_windows_share_what_they_load():
    """16 steps of 4 x 4 windows at stride 1 read 19 lines in runs, and their maxima along a line are shared too."""
    x = images(32, 64, 512, 512, dtype=torch.bfloat16)
    calls = traced("max_pool2d", x, win=4, stride=1, pad=1)
    (launch,) = calls.launches
    text = trace.ptx(launch, "sm_90")
    lane, steps = launch.config["PER_THREAD"], launch.config["STEPS"]
    each = launch.config["BLOCK"] * launch.config["ROWS"] // (32 * launch.config["num_warps"])
    runs = (
        (lane + 1) // lane - -1 // lane + 1
    )  # a lane's windows begin 1 before its run and end `lane + 1` behind
    assert steps == 16
    assert len(re.findall(r"ld\.global\.v\d", text)) == each // lane * (steps + 3) * runs
    assert len(re.findall(r"max\.NaN", text)) <= each * ((steps + 3) * 3 + steps * 4)


def test_fewer_windows_are_unrolled_that_share_no_loads_or_keep_places():
    """Triton took minutes for 256 terms of two loads each: its pass over loads is more than quadratic in them."""
    head = "op f(x: f32[N, H, K]) -> y: "
    bodies = {
        "max[k < 9](x[n, h + k, 0] else 0)": 256,
        "max[k](x[n, h, k] - (x[n, h + k, k] else 0))": 256 // 3,
        "argmax[k < 9](x[n, h + k, 0] else 0)": 256 // 4,
    }
    for body, most in bodies.items():
        dtype = "i64" if "arg" in body else "f32"
        raw = pipeline.build(f"{head}{dtype}[N, H] {{ y[n, h] = {body} }}").raw
        assert f"{most} // max(1, terms)" in raw and f"terms <= {min(128, most)} " in raw


@pytest.mark.parametrize(
    ("kind", "body", "hop", "most"),
    [
        ("float", "min[k]({x} * w[k])", 2, "window"),
        ("float", "max[k](abs({x} - w[k]))", 4, "window"),
        ("int", "sum[k]({x} * w[k])", 2, "window"),
        ("float", "min[k]({x} * w[k])", 1, "runs"),  # lanes one apart share whole lines, not runs
        ("float", "sum[k]({x} * w[k])", 2, "runs"),  # floats are added up in turn
        ("float", "max[k < W]({x}) * w[0]", 2, "runs"),
    ],
)
def test_runs_give_few_terms_that_a_reducer_takes_in_any_order(kind, body, hop, most):
    """Triton 3.6 ended the process: LLVM made one vector of 32 products of halves, and failed an assertion."""
    line = f"y[n, p] = {body.format(x=f'x[n, {hop} * p + k]')}"
    head = f"op f<T: {kind}>(x: T[N, C], w: T[W]) -> y: T[N, P] with P = (C - W) // {hop} + 1"
    module = load_text("f", pipeline.build(f"{head} {{ {line} }}").raw)
    x = torch.empty(64, 512, dtype=torch.int16 if kind == "int" else torch.bfloat16, device="meta")
    for terms, expected in ((31, "runs"), (32, most), (36, most)):
        calls = trace.trace(module, "f", {"x": x, "w": x[0, :terms]})
        assert calls.choices[0].variant == expected


@pytest.mark.parametrize("last", [False, True])
def test_no_load_is_known_to_lie_outside(last):
    """On a GPU max pools of 1 x 1 images in f16 gave inf: ptxas took the -inf of such loads for inf."""
    x = images(1, 2, 1, 1, dtype=torch.float16)
    x = x.as_strided(x.shape, (2, 1, 2, 2)) if last else x
    (launch,) = traced("max_pool2d", x, win=3, stride=1, pad=2).launches
    assert not re.findall(r"mov\.pred\s+%p\d+, 0", trace.ptx(launch, "sm_90"))


@pytest.mark.parametrize("side", [3, 5, 7])
def test_windows_of_weights_fit_into_registers(side):
    """A weight and a place each a term, beside the sums: 5 x 5 of halves spilled 7,900 bytes a thread."""
    x = images(8, 256, 32, 32, dtype=torch.float16, memory_format=torch.channels_last)
    w, b = (
        torch.empty(*s, dtype=torch.float16, device="meta") for s in ((256, side, side), (256,))
    )
    (launch,) = traced("depthwise_conv2d", x, w=w, b=b, pad=side // 2).launches
    assert launch.kernel.fn.__name__ == "depthwise_conv2d_channels"
    _, spilled = nvidia(trace.compile_launch(launch, "sm_90").asm["cubin"])
    assert spilled is not None and spilled <= 256
