"""benchmarks/anyshape.py: what is drawn, and how it is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import (
    anyshape,  # noqa: E402
    worth,  # noqa: E402
)
from benchmarks import anyshape_fused as fused  # noqa: E402
from benchmarks.anyshape_draws import (
    CLASSES,
    FUSED,
    call,
    draw,
    is_backward,
    laid_out,
    log_uniform,
    text_of,
)  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES)
def test_a_draw_is_a_call_of_its_op_and_the_same_each_time(kind):
    large = 0
    for k in range(8):
        drawn = draw(kind, 5, k)
        assert drawn == draw(kind, 5, k)
        op, case = call(drawn)
        assert {t.name for t in op.tensors} >= set(drawn.layouts) and text_of(drawn)
        large += 10 <= drawn.least_us <= 5000
    assert 3 <= large <= 8  # three of four


def test_sizes_are_log_uniform_half_of_them_odd():
    from random import Random

    random = Random(0)
    found = [log_uniform(1, 1 << 20, random) for _ in range(2000)]
    assert min(found) == 1 and max(found) <= 1 << 20
    assert 0.5 < sum(n % 2 for n in found) / len(found) < 0.7
    assert 0.4 < sum(n < 1024 for n in found) / len(found) < 0.6


@pytest.mark.parametrize(
    "layout", ["transposed", "sliced", "offset", "expanded", "channels last", "heads inside"]
)
def test_a_layout_keeps_the_numbers(layout):
    x = torch.randn(3, 4, 5, 7)
    moved = laid_out(x, layout)
    assert torch.equal(moved, x[:1].expand(x.shape) if layout == "expanded" else x)
    assert moved.storage_offset() == (layout == "offset")
    assert (moved.stride() == x.stride()) == (layout == "offset")


def test_what_a_ratio_is():
    row = {"ours": 20.0, "eager": 30.0, "compile": 25.0}
    assert anyshape.ratio(row) == 1.25
    assert anyshape.ratio(row | {"ours": 5.0}) == 2.0
    assert anyshape.ratio({"ours": 5.9, "eager": 5.0}) == 1.0
    assert anyshape.ratio({"ours": 6.1, "eager": 5.0}) == 5.0 / 6.1
    assert anyshape.ratio({"eager": 30.0}) is None and anyshape.ratio({"ours": 3.0}) is None


def test_the_report_names_the_worst_and_what_has_no_ratio():
    good = {
        "key": ("rows", 1, 0),
        "group": "half",
        "least": 9.0,
        "call": "softmax bf16 D=7",
        "choice": "rows",
    }
    rows = [
        good
        | {
            "ours": 20.0,
            "eager": 10.0,
            "variants": {"us": {"loop": 12.0, "rows": 20.0}},
            "ratio": 0.5,
        },
        good | {"key": ("rows", 1, 1), "group": "f32", "ratio": None, "error": "OutOfResources"},
    ]
    text = anyshape.report(rows)
    assert "| rows | all | 1 | 2 | 1 | 0.50 | 0.50 | 0.50 | 0.50 | 0% |" in text
    assert (
        "| 0.50 | 20.0 | eager 10.0 | 9.0 | rows | softmax bf16 D=7 | loop 12.0, rows 20.0 |"
        in text
    )
    assert "no ratio: softmax bf16 D=7: OutOfResources" in text


def test_regret_is_over_the_best_variant():
    timed = {"choice": "rows", "us": {"loop": 10.0, "rows": 20.0}, "facts": {}}
    row = {"key": ("rows", 1, 0), "call": "softmax bf16 D=7", "variants": timed}
    text = anyshape.regrets([row, row | {"variants": "not done after 60 s"}])
    assert "| rows | 1 | 2.00 | 2.00 | 2.00 |" in text
    assert "| 2.00 | rows | softmax bf16 D=7 | loop 10.0, rows 20.0 |" in text
    assert "not done after 60 s" in text


def test_a_report_has_the_time_beside_each_of_torchs_ways():
    row = {"key": ("attention", 1, 0), "ours": 20.0, "flex": 10.0, "cudnn": 40.0, "least": 1.0}
    lines = anyshape.beside([row, row | {"flex": 40.0}, {"key": ("attention", 1, 2), "flex": 1.0}])
    assert "| attention | flex | 2 | 1.00 | 0.50 |" in lines
    assert "| attention | cudnn | 2 | 2.00 | 2.00 |" in lines


def test_gradients_are_those_of_the_same_calls():
    forward, back = (draw(f"attention{kind} small", 5, 0) for kind in ("", " backward"))
    assert forward.numbers == back.numbers and forward.layouts == back.layouts
    assert [is_backward(f"{kind} small") for kind in FUSED] == [False, True, False, True, True]


def small(make, *wanted: str) -> dict:
    """Operands of the masks and losses, as small as shows them."""
    made = {
        "q": (2, 4, 5, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 8), "x": (7, 16), "w": (11, 16),
    }  # fmt: skip
    args = {n: torch.randn(shape, dtype=torch.float64) for n, shape in made.items()}
    args |= {"scale": 0.3, "width": 2, "ignore": -100}
    args |= {"len": torch.tensor([2, 4]), "target": torch.randint(0, 11, (7,))}
    return make({n: args[n] for n in wanted}, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mask", fused.MASKS)
def test_torchs_ways_of_attention_and_the_exact_one_agree(mask):
    more = {"window": ["width"], "prefix": ["len"]}.get(mask, [])
    args = small(fused.attention_filled, "q", "k", "v", "scale", *more)
    agree(fused.attention_rivals(mask, args), partial(fused.attention_exact, mask), args)


@pytest.mark.parametrize("kind", fused.HEADS)
def test_torchs_ways_of_a_loss_and_the_exact_one_agree(kind, monkeypatch):
    monkeypatch.setattr(fused, "ROWS", 3)
    more = ["ignore"] if kind == "ignore" else []
    args = small(fused.loss_filled, "x", "w", "target", *more)
    agree(fused.loss_rivals(kind, args), partial(fused.loss_exact, kind), args)


def agree(functions, exact, args):
    """Their results and gradients."""
    wanted = [v.requires_grad_() for v in args.values() if v is not args.get("len") and is_float(v)]
    want = exact(**args)
    incoming = torch.randn_like(want)
    gradients = torch.autograd.grad(want, wanted, incoming)
    for name, function in functions.items():
        if name == "flex":  # which has no gradient on a CPU
            got = function(**{n: v.detach() if is_float(v) else v for n, v in args.items()})
        else:
            got = function(**args)
            found = torch.autograd.grad(got, wanted, incoming.to(got.dtype))
            torch.testing.assert_close(found, gradients, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def is_float(value) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@pytest.mark.slow
def test_the_fused_classes_run_on_a_cpu():
    """Compared with f64, and timed: the numbers say nothing."""
    kinds = ",".join(f"{kind} small" for kind in FUSED)
    command = [sys.executable, "-m", "benchmarks.anyshape", "--class", kinds, "--device", "cpu"]
    command += ["--seed", "7", "--draws", "1", "--processes", "1", "--worst", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| attention backward small | all | all | 1 | 0 |" in done.stdout


def test_three_seeds_of_a_commit():
    assert anyshape.seeds("7") == [7]
    assert len(set(anyshape.seeds("commit"))) == 3


@pytest.mark.slow
def test_what_drawn_convolutions_choose_spills_little():
    """The 58th, a depthwise window of halves with channels last, spilled 7,952 bytes a thread."""
    command = [sys.executable, "-m", "benchmarks.anyshape", "--class", "convolutions", "--spills"]
    command += ["--seed", "9001", "--draws", "60", "--processes", "2", "--worst", "3"]
    alone = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 calls, " in done.stdout


def test_what_a_variant_is_worth():
    """`b` alone is worth nothing, and neither is `c`; without both a call takes twice as long."""
    calls = [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 1.0, "c": 1.0}]
    assert worth.loss(calls, {"b"}) == (1.0, 1.0)
    assert worth.loss(calls, {"b", "c"})[1] == 2.0 and worth.loss(calls, {"a"})[1] == 3.0
    assert worth.removed(calls, 1.01, 1.15) == {"b": (1.0, 1.0)}
