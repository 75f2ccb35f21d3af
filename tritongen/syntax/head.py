"""The head of an op, from `op` to its `{`, as text: corrections that change several places of it.

x: Tensor[N] ... -> y: Tensor[N]     op f<T: float>(x: T[N]) -> y: T[N]
x: f32[n] ... -> y: f32[n]           op f(x: f32[N]) -> y: f32[N]
"""

from __future__ import annotations

import re
from collections.abc import Container

from tritongen.errors import Fix, Span


def head(text: str, position: int) -> tuple[int, int] | None:
    """From the last `op` before the position to its `{`."""
    begins = [m.start() for m in re.finditer(r"\bop\s+\w+\s*[<(]", text[: position + 1])]
    if not begins:
        return None
    brace = text.find("{", begins[-1])
    return begins[-1], len(text) if brace < 0 else brace


def typed(span: Span | None, word: str, family: str = "float") -> Fix | None:
    """A type parameter in the place of a word that is no dtype."""
    own = "" if span is None else _text(span)
    name = word if re.fullmatch(r"[A-Z][0-9]?", word) else "T"
    new, count = re.subn(
        rf"(:\s*){re.escape(word)}\b(\s*\[)?", lambda m: f"{m[1]}{name}{m[2] or '[...]'}", own
    )
    if not re.search(rf"[<,]\s*{name}\s*:", new.partition("(")[0]):
        given = f"{name}: {family}"
        new = re.sub(r"(op\s+\w+)\s*<", rf"\1<{given}, ", new, count=1)
        new = re.sub(r"(op\s+\w+)\s*\(", rf"\1<{given}>(", new, count=1)
    return _fix(span, own, new) if count else None


def capitalised(span: Span | None, others: Container[str]) -> Fix | None:
    """Sizes in upper case, inside the brackets of types; `others` are constants."""
    own = "" if span is None else _text(span)

    def upper(dims: re.Match) -> str:
        size = r"\b[a-z]\w*"
        return dims[1] + re.sub(size, lambda n: n[0] if n[0] in others else n[0].upper(), dims[2])

    new = re.sub(r"(:\s*\w+\s*)(\[[^\]]*\])", upper, own)
    return _fix(span, own, new)


def _text(span: Span) -> str:
    found = head(span.source.text, span.start)
    return span.source.text[slice(*found)].rstrip() if found else ""


def _fix(span: Span | None, own: str, new: str) -> Fix | None:
    found = head(span.source.text, span.start) if span is not None else None
    if span is None or found is None or not own or "#" in own or new == own:
        return None
    return Fix(Span(span.source, found[0], found[0] + len(own)), " ".join(new.split()))
