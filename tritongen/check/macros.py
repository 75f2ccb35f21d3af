"""Macro calls: a body with its parameters bound to values, so that no name can be captured.

Input: `gelu(sum[k](x[m, k] * w[n, k]))`. Output: the value of gelu's body. An argument that holds a
reducer and that the body uses more than once becomes a temporary, so that it is computed once. Not
here: what a call means otherwise (`lower`), the definitions (`functions`).
"""

from __future__ import annotations

from typing import NoReturn

from tritongen.check import functions
from tritongen.check.ranges import ZERO, Frame
from tritongen.check.report import Skip
from tritongen.check.scope import Scope, Variable
from tritongen.check.trees import walk
from tritongen.check.values import Value
from tritongen.ir.algebra import Poly, index, indices
from tritongen.ir.nodes import Binder, Expr, IndexValue, Nest, Read, Reduce, exceeds
from tritongen.ir.nodes import walk as walk_expr
from tritongen.syntax import ast
from tritongen.syntax.limits import MAX_EXPANDED


def expand(scope: Scope, frame: Frame, node: ast.Call) -> Value:
    """The value of a macro call; what is wrong inside is shown at the call."""
    from tritongen.check.lower import lower, lower_all

    fn = functions.macro(scope, node)
    if scope.expanded > MAX_EXPANDED:
        raise Skip  # and was said
    # Macros that call macros twice double at each level, so the size is counted before anything is pasted.
    scope.expanded += sum(1 for _ in walk(fn.body))
    if scope.expanded > MAX_EXPANDED:
        _too_large(scope, frame, fn, node)
    arguments = functions.arguments(scope, fn, node)
    values = lower_all(scope, frame, tuple(arguments.values()))
    bound = {}
    for name, value in zip(arguments, values, strict=True):
        uses = sum(isinstance(n, ast.Name) and n.name == name for n in walk(fn.body))
        bound[name] = _once(scope, frame, f"{fn.name}_{name}", value) if uses > 1 else value
    inner = Frame(frame.ranges, frame.guards, None, bound)
    before = len(scope.report.diagnostics)
    try:
        result = lower(scope, inner, fn.body)
    except Skip:
        if scope.expanded > MAX_EXPANDED:
            _too_large(scope, frame, fn, node)
        functions.blame_caller(scope, before, node)
        raise
    if exceeds(result.expr, MAX_EXPANDED):
        _too_large(scope, frame, fn, node)
    return result


def _too_large(scope: Scope, frame: Frame, fn: ast.Fn, node: ast.Call) -> NoReturn:
    """Reports E009 once, at the call in the line itself."""
    scope.expanded = MAX_EXPANDED + 1
    if frame.macro is not None:
        raise Skip
    message = f"`{fn.name}` grows beyond {MAX_EXPANDED} operations here"
    scope.report.fail("E009", message, node.span, help="give a part a line of its own")


def _once(scope: Scope, frame: Frame, name: str, value: Value) -> Value:
    """The value, or a read of a temporary that holds it, where it is costly to repeat."""
    if not any(isinstance(e, Reduce) for e in walk_expr(value.expr)):
        return value
    used = free_indices(value.expr)
    ranges = {i: r for i, r in frame.ranges.items() if i in used}
    if frame.guards or any(lo != ZERO for lo, _ in ranges.values()):
        return value  # the temporary would be computed where the term is not
    name = scope.fresh(name)
    box = tuple(Binder(i, lo, hi) for i, (lo, hi) in ranges.items())
    coords = tuple(index(i) for i in ranges)
    dims = tuple(hi for _, hi in ranges.values())
    scope.nests.append(Nest(name, box, coords, dims, value.expr, value.dtype))
    scope.variables[name] = Variable(name, dims, value.dtype, "temporary", None)
    scope.used.add(name)
    return Value(Read(name, coords, None, value.dtype))


def free_indices(expr: Expr) -> frozenset[str]:
    """Indices that an expression takes from around it."""
    found: set[str] = set()
    bound: set[str] = set()

    def add(*polys: Poly) -> None:
        for p in polys:
            found.update(indices(p))

    for e in walk_expr(expr):
        match e:
            case Read(coords=coords):
                add(*coords)
            case IndexValue(p):
                add(p)
            case Reduce(binders=binders, guards=guards):
                bound |= {b.index for b in binders}
                add(*(g.poly for g in guards))
    # No binder shadows an index in force, so a bound name is free nowhere.
    return frozenset(found - bound)
