"""Bench without a GPU: a scripted clock, CPU tensors, and the rules of a fair measurement."""

import json

import pytest
import torch
from click.testing import CliRunner

from tritongen import cli_tools, pipeline
from tritongen.bench import plot, report, run
from tritongen.bench.measure import BOUNDS, compare, interleaved, on_poison
from tritongen.cli import main
from tritongen.cost import Ceilings
from tritongen.shapes import call_of, parse_shapes

PEAKS = Ceilings(1e12, {"bf16": 1e14, "tf32x3": 1e13}, "a scripted GPU")


class Clock:
    """Calls take turns on it; each costs what its function carries, more in the first rounds."""

    def __init__(self):
        self.order = []

    def run(self, call):
        self.order.append(getattr(call, "name", "?"))
        seconds = getattr(call, "seconds", 1e-3)
        return lambda: seconds * (9.0 if len(self.order) < 3 else 1.0)

    def settle(self):
        pass


def timed(name, seconds):
    def call():
        return torch.zeros(1)

    call.name, call.seconds = name, seconds
    return call


def test_functions_take_turns_and_medians_come_out():
    clock = Clock()
    times = interleaved({"a": timed("a", 0.01), "b": timed("b", 0.02)}, timer=clock)
    assert times == {"a": 0.01, "b": 0.02}
    assert clock.order == ["a", "b"] * (len(clock.order) // 2) and len(clock.order) >= 22


def test_compare_sees_what_is_wrong():
    want = torch.randn(64, 64, dtype=torch.float64)
    assert compare(want.bfloat16(), want).ok and compare(want.float(), want).ok
    assert compare((want.float(), want.float()), (want, want)).ok
    for spoil in ("value", "nan", "inf", "shape", "count"):
        got = want.float()
        if spoil == "value":
            got[3, 5] += 0.01
        elif spoil in ("nan", "inf"):
            got[3, 5] = float(spoil)
        got = got[:, :-1] if spoil == "shape" else (got, got) if spoil == "count" else got
        verdict = compare(got, want)
        assert not verdict.ok and verdict.problem
    assert compare(torch.full((2,), float("nan")), torch.full((2,), float("nan"))).ok
    assert compare(torch.tensor([1e6]).half(), torch.tensor([1e6])).ok  # overflows as it must
    assert not compare(torch.tensor([3]), torch.tensor([4])).ok
    rough = want.float() + 1e-3
    assert not compare(rough, want).ok and compare(rough, want, tf32=True).ok
    assert compare(rough, want, beside=1e-3).ok  # no worse than three times torch's own error


def test_a_result_that_is_not_written_shows():
    block = torch.zeros(8)
    assert on_poison(lambda: block).isnan().all()
    assert not compare(on_poison(lambda: block), torch.zeros(8)).ok
    assert set(BOUNDS) >= {torch.float32, torch.bfloat16}


def reported(text, shapes, against=("eager",), dtype="f32"):
    built = pipeline.build(text)
    ((name, plans),) = built.plans.items()
    calls = [call_of([p.op for p in plans], n, dtype) for n in parse_shapes(shapes)]
    return run.bench(built, name, calls, against, device="cpu", timer=Clock(), peaks=PEAKS)


def test_rows_of_a_spec():
    found = reported(open("specs/linear_gelu.op").read(), ["M=8..16,N=32,K=16"])
    assert [(r.sizes["M"], r.contender, r.problem) for r in found.rows] == [
        *[(8, "ours", ""), (8, "eager", "")],
        *[(16, "ours", ""), (16, "eager", "")],
    ]
    first = found.rows[0]
    assert first.microseconds == 1000 and first.bytes == 4 * (8 * 16 + 32 * 16 + 32 + 8 * 32)
    assert first.percent == pytest.approx(100 * first.bytes / 1e12 / 1e-3)
    columns, lines = report.table(found)
    assert columns[:4] == ["shape", "ours us", "eager us", "eager/ours"]
    assert lines[0][:4] == ["M=8, K=16, N=32, f32", "1000", "1000", "1.00"]
    assert len(set(map(len, report.plain(columns, lines)))) <= 2
    assert "copy 1000 GB/s, bf16 100 TFLOP/s" in report.head(found)


def test_what_is_wrong_is_not_timed():
    """A `ref` that says something else: one of the two is wrong, and neither figure would mean anything."""
    spec = 'op twice<T: float>(x: T[...]) -> y: T[...] {\n  y = 2 * x\n  ref "x + x + 0.1"\n}\n'
    built = pipeline.build(spec)
    ((name, plans),) = built.plans.items()
    calls = [call_of([p.op for p in plans], {"...": (64,)}, "f32")]
    right = {"ours": lambda: torch.ones(4), "eager": lambda: torch.zeros(4)}
    verdicts = run.judge(right, calls[0][0], lambda: torch.ones(4, dtype=torch.float64))
    # A tensor that the call does not make anew is poisoned and stays so: these are made anew.
    assert verdicts["ours"].ok and not verdicts["eager"].ok
    refused = {"ours": lambda: torch.ones(4), "eager": lambda: torch.mm(torch.ones(2), 3)}
    assert "Error" in run.judge(refused, calls[0][0], lambda: torch.ones(4))["eager"].problem
    found = reported(open("specs/layer_norm.op").read(), ["batch=4,D=8"], dtype="T=bf16,U=f32")
    (theirs,) = (r for r in found.rows if r.contender == "eager")
    if theirs.problem:  # torch's own layer_norm wants one dtype
        assert theirs.microseconds is None and "eager on" in report.problems(found)[0]
        assert report.table(found)[1][0][2:4] == ["-", "-"]


def test_an_op_without_a_ref_runs_alone():
    found = reported(open("specs/int8_linear.op").read(), ["M=8,N=8,K=32"], dtype="bf16")
    assert [r.contender for r in found.rows] == ["ours"]


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    data = reported(open("specs/softmax.op").read(), ["batch=8,D=64..256"]).as_json()
    plot.plot(json.loads(json.dumps(data)), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    plot.plot({**data, "rows": []}, tmp_path / "b.png")  # nothing was timed: still a picture


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what to do without a GPU")
def test_the_command_without_what_it_needs(monkeypatch, tmp_path):
    def said(*args):
        result = CliRunner().invoke(main, ["bench", "specs/softmax.op", *args])
        return result.exit_code, result.stderr

    code, text = said("--shape", "batch=4,D=4")
    assert code == 1 and "`tritongen doctor`" in text
    monkeypatch.setattr(cli_tools, "require_gpu", lambda command: None)
    code, text = said("--shape", "batch=4,D=4", "--json", str(tmp_path / "none" / "x.json"))
    assert code == 1 and "x.json cannot be written" in text  # before anything is timed
    monkeypatch.setattr(plot.importlib.util, "find_spec", lambda name: None)
    code, text = said("--shape", "batch=4,D=4", "--png", str(tmp_path / "x.png"))
    assert code == 1 and "pip install 'tritongen[bench]'" in text
    assert said("--shape", "D=4")[0] == 2 and said()[0] == 2
    code, text = said("--shape", "batch=4,D=4", "--against", "jax")
    assert code == 2 and "'jax' is not one of" in text
