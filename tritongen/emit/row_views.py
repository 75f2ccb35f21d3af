"""What the templates of tiles, rows, nests and windows see: the ends of axes, loops, and the text of each fold.

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
    fetches: bool = False  # whether STAGES blocks are in flight

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


# ---- nests and windows ----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Loop:
    """Over one index of a reducer, and called like it."""

    name: str
    span: str  # where it ends, behind where it begins if that is not 0


@dataclass(frozen=True, slots=True)
class Reach:
    """The first and the last run of a line that windows touch, by where in it they begin and end."""

    first: str
    last: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Run:
    """A line of an operand, loaded run by run."""

    line: str
    reach: Reach
    lines: Lines  # what is computed in front of its loads
    name: str
    load: str


@dataclass(frozen=True, slots=True)
class Reducers:
    """Reducers over the same terms: `loops` lead to them, or to a line of a window, and `in_line` from there."""

    start: tuple[Variable, ...]
    loops: tuple[Loop, ...]
    folds: tuple[Fold, ...]
    line: tuple[Variable, ...] = ()  # what starts with each line, where neighbours share these
    in_line: tuple[Loop, ...] = ()
    runs: tuple[Run, ...] = ()
    in_run: tuple[Loop, ...] = ()
    joins: Lines = ()  # how a line enters what started before all


@dataclass(frozen=True, slots=True)
class Value:
    """A nest, or reducers that share loops, with the values computed behind them and their stores."""

    reducers: Reducers | None = None
    lines: Lines = ()


@dataclass(frozen=True, slots=True)
class NestView(RowsView):
    total: str = ""
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowView(KernelView):
    cols: str = ""
    steps: str = ""  # "": a program steps along its columns
    values: tuple[Value, ...] = ()
    stride: str = ""  # of the windows of neighbouring columns, where it is not 1: of runs
    reaches: tuple[Reach, ...] = ()
    aligned: tuple[tuple[str, str], ...] = ()  # sizes and strides, and what divides each
