"""A sum over places by tensor descriptors: a program adds up strips of them, one after another.

Input: a `KernelPlan` of the skeleton `strips`, whose `tiles` are its two operands, channels last. Output: its `ProductView`:
in each step the loop loads BLOCK_K places of both, with BLOCK_M channels of one and BLOCK_N of the other.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.emit.contraction import (
    dot_options,
    in_parts,
    open_axes,
    product_view,
    stores_of,
    sum_of,
)
from tritongen.emit.patches import Run, corners, stepped
from tritongen.emit.product_view import Factor, Place
from tritongen.emit.sliding import SlidingWriter
from tritongen.emit.text import launch_text, tuple_text, wrapped
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, affine, indices, poly
from tritongen.schedule.classes.patches import Dim, number
from tritongen.schedule.classes.strips import Side, is_term, sides
from tritongen.schedule.plan import Axis, KernelPlan

BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K")


def strips_view(writer: SlidingWriter) -> KernelView:
    kernel = writer.kernel
    _, m, n, *_ = kernel.axes
    pair = sides_of(kernel)
    row = next(dim.run[0] for dim in pair[0][1] if dim.run and not is_term(dim, kernel.axes))
    size = open_axes(writer, ("batch", "m", "n"))
    hops = _open_hops(writer, row)
    places = _places(writer)
    terms = zip(terms_of(kernel), places, strict=True)
    first: dict[Run, str] = {(b.index,): place.corner for b, place in terms}
    first |= {(row,): "first_m", n.names: "first_n"}
    if len(places) > 1:
        writer.args.constants["STRIP_DIM"] = "strip_dim"
    loads = [_describe(writer, side, first, b) for side, b in zip(pair, BLOCKS, strict=False)]
    per_tile, writer.prologue, writer.lines = (*writer.prologue, *writer.lines), [], []
    left, right = (factor for factor, _ in loads)
    options = dot_options(writer, kernel.nests[0])
    total = sum_of(writer, kernel.nests[0], f"{left.name}.T", right.name, options)
    rows = _open_rows(writer, row, size)
    inside = writer.mask(frozenset({"m", "n"}))
    writer.together = {frozenset({"m", "n"}): "inside"}
    writer.columns = {*n.names}
    stores = stores_of(writer)
    return product_view(
        writer,
        size,
        BLOCKS,
        **in_parts(writer, [total], size),
        places=places,
        hops=wrapped(hops),
        height=writer.axis_mask["m"].split(" < ")[1],
        factors=[left, right],
        inside=inside,
        rows=rows,
        behind=[*writer.prologue, *writer.points],
        stores=stores,
        setup=[host for _, host in loads],
        per_tile=per_tile,
    )


def sides_of(kernel: KernelPlan) -> tuple[Side, Side]:
    """Both operands with their dims; the first moves from hop to hop."""
    found = sides(kernel.nests[0], kernel.axes)
    assert found is not None
    return found


def terms_of(kernel: KernelPlan) -> list[ir.Binder]:
    """The terms of the sum, in the order of the operands' dims."""
    binders = {d.index: d for axis in kernel.axes[3:] for d in axis.digits}
    _, seen = sides_of(kernel)[0]
    return [binders[seen[k].run[0]] for k in _term_dims(kernel, seen)]


def _term_dims(kernel: KernelPlan, seen: tuple[Dim, ...]) -> list[int]:
    return [k for k, dim in enumerate(seen) if is_term(dim, kernel.axes)]


# ---- what a program is at ------------------------------------------------------------------------
def _open_hops(writer: SlidingWriter, row: str) -> str:
    """Decodes a program's `hop` to the indices that move an operand. Returns the number of hops."""
    digits = [d for d in writer.kernel.axes[1].digits if d.index != row]
    names = [writer.index_name(d.index) for d in digits]
    named = zip(digits, names, strict=True)
    extents = [wrapped(writer.extent(d.hi - d.lo, name.upper())) for d, name in named]
    for k, (digit, name) in enumerate(zip(digits, names, strict=True)):
        faster = " * ".join(extents[k + 1 :])
        text = f"hop // {wrapped(faster)}" if faster else "hop"
        text += f" % {extents[k]}" if k else ""
        if digit.lo.terms:
            text += f" + {writer.size(digit.lo)[0]}"
        writer.prologue.append(f"{name} = {text}")
        writer.index[digit.index] = name
        writer.narrow.add(digit.index)
    return " * ".join(extents)


def _places(writer: SlidingWriter) -> list[Place]:
    """The indices of the terms: a strip is BLOCK_K long along one of them."""
    found = []
    for k, b in enumerate(terms := terms_of(writer.kernel)):
        name = writer.index_name(b.index)
        side = f"BLOCK_K if STRIP_DIM == {k} else 1" if len(terms) > 1 else "BLOCK_K"
        extent = writer.extent(b.hi - b.lo, name.upper())
        sides, counts = writer.fresh(f"side_{name}"), writer.fresh(f"strips_{name}")
        found.append(Place(name, extent, sides, counts, writer.fresh(f"corner_{name}"), "", side))
    faster = [wrapped(" * ".join(p.patches for p in found[k + 1 :])) for k in range(len(found))]
    return [replace(p, faster=each) for p, each in zip(found, faster, strict=True)]


def _describe(
    writer: SlidingWriter, side: Side, first: dict[Run, str], block: str
) -> tuple[Factor, str]:
    """How a strip of an operand is loaded, and the host line that describes it."""
    read, seen = side
    name = writer.descriptor(f"{read.tensor}_strips")
    terms = _term_dims(writer.kernel, seen)
    *at, last = corners(writer, read.tensor, seen, list(range(len(seen))), first)
    outer, moving = at[: terms[0]], at[terms[0] :]
    lying = stepped(read.tensor, list(seen))
    if len(terms) > 1:
        behind = f"{len(outer)} + " if outer else ""
        corner = f"({', '.join([*outer, *moving])}), {last}"
        load = f"lib.load_strip({name}, {behind}STRIP_DIM, {corner}, BLOCK_K, {block})"
        lying += f".movedim({behind}strip_dim, -2)"
    else:
        load = f"{name}.load([{', '.join([*at, last])}]).reshape(BLOCK_K, {block})"
    host = f'{name} = lib.descriptor({lying}, config["BLOCK_K"], config["{block}"])'
    return Factor(writer.variable(read.tensor), load), host


def _open_rows(writer: SlidingWriter, row: str, size: dict[str, str]) -> list[str]:
    """The lines that number a tile's rows, and their mask."""
    axis = writer.kernel.axes[1]
    name = writer.index_name(row)
    writer.index[row] = name
    extent = next(d.hi - d.lo for d in axis.digits if d.index == row)
    writer.axis_mask["m"] = f"{name} < {writer.extent(extent, name.upper())}"
    writer.axis_mask["n"] = f"n < {size['n']}"
    lines = [f"{name} = tl.cast(first_m, tl.int64) + tl.arange(0, BLOCK_M)[:, None]"]
    lines.append(f"m = {writer.size(number(axis.names, axis))[0]}")
    return lines


# ---- facts of a call -----------------------------------------------------------------------------
def ends_text(kernel: KernelPlan, dims: dict[str, tuple[Poly, ...]]) -> str:
    """How many terms each index has, and whether a strip may reach beyond the last one, on the host.

    There one operand is 0. The other may be anything, if it is a term of another hop, or has ended, too.
    """
    read, seen = sides_of(kernel)[0]
    said = []
    for k, b in zip(_term_dims(kernel, seen), terms_of(kernel), strict=True):
        beyond = _beyond(seen[k], dims[read.tensor][k], b.hi, kernel.axes[1])
        said.append(f"({launch_text(b.hi)}, {beyond})")
    return tuple_text(said)


def _beyond(dim: Dim, whole: Poly, end: Poly, axis: Axis) -> str:
    parts, used = affine(dim.rest), indices(dim.rest)
    hops = [d for d in axis.digits if d.index in used]
    if parts is None or len(used) != len(hops) or len(hops) > 1 or any(d.lo.terms for d in hops):
        return "False"
    asked = [whole, end, dim.step, parts[1]]
    for hop in hops:
        asked += [parts[0][Idx(hop.index)], hop.hi]
    if not used and whole == end and dim.step == poly(1) and not dim.rest.terms:
        return "True"
    return f"lib.rereads({', '.join(launch_text(p) if p.terms else '0' for p in asked)})"
