"""The kernel IR on one page: what a kernel computes, and how it walks each index.

    program b < B, h < H
    tile    i < S by BLOCK_M
    whole   e < E by BLOCK_E
    loop    j < L by BLOCK_N

    loop j:
        s[i, j] = scale * sum[e2](q[b, h, i, e2] * k[b, h, j, e2])      # a Fold whose index is whole
        m[i] = max[j](s[i, j])                                         # a Fold that the loop carries
        o_sum[i, e] = sum[j](exp(s[i, j] - m[i]) * v[b, h, j, e])      # moved by m
    o[i, e] = ...                                                      # a Let, and its Store

A statement computes a block: one lane for each index of its `axes`. Coordinates and values are those of the nests
(`ir/nodes.py`), so nothing about addresses is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, indices, size
from tritongen.ir.free import free_indices

PARTS = size("PARTS$")  # how many programs share a loop; `$`, since a spec may call a size PARTS
NUMBERS = ("program", "each")  # without lanes


@dataclass(frozen=True, slots=True)
class Walk:
    """How a kernel visits one index, which ranges over 0 .. extent - 1.

    how: "program" (one number a program), "tile" (a block of it a program), "whole" (all of it in one block, which is a
    power of two), "each" (one number a turn of a loop) or "loop" (a block of it a turn of a loop).
    block: the constexpr that is the number of lanes; "" for "program" and "each".
    rest: of "whole", the lanes of a second block behind the first, 0 where that holds all: 96 columns are 64 and 32, not 128.
    """

    index: str
    extent: Poly
    how: str
    block: str = ""
    rest: str = ""

    @property
    def shared(self) -> bool:
        """Whether each program has a number or a block of its own."""
        return self.how in ("program", "tile")


@dataclass(frozen=True, slots=True)
class Let:
    """name = value, for each lane of `axes`."""

    name: str
    value: ir.Expr
    axes: tuple[str, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Fold:
    """name = the reducer `value` over the indices of its binders, for each lane of `axes`.

    Where the kernel loops over one of these indices, the statement adds a block of terms to a state, which the outermost
    such loop carries.
    again: whether it adds terms to the value of that name, which it has by now (`rests.py`).
    moved_by: a maximum that the same loop carries. The terms have the factor exp(x - maximum), so that the state is
    multiplied by exp(old maximum - new maximum) where the maximum moves (Milakov and Gimelshein, "Online normalizer
    calculation for softmax", 2018).
    """

    name: str
    value: ir.Reduce
    axes: tuple[str, ...]
    dtype: str
    moved_by: str = ""
    again: bool = False

    @property
    def over(self) -> tuple[str, ...]:
        return tuple(b.index for b in self.value.binders)

    @property
    def guards(self) -> tuple[ir.Guard, ...]:
        """Those that tell terms apart. The others name no index of the fold: they drop all terms or none."""
        return tuple(g for g in self.value.guards if indices(g.poly) & {*self.over})


@dataclass(frozen=True, slots=True)
class Loop:
    """The body, for one block of the index after another.

    within: guards that all terms of the body's folds over the index share. Blocks in which no lane passes are not visited.
    part: the index of a program among those that share the loop, each with one of `PARTS` runs of blocks; "" for none.
    """

    index: str
    body: tuple[Stmt, ...]
    within: tuple[ir.Guard, ...] = ()
    part: str = ""


@dataclass(frozen=True, slots=True)
class Store:
    """tensor[coords] = the value of that name, for each lane of `axes`.

    once: indices that the programs share and that do not move the value: the program of the first block stores it.
    value: the name of the value, where it is not the tensor's.
    adds: whether it is added atomically to what is there, as no other store of the kernel; `within`: where it is.
    """

    tensor: str
    coords: tuple[Poly, ...]
    axes: tuple[str, ...]
    once: tuple[str, ...] = ()
    value: str = ""
    adds: bool = False
    within: tuple[ir.Guard, ...] = ()


Stmt = Union[Let, Fold, Loop, Store]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Statements in order, and the walks, the outermost first."""

    name: str
    walks: tuple[Walk, ...]
    body: tuple[Stmt, ...]

    def walk(self, index: str) -> Walk:
        return next(w for w in self.walks if w.index == index)

    @property
    def loops(self) -> tuple[str, ...]:
        return tuple(w.index for w in self.walks if w.how in ("each", "loop"))

    @property
    def numbers(self) -> set[str]:
        """The indices that a value has no lanes for."""
        return {w.index for w in self.walks if w.how in NUMBERS}

    @property
    def folds(self) -> list[Fold]:
        return [s for s in statements(self.body) if isinstance(s, Fold)]

    @property
    def stores(self) -> list[Store]:
        return [s for s in statements(self.body) if isinstance(s, Store)]

    def axis(self, fold: Fold) -> str:
        """The one index with lanes that a fold is over; "" where it is over numbers alone."""
        (own,) = set(fold.over) - self.numbers or {""}
        return own


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All of them, those inside loops behind their loop."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from statements(stmt.body)


def carried(kernel: Kernel, loop: Loop) -> tuple[Fold, ...]:
    """The folds whose state the loop carries."""
    folds = (s for s in statements(loop.body) if isinstance(s, Fold))
    return tuple(
        f for f in folds if next((x for x in kernel.loops if x in f.over), "") == loop.index
    )


def folded(loop: Loop) -> tuple[Fold, ...]:
    """The folds that take terms in each turn. A loop around this one may carry their states."""
    folds = (s for s in statements(loop.body) if isinstance(s, Fold))
    return tuple(f for f in folds if loop.index in f.over)


def is_dot(fold: Fold, kernel: Kernel) -> bool:
    """Whether the fold is a product of tiles: a sum over one axis, each of whose two factors lacks an axis of the other."""
    match fold.value:
        case ir.Reduce("sum", _, _, ir.Call("mul", (left, right))):
            over = set(fold.over) - kernel.numbers
            ours, theirs = (free_indices(side) - kernel.numbers for side in (left, right))
            alone = len(over) == 1 and over <= ours & theirs
            return alone and bool(ours - theirs) and bool(theirs - ours)
    return False
