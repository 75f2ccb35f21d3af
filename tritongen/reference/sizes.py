"""Sizes, coordinates and guards as Python, and the names that a reference may use.

Input: a `Poly`. Output: text and precedence, in variables instead of indices:

    p * stride + r - pad        the same
    (p - r) / 2                 torch.where((p - r) % 2 == 0, (p - r) // 2, -1)

Not here: expressions and nests (`nests.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tritongen.ir.algebra import (
    Atom,
    Fetch,
    Idx,
    Poly,
    Sym,
    denominator,
    is_fractional,
    is_size,
    numerator,
    poly,
    substitute_atoms,
)
from tritongen.ir.free import all_indices
from tritongen.ir.names import unlike
from tritongen.ir.nodes import (
    BATCH,
    Guard,
    Op,
)
from tritongen.ir.print_poly import condition_ast, poly_ast
from tritongen.ir.reads import wide_names
from tritongen.ir.texts import ATOM, BIT_AND, COMPARE, SUM, TERM, UNARY, Text, fill
from tritongen.syntax import ast

PRECEDENCE = {"+": SUM, "-": SUM, "*": TERM, "/": TERM, "//": TERM, "%": TERM}


class Names:
    """The local names of a function, which differ from those of the op."""

    def __init__(self, op: Op, mark: str = ""):
        self.taken = {p.name for p in (*op.typarams, *op.params, *op.outputs)}
        self.taken |= {nest.name for nest in op.nests} | {d.name for d in op.defines}
        self.taken |= {str(d) for t in op.tensors for d in t.dims}
        self.wide = wide_names(op)
        self.mark = mark
        self.stored = frozenset(self.taken)
        self.taken |= all_indices(op.nests)
        self.compute, self.batch = self.fresh("compute"), self.fresh("batch")
        self.row, self.rows = self.fresh("row"), self.fresh("rows")

    def block(self, index: str) -> str:
        """The name of the current part of an index's range in a loop."""
        return unlike(f"{self.row if index == BATCH else index}_block", self.taken)

    def fresh(self, name: str) -> str:
        self.taken.add(name := unlike(name + self.mark, self.taken))
        return name


def poly_code(p: Poly, names: Names) -> str:
    """A size, in Python; that it is a whole number is checked before."""
    printer = Printer(names, {})
    return " // ".join(printer.quotient(p)) if is_fractional(p) else printer.poly(p)[0]


@dataclass(frozen=True, slots=True)
class Code:
    """Python text of an expression; `plain`: a Python number, not a tensor."""

    text: str
    precedence: int = ATOM
    plain: bool = False

    @property
    def pair(self) -> tuple[str, int]:
        return self.text, self.precedence


# ---- sizes and coordinates ----------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Printer:
    """Polys in Python; `indices` maps an index to its variable."""

    names: Names
    indices: dict[str, str]
    filler: Callable[[str, tuple[Poly, ...]], float | None] = lambda tensor, coords: None
    fetches: dict[str, str] = field(default_factory=dict)  # a gather's placeholder and its text
    narrow: set[str] = field(default_factory=set)  # those that may hold less than 64 bits

    def poly(self, p: Poly) -> tuple[str, int]:
        return self.tree(poly_ast(self.renamed(p)))

    def renamed(self, p: Poly) -> Poly:
        def change(atom: Atom) -> Poly | None:
            match atom:
                case Sym(name) if name == BATCH:
                    return poly(Sym(self.names.rows))
                case Idx(name) if name in self.indices:
                    return poly(Idx(self.indices[name]))
                case Fetch(tensor, coords, filler):
                    text = self.read(tensor, coords, filler)
                    self.fetches[name := f"@{len(self.fetches)}"] = text
                    if tensor not in self.names.wide:
                        self.narrow.add(name)
                    return poly(Idx(name))
            return None

        return substitute_atoms(p, change)

    def coordinate(self, p: Poly) -> str:
        """A coordinate. It is -1, which is outside, where an exact division has a remainder."""
        if not is_fractional(p):
            return self.poly(p)[0]
        above, below = self.quotient(p)
        if is_size(p):
            return f"{above} // {below} if {above} % {below} == 0 else -1"
        return f"torch.where({above} % {below} == 0, {above} // {below}, -1)"

    def quotient(self, p: Poly) -> tuple[str, str]:
        """The two operands of an exact division, each as an operand of `//`."""
        above, below = self.poly(numerator(p)), self.poly(denominator(p))
        above_text = above[0] if above[1] >= TERM else f"({above[0]})"
        return above_text, below[0] if below[1] > TERM else f"({below[0]})"

    def read(self, tensor: str, coords: tuple[Poly, ...], filler) -> str:
        if not coords:
            return tensor
        inside = ", ".join(self.coordinate(c) for c in coords)
        filler = self.filler(tensor, coords) if filler is None else filler
        if filler is None:
            return f"{tensor}[{inside}]"
        return f"lib.read_else({tensor}, {literal(filler)}, {inside})"

    def condition(self, guard: Guard) -> Code:
        renamed = self.renamed(guard.poly)
        text, precedence = self.tree(condition_ast(renamed, guard.op))
        return Code(text, precedence, is_size(guard.poly))

    def conditions(self, guards: tuple[Guard, ...]) -> Code:
        """All guards, joined with and."""
        first, *others = (self.condition(g) for g in guards)
        text = first.pair
        for other in others:
            both = Text("{a} & {b}", BIT_AND, (BIT_AND, BIT_AND + 1))
            text = fill(both, [text, other.pair])
        return Code(*text, all(c.plain for c in (first, *others)))

    def tree(self, e: ast.Expr) -> tuple[str, int]:
        match e:
            case ast.Number(value):
                return repr(value), ATOM
            case ast.Name(name) | ast.Size(name):
                return self.fetches.get(name, name), ATOM
            case ast.Unary(op, x):
                return fill(Text(op + "{a}", UNARY, (UNARY,)), [self.number(x)])
            case ast.Binary(op, a, b):
                level = PRECEDENCE[op]
                text = Text(f"{{a}} {op} {{b}}", level, (level, level + 1))
                return fill(text, [self.number(a), self.number(b)])
            case ast.Compare(op, a, b):
                text = Text(f"{{a}} {op} {{b}}", COMPARE, (SUM, SUM))
                return fill(text, [self.tree(a), self.tree(b)])
            case ast.BoolOp("and", a, b):
                text = Text("{a} & {b}", BIT_AND, (BIT_AND, BIT_AND + 1))
                return fill(text, [self.tree(a), self.tree(b)])
            case ast.Call(name, args):
                return f"{name}({', '.join(self.tree(a)[0] for a in args)})", ATOM
        raise TypeError(e)

    def number(self, e: ast.Expr) -> tuple[str, int]:
        """A number for counting, in 64 bits, because 250 + 10 does not fit in u8."""
        text, precedence = self.tree(e)
        if isinstance(e, ast.Name) and e.name in self.narrow:
            return f"{text}.long()", ATOM
        return text, precedence


def literal(value: int | float | bool) -> str:
    return f'float("{value}")' if value in (float("inf"), float("-inf")) else repr(value)
