"""Removes from a kernel what nothing reads: lines that give a name a value, and parameters.

    inside = (row < 1) & (col < cols)     goes where all masks are of columns alone

What is read is known when a template is filled: the views of its values do not know which of its lines use them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import replace

from tritongen.emit.view import KernelView

ASSIGNED = re.compile(r" +(\w+) = ")
NOT_CODE = re.compile(r'"""[\s\S]*?"""|#.*')


def unread(text: str, names: Iterable[str]) -> set[str]:
    """Those of the names that a kernel's text says once: where it gives them a value."""
    said = Counter(re.findall(r"\w+", NOT_CODE.sub("", text)))
    return {name for name in names if said[name] == 1}


def without_lines(text: str) -> str:
    """A kernel's text without lines that give a name a value that nothing reads.

    The first line of a block stays, and so does an atomic operation, which changes memory.
    """
    lines = text.split("\n")
    while True:
        named = {k: m[1] for k, line in enumerate(lines) if (m := ASSIGNED.match(line))}
        names = unread("\n".join(lines), named.values())
        gone = {k for k, name in named.items() if name in names and lines[k - 1][-1:] != ":"}
        gone = {k for k in gone if lines[k].count("(") == lines[k].count(")")}
        gone = {k for k in gone if "tl.atomic" not in lines[k]}
        if not gone:
            return "\n".join(lines)
        lines = [line for k, line in enumerate(lines) if k not in gone]


def without(view: KernelView, names: Set[str]) -> KernelView:
    """The view of a kernel without parameters of these names."""
    every = zip(view.names, view.parameters, strict=False)
    passed = zip(view.names, view.arguments, strict=False)
    return replace(
        view,
        parameters=tuple(p for name, p in every if name not in names),
        arguments=tuple(a for name, a in passed if name not in names),
        optional=tuple(p for p in view.optional if re.split(r"\W", p)[0] not in names),
        sizes=tuple(n for n in view.sizes if n.strip('"') not in names),
        keys=tuple(n for n in view.keys if n not in names),
    )
