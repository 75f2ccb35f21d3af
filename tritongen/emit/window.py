"""Windows unrolled over a tile [ROWS, BLOCK], STEPS places along one more index a program.

    for i in tl.static_range(STEPS):
        y_max = tl.full((ROWS, BLOCK), float("-inf"), COMPUTE)
        for r in tl.static_range(win): ...
        ys = ys + (y_max,)

A coordinate is a place in the box, said once before the loops, and an offset that the compiler knows:
`x_h = x_h0 + (i * stride + r)`. So the loads that neighbouring windows share are equal, and it merges
them; stores wait until all steps are computed, since no load is merged across a store. Input: a `Body`
over a kernel of the skeleton `window`. Output: its `KernelView`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tritongen.emit.body import Body
from tritongen.emit.nest import accumulate, accumulator, combine, entered
from tritongen.emit.text import wrap
from tritongen.emit.tiles import axis_name, view
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices, is_fractional, moved_by, substitute, symbols
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import coordinates, reads, substitute_indices, tensors_read
from tritongen.schedule.members import is_reducer

TILE = "(ROWS, BLOCK)"


def window_view(body: Body) -> KernelView:
    return windows_view(WindowBody(body.context, body.kernel))


def windows_view(body: WindowBody) -> KernelView:
    body.var = var = open_axes(body)
    stored = [n for n in body.kernel.nests if n.name in body.kernel.stores]
    for nest in stored if body.runner else ():
        body.aligned(nest.name, var["cols"])
    kept = {nest.name: body.fresh(f"{nest.name}s") for nest in stored}
    for name in kept.values():
        body.line(f"{name} = ()")
    with turns(body):
        values(body)
        for nest in stored:
            body.line(f"{kept[nest.name]} = {kept[nest.name]} + ({body.values[nest.name][0]},)")
    with turns(body):
        for nest in stored:
            body.store(nest, f"{kept[nest.name]}[{body.turn}]")
    shares = ": what neighbours share is loaded once" if body.shares else ""
    shares = shares and shares + (", in whole runs of a line" if body.runner else "")
    doc = f"The windows of STEPS x ROWS x BLOCK places a program{shares}."
    each = ("EACH",) if body.runner else ()
    blocks, flags = ("ROWS", "STEPS", "BLOCK", *each), {"steps": body.shares}
    sizes = body.unsaid(var)
    return view(body, var, blocks, doc, lines=tuple(body.lines), flags=flags, sizes=sizes)


class WindowBody(Body):
    """Coordinates as a place in the box and a known offset; masks by the side of the tile they vary on."""

    def __init__(self, context, kernel):
        super().__init__(context, kernel)
        _, step, col = kernel.axes
        self.turn = self.names.free("i")
        self.shares = bool(
            step.digits
        )  # steps along an axis of their own, else by blocks of columns
        self.index[self.turn] = self.turn if self.shares else f"{self.turn} * BLOCK"
        binders = [b for n in kernel.nests if is_reducer(n) for b in n.fold.binders]
        self.inner = {b.index for b in binders} | {self.turn}
        # How wide a window is, is known when the kernel is compiled.
        self.told |= set().union(*(symbols(b.hi) | symbols(b.lo) for b in binders))
        self.opened: dict[Poly, str] = {}
        self.var: dict[str, str] = {}  # the skeleton's own variables, by role
        self.hoisted: dict[object, str] = {}  # what else stands before the loops
        self.runner: ir.Binder | None = None  # see `runs.py`
        self.narrow |= {d.index for d in col.digits} | {self.turn}
        moving = (step if self.shares else col).digits[0].index
        at = {moving: index(moving) + index(self.turn)}
        self.kernel = replace(kernel, nests=tuple(_moved(n, at) for n in kernel.nests))

    def aligned(self, tensor: str, name: str) -> None:
        """Says what divides a stride; of lines that are not loaded in runs nothing is known."""

    def unsaid(self, var: dict[str, str]) -> tuple[str, ...]:
        """Sizes, quoted, that the JIT must not specialise on, where loads are filled with infinities.

        Not the extent of lanes that no window slides along: what divides it makes loads wide.
        """
        lane = self.kernel.axes[2].digits[0].index
        found = [read for n in self.kernel.nests for read in reads(n.body)]
        if not any(isinstance(r.fill, float) and math.isinf(r.fill) for r in found):
            return ()
        used = [indices(c) for read in found for c in read.coords]
        straight = {var["cols"]} if all(u == {lane} for u in used if lane in u) else set()
        return tuple(f'"{name}"' for name in self.args.sizes if name not in straight)

    def digits(self, run: tuple[str, ...]) -> str:
        """Rows are counted in 32 bits, in which dividing is cheap; what they are made of has 64."""
        out = super().digits(run)
        return f"{out if out.isidentifier() else f'({out})'}.to(tl.int64)"

    def coordinate(self, tensor: str, dim: int, p: Poly) -> str:
        inner = moved_by(p, self.inner)
        place = p - inner
        if not inner.terms or not indices(place) or is_fractional(p):
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
            self.opened[place] = self.names.free(wish)
            self.prologue.append(f"{self.opened[place]} = {shown}")
        return self.opened[place]

    def load_mask(self, read: ir.Read, shown: list[str], dims: list[int]) -> tuple[str, bool]:
        """(what varies along the rows) & (what varies along the columns).

        A step that leaves the box is not asked for: that would make equal loads differ. What it reads
        is held inside its tensor instead.
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

    def open_lines(self, nests: list[ir.Nest]) -> None:
        """What the innermost loop takes its terms from: here nothing, each term is loaded."""


def checked_sides(*sides: list[str]) -> str:
    """(what varies along the rows) & (what varies along the columns)."""
    joined = [" & ".join(f"({c})" for c in s) if len(s) > 1 else s[0] for s in sides if s]
    return " & ".join(f"({s})" for s in joined) if len(joined) > 1 else "".join(joined)


def _moved(nest: ir.Nest, at: dict[str, Poly]) -> ir.Nest:
    coords = tuple(substitute(c, at) for c in nest.coords)
    return replace(nest, coords=coords, body=substitute_indices(nest.body, at))


def open_axes(body: WindowBody) -> dict[str, str]:
    """Names, extents and masks of the three axes."""
    var = {"row": body.names.free("row")}
    for k, (role, wish) in enumerate((("row", "rows"), ("step", "steps"), ("col", "cols"))):
        axis = body.kernel.axes[k]
        if role == "step" and not axis.digits:
            continue
        var[role] = var.get(role) or axis_name(body, axis)
        body.axis_var[axis.name] = var[role]
        var[wish] = body.extent(axis.extent, wish) if axis.digits else "1"
        moves = role == ("step" if body.shares else "col")
        place = f"{var[role]} + {body.index[body.turn]}" if moves else var[role]
        body.axis_mask[axis.name] = f"{place} < {var[wish]}"
    return var | {name: body.names.free(name) for name in ("tile", "tiles", "spans")}


@contextmanager
def turns(body: WindowBody) -> Iterator[None]:
    """The lines of one step; what is loaded in it is forgotten behind it."""
    cache = dict(body.cache)
    body.line(f"for {body.turn} in tl.static_range(STEPS):")
    body.indent += 1
    yield
    body.cache, body.indent = cache, body.indent - 1


# ---- values -------------------------------------------------------------------------------------
def values(body: WindowBody) -> None:
    """Every value of the kernel at one step, reducers that wait for no other in one loop."""
    waiting: list[ir.Nest] = []
    for nest in body.kernel.nests:
        if not is_reducer(nest) or tensors_read(nest.body) & {n.name for n in waiting}:
            windows(body, waiting)
            waiting = []
        if is_reducer(nest):
            waiting.append(nest)
        else:
            body.value(nest)
    windows(body, waiting)


def windows(body: WindowBody, nests: list[ir.Nest]) -> None:
    """Reducers over one window: the terms of one line of it in the inner loops, where steps share lines."""
    if not nests:
        return
    across, along, shared = lines_of(body, nests)
    innermost = tuple(b for b in along if b == body.runner)
    totals = [accumulator(body, nest, nest.name, TILE) for nest in nests]
    with entered(body, across, "tl.static_range"):
        parts = [accumulator(body, n, f"{n.name}_line", TILE) for n in nests] if shared else totals
        with entered(body, tuple(b for b in along if b not in innermost), "tl.static_range"):
            body.open_lines(nests)
            with entered(body, innermost, "tl.static_range"):
                for nest, part in zip(nests, parts, strict=True):
                    accumulate(body, nest, part, TILE)
        if shared:
            for nest, total, part in zip(nests, totals, parts, strict=True):
                combine(body, nest, total, (part, ATOM))
    body.values |= {nest.name: (nest.name, ATOM) for nest in nests}


def lines_of(body: WindowBody, nests: list[ir.Nest]):
    """The binders that step from line to line of a window, those along one, and whether steps share lines.

    A line is what the windows of two steps have in common: what is read of it depends on the step and
    on its number in the window together, never on one of them alone.
    """
    binders = nests[0].fold.binders
    used = [indices(p) for n in nests for p in coordinates(n.body)]
    across = tuple(b for b in binders if any({b.index, body.turn} <= u for u in used))
    along = tuple(b for b in binders if b not in across)
    mixed = all((body.turn in u) == bool(u & {b.index for b in across}) for u in used)
    shared = (
        body.shares
        and across
        and along
        and mixed
        and not any(n.fold.op.startswith("arg") for n in nests)
    )
    if shared:
        return across, along, True
    runner = tuple(b for b in binders if b == body.runner)
    return tuple(b for b in binders if b not in runner), runner, False
