"""What `...` stands for, where results lie, and copies of operands, each proven in a process under Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_checks(file: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, str(Path(__file__).parent / file)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_batch_dims_broadcast_beside_named_ones():
    run_checks("batch_checks.py")


@pytest.mark.slow
def test_results_lie_as_torch_lays_them():
    run_checks("layout_checks.py")


def test_copies_hold_what_operands_do():
    run_checks("copies_checks.py")
