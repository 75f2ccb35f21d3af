"""docs/language.md: its examples run, its tables are the code's, and each of its entries is found."""

from __future__ import annotations

import doctest
import re

import pytest
import torch
from click.testing import CliRunner

import tritongen
import tritongen.check as checker
from tritongen import api, manual
from tritongen.cli import main
from tritongen.errors import CODES, SpecError
from tritongen.syntax.parse import parse

BLOCK = re.compile(r"^```(op|python) ?(\w*)\n(.*?)^```", re.M | re.S)


def blocks(text: str) -> list[tuple[str, str, str]]:
    return [found.groups() for found in BLOCK.finditer(text)]


SHOWN = [e for e in manual.manual() if blocks(e.text)]


@pytest.mark.parametrize("entry", SHOWN, ids=lambda e: e.title)
def test_examples_run(entry):
    run_all(entry.text, entry.title)


@pytest.mark.slow
def test_the_page_on_training_runs():
    run_all((manual.path().parent / "training.md").read_text(encoding="utf-8"), "training.md")


def run_all(page: str, title: str) -> None:
    """An `op` block compiles, and the lines behind it print what they say; one with a code is refused by it."""
    scope = {"torch": torch, "tritongen": tritongen}
    for kind, code, text in blocks(page):
        if kind == "op" and code:
            assert code in codes(text), title
        elif kind == "op":
            ops = api._compile(text, "<text>")
            scope |= {op.__name__: op for op in ops}
        elif ">>>" in text:
            run(text, title, scope)
        else:
            exec(text, scope)


def codes(text: str) -> set[str]:
    try:
        return {w.code for c in checker.check(parse(text, "<text>")) for w in c.warnings}
    except SpecError as error:
        return {error.diagnostics[0].code}


def run(text: str, name: str, scope: dict) -> None:
    test = doctest.DocTestParser().get_doctest(text, dict(scope), name, None, None)
    said: list[str] = []
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.DocTestRunner(optionflags=options).run(test, out=said.append)
    assert result.attempted and not result.failed, "".join(said)


def test_the_tables_are_those_of_the_code():
    text = manual.path().read_text(encoding="utf-8")
    assert manual.refreshed(text) == text, "run `python -m tritongen.manual`"


def test_every_code_has_its_entry():
    titles = {e.title for e in manual.manual()}
    assert {f"{code}: {meaning}" for code, meaning in CODES.items()} <= titles


@pytest.mark.parametrize(
    "name", ["E203", "else", "softplus", "gelu", "sum", "argmax", "compile_expr"]
)
def test_lookup(name):
    found = CliRunner().invoke(main, ["docs", name])
    assert found.exit_code == 0 and name in found.output


def test_lookup_of_nothing_names_the_nearest():
    found = CliRunner().invoke(main, ["docs", "softpluss"])
    assert found.exit_code == 2 and "`softplus`" in found.output
