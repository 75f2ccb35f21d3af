"""What editors ask of a spec: colours, findings, hovers, definitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tritongen import editor
from tritongen.syntax import textmate
from tritongen.syntax.highlight import tokens

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").glob("*.op"))
TEXT = (ROOT / "specs" / "softmax.op").read_text()


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_tokens_are_the_text(spec):
    text = spec.read_text()
    found = list(tokens(text))
    assert "".join(t.text for t in found) == text
    assert not [t for t in found if t.kind == "error"]


def test_what_is_no_spec_has_tokens_too():
    assert [t.kind for t in tokens("y = $é")][-2:] == ["error", "error"]


def test_pygments_gives_the_text_back():
    from tritongen.syntax.pygments_lexer import OpLexer

    assert "".join(text for _, text in OpLexer().get_tokens(TEXT)) == TEXT


def test_the_textmate_grammar_is_that_of_the_language():
    """`python -m tritongen.syntax.textmate` writes it."""
    assert textmate.GRAMMAR.read_text() == textmate.grammar()
    assert json.loads(textmate.grammar())["scopeName"] == "source.op"


def test_findings_have_places_and_fixes():
    (found,) = editor.findings(TEXT.replace("e[..., k]", "e[..., q]"))
    assert (found.code, TEXT[found.span.start : found.span.end]) == ("E202", "k")
    assert editor.findings(TEXT) == ()


@pytest.mark.parametrize(
    "word, shown",
    [
        ("softmax", "op softmax<T: float>"),
        ("x: T", "x: T["),
        ("d] ", "0 <= d < D"),
        ("exp", "torch.exp"),
    ],
)
def test_hovers(word, shown):
    assert shown in editor.hover(TEXT, TEXT.index(word))


def test_definitions():
    use = TEXT.index("e[..., k]")
    place = editor.definition(TEXT, use)
    assert place is not None and place.line_column() == (3, 3)
    assert editor.definition(TEXT, TEXT.index("exp")) is None
