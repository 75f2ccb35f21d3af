"""The members of a group and what they read, as one tile computes them.

Input: canonical nests. Output: the lines of a kernel in dependency order. Pointwise temporaries are pasted where a tile
cannot hold them. Each class makes its kernel from them (`classes/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Idx,
    Poly,
    affine,
    denominator,
    index,
    indices,
    is_fractional,
    numerator,
    poly,
)
from tritongen.ir.conditions import where_known
from tritongen.ir.free import all_indices, free_indices, reads, tensors_read
from tritongen.schedule.canonical import substitute_indices


@dataclass(frozen=True, slots=True)
class Product:
    """The roles of a contraction: its indices by role, and the two factors.

    If the left factor slides a window over m (a convolution), `taps` are the reduced indices of the window, and k holds the others, the
    channels.
    """

    batch: ir.Binders
    m: ir.Binders
    n: ir.Binders
    k: ir.Binders
    left: ir.Expr
    right: ir.Expr
    taps: ir.Binders = ()
    exchanged: bool = False  # whether m are the columns of the result, as the op writes it
    segments: ir.Binders = ()  # the reduced index that numbers segments of rows
    lets: tuple[tuple[str, Poly], ...] = ()  # see KernelPlan
    ragged: tuple[tuple[Poly, Poly], ...] = ()
    padded: str = ""  # the size of the channels as `classes/channel_padding.py` stores them
    counted: str = ""  # the size that says how many channels there are, and nothing else
    phases: tuple[Poly, ...] = ()  # how many, of each dim of a transposed convolution
    whole_taps: ir.Binders = ()  # and the taps of all of them

    @property
    def turned(self) -> Product:
        """The same with its factors exchanged, and so its rows and columns."""
        return replace(self, m=self.n, n=self.m, left=self.right, right=self.left)


@dataclass(frozen=True, slots=True)
class Group:
    kind: str  # a name in CLASSES
    nests: ir.Nests  # roots, then what they read, in dependency order
    row: ir.Binders = ()
    col: ir.Binders = ()
    product: Product | None = None
    products: int = 1  # of so many sums, the first nests; `product` is the first one's
    inside: frozenset[str] = frozenset()  # values that each kernel computes anew (`chains.py`)
    reverse: bool = False  # a scan from the end
    # Dtypes whose products are three of TF32, where they are f32
    split: frozenset[str] = frozenset()
    maybe_f8: frozenset[str] = frozenset()  # type parameters that are f8 in some calls
    doubles: bool = False  # whether a call may compute in f64
    bools: frozenset[str] = frozenset({"bool"})  # dtypes that no descriptor takes
    defines: tuple[ir.Define, ...] = ()  # further sizes that its indices range over
    # The terms of a sum that tl.dot adds up in i32, where they may be too many for that, and the nests as loops take them
    terms: Poly | None = None
    loops: ir.Nests = ()

    @property
    def rows(self) -> set[str]:
        return {b.index for b in self.row}

    @property
    def cols(self) -> set[str]:
        return {b.index for b in self.col}

    @property
    def heads(self) -> ir.Nests:
        """The sums of products. `products` is their number."""
        sums = (n for n in self.nests if isinstance(n.body, ir.Reduce) and n.body.op == "sum")
        bodies = ((n, n.fold.body) for n in sums)
        found = (n for n, e in bodies if isinstance(e, ir.Call) and e.fn in ("mul", "scaled"))
        return tuple(found)[: self.products] if self.product is not None else ()

    @property
    def factors(self) -> Product:
        """The product of a contraction; TypeError for a group that is none."""
        if self.product is None:
            raise TypeError(f"{self.kind}: no sum of products")
        return self.product

    def over(self, nests: ir.Nests, **roles: Any) -> Group:
        """The group with these lines, and its product with the factors of the first one. `roles`: what else the product has otherwise."""
        left, right = nests[0].fold.factors
        product = replace(self.factors, left=left, right=right, **roles)
        return replace(self, nests=nests, product=product)


def is_reducer(nest: ir.Nest) -> bool:
    return isinstance(nest.body, ir.Reduce)


def closure(root: ir.Nest, virtual: dict[str, ir.Nest]) -> list[ir.Nest]:
    """The pointwise temporaries that root needs, in dependency order."""
    found: list[ir.Nest] = []

    def visit(nest: ir.Nest) -> None:
        for name in sorted(tensors_read(nest.body)):
            if name in virtual and virtual[name] not in found:
                visit(virtual[name])
                found.append(virtual[name])

    visit(root)
    return found


def names_in(nests: ir.Nests) -> set[str]:
    """The names of the lines, of their indices and of what they read: no new line or index may have one."""
    read = set[str]().union(*(tensors_read(n.body) for n in nests))
    return {n.name for n in nests} | all_indices(nests) | read


def operands(nests: ir.Nests) -> list[ir.Read]:
    """The reads of what none of the lines computes."""
    computed = {n.name for n in nests}
    return [r for n in nests for r in reads(n.body) if r.tensor not in computed]


def results(nests: ir.Nests) -> tuple[str, ...]:
    """The lines that no other one reads."""
    read = set[str]().union(*(tensors_read(n.body) for n in nests))
    return tuple(n.name for n in nests if n.name not in read)


# ---- values computed where they are read --------------------------------------------------------
class Virtual(dict[str, ir.Nest]):
    """Pointwise temporaries by name, with cached results.

    Each class tries each root with each group. In a chain of norms these ask for the same lines and the same reads again and again, so each
    answer is computed once. Nothing may be added after the first question.
    """

    __slots__ = ("lines", "looked_at", "mixed", "pasted", "products")

    def __init__(self, nests: Iterable[ir.Nest]):
        super().__init__((n.name, n) for n in nests)
        self.lines: dict[tuple, ir.Nests] = {}
        self.pasted: dict[tuple, ir.Expr] = {}
        self.products: dict[ir.Nest, Product | str] = {}
        # By id: hashing is looking, too
        self.looked_at: dict[int, tuple[ir.Nest, list[ir.Read]]] = {}
        self.mixed: bool | None = None

    def reads(self, line: ir.Nest) -> list[ir.Read]:
        if id(line) not in self.looked_at:
            self.looked_at[id(line)] = line, reads(line.body)
        return self.looked_at[id(line)][1]

    def slides(self, nests: Iterable[ir.Nest]) -> bool:
        """Whether some coordinate of all the nests has several indices: in most ops none has."""
        if self.mixed is None:
            found = (c for n in nests for r in self.reads(n) for c in r.coords)
            self.mixed = any(len(indices(c)) > 1 for c in found)
        return self.mixed


def gather_lines(
    members, virtual: Virtual, indices_in_tile: set[str], lines_over: tuple[set[str], ...] = ()
) -> ir.Nests:
    """Members and the temporaries they read, in order.

    A temporary read at other coordinates than its own, or over indices that the tile has not, is pasted into its reader. So is one over
    other indices than those that a line of the kernel may have, where `lines_over` says which these are.
    """
    where = frozenset(indices_in_tile), tuple(map(frozenset, lines_over))
    asked = tuple(members), where
    if asked in virtual.lines:
        return virtual.lines[asked]
    before = virtual.lines.get((asked[0][:-1], where), ())  # of a group that this one extends
    out = {n.name: n for n in before}

    def add(nest: ir.Nest) -> None:
        nest = replace(nest, body=paste(nest.body, virtual, *where))
        for name in sorted(tensors_read(nest.body)):
            if name in virtual and name not in out:
                add(virtual[name])
        out[nest.name] = nest

    for member in asked[0][-1:] if before else members:
        add(member)
    virtual.lines[asked] = tuple(out.values())
    return virtual.lines[asked]


def paste(
    expr: ir.Expr,
    virtual: Virtual,
    tile: frozenset[str] | None,
    lines_over: tuple[frozenset[str], ...] = (),
) -> ir.Expr:
    """expr with temporaries in place of their reads, but for those that a tile holds as lines; None holds none."""

    def change(node: ir.Read) -> ir.Expr:
        if node.tensor not in virtual:
            return node
        asked = node, repr(node.fill), tile, lines_over  # 0.0 and -0.0 are equal
        if asked not in virtual.pasted:
            virtual.pasted[asked] = value(node)
        return virtual.pasted[asked]

    def value(node: ir.Read) -> ir.Expr:
        nest = virtual[node.tensor]
        used = set().union(*(indices(c) for c in nest.coords), *(indices(c) for c in node.coords))
        is_line = not lines_over or nest.over in lines_over
        if tile is not None and is_line and node.fill is None:
            if node.coords == nest.coords and used <= tile:
                return node
        values: dict[str, Poly] = {}
        for at, own in zip(node.coords, nest.coords, strict=True):
            values |= solve_digits(own, at, {b.index: b.hi for b in nest.box})
        body = paste(substitute_indices(nest.body, values), virtual, tile, lines_over)
        if node.fill is None:
            return body
        moved = {name for name, value in values.items() if value != index(name)}
        as_it_is = paste(nest.body, virtual, tile, lines_over)
        kept = {r for r in reads(as_it_is) if not free_indices(r) & moved}
        return _filled(body, node, nest, kept)

    return ir.with_reads(expr, change)


def solve_digits(own: Poly, at: Poly, ranges: dict[str, Poly]) -> dict[str, Poly]:
    """The indices that make the coordinate `own` (an index, or digits f1 * q + f0) equal `at`.

    Of more digits than two each is found by itself. Which of `C` and `C // groups` is the larger weight need not be known then.
    """
    digits = affine(own)
    assert digits is not None
    weights = {weight: atom.name for atom, weight in digits[0].items() if isinstance(atom, Idx)}
    given = affine(at)
    if given is not None and not given[1].terms and len(weights) > 1:
        by_weight = {weight: poly(atom) for atom, weight in given[0].items()}
        if set(by_weight) == set(weights):  # the same digits under other names
            return {name: by_weight[weight] for weight, name in weights.items()}
    if len(weights) > 2:
        return {name: at // weight % ranges[name] for weight, name in weights.items()}
    values, rest = {}, at
    for weight, name in sorted(weights.items(), key=lambda pair: pair[0] == poly(1)):
        values[name] = rest if weight == poly(1) else rest // weight
        rest = rest - values[name] * weight
    return values


def _filled(body: ir.Expr, read: ir.Read, nest: ir.Nest, kept: Set[ir.Read]) -> ir.Expr:
    """A temporary read with `else`: inside its dims its value, outside the fill.

    The `where` does not keep a read of the value inside of its own tensor. So each such read gets a fill, whose value is never
    used. The reads in `kept` need none: their coordinates are the same at each place.
    An index that subscripts the same dim in both lines has one name and range (`canonical.unify`), and is never outside.
    """
    assert read.fill is not None
    tests: list[ir.Expr] = []
    for coordinate, own, dim in zip(read.coords, nest.coords, nest.dims, strict=True):
        if coordinate == own:
            continue
        at = coordinate
        if is_fractional(coordinate):  # outside where it is no integer
            num, den = numerator(coordinate), denominator(coordinate)
            tests.append(_compared("eq", num % den, poly(0)))
            at = num // den
        tests += [_compared("ge", at, poly(0)), _compared("lt", at, dim)]
    if not tests:
        return body
    inside = reduce(lambda a, b: ir.Call("and", (a, b), "bool"), tests)

    def filled(r: ir.Read) -> ir.Read:
        if r in kept or r.fill is not None:
            return r
        return replace(r, fill=False if r.dtype == "bool" else 0)

    body = where_known(ir.with_reads(body, filled), ())
    return ir.Call("where", (inside, body, ir.Const(read.fill, nest.dtype)), nest.dtype)


def _compared(op: str, a: Poly, b: Poly) -> ir.Expr:
    return ir.Call(op, (ir.IndexValue(a, "i64"), ir.IndexValue(b, "i64")), "bool")
