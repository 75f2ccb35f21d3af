"""The layout of a spec: what `tritongen fmt` writes.

    laid_out("y=x[n ,d]")  ->  "y = x[n, d]\n"

Line breaks and comments stay where they are. Spaces between tokens, indentation and blank lines follow rules, and the
`=` of lines that stand together are aligned where they already were. The tokens are the same before and after, and a
second pass changes nothing. Not here: the tree's own text, which drops comments (`unparse.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tritongen.syntax.highlight import Token, tokens
from tritongen.syntax.names import CLAUSES

INDENT = 2  # of a line in braces
HANGING = 4  # of a line that goes on
OPERATORS = frozenset("+ - * / // % ** == != < <= > >= = -> |".split())
WORDS = frozenset("and or not else with const".split())  # behind which a line goes on


def laid_out(text: str) -> str:
    """The text with its layout put right; the text itself where it has characters that are no tokens."""
    rows = list(_rows(text))
    if any(t.kind == "error" for row in rows for t in row):
        return text
    generics = _generics([t for row in rows for t in row if t.kind != "comment"])
    lines = [
        _joined(row, before, generics) for row, before in zip(rows, _before(rows), strict=True)
    ]
    indents = _indents(rows, lines)
    shown = [" " * i + line if line else "" for i, line in zip(indents, lines, strict=True)]
    return "\n".join(_few_blanks(_aligned(rows, shown))).strip("\n") + "\n" if any(lines) else ""


def _rows(text: str) -> Iterator[list[Token]]:
    """The tokens of each line."""
    row: list[Token] = []
    for token in tokens(text):
        for _ in range(token.text.count("\n") if token.kind == "space" else 0):
            yield row
            row = []
        if token.kind != "space":
            row.append(token)
    yield row


def _before(rows: list[list[Token]]) -> Iterator[Token | None]:
    """For each line the token in front of it."""
    last: Token | None = None
    for row in rows:
        yield last
        last = next((t for t in reversed(row) if t.kind != "comment"), last)


def _generics(found: list[Token]) -> set[int]:
    """Where the angle brackets of type parameters stand: those behind the name of an op."""
    places: set[int] = set()
    inside = False
    for before, token in zip([None, *found], found, strict=False):
        if token.text == "<" and before is not None and before.kind == "definition":
            inside = True
            places.add(token.start)
        elif inside and token.text == ">":
            inside = False
            places.add(token.start)
    return places


def _joined(row: list[Token], before: Token | None, generics: set[int]) -> str:
    """A line with the spaces that belong between its tokens; `before` stands in front of it."""
    out = ""
    for k, token in enumerate(row):
        if k:
            two = row[k - 2] if k > 1 else before
            out += _gap(two, row[k - 1], token, generics)
        out += token.text.rstrip()
    return out


def _gap(two: Token | None, left: Token, right: Token, generics: set[int]) -> str:
    """The spaces between two tokens of a line; `two` stands before the left one."""
    if right.kind == "comment":
        return " " * max(2, right.start - left.end)  # which may stand below another
    if left.text in ("(", "[") or right.text in (")", "]", ",", ":"):
        return ""
    if left.start in generics:
        return "" if left.text == "<" or right.text == "(" else " "
    if right.start in generics:
        return ""
    if right.text in ("(", "["):
        called = left.kind in ("name", "function", "definition", "size", "type", "reducer")
        return (
            ""
            if called or left.text in (")", "]") and right.text == "(" or _is_sign(two, left)
            else " "
        )
    return "" if _is_sign(two, left) else " "


def _is_sign(before: Token | None, token: Token) -> bool:
    """Whether a minus has no left side."""
    if token.text != "-":
        return False
    return (
        before is None
        or before.text in OPERATORS
        or before.text in ("(", "[", ",", "{")
        or before.kind == "keyword"
    )


def _indents(rows: list[list[Token]], lines: list[str]) -> list[int]:
    """How far in each line begins."""
    layout = _Indents()
    return [layout.of(row, line) if row else 0 for row, line in zip(rows, lines, strict=True)]


class _Indents:
    """Indentation, line by line: what is open, and what goes on."""

    def __init__(self) -> None:
        self.open: list[tuple[str, int]] = []  # brackets, and the columns of what goes on in them
        self.base = 0  # of the statement
        self.facts = 0  # of what `with` says; 0 elsewhere
        self.last: Token | None = None

    def of(self, row: list[Token], line: str) -> int:
        """The indentation of a line that has tokens."""
        first, depth = row[0], sum(bracket == "{" for bracket, _ in self.open)
        if first.text == "}":
            indent = self.base = INDENT * max(0, depth - 1)
        elif self.open and self.open[-1][0] != "{":
            indent = self.open[-1][1]
        elif first.kind == "comment" and (self.last is None or _ends(self.last)):
            indent = INDENT * depth
        elif _begins(first, self.last, depth):
            indent = self.base = INDENT * depth
            self.facts = 0
        else:
            goes_on = self.facts and first.text not in ("with", "->")
            indent = self.facts if goes_on else self.base + HANGING
        self._passed(row, line, indent)
        return indent

    def _passed(self, row: list[Token], line: str, indent: int) -> None:
        """Notes what a line opens and closes."""
        at = 0
        for k, token in enumerate(row):
            word = token.text.rstrip()
            column = indent + line.index(word, at)
            at = line.index(word, at) + len(word)
            if word == "with":
                self.facts = column + len("with ")
            elif token.kind == "punctuation" and word in ("(", "[", "{"):
                is_last = all(t.kind == "comment" for t in row[k + 1 :])
                self.facts = 0 if word == "{" else self.facts
                self.open.append((word, self.base + HANGING if is_last else column + 1))
            elif token.kind == "punctuation" and word in (")", "]", "}") and self.open:
                self.open.pop()
            if token.kind != "comment":
                self.last = token


def _ends(token: Token) -> bool:
    return token.text not in OPERATORS and token.text not in WORDS and token.text != ","


def _begins(first: Token, last: Token | None, depth: int) -> bool:
    """Whether a line begins a statement rather than going on with one."""
    if first.text in ("op", "fn") or last is None or last.text in ("{", "}"):
        return True
    if first.text in ("with", "->", "and", "or", "else") or first.kind == "string":
        return False
    if first.text in OPERATORS or first.text == "{":
        return False
    return (
        depth > 0 and _ends(last) and (first.kind in ("name", "function") or first.text in CLAUSES)
    )


def _few_blanks(lines: list[str]) -> Iterator[str]:
    """No two blank lines in a row, and none behind an opening or before a closing brace."""
    kept: list[str] = []
    for line in lines:
        if line == "" and (not kept or kept[-1] == "" or kept[-1].endswith("{")):
            continue
        if line.strip() == "}" and kept and kept[-1] == "":
            kept.pop()
        kept.append(line)
    yield from kept


def _aligned(rows: list[list[Token]], lines: list[str]) -> list[str]:
    """The `=` of neighbouring lines in one column, where the text had them so."""
    out, places = list(lines), [_assigned(row) for row in rows]
    columns = [
        None if p is None else rows[k][p].start - rows[k][0].start for k, p in enumerate(places)
    ]
    for column, group in groupby(range(len(rows)), key=columns.__getitem__):
        run = list(group)
        if column is not None and len(run) > 1:
            heads = [_head(lines[k], rows[k][: places[k]]) for k in run]
            width = max(map(len, heads))
            for k, head in zip(run, heads, strict=True):
                out[k] = head.ljust(width) + lines[k][len(head) :]
    return out


def _assigned(row: list[Token]) -> int | None:
    """The place of the `=` of a line `name[indices] = ...`."""
    if len(row) < 3 or row[0].kind != "name":
        return None
    depth = 0
    for k, token in enumerate(row):
        depth += (token.text == "[") - (token.text == "]")
        if token.text == "=" and depth == 0:
            return k
        if depth == 0 and k and token.text not in ("]",):
            return None
    return None


def _head(line: str, before: list[Token]) -> str:
    """The line up to the end of its left side."""
    at = 0
    for token in before:
        at = line.index(token.text, at) + len(token.text)
    return line[:at]
