"""Walks over the syntax tree.

Input: an expression. Output: its parts, the reads in it, the names it mentions. Example:
`mentions(x[n, k] * s)` is {x, n, k, s}. Nothing here judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tritongen.syntax import ast


def parts(node: ast.Node) -> tuple[ast.Node, ...]:
    """The nodes right below, in the order of the text; the bounds of binders included."""
    match node:
        case ast.Read(_, indices):
            return indices
        case ast.Binder(_, low, _, high):
            return tuple(end for end in (low, high) if end is not None)
        case ast.Reduce(_, binders, body):
            return (*binders, body)
        case ast.Call(_, args, keywords):
            return (*args, *(k.value for k in keywords))
        case ast.Unary(_, x) | ast.Not(x):
            return (x,)
        case ast.Binary(_, a, b) | ast.Compare(_, a, b) | ast.BoolOp(_, a, b):
            return a, b
    return ()


def walk(node: ast.Node) -> Iterator[ast.Node]:
    """This node and all below it, outermost first."""
    yield node
    for part in parts(node):
        yield from walk(part)


def reads(node: ast.Node) -> Iterator[ast.Read]:
    return (n for n in walk(node) if isinstance(n, ast.Read))


def mentions(node: ast.Node) -> frozenset[str]:
    """All lower-case names in the expression, without the names of callees."""
    return frozenset(n.name for n in walk(node) if isinstance(n, (ast.Name, ast.Read)))


def sizes(node: ast.Node) -> Iterator[ast.Size]:
    return (n for n in walk(node) if isinstance(n, ast.Size))


def has_index(node: ast.Node) -> bool:
    """Whether the expression has indices: a read or a reducer."""
    return any(isinstance(n, (ast.Read, ast.Reduce)) for n in walk(node))


def renamed(node: ast.Node, old: str, new: str) -> ast.Node:
    """A line or an expression with another name for an index; tensors keep theirs."""

    def change(n):
        match n:
            case ast.Name(name) if name == old:
                return replace(n, name=new)
            case ast.Read(_, indices):
                return replace(n, indices=tuple(map(change, indices)))
            case ast.Binder(name, low, _, high):
                return replace(
                    n,
                    name=new if name == old else name,
                    low=low and change(low),
                    high=high and change(high),
                )
            case ast.Reduce(_, binders, body):
                return replace(n, binders=tuple(map(change, binders)), body=change(body))
            case ast.Call(_, args, keywords):
                changed = tuple(replace(k, value=change(k.value)) for k in keywords)
                return replace(n, args=tuple(map(change, args)), keywords=changed)
            case ast.Unary(_, x) | ast.Not(x):
                return replace(n, x=change(x))
            case ast.Binary(_, a, b) | ast.Compare(_, a, b) | ast.BoolOp(_, a, b):
                return replace(n, a=change(a), b=change(b))
            case ast.Assign(_, indices, value):
                lefts = None if indices is None else tuple(map(change, indices))
                return replace(n, indices=lefts, value=change(value))
        return n

    return change(node)
