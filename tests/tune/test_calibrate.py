"""Coefficients of a GPU: scaled, measured and fitted, kept, and refused where a file is not ours."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tritongen import calibrate, explain, lib
from tritongen.calibrate import Timed, fitted, off_by
from tritongen.cli import main
from tritongen.runtime import cache, calibrated
from tritongen.trace import H200

OWN = lib.measured()["NVIDIA H200"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for module in (cache, calibrated):
        monkeypatch.setattr(module, "cache_path", lambda: tmp_path / "tritongen")
    return tmp_path / "tritongen"


def test_a_gpu_like_an_h200_scales_to_its_coefficients():
    assert replace(lib.scaled(H200), source="measured") == OWN
    assert lib.coefficients(replace(H200, clock=1.9)) is OWN


def test_half_the_clock_and_half_the_memory():
    half = lib.coefficients(lib.Gpu(name="another", clock=0.99, memory=2.46, flops=2048))
    own, row = (c.products["descriptors", 2] for c in (OWN, half))
    assert row == (own[0], 2 * own[1], 2 * own[2], own[3] / 4, own[4], own[5] / 2, 2 * own[6], own[7])  # fmt: skip
    assert (half.memory, half.l2, half.copy_us) == (OWN.memory / 2, OWN.l2 / 2, OWN.copy_us)
    assert "scaled" in half.source


def calls(true):
    """Times that a GPU of such coefficients would have, of every variant of every call."""
    gpu = replace(H200, coefficients=true)
    for call in calibrate.CALLS:
        module, plan, op, case = calibrate._opened(call)
        args = calibrate.meta_arguments(op, case)
        for step, variant, facts in calibrate._variants(module, plan, args, gpu):
            timed = Timed(step, variant, facts, 1.0)
            yield replace(timed, microseconds=timed.estimated(true))


def test_what_is_fitted_is_what_was_measured():
    """Of a GPU with half of an H200's tensor cores, slower launches and a third of its loads."""
    per = {"start": 1.7, "flops": 0.5, "load": 0.33}
    true = replace(
        OWN,
        **{
            table: {
                kind: (s * per["start"], t, w, f * per["flops"], e, r * per["load"], *more)
                for kind, (s, t, w, f, e, r, *more) in getattr(OWN, table).items()
            }
            for table in ("products", "convolutions")
        },
    )
    timed = list(calls(true))
    rows = {t.row for t in timed}
    assert {table for table, _ in rows} == {"products", "convolutions"} and len(rows) >= 15
    found = fitted(timed, OWN)
    for row in rows:
        own = [t for t in timed if t.row == row]
        assert off_by(own, found) < 1.1 and off_by(own, found) <= off_by(own, OWN), row
    untouched = OWN.products.keys() - {kind for table, kind in rows if table == "products"}
    assert all(found.products[kind] == OWN.products[kind] for kind in untouched)


def test_one_time_moves_a_row_a_little():
    timed = next(calls(OWN))
    found = fitted([replace(timed, microseconds=50 * timed.microseconds)], OWN)
    table, kind = timed.row
    before, after = getattr(OWN, table)[kind], getattr(found, table)[kind]
    assert all(1 / 16.1 < b / a < 16.1 for a, b in zip(before, after, strict=True))


def test_what_is_stored_is_in_force(folder):
    found = replace(OWN, memory=1.5, source="by hand")
    path = calibrated.store("NVIDIA L40S (test)", found)
    assert path.parent == folder / "gpus" and path.stat().st_mode & 0o077 == 0
    assert calibrated.read(path) == (
        "NVIDIA L40S (test)",
        replace(found, source=calibrated.SOURCE),
    )
    calibrated.install.__wrapped__()
    try:
        assert lib.coefficients(lib.Gpu(name="NVIDIA L40S (test)")).memory == 1.5
    finally:
        lib.calibrated().clear()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"gpu": 3}, {"memory": -1}, {"memory": float("nan")}, {"memory": True}, {"l2": "fast"},
        {"products": {}}, {"products": []}, {"more": 1}, {"convolutions": {"taps 2": [1]}},
    ],
    ids=str,
)  # fmt: skip
def test_a_file_that_is_not_ours_is_not_used(folder, change):
    path = calibrated.store("a GPU", OWN)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.warns(UserWarning, match="is not used"):
        calibrated.install.__wrapped__()
    assert not lib.calibrated()


def test_without_a_gpu_there_is_one_line():
    done = CliRunner().invoke(main, ["calibrate"])
    assert done.exit_code == 1 and done.output.startswith("Error: calibrate needs a GPU")


def test_explain_says_whose_coefficients_estimates_go_by():
    module, plan, op, case = calibrate._opened(calibrate.CALLS[0])
    args = calibrate.meta_arguments(op, case)
    for source, said in (("measured", False), (calibrated.SOURCE, True)):
        gpu = replace(H200, coefficients=replace(OWN, source=source))
        shown = explain.text(explain.explain_call(module, plan, args, gpu))
        assert (f"estimates by coefficients {source}" in shown) is said


SCRIPT = """
import torch
from tritongen import calibrate, lib
class Clock:
    def run(self, call):  # each has run before it is timed
        return lambda: 1e-5
    def settle(self):
        pass
calls = [
    (calibrate.PRODUCT, "f32", "M=40,N=33,K=70"), (calibrate.SMALL_PRODUCT, None, "M=20,N=32,K=64"),
    (calibrate.CONVOLUTION, "f32", "N=1,C=3,H=9,W=8,F=5,R=3,S=2,stride=2"),
]
timed = calibrate.measure("cpu", calls, Clock())
rows = {t.row for t in timed}
assert {table for table, _ in rows} == {"products", "convolutions"}, rows
assert len(timed) > 15 and ("products", ("presplit lhs", 4)) in rows, rows
before = lib.coefficients(lib.gpu(torch.device("cpu")))
assert calibrate.off_by(timed, calibrate.fitted(timed, before)) < calibrate.off_by(timed, before)
print("done")
"""


@pytest.mark.slow
def test_every_variant_is_run_and_compared():
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=env)
    assert done.stdout == "done\n", done.stdout + done.stderr
