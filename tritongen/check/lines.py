"""Turns every line of an op into a nest, in an order in which reads follow writes.

Input: the lines of an op (or of its `grad` block) and a scope. Output: nests, appended to the scope. A wrong line marks
its name as broken, and lines that read that name are skipped. `lower` handles expressions, and `pointwise` broadcasts
lines without indices.
"""

from __future__ import annotations

from typing import Any

from tritongen.check import calls, names, pointwise
from tritongen.check.lower import lower
from tritongen.check.ranges import Frame, Target, target_of
from tritongen.check.recurrence import as_sum, is_recurrence
from tritongen.check.report import Skip
from tritongen.check.scope import Scope, Variable
from tritongen.check.trees import has_index, mentions, reads, walk
from tritongen.check.values import store
from tritongen.ir.nodes import Nest
from tritongen.syntax import ast
from tritongen.syntax.limits import MAX_EXPANDED
from tritongen.syntax.unparse import unparse


def check_lines(scope: Scope, lines: tuple[ast.Assign, ...]) -> None:
    """Checks all lines, then reports outputs that no line assigns."""
    for line in in_order(scope, _once(scope, lines)):
        try:
            check_line(scope, line)
        except Skip:
            scope.broken.add(line.name)
    assigned = {line.name for line in lines}
    for output in scope.outputs.values():
        if output.name not in assigned:
            message = f"output `{output.name}` is never assigned"
            scope.report.add("E114", message, output.span)
    for line in lines:
        if line.name not in scope.outputs and line.name not in scope.used:
            if line.name not in scope.broken:
                scope.report.add("W001", f"`{line.name}` is never read", line.span)
    _warn_of_waste(scope, lines)


def _warn_of_waste(scope: Scope, lines: tuple[ast.Assign, ...]) -> None:
    """W005: of a temporary one place alone is read along an index."""
    read: dict[str, list[ast.Read]] = {}
    whole = set(scope.broken)  # without brackets all of a value is read
    for node in (node for line in lines for node in walk(line.value)):
        if isinstance(node, ast.Read):
            read.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Name):
            whole.add(node.name)
    for line in lines:
        uses, own = read.get(line.name, []), line.indices or ()
        if line.name in scope.outputs or line.name in whole:
            continue
        for place, index in enumerate(own):
            found = {unparse(u.indices[place]) for u in uses if len(u.indices) == len(own)}
            if isinstance(index, ast.Name) and len(found) == 1 and found <= {*map(str, range(100))}:
                (only,) = found
                message = (
                    f"`{line.name}` is computed for every `{index.name}`, and read at {only} alone"
                )
                help = f"leave `{index.name}` out of the line, and write {only} in its place"
                scope.report.add("W005", message, index.span, help=help)


def _once(scope: Scope, lines: tuple[ast.Assign, ...]) -> list[ast.Assign]:
    """The first line for each name; E112 for the others."""
    first: dict[str, ast.Assign] = {}
    for line in lines:
        if line.name in first:
            scope.report.add(
                "E112",
                f"`{line.name}` is assigned twice",
                line.span,
                notes=((first[line.name].span, "first here"),),
                help="assign each name once",
            )
        first.setdefault(line.name, line)
    known = (scope.variables, scope.scalars, scope.constants)
    return [line for line in first.values() if not any(line.name in names for names in known)]


def in_order(scope: Scope, lines: list[ast.Assign]) -> list[ast.Assign]:
    """Lines sorted so that reads follow writes, as written where that allows; E114 for a cycle."""
    own = {line.name for line in lines}
    waiting = {line.name: _values_read(line) & own for line in lines}
    done: list[ast.Assign] = []
    ready: set[str] = set()
    rest = list(lines)
    while rest:
        movable = next((line for line in rest if waiting[line.name] <= ready), None)
        if movable is None:
            _cycle(scope, rest, waiting, ready)
            return done
        rest.remove(movable)
        done.append(movable)
        ready.add(movable.name)
    return done


def _values_read(line: ast.Assign) -> frozenset[str]:
    """Names of values; one that the line binds as an index is no value there, whatever else it is called."""
    bound = {i.name for i in line.indices or () if isinstance(i, (ast.Name, ast.Binder))}
    bound |= {n.name for n in walk(line.value) if isinstance(n, ast.Binder)}
    read = {n.name for n in reads(line.value)}
    return frozenset(read | (mentions(line.value) - bound))


def _cycle(
    scope: Scope, rest: list[ast.Assign], waiting: dict[str, frozenset[str]], ready: set[str]
) -> None:
    """The shortest way to say it: one chain of names that leads back to its start."""
    by_name = {line.name: line for line in rest}
    path = [rest[0].name]
    while True:
        following = min(waiting[path[-1]] - ready)
        if following in path:
            path = path[path.index(following) :] + [following]
            break
        path.append(following)
    scope.broken |= set(by_name)
    line = by_name[path[0]]
    if len(path) == 2:
        message = f"`{path[0]}` is defined by itself"
        details: dict[str, Any] = {"help": "a line gives its name a value once"}
        if is_recurrence(line):
            message = f"`{path[0]}` reads itself at another step: a recurrence, which the language does not have yet"
            details = {"help": "where each step is `a * h + b`, it is a sum over the steps before"}
            if fix := as_sum(scope, line):
                details = {"help": "as a sum over the steps before: {}", "fix": fix}
        scope.report.add("E114", message, line.span, **details)
        return
    notes = tuple((by_name[name].span, "and this one") for name in path[1:-1])
    scope.report.add("E114", f"a cycle: {' -> '.join(path)}", line.span, notes=notes)


def check_line(scope: Scope, line: ast.Assign) -> None:
    """One line, appended to the scope's nests; Skip where it is wrong."""
    scope.line, scope.expanded = line, 0
    indexed = line.indices is not None or has_index(line.value)
    if not names.check_line(scope, line, indexed):
        raise Skip
    if line.name in scope.broken:
        raise Skip
    if indexed:
        target = target_of(scope, line)
        if line.name in scope.outputs:
            names.unused_index_warnings(scope, line)
        write(scope, line, target, Frame(target.ranges), line.value)
        return
    value = calls.expand_calls(scope, line)
    if value is not None:
        write(scope, line, *pointwise.broadcast(scope, line, value), value)


def write(scope: Scope, line: ast.Assign, target: Target, frame: Frame, value: ast.Expr) -> None:
    """The nest of a line, and its name for the lines below."""
    result = lower(scope, frame, value)
    output = scope.outputs.get(line.name)
    if output is not None:
        body = store(scope, result, output.dtype, line.span)
        nest = Nest(line.name, target.box, target.coords, target.dims, body, output.dtype)
        scope.variables[line.name] = output
    else:
        nest = Nest(line.name, target.box, target.coords, target.dims, result.expr, result.dtype)
        scope.variables[line.name] = Variable(
            line.name, target.dims, result.dtype, "temporary", line.span
        )
    if not scope.holds((nest,)):
        message = f"`{scope.op.name}` grows beyond {MAX_EXPANDED} operations"
        scope.report.fail("E009", message, scope.op.span, help="split it into several ops")
    scope.nests.append(nest)
