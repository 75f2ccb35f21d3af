"""Turns index expressions of the syntax tree into polys: sizes and coordinates.

Input: an expression, the scope, the indices in use. Output: a `Poly`. `p * stride + r - pad` is one, and so is
`target[n]` (an integer read, a `Fetch`). `i * j` is not. `reads` checks whether a coordinate stays inside its dim.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import NoReturn

from tritongen.check import trees
from tritongen.check.definitions import definitions
from tritongen.check.report import Skip
from tritongen.check.scope import Scope
from tritongen.errors import Span
from tritongen.ir import bounds
from tritongen.ir.algebra import (
    Fetch,
    Overgrown,
    Poly,
    extreme,
    floordiv,
    index,
    is_size,
    poly,
    size,
    symbols,
    text,
    walk,
)
from tritongen.ir.conditions import is_affine
from tritongen.ir.nodes import Require
from tritongen.ir.print_poly import poly_ast
from tritongen.syntax import ast
from tritongen.syntax.limits import MAX_INTEGER, MAX_PARTS
from tritongen.syntax.unparse import unparse

FetchOf = Callable[[ast.Read], Fetch]


def size_of(scope: Scope, node: ast.Expr) -> Poly:
    """A size: literals, sizes, integer constants and their arithmetic."""
    p = coordinate(scope, node, frozenset(), None)
    return p


def coordinate(
    scope: Scope, node: ast.Expr, indices: frozenset[str], fetch: FetchOf | None
) -> Poly:
    """An affine coordinate; E205 where it is none. `fetch` makes an integer read one, if it may."""
    p = _poly(scope, node, indices, fetch)
    if not is_affine(p):
        scope.report.fail(
            "E205",
            f"the index `{unparse(node)}` is not affine",
            node.span,
            help="an index is a sum of indices times sizes or constants, or its `//` and `%`",
        )
    return p


def held(scope: Scope, p: Poly, span: Span | None) -> Poly:
    """p, where its numbers have 64 bits else E011; Overgrown where it has more parts than proofs can handle."""
    if any(max(abs(value.numerator), value.denominator) > MAX_INTEGER for _, value in p.terms):
        too_large(scope, span)
    if next(islice(walk(p), MAX_PARTS, None), None) is not None:
        raise Overgrown(span)
    return p


def too_large(scope: Scope, span: Span | None) -> NoReturn:
    help = "as a number it is written `2.0 ** 100`"
    scope.report.fail("E011", "an integer over 2^63 - 1", span, help=help)


def _poly(scope: Scope, node: ast.Expr, indices: frozenset[str], fetch: FetchOf | None) -> Poly:
    return held(scope, _combined(scope, node, indices, fetch), node.span)


def _combined(scope: Scope, node: ast.Expr, indices: frozenset[str], fetch: FetchOf | None) -> Poly:
    def part(inner: ast.Expr) -> Poly:
        return _poly(scope, inner, indices, fetch)

    match node:
        case ast.Number(int(value)):
            return poly(value)
        case ast.Size(name):
            return _size_name(scope, node)
        case ast.Name(name) if name in indices:
            return index(name)
        case ast.Name(name) if fetch is not None and _is_rank_0(scope, name):
            return poly(fetch(ast.Read(name, (), span=node.span)))
        case ast.Name(name):
            return _lower_name(scope, node, bool(indices) or fetch is not None)
        case ast.Unary("-", x):
            return -part(x)
        case ast.Binary("+", a, b):
            return part(a) + part(b)
        case ast.Binary("-", a, b):
            return part(a) - part(b)
        case ast.Binary("*", a, b):
            return part(a) * part(b)
        case ast.Binary("/" | "//" | "%" as op, a, b):
            return _division(scope, node, op, part(a), part(b))
        case ast.Binary("**", a, ast.Number(int(power))) if 0 <= power <= 8:
            base, result = part(a), poly(1)
            for _ in range(power):
                result = result * base
            return result
        case ast.Call("min" | "max" as op, args, ()) if len(args) > 1:
            polys = tuple(part(a) for a in args)
            if all(is_size(p) for p in polys):
                return extreme(op, polys)
        case ast.Read() if fetch is not None:
            return poly(fetch(node))
    where = "an index" if indices or fetch else "a size"
    scope.report.fail(
        "E205",
        f"`{unparse(node)}` is not allowed in {where}",
        node.span,
        help="write whole numbers, sizes, integer constants, + - * / // % and min, max of sizes",
    )


def _size_name(scope: Scope, node: ast.Size) -> Poly:
    name = node.name
    if name in scope.sizes:
        return size(name)
    if any(p.name == name for p in scope.typarams):
        scope.report.fail("E301", f"`{name}` is a type parameter, not a size", node.span)
    unbound_size(scope, node)
    raise Skip


def unbound_size(scope: Scope, node: ast.Size) -> None:
    """E208, once for each name."""
    name = node.name
    if name in scope.broken:
        return
    scope.broken.add(name)
    near = scope.nearest(name, scope.sizes)
    label = f"no operand has a dim that is `{name}` alone"
    help = near or f"define it: `with {name} = ...`, or give an operand a dim `{name}`"
    fixes = definitions(
        scope.op, name, scope.taken, partial(_callee, scope), partial(_simpler, scope)
    )
    scope.report.add(
        "E208",
        f"size `{name}` is not bound",
        node.span,
        label=label,
        help=help if not fixes else "define it: {}",
        fix=fixes[0] if fixes else None,
        others=fixes[1:],
        otherwise=help,
    )


def _callee(scope: Scope, name: str) -> ast.OpDef | None:
    found = scope.library.op(name)
    return found[0] if found else None


def _simpler(scope: Scope, node: ast.Expr) -> ast.Expr | None:
    """An expression of sizes in normal form; None where a size of it is not bound."""
    known = {*scope.sizes, *scope.constants}
    if any(n.name not in known for n in trees.walk(node) if isinstance(n, (ast.Size, ast.Name))):
        return None
    before = len(scope.report.diagnostics)
    try:
        return poly_ast(size_of(scope, node))
    except Skip:  # the reader did not write this expression: nothing is said of it
        del scope.report.diagnostics[before:]
        return None


def _is_rank_0(scope: Scope, name: str) -> bool:
    return name in scope.variables and not scope.variables[name].dims


def _lower_name(scope: Scope, node: ast.Name, in_index: bool) -> Poly:
    name = node.name
    constant = scope.constants.get(name)
    if constant is not None and constant.dtype == "int":
        return size(name)
    where = "an index" if in_index else "a size"
    if constant is not None:
        scope.report.fail(
            "E205", f"`{name}` is a {constant.dtype} constant, not {where}", node.span
        )
    if name in scope.scalars:
        help = f"make it a constant: `const {name}: int`"
        scope.report.fail(
            "E205", f"the run-time scalar `{name}` is not allowed in {where}", node.span, help=help
        )
    if name in scope.variables or name in scope.outputs:
        scope.report.fail("E205", f"the tensor `{name}` is not allowed in {where}", node.span)
    scope.report.fail(
        "E113", f"unknown name `{name}`", node.span, help=scope.nearest(name, scope.taken)
    )


def _division(scope: Scope, node: ast.Binary, op: str, a: Poly, b: Poly) -> Poly:
    if not is_size(b):
        scope.report.fail(
            "E205", f"`{unparse(node)}` divides by an index", node.b.span, help="divide by a size"
        )
    if not b.terms:
        scope.report.fail("E205", "division by zero", node.b.span)
    divisor(scope, b)
    if op == "/":
        return a / b
    if op == "%":
        return a % b
    # A fraction that is rounded down never was a coordinate: `x[(p / 2) // 3]` is outside for odd p.
    return floordiv(a, b) + a - floordiv(a, poly(1))


def divisor(scope: Scope, size: Poly) -> None:
    """Checks that a divisor is at least 1. If only constants decide, the wrapper checks."""
    if symbols(size) <= scope.constants.keys():
        at_least(scope, size, 1)


def at_least(scope: Scope, constant: Poly, low: int) -> None:
    """Ask the wrapper that a divisor or a window of constants is not below `low`."""
    if bounds.prove(constant, ">=", poly(low), scope.known) is None:
        scope.require(Require(constant, ">=", poly(low), f"{text(constant)} >= {low}", "bounds"))
