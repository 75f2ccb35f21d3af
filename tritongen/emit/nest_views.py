"""What templates of nests and windows see: loops around terms, and what is computed and stored behind them."""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.emit.row_views import Fold, Lines, RowsView, Variable
from tritongen.emit.view import KernelView, Store


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
    store: Store | None = None


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
