"""Expressions: syntax tree to typed IR.

Input: an expression whose names are known to be right (`names`), the scope, the frame. Output: a
`Value`. `mean[k](x[k])` becomes a sum and a division, `sum[k](where(k <= n, x[k], 0))` a sum with a
guard, a macro its body. Not here: left sides and lines (`lines`), dtypes of operators (`values`).
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.check import functions, macros
from tritongen.check.binders import binders_of, needed
from tritongen.check.coordinates import at_least, coordinate
from tritongen.check.guards import split_guards
from tritongen.check.ranges import ZERO, Frame
from tritongen.check.reads import read_at
from tritongen.check.report import Skip
from tritongen.check.scope import Scope, Variable
from tritongen.check.values import (
    Value,
    apply,
    cast,
    convert,
    number,
    of_poly,
    power,
    widened,
    widened_in,
)
from tritongen.errors import Span, fix_at
from tritongen.ir import bounds
from tritongen.ir.algebra import Poly, extreme, index, indices, is_size, poly, size, symbols, text
from tritongen.ir.functions import FUNCTIONS, OPERATORS
from tritongen.ir.nodes import (
    BATCH,
    Binder,
    Cast,
    Const,
    Guard,
    Read,
    Reduce,
    Require,
    ScalarRef,
)
from tritongen.ir.reducers import REDUCERS
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse


def lower(scope: Scope, frame: Frame, node: ast.Expr) -> Value:
    """The typed value of an expression; Skip where it has none."""
    match node:
        case ast.Number(value) | ast.Bool(value):
            return number(value)
        case ast.Name():
            return _name(scope, frame, node)
        case ast.Size():
            return of_poly(coordinate(scope, node, frame.names, None), weak=True)
        case ast.Read():
            coords, fill = read_at(scope, frame, node)
            return read_value(scope, scope.variables[node.name], coords, fill)
        case ast.Reduce():
            return _reduce(scope, frame, node)
        case ast.Call():
            return _call(scope, frame, node)
        case ast.Unary("-", x):
            return apply(scope, FUNCTIONS["neg"], (lower(scope, frame, x),), node.span)
        case ast.Not(x):
            return apply(scope, FUNCTIONS["not"], (lower(scope, frame, x),), node.span)
        case ast.Binary(op, a, b) | ast.Compare(op, a, b) | ast.BoolOp(op, a, b):
            values = lower_all(scope, frame, (a, b))
            if op == "**":
                return power(scope, values, node.span)
            result = apply(scope, FUNCTIONS[OPERATORS[op]], values, node.span)
            if isinstance(node, ast.Binary) and frame.macro is None:
                _warn_of_wrapping(scope, node, values, result)
            return result
    raise TypeError(node)


def _warn_of_wrapping(
    scope: Scope, node: ast.Binary, values: tuple[Value, ...], result: Value
) -> None:
    """W004, which a sum takes back: it widens its term. `255 - q` is what it says."""
    if node.op != "-" or scope.concrete(result.dtype) != "u8" or values[0] == number(255):
        return
    sides = [node.a, node.b]
    strong = 0 if not values[0].weak else 1
    sides[strong] = ast.Call("i32", (sides[strong],))
    fix = fix_at(node.span, unparse(replace(node, a=sides[0], b=sides[1])))
    message = f"`{unparse(node)}` is u8, and wraps below 0: 3 - 8 is 251"
    scope.report.add("W004", message, node.span, help="widen it to a signed number", fix=fix)


def lower_all(scope: Scope, frame: Frame, nodes: tuple[ast.Expr, ...]) -> tuple[Value, ...]:
    """All values; every one is tried before the first failure ends the line."""
    values, failed = [], False
    for node in nodes:
        try:
            values.append(lower(scope, frame, node))
        except Skip:
            failed = True
    if failed:
        raise Skip
    return tuple(values)


# ---- names and reads ----------------------------------------------------------------------------
def _name(scope: Scope, frame: Frame, node: ast.Name) -> Value:
    name = node.name
    if frame.macro is not None:
        return frame.macro[name]
    if name in frame.ranges:
        return of_poly(index(name), weak=False)
    if name in scope.constants:
        constant = scope.constants[name]
        if constant.dtype == "int":
            return of_poly(size(name), weak=True)
        dtype = "bool" if constant.dtype == "bool" else "compute"
        return Value(ScalarRef(name, dtype), weak=True)
    if name in scope.scalars:
        kind = scope.kind(scope.scalars[name].dtype)
        dtype = {"float": "compute", "int": "i64", "bool": "bool"}[kind]
        return Value(ScalarRef(name, dtype), weak=True)
    coords = (frame.bare or {}).get(name, ())
    return read_value(scope, scope.variables[name], coords, None)


def read_value(scope: Scope, variable: Variable, coords: tuple[Poly, ...], fill) -> Value:
    """A read; what is stored as a float is widened."""
    expr = Read(variable.name, coords, fill, variable.dtype)
    if scope.kind(variable.dtype) == "float" and variable.role != "temporary":
        return Value(Cast(expr, "compute"))
    return Value(expr)


# ---- calls --------------------------------------------------------------------------------------
def _call(scope: Scope, frame: Frame, node: ast.Call) -> Value:
    if scope.is_dtype(node.name):
        functions.arity(scope, node, 1, 1)
        return cast(scope, lower(scope, frame, node.args[0]), node.name, node.span)
    row = functions.builtin(node.name)
    if row is None:
        return macros.expand(scope, frame, node)
    if row.name in ("maximum", "minimum"):
        functions.arity(scope, node, 2, 8)
        _refuse_two_numbers(scope, node)
        first, *others = lower_all(scope, frame, node.args)
        for other in others:
            first = apply(scope, row, (first, other), node.span)
        return first
    functions.arity(scope, node, row.arity, row.arity)
    values = lower_all(scope, frame, node.args)
    if row.name == "pow":
        return power(scope, values, node.span)
    return apply(scope, row, values, node.span)


def _refuse_two_numbers(scope: Scope, node: ast.Call) -> None:
    """E501 for `max(x, 0, 1)`, where one number never counts."""
    numbers = [a for a in node.args if isinstance(a, ast.Number)]
    others = tuple(a for a in node.args if a not in numbers)
    if len(numbers) < 2 or not others:
        return
    low, high = sorted(numbers, key=lambda a: a.value)[:: len(numbers) - 1]
    message = f"one of the numbers in `{unparse(node)}` never counts"
    fix = fix_at(node.span, unparse(ast.Call("clamp", (*others, low, high))))
    help = "to keep a value between them: {}"
    scope.report.fail("E501", message, node.span, help=help, fix=fix)


# ---- reducers -----------------------------------------------------------------------------------
def _reduce(scope: Scope, frame: Frame, node: ast.Reduce) -> Value:
    binders, guards = binders_of(scope, frame, node, lower)
    if REDUCERS[node.op].is_place:
        _places(scope, node, binders, guards)
    if REDUCERS[node.op].refuses_empty:
        _refuse_empty(scope, node, binders)
    inner = frame.inside({b.index: (b.lo, b.hi) for b in binders}, guards)
    before = len(scope.report.diagnostics)
    body = lower(scope, inner, node.body)
    if REDUCERS[node.op].widens:
        found = scope.report.diagnostics
        found[before:] = [d for d in found[before:] if d.code != "W004"]
    return reduction(scope, frame, node.op, binders, guards, body, node.span)


def _places(
    scope: Scope, node: ast.Reduce, binders: tuple[Binder, ...], guards: tuple[Guard, ...]
) -> None:
    """The number of a term of argmax and argmin: the index itself, or row-major from 0 for several."""
    bounded = {name for g in guards for name in indices(g.poly)}
    bounded |= {b.index for b in binders if b.lo.terms}
    written = (b for b in node.binders if b.low is not None or b.high is not None)
    at = next((b for b in written if b.name in bounded), None)
    if len(binders) > 1 and at is not None:
        names = ", ".join(b.name for b in node.binders)
        nothing = REDUCERS[node.op].identity
        ends = [
            (">" if at.low_strict else ">=", at.low),
            ("<" if at.high_strict else "<=", at.high),
        ]
        asked = " and ".join(
            f"{at.name} {op} {unparse(end)}" for op, end in ends if end is not None
        )
        shown = ", ".join(b.name if b is at else unparse(b) for b in node.binders)
        fix = fix_at(
            node.span, f"{node.op}[{shown}](where({asked}, {unparse(node.body)}, {nothing}))"
        )
        scope.report.fail(
            "E105",
            f"`{node.op}` over several indices needs bounds from 0 to a size",
            at.span,
            help="bound them in the body: {}",
            fix=fix,
            otherwise=f"bound them in the body: `{node.op}[{names}](where(..., ..., {nothing}))`",
        )
    for own, b in zip(node.binders, binders, strict=True):
        # Only whole rows are counted in 64 bits: a masked lane has the place 2^31 - 1.
        whole = not (guards or b.lo.terms)
        if not whole and is_size(b.hi) and symbols(b.hi) - {*scope.constants, BATCH}:
            shown = f"{text(b.hi)} < 2**31 ({node.op} over a part of `{own.name}`)"
            scope.require(Require(b.hi, "<", poly(2**31), shown, "bounds"))


def _refuse_empty(scope: Scope, node: ast.Reduce, binders: tuple[Binder, ...]) -> None:
    """Over an empty dim torch raises; a bound may leave nothing, which is -inf, or the place -1."""
    for own, b in zip(node.binders, binders, strict=True):
        if own.low is None and own.high is None and b.index != BATCH:
            shown = f"{text(b.hi)} > 0 ({node.op} over `{b.index}`)"
            scope.require(Require(b.hi, ">", ZERO, shown, "bounds"))


def reduction(
    scope: Scope,
    frame: Frame,
    op: str,
    binders: tuple[Binder, ...],
    guards: tuple[Guard, ...],
    body: Value,
    span: Span | None,
) -> Value:
    """A reducer in the dtype that it accumulates in."""
    kind = scope.kind(body.dtype)
    for extent in (b.hi - b.lo for b in binders):
        if symbols(extent) <= scope.constants.keys():
            at_least(scope, extent, 0)  # as a window is checked; of sizes, it has no terms
    if op != "mean":
        binders = _none_reversed(scope, binders)
    match op:
        case "mean":
            total = reduction(scope, frame, "sum", binders, guards, body, span)
            count = _count(scope, frame, binders, guards)
            return apply(scope, FUNCTIONS["div"], (total, count), span)
        case "sum" | "prod" if kind != "float":
            expr = convert(scope, Value(widened(scope, body.expr)), "i64")
        case "sum" | "prod":
            expr = widened_in(scope, body.expr)
        case "any" | "all" if kind != "bool":
            expr = apply(scope, FUNCTIONS["ne"], (body, number(0)), span).expr
        case _:
            expr = body.expr
    if op == "sum":
        more, expr = split_guards(scope, expr)
        guards = (*guards, *needed(scope, more, binders))
    return Value(Reduce(op, binders, guards, expr, "i64" if REDUCERS[op].is_place else expr.dtype))


def _none_reversed(scope: Scope, binders: tuple[Binder, ...]) -> tuple[Binder, ...]:
    """Of several ranges, no two have a negative length: kernels multiply lengths, and the product would be positive.

    One that ends before it starts is made empty.
    """
    lengths = {b: b.hi - b.lo for b in binders}
    open_ones = [b for b in binders if not bounds.prove(lengths[b], ">=", ZERO, scope.known)]
    if len(open_ones) < 2:
        return binders
    for b in open_ones:
        ends = replace(b, hi=extreme("max", (b.lo, b.hi)))
        binders = tuple(ends if other is b else other for other in binders)
    return binders


def _count(scope: Scope, frame: Frame, binders, guards) -> Value:
    """The number of terms: a size or a coordinate where it is one, else a sum of ones."""
    if not guards:
        count = poly(1)
        for b in binders:
            extent = b.hi - b.lo
            known = bounds.prove(extent, ">=", ZERO, scope.known) is True
            count = count * (extent if known else extreme("max", (ZERO, extent)))
        return of_poly(count, weak=True)
    closed = bounds.terms_between(binders, guards, frame.facts(scope))
    if closed is not None:
        return of_poly(closed, weak=is_size(closed))
    one = Const(1, "i64")
    return Value(Reduce("sum", binders, guards, one, "i64"))
