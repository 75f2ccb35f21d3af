"""A convolution by tensor descriptors: a program takes patches of places, one tap after another.

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
from tritongen.ir.algebra import indices
from tritongen.schedule.classes.patches import Dim, Run, operand, spread
from tritongen.schedule.plan import View

BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "FLAT")


@dataclass(frozen=True, slots=True)
class Patch:
    """The names of where a tile begins and how far it reaches, by what walks a dim of a tensor."""

    places: tuple[ir.Binder, ...]  # as they follow each other in memory
    columns: Run
    channel: Run
    first: dict[Run, str]
    reach: dict[Run, str]

    @property
    def sides(self) -> list[str]:
        return [self.reach[b.index,] for b in self.places]


def patches_view(body: Body) -> KernelView:
    kernel = body.kernel
    head, tail = kernel.nests[0], kernel.nests[1:]
    body = SlidingBody(body.context, kernel)
    if kernel.lets:
        body.args.constants["INDEX"] = "INDEX"
    var = axis_names(body)
    patch = open_patch(body, var)
    opening, turn = place_lines(body, var, patch)
    factors, setup = operands(body, head, patch)
    loads, dots = products(body, (head,), [], var)
    body.looping = frozenset()
    turn, body.prologue = [*turn, *body.prologue], []
    zeros = accumulators(body, (head,))
    setup = [*side_lines(patch), *setup, *epilogue(body, (head, *tail), var, patch)]
    body.prologue = opening
    spoken = (*opening, *turn, *body.lines, var["count"], var["TAP"], var["K"])
    if not mentions(spoken, var["M"]):
        body.args.sizes.pop(var["M"], None)
    return view(
        body,
        var,
        BLOCKS,
        "Sums over patches of BLOCK_M places and BLOCK_N columns, one tap and BLOCK_K channels at a time.",
        loops=(Loop(tuple(zeros), (*factors, *loads, *dots), ()),),
        lines=tuple(body.lines),
        setup=tuple(setup),
        turn=tuple(turn),
    )


# ---- which patch a program is at -----------------------------------------------------------------
def open_patch(body: Body, var: dict[str, str]) -> Patch:
    """Places in the order of the operand that slides, since a patch of it is reshaped to rows."""
    _, m, n, k, _ = body.kernel.axes
    binders: dict[Run, ir.Binder] = {(d.index,): d for d in m.digits}
    places = [run for run in body.kernel.tiles[0].runs if run in binders]
    columns, channel = tuple(d.index for d in n.digits), (k.digits[0].index,)
    first = {run: body.names.free(f"first_{run[0]}") for run in places}
    first |= {columns: body.names.free(f"first_{var['n']}"), channel: var["k"]}
    reach = {run: body.names.free(f"PATCH_{run[0].upper()}") for run in places}
    body.args.constants |= {side: side for side in reach.values()}
    var["taps"] = var["TAP"] if var["TAP"].isidentifier() else f"({var['TAP']})"
    return Patch(
        tuple(binders[run] for run in places),
        columns,
        channel,
        first,
        reach | {columns: "BLOCK_N", channel: "BLOCK_K"},
    )


def side_lines(patch: Patch) -> Iterator[str]:
    """How far a patch reaches, and how many there are."""
    extents = [launch_text(b.hi - b.lo) for b in patch.places]
    comma = "," if len(extents) == 1 else ""
    yield f'{", ".join(patch.sides)}{comma} = _patch(config["BLOCK_M"], {", ".join(extents)})'
    counts = (f"triton.cdiv({n}, {side})" for n, side in zip(extents, patch.sides, strict=True))
    yield f"patches = {' * '.join(counts)}"


def place_lines(body: Body, var: dict[str, str], patch: Patch) -> tuple[list[str], list[str]]:
    """How many tiles there are each way, and from a tile's number to its corner: columns run fastest."""
    number = var["turn"] = var["tile"]
    extents: dict[Run, str] = {}
    for b in patch.places:
        extents[b.index,] = body.extent(b.hi - b.lo, b.index.upper())
    counts = {run: body.names.free(f"patches_{run[0]}") for run in extents}
    extents[patch.columns], counts[patch.columns] = var["N"], var["tiles_n"]
    opening = [f"{counts[run]} = tl.cdiv({n}, {patch.reach[run]})" for run, n in extents.items()]
    turn: list[str] = []
    inner: list[str] = []
    batched = bool(body.kernel.axes[0].digits)
    outermost = (patch.places[0].index,)
    for run in reversed(counts):
        at = over(number, inner)
        if batched or run != outermost:
            at += f" % {counts[run]}"
        turn.append(f"{patch.first[run]} = {at} * {patch.reach[run]}")
        inner.insert(0, counts[run])
    var["count"] = " * ".join(inner)
    if batched:
        turn.append(f"{var['batch']} = ({over(number, inner)}).to(tl.int64)")
        var["count"] = f"{var['BATCH']} * {var['count']}"
    return opening, turn


def over(number: str, counts: list[str]) -> str:
    """number // (a * b)"""
    if not counts:
        return number
    return f"{number} // {counts[0]}" if len(counts) == 1 else f"{number} // ({' * '.join(counts)})"


# ---- operands ------------------------------------------------------------------------------------
def operands(body: Body, head: ir.Nest, patch: Patch) -> tuple[list[str], list[str]]:
    """Says in `body.loads` how the operands are loaded; the lines that decode a tap, the host's lines."""
    assert isinstance(head.body, ir.Reduce) and isinstance(head.body.body, ir.Call)
    setup, own = [], dict(body.index)
    body.looping = LOOPED
    body.index |= {run[0]: name for run, name in patch.first.items() if len(run) == 1}
    rows = {0: "reshape(BLOCK_M, BLOCK_K)", 1: "reshape(BLOCK_N, BLOCK_K).T"}
    for k, (side, tile) in enumerate(zip(head.body.body.args, body.kernel.tiles, strict=True)):
        read = operand(side)
        assert read is not None
        name, at, line = described(body, tile, read.coords, patch, patch.channel, "_descriptor")
        body.loads[read] = f"{name}.load([{at}]).{rows[k]}"
        setup.append(line)
    decoded, body.lines, body.index = body.lines, [], own
    body.cache = {}
    return decoded, setup


def described(
    body: Body, tile: View, coords, patch: Patch, last: Run, describe: str
) -> tuple[str, str, str]:
    """The name of a descriptor with a run's dim innermost, a tile's corner in it, the host line that makes it."""
    known = body.context
    seen = spread(tile.tensor, coords, body.kernel.axes, known.dims, known.facts)
    order = [k for k, dim in enumerate(seen) if dim.run != last] + [tile.runs.index(last)]
    name = body.names.free(f"{tile.tensor}_patches")
    body.args.pointers[name] = name
    at = ", ".join(corner_text(body, seen[k], patch) for k in order)
    shape = ", ".join(launch_text(n) for n in tile.shape)
    whole = tile.shape == known.dims[tile.tensor]
    lying = permuted(tile.tensor if whole else f"{tile.tensor}.view({shape})", order)
    reach = [patch.reach[seen[k].run] if seen[k].run else "1" for k in order]
    blocks = ", ".join(f'config["{b}"]' if b.startswith("BLOCK_") else b for b in reach)
    return name, at, f"{name} = {describe}({lying}, {blocks})"


def corner_text(body: Body, dim: Dim, patch: Patch) -> str:
    """A coordinate of a tile's corner, in 32 bits."""
    if dim.run == patch.columns:
        return patch.first[dim.run]
    text, _ = body.size(dim.coordinate)
    walked = {d.index for axis in body.kernel.axes[1:] for d in axis.digits}
    return text if indices(dim.coordinate) <= walked else f"tl.cast({text}, tl.int32)"


# ---- what follows from the sums ------------------------------------------------------------------
def epilogue(
    body: Body, nests: tuple[ir.Nest, ...], var: dict[str, str], patch: Patch
) -> Iterator[str]:
    """Place by place, and the stores; the host lines that these need."""
    mask_places(body, var, patch)
    opening, body.lines = body.lines, []
    stored = {tile.tensor: tile for tile in body.kernel.stored}
    head, *_ = nests
    for nest in nests:
        value = body.values[nest.name][0] if nest is head else body.value(nest)
        if nest.name in stored:
            yield store_patch(body, nest, stored[nest.name], value, patch)
        elif nest.name in body.kernel.stores:
            body.store(nest, value)
    body.lines = [*opening, *body.prologue, *body.lines]


def mask_places(body: Body, var: dict[str, str], patch: Patch) -> None:
    """The index of each place of a patch, each column, and which of them are there."""
    place = body.assign(body.fresh("place"), "tl.arange(0, BLOCK_M)[:, None]")
    checks, sides = [], patch.sides
    for k, b in enumerate(patch.places):
        name = body.index[b.index] = body.index_name(b.index)
        at = over(place, sides[k + 1 :]) + (f" % {sides[k]}" if k else "")
        body.line(f"{name} = {patch.first[b.index,]}.to(tl.int64) + {at}")
        checks.append(f"({name} < {body.extent(b.hi - b.lo, b.index.upper())})")
    first = patch.first[patch.columns]
    body.line(f"{var['n']} = {first}.to(tl.int64) + tl.arange(0, BLOCK_N)[None, :]")
    out = next(nest for nest in body.kernel.nests if nest.name in body.kernel.stores)
    for coordinate, extent in body.kernel.ragged:
        at = body.coordinate(out.name, out.coords.index(coordinate), coordinate)
        checks.append(f"({at} < {body.size(extent)[0]})")
    m, n = (axis.name for axis in body.kernel.axes[1:3])
    body.axis_mask |= {m: " & ".join(checks), n: f"{var['n']} < {var['N']}"}
    inside = body.assign(var["inside"], f"{body.axis_mask[m]} & ({body.axis_mask[n]})")
    body.together = {frozenset({m, n}): inside}


def store_patch(body: Body, nest: ir.Nest, tile: View, value: str, patch: Patch) -> str:
    """Stores a patch by descriptor, or through pointers where its columns lie apart; the host line."""
    own = dict(body.index)
    body.index |= {b.index: patch.first[b.index,] for b in patch.places}
    name, at, line = described(body, tile, nest.coords, patch, patch.columns, "_tiles_to_store")
    body.index = own
    runs = [run for run in tile.runs if run != patch.columns]
    shape = ", ".join([*(patch.reach.get(run, "1") for run in runs), "BLOCK_N"])
    body.line(f"if {name} is None:")
    body.indent += 1
    body.store(nest, value)
    body.indent -= 1
    body.line("else:")
    body.line(f"    {name}.store([{at}], {value}.to({name}.dtype).reshape({shape}))")
    return line
