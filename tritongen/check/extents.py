"""Proposes bounds for an index that has no range.

Input: a line or a reducer, and the index. Output: fixes, the likeliest first. The one that compiles is found when the
message is shown (`errors.proven`). The candidates, in order:

1. What a line that reads the temporary implies. `y[n, h] = g[n, h]` gives g's second dim the extent of y's.
2. The largest bound that keeps all reads in bounds.
3. The dims that are read.

`ranges` decides which range an index has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product
from typing import Any

from tritongen.check.coordinates import coordinate
from tritongen.check.report import Report, Skip
from tritongen.check.scope import Scope
from tritongen.check.trees import parts, reads, walk
from tritongen.errors import Fix
from tritongen.ir import bounds
from tritongen.ir.algebra import (
    Floor,
    Idx,
    Poly,
    affine,
    atoms,
    extreme,
    floordiv,
    index,
    indices,
    is_size,
    poly,
    size,
)
from tritongen.ir.nodes import BATCH
from tritongen.ir.print_poly import NotWritable, poly_ast
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse

MAX_FIXES = 6
MAX_USES = 3  # lines from a temporary to the one that gives its length
Inside = ast.Assign | ast.Reduce


def bounded(
    scope: Scope, inside: Inside, at: ast.Name | ast.Binder, end: Poly | None = None
) -> tuple[Fix, ...]:
    """The left side or the reducer, with a bound for each index that needs one."""
    if inside.span is None or at.span is None:
        return ()
    aside = replace(scope, report=Report(), facts=list(scope.facts))  # nothing of this is said
    choices: list[list[str]] = []
    for i in inside.binders if isinstance(inside, ast.Reduce) else inside.indices or ():
        choices.append([unparse(i)])
        if not isinstance(i, (ast.Name, ast.Binder)) or i.name == BATCH:
            continue
        whole = i if isinstance(i, ast.Binder) else ast.Binder(i.name)
        found = alone(scope, inside, i.name)
        given = any(r.fill is None for _, r in found) or len({dim for dim, _ in found}) == 1
        if whole.high is not None or (given and i is not at):
            continue
        ends = [end] if i is at and end is not None else _extents(aside, inside, i.name)
        shown = [unparse(replace(whole, high=tree)) for tree in map(_tree, ends) if tree]
        choices[-1] = list(dict.fromkeys(shown)) or choices[-1]
        if i is at and not shown:
            return ()
    if isinstance(at, ast.Binder) and at.high is not None:
        return ()
    closed = inside.span.source.text.index("]", at.span.end) + 1
    head = inside.op if isinstance(inside, ast.Reduce) else inside.name
    span = replace(inside.span, end=closed)
    heads = (f"{head}[{', '.join(each)}]" for each in islice(product(*choices), MAX_FIXES))
    return tuple(Fix(span, text) for text in heads)


def used_bounds(scope: Scope, c: Poly) -> Iterator[tuple[str, Poly, tuple[Fix, ...]]]:
    """The indices of the left side in a coordinate, as long as the lines that read the temporary need them."""
    line = scope.line
    if line is None or line.name in scope.outputs:
        return
    for position, i in enumerate(line.indices or ()):
        if isinstance(i, ast.Name) and i.name in indices(c):
            for end in _used(scope, line.name, position, MAX_USES):
                yield i.name, end, bounded(scope, line, i, end)


def unbounded(inside: Inside, i: ast.Name | ast.Binder) -> str:
    """The help if no bound is known that compiles."""
    if isinstance(i, ast.Binder) and i.high is not None:
        condition = unparse(replace(i, low=None))
        return f"end it at a size, and write `where({condition}, ..., ...)` for what is reduced"
    return f"write its end: `{i.name} < ...`, a size or a number"


def alone(scope: Scope, inside: Inside, name: str) -> list[tuple[Poly, ast.Read]]:
    """The dims that the index subscripts alone, and where."""
    dims = _subscripted(scope, inside, name)
    return [(dim, read) for dim, read, i in dims if isinstance(i, ast.Name)]


def _subscripted(
    scope: Scope, inside: Inside, name: str
) -> Iterator[tuple[Poly, ast.Read, ast.Node]]:
    """Every dim whose coordinate uses the index, over all reads where it is in use."""
    for read in reads(inside.value if isinstance(inside, ast.Assign) else inside):
        variable = scope.variables.get(read.name)
        if variable is not None and len(variable.dims) == len(read.indices):
            for dim, i in zip(variable.dims, read.indices, strict=True):
                if name in _own_names(i):
                    yield dim, read, i


def _own_names(i: ast.Node) -> Iterator[str]:
    """The names in a coordinate, but for those that subscript what is read there."""
    if isinstance(i, ast.Name):
        yield i.name
    elif not isinstance(i, ast.Read):
        for part in parts(i):
            yield from _own_names(part)


# ---- how long an index may be -------------------------------------------------------------------
def _extents(scope: Scope, inside: Inside, name: str) -> list[Poly]:
    """Proposals from the lines that read the assigned value, from the bounds of reads, from the dims that are read, and from binders
    that end at the index.
    """
    found: list[Poly] = []
    if isinstance(inside, ast.Assign):
        names = [getattr(i, "name", None) for i in inside.indices or ()]
        found += _used(scope, inside.name, names.index(name), MAX_USES)
    line = inside if isinstance(inside, ast.Assign) else scope.line
    read = list(_subscripted(scope, inside, name))
    for dim, node, i in read:
        if node.fill is None and line is not None:
            found += _fitting(scope, line, name, dim, i)
    found += [dim for dim, _, _ in read]
    value = inside.value if isinstance(inside, ast.Assign) else inside
    for reducer in (n for n in walk(value) if isinstance(n, ast.Reduce)):  # `sum[k <= i](x[k])`
        for b in reducer.binders:
            if isinstance(b, ast.Binder) and ast.Name(name) in (b.low, b.high):
                found += [dim for dim, _ in alone(scope, reducer, b.name)]
    return [_named(scope, end) for end in found if is_size(end)]


def _used(scope: Scope, name: str, position: int, depth: int) -> list[Poly]:
    """The extents that the lines reading a temporary need of one of its dims."""
    found = []
    for line in scope.op.lines if isinstance(scope.op, ast.OpDef) else ():
        for read in reads(line.value):
            if read.name == name and read.fill is None and position < len(read.indices):
                i = read.indices[position]
                end = _end(scope, line, i, depth, above=read)
                found += [] if end is None else [end]
    return list(dict.fromkeys(found))


def _end(
    scope: Scope, line: ast.Assign, i: Any, depth: int, above: ast.Read | None = None
) -> Poly | None:
    """One more than a coordinate reaches in a line."""
    ranges = {}
    for name in set(_own_names(i)) - set(scope.constants):
        end = _range(scope, line, name, depth, above)
        if end is None:
            return None
        ranges[name] = (poly(0), end)
    try:
        p = coordinate(scope, i, frozenset(ranges), None)
    except Skip:
        return None
    for atom in atoms(p):
        if isinstance(atom, Floor) and p == atom.num % poly(atom.den):
            return poly(atom.den)
    tops = bounds.peaks(p, bounds.within(scope.known, ranges))
    return None if tops is None else extreme("max", tops) + 1


def _range(
    scope: Scope, line: ast.Assign, name: str, depth: int, above: ast.Read | None
) -> Poly | None:
    """The range of an index of a line that may not have been checked yet; `above` gives none."""
    for position, left in enumerate(line.indices or ()):
        if getattr(left, "name", None) == name:
            output = scope.outputs.get(line.name)
            if output is not None:
                return output.dims[position] if position < len(output.dims) else None
            break
    else:
        position = -1
    binders = [*(line.indices or ()), *(n for n in walk(line.value) if isinstance(n, ast.Binder))]
    for b in binders:
        if isinstance(b, ast.Binder) and b.name == name and b.high is not None:
            top = _end(scope, line, b.high, depth - 1, above) if depth > 0 else None
            return top - 1 if top is not None and b.high_strict else top
    for dim, read in alone(scope, line, name):
        if read.fill is None and (above is None or read.name != above.name):
            return dim
    uses = _used(scope, line.name, position, depth - 1) if position >= 0 and depth > 1 else []
    return uses[0] if uses else None


def _fitting(scope: Scope, line: ast.Assign, name: str, dim: Poly, i: Any) -> list[Poly]:
    """The range of k for which `x[a * k + rest]` is in bounds: `F // 2` for `x[2 * k + 1]`."""
    others = set(_own_names(i)) - {name} - set(scope.constants)
    ranges = {n: _range(scope, line, n, MAX_USES, None) for n in others}
    known = {n: (poly(0), end) for n, end in ranges.items() if end is not None}
    if len(known) < len(others):
        return []
    try:
        p = coordinate(scope, i, frozenset({*known, name}), None)
    except Skip:
        return []
    factor = (affine(p) or ({}, p))[0].get(Idx(name))
    if factor is None or bounds.prove(factor, ">", poly(0), scope.known) is not True:
        return []
    rest, facts = p - factor * index(name), bounds.within(scope.known, known)
    tops = bounds.peaks(rest, facts)
    if tops is None or bounds.prove(rest, ">=", poly(0), facts) is not True:
        return []
    ends = [floordiv(dim - 1 - extreme("max", tops), factor) + 1]
    return ends if factor == poly(1) else [floordiv(dim, factor), *ends]


def _named(scope: Scope, end: Poly) -> Poly:
    """The spec's own name for an extent."""
    equal = (size(n) for n in scope.sizes if n not in scope.broken)
    if isinstance(_tree(end), (ast.Size, ast.Name, ast.Number)):
        return end
    return next((s for s in equal if bounds.prove(s, "==", end, scope.known) is True), end)


def _tree(end: Poly) -> ast.Expr | None:
    try:
        return poly_ast(end)
    except NotWritable:
        return None
