"""Text to tokens, by the grammar's own terminals, and what a character out of place means.

Input: a `Source` within the limits. Output: `Token`s with character offsets, the last of type END.
Example: `x[n]` gives NAME, LSQB, NAME, RSQB, END. Not here: the limits themselves (`limits`).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import NamedTuple

from tritongen.errors import Diagnostic, Fix, Source, Span, SpecError
from tritongen.syntax import _tables
from tritongen.syntax.head import typed
from tritongen.syntax.torch_names import MATHEMATICS, MODULES, TORCH_DTYPES, UNFIT

END = "$END"

INSTEAD = {
    "^": "a power is written `**`; exclusive or is `bit_xor(a, b)`",
    "&": "logical and is written `and`; on bits it is `bit_and(a, b)`",
    "!": "logical not is written `not`",
    "~": "logical not is written `not`",
    "'": 'strings stand in double quotes: `ref "torch.relu(x)"`',
    ";": "lines end by themselves; delete it",
    "@": "a matrix product is a sum: `y[m, n] = sum[k](a[m, k] * b[k, n])`",
    "?": "choose between values with `where(condition, a, b)`",
}


NO_MODULES = "a function has its name alone: `exp(x[n])`"
NO_METHODS = "sizes are the upper-case names of the operands' types; a function stands before its arguments: `exp(x[n])`"


class Token(NamedTuple):
    type: str
    text: str
    start: int
    end: int


@cache
def _pattern() -> re.Pattern:
    # ASCII: else \d and \s take digits and spaces of every script, and \b ends words at none
    return re.compile("|".join(f"(?P<{n}>{p})" for n, p in _tables.TERMINALS), re.ASCII)


def lex(source: Source) -> list[Token]:
    text, match, position = source.text, _pattern().match, 0
    tokens: list[Token] = []
    while position < len(text):
        found = match(text, position)
        if found is None:
            raise SpecError([unexpected_character(source, position, tokens)])
        kind, word = found.lastgroup or "", found.group()
        if kind not in _tables.IGNORED:
            if kind == "NAME":
                kind = _tables.KEYWORDS.get(word, kind)
            tokens.append(Token(kind, word, position, found.end()))
        position = found.end()
    tokens.append(Token(END, "", len(text), len(text)))
    return tokens


def unexpected_character(source: Source, position: int, before: list[Token]) -> Diagnostic:
    char = source.text[position]
    span = Span(source, position, position + 1)
    word = next((token for token in before[-2:] if token.type in ("REF", "DOC")), None)
    if word and char != '"':
        message = f"`{word.text}` is followed by a string in double quotes"
        return Diagnostic("E101", message, span, help=f'`{word.text} "..."`')
    if char == '"':
        help = "close it on the same line; adjacent strings join"
        return Diagnostic("E006", "this string is never closed", span, help=help)
    if char == ".":
        return _dotted(source, position, _operand(before, position))
    if ord(char) < 128:
        message, help = f"unexpected character `{char}`", INSTEAD.get(char, "")
        return Diagnostic("E005", message, span, help=help)
    point = f"U+{ord(char):04X} {unicodedata.name(char, 'unnamed')}"
    if unicodedata.category(char) == "Zs":
        message = "a space that is not ASCII"
        return Diagnostic("E004", message, span, label=point, help="write a plain space")
    help = "names are made of a-z, A-Z, 0-9 and _; other letters may stand in comments and `doc`"
    ours = MATHEMATICS.get(char, "").strip()
    fix = Fix(span, ours) if ours and not ours.isalpha() else None
    return Diagnostic(
        "E004",
        f"`{char}` is not ASCII",
        span,
        label=point,
        help="" if fix else help,
        fix=fix,
        otherwise=help,
    )


def _dotted(source: Source, position: int, start: int) -> Diagnostic:
    """Reports a dot. `start` is the beginning of the text before it."""
    words = re.compile(r"(?:\.[A-Za-z_]\w*)+", re.ASCII).match(source.text, position)
    span = Span(source, position, position + 1)
    if words is None:
        return Diagnostic("E005", "unexpected character `.`", span, help=NO_METHODS)
    shown, name = source.text[start : words.end()], words[0].rpartition(".")[2]
    if source.text[start:position] not in MODULES:
        message, help = "the language has no methods or attributes", UNFIT.get(name, NO_METHODS)
        return Diagnostic("E005", message, span, help=help)
    whole = Span(source, start, words.end())
    if name in TORCH_DTYPES:
        fix = Fix(whole, TORCH_DTYPES[name])
        return Diagnostic("E110", f"there is no dtype `{shown}`", whole, fix=fix)
    if name[0].isupper():
        return Diagnostic("E110", f"there is no type `{shown}`", whole, fix=typed(whole, shown))
    message, label = "a function has no module prefix", f"`{shown}` has one"
    return Diagnostic("E005", message, whole, label, help=UNFIT.get(name, NO_MODULES))


def _operand(before: list[Token], position: int) -> int:
    """The start of the name or read that ends at a position. The position itself if there is none."""
    if not before or before[-1].end != position:
        return position
    depth = 0
    for token in reversed(before):
        depth += (token.text in (")", "]")) - (token.text in ("(", "["))
        if depth == 0 and token.type in ("NAME", "UPPER"):
            return token.start
        if depth == 0 and token.text not in ("(", "["):
            return position
    return position
