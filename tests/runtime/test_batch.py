"""What `...` stands for, where results lie, and copies of operands, each proven in a process under Triton's interpreter."""

import pytest


@pytest.mark.slow
def test_batch_dims_broadcast_beside_named_ones(run_checks):
    run_checks("batch_checks.py")


@pytest.mark.slow
def test_results_lie_as_torch_lays_them(run_checks):
    run_checks("layout_checks.py")


@pytest.mark.slow
def test_copies_hold_what_operands_do(run_checks):
    run_checks("copies_checks.py")
