"""Kernels whose tile is in registers at once: flat, tile, strided, rows.

Input: a `KernelWriter` over a `KernelPlan`. Output: its `KernelView`. The tile is [ROWS, BLOCK]; values that
depend on the row alone are [ROWS, 1], on the column alone [1, BLOCK], so every line reads the same
here and in `walks.py`, where the columns come in blocks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

from tritongen.emit.fold_lines import fold_resident
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.masked import choose_fill
from tritongen.emit.row_views import FlatView, RowsView, Tile
from tritongen.emit.text import launch_text
from tritongen.emit.view import KernelView, template_of
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, indices, is_affine_map
from tritongen.ir.free import free_indices, leads_to, reads
from tritongen.schedule.members import is_reducer, operands
from tritongen.schedule.plan import Axis


def open_tile(writer: KernelWriter) -> Tile:
    """Both axes of a tile; their variables are called so whatever the spec calls its indices."""
    row, col = writer.kernel.axes[:2]
    tile = Tile(**open_rows(writer), **open_columns(writer))
    writer.together = {frozenset({row.name, col.name}): "inside"}
    return tile


def counted_rows(writer: KernelWriter, tile: Tile) -> Tile:
    """Rows that are split into digits are counted in 32 bits if that is enough, because division is cheap there."""
    row = writer.kernel.axes[0]
    if len(row.digits) == 1:
        return tile
    writer.short.add(row.name)
    return replace(tile, index=counting_dtype(writer, "INDEX", row.extent))


def counting_dtype(writer: KernelWriter, name: str, extent: Poly) -> str:
    """The dtype in which an extent, and a tile beyond it, is counted: 32 bits if that is enough."""
    passed = f"tl.int32 if {launch_text(extent)} < 2_000_000_000 else tl.int64"
    return writer.parameter(writer.args.constants, name, passed)


def open_rows(writer: KernelWriter) -> dict[str, Any]:
    axis, writer.along = writer.kernel.axes[0], {"": innermost(writer)}
    count_runs(writer, axis.outer, "outer")
    low, rows, end = open_axis(writer, axis.run, "row")
    return {"outer": bool(axis.outer.digits), "row_low": low, "rows": rows, "row_end": end}


def open_columns(writer: KernelWriter) -> dict[str, Any]:
    axis = writer.kernel.axes[1]
    count_runs(writer, axis.outer, "line")
    lines = writer.extent(axis.outer.extent, "lines") if axis.outer.digits else ""
    low, cols, end = open_axis(writer, axis.run, "col")
    return {"lines": lines, "col_low": low, "cols": cols, "col_end": end}


def count_runs(writer: KernelWriter, axis: Axis, name: str) -> None:
    """The variable of an axis that no tile covers. It counts from 0."""
    writer.axis_var[axis.name] = name
    if len(axis.digits) == 1 and not axis.digits[0].lo.terms:
        writer.index[axis.digits[0].index] = name


def name_axis(writer: KernelWriter, axis: Axis, name: str) -> None:
    writer.axis_var[axis.name] = name
    if len(axis.digits) == 1:
        writer.index[axis.digits[0].index] = name


def open_axis(writer: KernelWriter, axis: Axis, name: str) -> tuple[str, str, str]:
    """For an axis of a tile: `first + `, the number of its elements, and their end."""
    name_axis(writer, axis, name)
    count, low = writer.extent(axis.extent, f"{name}s") if axis.digits else "1", ""
    if len(axis.digits) == 1 and (first := axis.digits[0].lo).terms:
        low = f"{writer.size(first)[0]} + "
    writer.axis_mask[axis.name] = f"{name} < {low}{count}"
    if axis.digits and axis.digits[-1].index == writer.along.get(""):
        writer.say_multiple(count, launch_text(axis.extent))
    return low, count, low + count


def innermost(writer: KernelWriter) -> str:
    """The index that memory runs along where the widest tensor is contiguous; "" where a dim has none."""
    if writer.kernel.skeleton == "box":  # its lanes lie along it
        return writer.kernel.axes[1].digits[-1].index
    widest = max(writer.kernel.views, key=lambda v: sum(map(len, v.runs)), default=None)
    if widest is None:
        stored = writer.kernel.nests[-1].coords
        runs = [tuple(indices(c)) for c in stored]
    else:
        runs = [] if widest.order else list(widest.runs)
    return runs[-1][-1] if runs and runs[-1] else ""


def tile_view(
    writer: KernelWriter, tile: Tile, blocks: tuple[str, ...], doc: str, **fields
) -> KernelView:
    """The view of a kernel whose own lines are those of the body so far."""
    own = {"tile": tile, "ends": ends_of(tile), "lines": tuple(writer.lines)}
    return view(writer, blocks, doc, RowsView, **own, **fields)


def ends_of(tile: Tile) -> dict[str, str]:
    return {"ROWS": tile.row_end, "BLOCK": tile.col_end}


def view(
    writer: KernelWriter,
    blocks: tuple[str, ...],
    doc: str,
    kind: type[KernelView] = KernelView,
    **fields,
) -> KernelView:
    """The frozen view: parameters in the order pointers, scalars, sizes, strides, constexprs."""
    args, said = writer.args, said_multiples(writer)
    if writer.divided:
        most = ", ".join(map(launch_text, writer.divided))
        args.constants[writer.divides_in] = f"lib.counting({most})"
    plain = {**args.pointers, **args.scalars, **args.sizes, **args.strides}
    for name in [n for n, passed in plain.items() if passed.startswith("config[")]:
        plain[name] = plain.pop(name)  # entries of the config follow the positional arguments
    parameters = (*plain, *(f"{name}: tl.constexpr" for name in (*args.constants, *blocks)))
    arguments = (*plain.values(), *(f"{name}={value}" for name, value in args.constants.items()))
    modes = [n for n in ("PRECISION", "LHS") if n in args.constants or n in blocks]
    return kind(
        name=writer.kernel.name,
        template=template_of(writer.kernel),
        doc=doc,
        parameters=parameters,
        arguments=arguments,
        prologue=(*writer.scalars, *writer.prologue),
        blocks=blocks,
        multiples=said,
        keys=(*(n for n, p in args.sizes.items() if not p.startswith("config[")), *modes),
        tiles=args.tiles,
        **fields,
    )


def said_multiples(writer: KernelWriter) -> dict[str, tuple[str, ...]]:
    """A constexpr and the sizes and strides that it divides, for each group of them."""
    args, found = writer.args, {}
    for tensor, group in writer.multiples.items():
        said = {n: p for n, p in group.items() if n in args.sizes or n in args.strides}
        if said:
            wide = writer.fresh(f"VEC_{tensor.upper()}" if tensor else "VEC")
            args.constants[wide] = f"lib.vec({', '.join(first_strides(said.values()))})"
            found[wide] = tuple(said)
    return found


def first_strides(texts: Iterable[str]) -> Iterator[str]:
    """Texts with `*x.stride()[:2]` for `x.stride(0), x.stride(1)`."""
    of = [(re.fullmatch(r"(\w+)\.stride\((\d)\)", text), text) for text in texts]
    for tensor, run in groupby(of, lambda pair: pair[0] and pair[0][1]):
        found = list(run)
        rising = tensor and all(m and int(m[2]) == k for k, (m, _) in enumerate(found))
        if rising and len(found) > 1:
            yield f"*{tensor}.stride()[:{len(found)}]"
        else:
            yield from (text for _, text in found)


class FlatWriter(KernelWriter):
    """Whether a mask asks for more than that an element is inside."""

    only_inside = True

    def mask(self, axes: frozenset[str], checks: Sequence[str] = ()) -> str:
        text = super().mask(axes, checks)
        self.only_inside &= text in ("", *self.axis_mask.values())
        return text


def flat(writer: FlatWriter) -> KernelView:
    """Puts the work of a block into a function of its own, which is called without a mask for whole blocks."""
    (axis,), sizes = writer.kernel.axes, writer.args.sizes
    name_axis(writer, axis, "i")
    writer.axis_mask[axis.name] = "inside"
    straight_lines(writer)
    spoken = tuple(sizes)  # by the block, which need not know how many elements there are
    total = writer.extent(axis.extent, "total")
    writer.args.sizes = {name: sizes[name] for name in (total, *spoken) if name in sizes}
    fields = {"total": total, "ends": {"BLOCK": total}, "whole": writer.only_inside}
    doc, lines = "Each program computes BLOCK elements.", tuple(writer.lines)
    seen = view(writer, ("BLOCK",), doc, FlatView, lines=lines, **fields)
    assert isinstance(seen, FlatView)
    given = [p for p in seen.parameters[:-1] if p != total or p in spoken]
    passed = tuple(p.removesuffix(": tl.constexpr") for p in given)
    return replace(seen, within=tuple(given), passed=passed)


def tile(writer: KernelWriter) -> KernelView:
    opened = counted_rows(writer, open_tile(writer))
    writer.divides_in = writer.fresh("DIVIDE")
    straight_lines(writer)
    doc = "Each program computes a tile of ROWS x BLOCK elements."
    return tile_view(writer, opened, ("ROWS", "BLOCK"), doc)


def strided(writer: KernelWriter) -> KernelView:
    """Three dims, none of which is split into digits, so that Triton sees which of them is contiguous."""
    sizes = {}
    *_, axis = tile_axes = writer.kernel.axes[:3]
    for axis in tile_axes:
        name_axis(writer, axis, f"{axis.name}_at")
        sizes[axis.name] = writer.extent(axis.extent, axis.name)
        writer.axis_mask[axis.name] = f"{axis.name}_at < {sizes[axis.name]}"
    writer.along = dict.fromkeys(writer.context.dims, axis.digits[0].index)
    writer.together = {frozenset(sizes): "inside"}
    for line in writer.kernel.axes[3:]:
        of = [v.tensor for v in writer.kernel.views if line.names in v.runs]
        spread = " or ".join(f"{t}.stride(2) != 0" for t in of)
        wide = writer.parameter(writer.args.constants, f"{line.name.upper()}_IS_WIDE", spread)
        name_axis(writer, line, at := writer.fresh(f"{line.name}_at"))
        writer.axis_mask[line.name] = f"{at} < {sizes[axis.name]}"
        rows = frozenset(a.name for a in (*tile_axes[:2], line))
        mask, inside = writer.mask(rows), writer.fresh(f"in_{line.name}")
        writer.prologue += [f"{at} = {axis.name}_at if {wide} else 0", f"{inside} = {mask}"]
        writer.together[rows] = inside
    straight_lines(writer)
    writer.say_multiple(sizes[axis.name], launch_text(axis.extent), writer.kernel.stores[-1])
    doc = "Each program computes a tile of OUTER x ROWS x BLOCK elements."
    return view(writer, ("OUTER", "ROWS", "BLOCK"), doc, var=sizes, lines=tuple(writer.lines))


def rows(writer: KernelWriter) -> KernelView:
    tile = open_tile(writer)
    if decoded(writer, writer.kernel.axes[1]):
        writer.short.add(writer.kernel.axes[1].name)
        tile = replace(tile, narrow="tl.int32")
    writer.divides_in = writer.fresh("DIVIDE")
    fold_tile(writer)
    doc = "Each program holds ROWS whole rows in registers, and reads every element once."
    return tile_view(writer, tile, ("ROWS", "BLOCK"), doc)


def fill_lanes(
    writer: KernelWriter, columns: Axis, tensors: tuple[str, ...] | None = None
) -> set[str]:
    """Chooses what masked lanes hold, of these tensors or of all along the columns; the folds that then need no mask."""
    covered = wide_tensors(writer, columns) if tensors is None else tensors
    writer.fill, mask_redundant = choose_fill(writer.kernel.nests, covered, columns, writer.op)
    return mask_redundant


def fold_tile(
    writer: KernelWriter, tensors: tuple[str, ...] | None = None, axis: int | None = 1
) -> None:
    """All values of rows that are in registers; `tensors`: those that the mask of the tile covers."""
    mask_redundant = fill_lanes(writer, writer.kernel.axes[1], tensors)
    for nest in writer.kernel.nests:
        if is_reducer(nest):
            fold_resident(writer, nest, nest.name in mask_redundant, axis)
        elif nest.name not in writer.values:
            tile_values(writer, nest.body)
            writer.value(nest)
        if nest.name in writer.kernel.stores:
            writer.store(nest, writer.values[nest.name][0])


def decoded(writer: KernelWriter, axis: Axis) -> bool:
    """Whether some tensor takes an axis apart into digits, or one of them into a sum with others, `p + r`."""
    names = {*axis.names}
    runs = {view.tensor: view.runs for view in writer.kernel.views}
    parts = (set(run) & names for view in runs.values() for run in view)
    if any(part and part != names for part in parts):
        return True
    seen = {*runs, *(nest.name for nest in writer.kernel.nests)}
    found = (r for nest in writer.kernel.nests for r in reads(nest.body) if r.tensor not in seen)
    read = [(indices(c), is_affine_map(c)) for r in found for c in r.coords]
    own = ((used & names, used - names, affine) for used, affine in read)
    return any(part and (part != names or others and affine) for part, others, affine in own)


def is_row_value(writer: KernelWriter, nest: ir.Nest) -> bool:
    return nest.over == {*writer.kernel.axes[0].names}


def straight_lines(writer: KernelWriter) -> None:
    for nest in writer.kernel.nests:
        writer.value(nest)
        if nest.name in writer.kernel.stores:
            writer.store(nest, writer.values[nest.name][0])


def wide_tensors(writer: KernelWriter, columns: Axis) -> tuple[str, ...]:
    """Tensors read along the columns: their masked lanes reach the folds."""
    col = {*columns.names}
    along = (r for r in operands(writer.kernel.nests) if free_indices(r) & col and r.fill is None)
    floats = (r.tensor for r in along if ir.kind_of(r.dtype, writer.op) == "float")
    return tuple(dict.fromkeys(floats))


def tile_nests(writer: KernelWriter) -> list[ir.Nest]:
    """The pointwise values over the whole tile."""
    nests = writer.kernel.nests
    return [n for n in nests if not is_reducer(n) and not is_row_value(writer, n)]


def tile_values(writer: KernelWriter, expr: ir.Expr) -> None:
    """Pointwise values over the whole tile that an expression depends on, computed where they are read."""
    compute(writer, expr, tile_nests(writer))


def compute(writer: KernelWriter, expr: ir.Expr, among: Collection[ir.Nest]) -> None:
    """The values among these that an expression depends on and that are not there yet."""
    needed = leads_to(expr, among) - writer.values.keys()
    for nest in among:
        if nest.name in needed:
            writer.value(nest)


def tile_stores(writer: KernelWriter, names: Iterable[str]) -> tuple[str, ...]:
    """Values over the whole tile, and their stores."""
    nests = {nest.name: nest for nest in writer.kernel.nests}
    with writer.apart() as lines:
        for name in names:
            tile_values(writer, nests[name].body)
            if name not in writer.values:
                writer.value(nests[name])
            writer.store(nests[name], writer.values[name][0])
    return tuple(lines)


def forget_tile(writer: KernelWriter) -> None:
    """Tile values live as long as one pass of a loop."""
    for nest in tile_nests(writer):
        writer.values.pop(nest.name, None)


@contextmanager
def in_blocks(writer: KernelWriter) -> Iterator[list[str]]:
    """Lines within a loop over the columns: what is loaded or decoded in it is forgotten behind it."""
    col = writer.kernel.axes[1]
    cache, assigned = dict(writer.cache), set(writer.assigned)
    writer.looping = frozenset(part.name for part in (col.outer, col.run))
    with writer.apart() as lines:
        yield lines
    writer.cache, writer.assigned, writer.looping = cache, assigned, frozenset()
    for axis in (col.outer, col.run):
        for digit in axis.digits:
            if writer.index.get(digit.index) != writer.axis_var[axis.name]:  # decoded in the loop
                writer.index.pop(digit.index, None)
