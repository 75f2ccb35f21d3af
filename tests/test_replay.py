"""Replay is proven in a process of its own, since it needs Triton's interpreter: `replay_checks.py`."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tritongen.runtime.load import load_file

ROOT = Path(__file__).parent.parent


def test_replay():
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(ROOT / "tests" / "replay_checks.py")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.gpu
def test_replay_on_a_gpu():
    """Fresh operands at other places, memory poisoned before each call."""
    random = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.float16)  # noqa: E731
    calls = {
        "relu": lambda: (random(4096),),
        "layer_norm": lambda: (random(64, 1000), random(1000), random(1000), 1e-3),
        "softmax": lambda: (random(2, 100_000),),
        "matmul": lambda: (random(1024, 1024), random(1024, 1024)),
    }
    for name, operands in calls.items():
        f = getattr(load_file(ROOT / "generated" / f"{name}.py"), name)
        held = []
        for k in range(5):
            held.append(operands())
            want = f.__wrapped__(*held[-1]).clone()
            torch.cuda.synchronize()
            torch.full_like(want, float("nan"))
            assert torch.equal(f(*held[-1]), want), (name, k)
        assert f.replay.entries, (name, f.replay.seen)


GENERATED = sorted((ROOT / "generated").glob("*.py"))


def test_a_run_time_scalar_decides_nothing():
    """What replay relies on: such a number is handed on, to kernels at last, and never looked at.

    Where it is turned into a tensor or an int, a torch op or another object tells the tape.
    """
    found = 0
    for path in GENERATED:
        functions = [f for f in ast.parse(path.read_text()).body if isinstance(f, ast.FunctionDef)]
        scalars = {
            a.arg
            for f in functions
            for a in f.args.args
            if a.annotation is not None and "| torch.Tensor" in ast.unparse(a.annotation)
        }
        host = [f for f in functions if f.name.startswith(("allocate_", "launch_", "choose_"))]
        for function in host:
            parents = {c: p for p in ast.walk(function) for c in ast.iter_child_nodes(p)}
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and node.id in scalars and is_read(node):
                    found += 1
                    use = ast.unparse(parents[node])
                    assert isinstance(parents[node], (ast.Call, ast.keyword)), f"{path.name}: {use}"
                    assert not use.startswith("choose_"), f"{path.name}: {use}"
    assert found > 50


def is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)
