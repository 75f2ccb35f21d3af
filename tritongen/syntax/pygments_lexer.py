"""Specs in Pygments: ```` ```op ```` blocks of Sphinx and MkDocs, `pygmentize softmax.op`, rich, notebooks.

An entry point of the package (`pyproject.toml`) gives Pygments the name `op`. It needs `pygments`, which
tritongen does not otherwise import.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pygments import token as shown
from pygments.lexer import Lexer

from tritongen.syntax.highlight import tokens

__all__ = ["OpLexer"]  # by which Pygments finds it

TOKENS: dict[str, Any] = {
    "comment": shown.Comment.Single,
    "constant": shown.Keyword.Constant,
    "definition": shown.Name.Function,
    "error": shown.Error,
    "function": shown.Name.Builtin,
    "keyword": shown.Keyword,
    "name": shown.Name,
    "number": shown.Number,
    "operator": shown.Operator,
    "punctuation": shown.Punctuation,
    "reducer": shown.Name.Builtin,
    "size": shown.Name.Class,
    "space": shown.Whitespace,
    "string": shown.String,
    "type": shown.Keyword.Type,
}


class OpLexer(Lexer):
    name = "tritongen"
    aliases = ["op", "tritongen"]
    filenames = ["*.op"]
    url = "https://pypi.org/project/tritongen/"

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        for token in tokens(text):
            yield token.start, TOKENS[token.kind], token.text
