"""What templates of products see beside what every kernel has: factors, sums and stores, by role.

Locals are the templates' own: m, n and k walk the axes of a tile, whatever the spec calls its indices. Lines here
are of the spec: what decodes its indices, loads its operands and computes its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritongen.emit.view import KernelView, Store


@dataclass(frozen=True, slots=True)
class Value:
    """A value: the lines in front of it, and its text."""

    lines: Sequence[str]
    text: str


@dataclass(frozen=True, slots=True)
class Factor:
    """A tile of a factor, made in each step of the K loop."""

    name: str
    value: str  # "": one of the lines gave it its value
    lines: Sequence[str] = ()  # what is loaded and computed in front of it
    mask: str = ""  # sets elements outside to 0, if the load does not
    unpacked: bool = False  # whether neighbours follow from one element


@dataclass(frozen=True, slots=True)
class Split:
    """The operands of three TF32 products in a step: a factor that is split there, and the loaded parts of the other one."""

    factor: Factor
    hi: str
    lo: str


@dataclass(frozen=True, slots=True)
class Subtile:
    """BLOCK_M rows of a tile: their accumulator, the left factor, and the row that they begin at."""

    sum: str
    factor: Factor
    row: str


@dataclass(frozen=True, slots=True)
class Sum:
    """An accumulator and the product that is added to it."""

    name: str
    dtype: str
    left: str
    right: str
    options: str
    integer: bool = False  # added up in 32 bits, and 64 for what follows
    awaited: bool = False  # of a factor that is computed: see `lib.awaited`
    parts: str = ""  # the workspace of a split sum
    halves: str = ""  # whether two products of bf16 add up the same: see `lib.dot_of_whole`
    comment: Sequence[str] = ()  # what it is in the language


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale that the terms of a step share: loaded before the loop, and inside for the next step."""

    first: Value
    following: Value


@dataclass(frozen=True, slots=True)
class Place:
    """The index of one dim of a patch."""

    name: str
    extent: str
    side: str  # how far a patch reaches
    patches: str  # the name of how many there are along it
    corner: str  # that of where one begins
    faster: str  # how many patches lie between neighbours along it, and places of one; "" in the innermost dim
    apart: str


@dataclass(frozen=True, slots=True)
class Output(Store):
    """An output, with what is computed from the sums since the one before."""

    before: Sequence[str] = ()
    tiles: str = ""  # its tensor descriptor, None where its rows are not aligned
    outer: Sequence[str] = ()  # coordinates in front of a tile's own two
    host: str = ""  # the host line that describes it


@dataclass(frozen=True, slots=True)
class ProductView(KernelView):
    """A product a[m, k] * b[k, n] by default, whatever the spec calls its axes."""

    M: str = "M"
    N: str = "N"
    K: str = "K"
    begin: str = "0"  # of the K loop
    end: str = "K"
    batches: str = ""
    taps: str = ""
    index: str = "tl.int64"  # what coordinates are counted in
    splits: bool = False  # a program may add up one CHUNK of the terms
    lanes: bool = False  # lanes may multiply, without tl.dot
    exchanged: bool = False  # the rows of a tile are columns of the result
    phases: bool = False  # batches lie between one another in memory
    inside: str = "(m < M) & (n < N)"
    factors: Sequence[Factor] = ()
    sums: Sequence[Sum] = ()
    scale: Scale | None = None
    met: Value | None = None  # which segments may have rows of a tile
    named: Value | None = None  # or the first and the last one that a row names
    own: Value | None = None  # and which rows of it are in one
    segments: str = "segments"
    behind: Sequence[str] = ()  # what follows from m alone, behind the K loop
    stores: Sequence[Output] = ()
    halves: bool = False  # the columns of a tile in parts, one after the other behind the K loop
    quarters: bool = False
    flat: bool = True  # whether the loops over tiles and over k are one
    height: str = "BLOCK_M"  # the rows of a tile
    subtiles: Sequence[Subtile] = ()
    # The left factor is split in a step; or the right one, where LHS is split ahead.
    ways: Sequence[Split] = ()
    rows: Sequence[str] = ()  # row values, if they are printed here
    places: Sequence[Place] = ()  # what walks the rows of a patch
    hops: str = ""  # the number of hops of a kernel of strips
    divisor: str = ""  # how many taps there are, but for none
