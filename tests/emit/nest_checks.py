"""Templates of nests, windows and scatters with plain slots: run by `test_templates.py`, with TRITON_INTERPRET=1."""

from __future__ import annotations

import math

import pytest
import torch

from tritongen.emit.op_view import render_kernel
from tritongen.emit.row_views import (
    Fold,
    Loop,
    NestView,
    Reach,
    Reducers,
    RowsView,
    Run,
    Tile,
    Value,
    Variable,
    WindowView,
)
from tritongen.emit.view import Store
from tritongen.runtime.load import load_text

IMPORTS = "import triton\nimport triton.language as tl\nfrom tritongen import lib\n\n\n"
TILE = Tile(rows="rows", row_end="rows", cols="cols", col_end="cols")
ROWS, BLOCK, WIN = 2, 8, 3


def kernel(template: str, parameters: str, constants: str, made, **slots):
    given = (*parameters.split(), *(f"{name}: tl.constexpr" for name in constants.split()))
    view = made(template, template, "", given, (), **slots)
    name = f"{template}_by_itself"
    return getattr(load_text(name, IMPORTS + render_kernel(view)), template)


def summed(shape: str, load: str, *loops: Loop, **slots) -> Reducers:
    total = Variable("total", shape, "0.0", "tl.float32")
    return Reducers((total,), loops, (Fold(term=(f"x = {load}",), take="total += x"),), **slots)


@pytest.mark.parametrize("template", ["nest", "box"])
def test_reducers_as_loops(template):
    """The sum over two indices of four, of which one begins at 1, and behind it the double."""
    x, y, z = torch.rand(3, 5, 4, 3), torch.full((3, 5), math.nan), torch.empty(3, 5)
    place, shape = (
        ("i", "(BLOCK,)") if template == "nest" else ("(row * cols + col)", "(ROWS, BLOCK)")
    )
    load = f"tl.load(x_ptr + {place} * 12 + j * 3 + k, mask=inside, other=0.0)"
    reducers = summed(shape, load, Loop("j", "1, 4"), Loop("k", "3"))
    y_store, z_store = (
        f"tl.store({tensor}_ptr + {place}, {value}, mask=inside)"
        for value, tensor in (("total", "y"), ("double", "z"))
    )
    values = Value(reducers, (y_store,)), Value(None, ("double = 2 * total", z_store))
    slots = {"total": "rows * cols", "tile": TILE, "values": values}
    constants = "BLOCK" if template == "nest" else "ROWS BLOCK"
    run = kernel(template, "x_ptr y_ptr z_ptr rows cols", constants, NestView, **slots)
    config = {"BLOCK": BLOCK} if template == "nest" else {"ROWS": ROWS, "BLOCK": BLOCK}
    run[(2,)](x, y, z, 3, 5, **config)
    torch.testing.assert_close(y, x[:, :, 1:].sum((2, 3)))
    torch.testing.assert_close(z, 2 * y)


def test_a_scatter():
    x, at, y = torch.rand(5, 7), torch.tensor([2, 0, 2, 9, 1]), torch.zeros(3, 7)
    lines = (
        "at = tl.load(at_ptr + row, mask=row < rows, other=0)",
        "x = tl.load(x_ptr + row * cols + col, mask=inside)",
    )
    add = Store("x", lines, "y_ptr + at * cols + col", "inside & (at < 3)")
    parameters = "x_ptr at_ptr y_ptr rows cols"
    run = kernel("scatter", parameters, "ROWS BLOCK", RowsView, tile=TILE, stores=(add,))
    run[(3,)](x, at, y, 5, 7, ROWS=ROWS, BLOCK=BLOCK)
    want = torch.zeros_like(y).index_add(0, at[at < 3], x[at < 3])
    torch.testing.assert_close(y, want)


IMAGE, CONSTANTS = "x_ptr y_ptr rows P Q H W", "ROWS STEPS BLOCK WIN"
CONFIG = {"ROWS": ROWS, "STEPS": 2, "BLOCK": BLOCK, "WIN": WIN}
R, S = Loop("r", "WIN"), Loop("s", "WIN")
INSIDE = "(row < rows) & (step + i < P) & (col < Q)"
WRITE = Store("total", (), "y_ptr + (row * P + step + i) * Q + col", INSIDE)


def images() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images, what becomes of them, and what should: their sums over windows."""
    x = torch.rand(5, 7, 12)
    want = x.unfold(1, WIN, 1).unfold(2, WIN, 1).sum((3, 4))
    return x, torch.full_like(want, math.nan), want


@pytest.mark.parametrize("by_lines", [False, True])
@pytest.mark.parametrize("runs", [False, True])
def test_windows(by_lines, runs):
    x, y, want = images()
    row = "(row * H + step + i + r) * W"
    mask = "(row < rows) & (step + i + r < H)"
    load = f"tl.load(x_ptr + {row} + col + s, mask={mask} & (col + s < W), other=0.0)"
    constants, config, slots, kept = CONSTANTS, dict(CONFIG), {}, {"in_line": (S,)}
    if runs:
        reach = Reach("FIRST", "LAST", "0", "WIN - 1")
        whole = f"tl.load(x_ptr + {row} + at, mask={mask} & (at < W), other=0.0)"
        kept = {"runs": (Run("x_line", reach, (), "x_run", whole),), "in_run": (S,)}
        load, slots = "lib.taken(x_line, s - FIRST * RUN, 1, PER_THREAD)", {"reaches": (reach,)}
        constants, config = f"{CONSTANTS} PER_THREAD", {**CONFIG, "PER_THREAD": 2}
    window = summed("(ROWS, BLOCK)", load, R, **kept)
    if by_lines:
        part = Variable("part", "(ROWS, BLOCK)", "0.0", "tl.float32")
        fold = Fold(term=window.folds[0].term, take="part += x")
        window = Reducers(
            window.start, (R,), (fold,), line=(part,), joins=("total += part",), **kept
        )
    slots |= {"cols": "Q", "steps": "P", "values": (Value(window),), "stores": (WRITE,)}
    run = kernel("window", IMAGE, constants, WindowView, **slots)
    run[(3 * 2 * 3,)](x, y, 5, *y.shape[1:], *x.shape[1:], **config)
    torch.testing.assert_close(y, want)


def test_windows_of_blocks_of_columns():
    """Two outputs: the sums of windows of one row, and their squares."""
    x, (y, z) = torch.rand(5, 40), torch.full((2, 5, 38), math.nan)
    column = "col + i * BLOCK"
    load = f"tl.load(x_ptr + row * W + {column} + s, mask=(row < rows) & ({column} + s < W), other=0.0)"
    inside = f"(row < rows) & ({column} < Q)"
    y_store, z_store = (
        Store(value, (), f"{tensor}_ptr + row * Q + {column}", inside)
        for value, tensor in (("total", "y"), ("square", "z"))
    )
    values = Value(summed("(ROWS, BLOCK)", load, S)), Value(None, ("square = total * total",))
    slots = {"cols": "Q", "values": values, "stores": (y_store, z_store)}
    run = kernel("window", "x_ptr y_ptr z_ptr rows Q W", CONSTANTS, WindowView, **slots)
    run[(3 * 3,)](x, y, z, 5, 38, 40, **CONFIG)
    torch.testing.assert_close(y, x.unfold(1, WIN, 1).sum(2))
    torch.testing.assert_close(z, y * y)
