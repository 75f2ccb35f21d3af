"""Iterates over the nodes of Python text, as `ast.walk` does, but several times faster.

The checks (`allow`, `scopes`) and the search for collisions iterate over a module, which is much of the time of a build.
Operators and contexts are left out: they say nothing that a `Name` does not.
"""

from __future__ import annotations

import ast
from functools import cache, lru_cache

# Fields in which operators, contexts and texts are, or numbers.
TEXTS = frozenset(
    "ctx op ops id attr arg name kind conversion is_async simple type_comment".split()
)


@lru_cache(maxsize=1)
def parsed(source: str) -> ast.Module:
    """The syntax tree of a module. All checks share it, so it must not be changed."""
    return ast.parse(source)


def walk(tree: ast.AST) -> list[ast.AST]:
    """The node and all within, in the order of the text."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if _fields(node.__class__.__name__):
            waiting += children(node)
    return found


def children(node: ast.AST) -> list[ast.AST]:
    """The children of a node, in reverse order of the text."""
    found: list[ast.AST] = []
    for name in _fields(node.__class__.__name__):
        value = getattr(node, name)
        if isinstance(value, list):
            found += [v for v in reversed(value) if isinstance(v, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


@cache
def _fields(kind: str) -> tuple[str, ...]:
    """The fields of a class in which nodes are, the last one first."""
    named = () if kind == "Constant" else getattr(ast, kind)._fields
    return tuple(f for f in reversed(named) if f not in TEXTS)


def alike(tree: ast.Module) -> dict[str, str]:
    """The functions of a module that are another one by a second name, `choose_f_backward = choose_f`."""
    found = {}
    for top in tree.body:
        match top:
            case ast.Assign([ast.Name(name)], ast.Name(other)) if name.startswith("choose_"):
                found[name] = other
    return found


def names(tree: ast.AST) -> list[ast.Name]:
    return [n for n in walk(tree) if isinstance(n, ast.Name)]
