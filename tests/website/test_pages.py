"""The pages of the site: recipes of the cookbook are right, what tutorials show by hand is right, the gallery is whole."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tritongen
from benchmarks import gallery as measuring
from tritongen import pipeline
from tritongen.cost import Ceilings
from tritongen.shapes import parse_shapes
from website import gallery

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COOKBOOK = (DOCS / "cookbook.md").read_text()
RECIPES = {
    re.search(r"op (\w+)", text)[1]: text
    for text in re.findall(r"^```op\n(.*?)^```", COOKBOOK, re.M | re.S)
}
BY_HAND = sorted((DOCS / "tutorials").glob("*.py"))
PAGES = [*(DOCS / "tutorials").glob("*.md"), DOCS / "editors.md"]


def test_there_are_twenty_recipes():
    assert len(RECIPES) >= 20


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_without_a_warning(name):
    assert not pipeline.build(RECIPES[name], f"{name}.op").warnings


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECIPES.keys() - {"fp8"}))
def test_a_recipe_is_right(name, interpreter):
    """Its kernels equal the oracle, and its `ref`, on drawn calls."""
    job = {"text": RECIPES[name], "name": name, "examples": 8, "seconds": 20, "gradients": False}
    report = interpreter.ask({**job, "device": "cpu", "seed": 0}, timeout=180)
    assert not report["failures"], report["failures"]


def test_the_fp8_recipe_is_right():
    """On finite numbers, by its body in torch: Triton's interpreter drops a NaN of fp8 from a product."""
    x, w = (torch.randn(n, 8).to(torch.float8_e4m3fn) for n in (3, 5))
    sx, sw = torch.rand(3), torch.rand(5)
    y = tritongen.compile_op(RECIPES["fp8"])(x, w, sx, sw)
    expected = (x.float() @ w.float().T * sx[:, None] * sw).bfloat16()
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("file", BY_HAND, ids=lambda p: p.stem)
def test_what_is_written_by_hand_is_right(file):
    """Each file compares its kernel with torch and with the op of the spec, in Triton's interpreter."""
    done = subprocess.run(
        [sys.executable, str(file)],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_gallery_has_every_spec():
    groups = json.loads((ROOT / "website" / "gallery.json").read_text())
    names = [name for group in groups.values() for name in group]
    assert sorted(names) == sorted(p.stem for p in (ROOT / "specs").glob("*.op"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_what_a_page_asks_for_exists(page):
    for word, path in re.findall(r"^\{\{ (\w+) (\S+)", page.read_text(), re.M):
        folder = DOCS if word == "python" else ROOT
        assert (folder / path).is_file(), f"{page.name}: {word} {path}"


@pytest.mark.parametrize("name", ["first_op", "block"])
def test_a_notebook_runs(name):
    """Its cells are those of `website/notebooks.py`, whose texts are what they print now."""
    pytest.importorskip("IPython", reason="no IPython: `pip install 'tritongen[notebook]'`")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    from website.notebooks import FOLDER, NOTEBOOKS

    cells = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    assert ["".join(cell["source"]) for cell in cells] == NOTEBOOKS[name]
    shell = InteractiveShell.instance()
    for cell in cells:
        if cell["cell_type"] == "code":
            with capture_output() as said:
                done = shell.run_cell("".join(cell["source"]))
            assert done.success, done.error_in_exec
            texts = (t for o in cell["outputs"] for t in o.get("text", ()))
            if "randn" not in "".join(cell["source"]):
                assert "".join(texts) in said.stdout


class Clock:
    """Every call takes a millisecond."""

    def run(self, call):
        return lambda: 1e-3

    def settle(self):
        pass


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A file of the gallery's measurements, of one spec at tiny sizes on the CPU by a scripted clock."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    file, peaks = tmp_path / "gallery.json", Ceilings(1e12, {"bf16": 1e14, "i8": 1e14}, "scripted")
    built = measuring.prepared("softmax", "batch=4,D=16..32")
    report = measuring.measure(built, "batch=4,D=16..32", peaks, "cpu", Clock())
    measuring.write(file, {"softmax": report})
    assert measuring.read(file) == {"softmax": report}
    return file


def test_a_measurement_has_each_size_and_rival(measured):
    report = json.loads(measured.read_text())["softmax"]
    found = [(row["sizes"]["D"], row["contender"]) for row in report["rows"]]
    assert found[:4] == [(16, "ours"), (16, "eager"), (32, "ours"), (32, "eager")]
    assert found[4:] == [(32, "compile")]  # at the largest size only
    assert report["device"] == "cpu" and not report["matmul"] and not report["failed"]


def test_a_run_goes_on_where_the_last_one_ended(tmp_path, monkeypatch, capsys):
    """The device fails behind the second spec: the next run measures the third one alone."""
    here, file, failures, asked = (
        dict(device="a GPU"),
        tmp_path / "gallery.json",
        iter([0, 1, 0]),
        [],
    )

    def synchronize():
        if next(failures):
            raise RuntimeError("an illegal access")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(measuring, "machine", lambda device: here)
    monkeypatch.setattr(measuring, "ceilings", lambda precisions: None)
    monkeypatch.setattr(measuring, "shapes", lambda: dict(a="N=1", b="N=2", c="N=3"))
    monkeypatch.setattr(
        measuring, "builds", lambda wanted, seconds: asked.append([*wanted]) or wanted
    )
    monkeypatch.setattr(measuring, "measure", lambda *_: dict(**here, failed=[], rows=[]))
    measuring.main(["--file", str(file)])
    assert "run this again for c" in capsys.readouterr().out
    measuring.main(["--file", str(file)])
    assert "all are measured" in capsys.readouterr().out
    assert asked == [["a", "b", "c"], ["c"]] and list(measuring.read(file)) == ["a", "b", "c"]


def test_a_size_that_fails_is_named(monkeypatch):
    def fails(built, name, calls, *_):
        raise MemoryError("no room\nfor it")

    monkeypatch.setattr(measuring.run, "bench", fails)
    report = measuring.measure(
        measuring.prepared("relu", "batch=4"), "batch=4", Ceilings(1e12, {}, ""), "cpu"
    )
    assert report["failed"] == ["batch=4, bf16: MemoryError: no room"] and not report["rows"]


def test_the_gallery_with_and_without_measurements(measured, monkeypatch):
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[bench]'")
    monkeypatch.setattr(gallery, "RESULTS", measured)
    gallery.reports.cache_clear()
    page = gallery.page("softmax", "batch=4,D=16..32")
    assert "--shape batch=4,D=32` prints" in page  # the largest call
    assert "| shape | tritongen | torch eager | torch.compile |" in page
    assert "| batch=4, D=16, bf16 | 1,000.0 | 1,000.0 (1.00x) | - |" in page
    assert '<div class="plot"><svg' in page and "## Error" in page and "Not timed" not in page
    page = gallery.page("relu", "batch=16..64")
    assert "tritongen bench specs/relu.op --shape batch=16..64\n" in page and "## Error" not in page
    monkeypatch.setattr(gallery, "RESULTS", measured.parent / "none.json")
    gallery.reports.cache_clear()
    assert "not measured yet" in gallery.page("softmax", "batch=4,D=16..32")
    gallery.reports.cache_clear()


def test_what_was_measured_becomes_tables():
    row = dict(op="f", contender="ours", shape="N=8, f32", microseconds=1.25, error=1e-7)
    slower = {**row, "contender": "eager", "microseconds": 5.0, "error": None}
    wrong = {**row, "contender": "compile", "microseconds": None, "problem": "off by 1"}
    report = dict(
        rows=[row | {"problem": ""}, slower | {"problem": ""}, wrong], failed=["N=9: no room"]
    )
    assert "| N=8, f32 | 1.2 | 5.0 (4.00x) | - |" in gallery.speed_table(report)
    assert "| N=8, f32 | 1.0e-07 | - | 1.0e-07 |" in gallery.error_table(report)
    assert gallery.problems(report)[1] == "- torch.compile, N=8, f32: off by 1\n- N=9: no room"


def test_the_gallery_has_several_sizes_of_each_spec():
    assert all(len(parse_shapes([shape])) >= 3 for shape in measuring.shapes().values())


@pytest.mark.slow
def test_the_site_builds(tmp_path):
    """Without a warning, with every page of the gallery; links lead somewhere, those to the playground are relative."""
    pytest.importorskip("material", reason="no MkDocs: `make browser` installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*command, "--site-dir", str(tmp_path)], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for spec in (ROOT / "specs").glob("*.op"):
        page = (tmp_path / "gallery" / spec.stem / "index.html").read_text()
        assert "at least" in page and 'href="../../play/' in page
    assert "{{ " not in (tmp_path / "tutorials" / "softmax" / "index.html").read_text()
    for page in (p for p in tmp_path.rglob("*.html") if p.name != "404.html"):
        text = page.read_text()
        assert "<p>```" not in text, f"a block of {page} is not read as one"
        for link in re.findall(r' href="([^"#?:]+)["#?]', text):
            there = page.parent / link
            of_the_playground = "play" in link.split("/")  # which is bundled behind this
            assert of_the_playground or there.is_file() or (there / "index.html").is_file(), link
