"""What users bring (benchmarks/users): every spec builds, and computes what torch does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.users.problems import KINDS, PROBLEMS
from benchmarks.users.run import classes
from tritongen import pipeline

ROOT = Path(__file__).parents[2]
SPECS = ROOT / "benchmarks" / "users"


def sparsely(k, problem):
    """Most of them with the slow tests: a hundred specs are a minute."""
    return pytest.param(problem, id=problem.spec, marks=[] if k % 7 == 0 else pytest.mark.slow)


@pytest.mark.parametrize("problem", [sparsely(*pair) for pair in enumerate(PROBLEMS)])
def test_spec_builds(problem):
    path = SPECS / f"{problem.spec}.op"
    module = pipeline.build(path.read_text(), str(path))
    assert not module.warnings
    assert all(plan.op.ref for plans in module.plans.values() for plan in plans)


def test_every_spec_is_a_problem():
    assert sorted(path.stem for path in SPECS.glob("*.op")) == [p.spec for p in PROBLEMS]
    assert {p.kind for p in PROBLEMS} == set(KINDS)


def test_a_wrong_result_is_not_faster():
    rows = [
        {"spec": "l1_019_relu", "verdict": "ok", "ours": 1.0, "eager": 4.0},
        {"spec": "l1_027_selu", "verdict": "ok", "ours": 1.0, "eager": 1.0},
        {"spec": "l1_029_softplus", "verdict": "NaN", "ours": 1.0, "eager": 9.0},
    ]
    pointwise, *_ = classes(rows)
    assert (pointwise["problems"], pointwise["right"], pointwise["faster than eager"]) == (3, 2, 1)
    assert pointwise["x eager"] == 2.0


@pytest.mark.slow
def test_all_equal_torch(tmp_path):
    """At tiny odd shapes, in the interpreter, every spec."""
    report = tmp_path / "check.json"
    command = [sys.executable, "-m", "benchmarks.users.run", "--check", "--device", "cpu"]
    done = subprocess.run(
        [*command, "--json", str(report)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    rows = json.loads(report.read_text())["check"]
    wrong = [f"{row['spec']}: {row['verdict']}" for row in rows if row["verdict"] != "ok"]
    assert not wrong and len(rows) == len(PROBLEMS), "\n".join([*wrong, done.stderr[-2000:]])
