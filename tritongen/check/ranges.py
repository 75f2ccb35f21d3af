"""The range of each index of a left side or a reducer.

Input: a line or a reducer, the scope, the ranges in use. Output: binders (lo <= i < hi, sizes) and guards. In
`y[n] = sum[k <= n](x[k])`, n runs over y's dim, and k over the box that covers every n, with the guard `n - k >= 0`. The rules,
in this order: the written bound; the dim of the output; the dims that the index subscripts alone in reads without `else`;
those in reads with `else`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from tritongen.check.coordinates import coordinate
from tritongen.check.extents import alone, bounded, unbounded
from tritongen.check.scope import Scope, Variable
from tritongen.errors import Fix, fix_at
from tritongen.ir import bounds
from tritongen.ir.algebra import (
    Poly,
    denominator,
    floordiv,
    index,
    is_fractional,
    numerator,
    poly,
    size,
    symbols,
    text,
)
from tritongen.ir.nodes import BATCH, BATCH_SIZE, Binder, Guard, Require
from tritongen.ir.print_poly import poly_ast
from tritongen.syntax import ast
from tritongen.syntax.names import kind_of
from tritongen.syntax.unparse import unparse

ZERO = poly(0)
Range = tuple[Poly, Poly]


@dataclass(frozen=True, slots=True)
class Frame:
    """The context of an expression: the indices in use, and the values of macro parameters."""

    ranges: Mapping[str, Range] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()
    bare: Mapping[str, tuple[Poly, ...]] | None = (
        None  # a line without indices: where tensors are read
    )
    macro: Mapping | None = None  # values of the parameters, in the body of a macro

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.ranges)

    def inside(self, ranges: Mapping[str, Range], guards: tuple[Guard, ...] = ()) -> Frame:
        return replace(self, ranges={**self.ranges, **ranges}, guards=(*self.guards, *guards))

    def facts(self, scope: Scope) -> bounds.Facts:
        found = bounds.within(scope.known, self.ranges)
        for guard in self.guards:
            found = bounds.require(found, guard.poly, guard.op, ZERO)
        return bounds.one(found)


@dataclass(frozen=True, slots=True)
class Target:
    """The left side: the box, one coordinate a dim, the dims."""

    box: tuple[Binder, ...]
    coords: tuple[Poly, ...]
    dims: tuple[Poly, ...]

    @property
    def ranges(self) -> dict[str, Range]:
        return {b.index: (b.lo, b.hi) for b in self.box}


# ---- left sides ---------------------------------------------------------------------------------
def target_of(scope: Scope, line: ast.Assign) -> Target:
    """The box of a line with indices, or of rank 0."""
    output = scope.outputs.get(line.name)
    lefts = line.indices or ()
    if output is not None and len(output.dims) != len(lefts):
        wrong_rank(scope, output, lefts, line)
    if sum(isinstance(i, ast.Dots) for i in lefts) > 1:
        scope.report.fail("E207", "`...` stands twice", lefts[-1].span)
    box: list[Binder] = []
    coords: list[Poly] = []
    dims: list[Poly] = []
    for position, left in enumerate(lefts):
        declared = output.dims[position] if output is not None else None
        coord, dim = _left(scope, line, left, declared)
        if not isinstance(left, ast.Number):
            name = BATCH if isinstance(left, ast.Dots) else left.name
            if any(b.index == name for b in box):
                help = "give each dim an index of its own"
                scope.report.fail(
                    "E206", f"`{name}` stands twice on the left", left.span, help=help
                )
            box.append(Binder(name, ZERO, dim))
        coords.append(coord)
        dims.append(dim)
    return Target(tuple(box), tuple(coords), tuple(dims))


def _left(
    scope: Scope, line: ast.Assign, left: ast.Node, declared: Poly | None
) -> tuple[Poly, Poly]:
    """The coordinate and the dim of one index of a left side."""
    match left:
        case ast.Dots():
            if declared is not None and declared != BATCH_SIZE:
                help = f"the dim is `{text(declared)}`"
                scope.report.fail("E207", "`...` stands for batch dims", left.span, help=help)
            return index(BATCH), BATCH_SIZE
        case ast.Number(value):
            if value != 0 or (declared is not None and declared.constant != 1):
                message = "the only number on the left is 0, for a dim of size 1"
                scope.report.fail("E104", message, left.span)
            return ZERO, poly(1)
        case ast.Name(name) | ast.Binder(name):
            if declared == BATCH_SIZE:
                help = f"write `...` for `{name}`"
                scope.report.fail(
                    "E207", "the batch dims have the index `...`", left.span, help=help
                )
            bound = _left_bound(scope, left) if isinstance(left, ast.Binder) else None
            if declared is None:
                return index(name), bound or range_from_reads(scope, line, left)
            if bound is not None:
                agree(scope, name, declared, bound, left)
            return index(name), declared
    raise TypeError(left)


def _left_bound(scope: Scope, left: ast.Binder) -> Poly:
    if left.low is not None and not (
        isinstance(left.low, ast.Number) and left.low.value == 0 and not left.low_strict
    ):
        scope.report.fail("E105", "a dim starts at 0", left.span, help=f"shift `{left.name}`")
    if left.high is None:
        scope.report.fail("E105", "a dim needs an upper bound", left.span)
    high = coordinate(scope, left.high, frozenset(), None)
    return whole(scope, high if left.high_strict else high + 1)


def whole(scope: Scope, end: Poly) -> Poly:
    """An end of a range: `/` is exact, so what a call divides has to be a multiple."""
    if not is_fractional(end):
        return end
    over, under = numerator(end), denominator(end)
    if bounds.prove(over % under, "==", ZERO, scope.known) is not True:
        rest = unparse(ast.Binary("%", poly_ast(over), poly_ast(under)))
        shown = f"{rest} == 0 (for `{text(end)}`)"
        scope.require(Require(over % under, "==", ZERO, shown, "bounds"))
    return floordiv(over, under)


def wrong_rank(
    scope: Scope,
    variable: Variable,
    given: tuple,
    node: ast.Node,
    bound: frozenset[str] | None = None,
) -> NoReturn:
    """Reports E201. `bound` are the indices in use, which a read may take."""
    dims = ", ".join(map(text, variable.dims))
    names = [lower(d) for d in variable.dims]
    shown = f"{variable.name}[{', '.join(names)}]" if names else variable.name
    has = "no dims" if not names else f"the dims [{dims}]"
    count = len(given)
    may = bound is not None and set(names) <= bound and getattr(node, "fill", None) is None
    scope.report.fail(
        "E201",
        f"`{variable.name}` has {has}, {count} {'index is' if count == 1 else 'indices are'} given",
        node.span,
        help="" if may else f"it has an index for each: `{shown}`",
        notes=((variable.span, "declared here"),),
        fix=fix_at(node.span, shown) if may else None,
    )


def lower(dim: Poly) -> str:
    """A readable index for a dim: `M` gives m, `...` itself; a letter for an expression, and for what no spec may say."""
    name = text(dim).lower()
    return name if name.isidentifier() and not kind_of(name) or dim == BATCH_SIZE else "i"


def agree(
    scope: Scope, name: str, first: Poly, other: Poly, node: ast.Node, fix: Fix | None = None
) -> None:
    """Two dims that one index subscripts are equal: by name, else by the wrapper's check, which must pass for more than no elements."""
    if bounds.prove(first, "==", other, scope.known) is True:
        return
    if bounds.prove(first, "==", other, filled(scope, first, other)) is False:
        message = f"index `{name}` has two ranges, {text(first)} and {text(other)}"
        help = "" if fix is None else "bound it"
        scope.report.fail("E204", message, node.span, help=help, fix=fix)
    shown = f"{text(first)} == {text(other)} (both are indexed by `{name}`)"
    scope.require(Require(first, "==", other, shown, "agree"))


def filled(scope: Scope, *dims: Poly) -> bounds.Facts:
    """What is known where the sizes in these dims are at least 1."""
    known = scope.known
    for name in sorted(set().union(*map(symbols, dims)) - scope.constants.keys()):
        known = bounds.require(known, size(name), ">", poly(0))
    return known


# ---- ranges from reads --------------------------------------------------------------------------
def range_from_reads(
    scope: Scope, inside: ast.Assign | ast.Reduce, i: ast.Name | ast.Binder
) -> Poly:
    """The extent of the dims that the index subscripts alone. E203 if they do not give one.

    Reads without `else` come first, and must agree, at the latest at the call. Reads with `else` count only if there are no others, and
    never require anything of the call.
    """
    found = alone(scope, inside, i.name)
    plain = [(dim, read) for dim, read in found if read.fill is None]
    if plain:
        (first, _), *others = plain
        for other, read in others:
            if other != first:
                known = filled(scope, first, other)
                least = other if bounds.prove(other, "<", first, known) is True else first
                fixes = bounded(scope, inside, i, least)
                agree(scope, i.name, first, other, read, fixes[0] if fixes else None)
        return first
    dims = list(dict.fromkeys(dim for dim, _ in found))
    if dims and all(bounds.prove(dims[0], "==", d, scope.known) is True for d in dims[1:]):
        return dims[0]
    message = f"index `{i.name}` has no range"
    if dims:
        shown = " and ".join(f"`{text(d)}`" for d in dims)
        message = f"reads with `else` give index `{i.name}` different ranges: {shown}"
    fixes = bounded(scope, inside, i)
    details = {"help": "bound it", "fix": fixes[0], "others": fixes[1:]} if fixes else {}
    help = unbounded(inside, i)
    scope.report.fail("E203", message, i.span, **{"help": help, "otherwise": help, **details})
