"""Each `tests/golden/errors/<name>.op` is refused with exactly the text of `<name>.txt`.

`UPDATE_GOLDEN=1 pytest tests/test_golden_errors.py` writes the texts anew: read the diff.
"""

import os
import re
from pathlib import Path

import pytest

import tritongen.check as checker
from tritongen.errors import CODES, SpecError
from tritongen.syntax.parse import parse

FOLDER = Path(__file__).parent / "golden" / "errors"


def findings(path: Path) -> str:
    """Errors of parsing, else those of checking, else the warnings; an accepted spec has none."""
    try:
        file = parse(path.read_bytes().decode(), path.name)
        found = [warning for checked in checker.check(file) for warning in checked.warnings]
    except SpecError as error:
        found = error.diagnostics
    assert all(finding.code in CODES for finding in found)
    return str(SpecError(found)) + "\n"


@pytest.mark.parametrize("spec", sorted(FOLDER.glob("*.op")), ids=lambda path: path.stem)
def test_golden(spec):
    text, golden = findings(spec), spec.with_suffix(".txt")
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8", newline="\n")
    assert text == golden.read_text(encoding="utf-8")


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
