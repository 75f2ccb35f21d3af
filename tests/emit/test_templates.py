"""Templates are kernels: with plain slots each runs, and what a kernel calls its own is changed in its template."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tritongen import pipeline
from tritongen.emit import names, op_view

ROOT = Path(__file__).parents[2]


def test_with_plain_slots_they_compute(run_checks):
    run_checks("template_checks.py")


def built(name: str) -> str:
    for kept in (op_view.environment, names.words_of, pipeline.build):
        kept.cache_clear()
    return pipeline.build((ROOT / "specs" / f"{name}.op").read_text(), f"{name}.op").raw


def test_a_local_is_renamed_in_the_template_alone(tmp_path, monkeypatch):
    locals_ = {"loop": "step", "part": "step", "block": "step", "row": "tiles", "relay": "behind"}
    specs = "group_norm", "middle_mean", "softmax"
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
