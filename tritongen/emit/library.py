"""The runtime library as text: its functions and classes, and those that a standalone module uses.

    functions()["nan_max"]            # Function(text="@triton.jit\ndef nan_max(a, b): ...", calls=())
    used, text = inlined(text)        # `lib.nan_max(a, b)` as `_nan_max(a, b)`, and the function under that name

The library is read and never imported, because the compiler needs no torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from tritongen.emit import walked
from tritongen.resources import package_folder

NAMES = ("lib", "runtime")  # as modules import it, and what `lib/alone.py` has for the runtime's


Defined = (ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Function:
    """`text` as a standalone module has it; `calls`: those of the library that it speaks of."""

    text: str
    calls: tuple[str, ...]


@cache
def version() -> int:
    """`tritongen.lib.VERSION`."""
    tree = ast.parse((package_folder("lib") / "__init__.py").read_text())
    return next(n.value.value for n in tree.body if isinstance(n, ast.Assign))  # type: ignore[attr-defined]


@cache
def texts() -> tuple[str, ...]:
    return tuple(f.read_text() for f in sorted(package_folder("lib").glob("[a-z]*.py")))


@cache
def names() -> frozenset[str]:
    """The names of all functions and classes. A module may not call those that begin with an underscore."""
    found = (re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE) for text in texts())
    return frozenset().union(*found)


@cache
def functions() -> dict[str, Function]:
    """All functions and classes by name."""
    nodes = ((text, node) for text in texts() for node in ast.parse(text).body)
    defined = [(text, node) for text, node in nodes if isinstance(node, Defined)]
    names = {node.name for _, node in defined}
    return {node.name: _function(text, node, names) for text, node in defined}


def _function(text: str, f: ast.FunctionDef | ast.ClassDef, names: set[str]) -> Function:
    first = min([f.lineno, *(d.lineno for d in f.decorator_list)])
    lines = text.splitlines()[first - 1 : f.end_lineno]
    nodes = list(walked.walk(f))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    said = [n for n in nodes if isinstance(n, ast.Name) and n.id in names - bound]
    calls = dict.fromkeys(n.id for n in said if n.id != f.name)
    places = [(n.lineno - first, n.col_offset, n.id) for n in said]
    keyword = "class " if isinstance(f, ast.ClassDef) else "def "
    places.append((f.lineno - first, len(keyword), f.name))
    for at, column, name in sorted(places, reverse=True):
        line = lines[at].encode()  # columns count bytes
        lines[at] = (line[:column] + own_name(name).encode() + line[column + len(name) :]).decode()
    told = f.body[0]
    # Its first line: the library says the rest.
    if ast.get_docstring(f) and told.end_lineno != told.lineno:
        lines[told.lineno - first] += '"""'
        del lines[told.lineno - first + 1 : told.end_lineno - first + 1]  # type: ignore[operator]
    return Function("\n".join(lines), tuple(calls))


def own_name(name: str) -> str:
    """The name of a library function in a standalone module."""
    return name if name.startswith("_") else f"_{name}"


def called(text: str) -> list[str]:
    """The functions of the library that a module's text speaks of."""
    nodes = walked.walk(walked.parsed(text))
    return list(dict.fromkeys(n.attr for n in nodes if _is_ours(n)))  # type: ignore[attr-defined]


def _is_ours(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(ast.Name(name)):
            return name in NAMES
    return False


def inlined(text: str) -> tuple[str, str]:
    """The functions that a text calls and those that these do, callees first; the text as it calls them then."""
    needed = dict.fromkeys(_with_callees(called(text)))
    lines = text.split("\n")
    found = [n for n in walked.walk(walked.parsed(text)) if _is_ours(n)]
    for node in sorted(found, key=lambda n: (n.lineno, n.col_offset), reverse=True):  # type: ignore[attr-defined]
        at, column = node.lineno - 1, node.col_offset  # type: ignore[attr-defined]
        line, before = lines[at].encode(), len(node.value.id) + 1  # type: ignore[attr-defined]
        lines[at] = (line[:column] + b"_" + line[column + before :]).decode()
    return "\n\n\n".join(functions()[name].text for name in needed), "\n".join(lines)


def _with_callees(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from _with_callees(functions()[name].calls)
        yield name
