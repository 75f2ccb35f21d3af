"""Each `tests/golden/errors/<name>.op` is refused with exactly the text of `<name>.txt`.

`UPDATE_GOLDEN=1 pytest tests/check/test_golden_errors.py` writes the texts anew: read the diff.
"""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

import tritongen.check as checker
from tritongen import pipeline
from tritongen.errors import CODES, Diagnostic, SpecError

FOLDER = Path(__file__).parents[1] / "golden" / "errors"


SPECS = sorted(FOLDER.glob("*.op"))


def findings(text: str, name: str) -> tuple[Diagnostic, ...]:
    """Errors of parsing, else those of checking, else the warnings; an accepted spec has none."""
    try:
        file = checker.read(text, name)
        return tuple(warning for checked in checker.check(file) for warning in checked.warnings)
    except SpecError as error:
        return error.diagnostics


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_golden(spec):
    found = findings(spec.read_bytes().decode(), spec.name)
    assert all(finding.code in CODES for finding in found)
    text, golden = str(SpecError(found)) + "\n", spec.with_suffix(".txt")
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8", newline="\n")
    assert text == golden.read_text(encoding="utf-8")


def errors(text: str) -> tuple[Diagnostic, ...]:
    return findings(text, "fixed.op")


def said(found: tuple[Diagnostic, ...]) -> Counter:
    return Counter((d.code, d.message) for d in found)


def mended(text: str) -> str:
    """The text with fixes applied, first one first, until none is left."""
    for _ in range(8):
        fix = next((d.fix for d in errors(text) if d.fix is not None), None)
        if fix is None:
            return text
        text = fix.applied()
    raise AssertionError(f"fixes without end: {text}")


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_a_fix_is_right_when_applied(spec):
    """Each takes its error away and leads to no other; a spec that has one for each error then builds."""
    text = spec.read_bytes().decode()
    before = errors(text)
    for d in before:
        if d.fix is not None:
            assert d.advice in spec.with_suffix(".txt").read_text()
            after = errors(d.fix.applied())
            same = [e for e in after if (e.code, e.message) == (d.code, d.message)]
            again = all(e.fix and e.span.start > d.span.start for e in same)
            assert again or len(same) < said(before)[d.code, d.message]
            new = said(after) - said(before)
            assert all(d.fix or "W" in d.code for d in after if (d.code, d.message) in new), new
    if before and all(d.fix for d in before):
        assert pipeline.build(mended(text)).ops


def test_every_code_of_the_language_alone_has_a_golden():
    shown = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt"))
    # limits and unreadable files are in test_syntax.py
    wanted = {code for code in CODES if "E003" <= code <= "E006" or "E101" <= code <= "E111"}
    assert {code for code in wanted if f"error[{code}]" not in shown} == set()


def test_every_code_in_the_compiler_has_a_meaning():
    package = Path(checker.__file__).parents[1]
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    used = {code for text in texts for code in re.findall(r'"([EW]\d{3})"', text)}
    assert used <= set(CODES)
