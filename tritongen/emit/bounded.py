"""The bounds of a product: where its loop starts and ends, and which elements of a factor count.

    sum[j < count[b]](p[b, i, j] * v[b, j, e])    stop = tl.minimum(J, count), and both masks are j < stop
    sum[k <= i](a[i, k] * b[k, m])                stop = tl.minimum(K, i_last + 1); a also masks k <= i
    sum[lo[i] <= k < hi[i]](a[i, k] * b[k, m])    a masks each row; b masks terms that no row of the tile has
    sum[k](where(c[i] > 0, a[i, k] * b[k, m], 0)) no factor is masked: the row's sum is, behind the loop

Input: the guards of a sum. Output: `Bounds`, with the masks of each factor. A masked element counts as 0 whatever memory
holds, because 0 * NaN is not 0. A guard that names no summed index keeps or drops all terms of a row at once. Masks of
factors cannot do that: the row would have 0 times the elements that other rows include.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tritongen.emit.fold_lines import guard_text, is_small
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Idx, Poly, affine, index, indices, poly, walk, weight_of

LOOPED = frozenset({"k", "tap"})  # axes of the loop
Cache = dict[tuple[Any, ...], str]


@dataclass(frozen=True, slots=True)
class Side:
    """The position of k in a factor, the factor's axes, and the dim of its tile along which its rows (or columns) lie."""

    orient: str
    axes: frozenset[str]
    rows: int


LEFT = Side("[None, :]", frozenset({"batch", "m", *LOOPED}), 0)
RIGHT = Side("[:, None]", frozenset({"batch", "n", *LOOPED}), 1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of the terms of one tile."""

    guards: tuple[ir.Guard, ...] = ()  # of single terms: what the ends of the loop do not say
    apart: tuple[ir.Guard, ...] = ()  # those that let different terms through in each row
    whole: tuple[ir.Guard, ...] = ()  # of all terms of a row, a column or a batch
    first: str = ""  # no term below this one counts in any row
    to: str = ""  # and no term from here on; "": the extent

    @property
    def begin(self) -> str:
        """The start of the loop, which takes whole blocks."""
        return f"{self.first} // BLOCK_K * BLOCK_K" if self.first else "0"

    def inside(self, k: str, size: dict[str, str]) -> str:
        """The mask of k."""
        below = f"{k} < {self.to or size['k']}"
        return f"({k} >= {self.first}) & ({below})" if self.first else below


FREE = Bounds()


def bounds_of(writer: KernelWriter, guards: tuple[ir.Guard, ...], size: dict[str, str]) -> Bounds:
    """The bounds of a loop that takes the terms of any row of the tile. It reads no block of k that no row needs.

    A guard that names no row is then satisfied. A guard on a row, such as `k <= i`, is checked for each row. Up to the largest of its ends each
    k counts in some row, which is all that the other factor must check.
    """
    hoist(writer, (g.poly for g in guards))
    summed = {i for axis in writer.kernel.axes[3:] for i in axis.names}
    whole = tuple(g for g in guards if not indices(g.poly) & summed)
    by_rows = tuple(g for g in guards if not is_of_tile(writer, g))
    guards = tuple(g for g in guards if g not in whole)
    apart, first, to, k_axis = by_rows, "", "", writer.kernel.axes[3]
    unsaid = [g for g in guards if not any(guards_of(writer, (g,), s) for s in (LEFT, RIGHT))]
    if unsaid:
        raise AssertionError(f"{writer.kernel.name}: no factor's mask says {unsaid}")
    if "tap" in size or len(k_axis.digits) != 1:
        return Bounds(guards, apart, whole)
    k = k_axis.digits[0].index
    for guard in guards:
        weight = sign(weight_of(guard.poly, k))
        if guard.op != ">=" or not weight:
            continue
        rest = guard.poly - weight * index(k)
        end = rest + 1 if weight < 0 else -rest
        shown = at_end(writer, end, weight, size) if guard in by_rows else writer.size(end)[0]
        if not shown:
            continue
        if weight < 0:
            stop = f"tl.minimum({to or size['k']}, {shown})"
            to = writer.assign(writer.fresh("stop"), stop)
        else:
            first = writer.assign(writer.fresh("first"), f"tl.maximum({first or 0}, {shown})")
        if guard in by_rows:
            apart = tuple(g for g in apart if by_rows != (guard,))
        else:
            guards = tuple(g for g in guards if g is not guard)
    return Bounds(guards, apart, whole, first, to)


def is_of_tile(writer: KernelWriter, guard: ir.Guard) -> bool:
    """Whether a guard says the same of all rows and columns of a tile."""
    names = indices(guard.poly) - writer.lets.keys()  # which are numbers of the program
    axes = {writer.axis_of[name].name for name in names}
    return axes <= {"batch", *LOOPED}


def at_end(writer: KernelWriter, end: Poly, weight: int, size: dict[str, str]) -> str:
    """An end of k, which a row or column moves one by one, where all others of the tile lie inside it."""
    factors, _ = affine(end) or ({}, end)
    moving = [(a.name, sign(w)) for a, w in factors.items() if isinstance(a, Idx)]
    if len(moving) != 1 or len(factors) != 1 or not moving[0][1]:
        return ""
    ((name, slope),) = moving
    axis = writer.axis_of[name]
    if axis.name not in ("m", "n") or len(axis.digits) != 1 or axis.digits[0].lo.terms:
        return ""
    block = f"BLOCK_{axis.name.upper()}"
    far = slope == -weight  # the end that lies farthest out is the last row's
    place = f"tile_{axis.name} * {block}"
    if far:
        place = f"tl.minimum({place} + ({block} - 1), {size[axis.name]} - 1)"
    edge = writer.assign(writer.fresh(f"{name}_{'last' if far else 'first'}"), place)
    near = is_small(end - slope * index(name))
    own, writer.index[name] = writer.index[name], edge if near else f"{edge}.to(tl.int64)"
    shown = writer.size(end)[0]
    writer.index[name] = own
    return shown if near else f"lib.end_of({shown}, {size['k']})"


def sign(weight: Poly | None) -> int:
    """1 or -1 for such a weight, 0 for any other."""
    return {poly(1): 1, poly(-1): -1}.get(weight or poly(0), 0)


def hoist(writer: KernelWriter, coordinates: Iterable[Poly]) -> None:
    """Puts reads of bounds and gathers in front of the loop, if no step of it changes them."""
    k = {i for axis in writer.kernel.axes[3:] for i in axis.names}
    for p in coordinates:
        for atom in walk(p):
            if isinstance(atom, Fetch) and not indices(poly(atom)) & k:
                writer.size(poly(atom))


def without_rows(writer: KernelWriter, name: str, guards: tuple[ir.Guard, ...]) -> None:
    """The sum `name`, but 0 in what guards without a summed index drop."""
    if guards:
        mask = writer.mask(frozenset(), [guard_text(writer, g) for g in guards])
        writer.line(f"{name} = tl.where({mask}, {name}, 0)")


# ---- inside the loop ----------------------------------------------------------------------------
@contextmanager
def along(writer: KernelWriter, side: Side, bounds: Bounds, size: dict[str, str]) -> Iterator[None]:
    """k lies along one side of the tile; what is decoded or loaded by it there is forgotten behind it."""
    axis = writer.kernel.axes[3]
    k, name = {*axis.names}, "k" + side.orient
    saved, cache = dict(writer.index), dict(writer.cache)
    writer.axis_var[axis.name], writer.looping = name, LOOPED
    writer.axis_mask[axis.name] = bounds.inside(name, size)
    if len(axis.digits) == 1:
        writer.index[axis.digits[0].index] = name
    yield
    writer.index = saved | {name: text for name, text in writer.index.items() if name not in k}
    forget_loop(writer, cache)
    writer.looping = frozenset()


def forget_loop(writer: KernelWriter, before: Cache) -> None:
    """What was loaded and decoded before the loop, with runs of digits of axes that it does not walk."""
    runs = {key: name for key, name in writer.cache.items() if key[0] == "run"}
    kept = {key: name for key, name in runs.items() if writer.axis_of[key[1][0]].name not in LOOPED}
    writer.cache = before | kept


def guards_of(writer: KernelWriter, guards: tuple[ir.Guard, ...], side: Side) -> list[ir.Guard]:
    """The guards that speak of one factor's axes alone, and of numbers that a whole program shares."""
    mine = {i for a in writer.kernel.axes if a.name in side.axes for i in a.names}
    return [g for g in guards if indices(g.poly) - writer.lets.keys() <= mine]


def in_some_row(
    writer: KernelWriter, bounds: Bounds, size: dict[str, str]
) -> tuple[dict[Side, str], dict[Side, Cache]]:
    """For a factor, whether the other one's guards let an element through in some row of the tile; and what these loaded."""
    found, loaded = dict[Side, str](), dict[Side, Cache]()
    for side, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
        with along(writer, side, bounds, size):
            own = guards_of(writer, bounds.apart, side)
            if set(own) - set(bounds.whole):
                checks = [guard_text(writer, g) for g in own]
                mask = writer.mask(frozenset({"mn"[side.rows]}), checks)
                some = f"tl.max(({mask}).to(tl.int32), {side.rows})"
                found[other] = f"{writer.assign(writer.fresh('some'), some)}{other.orient} > 0"
            loaded[side] = dict(writer.cache)
    return found, loaded
