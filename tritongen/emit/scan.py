"""Scans: one walk along the scanned axis, block by block; what came before a block is in a carry.

Input: a `Body` over a `KernelPlan` of the skeletons scan, scan_part, scan_finish. Output: its
`KernelView`. A row that fits one block takes one step of the same loop. Few long rows are cut into
parts: `scan_part` leaves the total of each, `scan_finish` starts from the totals of those before it.

The state of a scan is a value, for argmax and argmin a value and its place: a tuple of names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import (
    end_text,
    found,
    place_of,
    start_text,
    term,
)
from tritongen.emit.folds import BEHIND, MONOIDS, NO_PLACE, SCANS, combined
from tritongen.emit.masked import choose_fill
from tritongen.emit.row_folds import loaded_parts, stored_parts
from tritongen.emit.row_views import Fold, Tile, Variable, Walk
from tritongen.emit.tiles import in_blocks, name_axis, open_tile, tile_view, wide_tensors
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import same, tensors_read
from tritongen.schedule.classes.rows import fold_state
from tritongen.schedule.members import is_reducer

State = tuple[str, ...]
PARTS = ("ROWS", "BLOCK", "PARTS", "STAGES")


# ---- kernels -------------------------------------------------------------------------------------
def scan(body: Body) -> KernelView:
    """Whole rows, a carry from block to block."""
    tile = open_scan(body)
    values_a_row(body)
    starts = {n.name: declared(body, n, "carry", "(ROWS, 1)") for n in scans(body)}
    carries = {name: tuple(v.name for v in start) for name, start in starts.items()}
    folds = tuple(Fold(start) for start in starts.values())
    walks = (Walk(folds, walk(body, carries)),)
    doc = "ROWS rows a program, BLOCK elements at a time; what came before a block is in the carry."
    return scan_view(body, tile, ("ROWS", "BLOCK", "STAGES"), doc, walks=walks)


def scan_part(body: Body) -> KernelView:
    """The total of one part of some rows."""
    tile = open_scan(body)
    values_a_row(body)
    starts = {n.name: declared(body, n, "acc", "(ROWS, BLOCK)") for n in scans(body)}
    comments = {n.name: body.comment(n.name) for n in scans(body)}
    totals = {name: tuple(v.name for v in start) for name, start in starts.items()}
    run = body.kernel.axes[1].run
    body.fill, served = choose_fill(body.kernel.nests, wide_tensors(body, run), run)
    needed = needed_by_scans(body)
    masks: dict = {}
    with in_blocks(body) as lines:
        for nest in body.kernel.nests:
            if is_reducer(nest):
                taken = term_of(body, nest, nest.name in served, masks)
                merge(body, nest, totals[nest.name], taken)
            elif nest.name in needed and nest.name not in body.values:
                body.value(nest)
    folds = []
    for nest in scans(body):
        with body.apart() as finish:
            values = total_of(body, nest, totals[nest.name])
        parts = stored_parts(body, states(nest), values)
        said = comments[nest.name]
        folds.append(Fold(starts[nest.name], finish=tuple(finish), parts=parts, comment=said))
    doc = f"Program (part, rows): the total of one CHUNK of {', '.join(totals)}."
    walks = (Walk(tuple(folds), tuple(lines)),)
    return scan_view(body, tile, PARTS, doc, walks=walks)


def scan_finish(body: Body) -> KernelView:
    """One part of some rows, from the totals of the parts before it."""
    tile = open_scan(body)
    values_a_row(body)
    folds, carries = [], {}
    for nest in scans(body):
        identities = tuple(start for start, _ in identity(body, nest))
        parts = loaded_parts(body, states(nest), identities)
        with body.apart() as finish:
            total = total_of(body, nest, tuple(part.loaded for part in parts))
            if not is_arg(nest):
                total = (body.assign(body.fresh(state_names(body, nest, "carry")[0]), total[0]),)
        carries[nest.name] = total
        folds.append(Fold(finish=tuple(finish), parts=parts))
    walks = (Walk(lines=walk(body, carries)),)
    doc = "Program (part, rows): one CHUNK, from the totals of the parts before it."
    return scan_view(body, tile, PARTS, doc, merged=(Walk(tuple(folds)),), walks=walks)


# ---- what they share -----------------------------------------------------------------------------
def scans(body: Body) -> tuple[ir.Nest, ...]:
    return tuple(n for n in body.kernel.nests if is_reducer(n))


def open_scan(body: Body) -> Tile:
    """The axes, a third one among them where other dims stand between rows."""
    tile = open_tile(body)
    if len(body.kernel.axes) > 2:
        name_axis(body, body.kernel.axes[2], "outer")
        tile = replace(tile, outer=True)
    if body.kernel.skeleton != "scan":
        body.args.sizes["CHUNK"] = 'config["CHUNK"]'
    return tile


def scan_view(
    body: Body, tile: Tile, blocks: tuple[str, ...], doc: str, **fields: tuple[Walk, ...]
) -> KernelView:
    """A scan from the end goes down from its last block; what a part adds up may come in any order."""
    reverse = body.kernel.reverse and body.kernel.skeleton != "scan_part"
    number = f"(outer * {tile.rows} + row)" if tile.outer else "row"
    blocks = (*blocks, "RUN") if reverse else blocks
    flags = {"reverse": reverse}
    return tile_view(body, tile, blocks, doc, number=number, flags=flags, **fields)


def values_a_row(body: Body) -> None:
    """Values that do not change along the walk, in front of it."""
    col = body.kernel.axes[1].digits[0].index
    for nest in body.kernel.nests:
        if not is_reducer(nest) and col not in {b.index for b in nest.box}:
            body.value(nest)


def walk(body: Body, carries: dict[str, State]) -> tuple[str, ...]:
    """One block: every value over the tile, the stores, and the carries for the next block."""
    run = body.kernel.axes[1].run
    body.fill, served = choose_fill(body.kernel.nests, wide_tensors(body, run), run)
    totals = []
    masks: dict[str, tuple[str, dict[tuple[Any, ...], str]]] = {}  # name, what is loaded under it
    with in_blocks(body) as lines:
        for nest in body.kernel.nests:
            if is_reducer(nest):
                taken = term_of(body, nest, nest.name in served, masks)
                prefix(body, nest, carries[nest.name], taken)
                totals.append((nest, taken))
            elif nest.name not in body.values:
                body.value(nest)
            if nest.name in body.kernel.stores:
                body.store(nest, body.values[nest.name][0])
        for nest, taken in totals:
            merge(body, nest, carries[nest.name], total_of(body, nest, taken))
    return tuple(lines)


def needed_by_scans(body: Body) -> set[str]:
    nests = {n.name: n for n in body.kernel.nests}
    found: set[str] = set()

    def visit(expr: ir.Expr) -> None:
        for name in tensors_read(expr) & nests.keys() - found:
            found.add(name)
            visit(nests[name].body)

    for nest in scans(body):
        visit(nest.body)
    return found


# ---- one scan ------------------------------------------------------------------------------------
def is_arg(nest: ir.Nest) -> bool:
    return nest.fold.is_place


def states(nest: ir.Nest) -> State:
    """What they are called in scratch."""
    return tuple(name for name, _ in fold_state(nest))


def identity(body: Body, nest: ir.Nest) -> list[tuple[str, str]]:
    """(identity, dtype) of each part of the state."""
    dtype = nest.fold.body.dtype
    value = (start_text(body, nest, dtype), body.dtype(dtype))
    return [value, (NO_PLACE, "tl.int64")] if is_arg(nest) else [value]


def state_names(body: Body, nest: ir.Nest, what: str) -> State:
    name = what if len(scans(body)) == 1 else f"{nest.name}_{what}"
    return (name, f"{name}_at") if is_arg(nest) else (name,)


def declared(body: Body, nest: ir.Nest, what: str, shape: str) -> tuple[Variable, ...]:
    names = tuple(body.fresh(name) for name in state_names(body, nest, what))
    state = zip(names, identity(body, nest), strict=True)
    return tuple(Variable(name, shape, start, dtype) for name, (start, dtype) in state)


def term_of(body: Body, nest: ir.Nest, served: bool, masks: dict) -> State:
    """The terms of one block, the identity where there is none."""
    tile = {n.name for n in body.kernel.nests}
    with within_range(body, nest, masks) as mask, body.computing(nest.name):
        served = served and (mask == "inside" or not tensors_read(nest.fold.body) & tile)
        value = term(body, nest, served and not is_arg(nest))[0]
        if not value.isidentifier():
            value = body.assign(body.fresh(f"{nest.name}_term"), value)
        if not is_arg(nest):
            return (value,)
        mask = body.mask(frozenset(a.name for a in body.kernel.axes))
        place = f"tl.where({mask}, {place_of(body, nest)}, {NO_PLACE})"
        return value, body.assign(body.fresh("place"), place)


@contextmanager
def within_range(body: Body, nest: ir.Nest, masks: dict) -> Iterator[str]:
    """Where the terms do not fill the walked axis (`k < d` has none at 0), masks say so.

    `masks`: range -> (its name, what was loaded under it).
    """
    checks = range_checks(body, nest)
    if not checks:
        yield "inside"
        return
    text = " & ".join(f"({check})" for check in checks)
    if text not in masks:
        masks[text] = body.assign(body.fresh("taken"), f"inside & {text}"), {}
    name, loaded = masks[text]
    saved = body.together, body.axis_mask, body.cache
    body.together = dict.fromkeys(body.together, name)
    body.axis_mask = body.axis_mask | {"col": f"({body.axis_mask['col']}) & {text}"}
    body.cache = saved[2] | loaded
    yield name
    loaded |= {k: v for k, v in body.cache.items() if k not in saved[2]}
    body.together, body.axis_mask, body.cache = saved


def range_checks(body: Body, nest: ir.Nest) -> list[str]:
    (b,) = nest.fold.binders
    (along,) = body.kernel.axes[1].digits
    checks = [f"col >= {body.size(b.lo)[0]}"] if b.lo.terms else []
    if not same(body.context.facts, b.hi, along.hi):
        checks.append(f"col < {body.size(b.hi)[0]}")
    return checks


def prefix(body: Body, nest: ir.Nest, carry: State, taken: State) -> None:
    """The value of the scan at each element of the block."""
    body.say(nest.name)
    if is_arg(nest):
        best, at, helper = body.fresh("best"), body.fresh("at"), MONOIDS[nest.fold.op].first
        body.line(f"{best}, {at} = tl.associative_scan(({', '.join(taken)}), 1, {helper})")
        body.line(f"{best}, {nest.name} = {helper}({', '.join((*carry, best, at))})")
        if nest.fold.guards or range_checks(body, nest):
            body.line(f"{nest.name} = {found(body, nest, nest.name)}")
    else:
        kind = ir.kind_of(nest.fold.body.dtype, body.op)
        fold = MONOIDS[nest.fold.op]
        scanned = (behind if body.kernel.reverse else prefixes)(body, nest, kind, taken[0])
        body.assign(nest.name, fold.combine[kind].format(a=carry[0], b=scanned))
    body.values[nest.name] = (nest.name, ATOM)


def prefixes(body: Body, nest: ir.Nest, kind: str, x: str) -> str:
    """The scan of a block alone."""
    scanned = SCANS[nest.fold.op][kind].format(t=x)
    return f"({scanned})" if kind == "bool" else scanned


def behind(body: Body, nest: ir.Nest, kind: str, x: str) -> str:
    """The same from the end, of a block whose runs stand the last one first."""
    fold, helper = MONOIDS[nest.fold.op], BEHIND[nest.fold.op][kind]
    if kind == "bool":
        start = int(nest.fold.op in ("all", "min"))
        rest = f"({helper}({x}.to(tl.int32), {start}, RUN) != 0)"
    else:
        rest = f"{helper}({x}, {start_text(body, nest, nest.fold.body.dtype)}, RUN)"
    both = fold.combine[kind].format(a=x, b=rest)
    return f"({both})" if both.startswith(f"{x} ") else both


def merge(body: Body, nest: ir.Nest, state: State, other: State) -> None:
    """state = state combined with other."""
    if is_arg(nest):
        pair = ", ".join(state)
        body.line(f"{pair} = {MONOIDS[nest.fold.op].first}({pair}, {', '.join(other)})")
        return
    kind = ir.kind_of(nest.fold.body.dtype, body.op)
    fold = MONOIDS[nest.fold.op]
    loose = 1 if other[0].endswith("!= 0") else ATOM
    body.line(combined(fold.combine[kind], state[0], (other[0], loose)))


def total_of(body: Body, nest: ir.Nest, tile: State) -> State:
    """What a tile combines to along the walk."""
    helper = {"max": "lib.larger", "min": "lib.smaller"}.get(nest.fold.op)
    if helper and ir.kind_of(nest.fold.body.dtype, body.op) == "int":
        # tl.max would widen a narrow int, and the carry with it.
        return (f"tl.reduce({tile[0]}, 1, {helper}, keep_dims=True)",)
    if not is_arg(nest):
        return (end_text(body, nest, tile[0]),)
    best, at = body.fresh(f"{nest.name}_best"), body.fresh(f"{nest.name}_at")
    body.line(f"{best}, {at} = {end_text(body, nest, ', '.join(tile))}")
    return best, at
