"""Handles the notation of other languages: what to write instead.

Input: the place where the parser stopped, or a word that it took for a size. Output: a `Diagnostic` with the corrected
text. Example: `x[n] >> 2` gets `shift_right(x[n], 2)`. `mistakes` handles slips within the language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tritongen.errors import Diagnostic, Fix, Span
from tritongen.syntax.place import Place

OPERATORS = ("PLUS", "MINUS", "MULOP", "POW")
BITS = {">>": "shift_right", "<<": "shift_left", "|": "bit_or"}


def python_bool(span: Span, word: str) -> Diagnostic:
    fix = Fix(span, word.lower())
    return Diagnostic("E102", f"`{word}` is Python's word", span, fix=fix)


def python_none(span: Span) -> Diagnostic:
    """`None`: among indices it adds a dim; as an argument it means a missing one."""
    depth, at = 0, span.start
    while at > 0 and depth >= 0:
        at -= 1
        depth += {"]": 1, ")": 1, "[": -1, "(": -1}.get(span.source.text[at], 0)
    help = "use a function without that argument: `min(x, 1)` for `clamp(x, None, 1)`"
    if depth < 0 and span.source.text[at] == "[":
        help = "a tensor broadcasts over each index that it lacks: `y[m, n] = x[m] * w[n]`"
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
    a, b = place.operand(first), place.token(1)
    message = f"`{mark}` is written `{fn}`"
    simple = b.type in ("NAME", "UPPER", "NUMBER") and place.token(2).text not in tuple("[(.*/%")
    if (
        a is None
        or not simple
        or place.token(a[0] - 1).text in ("+", "-", "*", "/", "//", "%", "**")
    ):
        return place.finding(message, f"`{fn}(a, b)`", at=place.across(first, 0))
    left = place.text(place.token(a[0]), place.token(a[1]))
    fix = Fix(place.across(a[0], 1), f"{fn}({left}, {place.token(1).text})")
    return place.finding(message, at=place.across(first, 0), fix=fix)


def slices(place: Place) -> Diagnostic | None:
    """`x[1:3]`, `x[:n]`, `x[:, None]`."""
    if place.token().type != "COLON" or not {"RSQB", "ELLIPSIS"} & place.accepted:
        return None
    help = "every dim has its index: `y[i] = x[i + 1]` for `x[1:]`, `y[i] = x[i]` for `x[:n]`"
    return place.finding("the language has no slices", help)


def einsum(place: Place) -> Diagnostic | None:
    """`y = einsum("mk,nk->mn", x, w)`."""
    token = place.token()
    if token.type != "STRING" or place.token(-1).text != "(":
        return None
    message = "an expression cannot hold a string"
    found = re.fullmatch(r'"([a-z, ]+)->([a-z ]*)"', token.text)
    names, at = [], 1
    while place.token(at).text == "," and place.token(at + 1).type == "NAME":
        names.append(place.token(at + 1).text)
        at += 2
    terms = found[1].replace(" ", "").split(",") if found else []
    if not found or len(terms) != len(names) or place.token(at).text != ")":
        return place.finding(message, "a product is a sum: `y[m, n] = sum[k](x[m, k] * w[n, k])`")
    kept = found[2].replace(" ", "")
    summed = [k for k in dict.fromkeys("".join(terms)) if k not in kept]
    body = " * ".join(f"{name}[{_commas(t)}]" for name, t in zip(names, terms, strict=True))
    value = f"sum[{_commas(summed)}]({body})" if summed else body
    head = place.token(-4)
    if place.token(-3).type != "EQUAL" or head.type != "NAME":
        return place.finding(message, f"with indices it is `{value}`")
    left = f"{head.text}[{_commas(kept)}]" if kept else head.text
    return place.finding(message, "write {}", fix=Fix(place.across(-4, at), f"{left} = {value}"))


def _commas(names: Sequence[str]) -> str:
    return ", ".join(names)


RULES = (literal, comment, glued_number, bits, slices, einsum)
