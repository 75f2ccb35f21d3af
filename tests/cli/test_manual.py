"""docs/language.md: its examples run, its tables are the code's, and each of its entries is found."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import tritongen
import tritongen.check as checker
from tritongen import api, manual
from tritongen.cli import main
from tritongen.errors import CODES, SpecError
from tritongen.syntax.parse import parse

ROOT = Path(__file__).parents[2]
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


def test_the_readme_runs(monkeypatch):
    """Its Python, but for the kernel that it shows, and the message of the mistake that it shows."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(ROOT)
    for _, _, text in blocks(page):
        if not text.startswith("@triton"):
            exec(text, {})
    mistake = "op linear<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N] {\n  y[m, n] = x[m, k] * w[n, k]\n}\n"
    with pytest.raises(SpecError) as refused:
        api._compile(mistake, "linear.op")
    assert str(refused.value) in page


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda p: p.name
)
def test_links_lead_somewhere(page):
    """Relative links of the pages, with their anchors."""
    text = page.read_text(encoding="utf-8")
    for link in re.findall(
        r"\]\(((?!https?:)[^)\s]+)\)", re.sub(r"```.*?```|``.*?``|`[^`]+`", "", text, flags=re.S)
    ):
        file, _, anchor = link.partition("#")
        if file.startswith("/"):
            continue  # what `make site` makes
        there = page.parent / file if file else page
        assert there.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)", there.read_text(encoding="utf-8"), re.M)
            assert anchor in {
                re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles
            }, link


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
