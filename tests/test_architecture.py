"""docs/architecture.md shows what the stages print, and its table is the house; the glossary has no word twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tritongen.show import stage_text

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
SPEC = next(text for kind, text in BLOCKS if kind == "op")


@pytest.mark.parametrize("kind, text", BLOCKS, ids=lambda value: value.split("\n")[0][:20])
def test_blocks_are_what_the_stages_print(kind, text):
    stage = {"op": "", "grad": "ir"}.get(kind, kind)
    shown = [stage_text(SPEC, "rms.op", stage, grad=back) for back in (False, True) if stage]
    assert any(text.rstrip() in every for every in shown or [SPEC])


def test_the_table_has_every_folder():
    folders = {p.parent.name for p in (ROOT / "tritongen").glob("*/__init__.py")}
    assert folders <= set(re.findall(r"(\w+)/`", PAGE))


def test_the_glossary_is_short_and_in_order():
    page = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^\| ([^|]+) \|", page, re.M)[1:]
    assert words == sorted(words, key=str.casefold) and len(words) == len(set(words)) <= 35
