"""Text to syntax tree.

Input: the text of a `.op` file, of one expression, or of lines. Output: nodes of `ast`, or a
`SpecError` with every finding that the text alone allows. Example:

    >>> parse_expression("max(x, 0)")
    Call(name='max', args=(Name(name='x'), Number(value=0, text='0')), keywords=())

Not here: what names mean (`tritongen.check`), the meaning of `ref` strings (`ref`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritongen.errors import Diagnostic, Source, SpecError, proven
from tritongen.syntax import ast, lalr
from tritongen.syntax.build import Builder
from tritongen.syntax.lexer import lex
from tritongen.syntax.limits import (
    MAX_FINDINGS,
    MAX_OPERATIONS,
    check_tokens,
    checked_source,
    read_source,
)
from tritongen.syntax.mistakes import explain
from tritongen.syntax.rewrite import rewrites


def parse(
    text: str, name: str = "<text>", proposals: bool = True, most: int = MAX_OPERATIONS
) -> ast.File:
    """`proposals`: findings come with corrected code, which has been parsed. `most`: operations of one op."""
    return _parse(checked_source(text, name), "start", proposals, most)


def parse_file(path: str | Path) -> ast.File:
    return _parse(read_source(path), "start")


def parse_expression(text: str, name: str = "<expression>") -> ast.Expr:
    return _parse(checked_source(text, name), "value", proposals=False)


def parse_assignments(text: str, name: str = "<expression>") -> tuple[ast.Assign, ...]:
    """One or more lines `y[m, n] = ...`."""
    return _parse(checked_source(text, name), "lines", proposals=False)


def has_assignments(text: str, name: str = "<expression>") -> bool:
    """Whether the text is lines and not one expression: it has a `=` outside of brackets."""
    depth = 0
    for token in lex(checked_source(text, name)):
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if token.type == "EQUAL" and depth == 0:
            return True
    return False


def _parse(source: Source, start: str, proposals: bool = True, most: int = MAX_OPERATIONS) -> Any:
    try:
        return _tree(source, start, most)
    except SpecError as error:
        if not proposals:
            raise

        def compiled(text: str) -> tuple[tuple[Diagnostic, ...], int]:
            try:
                _tree(checked_source(text, source.name), start, most)
            except SpecError as error:
                return error.diagnostics, 0
            return (), 0

        raise SpecError(proven(error.diagnostics, compiled, rewrites, first_only=True)) from None


def _tree(source: Source, start: str, most: int) -> Any:
    tokens = lex(source)
    check_tokens(source, tokens)
    builder = Builder(source, most)
    try:
        tree = lalr.parse(tokens, start, builder)
    except lalr.Unexpected as unexpected:
        finding = explain(source, tokens, unexpected.position, unexpected.accepted, start)
        raise SpecError([*_in_order(builder.errors), finding][-MAX_FINDINGS:]) from None
    if builder.errors:
        raise SpecError(_in_order(builder.errors)[:MAX_FINDINGS])
    return tree


def _in_order(findings: list[Diagnostic]) -> list[Diagnostic]:
    return sorted(findings, key=lambda d: d.span.start if d.span else 0)
