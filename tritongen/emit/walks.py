"""Kernels that walk their columns in blocks: loop, part, finish.

Input: a `Body` over a kernel with levels. Output: its `KernelView`, one `Loop` a level: what stands
before it, in it, behind it. Values over the tile live as long as one pass; values a row stay.
"""

from __future__ import annotations

from tritongen.emit import paired
from tritongen.emit.body import Body
from tritongen.emit.fold_lines import (
    NO_PLACE,
    arg_helper,
    end_text,
    found,
    place_of,
    start_text,
    term,
    term_mask,
)
from tritongen.emit.folds import FOLDS, combined
from tritongen.emit.masked import choose_fill
from tritongen.emit.text import launch_text, precedence_of, wrap
from tritongen.emit.tiles import (
    decoded,
    forget_tile,
    is_row_value,
    keep_spoken_sizes,
    needs,
    open_tile,
    tile_values,
    view,
    wide_tensors,
)
from tritongen.emit.view import KernelView, Loop
from tritongen.ir import nodes as ir
from tritongen.ir.bounds import takes_all
from tritongen.ir.functions import ATOM, SUM, TERM
from tritongen.schedule.canonical import free_indices, reads
from tritongen.schedule.classes.rows import fold_state
from tritongen.schedule.plan import Level


def loop(body: Body) -> KernelView:
    """Every level in turn, then the values over the whole tile."""
    var = open_walk(body)
    first, *levels = body.kernel.levels
    row_values(body, first, store=True)
    opening, body.lines = tuple(body.lines), []
    again = tiled_reads(body) if stores_tile(body) else ()
    body.evict = dict.fromkeys(again, "last")  # read once more behind the folds
    walks = [walk_level(body, level, var, final=True) for level in levels]
    body.evict = dict.fromkeys(again, "first")
    walks += walk_outputs(body, var)
    doc = f"ROWS rows a program, of any width, BLOCK elements at a time: {_passes(len(walks))} over each row."
    return view(body, var, ("ROWS", "BLOCK"), doc, lines=opening, loops=tuple(walks))


def tiled_reads(body: Body) -> tuple[str, ...]:
    """Tensors over rows and columns that folds read."""
    col = {d.index for d in body.kernel.axes[1].digits}
    row = {d.index for d in body.kernel.axes[0].digits}
    computed = {n.name for n in body.kernel.nests}
    found = {
        read.tensor: None
        for nest in body.kernel.nests
        for read in reads(nest.body)
        if read.tensor not in computed and free_indices(read) >= row and free_indices(read) & col
    }
    return tuple(found)


def stores_tile(body: Body) -> bool:
    """Whether a value over the whole tile is stored."""
    stored = (n for n in body.kernel.nests if n.name in body.kernel.stores)
    return any(not is_row_value(body, n) for n in stored)


def _passes(count: int) -> str:
    return {1: "one pass", 2: "two passes", 3: "three passes"}.get(count, f"{count} passes")


def part(body: Body) -> KernelView:
    """One level of one part of some rows; what the levels before it left is merged first."""
    number = int(body.kernel.role.split()[1])
    var = open_part(body)
    for level in body.kernel.levels[:number]:
        merge_level(body, level, var)
    merged, body.lines = tuple(body.lines), []
    level = body.kernel.levels[number]
    walk = walk_level(body, level, var, final=False)
    doc = f"Program (part, row): {', '.join(level.folds)} over one CHUNK of ROWS rows."
    merges = number > 1
    blocks = ("ROWS", "BLOCK", "PARTS", *(("LANES",) if merges else ()))
    flags = {"merges": merges}
    return view(body, var, blocks, doc, lines=merged, loops=(walk,), flags=flags)


def finish(body: Body) -> KernelView:
    """Merge all levels; row values are stored by the first part, tile values by all."""
    var = open_part(body)
    for level in body.kernel.levels:
        merge_level(body, level, var, store=True)
    merged, body.lines = tuple(body.lines), []
    walks = walk_outputs(body, var)
    doc = "Program (part, row): merge what the parts left, then write one CHUNK of ROWS rows."
    flags = {"merges": True}
    return view(
        body,
        var,
        ("ROWS", "BLOCK", "PARTS", "LANES"),
        doc,
        lines=merged,
        loops=tuple(walks),
        flags=flags,
    )


def merge(body: Body) -> KernelView:
    """Merge all levels where only row values are wanted."""
    var = open_tile(body) | {"parts": body.names.free("parts"), "height": "MERGE"}
    for level in body.kernel.levels:
        merge_level(body, level, var, store=True)
    lines = tuple(body.lines)
    keep_spoken_sizes(body, (*lines, var["row_mask"]))
    doc = "What the parts of MERGE rows left, merged."
    return view(body, var, ("MERGE", "PARTS"), doc, lines=lines)


def open_part(body: Body) -> dict[str, str]:
    """Names for a program that walks one CHUNK of some rows."""
    var = open_walk(body)
    turns, var = var["until"], var | part_names(body)
    cast = "" if var["col_outer"] else ".to(tl.int64)"
    var |= {"first": f"{var['part']} * CHUNK", "until": var["stop"], "turns": turns}
    return var | {"part_cast": cast, "tile": "tl.program_id(1)"}


def open_walk(body: Body) -> dict[str, str]:
    """Names for a loop over columns; those that are taken apart are counted in 32 bits where these are enough."""
    var, col = open_tile(body), body.kernel.axes[1]
    lanes = "tl.arange(0, BLOCK)[None, :]"
    if col.tail or not decoded(body, col):
        return var | {"walked": f"{var['start']} + {lanes}.to(tl.int64)"}
    body.short.add(col.name)
    return var | {"walked": f"({var['start']} + {lanes}).to({place_dtype(body)})"}


def part_names(body: Body) -> dict[str, str]:
    body.args.sizes["CHUNK"] = 'config["CHUNK"]'
    names = {name: body.names.free(name) for name in ("part", "parts", "stop")}
    return names if body.kernel.axes[1].tail else names | {"end": names["stop"]}


def enter_loop(body: Body) -> tuple[dict, list[str], set[str]]:
    """A loop over the columns: what is loaded or decoded in it is forgotten behind it."""
    col = body.kernel.axes[1]
    saved = dict(body.cache), body.lines, set(body.assigned)
    body.lines = []
    body.looping = frozenset(part.name for part in (col.outer, col.run))
    return saved


def leave_loop(body: Body, saved) -> tuple[str, ...]:
    lines = tuple(body.lines)
    body.cache, body.lines, body.assigned = saved
    body.looping = frozenset()
    col = body.kernel.axes[1]
    for axis in (col.outer, col.run):
        for digit in axis.digits:
            if body.index.get(digit.index) != body.axis_var[axis.name]:  # decoded in the loop
                body.index.pop(digit.index, None)
    return lines


def single_folds(level: Level) -> tuple[str, ...]:
    """The folds of a level that belong to no pair."""
    paired_ = {name for pair in level.pairs for name in (pair.first, pair.second)}
    return tuple(name for name in level.folds if name not in paired_)


def walk_level(body: Body, level: Level, var: dict[str, str], final: bool) -> Loop:
    """One pass: accumulate every fold of the level over the columns."""
    nests = {n.name: n for n in body.kernel.nests}
    # What only the outer digits move is the same for all lanes of a block, masked ones too.
    run = body.kernel.axes[1].run
    body.fill, served = choose_fill(body.kernel.nests, wide_tensors(body, run), run)
    outer, body.lines = body.lines, []
    before: list[str] = []
    states: list[tuple[str, ...]] = []
    for pair in level.pairs:
        names, lines = paired.start(body, pair)
        states.append(names)
        before += lines
    accumulators: dict[str, tuple[str, ...]] = {}
    for name in single_folds(level):
        accumulators[name], lines = start_fold(body, nests[name])
        before += lines
    saved = enter_loop(body)
    for pair, names in zip(level.pairs, states, strict=True):
        paired.take(body, pair, names, var, pair.first in served)
    for name in single_folds(level):
        accumulate(body, nests[name], accumulators[name], var, name in served)
    turn = leave_loop(body, saved)
    forget_tile(body)
    for pair, names in zip(level.pairs, states, strict=True):
        if final:
            paired.end(body, pair, names, var)
        else:
            store_parts(body, paired.state_of(pair), names, var)
    for name in single_folds(level):
        close_fold(body, nests[name], accumulators[name], final, var)
    if final:
        row_values(body, level, store=True)
    after, body.lines = tuple(body.lines), outer
    return Loop(tuple(before), turn, after)


def start_fold(body: Body, nest: ir.Nest) -> tuple[tuple[str, ...], list[str]]:
    """The accumulators of a fold, one a lane, and the lines that start them."""
    shape = "(ROWS, BLOCK)"
    dtype = body.dtype(nest.fold.body.dtype)
    start = start_text(body, nest, nest.fold.body.dtype)
    if nest.fold.op.startswith("arg"):
        best, at = body.fresh(f"{nest.name}_best"), body.fresh(f"{nest.name}_at")
        return (best, at), [
            f"{best} = tl.full({shape}, {start}, {dtype})",
            f"{at} = tl.full({shape}, {-1 if takes_all(nest.fold, body.context.facts) else NO_PLACE}, {place_dtype(body)})",
        ]
    acc = body.fresh(f"{nest.name}_acc")
    return (acc,), [f"{acc} = tl.full({shape}, {start}, {dtype})"]


def accumulate(body: Body, nest: ir.Nest, names: tuple[str, ...], var, served: bool) -> None:
    tile_values(body, needs(body, nest.fold.body) - set(body.values))
    if nest.fold.op.startswith("arg"):
        best, at = names
        value = term(body, nest, var, served)[0]
        place, which = place_of(body, nest), "next"
        if not takes_all(nest.fold, body.context.facts):
            place, which = f"tl.where({term_mask(body, nest)}, {place}, {NO_PLACE})", "first"
        place = f"{wrap((place, precedence_of(place)), ATOM)}.to({place_dtype(body)})"
        body.line(f"{best}, {at} = {arg_helper(nest, which)}({best}, {at}, {value}, {place})")
        forget_tile(body)
        return
    kind = ir.kind_of(nest.fold.body.dtype, body.op)
    fold = FOLDS[nest.fold.op]
    body.line(combined(fold.combine[kind], names[0], term(body, nest, var, served)))


def close_fold(body: Body, nest: ir.Nest, names: tuple[str, ...], final: bool, var) -> None:
    """The accumulator of a fold to one value a row: kept, or left in scratch for the next kernel."""
    forget_tile(body)
    if nest.fold.op.startswith("arg"):
        best, at = names
        out = f"tl.reduce(({best}, {at}), 1, {arg_helper(nest)}, keep_dims=True)"
        place = nest.name if final else at
        body.line(f"{best}, {place} = {out}")
        first = found(body, nest, place) if final else place
        if takes_all(nest.fold, body.context.facts):
            # Where nothing was larger than what an empty lane holds, all are equal.
            first = f"tl.where({place} < 0, {first_place(var, final)}, {place})"
        body.line(f"{place} = {first}.to(tl.int64)")
        if final:
            body.values[nest.name] = (nest.name, ATOM)
        else:
            store_parts(body, state_names(nest), (best, at), var)
        return
    out = end_text(body, nest, names[0])
    if final:
        body.values[nest.name] = (body.assign(nest.name, out), ATOM)
    else:
        store_parts(body, state_names(nest), (out,), var)


def first_place(var: dict[str, str], final: bool) -> str:
    """The number of the first term that a walk meets."""
    if final:
        return "0"
    first = var["first"]
    if not var["col_outer"]:
        return first
    blocks = var["col_blocks"]
    return f"{first} // {blocks} * {var['cols']} + {first} % {blocks} * BLOCK"


def place_dtype(body: Body) -> str:
    """What the terms of a row are numbered in: 32 bits where they are enough."""
    cols = wrap((launch_text(body.kernel.axes[1].extent), SUM), TERM)
    passed = f"tl.int32 if {cols} < 2**31 else tl.int64"
    return body.parameter(body.args.constants, "PLACE", passed)


def state_names(nest: ir.Nest) -> tuple[str, ...]:
    return tuple(name for name, _ in fold_state(nest))


def store_parts(body: Body, names: tuple[str, ...], values: tuple[str, ...], var) -> None:
    row = row_number(body, var)
    for name, value in zip(names, values, strict=True):
        at = f"{body.pointer(name)} + {row} * {var['count']} + {var['part']}"
        body.line(f"tl.store({at}, {value}, mask={body.axis_mask['row']})")


def merge_level(body: Body, level: Level, var: dict[str, str], store: bool = False) -> None:
    """What the parts of a level left, merged: one value a row."""
    nests = {n.name: n for n in body.kernel.nests}
    for pair in level.pairs:
        loaded = [load_parts(body, name, start, var) for name, start in paired.states(pair)]
        paired.end(body, pair, paired.merge(body, pair, loaded), var)
    for name in single_folds(level):
        nest = nests[name]
        starts = [start_text(body, nest, nest.fold.body.dtype), NO_PLACE]
        loaded = [
            load_parts(body, state, s, var)
            for state, s in zip(state_names(nest), starts, strict=False)
        ]
        if nest.fold.op.startswith("arg"):
            best = body.fresh(f"{name}_best")
            out = f"tl.reduce(({loaded[0]}, {loaded[1]}), 1, {arg_helper(nest)}, keep_dims=True)"
            body.line(f"{best}, {name} = {out}")
            if not takes_all(nest.fold, body.context.facts):
                body.line(f"{name} = {found(body, nest, name)}")
            body.values[name] = (name, ATOM)
        else:
            body.values[name] = (body.assign(name, end_text(body, nest, loaded[0])), ATOM)
    row_values(body, level, store, first_part=var.get("part", "") if store else "")


def row_number(body: Body, var: dict[str, str]) -> str:
    """The number of a row among all."""
    axis = body.kernel.axes[0]
    return body.run_text(tuple(d.index for d in axis.digits)) if axis.tail else var["row"]


def load_parts(body: Body, state: str, start: str, var: dict[str, str]) -> str:
    """What all parts of the rows left of one variable."""
    at = f"{body.pointer(state)} + {row_number(body, var)} * {var['count']} + {var['parts']}"
    mask = f"({body.axis_mask['row']}) & ({var['parts']} < {var['count']})"
    return body.assign(body.fresh(f"{state}s"), f"tl.load({at}, mask={mask}, other={start})")


def row_values(body: Body, level: Level, store: bool = False, first_part: str = "") -> None:
    """Values a row that follow from the level's folds, and the stores of both."""
    nests = {n.name: n for n in body.kernel.nests}
    for name in level.lines:
        if name not in body.values:
            body.value(nests[name])
    if store:
        for name in (*level.folds, *level.lines):
            if name in body.kernel.stores:
                checks = [f"{first_part} == 0"] if first_part else []
                body.store(nests[name], body.values[name][0], checks)


def walk_outputs(body: Body, var: dict[str, str]) -> list[Loop]:
    """The last pass: values over the whole tile that are stored."""
    row = {d.index for d in body.kernel.axes[0].digits}
    wide = [
        n
        for n in body.kernel.nests
        if n.name in body.kernel.stores and {b.index for b in n.box} != row
    ]
    if not wide:
        return []
    saved = enter_loop(body)
    body.fill = {}
    for nest in wide:
        tile_values(body, needs(body, nest.body) - set(body.values))
        if nest.name not in body.values:
            body.value(nest)
        body.store(nest, body.values[nest.name][0])
    lines = leave_loop(body, saved)
    forget_tile(body)
    return [Loop((), lines, ())]
