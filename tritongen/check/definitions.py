"""Proposes definitions for a size that no operand binds.

Input: an op and the size. Output: fixes, such as `with B = Q - 1` for offsets that have one more element than there are
segments. The fix that compiles is found when the message is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import islice
from typing import Any

from tritongen.check.trees import reads, walk
from tritongen.errors import Fix, Span
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse

MAX_FIXES = 4


def definitions(
    op: ast.Node,
    name: str,
    taken: Set[str],
    callee: Callable[[str], ast.OpDef | None],
    simpler: Callable[[ast.Expr], ast.Expr | None],
) -> tuple[Fix, ...]:
    """Proposals from a fact, a dim that is an expression of the size, reads with an index that runs over it, and a call.

    `callee`: the op of a name. `simpler`: an expression of sizes in normal form.
    """
    if not isinstance(op, ast.OpDef) or op.span is None:
        return ()
    found = [*_by_facts(op, name), *_by_dims(op, name, taken), *_by_reads(op, name)]
    found += [
        fix for value in _by_calls(op, name, callee) for fix in _with(op, name, simpler(value))
    ]
    return tuple(islice(dict.fromkeys(found), MAX_FIXES))


def _by_facts(op: ast.OpDef, name: str) -> Iterator[Fix]:
    for fact in op.facts:
        match fact.expr:
            case ast.Compare("==", a, b):
                for known, other in ((a, b), (b, a)):
                    is_said = isinstance(other, ast.Size)  # by the definition that takes its place
                    value = solved(known, other, name)
                    yield from _with(op, name, value, instead=fact if is_said else None)


def longer(op: ast.Node, operand: str, name: str, taken: Set[str]) -> Iterator[Fix]:
    """`off: i32[B]`, of which `off[b + 1]` is read for each b: `off: i32[Q]` with B = Q - 1, or `off: i32[B + 1]`."""
    if not isinstance(op, ast.OpDef):
        return
    new = _new(name, taken)
    fewer = ast.Binary("-", ast.Size(new), ast.Number(1))
    for p in op.params:
        for dim in (p.type.dims or ()) if isinstance(p, ast.Operand) and p.name == operand else ():
            if dim == ast.Size(name) and dim.span is not None and p.span is not None:
                yield from _with(op, name, fewer, (p, dim, new))
                source, start = dim.span.source, p.span.start
                end = source.text.index("]", dim.span.end) + 1
                parts = source.text[start : dim.span.end], source.text[dim.span.end : end]
                yield Fix(Span(source, start, end), " + 1".join(parts))


def _new(name: str, taken: Set[str]) -> str:
    return next((n for n in "QPLRSUVZ" if n not in taken and n != name), name + "1")


def _by_dims(op: ast.OpDef, name: str, taken: Set[str]) -> Iterator[Fix]:
    """`off: i32[B + 1]`: a dim of its own, `off: i32[Q]`."""
    new = _new(name, taken)
    for p in op.params:
        for dim in (p.type.dims or ()) if isinstance(p, ast.Operand) else ():
            if not isinstance(dim, ast.Size) and p.span and getattr(dim, "span", None):
                yield from _with(op, name, solved(ast.Size(new), dim, name), (p, dim, new))


def _by_reads(op: ast.OpDef, name: str) -> Iterator[Fix]:
    """`y[b] = off[b + 1] - off[b]`, where y has B elements."""
    dims = {p.name: p.type.dims or () for p in op.params if isinstance(p, ast.Operand)}
    for output in op.outputs:
        for position, dim in enumerate(output.type.dims or ()):
            lines = [line for line in op.lines if line.name == output.name]
            for line in lines if dim == ast.Size(name) else ():
                lefts = line.indices or ()
                if position < len(lefts):
                    index = getattr(lefts[position], "name", "")
                    for size, most in _reached(line, index, dims).items():
                        value = ast.Binary("-", ast.Size(size), ast.Number(most))
                        yield from _with(op, name, value if most else ast.Size(size))


def _by_calls(
    op: ast.OpDef, name: str, callee: Callable[[str], ast.OpDef | None]
) -> Iterator[ast.Expr]:
    """`y = conv2d(x, w, b)` for y: T[N, F, P, Q]: what conv2d says of its own P, in this op's sizes."""
    dims = {
        p.name: p.type.dims or () for p in (*op.params, *op.outputs) if isinstance(p, ast.Operand)
    }
    for line in op.lines:
        if not isinstance(line.value, ast.Call) or (called := callee(line.value.name)) is None:
            continue
        call, theirs = line.value, called.outputs[0].type.dims or ()
        given: dict[str, Any] = dict(zip((p.name for p in called.params), call.args, strict=False))
        given |= {k.name: k.value for k in call.keywords}
        defined = {f.name: f.expr for f in called.facts if isinstance(f, ast.Define)}
        known: dict[str, Any] = {}
        for p in called.params:
            own = given.get(p.name, getattr(p, "default", None))
            if isinstance(p, ast.ConstParam):
                known[p.name] = own
            elif isinstance(own, ast.Name) and isinstance(p, ast.Operand):
                pairs = zip(p.type.dims or (), dims.get(own.name, ()), strict=False)
                known |= {size.name: dim for size, dim in pairs if isinstance(size, ast.Size)}
        for mine, size in zip(dims.get(line.name, ()), theirs, strict=False):
            if mine == ast.Size(name) and isinstance(size, ast.Size):
                yield _replaced(defined.get(size.name, size), known)


def _replaced(node: Any, known: Mapping[str, Any]) -> Any:
    match node:
        case ast.Size(name) | ast.Name(name):
            return known.get(name) or node
        case ast.Binary(_, a, b):
            return replace(node, a=_replaced(a, known), b=_replaced(b, known))
    return node


def _reached(line: ast.Assign, index: str, dims: dict) -> dict[str, int]:
    """For each size, the largest offset that is added to the index where a dim of that size is read."""
    found: dict[str, int] = {}
    for read in reads(line.value):
        for dim, i in zip(dims.get(read.name, ()), read.indices, strict=False):
            match i:
                case ast.Name(own) if own == index:
                    more = 0
                case ast.Binary("+", ast.Name(own), ast.Number(int(more))) if own == index:
                    pass
                case _:
                    continue
            if isinstance(dim, ast.Size):
                found[dim.name] = max(more, found.get(dim.name, 0))
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def solved(known: Any, other: Any, name: str) -> ast.Expr | None:
    """Solves `known == other` for the size, which stands in it once: `F // 2` for H if F == 2 * H."""

    def has(node: ast.Expr) -> bool:
        return any(isinstance(n, ast.Size) and n.name == name for n in walk(node))

    if has(known) or not has(other):
        return None
    match other:
        case ast.Size():
            return known
        case ast.Binary("+", a, b):
            rest, other = (b, a) if has(a) else (a, b)
            return solved(ast.Binary("-", known, rest), other, name)
        case ast.Binary("-", a, b) if not has(b):
            return solved(ast.Binary("+", known, b), a, name)
        case ast.Binary("*", a, b):
            rest, other = (b, a) if has(a) else (a, b)
            return None if has(rest) else solved(ast.Binary("//", known, rest), other, name)
    return None


def _with(
    op: ast.OpDef,
    name: str,
    value: ast.Expr | None,
    dim: tuple[ast.Param, ast.Node, str] | None = None,
    instead: ast.Node | None = None,
) -> Iterator[Fix]:
    """The head of the op with that definition, instead of a fact, and with a dim of an operand called anew."""
    first = op.outputs[0].span if op.outputs else None
    if value is None or first is None:
        return
    text = first.source.text
    fact = next((f.span.start for f in op.facts if f.span is not None), None)
    end = text.find("{", fact or first.start)
    start = dim[0].span.start if dim and dim[0].span else first.start
    if end < 0 or "#" in text[start:end]:
        return
    end = start + len(text[start:end].rstrip())
    facts = [f for f in op.facts if f is not instead]
    shown = [text[f.span.start : f.span.end] for f in facts if f.span is not None]
    uses = (k for k, f in enumerate(op.facts) if ast.Size(name) in walk(f.expr))
    at = next(uses, len(facts))
    shown.insert(at, f"{name} = {unparse(value)}")
    if dim is not None and any(getattr(n, "op", "") == "//" for n in walk(value)):
        shown.insert(at + 1, f"{dim[2]} == {unparse(dim[1])}")  # the dim says so
    tail = (" with " if fact is None else "") + ", ".join(shown)
    middle = text[start : fact or end]
    if dim is not None:
        _, node, new = dim
        span = node.span
        assert span is not None
        middle = text[start : span.start] + new + text[span.end : fact or end]
    yield Fix(Span(first.source, start, end), middle + tail)
