"""Proposals: what `help:` shows as corrected code compiles, for specs that are wrong in drawn ways."""

import random
import re
from pathlib import Path

import pytest

from tritongen.check import check, read
from tritongen.errors import Diagnostic, Fix, Source, Span, SpecError, proven

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.op"))
OP = re.compile(r"^op .*?^}", re.DOTALL | re.MULTILINE)


def findings(text: str) -> tuple[Diagnostic, ...]:
    try:
        check(read(text, "drawn.op"))
    except SpecError as error:
        return error.diagnostics
    return ()


def said(found: tuple[Diagnostic, ...]) -> list[tuple[str, str]]:
    return sorted((d.code, d.message) for d in found)


# ---- ways to be wrong: each takes a text and gives a text with one slip, or None --------------------
def renamed_index(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r"(?<=[\[ ])[a-z](?=[\],])", lambda _: draw.choice("hjkz"))


def dropped_bound(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r"(?<=\w) <=? \w+(?=[\],])", lambda _: "")


def swapped_size(draw: random.Random, text: str) -> str | None:
    sizes = sorted(set(re.findall(r"\b[A-Z]\b", text)))
    return replaced(draw, text, r"\b[A-Z](?=[\],])", lambda _: draw.choice(sizes))


def dropped_comma(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r", (?=\w)", lambda _: " ")


def misspelt_name(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r"\b[a-z_]{4,}(?=[(\[])", lambda m: m[0][:-1])


def dropped_index(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r", [a-z](?=\])", lambda _: "")


def replaced(draw: random.Random, text: str, pattern: str, by) -> str | None:
    start = text.index("{") if "{" in text else 0
    found = [m for m in re.finditer(pattern, text) if by is not None and m.start() > 3]
    body = [m for m in found if m.start() > start] or found
    if not body:
        return None
    m = draw.choice(body)
    return text[: m.start()] + by(m) + text[m.end() :]


SLIPS = (
    renamed_index,
    dropped_bound,
    swapped_size,
    dropped_comma,
    misspelt_name,
    dropped_index,
)


def ops() -> list[str]:
    texts = [path.read_text() for path in SPECS]
    return [t for text in texts for t in OP.findall(text) if len(t) < 900 and not findings(t)]


@pytest.fixture(scope="module")
def wrong() -> list[str]:
    """Specs with one slip each, drawn from a seed."""
    draw = random.Random(42)
    right = draw.sample(ops(), 16)
    drawn = (slip(draw, text) for text in right for slip in SLIPS)
    return [text for text in drawn if text is not None]


def test_what_is_proposed_for_a_drawn_slip_compiles(wrong):
    shown = 0
    for text in wrong:
        found = findings(text)
        fixed = [d for d in found if d.fix is not None]
        shown += len(fixed)
        for d in fixed:
            left = findings(d.fix.applied())
            line = d.fix.applied()[: d.fix.span.start].count("\n") + 1
            here = [e for e in left if e.span and e.span.line_column()[0] == line]
            new = [e for e in left if (e.code, e.message) not in said(found)]
            shown_as = f"{SpecError([d])}\n\n{SpecError(left)}"
            assert not [e for e in here if e in new], shown_as
            if d.code >= "E102" and d.code != "E107":  # not of a text that is read no further
                assert all(e.fix for e in new), shown_as
    assert shown > 20


def test_of_candidates_the_first_that_asks_least_is_taken():
    source = Source("t.op", "a b")
    span = Span(source, 0, 1)
    fixes = [Fix(span, text) for text in ("wrong", "asks", "right", "later")]
    d = Diagnostic("E203", "no range", span, fix=fixes[0], others=tuple(fixes[1:]))

    def compiled(text: str):
        word = text.split()[0]
        other = Diagnostic("E401", "outside", span)
        return ([other] if word == "wrong" else []), int(word == "asks")

    assert [f.fix for f in proven([d], compiled)] == [fixes[2]]
    assert [f.fix for f in proven([d], lambda _: ([d], 0))] == [None]


def test_the_texts_that_are_tried_are_few():
    source, tried = Source("t.op", "x" * 100), []
    found = [
        Diagnostic(
            "E113", f"unknown {k}", Span(source, k, k + 1), fix=Fix(Span(source, k, k + 1), "y")
        )
        for k in range(60)
    ]
    proven(found, lambda text: tried.append(text) or (found, 0))
    assert len(tried) <= 32
