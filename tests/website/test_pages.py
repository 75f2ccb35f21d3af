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
from tritongen import pipeline

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


def test_what_was_measured_becomes_tables():
    gallery = pytest.importorskip("website.gallery")
    row = dict(op="f", contender="ours", shape="N=8, f32", microseconds=1.25, error=1e-7)
    report = dict(rows=[row, {**row, "contender": "eager", "microseconds": None}])
    assert "| N=8, f32 | 1.2 | - |" in gallery.speed_table(report)
    assert "| N=8, f32 | 1.0e-07 | 1.0e-07 |" in gallery.error_table(report)


@pytest.mark.slow
def test_the_site_builds(tmp_path):
    """Without a warning, with every page of the gallery; links to the playground are relative."""
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
