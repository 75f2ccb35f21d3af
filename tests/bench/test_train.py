"""benchmarks/train.py at sizes for a CPU: models that learn, and gradients that are torch's."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt", "resnet"])
def test_models_train(monkeypatch, tmp_path, model):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import train

    steps = ["--steps", "9", "--seeds", "2", "--backend", "aot_eager"]
    folder = ["--out", str(tmp_path)]
    results = train.main(["--model", model, "--device", "cpu", "--tiny", *steps, *folder])
    off = {name: found["largest"] for name, found in results["gradients"].items()}
    assert off["tritongen f32"] < 1e-5
    assert off["tritongen autocast"] < 1.5 * off["torch autocast"]
    for run in results["runs"]:
        losses = run["losses"]
        assert all(map(math.isfinite, losses)), run["way"]
        assert sum(losses[-3:]) < sum(losses[:3]), run["way"]
        assert run["rate"] > 0 and (run["seed"] or run["kernels"]["top"])
    assert [run["outside"] for run in results["runs"] if run["way"] == "torch"] == [[], []]
    assert "where a step's time goes" in (tmp_path / "results.md").read_text()


def test_outside_is_farther_than_seeds_are_apart(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import train

    runs = [{"way": "torch", "losses": [2.0, 1.0, a, a]} for a in (0.5, 0.6, 0.8)]
    assert train.outside([2.0, 1.0, 1.0, 1.0], runs, 2) == []
    assert train.outside([2.0, 1.0, 1.2, 1.2], runs, 2) == [2]
    assert train.outside([2.0, 1.0, math.nan, 1.0], runs, 2) == [2]


BLOCK = """
import torch
from models import TINY, TORCH, batches, make, ours

sizes = TINY["gpt"].__class__(blocks=1, width=16, heads=2, vocabulary=8, length=5, batch=2)
made = [make("gpt", parts, sizes) for parts in (ours(), TORCH)]
losses = [model(*batches("gpt", sizes, 1, 0, torch.device("cpu"))[0]) for model in made]
torch.testing.assert_close(*losses)
for loss in losses:
    loss.backward()
for p, q in zip(*(model.parameters() for model in made), strict=True):
    torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
"""


@pytest.mark.slow
def test_a_block_through_kernels_in_the_interpreter():
    path = os.pathsep.join([str(BENCHMARKS.parent), str(BENCHMARKS)])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", BLOCK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
