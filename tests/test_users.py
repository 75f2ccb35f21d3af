"""What users bring (benchmarks/users): every spec builds, and computes what torch does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.users.problems import KINDS, PROBLEMS
from tritongen import pipeline

ROOT = Path(__file__).parent.parent
SPECS = ROOT / "benchmarks" / "users"


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.spec)
def test_spec_builds(problem):
    path = SPECS / f"{problem.spec}.op"
    module = pipeline.build(path.read_text(), str(path))
    assert not module.warnings
    assert all(plan.op.ref for plans in module.plans.values() for plan in plans)


def test_every_spec_is_a_problem():
    assert sorted(path.stem for path in SPECS.glob("*.op")) == [p.spec for p in PROBLEMS]
    assert {p.kind for p in PROBLEMS} == set(KINDS)
