"""Makes a finding small: leaves out lines, outputs, operands and parts of expressions while it still fails.

    smaller = shrunk(finding, pair, seconds=60)

Any file of the language can be shrunk, since parts are left out of its syntax tree. A step counts if a finding of the same
kind comes back. Not here: what a kind is (`drive.kind_of`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from tritongen.check import check
from tritongen.errors import SpecError
from tritongen.proof.fuzz import names
from tritongen.proof.fuzz.drive import Finding, Pair, kind_of
from tritongen.proof.fuzz.found import parts_of
from tritongen.syntax import ast
from tritongen.syntax.parse import parse
from tritongen.syntax.unparse import unparse

EXPRESSIONS = (
    ast.Read,
    ast.Reduce,
    ast.Call,
    ast.Unary,
    ast.Binary,
    ast.Compare,
    ast.BoolOp,
    ast.Not,
)
LEAVES = (ast.Name, ast.Size, ast.Number, ast.Bool)


def shrunk(finding: Finding, pair: Pair, seconds: float = 60) -> Finding:
    """The smallest that was found in the time; itself where none was."""
    kind, end = kind_of(finding), time.monotonic() + seconds
    parts = parts_of(finding["stage"])
    best, tried = finding, {finding["text"]}
    progress = True
    while progress:
        progress = False
        for text in smaller(best["text"]):
            if time.monotonic() > end:
                return best
            if text in tried or len(text) > len(best["text"]):
                continue
            tried.add(text)
            if not is_spec(text) and not re.match("build|derive", finding["stage"]):
                continue
            report = pair.report(text, "shrinking", finding["seed"], **parts)
            again = next((f for f in report["findings"] if kind_of(f) == kind), None)
            if again is not None:
                best = {**finding, **again, "text": text}
                progress = True
                break
    return best


def is_spec(text: str) -> bool:
    try:
        check(parse(text))
    except (SpecError, AssertionError, RecursionError, ValueError):
        return False
    return True


def smaller(text: str) -> Iterator[str]:
    """Texts of fewer parts, the most telling first."""
    file = parse(text)
    *others, last = file.items
    assert isinstance(last, ast.OpDef), "the op under test stands last"
    for k in range(len(others)):
        yield unparse(ast.File((*others[:k], *others[k + 1 :], last)))
    for op in smaller_ops(last):
        yield unparse(ast.File((*others, pruned(op))))


def smaller_ops(op: ast.OpDef) -> Iterator[ast.OpDef]:
    for line in op.lines:
        yield _without(op, line)
    for line in op.lines:
        if operand := _as_operand(op, line):
            yield replace(_without(op, line), params=(*op.params, operand))
    for k in range(len(op.facts)):
        yield replace(op, facts=op.facts[:k] + op.facts[k + 1 :])
    if op.clauses:
        yield replace(op, clauses=())
    for k, line in enumerate(op.lines):
        for value in simpler(line.value):
            changed = replace(line, value=value)
            yield replace(op, lines=(*op.lines[:k], changed, *op.lines[k + 1 :]))


def _without(op: ast.OpDef, line: ast.Assign) -> ast.OpDef:
    lines = tuple(other for other in op.lines if other is not line)
    return replace(op, lines=lines, outputs=tuple(o for o in op.outputs if o.name != line.name))


def _as_operand(op: ast.OpDef, line: ast.Assign) -> ast.Operand | None:
    """Replaces the value of a line by an operand, if its dims are written."""
    output = next((o for o in op.outputs if o.name == line.name), None)
    if output is not None:
        return output
    dims: list[ast.Index] = []
    for index in line.indices or ():
        match index:
            case ast.Binder(_, None, _, high, True) if high is not None:
                dims.append(high)
            case ast.Dots():
                dims.append(index)
            case _:
                return None
    dtype = op.typarams[0].name if op.typarams else "f32"
    return ast.Operand(line.name, ast.Type(dtype, tuple(dims)))


def simpler(node: Any) -> Iterator[Any]:
    """The node with one expression inside replaced by a part of itself, or left out."""
    if isinstance(node, EXPRESSIONS):
        yield from parts(node)
        if isinstance(node, ast.Read) and node.fill is not None:
            yield replace(node, fill=None)
        if not isinstance(node, (ast.Compare, ast.BoolOp, ast.Not)):
            yield ast.Number(1)
    if isinstance(node, ast.Reduce):
        for k, binder in enumerate(node.binders):
            if binder.low is not None or binder.high is not None:
                bare = ast.Binder(binder.name)
                yield replace(node, binders=(*node.binders[:k], bare, *node.binders[k + 1 :]))
            if len(node.binders) > 1:
                yield replace(node, binders=(*node.binders[:k], *node.binders[k + 1 :]))
    if not isinstance(node, ast.Node):
        return
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, tuple):
            for k, item in enumerate(value):
                for changed in simpler(item):
                    parts_of = (*value[:k], changed, *value[k + 1 :])
                    yield replace(node, **{field.name: parts_of})  # type: ignore[arg-type]
        elif isinstance(value, ast.Node):
            for changed in simpler(value):
                yield replace(node, **{field.name: changed})


def parts(node: Any) -> list[Any]:
    """The expressions that an expression is made of."""
    match node:
        case ast.Reduce(body=body):
            return [body]
        case ast.Call(args=args):
            return list(args)
        case ast.Unary(x=x) | ast.Not(x):
            return [x]
        case ast.Binary(_, a, b) | ast.BoolOp(_, a, b):
            return [a, b]
        case ast.Compare(_, a, b):
            return []
    return []


def pruned(op: ast.OpDef) -> ast.OpDef:
    """Without what nothing speaks of any more; a result that none reads is given."""
    assigned = {line.name for line in op.lines}
    op = replace(op, outputs=tuple(o for o in op.outputs if o.name in assigned))
    words = _words(*op.lines, *op.facts)
    params = tuple(p for p in op.params if p.name in words)
    sizes = _words(*op.lines, *(o.type for o in op.outputs), *(p for p in params))
    facts: list[ast.Fact] = []
    for fact in reversed(op.facts):
        used = fact.name in sizes if isinstance(fact, ast.Define) else _words(fact) <= sizes
        if used:
            facts.insert(0, fact)
            sizes |= _words(fact)
    params = tuple(p for p in params if p.name in _words(*op.lines, *facts))
    typed = _words(*params, *op.lines, *op.outputs)
    typarams = tuple(t for t in op.typarams if t.name in typed)
    return replace(op, params=params, facts=tuple(facts), typarams=typarams)


def _words(*nodes: Any) -> set[str]:
    return {w for node in nodes for w in names.WORD.findall(unparse(node))}
