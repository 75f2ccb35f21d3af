"""A convolution by tensor descriptors: a program takes patches of places, one tap after another.

Input: a `KernelPlan` of the skeleton `patches`, whose `tiles` are its two operands. Output: its
`KernelView`: the host describes the operands with their channels innermost (`setup`), the loop loads a
patch of one and BLOCK_N rows of the other for each tap and BLOCK_K channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tritongen.emit.body import Body
from tritongen.emit.bounded import LOOPED
from tritongen.emit.contraction import accumulators, axis_names, dot_line, widen
from tritongen.emit.matrices import matrix_text
from tritongen.emit.sliding import SlidingBody
from tritongen.emit.text import launch_text, mentions, wrap
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView, Loop
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index, indices, poly
from tritongen.ir.functions import ATOM
from tritongen.schedule.classes.patches import Dim, operand, walked

Run = tuple[str, ...]
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
    factors, setup = products(body, head, patch, var)
    turn, body.prologue = [*turn, *body.prologue], []
    zeros = accumulators(body, (head,), "(BLOCK_N, BLOCK_M)")
    epilogue(body, (head, *tail), var, patch)
    body.prologue = opening
    spoken = (*opening, *turn, *body.lines, var["count"], var["TAP"], var["K"])
    if not mentions(spoken, var["M"]):
        body.args.sizes.pop(var["M"], None)
    return view(
        body,
        var,
        BLOCKS,
        "Sums over BLOCK_N columns and patches of BLOCK_M places, one tap and BLOCK_K channels at a time.",
        loops=(Loop(tuple(zeros), tuple(factors), ()),),
        lines=tuple(body.lines),
        setup=(*side_lines(patch), *setup),
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
    if body.kernel.lets:  # see `Places.counted`
        var["taps"] = f"tl.maximum({var['TAP']}, 1)"
    return Patch(
        tuple(binders[run] for run in places),
        columns,
        channel,
        first,
        reach | {columns: "BLOCK_N", channel: "BLOCK_K"},
    )


def side_lines(patch: Patch) -> Iterator[str]:
    """How far a patch reaches, and how many there are.

    f32 as TF32, 64 -> 128 channels of 254^2, 2, 4, 8, 16, 32 and 64 places of a row: 95, 130, 194, 227, 239 and 244
    TFLOP/s (cuDNN 148); of rows of 65,538 2, 16, 64 and 128: 56, 171, 211 and 240 (97).
    """
    extents = [launch_text(b.hi - b.lo) for b in patch.places]
    comma = "," if len(extents) == 1 else ""
    yield f'{", ".join(patch.sides)}{comma} = lib.patch(config["BLOCK_M"], {", ".join(extents)})'
    counts = (f"triton.cdiv({n}, {side})" for n, side in zip(extents, patch.sides, strict=True))
    yield f"PATCHES = {' * '.join(counts)}"


def place_lines(body: Body, var: dict[str, str], patch: Patch) -> tuple[list[str], list[str]]:
    """How many tiles there are each way, and from a tile's number to its corner: columns run fastest.

    What is counted from the number of a turn may be a Python int in the interpreter, which has no `.to`.

    Phases of a transposed convolution lie between one another in memory: those of one patch run side by
    side, so that L2 reads it once and sees whole sectors.
    """
    number = var["turn"] = var["tile"]
    turn: list[str] = []
    if body.kernel.lets:
        turn.append(f"{var['batch']} = tl.cast({number} % {var['BATCH']}, tl.int64)")
        turn.append(f"{body.names.free('patch')} = {number} // {var['BATCH']}")
        number = turn[-1].split(" ")[0]
    extents: dict[Run, str] = {}
    for b in patch.places:
        extents[b.index,] = body.extent(b.hi - b.lo, b.index.upper())
    counts = {run: body.names.free(f"patches_{run[0]}") for run in extents}
    extents[patch.columns], counts[patch.columns] = var["N"], var["tiles_n"]
    opening = [f"{counts[run]} = tl.cdiv({n}, {patch.reach[run]})" for run, n in extents.items()]
    inner: list[str] = []
    batched = bool(body.kernel.axes[0].digits)
    outermost = () if batched and not body.kernel.lets else (patch.places[0].index,)
    for run in reversed(counts):
        at = over(number, inner)
        if run != outermost:
            at += f" % {counts[run]}"
        turn.append(f"{patch.first[run]} = {at} * {patch.reach[run]}")
        inner.insert(0, counts[run])
    var["count"] = " * ".join(inner)
    if batched:
        if not body.kernel.lets:
            turn.append(f"{var['batch']} = tl.cast({over(number, inner)}, tl.int64)")
        var["count"] = f"{var['BATCH']} * {var['count']}"
    return opening, turn


def over(number: str, counts: list[str]) -> str:
    """number // (a * b)"""
    if not counts:
        return number
    return f"{number} // {counts[0]}" if len(counts) == 1 else f"{number} // ({' * '.join(counts)})"


# ---- operands ------------------------------------------------------------------------------------
def products(
    body: Body, head: ir.Nest, patch: Patch, var: dict[str, str]
) -> tuple[list[str], list[str]]:
    """The lines of the loop, and the host's lines that describe the operands.

    The patch is the second factor: the first one would come to tl.dot through registers once it is
    reshaped, out of a buffer that Triton 3.6 refills too early.
    """
    assert isinstance(head.body, ir.Reduce) and isinstance(head.body.body, ir.Call)
    left, right = (operand(side) for side in head.body.body.args)
    assert left is not None and right is not None
    own, cache = dict(body.index), dict(body.cache)
    body.looping = LOOPED
    body.index |= {run[0]: name for run, name in patch.first.items() if len(run) == 1}
    setup = [describe_patch(body, left, patch, var), describe_rows(body, right, patch, var)]
    x, w = body.read(left), body.read(right)
    lines = [*body.lines, dot_line(body, head, w, f"{x}.T")]
    body.lines, body.index, body.cache, body.looping = [], own, cache, frozenset()
    return lines, setup


def describe_patch(body: Body, read: ir.Read, patch: Patch, var: dict[str, str]) -> str:
    """Says in `body.loads` how a patch is loaded, its channels innermost; the host line that describes it."""
    seen = walked(read, body.kernel.axes[1], body.kernel.axes[3])
    assert seen is not None
    order = innermost(seen, patch.channel)
    name = body.names.free(f"{read.tensor}_patches")
    body.args.pointers[name] = name
    at, phases = [], []
    for k in order:
        text, _ = body.size(seen[k].rest)
        if seen[k].step != poly(1):
            text = body.assign(body.fresh(body._dim_name(read.tensor, k)), text)
            step = body.size(seen[k].step)[0]
            phases.append(f"lib.floor_mod({text}, {step}) * {body.stride(read.tensor, str(k), k)}")
            text = f"lib.floor_div({text}, {step})"
        at.append(corner(body, seen[k], text, patch))
    if phases:
        at[-1] = f"tl.cast({' + '.join([at[-1], *phases])}, tl.int32)"
    body.loads[read] = f"{name}.load([{', '.join(at)}]).reshape(BLOCK_M, BLOCK_K)"
    lying = matrix_text(read.tensor, order)
    if phases:
        steps = ", ".join(launch_text(seen[k].step) for k in order[:-1])
        lying = f"lib.every({lying}, {steps})"
    blocks = [patch.reach.get(seen[k].run, "1") for k in order[:-1]]
    return f'{name} = lib.descriptor({lying}, {", ".join(blocks)}, config["BLOCK_K"])'


def describe_rows(body: Body, read: ir.Read, patch: Patch, var: dict[str, str]) -> str:
    """The same for the factor with the columns: they are the rows of a matrix of all taps and channels."""
    _, _, n, k_axis, taps = body.kernel.axes
    seen = walked(read, n, k_axis)
    assert seen is not None
    row = next(k for k, dim in enumerate(seen) if dim.run == patch.columns)
    others = [k for k in innermost(seen, patch.channel) if k != row]
    dims = body.context.dims[read.tensor]
    name = body.names.free(f"{read.tensor}_tiles")
    body.args.pointers[name] = name
    along, extent = poly(0), poly(1)
    for k in others:
        along, extent = along * dims[k] + seen[k].rest, extent * dims[k]
    if [seen[k].rest for k in others[:-1]] == [index(d.index) for d in taps.digits]:
        term = f"{var['tap']} * {wrap(body.size(dims[others[-1]]), ATOM)}"
        if seen[others[-1]].rest.terms:
            term += f" + {body.size(seen[others[-1]].rest)[0]}"
    else:
        term = body.size(along)[0]
    at = corner(body, seen[row], body.size(seen[row].rest)[0], patch)
    far = corner(body, replace(seen[others[-1]], rest=along), term, patch)
    body.loads[read] = f"{name}.load([{at}, {far}])"
    lying = matrix_text(read.tensor, [row, *others])
    shape = f"{launch_text(dims[row])}, {launch_text(extent)}"
    return (
        f'{name} = lib.descriptor({lying}.reshape({shape}), config["BLOCK_N"], config["BLOCK_K"])'
    )


def innermost(seen: tuple[Dim, ...], channel: Run) -> list[int]:
    """The dims of an operand, that of the channel last."""
    last = next(k for k, dim in enumerate(seen) if dim.run == channel)
    return [*(k for k in range(len(seen)) if k != last), last]


def corner(body: Body, dim: Dim, rest: str, patch: Patch) -> str:
    """A coordinate of a tile's corner: where the tile begins, and the rest, in 32 bits."""
    first = patch.first.get(dim.run, "")
    narrow = {d.index for axis in body.kernel.axes[1:] for d in axis.digits}
    if indices(dim.rest) - narrow:
        rest = f"tl.cast({rest}, tl.int32)"
    if not first or rest == "0":
        return first or rest
    return f"{first} - {rest[1:]}" if rest.startswith("-") else f"{first} + {rest}"


# ---- what follows from the sums ------------------------------------------------------------------
def epilogue(
    body: SlidingBody, nests: tuple[ir.Nest, ...], var: dict[str, str], patch: Patch
) -> None:
    """Whatever is computed from the sums, place by place, and the stores.

    Of an address, what no column changes is added up first: 116 registers, not 202 (3-d, stride 2, 128 columns).
    """
    mask_places(body, var, patch)
    opening, body.lines = body.lines, []
    body.columns, body.kept = set(patch.columns), "places"
    head, *_ = nests
    widen(body, (head,))
    for nest in nests:
        value = body.values[nest.name][0] if nest is head else body.value(nest)
        if nest.name in body.kernel.stores:
            body.store(nest, value)
    body.lines = [*opening, *body.prologue, *body.points, *body.lines]


def mask_places(body: Body, var: dict[str, str], patch: Patch) -> None:
    """The index of each place of a patch, each column, and which of them are there."""
    down, along = "[:, None]", "[None, :]"
    if body.kernel.lets:
        # Where neighbours are stored apart both ways, Triton 3.6 lays lanes along a tile's first dim.
        total = body.values[body.kernel.nests[0].name][0]
        body.line(f"{total} = {total}.T  # the places first: lanes lie along them")
        down, along = along, down
    place = body.assign(body.fresh("place"), f"tl.arange(0, BLOCK_M){along}")
    checks, sides = [], patch.sides
    for k, b in enumerate(patch.places):
        name = body.index[b.index] = body.index_name(b.index)
        at = over(place, sides[k + 1 :]) + (f" % {sides[k]}" if k else "")
        body.line(f"{name} = tl.cast({patch.first[b.index,]}, tl.int64) + {at}")
        checks.append(f"({name} < {body.extent(b.hi - b.lo, b.index.upper())})")
    first = patch.first[patch.columns]
    body.line(f"{var['n']} = tl.cast({first}, tl.int64) + tl.arange(0, BLOCK_N){down}")
    out = next(nest for nest in body.kernel.nests if nest.name in body.kernel.stores)
    for coordinate, extent in body.kernel.ragged:
        at = body.coordinate(out.name, out.coords.index(coordinate), coordinate)
        checks.append(f"({at} < {body.size(extent)[0]})")
    m, n = (axis.name for axis in body.kernel.axes[1:3])
    body.axis_mask |= {m: " & ".join(checks), n: f"{var['n']} < {var['N']}"}
    inside = body.assign(var["inside"], f"{body.axis_mask[m]} & ({body.axis_mask[n]})")
    body.together = {frozenset({m, n}): inside}
