"""What is drawn: a report of `bench` with characters, and `explain --png`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tritongen.bench.terminal import drawn
from tritongen.cli import main

ROOT = Path(__file__).parents[2]
ROW = dict(op="softmax", sizes=dict(D=1024), elements=8, bytes=8192, flops=4096, bound_by="memory")
REPORT = dict(device="a GPU", torch="2", triton="3", copy=4e12, matmul={})


def test_a_report_in_the_terminal():
    pytest.importorskip("plotext", reason="no plotext: pip install 'tritongen[bench]'")
    rows = [
        dict(ROW, contender=who, shape=f"D={d}", sizes=dict(D=d), microseconds=us * d, bytes=d * 64)
        for who, us in (("ours", 0.01), ("eager", 0.02))
        for d in (1024, 2048)
    ]
    shown = drawn(dict(REPORT, rows=rows))
    assert "softmax on a GPU: GB/s against size" in shown
    assert all(word in shown for word in ("tritongen", "torch eager", "roof", "1k", "2k"))
    assert max(map(len, shown.splitlines())) <= 100


def test_nothing_timed_is_nothing_drawn():
    assert drawn(dict(REPORT, rows=[dict(ROW, microseconds=None)])) == ""


def test_explain_as_a_picture(tmp_path):
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install 'tritongen[bench]'")
    picture = tmp_path / "softmax.png"
    spec = str(ROOT / "specs" / "softmax.op")
    command = ["explain", spec, "--shape", "batch=64,D=1024..2048", "--png", str(picture)]
    assert CliRunner().invoke(main, command).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert CliRunner().invoke(main, ["explain", spec, "--png", str(picture)]).exit_code == 2
