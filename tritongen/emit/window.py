"""Windows unrolled over a tile [ROWS, BLOCK]. Each program takes STEPS places along one more index.

A coordinate is a place in the box, computed once before the loops, plus an offset that the compiler knows:
`x_h = x_h0 + (i * stride + r)`. So loads that neighbouring windows share are equal, and the compiler merges them. Stores
come after all steps, because no load is merged across a store. Input: a `WindowWriter` over a kernel of that skeleton. Output: its `WindowView`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.nest import accumulated, accumulator, combine, entered
from tritongen.emit.row_views import Reducers, Run, Value, WindowView
from tritongen.emit.text import wrap
from tritongen.emit.tiles import name_axis, view
from tritongen.emit.view import KernelView, Store
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Fetch,
    Poly,
    index,
    indices,
    is_fractional,
    moved_by,
    substitute,
    symbols,
    walk,
)
from tritongen.ir.free import coordinates, reads, tensors_read
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import substitute_indices
from tritongen.schedule.members import is_reducer

TILE = "(ROWS, BLOCK)"


def window_view(writer: WindowWriter) -> KernelView:
    return windows_view(writer, open_axes(writer))


def windows_view(writer: WindowWriter, size: dict[str, str]) -> KernelView:
    cache = dict(writer.cache)
    values = tuple(values_of(writer))
    writer.cache = cache  # loads of the steps are forgotten behind them
    stored = [n for n in writer.kernel.nests if n.name in writer.kernel.stores]
    stores = [Store(writer.values[nest.name][0], *writer.stored_at(nest)) for nest in stored]
    fields = {"sizes": writer.unsaid(size["cols"]), "values": values, "stores": stores, **size}
    blocks = "ROWS", "STEPS", "BLOCK", *(("PER_THREAD",) if writer.runner else ())
    return view(writer, blocks, "", WindowView, **fields)


class WindowWriter(KernelWriter):
    """Coordinates as a place in the box and a known offset; masks by the side of the tile they vary on."""

    def __init__(self, context, kernel):
        super().__init__(context, kernel)
        _, step, col = kernel.axes
        self.turn = self.fresh("i")  # as an index beside those of the spec
        # Steps along an axis of their own, else by blocks of columns.
        self.shares = bool(step.digits)
        self.index[self.turn] = "i" if self.shares else "i * BLOCK"
        binders = [b for n in kernel.nests if is_reducer(n) for b in n.fold.binders]
        self.inner = {b.index for b in binders} | {self.turn}
        # How wide a window is, is known when the kernel is compiled.
        self.told |= set().union(*(symbols(b.hi) | symbols(b.lo) for b in binders))
        self.opened: dict[Poly, str] = {}
        self.runner: ir.Binder | None = None  # see `runs.py`
        self.narrow |= {*col.names} | {self.turn}
        moving = (step if self.shares else col).digits[0].index
        at = {moving: index(moving) + index(self.turn)}
        self.kernel = replace(kernel, nests=tuple(_moved(n, at) for n in kernel.nests))

    def unsaid(self, cols: str) -> tuple[str, ...]:
        """Sizes, quoted, on which the JIT must not specialise, if loads are filled with infinities.

        The extent of lanes that no window slides along is not among them: its divisors make loads wide.
        """
        lane = self.kernel.axes[2].digits[0].index
        found = [read for n in self.kernel.nests for read in reads(n.body)]
        if not any(isinstance(r.fill, float) and math.isinf(r.fill) for r in found):
            return ()
        used = [indices(c) for read in found for c in read.coords]
        straight = {cols} if all(u == {lane} for u in used if lane in u) else set()
        return tuple(f'"{name}"' for name in self.args.sizes if name not in straight)

    def digits(self, run: tuple[str, ...]) -> str:
        """Rows are counted in 32 bits, in which dividing is cheap; what they are made of has 64."""
        out = super().digits(run)
        return f"{out if out.isidentifier() else f'({out})'}.to(tl.int64)"

    def coordinate(self, tensor: str, dim: int, p: Poly) -> str:
        inner = moved_by(p, self.inner)
        place = p - inner
        gathered = any(isinstance(a, Fetch) for a in walk(place))  # no line before has loaded it
        if not inner.terms or not indices(place) or is_fractional(p) or gathered:
            return super().coordinate(tensor, dim, p)
        name = self._dim_name(tensor, dim)
        start = self._opened(place, f"{name}0")
        if inner == index(self.turn) and start.isidentifier():
            return f"{start} + {self.index[self.turn]}"
        key = ("coordinate", p)
        if key not in self.cache:
            self.cache[key] = self.assign(name, f"{start} + {wrap(self.size(inner), ATOM)}")
        return self.cache[key]

    def _opened(self, place: Poly, wish: str) -> str:
        """A place in the box, on a line before the loops."""
        if place not in self.opened:
            shown = self.size(place)[0]
            if shown.isidentifier():
                return shown
            self.opened[place] = self.fresh(wish)
            self.prologue.append(f"{self.opened[place]} = {shown}")
        return self.opened[place]

    def load_mask(self, read: ir.Read, shown: list[str], dims: list[int]) -> tuple[str, bool]:
        """(the part that varies along the rows) & (the part that varies along the columns).

        A step that leaves the box is not masked, because equal loads would then differ. Its reads are kept inside of their tensor instead.
        """
        row, step, col = self.kernel.axes
        sides: tuple[list[str], list[str]] = [], []
        for axis in sorted(self.axes_in(read.coords) - {step.name}):
            sides[axis == col.name].append(self.axis_mask[axis])
        checked = False
        for dim, at, coordinate in zip(dims, shown, read.coords, strict=False):
            if read.fill is not None or self.shares and self.turn in indices(coordinate):
                found = self.checks(read.tensor, dim, at, coordinate)
                sides[col.name in self.axes_in((coordinate,))].extend(found)
                checked |= bool(found) and read.fill is not None
        return checked_sides(*sides), checked

    def open_lines(self, nests: list[ir.Nest]) -> tuple[Run, ...]:
        """The lines from which the innermost loop takes its terms. Here there are none: each term is loaded."""
        return ()


def checked_sides(*sides: list[str]) -> str:
    """A mask: (the part that varies along the rows) & (the part that varies along the columns), each printed once."""
    once = (list(dict.fromkeys(side)) for side in sides if side)
    joined = [" & ".join(f"({c})" for c in s) if len(s) > 1 else s[0] for s in once]
    return " & ".join(f"({s})" for s in joined) if len(joined) > 1 else "".join(joined)


def _moved(nest: ir.Nest, at: dict[str, Poly]) -> ir.Nest:
    coords = tuple(substitute(c, at) for c in nest.coords)
    return replace(nest, coords=coords, body=substitute_indices(nest.body, at))


def open_axes(writer: WindowWriter) -> dict[str, str]:
    """Variables and masks of the three axes; the extents of what the template steps along."""
    row, step, col = writer.kernel.axes
    writer.axis_var[row.name] = "row"
    writer.axis_mask[row.name] = f"row < {writer.extent(row.extent, 'rows') if row.digits else '1'}"
    size = {}
    for axis, name in ((step, "step"), (col, "col")):
        if axis.digits:
            name_axis(writer, axis, name)
            size[f"{name}s"] = writer.extent(axis.extent, f"{name}s")
            moves = axis is (step if writer.shares else col)
            place = f"{name} + {writer.index[writer.turn]}" if moves else name
            writer.axis_mask[axis.name] = f"{place} < {size[f'{name}s']}"
    return size


# ---- values -------------------------------------------------------------------------------------
def values_of(writer: WindowWriter) -> Iterator[Value]:
    """Every value of the kernel at one step, reducers that wait for no other in one loop."""
    waiting: list[ir.Nest] = []
    for nest in writer.kernel.nests:
        beside = is_reducer(nest) and not tensors_read(nest.body) & {n.name for n in waiting}
        if waiting and not beside:
            yield Value(windows(writer, waiting))
            waiting = []
        if is_reducer(nest):
            waiting.append(nest)
        else:
            with writer.apart() as lines:
                writer.value(nest)
            yield Value(lines=tuple(lines))
    if waiting:
        yield Value(windows(writer, waiting))


def windows(writer: WindowWriter, nests: list[ir.Nest]) -> Reducers:
    """Reducers over one window: the terms of one line of it in the inner loops, where steps share lines."""
    across, along, shared = lines_of(writer, nests)
    innermost = tuple(b for b in along if b == writer.runner)
    totals = [accumulator(writer, nest, nest.name, TILE) for nest in nests]
    with entered(writer, across) as loops:
        own = [accumulator(writer, n, f"{n.name}_line", TILE) for n in nests] if shared else totals
        with entered(writer, tuple(b for b in along if b not in innermost)) as in_line:
            runs = writer.open_lines(nests)
            with entered(writer, innermost) as in_run:
                folds = tuple(map(partial(accumulated, writer), nests, own))
    writer.values |= {nest.name: (nest.name, ATOM) for nest in nests}
    line = tuple(chain(*own)) if shared else ()
    parts = [(variable.name, ATOM) for variable in line]
    joins = tuple(map(partial(combine, writer), nests, totals, parts))
    return Reducers(tuple(chain(*totals)), loops, folds, line, in_line, runs, in_run, joins)


def lines_of(writer: WindowWriter, nests: list[ir.Nest]):
    """The binders that step from line to line of a window, those along a line, and whether steps share lines.

    A line is what the windows of two steps share: its reads depend on the step and on its number in the window together, never on one of
    them alone.
    """
    binders = nests[0].fold.binders
    used = [indices(p) for n in nests for p in coordinates(n.body)]
    across = tuple(b for b in binders if any({b.index, writer.turn} <= u for u in used))
    along = tuple(b for b in binders if b not in across)
    mixed = all((writer.turn in u) == bool(u & {b.index for b in across}) for u in used)
    places = any(n.fold.is_place for n in nests)
    if writer.shares and across and along and mixed and not places:
        return across, along, True
    runner = tuple(b for b in binders if b == writer.runner)
    return tuple(b for b in binders if b not in runner), runner, False
