"""A convolution by tensor descriptors: a program takes one patch of places after another.

Input: a `KernelPlan` of the skeleton `patches`, whose `tiles` are its two operands. Output: its
`KernelView`: the host describes the operands with their channels innermost (`setup`), the loop loads a
patch of one and a block of columns of the other for each tap and BLOCK_K channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritongen.emit.body import Body
from tritongen.emit.contraction import LOOPED, accumulators, axis_names, products
from tritongen.emit.persistent import mentions, permuted
from tritongen.emit.sliding import SlidingBody
from tritongen.emit.text import launch_text
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView, Loop
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, indices
from tritongen.schedule.classes.patches import spread, stored
from tritongen.schedule.plan import KernelPlan, View


@dataclass(frozen=True, slots=True)
class Patch:
    """The names of what a program is at: the corner by index, and how far it reaches from there."""

    places: tuple[ir.Binder, ...]  # as they follow each other in memory
    column: ir.Binder
    corner: dict[str, str]
    reach: dict[str, str]  # of the column and the channel too

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(self.reach[b.index] for b in self.places)


def patches_view(body: Body) -> KernelView:
    kernel = body.kernel
    head, tail = kernel.nests[0], kernel.nests[1:]
    body = SlidingBody(body.context, kernel)
    if kernel.lets:
        body.args.constants["INDEX"] = "INDEX"
    var = axis_names(body)
    var["taps"] = var["TAP"] if var["TAP"].isidentifier() else f"({var['TAP']})"
    patch = open_patch(body)
    opening, turn = place_lines(body, var, patch)
    setup = [*sides_lines(patch)]
    own, cache = dict(body.index), dict(body.cache)
    body.index |= {**patch.corner, kernel.axes[3].digits[0].index: var["k"]}
    body.looping = LOOPED
    for side, tile in zip(head.body.body.args, kernel.tiles, strict=True):
        setup.append(operand(body, stored(side), tile, patch))
    taps, body.lines = body.lines, []
    loads, dots = products(body, (head,), [], var)
    body.index, body.cache, body.looping = own, cache, frozenset()
    turn, body.prologue = [*turn, *body.prologue], []
    zeros = accumulators(body, (head,))
    setup += epilogue(body, (head, *tail), var, patch)
    turn, body.prologue = [*turn, *body.prologue], opening
    spoken = (*opening, *turn, *body.lines, var["count"], var["TAP"], var["K"])
    if not mentions(spoken, var["M"]):
        body.args.sizes.pop(var["M"], None)
    return view(
        body,
        var,
        ("BLOCK_M", "BLOCK_N", "BLOCK_K", "FLAT"),
        "Sums for patches of BLOCK_M places and BLOCK_N columns, one tap and BLOCK_K channels at a time.",
        turn=tuple(turn),
        loops=(Loop(tuple(zeros), (*taps, *loads, *dots), ()),),
        lines=tuple(body.lines),
        setup=tuple(setup),
    )


# ---- which patch a program is at -----------------------------------------------------------------
def open_patch(body: Body) -> Patch:
    """Places in the order of the operand that slides, since a patch of it is reshaped to rows."""
    _, m, n, k, _ = body.kernel.axes
    binders = {d.index: d for d in m.digits}
    order = [run[0] for run in body.kernel.tiles[0].runs if set(run) & set(binders)]
    corner = {i: body.names.free(f"first_{i}") for i in (*order, n.digits[0].index)}
    reach = {i: body.names.free(f"PATCH_{i.upper()}") for i in order}
    body.args.constants |= {side: side for side in reach.values()}
    reach |= {n.digits[0].index: "BLOCK_N", k.digits[0].index: "BLOCK_K"}
    return Patch(tuple(binders[i] for i in order), n.digits[0], corner, reach)


def sides_lines(patch: Patch) -> Iterator[str]:
    """How far a patch reaches, and how many there are."""
    extents = [launch_text(b.hi - b.lo) for b in patch.places]
    comma = "," if len(patch.places) == 1 else ""
    yield f'{", ".join(patch.sides)}{comma} = _patch(config["BLOCK_M"], {", ".join(extents)})'
    counts = (f"triton.cdiv({n}, {side})" for n, side in zip(extents, patch.sides, strict=True))
    yield f"patches = {' * '.join(counts)}"


def place_lines(body: Body, var: dict[str, str], patch: Patch) -> tuple[list[str], list[str]]:
    """How many tiles each index has, before the loop over them; from a tile's number to its corner, in it."""
    counts, turn = [], []
    number = var["turn"] = var["tile"]
    steps = (patch.column, *reversed(patch.places))
    for b in steps:
        count = body.names.free(f"{'tiles' if b is patch.column else 'patches'}_{b.index}")
        extent = body.extent(b.hi - b.lo, b.index.upper())
        counts.append(f"{count} = tl.cdiv({extent}, {patch.reach[b.index]})")
        var[f"count_{b.index}"] = count
    names = [var[f"count_{b.index}"] for b in steps]
    var["count"] = " * ".join(names)
    batched = bool(body.kernel.axes[0].digits)
    for k, b in enumerate(steps):
        under = " * ".join(names[:k])
        at = f"{number} // ({under})" if k > 1 else f"{number} // {under}" if k else number
        if batched or k < len(steps) - 1:
            at += f" % {names[k]}"
        turn.append(f"{patch.corner[b.index]} = {at} * {patch.reach[b.index]}")
    if batched:
        turn.append(f"{var['batch']} = ({number} // ({var['count']})).to(tl.int64)")
        var["count"] = f"{var['BATCH']} * {var['count']}"
    return counts, turn


# ---- operands and what is stored -----------------------------------------------------------------
def operand(body: Body, read: ir.Read, tile: View, patch: Patch) -> str:
    """Says in `body.loads` how an operand's tiles are loaded; the host line that describes it."""
    seen = spread(read, body.kernel.axes, body.context.dims, body.context.facts)
    channel = body.kernel.axes[3].digits[0].index
    order = innermost(tile, channel)
    name = body.names.free(f"{tile.tensor}_patches")
    body.args.pointers[name] = name
    at = [corner_text(body, seen[k][1]) for k in order]
    rows = ".reshape(BLOCK_N, BLOCK_K).T"
    if tile is body.kernel.tiles[0]:
        rows = ".reshape(BLOCK_M, BLOCK_K)"
    body.loads[read] = f"{name}.load([{', '.join(at)}]){rows}"
    return f"{name} = _descriptor({lying(body, tile, order)}, {host_blocks(tile, order, patch)})"


def innermost(tile: View, index: str) -> list[int]:
    """The dims of a tensor with that of an index last."""
    last = tile.runs.index((index,))
    return [*(k for k in range(len(tile.runs)) if k != last), last]


def lying(body: Body, tile: View, order: list[int]) -> str:
    """The tensor on the host, its dims taken apart and in this order."""
    shape = ", ".join(launch_text(n) for n in tile.shape)
    whole = tile.shape == body.context.dims[tile.tensor]
    return permuted(tile.tensor if whole else f"{tile.tensor}.view({shape})", order)


def host_blocks(tile: View, order: list[int], patch: Patch) -> str:
    blocks = [patch.reach[tile.runs[k][0]] if tile.runs[k] else "1" for k in order]
    return ", ".join(f'config["{b}"]' if b.startswith("BLOCK_") else b for b in blocks)


def corner_text(body: Body, coordinate: Poly) -> str:
    """A coordinate of a tile's corner in 32 bits."""
    text, _ = body.size(coordinate)
    walked = {d.index for axis in body.kernel.axes[1:] for d in axis.digits}
    return text if indices(coordinate) <= walked else f"tl.cast({text}, tl.int32)"


def epilogue(
    body: Body, nests: tuple[ir.Nest, ...], var: dict[str, str], patch: Patch
) -> list[str]:
    """Whatever follows from the sums, place by place, and the stores; the host lines that these need."""
    mask_places(body, var, patch)
    head, *_ = nests
    tiles = {tile.tensor: tile for tile in body.kernel.stored}
    setup = []
    for nest in nests:
        value = body.values[nest.name][0] if nest is head else body.value(nest)
        if nest.name in tiles:
            setup.append(store_patch(body, nest, tiles[nest.name], value, patch))
        elif nest.name in body.kernel.stores:
            body.store(nest, value)
    return setup


def mask_places(body: Body, var: dict[str, str], patch: Patch) -> None:
    """The index of each place of a patch, and the mask of those that are there."""
    place, under = body.assign(body.fresh("place"), "tl.arange(0, BLOCK_M)[:, None]"), []
    lines, checks = [], []
    for b in reversed(patch.places):
        size = " * ".join(under)
        at = f"{place} // ({size})" if len(under) > 1 else f"{place} // {size}" if under else place
        if b is not patch.places[0]:
            at += f" % {patch.reach[b.index]}"
        name = body.index[b.index] = body.index_name(b.index)
        lines.append(f"{name} = {patch.corner[b.index]}.to(tl.int64) + {at}")
        checks.append(f"({name} < {body.extent(b.hi - b.lo, b.index.upper())})")
        under.insert(0, patch.reach[b.index])
    for line in reversed(lines):
        body.line(line)
    first = patch.corner[patch.column.index]
    body.line(f"{var['n']} = {first}.to(tl.int64) + tl.arange(0, BLOCK_N)[None, :]")
    stored_nest = next(nest for nest in body.kernel.nests if nest.name in body.kernel.stores)
    for coordinate, extent in body.kernel.ragged:
        at = body.coordinate(
            stored_nest.name, stored_nest.coords.index(coordinate), coordinate
        )
        checks.insert(0, f"({at} < {body.size(extent)[0]})")
    m, n = (axis.name for axis in body.kernel.axes[1:3])
    body.axis_mask |= {m: " & ".join(reversed(checks)), n: f"{var['n']} < {var['N']}"}
    inside = body.assign(var["inside"], f"{body.axis_mask[m]} & ({body.axis_mask[n]})")
    body.together = {frozenset({m, n}): inside}


def store_patch(body: Body, nest: ir.Nest, tile: View, value: str, patch: Patch) -> str:
    """Stores a patch by descriptor where rows of columns are aligned, else through pointers; the host line."""
    name = body.names.free(f"{tile.tensor}_patches")
    body.args.pointers[name] = name
    order = innermost(tile, patch.column.index)
    seen = spread(
        ir.Read(nest.name, nest.coords, None, nest.dtype),
        body.kernel.axes,
        body.context.dims,
        body.context.facts,
    )
    own = dict(body.index)
    body.index |= patch.corner
    at = ", ".join(corner_text(body, seen[k][1]) for k in order)
    body.index = own
    shape = ", ".join(patch.reach[tile.runs[k][0]] if tile.runs[k] else "1" for k in order)
    body.line(f"if {name} is None:")
    body.indent += 1
    body.store(nest, value)
    body.indent -= 1
    body.line("else:")
    body.line(f"    {name}.store([{at}], {value}.to({name}.dtype).reshape({shape}))")
    return f"{name} = _tiles_to_store({lying(body, tile, order)}, {host_blocks(tile, order, patch)})"
