"""Kernels whose tile is in registers at once: flat, tile, strided, rows.

Input: a `Body` over a `KernelPlan`. Output: its `KernelView`. The tile is [ROWS, BLOCK]; values that
depend on the row alone are [ROWS, 1], on the column alone [1, BLOCK], so every line reads the same
here and in `walks.py`, where the columns come in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import fold_resident
from tritongen.emit.masked import choose_fill
from tritongen.emit.row_views import FlatView, RowsView, Tile
from tritongen.emit.text import launch_text
from tritongen.emit.view import KernelView, template_of
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import indices
from tritongen.schedule.canonical import free_indices, reads, tensors_read
from tritongen.schedule.members import is_reducer
from tritongen.schedule.plan import Axis


def open_tile(body: Body) -> Tile:
    """Both axes of a tile; their variables are called so whatever the spec calls its indices."""
    row, col = body.kernel.axes[:2]
    tile = Tile(**open_rows(body), **open_columns(body))
    body.together = {frozenset({row.name, col.name}): "inside"}
    return tile


def open_rows(body: Body) -> dict[str, Any]:
    axis, body.along = body.kernel.axes[0], innermost(body)
    count_runs(body, axis.outer, "outer")
    low, rows, end = open_axis(body, axis.run, "row")
    return {"outer": bool(axis.outer.digits), "row_low": low, "rows": rows, "row_end": end}


def open_columns(body: Body) -> dict[str, Any]:
    axis = body.kernel.axes[1]
    count_runs(body, axis.outer, "line")
    lines = body.extent(axis.outer.extent, "lines") if axis.outer.digits else ""
    low, cols, end = open_axis(body, axis.run, "col")
    return {"lines": lines, "col_low": low, "cols": cols, "col_end": end}


def count_runs(body: Body, axis: Axis, name: str) -> None:
    """The variable of what no tile walks, which counts from 0."""
    body.axis_var[axis.name] = name
    if len(axis.digits) == 1 and not axis.digits[0].lo.terms:
        body.index[axis.digits[0].index] = name


def name_axis(body: Body, axis: Axis, name: str) -> None:
    body.axis_var[axis.name] = name
    if len(axis.digits) == 1:
        body.index[axis.digits[0].index] = name


def open_axis(body: Body, axis: Axis, name: str) -> tuple[str, str, str]:
    """`first + ` of what a tile walks, how many elements it has, and where they end."""
    name_axis(body, axis, name)
    count, low = body.extent(axis.extent, f"{name}s") if axis.digits else "1", ""
    if len(axis.digits) == 1 and (first := axis.digits[0].lo).terms:
        low = f"{body.size(first)[0]} + "
    body.axis_mask[axis.name] = f"{name} < {low}{count}"
    if axis.digits and axis.digits[-1].index == body.along:
        body.say_multiple(count, launch_text(axis.extent))
    return low, count, low + count


def innermost(body: Body) -> str:
    """The index that memory runs along where the widest tensor is contiguous; "" where a dim has none."""
    widest = max(body.kernel.views, key=lambda v: sum(map(len, v.runs)), default=None)
    if widest is None:
        stored = body.kernel.nests[-1].coords
        runs = [tuple(indices(c)) for c in stored]
    else:
        runs = [] if widest.order else list(widest.runs)
    return runs[-1][-1] if runs and runs[-1] else ""


def tile_view(body: Body, tile: Tile, blocks: tuple[str, ...], doc: str, **fields) -> KernelView:
    """The view of a kernel whose own lines are those of the body so far."""
    return view(body, {}, blocks, doc, RowsView, tile=tile, lines=tuple(body.lines), **fields)


def view(
    body: Body,
    var: dict[str, str],
    blocks: tuple[str, ...],
    doc: str,
    kind: type[KernelView] = KernelView,
    **fields,
) -> KernelView:
    """The frozen view: parameters in the order pointers, scalars, sizes, strides, constexprs."""
    args, said = body.args, said_multiples(body)
    plain = {**args.pointers, **args.scalars, **args.sizes, **args.strides}
    for name in [n for n, passed in plain.items() if passed.startswith("config[")]:
        plain[name] = plain.pop(name)  # what the config gives stands behind what is passed in order
    parameters = (*plain, *(f"{name}: tl.constexpr" for name in (*args.constants, *blocks)))
    arguments = (*plain.values(), *(f"{name}={value}" for name, value in args.constants.items()))
    modes = [name for name in ("PRECISION",) if name in args.constants]
    return kind(
        name=body.kernel.name,
        template=template_of(body.kernel),
        doc=doc,
        parameters=parameters,
        arguments=arguments,
        var=var,
        prologue=(*body.scalars, *body.prologue),
        blocks=blocks,
        multiples=said,
        keys=(*(n for n, p in args.sizes.items() if not p.startswith("config[")), *modes),
        tiles=args.tiles,
        **fields,
    )


def said_multiples(body: Body) -> dict[str, tuple[str, ...]]:
    """A constexpr and the sizes and strides that it divides, for each group of them."""
    args, found = body.args, {}
    for tensor, group in body.multiples.items():
        said = {n: p for n, p in group.items() if n in args.sizes or n in args.strides}
        if said:
            wide = body.names.free(f"WIDE_{tensor.upper()}" if tensor else "WIDE")
            args.constants[wide] = f"math.gcd({', '.join(['16', *said.values()])})"
            found[wide] = tuple(said)
    return found


class FlatBody(Body):
    """Whether a mask asks for more than that an element is inside."""

    only_inside = True

    def mask(self, axes: frozenset[str], checks: Sequence[str] = ()) -> str:
        text = super().mask(axes, checks)
        self.only_inside &= text in ("", *self.axis_mask.values())
        return text


def flat(body: FlatBody) -> KernelView:
    """In a function of its own, what is done with a block: called without a mask for those that are whole."""
    (axis,), sizes = body.kernel.axes, body.args.sizes
    name_axis(body, axis, "i")
    body.axis_mask[axis.name] = "inside"
    straight_lines(body)
    spoken = tuple(sizes)  # by the block, which need not know how many elements there are
    total = body.extent(axis.extent, "total")
    body.args.sizes = {name: sizes[name] for name in (total, *spoken) if name in sizes}
    fields = {"total": total, "whole": body.only_inside, "lines": tuple(body.lines)}
    seen = view(body, {}, ("BLOCK",), "BLOCK elements a program.", FlatView, **fields)
    assert isinstance(seen, FlatView)
    given = [p for p in seen.parameters[:-1] if p != total or p in spoken]
    passed = tuple(p.removesuffix(": tl.constexpr") for p in given)
    return replace(seen, within=tuple(given), passed=passed)


def tile(body: Body) -> KernelView:
    opened = open_tile(body)
    straight_lines(body)
    doc = "A tile of ROWS x BLOCK elements a program."
    return tile_view(body, opened, ("ROWS", "BLOCK"), doc)


def strided(body: Body) -> KernelView:
    """Three dims, of which none is taken apart: where a dim is contiguous, Triton sees that it is."""
    sizes = {}
    for axis in body.kernel.axes:
        name_axis(body, axis, f"{axis.name}_at")
        sizes[axis.name] = body.extent(axis.extent, axis.name)
        body.axis_mask[axis.name] = f"{axis.name}_at < {sizes[axis.name]}"
    body.along, body.mixed = axis.digits[0].index, True
    body.together = {frozenset(sizes): "inside"}
    straight_lines(body)
    body.say_multiple(sizes[axis.name], launch_text(axis.extent), body.kernel.stores[-1])
    doc = "A tile of OUTER x ROWS x BLOCK elements a program."
    return view(body, sizes, ("OUTER", "ROWS", "BLOCK"), doc, lines=tuple(body.lines))


def rows(body: Body) -> KernelView:
    tile = open_tile(body)
    if decoded(body, body.kernel.axes[1]):
        body.short.add(body.kernel.axes[1].name)
        tile = replace(tile, narrow="tl.int32")
    fold_tile(body, wide_tensors(body))
    doc = "ROWS whole rows a program, held in registers: every element is read once."
    return tile_view(body, tile, ("ROWS", "BLOCK"), doc)


def fold_tile(body: Body, tensors: tuple[str, ...], axis: int | None = 1) -> None:
    """All values of rows that are in registers; `tensors`: those that the mask of the tile covers."""
    body.fill, served = choose_fill(body.kernel.nests, tensors, body.kernel.axes[1])
    for nest in body.kernel.nests:
        if is_reducer(nest):
            fold_resident(body, nest, nest.name in served, axis)
        elif nest.name not in body.values:
            tile_values(body, needs(body, nest.body) - set(body.values))
            body.value(nest)
        if nest.name in body.kernel.stores:
            body.store(nest, body.values[nest.name][0])


def decoded(body: Body, axis: Axis) -> bool:
    """Whether some tensor takes an axis apart into digits."""
    names = {d.index for d in axis.digits}
    parts = (set(run) & names for view in body.kernel.views for run in view.runs)
    return any(part and part != names for part in parts)


def is_row_value(body: Body, nest: ir.Nest) -> bool:
    return {b.index for b in nest.box} == {d.index for d in body.kernel.axes[0].digits}


def straight_lines(body: Body) -> None:
    for nest in body.kernel.nests:
        body.value(nest)
        if nest.name in body.kernel.stores:
            body.store(nest, body.values[nest.name][0])


def wide_tensors(body: Body, columns: Axis | None = None) -> tuple[str, ...]:
    """Tensors read along the columns, or along those: their masked lanes reach the folds."""
    col = {d.index for d in (columns or body.kernel.axes[1]).digits}
    found: dict[str, None] = {}
    computed = {n.name for n in body.kernel.nests}
    for nest in body.kernel.nests:
        for read in reads(nest.body):
            if read.tensor not in computed and free_indices(read) & col and read.fill is None:
                if ir.kind_of(read.dtype, body.op) == "float":
                    found[read.tensor] = None
    return tuple(found)


def tile_values(body: Body, needed: set[str]) -> None:
    """Pointwise values over the whole tile that a term reads, computed where they are read."""
    row = {d.index for d in body.kernel.axes[0].digits}
    for nest in body.kernel.nests:
        if nest.name in needed and not is_reducer(nest) and {b.index for b in nest.box} != row:
            body.value(nest)


def needs(body: Body, expr: ir.Expr) -> set[str]:
    """Names of all values that expr depends on, through other tile values."""
    nests = {n.name: n for n in body.kernel.nests}
    row = {d.index for d in body.kernel.axes[0].digits}
    found: set[str] = set()

    def visit(e: ir.Expr) -> None:
        for tensor in sorted(tensors_read(e)):
            nest = nests.get(tensor)
            if (
                nest
                and nest.name not in found
                and not is_reducer(nest)
                and {b.index for b in nest.box} != row
            ):
                found.add(nest.name)
                visit(nest.body)

    visit(expr)
    return found


def forget_tile(body: Body) -> None:
    """Tile values live as long as one pass of a loop."""
    row = {d.index for d in body.kernel.axes[0].digits}
    for nest in body.kernel.nests:
        if not is_reducer(nest) and {b.index for b in nest.box} != row:
            body.values.pop(nest.name, None)


@contextmanager
def in_blocks(body: Body) -> Iterator[list[str]]:
    """Lines within a loop over the columns: what is loaded or decoded in it is forgotten behind it."""
    col = body.kernel.axes[1]
    cache, assigned = dict(body.cache), set(body.assigned)
    body.looping = frozenset(part.name for part in (col.outer, col.run))
    with body.apart() as lines:
        yield lines
    body.cache, body.assigned, body.looping = cache, assigned, frozenset()
    for axis in (col.outer, col.run):
        for digit in axis.digits:
            if body.index.get(digit.index) != body.axis_var[axis.name]:  # decoded in the loop
                body.index.pop(digit.index, None)
