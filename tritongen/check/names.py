"""Names on the right side of a line: every one is known, every index bound, every rank right.

Input: an expression and the indices in force. Output: whether it may be lowered; the report has what
is wrong, all of it. The help of an unbound index is the line with a sum over it. Not here: ranges,
bounds and dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tritongen.check import functions
from tritongen.check.coordinates import unbound_size
from tritongen.check.ranges import lower, wrong_rank
from tritongen.check.report import Skip
from tritongen.check.scope import Scope
from tritongen.check.trees import mentions, parts, reads, renamed, walk
from tritongen.check.unbound import left_names, unbound
from tritongen.errors import Fix, Span, fix_at
from tritongen.ir.algebra import Poly
from tritongen.ir.nodes import BATCH
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse


@dataclass(frozen=True, slots=True)
class Line:
    """The line that is looked at; `indexed` where it is written with indices."""

    scope: Scope
    assign: ast.Assign
    indexed: bool


def check_line(scope: Scope, assign: ast.Assign, indexed: bool) -> bool:
    """Whether the right side may be lowered."""
    line = Line(scope, assign, indexed)
    bound = left_names(assign)
    before = len(scope.report.errors)
    silent = _visit(line, assign.value, bound, subscript=False)
    for left in assign.indices or ():
        if isinstance(left, ast.Dots) and not scope.has_batch:
            no_batch(scope, left.span)
        if isinstance(left, ast.Binder):
            for part in parts(left):
                silent |= _visit(line, part, frozenset(), subscript=True)
    return not silent and len(scope.report.errors) == before


def _visit(line: Line, node: ast.Node, bound: frozenset[str], subscript: bool) -> bool:
    """Whether the line of this name is wrong already. Then it is not reported again."""
    match node:
        case ast.Name():
            return _name(line, node, bound, subscript)
        case ast.Size(name):
            if name not in line.scope.sizes and not _is_typaram(line.scope, name):
                unbound_size(line.scope, node)
                return True
            return False
        case ast.Read():
            return _read(line, node, bound)
        case ast.Reduce():
            return _reduce(line, node, bound)
        case ast.Dots():
            if not line.scope.has_batch:
                no_batch(line.scope, node.span)
                return True
            if BATCH not in bound:
                unbound(line.scope, line.assign, BATCH, node.span)
            return False
        case ast.Call():
            if not _callee(line, node, bound):
                return True
    silent = False
    for part in parts(node):
        silent |= _visit(line, part, bound, subscript)
    return silent


def _is_typaram(scope: Scope, name: str) -> bool:
    return any(p.name == name for p in scope.typarams)


def _name(line: Line, node: ast.Name, bound: frozenset[str], subscript: bool) -> bool:
    scope, name = line.scope, node.name
    if name in bound:
        return False
    scope.used.add(name)
    if name in scope.broken:
        return True
    if name in scope.scalars or name in scope.constants:
        return False
    variable = scope.variables.get(name)
    if variable is not None:
        if line.indexed and variable.dims:
            alone = _indices_of(line, bound)
            dims = [alone.get(d) or lower(d) for d in variable.dims]
            read = f"{name}[{', '.join(dims)}]"
            is_plain = set(dims) <= bound
            scope.report.add(
                "E303",
                f"the tensor `{name}` needs its indices in this line",
                node.span,
                help="" if is_plain else f"give it indices, as in `{read}`",
                notes=((variable.span, "declared here"),),
                fix=fix_at(node.span, read) if is_plain else None,
            )
        return False
    if name in scope.outputs:
        scope.report.add("E114", f"`{name}` is read but no line assigns it", node.span)
        return False
    known = scope.readable() | bound
    near = scope.meant(name, known, node.span) if len(name) > 2 else {}
    if line.indexed and (subscript or name in scope.index_names) and not near:
        unbound(line.scope, line.assign, name, node.span)
    else:
        near = near or _comment(node.span)
        scope.report.add("E113", f"unknown name `{name}`", node.span, **near)
    return False


def _indices_of(line: Line, bound: frozenset[str]) -> dict[Poly, str]:
    """By extent, the index that stands alone in a dim of that extent, where the line's reads have just one."""
    found: dict[Poly, set[str]] = {}
    for read in reads(line.assign.value):
        variable = line.scope.variables.get(read.name)
        if variable is not None and len(variable.dims) == len(read.indices):
            for at, extent in zip(read.indices, variable.dims, strict=True):
                if isinstance(at, ast.Name) and at.name in bound:
                    found.setdefault(extent, set()).add(at.name)
    return {extent: own.pop() for extent, own in found.items() if len(own) == 1}


def _comment(span: Span | None) -> dict[str, Any]:
    """`x[n] // same`: what other languages begin a comment with is a division here."""
    before = span.source.text[: span.start].rstrip() if span is not None else ""
    if span is None or not before.endswith("//"):
        return {}
    whole = replace(span, start=len(before) - 2)
    fix = Fix(whole, "#" + span.source.text[whole.start + 2 : whole.end])
    return {"help": "a comment begins with `#`", "fix": fix}


def _read(line: Line, node: ast.Read, bound: frozenset[str]) -> bool:
    scope, name = line.scope, node.name
    scope.used.add(name)
    silent = name in scope.broken
    variable = scope.variables.get(name)
    if variable is not None:
        if len(variable.dims) != len(node.indices):
            try:
                wrong_rank(scope, variable, node.indices, node, bound)
            except Skip:
                pass
    elif name in scope.scalars or name in scope.constants or name in bound:
        what = (
            "an index" if name in bound else "a scalar" if name in scope.scalars else "a constant"
        )
        scope.report.add("E303", f"`{name}` is {what}, not a tensor", node.span)
    elif silent:
        pass  # its own line is wrong
    elif name in scope.outputs:
        scope.report.add("E114", f"`{name}` is read but no line assigns it", node.span)
    else:
        near = scope.meant(name, set(scope.variables), node.span)
        scope.report.add("E113", f"unknown name `{name}`", node.span, **near)
    for i in node.indices:
        silent |= _visit(line, i, bound, subscript=True)
    return silent


def _reduce(line: Line, node: ast.Reduce, bound: frozenset[str]) -> bool:
    scope, silent = line.scope, False
    for b in node.binders:
        if b.name == BATCH and not scope.has_batch:
            no_batch(scope, b.span)
            silent = True
        if b.name in bound:
            help = "use another index"
            free = scope.free_index(b.name, bound)
            fix = fix_at(node.span, unparse(renamed(node, b.name, free)))
            turned = _turned(line, b, bound)
            if b.name == BATCH:
                help, fix = "give it a line of its own", _line_before(line, node, bound)
            elif turned is not None:
                help = "the index that is bound stands first"
                new, fix = turned
                bound = bound | {new}  # else the same slip is told again
            scope.report.add(
                "E206",
                f"`{b.name}` is already in use",
                b.span,
                label="this would hide it",
                help=help,
                fix=fix,
            )
        for part in parts(b):
            silent |= _visit(line, part, bound, subscript=True)
        bound = bound | {b.name}
    return _visit(line, node.body, bound, subscript=False) or silent


def _line_before(line: Line, node: ast.Reduce, bound: frozenset[str]) -> Fix | None:
    """The reducer on a line of its own, up to where it is read."""
    whole = line.assign.whole
    if whole is None or node.span is None:
        return None
    outer = sorted((bound - {b.name for b in node.binders}) & mentions(node))
    name = line.scope.free("t") + (f"[{', '.join(outer)}]" if outer else "")
    before = whole.source.text[whole.start : node.span.start]
    text = f"{name} = {unparse(node)}\n  {before}{name}"
    return Fix(replace(whole, end=node.span.end), text)


def _turned(line: Line, b: ast.Binder, bound: frozenset[str]) -> tuple[str, Fix | None] | None:
    """`sum[i >= k](x[k])`, where k was meant: `k`, and `k <= i`."""
    known = bound | line.scope.readable()
    match b:
        case ast.Binder(name, ast.Name(new), strict, None) if new not in known:
            return new, fix_at(b.span, f"{new} {'<' if strict else '<='} {name}")
        case ast.Binder(name, None, _, ast.Name(new), strict) if new not in known:
            return new, fix_at(b.span, f"{new} {'>' if strict else '>='} {name}")
    return None


def no_batch(scope: Scope, span: Span | None) -> None:
    message = "`...` is not bound"
    help = "give an operand batch dims, as `x: T[..., D]`"
    scope.report.add("E208", message, span, label="no operand has `...`", help=help)


def _callee(line: Line, node: ast.Call, bound: frozenset[str]) -> bool:
    """Whether the arguments are worth a look."""
    scope = line.scope
    if line.indexed and (reducer := functions.reducer_of(node)):
        _reducer_meant(line, node, bound, reducer)
        scope.used |= mentions(node)
        return False
    if scope.is_dtype(node.name) or functions.builtin(node.name) or scope.library.fn(node.name):
        return True
    if scope.library.op(node.name) is not None:
        if line.indexed:
            fixes = _apart(line, node)
            help = f"give it a line of its own, without indices: `{scope.free('t')} = ...`"
            scope.report.add(
                "E503",
                f"the op `{node.name}` takes whole tensors: call it in a line without indices",
                node.span,
                help=help if not fixes else "",
                fix=fixes[0] if fixes else None,
                others=fixes[1:],
                otherwise=help,
            )
            scope.used |= mentions(node)
        return not line.indexed
    try:
        functions.unknown(scope, node)
    except Skip:
        pass
    return True


def _reducer_meant(line: Line, node: ast.Call, bound: frozenset[str], reducer: str) -> None:
    """`max(x[n, d])` where nothing else binds d."""
    free = [
        name
        for read in reads(node)
        for i in read.indices
        for name in (BATCH if isinstance(i, ast.Dots) else getattr(i, "name", ""),)
        if name and name not in bound | line.scope.readable()
    ]
    binders = tuple(ast.Binder(name) for name in dict.fromkeys(free))
    shown = f"{reducer}[...](...)"
    line.scope.report.add(
        "E106",
        f"`{node.name}` needs the indices that it runs over",
        node.span,
        help=f"a reducer names its indices: {'{}' if binders else f'`{shown}`'}",
        fix=(
            fix_at(node.span, unparse(ast.Reduce(reducer, binders, node.args[0])))
            if binders
            else None
        ),
        otherwise=f"a reducer names its indices: `{shown}`",
    )


def _apart(line: Line, node: ast.Call) -> tuple[Fix, ...]:
    """`y = softmax(x)` for `y[n, d] = softmax(x[n, d])`; within an expression, on a line before it."""
    whole, given = line.assign.whole, [a for a in node.args if isinstance(a, ast.Read)]
    if whole is None or node.span is None:
        return ()
    args = tuple(ast.Name(a.name) if isinstance(a, ast.Read) else a for a in node.args)
    call = unparse(replace(node, args=args))
    own = line.assign.indices
    if line.assign.value is node and all(a.indices == own for a in given[:1]):
        return (Fix(whole, f"{line.assign.name} = {call}"),)
    text, name = whole.source.text, line.scope.free("t")
    before, after = text[whole.start : node.span.start], text[node.span.end : whole.end]
    reading = [a.indices for a in given[:1]] + [line.assign.indices or ()]
    shown = (", ".join(map(unparse, indices)) for indices in reading)
    return tuple(Fix(whole, f"{name} = {call}\n  {before}{name}[{i}]{after}") for i in shown)


def unused_index_warnings(scope: Scope, assign: ast.Assign) -> None:
    """W002: an index of an output that the right side never uses."""
    used = {n.name for n in walk(assign.value) if isinstance(n, ast.Name)}
    used |= {BATCH for n in walk(assign.value) if isinstance(n, ast.Dots)}
    for left in assign.indices or ():
        name = BATCH if isinstance(left, ast.Dots) else getattr(left, "name", None)
        if name is not None and name not in used:
            scope.report.add(
                "W002",
                f"index `{name}` is never used on the right",
                left.span,
                label="every element along it is the same",
            )
