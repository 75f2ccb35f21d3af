"""A contraction by tensor descriptors: a fixed number of programs, each with one tile after another.

Input: a `KernelPlan` of the skeleton `persistent`, whose `tiles` say how each factor's operand lies
in memory. Output: its `KernelView`: the host describes the operands (`setup`), the loop loads their
tiles by coordinates, zeros outside the tensor, and the epilogue is that of any contraction. As a
part (`role`), it sums one CHUNK of k, and `combine_view` prints the kernel that adds the parts up.
"""

from __future__ import annotations

from collections.abc import Iterator

from tritongen.emit.body import Body
from tritongen.emit.bounded import FREE
from tritongen.emit.contraction import (
    accumulators,
    axis_names,
    follow,
    part_address,
    products,
    storage_dtype,
    store_parts,
    widen,
)
from tritongen.emit.matrices import SIDES, matrix_order, matrix_text
from tritongen.emit.text import mentions
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView, Loop
from tritongen.ir import nodes as ir
from tritongen.schedule.canonical import free_indices
from tritongen.schedule.classes.contraction_stages import parts_behind
from tritongen.schedule.plan import View

HALVES = ("f16", "bf16")
BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")


def persistent_view(body: Body) -> KernelView:
    kernel = body.kernel
    heads, tail = kernel.nests[: kernel.products], kernel.nests[kernel.products :]
    split = kernel.role != "whole"
    var = open_tiles(body, split)
    # Rows and columns outside the tensors are zeros, and never stored.
    body.axis_mask |= {"m": "", "n": ""}
    setup = [*operands(body, heads, var)]
    loads, dots = products(body, heads, FREE, var)
    if any(f"{var['k']}[" in line for line in loads):  # a computed factor is masked by k
        loads.insert(0, f"{var['k']} = {var['start']} + tl.arange(0, BLOCK_K)")
    turn, body.prologue = [*place_lines(body, var, split), *body.prologue], []
    zeros = accumulators(body, heads)
    if split:
        store_parts(body, heads, var)
        lines = corner_lines(body, var, var["first_n"], "BLOCK_N")
        body.lines += lines
    else:
        setup += epilogue(body, heads, tail, var)
    doc = "Tiles of BLOCK_M x BLOCK_N sums, one after another a program, BLOCK_K terms at a time."
    if split:
        doc = "Tiles of BLOCK_M x BLOCK_N sums over one CHUNK of the terms, BLOCK_K at a time."
    return view(
        body,
        var,
        (*BLOCKS, "PARTS") if split else BLOCKS,
        doc,
        loops=(Loop(tuple(zeros), (*loads, *dots), ()),),
        lines=tuple(body.lines),
        setup=tuple(setup),
        turn=tuple(turn),
        flags={"flat": len(heads) == 1},
    )


# ---- which tile a program is at ------------------------------------------------------------------
def open_tiles(body: Body, split: bool) -> dict[str, str]:
    """The names of a contraction's tile, and of the corner that a persistent program is at."""
    batch = body.kernel.axes[0]
    var = axis_names(body) | {"rows": "BLOCK_M"}
    for name in ("first_n", "tiles", "part", "begin"):
        var[name] = body.names.free(name)
    several = split or batch.digits
    var["turn"] = body.names.free("turn") if several else var["tile"]
    times = (["PARTS"] if split else []) + ([var["BATCH"]] if batch.digits else [])
    var["count"] = " * ".join([*times, var["tiles"]])
    var["to"] = var["K"]
    if split:
        body.args.sizes["CHUNK"] = 'config["CHUNK"]'
        var["to"] = f"tl.minimum({var['begin']} + CHUNK, {var['K']})"
    return var


def place_lines(body: Body, var: dict[str, str], split: bool) -> list[str]:
    """From the number of a turn to part, batch and tile."""
    if not split:
        var["begin"] = "0"
    if var["turn"] == var["tile"]:
        return []
    lines = [f"{var['tile']} = {var['turn']} % {var['tiles']}"]
    outer = f"{var['turn']} // {var['tiles']}"
    if body.kernel.axes[0].digits:
        inner = f"{outer} % {var['BATCH']}" if split else outer
        lines.append(f"{var['batch']} = tl.cast({inner}, tl.int64)")
        outer = f"{var['turn']} // ({var['tiles']} * {var['BATCH']})"
    if split:
        lines += [f"{var['part']} = {outer}", f"{var['begin']} = {var['part']} * CHUNK"]
    return lines


def corner_lines(body: Body, var: dict[str, str], column: str, width: str) -> list[str]:
    """The lines of a tile of so many columns behind the loop: n, digits and mask as far as they are used."""
    lines = body.prologue + body.lines
    opening = {
        var["n"]: f"{column}.to(tl.int64) + tl.arange(0, {width})[None, :]",
        var["inside"]: f"({var['m']} < {var['M']}) & ({var['n']} < {var['N']})",
    }
    for name, text in reversed(opening.items()):
        if mentions(lines, name):
            lines.insert(0, f"{name} = {text}")
    body.lines, body.prologue = [], []
    if mentions(lines, var["m"]):
        body.line(row_line(var))
    return lines


def row_line(var: dict[str, str]) -> str:
    return f"{var['m']} = {var['first_m']}.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]"


# ---- operands ------------------------------------------------------------------------------------
def operands(body: Body, heads: tuple[ir.Nest, ...], var: dict[str, str]) -> Iterator[str]:
    """Describes each operand once; the host lines."""
    tiles = iter(body.kernel.tiles)
    for head in heads:
        for side, axes in zip(head.fold.factors, SIDES, strict=True):
            tile = next(tiles)
            (read,) = (e for e in ir.walk(side) if isinstance(e, ir.Read) and free_indices(e))
            if read not in body.loads:
                narrow = storage_dtype(*head.fold.factors, body.op)
                by_columns = axes == SIDES[1] and narrow == read.dtype and narrow not in HALVES
                yield describe(body, tile, read, axes, var, ", by_columns=True" * by_columns)


def describe(
    body: Body, tile: View, read: ir.Read, axes: tuple[str, str], var: dict[str, str], options: str
) -> str:
    """Says in `body.loads` how an operand is loaded; the host line that describes it."""
    order = matrix_order(body.kernel, tile, axes)
    outer = [tile.runs[k] for k in order[:-2]]
    name = body.names.free(f"{tile.tensor}_tiles")
    turned = body.names.free(f"{tile.tensor}_turned")
    body.args.pointers[name] = name
    flag = body.names.free(turned.upper())
    body.args.constants[flag] = turned
    before = [f"{body.run_text(run)}.to(tl.int32)" for run in outer]
    corner = {"m": var["first_m"], "n": var["first_n"], "k": var["start"]}

    def load(first: str, second: str) -> str:
        out = f"{name}.load([{', '.join([*before, corner[first], corner[second]])}])"
        blocks = f"BLOCK_{first.upper()}, BLOCK_{second.upper()}"
        return f"{out}.reshape({blocks})" if before else out

    body.loads[read] = f"{load(*axes[::-1])}.T if {flag} else {load(*axes)}"
    blocks = ", ".join(f'config["BLOCK_{name.upper()}"]' for name in axes)
    return f"{name}, {turned} = lib.tiles({matrix_text(tile.tensor, order)}, {blocks}{options})"


# ---- sums and what follows from them -------------------------------------------------------------
def epilogue(body: Body, heads, tail, var: dict[str, str]) -> list[str]:
    """Whatever follows from the sums, over m and n, and the stores; the host lines that these need.

    Half a tile at a time, or a quarter: a whole one would take the shared memory of one more stage to
    store, and more registers than there are beside its sums.
    """
    mask_tile(body, var)
    half, column = body.fresh("half"), body.fresh("column")
    quarters = parts_behind(body.kernel) == 4
    quarter = body.fresh("quarter") if quarters else ""
    width = "BLOCK_N // 4" if quarters else "BLOCK_N // 2"
    halved, quartered = [], []
    for head in heads:
        name, halves = body.values[head.name][0], body.fresh(f"{head.name}_halves")
        halved.append(f"{halves} = {split_columns(name, 2)}")
        if quarters:
            fourths = body.fresh(f"{head.name}_quarters")
            quartered.append(f"{fourths} = {split_columns(f'{halves}[{half}]', 4)}")
        body.line(f"{name} = {f'{fourths}[{quarter}]' if quarters else f'{halves}[{half}]'}")
    setup = stores(body, heads, tail, (column, width), var)
    lines = corner_lines(body, var, column, width)
    at = f"{column} = {var['first_n']} + {half} * (BLOCK_N // 2)"
    if quarters:
        lines.insert(0, f"{at} + {quarter} * (BLOCK_N // 4)")
        lines = [*quartered, f"for {quarter} in tl.static_range(2):", *(f"    {x}" for x in lines)]
    else:
        lines.insert(0, at)
    body.lines += [*halved, f"for {half} in tl.static_range(2):", *(f"    {x}" for x in lines)]
    return setup


def stores(body: Body, heads, tail, columns: tuple[str, str], var: dict[str, str]) -> list[str]:
    """What follows from the sums over these `columns`, (the first, how many), and its stores; their host lines."""
    stored = {tile.tensor: tile for tile in body.kernel.stored}
    setup = []
    widen(body, heads)
    for nest in (*heads, *tail):
        value = body.values[nest.name][0] if nest in heads else body.value(nest)
        if nest.name in stored:
            setup.append(store_tile(body, nest, stored[nest.name], value, columns, var))
        elif nest.name in body.kernel.stores:
            body.store(nest, value)
    return setup


def split_columns(tile: str, parts: int) -> str:
    """A tile of twice as many columns as a part of a whole one has, as the two of its halves."""
    return f"tl.split({tile}.reshape(BLOCK_M, 2, BLOCK_N // {parts}).permute(0, 2, 1))"


def mask_tile(body: Body, var: dict[str, str]) -> None:
    for name in ("m", "n"):
        body.axis_mask[name] = f"{var[name]} < {var[name.upper()]}"
    body.together = {frozenset({"m", "n"}): var["inside"]}


def store_tile(
    body: Body, nest: ir.Nest, tile: View, value: str, columns: tuple[str, str], var: dict[str, str]
) -> str:
    """Stores `columns`, (the first, how many), of a tile by descriptor, or through pointers where rows are not aligned; the host line."""
    column, width = columns
    name = body.names.free(f"{tile.tensor}_tiles")
    body.args.pointers[name] = name
    before = [f"{body.run_text(run)}.to(tl.int32)" for run in tile.runs[:-2]]
    body.line(f"if {name} is None:")
    body.indent += 1
    body.store(nest, value)
    body.indent -= 1
    out = f"{value}.to({name}.dtype)"
    if before:
        out += f".reshape({'1, ' * len(before)}BLOCK_M, {width})"
    body.line("else:")
    body.line(f"    {name}.store([{', '.join([*before, var['first_m'], column])}], {out})")
    on_host = width.replace("BLOCK_N", 'config["BLOCK_N"]')
    blocks = f'config["BLOCK_M"], {on_host}'
    return f"{name} = lib.tiles_to_store({tile.tensor}, {blocks})"


# ---- parts ---------------------------------------------------------------------------------------
def combine_view(body: Body) -> KernelView:
    """The second kernel of a split sum: the parts in their order, then the epilogue."""
    kernel = body.kernel
    heads, tail = kernel.nests[: kernel.products], kernel.nests[kernel.products :]
    var = axis_names(body)
    var["part"] = body.names.free("part")
    zeros = accumulators(body, heads)
    mask_tile(body, var)
    for head in heads:
        at, name = part_address(body, head, var), body.values[head.name][0]
        body.line(f"{name} += tl.load({at}, mask={var['inside']}, other=0)")
    sums, body.lines = tuple(body.lines), []
    if kernel.axes[0].digits:
        outer = f"{var['tile']} // ({var['tiles_m']} * {var['tiles_n']})"
        body.prologue.insert(0, f"{var['batch']} = ({outer}).to(tl.int64)")
    follow(body, heads, tail)
    spoken = (*body.prologue, *body.lines, var["M"], var["N"], var.get("BATCH", ""))
    if not mentions(spoken, var["K"]):
        body.args.sizes.pop(var["K"], None)
    return view(
        body,
        var,
        ("BLOCK_M", "BLOCK_N", "PARTS"),
        "Adds up what PARTS programs left of each sum: BLOCK_M x BLOCK_N of them a program.",
        loops=(Loop(tuple(zeros), sums, ()),),
        lines=tuple(body.lines),
    )
