"""Handles the notation of other languages: what to write instead.

Input: the place where the parser stopped, or a word that it took for a size. Output: a `Diagnostic` with the corrected
text. Example: `x[n] >> 2` gets `shift_right(x[n], 2)`. `mistakes` handles slips within the language.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tritongen.errors import Diagnostic, Fix, Span
from tritongen.syntax.names import PYTHON
from tritongen.syntax.place import Place

INSTEAD_OF_WORDS = {
    "if": "`where(condition, a, b)` chooses between two values",
    "for": "a line holds for every value of its indices: `y[n] = x[n]`; a sum over one is `sum[k](...)`",
    "return": "the line that assigns an output gives the result: `y[n] = x[n]`",
    "lambda": "an expression has no parameters: its names are the operands",
}
BITS = {">>": "shift_right", "<<": "shift_left", "|": "bit_or"}


def python_bool(span: Span, word: str) -> Diagnostic:
    fix = Fix(span, word.lower())
    return Diagnostic("E102", f"`{word}` is Python's word", span, fix=fix)


def python_none(span: Span) -> Diagnostic:
    """`None`: among indices it adds a dim; as an argument it means a missing one."""
    help = (
        "leave it out; a tensor broadcasts over each index that it lacks: `y[m, n] = x[m] * w[n]`"
    )
    return Diagnostic("E102", "there is no `None`", span, help=help)


def literal(place: Place) -> Diagnostic | None:
    """`const causal: bool = True`, and None where no expression may stand."""
    word = place.token().text
    if word in ("True", "False"):
        return python_bool(place.span(), word)
    return python_none(place.span()) if word == "None" else None


def comment(place: Place) -> Diagnostic | None:
    """`// words`: the first word was taken for a divisor, the second for the next line."""
    for back in range(4):
        token = place.token(-back)
        if token.text not in ("//", "/"):
            continue
        is_prose = back > 1 and all(place.token(-k).type == "NAME" for k in range(1, back))
        if token.text == "/" and place.token(1 - back).text in ("*", "**"):
            return place.finding("a comment begins with `#` and ends with its line")
        if token.text == "//" and (is_prose or "PLUS" not in place.accepted and back == 0):
            at = place.span(-back)
            words = place.source.text[at.start :].split("\n", 1)[0]
            fix = Fix(Span(at.source, at.start, at.start + len(words)), "#" + words[2:])
            return place.finding("a comment begins with `#`", at=at, fix=fix)
    return None


def glued_number(place: Place) -> Diagnostic | None:
    """`0xFF`, `1_000`, `1.0f`: a number with a name directly behind it."""
    for offset in (0, -1):
        number, name = place.token(offset - 1), place.token(offset)
        if number.type != "NUMBER" or name.type != "NAME" or number.end != name.start:
            continue
        span = place.across(offset - 1, offset)
        text = number.text + name.text
        if re.fullmatch(r"0x[0-9a-fA-F]+|0b[01]+|0o[0-7]+|[0-9]+(_[0-9]+)+", text):
            fix = Fix(span, str(int(text, 0)))
            return place.finding("a number is written in decimal digits", at=span, fix=fix)
        if re.fullmatch(r"[fhlu]+", name.text):
            fix = Fix(span, number.text)
            return place.finding("a number has no suffix", at=span, fix=fix)
    return None


def bits(place: Place) -> Diagnostic | None:
    """`a >> b`, `a << b`, `a | b`."""
    mark, first = place.token().text, 0
    if mark in "<>" and place.token(-1).text == mark and place.token(-1).end == place.token().start:
        mark, first = 2 * mark, -1
    if mark not in BITS or "VBAR" in place.accepted or place.token(1).text == "|":
        return None
    fn = BITS[mark]
    return place.finding(f"`{mark}` is written `{fn}`", f"`{fn}(a, b)`", at=place.across(first, 0))


def slices(place: Place) -> Diagnostic | None:
    """`x[1:3]`, `x[:n]`, `x[:, None]`."""
    if place.token().type != "COLON" or not {"RSQB", "ELLIPSIS"} & place.accepted:
        return None
    help = "every dim has its index: `y[i] = x[i + 1]` for `x[1:]`, `y[i] = x[i]` for `x[:n]`"
    return place.finding("the language has no slices", help)


def string(place: Place) -> Diagnostic | None:
    """`y = einsum("mk,nk->mn", x, w)`, and `gelu(x, approximate="tanh")`."""
    if place.token().type != "STRING" or "NUMBER" not in place.accepted:
        return None
    help = "a product is a sum: `y[m, n] = sum[k](x[m, k] * w[n, k])`"
    return place.finding("an expression cannot hold a string", help)


def several_brackets(place: Place) -> Diagnostic | None:
    """`x[n][d]`, and `f32[N][D]`."""
    if place.token().type != "LSQB" or place.token(-1).type != "RSQB":
        return None
    at, first = place.across(-1, 0), place.opener(-1) - 1
    if place.token(first).type not in ("DTYPE", "UPPER"):
        return place.finding("all indices stand in one pair of brackets", at=at)
    last = next((k for k in range(1, 40) if place.token(k).type == "RSQB"), 0)
    dims = place.text(place.token(first), place.token(-2)), place.text(
        place.token(1), place.token(last)
    )
    fix = Fix(place.across(first, last), ", ".join(dims))
    return place.finding("all dims stand in one pair of brackets", at=at, fix=fix)


def python_word(place: Place) -> Diagnostic | None:
    """`return x`, `x if c else y`, `lambda x: x`, `for n in range(N)`."""
    for offset in () if "OP" in place.accepted else (-1, 0):
        token = place.token(offset)
        if token.type == "NAME" and token.text in PYTHON:
            help = INSTEAD_OF_WORDS.get(token.text, "")
            return place.finding(f"there is no `{token.text}`", help, at=place.span(offset))
    return None


def empty_shape(place: Place) -> Diagnostic | None:
    """`s: T[]`."""
    before, dtype = place.token(-1), place.token(-2)
    if (
        place.token().type != "RSQB"
        or before.type != "LSQB"
        or dtype.type not in ("DTYPE", "UPPER")
    ):
        return None
    at = place.across(-2, 0)
    fixes = [Fix(at, text) for text in dict.fromkeys((dtype.text, "f32"))]
    found = place.finding("a number has no brackets", at=place.across(-1, 0), fix=fixes[0])
    return replace(found, others=tuple(fixes[1:]))


RULES = (
    literal,
    comment,
    glued_number,
    bits,
    slices,
    string,
    several_brackets,
    python_word,
    empty_shape,
)
