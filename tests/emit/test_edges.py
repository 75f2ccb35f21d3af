"""Counts of blocks, offsets and loops have room for any size: what the interpreter cannot run whole, a few programs tell."""

import pytest


@pytest.mark.slow
def test_counts_and_offsets_just_below_2_31(run_checks):
    run_checks("edge_checks.py")
