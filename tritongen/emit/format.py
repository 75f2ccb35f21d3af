"""Formats a module as black does. The printers write most of it in that form already.

Black takes longer than everything else in a build. So it formats only the statements that it would change, one by one, and
each text once: those that are too long for a line, those that no printer spells that way, and the torch code of a spec.
`tests/emit/test_format.py` compares the whole with black's output.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from textwrap import dedent

from tritongen.errors import NoBlack

LINE_LENGTH = 100
# Single quotes, spaces around `**`, a comma that asks for a line each, targets in parentheses.
SPELLED = re.compile(r"'| \*\* |,[^()]*,\)|^ *\(.* = |^ *\w+, = ")
Placed = ast.stmt | ast.excepthandler | ast.expr
Span = tuple[int, int]  # its first line and its last, counted from 1


def format_source(source: str) -> str:
    """The source, formatted; black's exact version is pinned, since `--check` compares bytes."""
    lines = [line.rstrip() for line in source.splitlines()]
    tree = ast.parse(source)
    changed: dict[Span, list[str]] = {}
    for top in tree.body:
        is_torch = isinstance(top, ast.FunctionDef) and top.name.endswith("_torch")
        for first, last in [_span(top)] if is_torch else _spans(top):
            while last > first and lines[last - 1].lstrip()[:1] in ("", "#"):
                last -= 1  # between a head and its body
            own = lines[first - 1 : last]
            is_doc = first == last and own[0].lstrip().startswith('"""')
            if is_doc or own[-1].endswith("# fmt: skip"):
                continue  # which black leaves alone
            if is_torch or any(len(line) > LINE_LENGTH or SPELLED.search(line) for line in own):
                changed[first, last] = _by_black("\n".join(own)).splitlines()
    for (first, last), text in sorted(changed.items(), reverse=True):
        lines[first - 1 : last] = text
    return _apart(lines)


def _spans(node: Placed) -> Iterator[Span]:
    """The lines of each simple statement within, and of the head and the decorators of each that has a body."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        yield _span(node)
        return
    yield from (_span(d) for d in getattr(node, "decorator_list", ()))
    yield node.lineno, max(node.lineno, _span(body[0])[0] - 1)
    for part in ("body", "handlers", "orelse", "finalbody"):
        for inner in getattr(node, part, ()):
            yield from _spans(inner)


def _span(node: Placed) -> Span:
    decorators = getattr(node, "decorator_list", ())
    return min((d.lineno for d in decorators), default=node.lineno), node.end_lineno or node.lineno


@lru_cache(maxsize=1 << 12)  # the kernels of an op, and the ops of a run, say much alike
def _by_black(text: str) -> str:
    """Some lines of a module as black prints them there."""
    try:
        import black
    except ImportError:
        message = "formatting a module needs black: pip install 'tritongen[build]'"
        raise NoBlack(message) from None
    bare = dedent(text)
    indent = len(text.partition("\n")[0]) - len(bare.partition("\n")[0])
    before = after = ""
    if bare.startswith("@") and "\ndef " not in bare:
        after = "def f():\n    pass\n"
    elif re.search(":( *#.*)?$", bare):
        after = "    pass\n"
    if bare.startswith("elif "):
        before = "if x:\n    pass\n"
    # A module that says nothing newer may be read by the first Python with f-strings.
    mode = black.Mode({black.TargetVersion.PY36}, line_length=LINE_LENGTH - indent)
    lines = black.format_str(f"{before}{bare}\n{after}", mode=mode).splitlines()
    lines = lines[before.count("\n") : len(lines) - after.count("\n")]
    return "\n".join(" " * indent + line if line else line for line in lines)


def _apart(lines: list[str]) -> str:
    """Puts two blank lines before each function, with its comments, decorators and second names."""
    out: list[str] = []
    decorated = False
    for line in lines:
        begins = line.startswith(("def ", "@", "#", "choose_")) and not decorated
        if begins and not (out and out[-1].startswith("#")):
            while out and not out[-1]:
                out.pop()
            out += ["", ""]
        decorated = line.startswith("@") or decorated and not line.startswith("def ")
        out.append(line)
    return "\n".join(out).strip("\n") + "\n"
