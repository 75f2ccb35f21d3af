"""Kernels whose tile is in registers at once: flat, tile, strided, rows.

Input: a `Body` over a `KernelPlan`. Output: its `KernelView`. The tile is [ROWS, BLOCK]; values that
depend on the row alone are [ROWS, 1], on the column alone [1, BLOCK], so every line reads the same
here and in `walks.py`, where the columns come in blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import fold_resident
from tritongen.emit.masked import choose_fill
from tritongen.emit.text import launch_text, mentions
from tritongen.emit.view import KernelView, template_of
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import indices
from tritongen.schedule.canonical import free_indices, reads, tensors_read
from tritongen.schedule.members import is_reducer
from tritongen.schedule.plan import Axis


def axis_name(body: Body, axis: Axis) -> str:
    """The variable of an axis: its index, where it has one."""
    if len(axis.digits) == 1 and axis.digits[0].index != ir.BATCH:
        name = axis.digits[0].index
        body.index[name] = name
        return name
    name = body.names.free(
        "row"
        if axis.digits and axis.digits[0].index == ir.BATCH and axis.name != "col"
        else axis.name
    )
    if len(axis.digits) == 1:
        body.index[axis.digits[0].index] = name
    return name


def open_tile(body: Body) -> dict[str, str]:
    """Names and masks of the two axes; {role: name} for the template."""
    row, col = body.kernel.axes[:2]
    var: dict[str, str] = {}
    for role, position, wish in (("row", 0, "rows"), ("col", 1, "cols")):
        axis = body.kernel.axes[position].run
        var |= open_outer(body, role, body.kernel.axes[position].outer)
        var[role] = axis_name(body, axis)
        body.axis_var[axis.name] = var[role]
        var[wish] = body.extent(axis.extent, wish) if axis.digits else "1"
        body.axis_mask[axis.name] = f"{var[role]} < {var[wish]}"
        var[f"{role}_low"] = ""
        if len(axis.digits) == 1 and axis.digits[0].lo.terms:
            low = body.size(axis.digits[0].lo)[0]
            body.axis_mask[axis.name] = f"{var[role]} < {low} + {var[wish]}"
            var[f"{role}_low"] = f"{low} + "
        var[f"{role}_mask"] = body.axis_mask[axis.name]
    var["inside"] = body.names.free("inside")
    var["start"] = body.names.free("start")
    var["step"] = body.names.free("step") if var["col_outer"] else ""
    var["end"] = var["cols"]  # where a walk over the columns ends
    blocks = f"{var['col_turns']} * {var['col_blocks']}" if var["col_outer"] else var["cols"]
    var |= {"first": "0", "until": blocks}  # what a loop over the columns counts
    var |= {"tile": "tl.program_id(0)", "height": "ROWS", "count": "PARTS"}
    body.together = {frozenset({row.name, col.name}): var["inside"]}
    body.along = innermost(body)
    for axis, name in ((row, "rows"), (col, "cols")):
        if axis.digits and axis.run.digits[-1].index == body.along:
            body.say_multiple(var[name], launch_text(axis.run.extent))
    return var


def innermost(body: Body) -> str:
    """The index that memory runs along where the widest tensor is contiguous; "" where a dim has none."""
    widest = max(body.kernel.views, key=lambda v: sum(map(len, v.runs)), default=None)
    if widest is None:
        stored = body.kernel.nests[-1].coords
        runs = [tuple(indices(c)) for c in stored]
    else:
        runs = [] if widest.order else list(widest.runs)
    return runs[-1][-1] if runs and runs[-1] else ""


def open_outer(body: Body, role: str, outer: Axis) -> dict[str, str]:
    """Names for the digits of an axis that no tile walks; "" where there are none."""
    if not outer.digits:
        return {f"{role}_outer": ""}
    counted_from_0 = len(outer.digits) > 1 or not outer.digits[0].lo.terms
    name = axis_name(body, outer) if counted_from_0 else body.names.free(outer.name)
    body.axis_var[outer.name] = name
    blocks = body.names.free("tiles" if role == "row" else "blocks")
    turns = body.extent(outer.extent, f"{name}s") if role == "col" else ""
    return {f"{role}_outer": name, f"{role}_blocks": blocks, f"{role}_turns": turns}


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
    (axis,) = body.kernel.axes
    single = len(axis.digits) == 1 and axis.digits[0].index != ir.BATCH
    name = axis.digits[0].index if single else body.names.free("i")
    body.axis_var[axis.name] = name
    for digit in axis.digits:
        if len(axis.digits) == 1:
            body.index[digit.index] = name
    total = body.extent(axis.extent, "total")
    inside = body.names.free("inside")
    body.axis_mask[axis.name] = inside
    straight_lines(body)
    var = {"i": name, "total": total, "inside": inside, "block": f"{body.kernel.name}_block"}
    seen = view(body, var, ("BLOCK",), "BLOCK elements a program.", lines=tuple(body.lines))
    lines = (*seen.prologue, *seen.lines)
    names = [p for p in seen.parameters if p != "BLOCK: tl.constexpr"]
    names = [p for p in names if p != total or mentions(lines, total)]
    passed = ", ".join([p.removesuffix(": tl.constexpr") for p in names] + [name])
    var |= {"block_parameters": ", ".join([*names, name, inside]), "passed": passed}
    return replace(seen, flags={"whole_blocks": body.only_inside})


def tile(body: Body) -> KernelView:
    var = open_tile(body)
    var["tiles"] = body.names.free("tiles")
    straight_lines(body)
    doc = "A tile of ROWS x BLOCK elements a program."
    return view(body, var, ("ROWS", "BLOCK"), doc, lines=tuple(body.lines))


def strided(body: Body) -> KernelView:
    """Three dims, of which none is taken apart: where a dim is contiguous, Triton sees that it is."""
    var = {}
    for axis in body.kernel.axes:
        (digit,) = axis.digits
        var[digit.index] = body.axis_var[axis.name] = axis_name(body, axis)
        var[axis.name] = body.extent(axis.extent, axis.name)
        body.axis_mask[axis.name] = f"{var[digit.index]} < {var[axis.name]}"
    inner = body.kernel.axes[-1]
    body.along, body.mixed = inner.digits[0].index, True
    var |= {name: body.names.free(name) for name in ("inside", "tile", "tiles", "spans")}
    body.together = {frozenset(axis.name for axis in body.kernel.axes): var["inside"]}
    straight_lines(body)
    body.say_multiple(var[inner.name], launch_text(inner.extent), body.kernel.stores[-1])
    doc = "A tile of OUTER x ROWS x BLOCK elements a program."
    return view(body, var, ("OUTER", "ROWS", "BLOCK"), doc, lines=tuple(body.lines))


def rows(body: Body) -> KernelView:
    var = open_tile(body)
    if decoded(body, body.kernel.axes[1]):
        body.short.add(body.kernel.axes[1].name)
    var["col_cast"] = "" if body.short else ".to(tl.int64)"
    fold_tile(body, var, wide_tensors(body))
    doc = "ROWS whole rows a program, held in registers: every element is read once."
    return view(body, var, ("ROWS", "BLOCK"), doc, lines=tuple(body.lines))


def fold_tile(
    body: Body, var: dict[str, str], tensors: tuple[str, ...], axis: int | None = 1
) -> None:
    """All values of rows that are in registers; `tensors`: those that the mask of the tile covers."""
    body.fill, served = choose_fill(body.kernel.nests, tensors, body.kernel.axes[1])
    for nest in body.kernel.nests:
        if is_reducer(nest):
            fold_resident(body, nest, var, nest.name in served, axis)
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


def keep_spoken_sizes(body: Body, lines: Sequence[str]) -> None:
    """Only the sizes that these lines, or the prologue, speak of stay parameters."""
    spoken = " ".join((*lines, *body.prologue))
    body.args.sizes = {
        name: passed
        for name, passed in body.args.sizes.items()
        if re.search(rf"\b{re.escape(name)}\b", spoken)
    }


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
