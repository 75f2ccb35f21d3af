"""Dims and types of the operands that an expression passes to ops of the prelude.

    silu(conv2d(x, w, b, pad = 1)) + z    x: [N, C, H, W], w: [F, Cg, R, S], b: [F]; z like the result

Input: the lines of an expression. Output, for each operand, what the signature of the called op says: its dims, whether
it is a scalar or a constant, and which operands share a dtype. An operand beside a call broadcasts with the result of
the call. `expression.py` handles lines with indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tritongen.check.functions import prelude
from tritongen.ir.names import fresh
from tritongen.ir.nodes import INTS
from tritongen.syntax import ast

Dims = tuple[ast.Index, ...]


@dataclass(slots=True)
class Demand:
    """The demands of calls on one operand."""

    dims: Dims | None = None
    may_be_less: bool = False  # the last of the dims: it stands beside a call
    scalar: bool = False
    integer: bool = False
    constant: str = ""  # int, float or bool, where it is one
    same: list[tuple[ast.Call, str]] = field(
        default_factory=list
    )  # calls in which others have its dtype


@dataclass(slots=True)
class Demands:
    """The demands that are known so far. `values` are the dims of the lines above."""

    of: dict[str, Demand] = field(default_factory=dict)
    values: dict[str, Dims | None] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def line(self, line: ast.Assign) -> None:
        """One line without indices."""
        self.values[line.name] = self.dims(line.value)

    def dims(self, node: ast.Node) -> Dims | None:
        """The dims of a value, where a call below it says what they are; operands beside it get them too."""
        if isinstance(node, ast.Call) and (callee := callee_of(node)):
            return self.call(node, callee)
        if isinstance(node, ast.Name):
            return self.values.get(node.name)
        found = [d for child in children(node) if (d := self.dims(child)) is not None]
        longest = max(found, key=len, default=None)
        if longest is not None:
            self.give(node, longest, may_be_less=True)
        return longest

    def call(self, node: ast.Call, callee: ast.OpDef) -> Dims:
        sizes: dict[str, ast.Index] = {}
        given = list(arguments(node, callee))
        for p, value in given:
            if isinstance(p, ast.Operand) and p.type.dims is not None:
                inner = self.dims(value)
                if inner is not None:
                    _bind(p.type.dims, inner, sizes)
        for p, value in given:
            demand = (
                self.of.setdefault(value.name, Demand()) if isinstance(value, ast.Name) else None
            )
            match p:
                case ast.ConstParam(_, dtype) if demand:
                    demand.constant = dtype
                case ast.Operand(type=ast.Type(dims=None)) if demand:
                    demand.scalar = True
                case ast.Operand(type=ast.Type(dtype, dims)) if dims is not None:
                    if demand and dtype in {t.name for t in callee.typarams}:
                        demand.same.append((node, dtype))
                    if demand:
                        demand.integer |= dtype in INTS
                    if self.dims(value) is None:
                        self.give(value, self.renamed(dims, sizes))
        (output,) = callee.outputs[:1]
        return self.renamed(output.type.dims or (), sizes)

    def give(self, node: ast.Node, dims: Dims, may_be_less: bool = False) -> None:
        """These dims to the operands of a pointwise value."""
        if isinstance(node, ast.Name) and node.name not in self.values:
            demand = self.of.setdefault(node.name, Demand())
            if demand.dims is None:
                demand.dims, demand.may_be_less = dims, may_be_less
        elif not (isinstance(node, ast.Call) and callee_of(node)):
            for child in children(node):
                self.give(child, dims, may_be_less)

    def renamed(self, dims: Dims, sizes: dict[str, ast.Index]) -> Dims:
        """The callee's dims with sizes of our own."""
        return tuple(self.size(d, sizes) if not isinstance(d, ast.Dots) else d for d in dims)

    def size(self, dim: ast.Index, sizes: dict[str, ast.Index]) -> ast.Index:
        if not isinstance(dim, ast.Size):
            return self.fresh("SIZE")
        if dim.name not in sizes:
            sizes[dim.name] = self.fresh(dim.name)
        return sizes[dim.name]

    def fresh(self, base: str) -> ast.Size:
        return ast.Size(fresh(base, self.taken))


def callee_of(node: ast.Call) -> ast.OpDef | None:
    """The op of the prelude that is called."""
    found = prelude().op(node.name)
    return found[0] if found and node.name not in prelude().fns else None


def arguments(node: ast.Call, callee: ast.OpDef) -> Iterator[tuple[ast.Param, ast.Expr]]:
    """The callee's parameters with what is given for them; the checker says what does not fit."""
    yield from zip(callee.params, node.args, strict=False)
    by_name = {p.name: p for p in callee.params}
    yield from ((by_name[k.name], k.value) for k in node.keywords if k.name in by_name)


def children(node: ast.Node) -> list[ast.Node]:
    values = (getattr(node, name) for name in node.__dataclass_fields__ if name != "span")
    flat = (v for value in values for v in (value if isinstance(value, tuple) else (value,)))
    return [v for v in flat if isinstance(v, ast.Node)]


def _bind(theirs: Dims, ours: Dims, sizes: dict[str, ast.Index]) -> None:
    """The callee's named dims are those of the argument that stand at their places."""
    at = next((i for i, d in enumerate(theirs) if isinstance(d, ast.Dots)), len(theirs))
    after = len(theirs) - at - 1
    pairs = list(zip(theirs[:at], ours, strict=False))
    if after > 0:
        pairs += zip(theirs[-after:], ours[-after:], strict=False)
    for their, our in pairs:
        if isinstance(their, ast.Size) and not isinstance(our, ast.Dots):
            sizes.setdefault(their.name, our)
