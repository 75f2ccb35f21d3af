"""What a `Poly` is made of: sizes, indices, floors, reads, extremes, sums kept whole."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from tritongen.ir.algebra import Poly


@dataclass(frozen=True, slots=True)
class Sym:
    """A size, or an integer constant, known at the call; `...` is the product of the batch dims."""

    name: str


@dataclass(frozen=True, slots=True)
class Idx:
    """An index, bound by a left side or a reducer."""

    name: str


@dataclass(frozen=True, slots=True)
class Floor:
    """`num // den`, floored; `den` has no index in it."""

    num: Poly
    den: Poly


@dataclass(frozen=True, slots=True)
class Fetch:
    """An integer read used as a coordinate (a gather); out of bounds it gives `fill`."""

    tensor: str
    coords: tuple[Poly, ...]
    fill: int | None = None


@dataclass(frozen=True, slots=True)
class Extreme:
    """`min` or `max` of sizes."""

    op: str
    args: tuple[Poly, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A sum kept whole, so that it can be divided by: `1 / (a + b)` is `Group(a + b) ** -1`."""

    poly: Poly


@dataclass(frozen=True, slots=True)
class Mod:
    """`num % den`, which the normal form knows as `num - (num // den) * den`; for printing only."""

    num: Poly
    den: Poly


Atom = Union[Sym, Idx, Floor, Fetch, Extreme, Group, Mod]
Monomial = tuple[tuple[Atom, int], ...]
# A Fraction only where it is not whole: sums of ints are much quicker.
Number = Union[int, Fraction]
