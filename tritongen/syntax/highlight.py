"""What an editor colours: every character of a text in tokens, whether or not it is a spec.

    [(t.kind, t.text) for t in tokens("y = x  # a copy")]
    -> [("name", "y"), ("space", " "), ("operator", "="), ...]

The terminals are the grammar's own (`_tables.py`), so a new keyword is coloured everywhere: `lexer.py`
for Pygments, `textmate.py` and the playground read this module. Not here: what is wrong with a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tritongen.syntax import _tables

KINDS = {
    "DTYPE": "type",
    "REDUCER": "reducer",
    "BOOL": "constant",
    "INF": "constant",
    "COMMENT": "comment",
    "NAME": "name",
    "UPPER": "size",
    "NUMBER": "number",
    "STRING": "string",
    "ELLIPSIS": "constant",
}
PUNCTUATION = frozenset("COLON COMMA LBRACE LPAR LSQB RBRACE RPAR RSQB".split())
_CALLED = re.compile(r"\s*\(")


class Token(NamedTuple):
    kind: str  # one of KINDS, or keyword, function, definition, operator, punctuation, space, error
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@cache
def _pattern() -> re.Pattern:
    terminals = (f"(?P<{name}>{pattern})" for name, pattern in _tables.TERMINALS)
    return re.compile("|".join(terminals), re.ASCII)


def tokens(text: str) -> Iterator[Token]:
    """All of a text, in order; what the language has no use for is an `error`, a character at a time."""
    position, before = 0, ""
    while position < len(text):
        found = _pattern().match(text, position)
        word = found.group() if found else text[position]
        kind = _kind(found.lastgroup or "", word) if found else "error"
        if kind == "name" and before in ("op", "fn"):
            kind = "definition"
        elif kind == "name" and _CALLED.match(text, position + len(word)):
            kind = "function"
        yield Token(kind, word, position)
        position += len(word)
        before = before if kind in ("space", "comment") else word


def _kind(terminal: str, word: str) -> str:
    if terminal == "NAME" and word in _tables.KEYWORDS:
        return "keyword"
    if terminal.startswith("__IGNORE"):
        return "space"
    return KINDS.get(terminal) or ("punctuation" if terminal in PUNCTUATION else "operator")
