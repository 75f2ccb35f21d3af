"""Reads: coordinates, and the proof that they stay inside the tensor.

Input: `x[n, d + 1] else 0` and the ranges in use. Output: coordinates and the fill (None if the read is inside everywhere in
the box). A read that may leave its tensor must have an `else`. If only sizes decide, the wrapper checks. `ir.bounds` has the
proofs.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tritongen.check.coordinates import FetchOf, coordinate
from tritongen.check.outside import outside, refuse_calls, stays_inside, unsafe
from tritongen.check.ranges import ZERO, Frame, wrong_rank
from tritongen.check.scope import Scope, Variable
from tritongen.errors import Fix
from tritongen.ir import bounds
from tritongen.ir.algebra import (
    Fetch,
    Poly,
    atoms,
    denominator,
    index,
    indices,
    is_fractional,
    is_size,
    poly,
    symbols,
    text,
    walk,
)
from tritongen.ir.nodes import BATCH, BATCH_SIZE, Require
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse

LIMITS = {"i64": 63, "i32": 31, "i16": 15, "i8": 7}


def fetch_of(scope: Scope, frame: Frame) -> FetchOf:
    """How an integer read becomes a coordinate."""

    def fetch(node: ast.Read) -> Fetch:
        variable = scope.variables[node.name]
        if scope.kind(variable.dtype) != "int":
            message = f"`{node.name}` is {variable.dtype}, an index is an integer"
            own = next((p for p in scope.op.params if p.name == node.name), None)
            help = otherwise = f"convert it on a line of its own: `i64({node.name}[...])`"
            fixes = []
            if isinstance(own, ast.Operand) and isinstance(scope.op, ast.OpDef):
                places = [(own.type.span, unparse(replace(own.type, dtype="i64")))]
                own_type = (t for t in scope.op.typarams if t.name == own.type.dtype)
                places += [(t.span, f"{t.name}: int") for t in own_type]
                fixes = [Fix(span, text) for span, text in places if span is not None]
                help = "declare it as {}"
            fix, others = (fixes[0], tuple(fixes[1:])) if fixes else (None, ())
            scope.report.fail(
                "E302",
                message,
                node.span,
                help=help,
                fix=fix,
                others=others,
                otherwise=otherwise,
            )
        coords, fill = read_at(scope, frame, node)
        return Fetch(node.name, coords, None if fill is None else int(fill))

    return fetch


def read_at(
    scope: Scope, frame: Frame, node: ast.Read
) -> tuple[tuple[Poly, ...], int | float | bool | None]:
    """The coordinates of a read, and its fill where it may be needed."""
    variable = scope.variables[node.name]
    if len(node.indices) != len(variable.dims):
        wrong_rank(scope, variable, node.indices, node)
    fetch = fetch_of(scope, frame)
    coords = []
    for i, dim in zip(node.indices, variable.dims, strict=True):
        if isinstance(i, ast.Dots) != (dim == BATCH_SIZE):
            scope.report.fail(
                "E207",
                "`...` must stand where the tensor has its batch dims",
                i.span,
                help=f"`{variable.name}` has the dims [{', '.join(map(text, variable.dims))}]",
                notes=((variable.span, "declared here"),),
            )
        if isinstance(i, ast.Dots):
            coords.append(index(BATCH))
        else:
            refuse_calls(scope, frame, node, i)
            coords.append(coordinate(scope, i, frame.names, fetch))
    fill = _fill(scope, variable, node.fill)
    needed = [
        _obligation(scope, frame, node, c, dim)
        for c, dim in zip(coords, variable.dims, strict=True)
    ]
    if fill is None and any(needed):
        kind = scope.kind(variable.dtype)
        fill = {"float": 0.0, "int": 0, "bool": False}[kind]  # of a term that is not there
    return tuple(coords), fill if any(needed) else None


def _fill(scope: Scope, variable: Variable, literal: ast.Literal | None):
    """The fill in the tensor's dtype."""
    if literal is None:
        return None
    value, kind = literal.value, scope.kind(variable.dtype)
    if kind == "float" and not isinstance(value, bool):
        return float(value)
    if kind == "bool" and (isinstance(value, bool) or value in (0, 1)):
        return bool(value)
    if (
        kind == "int"
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value == int(value)
    ):
        dtype = scope.concrete(variable.dtype)
        bits = LIMITS.get(dtype, 7)
        low, high = (0, 255) if dtype == "u8" else (-(2**bits), 2**bits - 1)
        if low <= value <= high:
            return int(value)
    message = f"`{unparse(literal)}` does not fit `{variable.name}`, which is {variable.dtype}"
    scope.report.fail("E403", message, literal.span, notes=((variable.span, "declared here"),))


def _obligation(scope: Scope, frame: Frame, node: ast.Read, c: Poly, dim: Poly) -> bool:
    """Whether a read needs a fill: 0 <= c < dim must hold at every point. What sizes decide becomes a requirement.

    A fill is needed if only a reducer's bounds keep the read inside: `sum[k <= t](x[t - k])` is evaluated over a box, and the evaluation
    must not read outside of the tensor.
    """
    if _plain(frame, c, dim):
        return False
    box, facts = replace(frame, guards=()).facts(scope), frame.facts(scope)
    if any(isinstance(a, Fetch) for a in walk(c)) or is_fractional(c):
        return not stays_inside(c, dim, box) and _needs_fill(scope, frame, node, c, dim)
    needed = False
    for gap in (c, dim - 1 - c):
        if bounds.prove(gap, ">=", ZERO, box) is True:
            continue
        verdict = bounds.prove(gap, ">=", ZERO, facts)
        if verdict is True:
            needed = True
            continue
        if verdict is False:
            outside(scope, frame, node, c, dim)
        if node.fill is None:
            _require(scope, frame, facts, node, gap, c, dim)
        needed = needed or node.fill is not None
    return needed


def _plain(frame: Frame, c: Poly, dim: Poly) -> bool:
    """Whether c is an index that runs over the dim, or the 0 of a dim of size 1."""
    if c == ZERO and dim == poly(1):
        return True
    return any(
        c == index(name) and lo == ZERO and hi == dim for name, (lo, hi) in frame.ranges.items()
    )


def _needs_fill(scope: Scope, frame: Frame, node: ast.Read, c: Poly, dim: Poly) -> bool:
    if node.fill is not None:
        return True
    below = text(denominator(c))
    what = "is read at the call" if below == "1" else f"is whole only where {below} divides it"
    unsafe(scope, frame, node, c, dim, what)


def _require(
    scope: Scope, frame: Frame, facts: bounds.Facts, node: ast.Read, gap: Poly, c: Poly, dim: Poly
) -> None:
    """Ask the wrapper for `gap >= 0` at the ends of all ranges, where these are sizes."""
    ends = bounds.corners(gap, facts)
    if ends is None or not _separate(gap):
        unsafe(scope, frame, node, c, dim, f"may leave 0 .. {text(dim)} - 1")
    for end in ends:
        verdict = bounds.prove(end, ">=", ZERO, facts)
        if verdict is False:
            unsafe(scope, frame, node, c, dim, f"leaves 0 .. {text(dim)} - 1")
        if verdict is None and _needs_one_value(frame, facts, c, end):
            unsafe(scope, frame, node, c, dim, f"leaves 0 .. {text(dim)} - 1")
        if verdict is None:
            left, right = sides(end)
            shown = f"{text(left)} >= {text(right)} (for `{unparse(node)}`)"
            scope.require(Require(left, ">=", right, shown, "bounds"))


def _needs_one_value(frame: Frame, facts: bounds.Facts, c: Poly, end: Poly) -> bool:
    """Whether the end is inside only where an index has one value at most: `x[t - k]` for `k < K` asks for K <= 1."""
    extents = (frame.ranges[name] for name in indices(c) if name in frame.ranges)
    several = (
        bounds.require(facts, hi - lo, ">", poly(1))
        for lo, hi in extents
        if is_size(hi - lo) and symbols(hi - lo)
    )
    return any(bounds.prove(end, ">=", ZERO, more) is False for more in several)


def _separate(p: Poly) -> bool:
    """Whether no index is in two atoms. Only then are all ends reached at one point."""
    found = [name for atom in dict.fromkeys(atoms(p)) for name in sorted(indices(poly(atom)))]
    return len(found) == len(set(found))


def sides(p: Poly) -> tuple[Poly, Poly]:
    """p >= 0 as left >= right, without minus signs where possible."""
    positive = Poly(tuple(t for t in p.terms if t[1] > 0))
    return positive, positive - p
