"""Limits of a spec. They are checked before anything recurses over it.

Input: bytes, text, or tokens. Output: nothing, or a `SpecError` with one finding and its place. A spec may come from a
stranger, so the answer is quick whatever its size or its characters. `build` counts operations and ranks, against the
same numbers.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise, takewhile
from pathlib import Path

from tritongen.errors import Diagnostic, Fix, Source, Span, SpecError
from tritongen.files import read_regular
from tritongen.syntax.lexer import Token

MAX_BYTES = 64 * 1024
MAX_TOKENS = 10_000
MAX_DEPTH = 64
MAX_RANK = 8
MAX_OPERATIONS = 256
MAX_INTEGER = 2**63 - 1
MAX_EXPANDED = 4096  # operations of one op, once macros and ops are pasted in
MAX_NESTS = 512  # and its lines
MAX_TYPINGS = 16  # choices of kinds of an op's type parameters: each is an op of its own
MAX_PARTS = 512  # of a size or coordinate, once derived sizes are put in
MAX_FINDINGS = 20

OPENERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
CLOSERS = {closer: opener for opener, closer in OPENERS.items()}
TEXT = {"LPAR": "(", "LSQB": "[", "LBRACE": "{", "RPAR": ")", "RSQB": "]", "RBRACE": "}"}

_SUSPECT = re.compile(r"\r(?!\n)|[^\t\n\r\x20-\x7e]")


def read_source(path: str | Path) -> Source:
    """The file's text; a file over the limit is not read to its end."""
    name = str(path)
    try:
        data = read_regular(path, MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError([Diagnostic("E012", f"cannot read {name!r}: {reason}")]) from None
    if len(data) > MAX_BYTES:
        raise _too_large(name)
    try:
        return checked_source(data.decode("utf-8"), name)
    except UnicodeDecodeError as error:
        before = Source(name, data[: error.start].decode("utf-8") + "\N{REPLACEMENT CHARACTER}")
        span = Span(before, len(before.text) - 1, len(before.text))
        label = f"byte 0x{data[error.start]:02x}"
        raise SpecError([Diagnostic("E002", "the file is not UTF-8", span, label)]) from None


def checked_source(text: str, name: str) -> Source:
    """The text without its byte order mark, its size and its characters checked."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _too_large(name)
    source = Source(name, text.removeprefix("\ufeff"))
    for found in _SUSPECT.finditer(source.text):
        char = found.group()
        # letters and marks of any script may stand in comments and in `doc`; what hides or
        # reorders the text around it may stand nowhere
        if unicodedata.category(char)[0] in "CZ" and char != "\N{NO-BREAK SPACE}":
            point = f"U+{ord(char):04X} {unicodedata.name(char, 'control character')}"
            span = Span(source, found.start(), found.end())
            message = "a character that does not show"
            raise SpecError([Diagnostic("E003", message, span, label=point, help="delete it")])
    return source


def _too_large(name: str) -> SpecError:
    source = Source(name, "")
    message = f"the text is larger than {MAX_BYTES // 1024} KiB"
    help = "split it into several files"
    return SpecError([Diagnostic("E001", message, Span(source, 0, 0), help=help)])


def check_tokens(source: Source, tokens: list[Token]) -> None:
    """Their number, how deep brackets nest, and that they pair."""
    if len(tokens) > MAX_TOKENS:
        span = _span(source, tokens[MAX_TOKENS])
        help = "split it into several files"
        raise SpecError([Diagnostic("E007", f"more than {MAX_TOKENS:,} tokens", span, help=help)])
    opened: list[Token] = []
    for token, following in pairwise(tokens):
        if token.type in OPENERS:
            opened.append(token)
            if len(opened) > MAX_DEPTH:
                message = f"brackets nest deeper than {MAX_DEPTH}"
                help = "give a part a name on a line of its own"
                span = _span(source, token)
                raise SpecError([Diagnostic("E008", message, span, help=help)])
        elif token.type in CLOSERS:
            if CLOSERS[token.type] not in [opener.type for opener in opened]:
                message = f"`{token.text}` closes nothing"
                raise SpecError([Diagnostic("E101", message, _span(source, token))])
            opener = opened.pop()
            if OPENERS[opener.type] != token.type:
                raise SpecError([_unpaired(source, tokens, [*opened, opener], token)])
        elif token.type in ("OP", "FN") and following.type == "NAME" and opened:
            raise SpecError([_unpaired(source, tokens, opened, token)])
    if opened:
        raise SpecError([_unpaired(source, tokens, opened, tokens[-1])])


def _unpaired(source: Source, tokens: list[Token], opened: list[Token], found: Token) -> Diagnostic:
    """A bracket without its other half: that is missing before the token found, at the end of a line, or behind a word."""
    opener, end = opened[-1], source.text.find("\n", opened[-1].end)
    closer, behind = TEXT[OPENERS[opener.type]], tokens[tokens.index(opener) :]
    behind = [t for t in behind if t.start < found.start]
    on_line = [t for t in behind if end < 0 or t.end <= end]
    left = list(takewhile(lambda t: t.type != "EQUAL", on_line))
    places = dict.fromkeys(run[-1].end for run in (behind, on_line, left, on_line[:2]))
    inner = list(takewhile(lambda o: o.type != "LBRACE", reversed(opened)))
    fixes = []
    for run in sorted({1, len(inner)}) if inner else ():  # this bracket, and all around it
        first = tokens.index(inner[run - 1])
        while first and tokens[first - 1].end == tokens[first].start:
            first = max(0, first - 1 - _matched(tokens, first - 1))
            if tokens[first].type not in OPENERS:
                break
        start = tokens[first].start
        closers = "".join(TEXT[OPENERS[o.type]] for o in inner[:run])
        fixes += [Fix(Span(source, start, p), source.text[start:p] + closers) for p in places]
    message, help = f"`{opener.text}` is never closed", f"add a `{closer}`"
    notes = ((_span(source, found), f"`{closer}` is expected before this"),) if found.text else ()
    return Diagnostic(
        "E101",
        message,
        _span(source, opener),
        "opened here",
        notes,
        help + ": {}" if fixes else help,
        fix=fixes[0] if fixes else None,
        others=tuple(fixes[1:]),
        otherwise=help,
    )


def _matched(tokens: list[Token], at: int) -> int:
    """How many tokens before a closing bracket the opening one stands; 0 for other tokens."""
    depth = 0
    for back in range(at + 1):
        token = tokens[at - back]
        depth += (token.type in CLOSERS) - (token.type in OPENERS)
        if depth <= 0:
            return back
    return 0


def _span(source: Source, token: Token) -> Span:
    return Span(source, token.start, token.end)
