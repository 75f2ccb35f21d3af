"""E202: an index that nothing binds, and the line that would bind it.

Input: the line, and the unbound name in it. Output: a finding, once for each name of a line. The correction is a sum over the
index, or an index of the left side if that has none yet. If only a reducer next to the index binds it, the correction is the
size of the dim. `names` finds unbound names.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.check.ranges import lower
from tritongen.check.scope import Scope
from tritongen.check.trees import parts, reads
from tritongen.errors import Fix, Span, fix_at
from tritongen.ir.algebra import text
from tritongen.ir.nodes import BATCH
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse


def left_names(assign: ast.Assign) -> frozenset[str]:
    """The indices that the left side binds."""
    lefts = assign.indices or ()
    names = {i.name for i in lefts if isinstance(i, (ast.Name, ast.Binder))}
    return frozenset(names | {BATCH for i in lefts if isinstance(i, ast.Dots)})


def unbound(scope: Scope, assign: ast.Assign, name: str, span: Span | None) -> None:
    """Reports E202, with a line that binds all unbound indices."""
    if (name, assign) in scope.said:
        return
    scope.said.append((name, assign))
    missing = _unbound_names(scope, assign)
    if name not in missing:
        label, help, fix = "only the reducer next to it binds it", *_extent(
            scope, assign, name, span
        )
    else:
        label = "appears only on the right"
        kept = _kept(scope, assign, missing)
        help = "to sum over it" if kept is None else "to keep it"
        binders = tuple(ast.Binder(n) for n in missing)
        summed = replace(assign, value=ast.Reduce("sum", binders, assign.value))
        line = unparse(kept or summed)
        fix = fix_at(assign.whole, line)
        if fix is None:  # an expression without a left side: no part of its text is the line
            help = f"{help}: `{line}`"
    scope.report.add("E202", f"index `{name}` is not bound", span, label=label, help=help, fix=fix)


def _extent(
    scope: Scope, assign: ast.Assign, name: str, span: Span | None
) -> tuple[str, Fix | None]:
    """`sum[d](x[n, d]) / d`: the size was meant."""
    for read in reads(assign.value):
        variable = scope.variables.get(read.name)
        if variable is not None and len(variable.dims) == len(read.indices):
            for dim, i in zip(variable.dims, read.indices, strict=True):
                if isinstance(i, ast.Name) and i.name == name:
                    return "the number of its values is {}", fix_at(span, text(dim))
    return "", None


def _kept(scope: Scope, assign: ast.Assign, missing: list[str]) -> ast.Assign | None:
    """The line with the indices on its left side, where that has no brackets and is not of rank 0."""
    output = scope.outputs.get(assign.name)
    wanted = missing if output is None else [lower(d) for d in output.dims]
    if assign.indices is not None or sorted(wanted) != sorted(missing):
        return None
    indices = tuple(ast.Dots() if n == BATCH else ast.Name(n) for n in wanted)
    return replace(assign, indices=indices)


def _unbound_names(scope: Scope, assign: ast.Assign) -> list[str]:
    found: list[str] = []
    known = scope.readable() | scope.broken

    def visit(n: ast.Node, bound: frozenset[str], subscript: bool) -> None:
        match n:
            case ast.Name(name) if name not in known and name not in bound and subscript:
                found.append(name)
            case ast.Dots() if BATCH not in bound:
                found.append(BATCH)
            case ast.Reduce(_, binders):
                bound = bound | {b.name for b in binders}
        for part in parts(n):
            visit(part, bound, subscript or isinstance(n, ast.Read))

    visit(assign.value, left_names(assign), False)
    return list(dict.fromkeys(found))
