"""What several test files share: processes that run kernels, started once per test process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def interpreter():
    """Proves files of ops on the CPU, in Triton's interpreter."""
    from tritongen.proof.pool import Worker

    with Worker("cpu") as worker:
        yield worker


@pytest.fixture
def run_checks(request):
    """Runs the tests of a file beside this one in a process of their own, whose kernels run in the interpreter."""

    def run(file: str, *options: str) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *options, str(request.path.with_name(file))],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

    return run


def pytest_collection_modifyitems(items):
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    import torch

    if not torch.cuda.is_available():
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
