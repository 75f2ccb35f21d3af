"""Templates are kernels: with plain slots each runs, and what a kernel calls its own is changed in its template."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tritongen import pipeline
from tritongen.emit import names, op_view
from tritongen.resources import package_folder

ROOT = Path(__file__).parents[2]
STEP = r"tl\.(?:program_id|num_programs|load|store|atomic_\w+|dot|range|static_range)\b"
PRINTED = {"addressing": ["tl.load"], "kernel_writer": ["tl.store"]}  # by one function each
# Statements of `tritongen/kernel`, which no template knows: one place prints each kind.
PRINTED |= {
    "frames": ["tl.program_id"],
    "loop_ends": ["tl.static_range", "tl.range"],
    "fused": ["tl.dot", "tl.atomic_add"],
}


@pytest.mark.slow
@pytest.mark.parametrize("checks", ["template_checks.py", "nest_checks.py"])
def test_with_plain_slots_they_compute(checks, run_checks):
    run_checks(checks)


def texts(module: Path) -> Iterator[str]:
    """What a module may print: its strings, but for docstrings."""
    tree = ast.parse(module.read_text())
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    documented = {
        ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, kinds)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value not in documented:
                yield node.value


def test_python_says_no_step_of_a_kernel():
    for module in sorted(package_folder("emit").glob("*.py")):
        said = [step for text in texts(module) for step in re.findall(STEP, text)]
        assert said == PRINTED.get(module.stem, []), (module.stem, said)


def built(name: str) -> str:
    for kept in (op_view.environment, names.words_of, pipeline.build):
        kept.cache_clear()
    return pipeline.build((ROOT / "specs" / f"{name}.op").read_text(), f"{name}.op").raw


def test_a_local_is_renamed_in_the_template_alone(tmp_path, monkeypatch):
    locals_ = {
        "walk": "step",
        "row": "tiles",
        "two_pass": "lagging",
    }
    locals_ |= {"window": "kept", "tile": "tiles", "patches": "tiles_n"}
    specs = "group_norm", "middle_mean", "softmax", "max_pool1d", "index_add", "conv1d"
    plain = {name: built(name) for name in specs}
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    for template, word in locals_.items():
        file = tmp_path / "templates" / f"{template}.py.j2"
        text, count = re.subn(rf"\b{word}\b", f"renamed_{word}", file.read_text())
        assert count
        file.write_text(text)
    for module in (op_view, names):
        monkeypatch.setattr(module, "folder", lambda name: tmp_path / name)
    try:
        renamed = {name: built(name) for name in specs}
    finally:
        monkeypatch.undo()
        built(specs[0])  # from the templates that are there
    for name, text in renamed.items():
        assert "renamed_" in text
        assert text.replace("renamed_", "") == plain[name]
