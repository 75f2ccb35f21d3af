"""Every template of tiles and rows, rendered with plain slots, is a kernel: run by `test_templates.py`, with TRITON_INTERPRET=1.

The slots say what a kernel author would: a load, a sum of a row, a store. Nothing of the compiler makes them.
"""

from __future__ import annotations

import math

import pytest
import torch

from tritongen.emit.op_view import render_kernel
from tritongen.emit.row_views import FlatView, Fold, Part, RowsView, Tile, Variable, Walk
from tritongen.runtime.load import load_text

IMPORTS = "import triton\nimport triton.language as tl\nfrom tritongen import lib\n\n"
TILE = Tile(rows="rows", row_end="rows", cols="cols", col_end="cols")
# Rows of several lines that do not lie one behind the other: [lines, rows, cols].
LINES = Tile(rows="rows", row_end="rows", cols="cols", col_end="cols", lines="lines")
LOAD = "x = tl.load(x_ptr + row * cols + col, mask=inside, other=0.0)"
LOAD_LINE = "x = tl.load(x_ptr + (line * rows + row) * cols + col, mask=inside, other=0.0)"
WRITE = "tl.store(y_ptr + row * cols + col, x / total, mask=inside)"
WRITE_LINE = "tl.store(y_ptr + (line * rows + row) * cols + col, x / total, mask=inside)"
ACC = Variable("acc", "(ROWS, BLOCK)", "0.0", "tl.float32")
ALL = "tl.sum(acc, 1, keep_dims=True)"
OPERANDS = ("x_ptr", "y_ptr", "lines", "rows", "cols")


def total(load: str, **fields) -> Fold:
    return Fold(start=(ACC,), term=(load,), take="acc += x", **fields)


def parts(load: str) -> tuple[Walk, ...]:
    """What leaves the sum of one part, and what takes all of them."""
    left = total(load, parts=(Part("sum_ptr", ALL),))
    merged = Part("sum_ptr", loaded="sums", identity="0.0")
    return Walk((left,)), Walk(
        (Fold(result="total", reduce="tl.sum(sums, 1, keep_dims=True)", parts=(merged,)),)
    )


def kernel(template: str, constants: str, operands=OPERANDS, made=RowsView, var=None, **fields):
    parameters = (*operands, *(f"{name}: tl.constexpr" for name in constants.split()))
    view = made(template, template, template, parameters, (), var=var or {}, **fields)
    return getattr(load_text(template, IMPORTS + render_kernel(view)), template)


def operands(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(shape) + 0.5
    return x, torch.full_like(x, math.nan)


ROWS, BLOCK = 4, 16


@pytest.mark.parametrize("template", ["rows", "tile"])
def test_whole_rows(template):
    lines = (LOAD, "total = tl.sum(x, 1, keep_dims=True)", WRITE)
    x, y = operands(6, 13)
    run = kernel(template, "ROWS BLOCK", tile=TILE, lines=lines)
    run[(2,)](x, y, 1, 6, 13, ROWS=ROWS, BLOCK=BLOCK)
    torch.testing.assert_close(y, x / x.sum(1, keepdim=True))


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("lines", [1, 3])
def test_a_loop(lines, writes):
    """Alone, and in two passes of three programs a tile."""
    load, write, tile = (LOAD_LINE, WRITE_LINE, LINES) if lines > 1 else (LOAD, WRITE, TILE)
    left = Part("sum_ptr", "total", "sums", "0.0")
    merge = {"merged": "total", "merge": "tl.sum(sums, 1, keep_dims=True)", "parts": (left,)}
    folds = (total(load, result="total", reduce=ALL, **merge),)
    after = () if writes else ("tl.store(y_ptr + row, total, mask=row < rows)",)
    given = (*OPERANDS, "sum_ptr", "CHUNK")
    fields = {"outputs": (load, write) if writes else (), "tile": tile, "operands": given}
    walks = (Walk(folds, after=after),)
    run = kernel("loop", "ROWS BLOCK PASS PARTS PARTS_POW2", walks=walks, **fields)
    x, y = operands(lines, 6, 37)
    y = y if writes else torch.full((6,), math.nan)
    chunk = -(-lines * 3 // 3) * (1 if lines > 1 else BLOCK)
    sums, sizes = torch.full((6, 3), math.nan), {"ROWS": ROWS, "BLOCK": BLOCK}
    want = x / x.sum((0, 2), keepdim=True) if writes else x.sum((0, 2))
    run[(2,)](x, y, lines, 6, 37, None, 0, **sizes, PASS=0, PARTS=1, PARTS_POW2=1)
    torch.testing.assert_close(y, want)

    y.fill_(math.nan)
    shared = {"PARTS": 3, "PARTS_POW2": 4}
    run[(2, 3)](x, None, lines, 6, 37, sums, chunk, **sizes, **shared, PASS=1)
    torch.testing.assert_close(sums.sum(1), x.sum((0, 2)))
    run[(2, 3 if writes else 1)](x, y, lines, 6, 37, sums, chunk, **sizes, **shared, PASS=2)
    torch.testing.assert_close(y, want)


def test_a_relay():
    left, merged = parts(LOAD)
    x, y = operands(6, 37)
    tickets, sums = torch.zeros(3, dtype=torch.int32), torch.full((6, 3), math.nan)
    walks = left, Walk(lines=(LOAD, WRITE))
    fields = {"tile": TILE, "walks": walks, "merged": (merged,), "counter": "turns_ptr"}
    given = (*OPERANDS, "turns_ptr", "sum_ptr")
    run = kernel("two_pass", "ROWS BLOCK PARTS_POW2 LAG", operands=given, **fields)
    blocks, ahead = 2 * 3, 2
    grid = (blocks + 3 + ahead,)
    run[grid](x, y, 1, 6, 37, tickets, sums, ROWS=ROWS, BLOCK=BLOCK, PARTS_POW2=4, LAG=ahead)
    torch.testing.assert_close(y, x / x.sum(1, keepdim=True))


def test_rows_of_lines():
    x, y = operands(3, 6, 13)
    lines = (LOAD_LINE, "total = tl.sum(x)", WRITE_LINE)
    run = kernel("lines", "LINES BLOCK", tile=LINES, lines=lines)
    run[(6,)](x, y, 3, 6, 13, LINES=4, BLOCK=BLOCK)
    torch.testing.assert_close(y, x / x.sum((0, 2), keepdim=True))

    y.fill_(math.nan)
    state = Variable("total", "()", "0.0", "tl.float32")
    summed = Fold(start=(state,), term=(LOAD_LINE,), take="total += tl.sum(x)")
    walks = Walk((summed,)), Walk(lines=(LOAD_LINE, WRITE_LINE))
    run = kernel("lines_loop", "LINES BLOCK", tile=LINES, walks=walks)
    run[(6,)](x, y, 3, 6, 13, LINES=2, BLOCK=BLOCK)
    torch.testing.assert_close(y, x / x.sum((0, 2), keepdim=True))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("total", [7, 32, 37])
def test_elements_in_a_row(whole, total):
    lines = ("x = tl.load(x_ptr + i, mask=inside)", "tl.store(y_ptr + i, x * 2, mask=inside)")
    given = ("x_ptr", "y_ptr")
    fields = {"total": "total", "whole": whole, "within": given, "passed": given, "lines": lines}
    x, y = operands(total)
    run = kernel("flat", "BLOCK", (*given, "total"), FlatView, **fields)
    run[(-(-total // BLOCK),)](x, y, total, BLOCK=BLOCK)
    torch.testing.assert_close(y, x * 2)


def test_three_dims():
    at = "outer_at * (middle * inner) + middle_at * inner + inner_at"
    lines = (
        f"x = tl.load(x_ptr + {at}, mask=inside)",
        f"tl.store(y_ptr + {at}, x * 2, mask=inside)",
    )
    sizes = {name: name for name in ("outer", "middle", "inner")}
    x, y = operands(3, 5, 37)
    run = kernel("strided", "OUTER ROWS BLOCK", ("x_ptr", "y_ptr", *sizes), var=sizes, lines=lines)
    run[(2 * 2 * 3,)](x, y, 3, 5, 37, OUTER=2, ROWS=4, BLOCK=BLOCK)
    torch.testing.assert_close(y, x * 2)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_in_parts(reverse):
    """From the end, blocks stand the last one first, and so does what lies in them, but for runs of RUN elements."""
    before = "tl.sum(tl.where(at[:, None, :] < at[:, :, None], x[:, None, :], 0.0), 2)"
    order = "at = (-col if REVERSE else col) + tl.zeros((ROWS, BLOCK), tl.int64)"
    write = "tl.store(y_ptr + row * cols + col, carry + before, mask=inside)"
    step = (LOAD, order, f"before = {before}", write, "carry += tl.sum(x, 1, keep_dims=True)")
    carry = Variable("carry", "(ROWS, 1)", "0.0", "tl.float32")
    flags, runs = {"reverse": reverse, "in_parts": False}, "RUN REVERSE"
    x, y = operands(6, 37)
    want = (x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)) - x
    own = {"RUN": 4, "REVERSE": reverse}
    walks = (Walk((Fold((carry,)),), step),)
    run = kernel("scan", f"ROWS BLOCK STAGES {runs}", tile=TILE, walks=walks, flags=flags)
    run[(2,)](x, y, 1, 6, 37, ROWS=ROWS, BLOCK=BLOCK, STAGES=1, **own)
    torch.testing.assert_close(y, want)

    y.fill_(math.nan)
    sums, given = torch.full((6, 2), math.nan), (*OPERANDS, "CHUNK", "sum_ptr")
    left = Walk((Fold((ACC,), parts=(Part("sum_ptr", ALL),)),), (LOAD, "acc += x"))
    part = "ROWS BLOCK PARTS STAGES"
    fields = {"walks": (left,), "flags": {"reverse": False, "in_parts": True}}
    run = kernel("scan", part, given, tile=TILE, **fields)
    args, blocks = (x, y, 1, 6, 37, 32, sums), {"ROWS": ROWS, "BLOCK": BLOCK, "PARTS": 2}
    run[(2, 2)](*args, **blocks, STAGES=1)
    torch.testing.assert_close(sums.sum(1), x.sum(1))
    loaded = (Part("sum_ptr", loaded="sums", identity="0.0"),)
    merged = (Walk((Fold(finish=("carry = tl.sum(sums, 1, keep_dims=True)",), parts=loaded),)),)
    flags |= {"in_parts": True}
    fields = {"merged": merged, "walks": (Walk(lines=step),), "flags": flags}
    run = kernel("scan", f"{part} {runs}", given, tile=TILE, **fields)
    run[(2, 2)](*args, **blocks, STAGES=1, **own)
    torch.testing.assert_close(y, want)
