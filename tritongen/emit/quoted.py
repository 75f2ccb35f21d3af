"""Prints text from outside as Python literals: paths, names, words of a spec. Nothing else may print such text."""

from __future__ import annotations


def quoted(text: str) -> str:
    """A string of one line, in double quotes where that takes nothing more: as black prints it."""
    own = repr(text)
    return f'"{text}"' if own[1:-1] == text and '"' not in text else own


def shown(text: str) -> str:
    """Text on one line. Line breaks, invisible characters and invalid text are escaped as Python does."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def in_docstring(text: str) -> str:
    """Text for a docstring: between triple quotes, with a line break behind it."""
    plain = text.replace("\\", "\\\\").replace('"""', "'''")
    return "\n".join(map(shown, plain.split("\n")))
