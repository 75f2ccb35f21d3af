"""A convolution by tensor descriptors: a program takes patches of places, one tap after another.

Input: a `KernelPlan` of the skeleton `patches`, whose `tiles` are its two operands. Output: its
`ProductView`: the host describes the operands with their channels innermost (`setup`), the loop loads a
patch of one and BLOCK_N rows of the other for each tap and BLOCK_K channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tritongen.emit.bounded import LOOPED
from tritongen.emit.contraction import (
    dot_options,
    open_axes,
    product_view,
    ragged_checks,
    stores_of,
    sum_of,
)
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.matrices import matrix_text
from tritongen.emit.product_view import Factor, Output, Place
from tritongen.emit.sizes import stride_along
from tritongen.emit.sliding import SlidingWriter
from tritongen.emit.text import launch_text, wrap, wrapped
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index, indices, poly
from tritongen.ir.functions import ATOM
from tritongen.schedule.classes.patches import Dim, operand, walked
from tritongen.schedule.plan import KernelPlan

Run = tuple[str, ...]
BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "FLAT")


@dataclass(frozen=True, slots=True)
class Patch:
    """The names of the start and the extent of a tile, by the index of a tensor's dim."""

    places: tuple[ir.Binder, ...]  # as they follow each other in memory
    names: tuple[str, ...]  # of the variables that walk them
    columns: Run
    channel: Run
    first: dict[Run, str]
    reach: dict[Run, str]

    @property
    def sides(self) -> list[str]:
        return [self.reach[b.index,] for b in self.places]


def patches_view(writer: SlidingWriter) -> KernelView:
    kernel = writer.kernel
    if kernel.lets:
        writer.args.constants["INDEX"] = "INDEX"
    size = open_axes(writer)
    patch = open_patch(writer)
    places = places_of(writer, patch)
    x, w, setup = factors(writer, kernel.nests[0], patch, size)
    per_tile, writer.prologue = writer.prologue, []
    options = dot_options(writer, kernel.nests[0])
    total = sum_of(writer, kernel.nests[0], w.name, f"{x.name}.T", options)
    inside, rows = mask_places(writer, patch, places, size), writer.taken()
    # Of an address, what no column changes is added up first: 116 registers, not 202 (3-d, stride 2, 128 columns).
    writer.columns, writer.kept = set(patch.columns), "places"
    stores = stores_in_rows(writer, patch, places[-1])
    behind, writer.prologue = writer.prologue + writer.points, []
    taps = size["tap"]
    return product_view(
        writer,
        size,
        BLOCKS,
        divisor=taps if taps.isdigit() else f"tl.maximum({taps}, 1)",  # see `Addressing.counted`
        places=places,
        factors=[x, w],
        sums=[total],
        inside=inside,
        rows=rows,
        behind=behind,
        stores=stores,
        setup=(*side_lines(writer, patch), *setup),
        per_tile=per_tile,
    )


# ---- which patch a program is at -----------------------------------------------------------------
def open_patch(writer: KernelWriter) -> Patch:
    """Opens places in the order of the sliding operand, because a patch of it is reshaped to rows."""
    _, _, n, k, _ = writer.kernel.axes
    binders = places_in_memory(writer.kernel)
    places: list[Run] = [(b.index,) for b in binders]
    columns, channel = n.names, (k.digits[0].index,)
    names = {run: writer.index_name(run[0]) for run in places}
    first = {run: writer.fresh(f"corner_{name}") for run, name in names.items()}
    first |= {columns: "first_n", channel: "k"}
    reach = {run: writer.fresh(f"PATCH_{name.upper()}") for run, name in names.items()}
    writer.args.constants |= {side: side for side in reach.values()}
    reach |= {columns: "BLOCK_N", channel: "BLOCK_K"}
    return Patch(binders, tuple(names.values()), columns, channel, first, reach)


def places_in_memory(kernel: KernelPlan) -> tuple[ir.Binder, ...]:
    """The indices of places, in the order of the dims of the sliding operand."""
    binders = {(d.index,): d for d in kernel.axes[1].digits}
    return tuple(binders[run] for run in kernel.tiles[0].runs if run in binders)


def side_lines(writer: KernelWriter, patch: Patch) -> Iterator[str]:
    """How far a patch reaches, and how many there are."""
    kernel = writer.kernel
    extents = [launch_text(b.hi - b.lo) for b in patch.places]
    taps = "4"  # about: how many a phase of a transposed convolution has is not known here
    if not kernel.lets:
        window = kernel.axes[4].extent
        taps = wrap((launch_text(window), ATOM if len(window.terms) == 1 else 0), ATOM)
    steps = f'{taps} * lib.cdiv({launch_text(kernel.axes[3].extent)}, config["BLOCK_K"])'
    asked = [*extents, f"steps={steps}", f"apart={apart_text(kernel)}"]
    comma = "," if len(extents) == 1 else ""
    yield f'{", ".join(patch.sides)}{comma} = lib.patch(config["BLOCK_M"], {", ".join(asked)})'
    counts = (f"triton.cdiv({n}, {side})" for n, side in zip(extents, patch.sides, strict=True))
    yield f"PATCHES = {' * '.join(counts)}"


def stores_in_rows(writer: KernelWriter, patch: Patch, row: Place) -> list[Output]:
    """The stores, as wide as the length of a row of places and strides allow: 64 of two bytes a thread, or 8 of 16.

    Kernels whose lanes lie along columns say nothing of it: a store from lanes along rows costs them up to a third.
    """
    last = patch.places[-1]
    writer.along |= dict.fromkeys(writer.kernel.stores, last.index)
    stores = stores_of(writer)
    lengths = {row.extent: launch_text(last.hi - last.lo)}
    for coordinate, extent in writer.kernel.ragged:  # of one phase, as long as a row
        if last.index in indices(coordinate):
            lengths[writer.size(extent)[0]] = launch_text(extent)
    for name, length in lengths.items():
        writer.say_multiple(name, length, writer.kernel.stores[-1])
    return stores


def covered_text(kernel: KernelPlan) -> str:
    """How many places patches compute, those outside included."""
    extents = (launch_text(b.hi - b.lo) for b in places_in_memory(kernel))
    return f"lib.covered({', '.join(extents)}, apart={apart_text(kernel)})"


def apart_text(kernel: KernelPlan) -> str:
    """The distance in elements between neighbouring places."""
    place = places_in_memory(kernel)[-1].index
    stored = (n for n in kernel.nests if n.name in kernel.stores)
    return next(filter(None, (stride_along(n.name, n.coords, place) for n in stored)), "1")


def places_of(writer: KernelWriter, patch: Patch) -> list[Place]:
    """The indices of the dims of a patch."""
    counts, found = [writer.fresh(f"patches_{name}") for name in patch.names], []
    for k, (b, name) in enumerate(zip(patch.places, patch.names, strict=True)):
        faster, apart = (" * ".join(names[k + 1 :]) for names in (counts, patch.sides))
        extent = writer.extent(b.hi - b.lo, name.upper())
        corner = patch.first[b.index,]
        found.append(Place(name, extent, patch.sides[k], counts[k], corner, faster, wrapped(apart)))
    return found


# ---- operands ------------------------------------------------------------------------------------
def factors(
    writer: KernelWriter, head: ir.Nest, patch: Patch, size: dict[str, str]
) -> tuple[Factor, Factor, list[str]]:
    """The patch and the rows that it is multiplied with, and the host lines that make their descriptors.

    The patch is the second factor. As the first factor it would come to tl.dot through registers once it is reshaped, from a buffer that
    Triton 3.6 refills too early.
    """
    left, right = (operand(side) for side in head.fold.factors)
    assert left is not None and right is not None
    own, cache = dict(writer.index), dict(writer.cache)
    writer.looping = LOOPED
    writer.index |= {run[0]: name for run, name in patch.first.items() if len(run) == 1}
    x, of_x = describe_patch(writer, left, patch)
    w, of_w = describe_rows(writer, right, patch, size)
    lines = writer.taken()
    batch = {*writer.kernel.axes[0].names}  # which stand in front of the loop
    own |= {name: text for name, text in writer.index.items() if name in batch}
    writer.index, writer.cache, writer.looping = own, cache, frozenset()
    names = writer.variable(left.tensor), writer.variable(right.tensor)
    return Factor(names[0], x, lines), Factor(names[1], w), [of_x, of_w]


def describe_patch(writer: KernelWriter, read: ir.Read, patch: Patch) -> tuple[str, str]:
    """How a patch is loaded, its channels innermost; the host line that describes it."""
    seen = walked(read, writer.kernel.axes[1], writer.kernel.axes[3])
    assert seen is not None
    order = innermost(seen, patch.channel)
    name = writer.descriptor(f"{read.tensor}_patches")
    at = corners(writer, read.tensor, seen, order, patch.first)
    load = f"{name}.load([{', '.join(at)}]).reshape(BLOCK_M, BLOCK_K)"
    lying = stepped(matrix_text(read.tensor, order), [seen[k] for k in order])
    blocks = [patch.reach.get(seen[k].run, "1") for k in order[:-1]]
    return load, f'{name} = lib.descriptor({lying}, {", ".join(blocks)}, config["BLOCK_K"])'


def corners(
    writer: KernelWriter,
    tensor: str,
    seen: tuple[Dim, ...],
    order: list[int],
    first: dict[Run, str],
) -> list[str]:
    """The coordinates of a tile's corner. Where a descriptor sees every step-th place, the rest of a step is an offset along the last dim."""
    at, phases = [], []
    for k in order:
        text, _ = writer.size(seen[k].rest)
        if seen[k].step != poly(1):
            text = writer.assign(writer.fresh(writer._dim_name(tensor, k)), text)
            step = writer.size(seen[k].step)[0]
            phases.append(f"lib.floor_mod({text}, {step}) * {writer.stride(tensor, str(k), k)}")
            text = f"lib.floor_div({text}, {step})"
        at.append(corner(writer, seen[k], text, first))
    if phases:
        at[-1] = f"tl.cast({' + '.join([at[-1], *phases])}, tl.int32)"
    return at


def stepped(tensor: str, dims: list[Dim]) -> str:
    """A tensor on the host, or its view of every step-th place."""
    if all(dim.step == poly(1) for dim in dims):
        return tensor
    return f"lib.every({tensor}, {', '.join(launch_text(dim.step) for dim in dims[:-1])})"


def describe_rows(
    writer: KernelWriter, read: ir.Read, patch: Patch, size: dict[str, str]
) -> tuple[str, str]:
    """The same for the factor with the columns: they are the rows of a matrix of all taps and channels."""
    _, _, n, k_axis, taps = writer.kernel.axes
    seen = walked(read, n, k_axis)
    assert seen is not None
    row = next(k for k, dim in enumerate(seen) if dim.run == patch.columns)
    others = [k for k in innermost(seen, patch.channel) if k != row]
    dims = writer.context.dims[read.tensor]
    name = writer.descriptor(f"{read.tensor}_tiles")
    along, extent = poly(0), poly(1)
    for k in others:
        along, extent = along * dims[k] + seen[k].rest, extent * dims[k]
    if [seen[k].rest for k in others[:-1]] == [index(d.index) for d in taps.digits]:
        term = f"tap * {wrap(writer.size(dims[others[-1]]), ATOM)}"
        if seen[others[-1]].rest.terms:
            term += f" + {writer.size(seen[others[-1]].rest)[0]}"
    else:
        term = writer.size(along)[0]
    at = corner(writer, seen[row], writer.size(seen[row].rest)[0], patch.first)
    far = corner(writer, replace(seen[others[-1]], rest=along), term, patch.first)
    lying = matrix_text(read.tensor, [row, *others])
    shape = f"{launch_text(dims[row])}, {launch_text(extent)}"
    blocks = 'config["BLOCK_N"], config["BLOCK_K"]'
    host = f"{name} = lib.descriptor({lying}.reshape({shape}), {blocks})"
    return f"{name}.load([{at}, {far}])", host


def innermost(seen: tuple[Dim, ...], channel: Run) -> list[int]:
    """The dims of an operand, that of the channel last."""
    last = next(k for k, dim in enumerate(seen) if dim.run == channel)
    return [*(k for k in range(len(seen)) if k != last), last]


def corner(writer: KernelWriter, dim: Dim, rest: str, corners: dict[Run, str]) -> str:
    """A coordinate of a tile's corner: where the tile begins, and the rest, in 32 bits."""
    first = corners.get(dim.run, "")
    narrow = {i for axis in writer.kernel.axes[1:] for i in axis.names}
    if indices(dim.rest) - narrow:
        rest = f"tl.cast({rest}, tl.int32)"
    if not first or rest == "0":
        return first or rest
    return f"{first} - {rest[1:]}" if rest.startswith("-") else f"{first} + {rest}"


# ---- what follows from the sums ------------------------------------------------------------------
def mask_places(
    writer: KernelWriter, patch: Patch, places: list[Place], size: dict[str, str]
) -> str:
    """The mask of a patch, called `inside` from here on, and of each of its places."""
    checks = []
    for b, place in zip(patch.places, places, strict=True):
        writer.index[b.index] = place.name
        checks.append(f"{place.name} < {place.extent}")
    checks += ragged_checks(writer)
    writer.axis_mask |= {"m": " & ".join(f"({c})" for c in checks), "n": f"n < {size['n']}"}
    writer.together = {frozenset({"m", "n"}): "inside"}
    return f"{writer.axis_mask['m']} & ({writer.axis_mask['n']})"
