"""Where the parser stopped, and what stands around it.

Input: the tokens and the position of the one that fits nothing. Output: tokens, spans and texts near
it, for the rules of `mistakes` and `foreign`. Nothing here judges.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.errors import Diagnostic, Source, Span
from tritongen.syntax.lexer import Token


@dataclass(frozen=True, slots=True)
class Place:
    """Where the parser stopped."""

    source: Source
    tokens: list[Token]
    at: int
    accepted: frozenset[str]

    def token(self, offset: int = 0) -> Token:
        index = self.at + offset
        return self.tokens[index] if 0 <= index < len(self.tokens) else Token("", "", 0, 0)

    def span(self, offset: int = 0) -> Span:
        token = self.token(offset)
        return Span(self.source, token.start, token.end)

    def text(self, first: Token, last: Token) -> str:
        return self.source.text[first.start : last.end]

    def opener(self, offset: int) -> int:
        """The offset of the bracket that the one at `offset` closes."""
        depth = 0
        for back in range(offset, -self.at - 1, -1):
            depth += (self.token(back).text in tuple(")]}")) - (
                self.token(back).text in tuple("([{")
            )
            if depth == 0:
                return back
        return offset

    def between(self, keyword: str, stop: str) -> bool:
        """Whether `keyword` comes before, without a `stop` in between."""
        for token in reversed(self.tokens[: self.at]):
            if token.type in (keyword, stop):
                return token.type == keyword
        return False

    def across(self, first: int, last: int) -> Span:
        """From one token to another, by their offsets."""
        return Span(self.source, self.token(first).start, self.token(last).end)

    def operand(self, offset: int) -> tuple[int, int] | None:
        """The first and last offset of the operand before the token: a name, a read, a call, a group."""
        last = first = offset - 1
        if self.token(last).type in ("RSQB", "RPAR"):
            first = self.opener(last)
            if self.token(first - 1).type in ("NAME", "REDUCER", "DTYPE", "UPPER", "RSQB"):
                first -= 1
                if self.token(first).type == "RSQB":
                    first = self.opener(first) - 1
            return first, last
        return (first, last) if self.token(last).type in ("NAME", "UPPER", "NUMBER") else None

    def is_word(self, offset: int) -> bool:
        """Whether one name or number is the whole operand there."""
        after = self.token(offset + 1)
        binds = after.type in ("LSQB", "LPAR", "PLUS", "MINUS", "MULOP", "POW")
        return self.token(offset).type in ("NAME", "UPPER", "NUMBER") and not binds

    def finding(
        self, message: str, help="", code="E101", label="", at=None, fix=None
    ) -> Diagnostic:
        return Diagnostic(code, message, at or self.span(), label=label, help=help, fix=fix)
