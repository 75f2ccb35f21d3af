"""A contraction by tensor descriptors: a fixed number of programs, each with one tile after another.

Input: a `KernelPlan` of the skeleton `persistent` or `subtiles`, whose `tiles` say how each factor's operand lies
in memory. Output: its `ProductView`: the host describes the operands (`setup`), the K loop loads their
tiles by coordinates, zeros outside the tensor, and the epilogue is that of any contraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tritongen.emit.bounded import LEFT, RIGHT
from tritongen.emit.contraction import (
    dot_options,
    factor,
    in_parts,
    mask_tile,
    open_axes,
    product_view,
    products,
    storage_dtype,
    stores_of,
    sum_of,
)
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.matrices import SIDES, matrix_order, matrix_text
from tritongen.emit.product_view import Subtile
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.free import free_indices, reads
from tritongen.schedule.classes.contraction_stages import SUBTILES, parts_behind, tiles_read
from tritongen.schedule.plan import View

HALVES = ("f16", "bf16")


def persistent_view(writer: KernelWriter) -> KernelView:
    kernel = writer.kernel
    heads = kernel.nests[: kernel.products]
    size = open_tiles(writer)
    setup, _ = operands(writer, heads)
    factors, sums = products(writer, heads, size)
    parts = parts_behind(kernel, bool(tiles_read(kernel)))
    own = {"factors": factors, "flat": len(heads) == 1, **in_parts(writer, sums, size)}
    return tiles_view(writer, size, setup, parts, **own)


def subtiles_view(writer: KernelWriter) -> KernelView:
    """A tile of SUBTILES subtiles of rows, one below the other: 192 x 128 where powers of two do not fit.

    Each step multiplies every subtile of the left factor with one tile of the right one.
    """
    head = writer.kernel.nests[0]
    size = open_tiles(writer)
    setup, ((read, load), *_) = operands(writer, (head,))
    left, right = head.fold.factors
    narrow = storage_dtype(left, right, writer.op)
    columns = factor(writer, right, RIGHT, narrow, size)
    factors = []
    rows = ["first_m", *(writer.fresh(f"first_m{k}") for k in range(2, SUBTILES + 1))]
    for row in rows:
        writer.loads[read] = load(row)
        factors.append(factor(writer, left, LEFT, narrow, size))
    total = sum_of(writer, head, "", columns.name, dot_options(writer, head))
    names = (writer.fresh(f"{total.name}_{k}") for k in range(SUBTILES))
    own = {"flat": False, "factors": [columns], "sums": [total]}
    own["subtiles"] = [*map(Subtile, names, factors, rows)]
    return tiles_view(writer, size, setup, 1, height=f"{SUBTILES} * BLOCK_M", **own)


def tiles_view(
    writer: KernelWriter, size: dict[str, str], setup: Sequence[str], parts: int, **fields
) -> KernelView:
    """The view of a loop over tiles, which are stored in so many `parts` of their columns.

    Decoded batch indices stand with each tile, decoded m and n with its stores.
    """
    per_tile, writer.prologue = writer.prologue, []
    mask_tile(writer, size)
    stores = stores_of(writer, parts)
    stores[0] = replace(stores[0], before=[*writer.prologue, *stores[0].before])
    writer.prologue = []
    described = tuple(s.host for s in stores if s.host)
    own: dict[str, Any] = {"per_tile": per_tile, "stores": stores, "quarters": parts == 4}
    own |= {"setup": tuple(setup), "stored_setup": described}
    return product_view(writer, size, **own, **fields)


def open_tiles(writer: KernelWriter) -> dict[str, str]:
    """The axes of tiles by descriptor: rows and columns outside the tensors are zeros, and never stored."""
    size = open_axes(writer)
    writer.axis_mask |= {"m": "", "n": ""}
    return size


def tile_of(name: str, before: list[str], corner: dict[str, str]) -> str:
    """A tile that a descriptor loads, from its corner on: a coordinate for each of its axes."""
    out = f"{name}.load([{', '.join([*before, *corner.values()])}])"
    blocks = ", ".join(f"BLOCK_{axis.upper()}" for axis in corner)
    return f"{out}.reshape({blocks})" if before else out


# ---- operands ------------------------------------------------------------------------------------
Load = Callable[[str], str]  # of a tile of an operand, by the first row of the tile of sums


def operands(
    writer: KernelWriter, heads: tuple[ir.Nest, ...]
) -> tuple[list[str], list[tuple[ir.Read, Load]]]:
    """Says in `writer.loads` how each operand is loaded; the host lines that describe them."""
    setup, loads, tiles = [], [], iter(writer.kernel.tiles)
    for head in heads:
        for side, axes in zip(head.fold.factors, SIDES, strict=True):
            tile = next(tiles)
            (read,) = (e for e in reads(side) if free_indices(e))
            if read not in writer.loads:
                narrow = storage_dtype(*head.fold.factors, writer.op)
                by_columns = axes == SIDES[1] and narrow == read.dtype and narrow not in HALVES
                line, load = describe(writer, tile, axes, ", by_columns=True" * by_columns)
                writer.loads[read] = load("first_m")
                setup.append(line)
                loads.append((read, load))
    return setup, loads


def describe(
    writer: KernelWriter,
    tile: View,
    axes: tuple[str, str],
    options: str = "",
    described: str = "tiles",
    name: str = "",
) -> tuple[str, Load]:
    """The host line that makes a descriptor, and the expression that loads a tile. `described` names the library function."""
    order = matrix_order(writer.kernel, tile, axes)
    name = name or writer.descriptor(f"{tile.tensor}_tiles")
    transposed = writer.fresh(f"trans_{tile.tensor}")
    flag = writer.fresh(transposed.upper())
    writer.args.constants[flag] = transposed
    before = [writer.run_text(tile.runs[k]) for k in order[:-2]]

    def load(first_m: str) -> str:
        at = {"m": first_m, "n": "first_n", "k": "start"}
        if before:
            rows, cols = (f"BLOCK_{a.upper()}" for a in axes)
            given = f"({', '.join(before)},), {at[axes[0]]}, {at[axes[1]]}, {rows}, {cols}, {flag}"
            return f"lib.load_tile({name}, {given})"
        straight, turned = (
            tile_of(name, [], {axis: at[axis] for axis in own}) for own in (axes, axes[::-1])
        )
        return f"{turned}.T if {flag} else {straight}"

    writer.args.tiles[name] = (*(f"BLOCK_{a.upper()}" for a in axes), flag)
    blocks = ", ".join(f'config["BLOCK_{a.upper()}"]' for a in axes)
    host = f"{name}, {transposed} = lib.{described}({matrix_text(tile.tensor, order)}, {blocks}{options})"
    return host, load
