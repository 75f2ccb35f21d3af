"""One row a program, its runs under each other: a tile [LINES, BLOCK] that is folded whole.

    lines         the row is in registers
    lines_loop    LINES runs at a time, twice; mean and variance only

A gain of each run is [LINES, 1], and no element's run is found by a division. Input: a `LinesBody` over a kernel
of that skeleton. Output: its `KernelView`. What a fold leaves is a scalar.
"""

from __future__ import annotations

from tritongen.emit import paired
from tritongen.emit.body import Body, Context
from tritongen.emit.masked import choose_fill
from tritongen.emit.tiles import (
    fold_tile,
    forget_tile,
    keep_spoken_sizes,
    open_tile,
    view,
    wide_tensors,
)
from tritongen.emit.view import KernelView, Loop
from tritongen.emit.walks import enter_loop, leave_loop, row_values, tiled_reads, walk_outputs
from tritongen.schedule.plan import KernelPlan, Level


class LinesBody(Body):
    """Runs of one length, `length`."""

    def __init__(self, context: Context, kernel: KernelPlan):
        super().__init__(context, kernel)
        self.length = ""

    def _joined(self, run: tuple[str, ...]) -> str:
        """A place along a line and the number of that line, as one."""
        along = tuple(d.index for d in self.kernel.axes[1].run.digits)
        if run[-len(along) :] != along:
            return super()._joined(run)
        line, place = self.run_text(run[: -len(along)]), self.axis_var[self.kernel.axes[1].name]
        return f"{line} * {self.length} + {place}"


def lines(body: LinesBody) -> KernelView:
    """A row in registers is counted in 32 bits: 100 registers a thread where 64 bits take 128."""
    body.narrow |= {d.index for d in body.kernel.axes[1].digits}
    var = open_lines(body)
    fold_tile(body, var, covered(body), axis=None)
    doc = "One row a program, held in registers as LINES lines of BLOCK elements."
    own = tuple(body.lines)
    return close_lines(body, var, doc, own, ())


def lines_loop(body: LinesBody) -> KernelView:
    var = open_lines(body)
    first, level = body.kernel.levels
    row_values(body, first, store=True)
    opening, body.lines = tuple(body.lines), []
    again = tiled_reads(body)
    body.evict = dict.fromkeys(again, "last")  # read once more behind the folds
    moments = walk_moments(body, level, var)
    body.evict = dict.fromkeys(again, "first")
    doc = "One row a program, LINES lines of BLOCK elements at a time: two passes over each row."
    return close_lines(body, var, doc, opening, (moments, *walk_outputs(body, var)))


def open_lines(body: LinesBody) -> dict[str, str]:
    var = open_tile(body)
    row, col = body.kernel.axes[:2]
    var["lines_mask"] = f"{var['col_outer']} < {var['col_turns']}"
    body.axis_mask |= {row.name: "", col.outer.name: var["lines_mask"]}  # as many programs as rows
    body.together = {frozenset({col.outer.name, col.name}): var["inside"]}
    body.length = var["cols"]
    return var


def covered(body: LinesBody) -> tuple[str, ...]:
    """Tensors that the mask of the whole tile covers: read along lines and from line to line."""
    col = body.kernel.axes[1]
    along = set(wide_tensors(body, col.run))
    return tuple(t for t in wide_tensors(body, col.outer) if t in along)


def close_lines(
    body: LinesBody, var: dict[str, str], doc: str, own: tuple[str, ...], loops: tuple[Loop, ...]
) -> KernelView:
    spoken = [
        line for walk in loops for part in (walk.before, walk.body, walk.after) for line in part
    ]
    keep_spoken_sizes(body, (*own, *spoken, var["lines_mask"], var["col_mask"]))
    return view(body, var, ("LINES", "BLOCK"), doc, lines=own, loops=loops)


def walk_moments(body: LinesBody, level: Level, var: dict[str, str]) -> Loop:
    """One pass: the sum of a row and that of the squares about its mean, and the row values that follow."""
    body.fill, served = choose_fill(body.kernel.nests, covered(body), body.kernel.axes[1])
    states, before = [], []
    for pair in level.pairs:
        names, starts = paired.start(body, pair, "()")
        states.append(names)
        before += starts
    saved = enter_loop(body)
    count = f"tl.minimum({var['col_turns']} - {var['start']}, LINES) * {var['cols']}"
    for pair, names in zip(level.pairs, states, strict=True):
        x = paired.next_term(body, pair, var, pair.first in served)
        state = ", ".join(names)
        body.line(f"{state} = lib.take_lines({state}, {x}, {var['inside']}, {count})")
    turn = leave_loop(body, saved)
    forget_tile(body)
    outer, body.lines = body.lines, []
    for pair, names in zip(level.pairs, states, strict=True):
        paired.end(body, pair, names, var)
    row_values(body, level, store=True)
    after, body.lines = tuple(body.lines), outer
    return Loop(tuple(before), turn, after)
