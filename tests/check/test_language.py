"""Every sentence of the language that has a case in `language_cases.py` means what torch says by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.check.language_cases import CASES, problem

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_on_the_host(case):
    wrong = problem(case)
    assert not wrong, wrong


@pytest.mark.slow
def test_kernels():
    """The same in Triton's interpreter, all in one process."""
    command = [sys.executable, "-m", "tests.check.language_cases"]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout, f"{done.stdout}\n{done.stderr[-2000:]}"
