"""A ragged product: the K loop of a contraction for each segment that has rows of the tile.

Input: a `KernelPlan` of the skeleton `ragged`, whose last axis numbers the segments. Output: its `ProductView` with
two masks: of the segments that may have rows of a tile, by its first and last row, and of the rows in one.
"""

from __future__ import annotations

from collections.abc import Callable

from tritongen.emit.bounded import forget_loop, sign
from tritongen.emit.contraction import (
    BLOCKS,
    invariant,
    mask_tile,
    open_axes,
    product_view,
    products,
    stores_of,
)
from tritongen.emit.fold_lines import guard_text
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.product_view import Value
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index, weight_of
from tritongen.schedule.classes.ragged import beside

AXES = ("batch", "m", "n", "k", "segment")


def ragged_view(writer: KernelWriter) -> KernelView:
    kernel = writer.kernel
    (head, *_), (_, m_axis, _, _, segment_axis) = kernel.nests, kernel.axes
    (row,), (segment,) = (a.names for a in (m_axis, segment_axis))
    guards = head.fold.guards
    size = open_axes(writer, AXES)
    invariant(writer, (head,))
    writer.prologue += writer.taken()

    def end_of(guard: ir.Guard) -> str:
        """An end by the row of the tile for which it holds first."""
        rising = sign(weight_of(guard.poly, row)) > 0
        writer.index[row] = "last_m" if rising else "first_m"
        return guard_text(writer, guard)

    own_index, cache = dict(writer.index), dict(writer.cache)
    met = named = None
    if not kernel.named:
        writer.index[segment] = "segments"
        writer.axis_mask["segment"] = f"segments < {size['segment']}"
        met = asked(writer, guards, "segment", end_of)
        writer.index, writer.cache = own_index, dict(cache)
        writer.axis_mask["segment"] = ""
    else:
        named = named_by(writer, guards, segment, size["segment"])
        cache = dict(writer.cache)
    own = asked(writer, guards, "m", lambda guard: guard_text(writer, guard))
    writer.axis_mask["m"] = "own"
    factors, sums = products(writer, (head,), size, rows=guards)
    forget_loop(writer, cache)
    inside, behind = mask_tile(writer, size), writer.taken()
    blocks = BLOCKS if kernel.named else (*BLOCKS, "SEGMENTS")
    segments = {"met": met, "named": named, "own": own, "segments": size["segment"]}
    made = {"factors": factors, "sums": sums, "behind": behind, "stores": stores_of(writer)}
    return product_view(writer, size, blocks, inside=inside, **segments, **made)


def named_by(writer: KernelWriter, guards: tuple[ir.Guard, ...], segment: str, count: str) -> Value:
    """The first and the last segment of each row: the ends that guards say, or all."""
    first, last = "0", f"{count} - 1"
    for guard in guards:
        rest = beside(guard.poly, segment)
        assert rest is not None
        rising = rest + index(segment) == guard.poly
        end = writer.size(-rest if rising else rest)[0]
        if guard.op == "==" or rising:
            first = end if first == "0" else f"tl.maximum({first}, {end})"
        if guard.op == "==" or not rising:
            last = end if last == f"{count} - 1" else f"tl.minimum({last}, {end})"
    return Value(writer.taken(), f"{first}, {last}")


def asked(
    writer: KernelWriter, guards: tuple[ir.Guard, ...], axis: str, text: Callable[[ir.Guard], str]
) -> Value:
    """The mask of an axis and all guards, behind what they read."""
    checks = [text(guard) for guard in guards]
    return Value(writer.taken(), writer.mask(frozenset({axis}), checks))
