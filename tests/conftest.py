"""What several test files share: processes that run kernels, started once per test process."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def interpreter():
    """Proves files of ops on the CPU, in Triton's interpreter."""
    from tritongen.proof.pool import Worker

    with Worker("cpu") as worker:
        yield worker


def pytest_collection_modifyitems(items):
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    import torch

    if not torch.cuda.is_available():
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
