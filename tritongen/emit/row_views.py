"""What the templates of tiles and rows see: the ends of axes, and the text of each fold.

`row` and `col` are the axes of a tile, whatever the spec calls its indices. `outer` and `line` count the runs of rows and of
columns, if these are not one run of memory. Texts are expressions, or lines of the spec. The template writes the kernel
around them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.emit.view import KernelView, Lines


@dataclass(frozen=True, slots=True)
class Tile:
    """How many rows and columns there are, and where they begin and end; of one run, where there are several."""

    rows: str = ""
    row_end: str = ""
    row_low: str = ""  # "first + ", where that is not 0
    index: str = "tl.int64"  # what rows are counted in
    outer: bool = False  # whether rows are several runs, counted by `outer`
    cols: str = ""
    col_end: str = ""
    col_low: str = ""
    lines: str = ""  # how many runs the columns are, counted by `line`; "" for one
    narrow: str = ""  # what columns are counted in where they are divided, other than 64 bits


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of a fold's state, with its initial value."""

    name: str
    shape: str
    identity: str
    dtype: str
    comment: Lines = ()  # what is collected, in the language: above the first of a state


@dataclass(frozen=True, slots=True)
class Part:
    """A variable in scratch, one element a part of each row: stored from `value`, loaded as `loaded`."""

    pointer: str
    value: str = ""
    loaded: str = ""
    identity: str = ""  # what a part that does not exist left


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold, or a pair of them: its steps in a kernel, in this order.

    A kernel that may store the state of a part, or load stored states, also has `settle`, `parts` and `merge`.
    """

    start: tuple[Variable, ...] = ()
    term: Lines = ()  # lines of the spec: the values of a block of the row
    take: str = ""  # how it enters the state
    result: str = ""
    reduce: str = ""  # the state of lanes or parts as one a row; "" where it is that already
    settle: Lines = ()  # behind the walk alone: places are numbered as in the whole row
    merged: str = ""  # the state of a row that `merge` makes of what was left
    merge: str = ""
    finish: Lines = ()  # from the state of a row: the result of the fold
    parts: tuple[Part, ...] = ()
    left: tuple[Part, ...] = ()  # what is merged of those, left in the place of the first
    comment: Lines = ()  # what it is in the language: above its start, or what merges it


@dataclass(frozen=True, slots=True)
class Walk:
    """One pass over the columns, or what those of other launches left: its folds, then the values of rows behind."""

    folds: tuple[Fold, ...] = ()
    lines: Lines = ()  # in the pass: values over the tile, and their stores
    after: Lines = ()
    opening: Lines = ()  # what is decoded and computed for it alone


@dataclass(frozen=True, slots=True)
class RowsView(KernelView):
    tile: Tile = Tile()
    merged: tuple[Walk, ...] = ()  # what other kernels left
    walks: tuple[Walk, ...] = ()
    number: str = "row"  # of a row among all
    outputs: Lines = ()  # values over the tile and their stores, in a pass of their own
    counter: str = ""  # where the programs of a two-pass kernel count

    @property
    def extents(self) -> dict[str, str]:
        return {"ROWS": self.tile.row_end, "BLOCK": self.tile.col_end}

    @property
    def merges(self) -> bool:
        """Whether there are folds in what others left, not only values of rows to compute again."""
        return any(walk.folds for walk in self.merged)


@dataclass(frozen=True, slots=True)
class FlatView(KernelView):
    total: str = ""
    whole: bool = False  # whether whole blocks go without a mask
    within: Lines = ()  # parameters of what is done with a block, and what they are given
    passed: Lines = ()

    @property
    def extents(self) -> dict[str, str]:
        return {"BLOCK": self.total}
