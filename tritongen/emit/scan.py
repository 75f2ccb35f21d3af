"""Scans: one loop along the scanned axis, block by block. A carry holds the result of earlier blocks.

Input: a `KernelWriter` over a `KernelPlan` of the skeletons scan, scan_part, scan_finish. Output: its `KernelView`. A row
that fits in one block takes one step of the same loop. Few long rows are cut into parts: `scan_part` stores the total of
each part, and `scan_finish` starts from the totals of the earlier parts.

The state of a scan is a value, or for argmax and argmin a value and its index: a tuple of names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tritongen.emit.fold_lines import end_text, found, place_of, start_text, term, term_mask
from tritongen.emit.folds import NO_PLACE, combined
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.row_folds import loaded_parts, stored_parts
from tritongen.emit.row_views import Fold, Tile, Variable, Walk
from tritongen.emit.tiles import fill_lanes, in_blocks, name_axis, open_tile, tile_view
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.free import leads_to, tensors_read
from tritongen.ir.functions import ATOM
from tritongen.ir.reducers import REDUCERS
from tritongen.schedule.canonical import same
from tritongen.schedule.classes.rows import fold_state
from tritongen.schedule.members import is_reducer

State = tuple[str, ...]
PARTS = ("ROWS", "BLOCK", "PARTS", "STAGES")


# ---- kernels -------------------------------------------------------------------------------------
def scan(writer: KernelWriter) -> KernelView:
    """Whole rows, a carry from block to block."""
    tile = open_scan(writer)
    starts = {n.name: declared(writer, n, "carry", "(ROWS, 1)") for n in scans(writer)}
    carries = {name: tuple(v.name for v in start) for name, start in starts.items()}
    folds = tuple(Fold(start) for start in starts.values())
    walks = (Walk(folds, walk(writer, carries)),)
    doc = "Each program scans ROWS rows, BLOCK elements at a time, and carries the result of earlier ones."
    return scan_view(writer, tile, ("ROWS", "BLOCK", "STAGES"), doc, walks=walks)


def scan_part(writer: KernelWriter) -> KernelView:
    """The total of one part of some rows."""
    tile = open_scan(writer)
    starts = {n.name: declared(writer, n, "acc", "(ROWS, BLOCK)") for n in scans(writer)}
    comments = {n.name: writer.comment(n.name) for n in scans(writer)}
    totals = {name: tuple(v.name for v in start) for name, start in starts.items()}
    mask_redundant = fill_lanes(writer, writer.kernel.axes[1].run)
    needed = set().union(*(leads_to(n.body, writer.kernel.nests) for n in scans(writer)))
    masks: dict = {}
    with in_blocks(writer) as lines:
        for nest in writer.kernel.nests:
            if is_reducer(nest):
                taken = term_of(writer, nest, nest.name in mask_redundant, masks)
                merge(writer, nest, totals[nest.name], taken)
            elif nest.name in needed and nest.name not in writer.values:
                writer.value(nest)
    folds = []
    for nest in scans(writer):
        with writer.apart() as finish:
            values = total_of(writer, nest, totals[nest.name])
        parts = stored_parts(writer, states(nest), values)
        said = comments[nest.name]
        folds.append(Fold(starts[nest.name], finish=tuple(finish), parts=parts, comment=said))
    doc = f"Program (part, rows) computes the total of one CHUNK of {', '.join(totals)}."
    walks = (Walk(tuple(folds), tuple(lines)),)
    return scan_view(writer, tile, PARTS, doc, walks=walks)


def scan_finish(writer: KernelWriter) -> KernelView:
    """One part of some rows, from the totals of the parts before it."""
    tile = open_scan(writer)
    folds, carries = [], {}
    for nest in scans(writer):
        identities = tuple(start for start, _ in identity(writer, nest))
        parts = loaded_parts(writer, states(nest), identities)
        with writer.apart() as finish:
            total = total_of(writer, nest, tuple(part.loaded for part in parts))
            if not nest.fold.is_place:
                carry = writer.fresh(state_names(writer, nest, "carry")[0])
                total = (writer.assign(carry, total[0]),)
        carries[nest.name] = total
        folds.append(Fold(finish=tuple(finish), parts=parts))
    walks = (Walk(lines=walk(writer, carries)),)
    doc = "Program (part, rows) scans one CHUNK. It starts from the totals of the earlier parts."
    return scan_view(writer, tile, PARTS, doc, merged=(Walk(tuple(folds)),), walks=walks)


# ---- what they share -----------------------------------------------------------------------------
def scans(writer: KernelWriter) -> tuple[ir.Nest, ...]:
    return tuple(n for n in writer.kernel.nests if is_reducer(n))


def open_scan(writer: KernelWriter) -> Tile:
    """The axes, a third one where other dims stand between rows, and values that do not change along the scan."""
    tile = open_tile(writer)
    if len(writer.kernel.axes) > 2:
        name_axis(writer, writer.kernel.axes[2], "outer")
        tile = replace(tile, outer=True)
    if writer.kernel.skeleton != "scan":
        writer.args.sizes["CHUNK"] = 'config["CHUNK"]'
    col = writer.kernel.axes[1].digits[0].index
    for nest in writer.kernel.nests:
        if not is_reducer(nest) and col not in nest.over:
            writer.value(nest)
    return tile


def scan_view(
    writer: KernelWriter, tile: Tile, blocks: tuple[str, ...], doc: str, **fields: tuple[Walk, ...]
) -> KernelView:
    """A scan from the end goes down from its last block; what a part adds up may come in any order."""
    skeleton = writer.kernel.skeleton
    reverse = writer.kernel.reverse and skeleton != "scan_part"
    number = f"(outer * {tile.rows} + row)" if tile.outer else "row"
    blocks = (*blocks, "RUN") if reverse else blocks
    flags = {"reverse": reverse, "in_parts": skeleton != "scan"}
    return tile_view(writer, tile, blocks, doc, number=number, flags=flags, **fields)


def walk(writer: KernelWriter, carries: dict[str, State]) -> tuple[str, ...]:
    """One block: every value over the tile, the stores, and the carries for the next block."""
    mask_redundant = fill_lanes(writer, writer.kernel.axes[1].run)
    totals = []
    masks: dict[str, tuple[str, dict[tuple[Any, ...], str]]] = {}  # name, what is loaded under it
    with in_blocks(writer) as lines:
        for nest in writer.kernel.nests:
            if is_reducer(nest):
                taken = term_of(writer, nest, nest.name in mask_redundant, masks)
                prefix(writer, nest, carries[nest.name], taken)
                totals.append((nest, taken))
            elif nest.name not in writer.values:
                writer.value(nest)
            if nest.name in writer.kernel.stores:
                writer.store(nest, writer.values[nest.name][0])
        for nest, taken in totals:
            merge(writer, nest, carries[nest.name], total_of(writer, nest, taken))
    return tuple(lines)


# ---- one scan ------------------------------------------------------------------------------------
def states(nest: ir.Nest) -> State:
    """The names of the states in scratch memory."""
    return tuple(name for name, _ in fold_state(nest))


def identity(writer: KernelWriter, nest: ir.Nest) -> list[tuple[str, str]]:
    """(identity, dtype) of each part of the state."""
    dtype = nest.fold.body.dtype
    value = (start_text(writer, nest, dtype), writer.dtype(dtype))
    return [value, (NO_PLACE, "tl.int64")] if nest.fold.is_place else [value]


def state_names(writer: KernelWriter, nest: ir.Nest, what: str) -> State:
    name = what if len(scans(writer)) == 1 else f"{nest.name}_{what}"
    return (name, f"{name}_at") if nest.fold.is_place else (name,)


def declared(writer: KernelWriter, nest: ir.Nest, what: str, shape: str) -> tuple[Variable, ...]:
    names = tuple(writer.fresh(name) for name in state_names(writer, nest, what))
    state = zip(names, identity(writer, nest), strict=True)
    return tuple(Variable(name, shape, start, dtype) for name, (start, dtype) in state)


def term_of(writer: KernelWriter, nest: ir.Nest, mask_redundant: bool, masks: dict) -> State:
    """The terms of one block, the identity where there is none."""
    tile = {n.name for n in writer.kernel.nests}
    with within_range(writer, nest, masks) as mask, writer.computing(nest.name):
        mask_redundant = mask_redundant and (
            mask == "inside" or not tensors_read(nest.fold.body) & tile
        )
        value = term(writer, nest, mask_redundant and not nest.fold.is_place)[0]
        if not value.isidentifier():
            value = writer.assign(writer.fresh(f"{nest.name}_term"), value)
        if not nest.fold.is_place:
            return (value,)
        place = f"tl.where({term_mask(writer, nest)}, {place_of(writer, nest)}, {NO_PLACE})"
        return value, writer.assign(writer.fresh("place"), place)


@contextmanager
def within_range(writer: KernelWriter, nest: ir.Nest, masks: dict) -> Iterator[str]:
    """Masks, if the terms do not fill the scanned axis (`k < d` has none at 0).

    `masks`: range -> (its name, what was loaded under it).
    """
    checks = range_checks(writer, nest)
    if not checks:
        yield "inside"
        return
    text = " & ".join(f"({check})" for check in checks)
    if text not in masks:
        masks[text] = writer.assign(writer.fresh("taken"), f"inside & {text}"), {}
    name, loaded = masks[text]
    saved = writer.together, writer.axis_mask, writer.cache
    writer.together = dict.fromkeys(writer.together, name)
    writer.axis_mask = writer.axis_mask | {"col": f"({writer.axis_mask['col']}) & {text}"}
    writer.cache = saved[2] | loaded
    yield name
    loaded |= {k: v for k, v in writer.cache.items() if k not in saved[2]}
    writer.together, writer.axis_mask, writer.cache = saved


def range_checks(writer: KernelWriter, nest: ir.Nest) -> list[str]:
    (b,) = nest.fold.binders
    (along,) = writer.kernel.axes[1].digits
    checks = [f"col >= {writer.size(b.lo)[0]}"] if b.lo.terms else []
    if not same(writer.context.facts, b.hi, along.hi):
        checks.append(f"col < {writer.size(b.hi)[0]}")
    return checks


def prefix(writer: KernelWriter, nest: ir.Nest, carry: State, taken: State) -> None:
    """The value of the scan at each element of the block."""
    writer.say(nest.name)
    if nest.fold.is_place:
        best, at, helper = writer.fresh("best"), writer.fresh("at"), REDUCERS[nest.fold.op].first
        writer.line(f"{best}, {at} = tl.associative_scan(({', '.join(taken)}), 1, {helper})")
        writer.line(f"{best}, {nest.name} = {helper}({', '.join((*carry, best, at))})")
        if nest.fold.guards or range_checks(writer, nest):
            writer.line(f"{nest.name} = {found(writer, nest, nest.name)}")
    else:
        kind = ir.kind_of(nest.fold.body.dtype, writer.op)
        fold = REDUCERS[nest.fold.op]
        scanned = (behind if writer.kernel.reverse else prefixes)(writer, nest, kind, taken[0])
        writer.assign(nest.name, fold.combine[kind].format(a=carry[0], b=scanned))
    writer.values[nest.name] = (nest.name, ATOM)


def prefixes(writer: KernelWriter, nest: ir.Nest, kind: str, x: str) -> str:
    """The scan of a block alone."""
    scanned = REDUCERS[nest.fold.op].scan[kind].format(t=x)
    return f"({scanned})" if kind == "bool" else scanned


def behind(writer: KernelWriter, nest: ir.Nest, kind: str, x: str) -> str:
    """The same from the end, of a block whose runs stand the last one first."""
    fold = REDUCERS[nest.fold.op]
    helper = fold.behind[kind]
    if kind == "bool":
        start = int(fold.identity > 0)
        rest = f"({helper}({x}.to(tl.int32), {start}, RUN) != 0)"
    else:
        rest = f"{helper}({x}, {start_text(writer, nest, nest.fold.body.dtype)}, RUN)"
    both = fold.combine[kind].format(a=x, b=rest)
    return f"({both})" if both.startswith(f"{x} ") else both


def merge(writer: KernelWriter, nest: ir.Nest, state: State, other: State) -> None:
    """state = state combined with other."""
    if nest.fold.is_place:
        pair = ", ".join(state)
        writer.line(f"{pair} = {REDUCERS[nest.fold.op].first}({pair}, {', '.join(other)})")
        return
    kind = ir.kind_of(nest.fold.body.dtype, writer.op)
    fold = REDUCERS[nest.fold.op]
    loose = 1 if other[0].endswith("!= 0") else ATOM
    writer.line(combined(fold.combine[kind], state[0], (other[0], loose)))


def total_of(writer: KernelWriter, nest: ir.Nest, tile: State) -> State:
    """The total of a tile along the scan."""
    helper = REDUCERS[nest.fold.op].narrow
    if helper and ir.kind_of(nest.fold.body.dtype, writer.op) == "int":
        # tl.max would widen a narrow int, and the carry with it.
        return (f"tl.reduce({tile[0]}, 1, {helper}, keep_dims=True)",)
    if not nest.fold.is_place:
        return (end_text(writer, nest, tile[0]),)
    best, at = writer.fresh(f"{nest.name}_best"), writer.fresh(f"{nest.name}_at")
    writer.line(f"{best}, {at} = {end_text(writer, nest, ', '.join(tile))}")
    return best, at
