"""Each template of products as it stands, of a @ b: run by `test_product_templates.py`, with TRITON_INTERPRET=1."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import triton

from tritongen import lib
from tritongen.emit.op_view import render_kernel
from tritongen.emit.product_view import (
    Factor,
    Output,
    Place,
    ProductView,
    Split,
    Subtile,
    Sum,
    Value,
)
from tritongen.runtime.load import load_text

M, N, K = 50, 44, 36
BLOCKS = dict(BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, GROUP_M=2)
TILES = triton.cdiv(M, 16) * triton.cdiv(N, 32)
A_LOAD = "tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)"
B_LOAD = "tl.load(b_ptr + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)"
POINTERS = Factor("a", A_LOAD), Factor("b", B_LOAD)
DESCRIPTORS = (
    Factor("a", "a_tiles.load([first_m, start])"),
    Factor("b", "b_tiles.load([start, first_n])"),
)
SUM = Sum("acc", "tl.float32", "a", "b", 'input_precision="ieee"')
STORE = Output("acc", (), "y_ptr + m * N + n", "inside")


def kernel(template: str, *parameters: str, **slots):
    """A template with default slots, as a kernel that Triton takes."""
    defaults = dict(doc="a @ b", arguments=(), var={}, sums=(SUM,), stores=(STORE,))
    view = ProductView(template, template, parameters=parameters, **{**defaults, **slots})
    text = "import triton\nimport triton.language as tl\nfrom tritongen import lib\n\n\n"
    return getattr(load_text(f"{template}_by_itself", text + render_kernel(view)), template)


def constants(**values: int) -> tuple[str, ...]:
    return tuple(f"{name}: tl.constexpr" for name in values)


@pytest.fixture
def operands() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(M, K), torch.randn(K, N), torch.full((M, N), torch.nan)


def check(operands: tuple[torch.Tensor, ...]) -> None:
    a, b, y = operands
    torch.testing.assert_close(y, a @ b, rtol=1e-5, atol=1e-5)


def test_contraction(operands):
    run = kernel(
        "contraction", *"a_ptr b_ptr y_ptr M N K".split(), *constants(**BLOCKS), factors=POINTERS
    )
    run[(TILES,)](*operands, M, N, K, **BLOCKS)
    check(operands)


@pytest.mark.parametrize("parts", [0, 3])
def test_contraction_of_taps_in_halves(parts, operands):
    """Four taps of nine channels each: k counts those of one tap, a CHUNK steps."""
    y, left = operands[2], torch.full((parts, M, N), torch.nan)
    a = "tl.load(a_ptr + m * K + tap * C + k[None, :], mask=(m < M) & (k[None, :] < C), other=0.0)"
    b = "tl.load(b_ptr + (tap * C + k[:, None]) * N + n, mask=(k[:, None] < C) & (n < N), other=0.0)"
    factors = Factor("a", a), Factor("b", b)
    parameters = *"a_ptr b_ptr y_ptr M N K C".split(), *constants(**BLOCKS)
    optional = ("PARTS=1", "CHUNK=0", "parts_ptr=None")
    sums = (replace(SUM, parts="parts_ptr"),)
    slots = dict(splits=True, optional=optional, sums=sums) if parts else {}
    more = dict(PARTS=parts, CHUNK=2, parts_ptr=left) if parts else {}
    run = kernel("contraction", *parameters, factors=factors, taps="4", K="C", halves=True, **slots)
    run[(max(1, parts) * TILES,)](*operands, M, N, K, K // 4, **BLOCKS, **more)
    if parts:
        assert y.isnan().all()
        y.copy_(left.nansum(0))
    check(operands)


def test_ragged(operands):
    a, b, y = operands
    ends = torch.tensor([0, 13, 13, 40, M])
    parameters = ("a_ptr", "b_ptr", "ends_ptr", "y_ptr", "M", "N", "K", *constants(**BLOCKS))
    weights = "tl.load(b_ptr + segment * K * N + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)"
    rows = "tl.load(a_ptr + m * K + k[None, :], mask=own & (k[None, :] < K), other=0.0)"
    met = "(tl.load(ends_ptr + segments) <= last_m) & (tl.load(ends_ptr + segments + 1) > first_m)"
    own = "(tl.load(ends_ptr + segment) <= m) & (tl.load(ends_ptr + segment + 1) > m)"
    run = kernel(
        "ragged",
        *parameters,
        "SEGMENTS: tl.constexpr",
        factors=(Factor("a", rows), Factor("b", weights)),
        met=Value((), met),
        own=Value((), own),
    )
    each = torch.stack([b, torch.full_like(b, torch.nan), 2 * b, -b])  # the second one has no rows
    run[(TILES,)](a, each, ends, y, M, N, K, **BLOCKS, SEGMENTS=4)
    factor = torch.tensor([1.0] * 13 + [2.0] * 27 + [-1.0] * 10)[:, None]
    torch.testing.assert_close(y, factor * (a @ b), rtol=1e-5, atol=1e-5)


def test_lanes_multiply_few_rows(operands):
    own = dict(BLOCK_M=2, BLOCK_N=32, BLOCK_K=16, GROUP_M=2)
    optional = ("LANES: tl.constexpr = False",)
    parameters = *"a_ptr b_ptr y_ptr M N K".split(), *constants(**own)
    run = kernel("contraction", *parameters, factors=POINTERS, lanes=True, optional=optional)
    run[(triton.cdiv(M, 2) * triton.cdiv(N, 32),)](*operands, M, N, K, **own, LANES=True)
    check(operands)


@pytest.mark.parametrize("parts", [0, 1, 3])
@pytest.mark.parametrize("template", ["contraction", "persistent"])
def test_split_sums(template, parts, operands):
    a, b, y = operands
    left = torch.full((parts, M, N), torch.nan)
    optional = ("PARTS=1", "CHUNK=0", "parts_ptr=None")
    slots = dict(
        splits=True,
        begin="begin",
        end="end",
        optional=optional,
        sums=(replace(SUM, parts="parts_ptr"),),
    )
    more = dict(PARTS=parts, CHUNK=16 if parts > 1 else K, parts_ptr=left) if parts else {}
    if template == "contraction":
        parameters = *"a_ptr b_ptr y_ptr M N K".split(), *constants(**BLOCKS)
        run = kernel(template, *parameters, factors=POINTERS, **slots)
        run[(max(1, parts) * TILES,)](a, b, y, M, N, K, **BLOCKS, **more)
    else:
        parameters = *"a_tiles b_tiles y_ptr M N K".split(), *constants(**BLOCKS)
        run = kernel(template, *parameters, factors=DESCRIPTORS, **slots)
        described = lib.descriptor(a, 16, 16), lib.descriptor(b, 16, 32)
        run[(4,)](*described, y, M, N, K, **BLOCKS, **more)
    if parts:
        assert y.isnan().all()
        own = dict(BLOCK_M=16, BLOCK_N=32, PARTS=parts, AHEAD=2)
        parameters = *"parts_ptr y_ptr M N".split(), *constants(**own)
        combine = kernel("combine", *parameters, sums=slots["sums"])
        combine[(TILES,)](left, y, M, N, **own)
    check(operands)


@pytest.mark.parametrize("quarters", [False, True])
def test_persistent(quarters, operands):
    a, b, y = operands
    store = replace(STORE, tiles="y_tiles")
    parameters = *"a_tiles b_tiles y_ptr y_tiles M N K".split(), *constants(**BLOCKS)
    run = kernel("persistent", *parameters, factors=DESCRIPTORS, stores=(store,), quarters=quarters)
    described = lib.descriptor(a, 16, 16), lib.descriptor(b, 16, 32)
    for y_tiles in (None, lib.descriptor(y, 16, 8 if quarters else 16)):
        y.fill_(torch.nan)
        run[(4,)](*described, y, y_tiles, M, N, K, **BLOCKS)
        check(operands)


def test_subtiles(operands):
    a, b, y = operands
    subtiles = tuple(
        Subtile(
            f"y_{k}",
            Factor(f"a{k}", f"a_tiles.load([{row}, start])"),
            row,
        )
        for k, row in enumerate(("first_m", "below", "lowest"))
    )
    slots = dict(factors=DESCRIPTORS[1:], subtiles=subtiles, height="3 * BLOCK_M", flat=False)
    run = kernel("subtiles", *"a_tiles b_tiles y_ptr M N K".split(), *constants(**BLOCKS), **slots)
    run[(2,)](lib.descriptor(a, 16, 16), lib.descriptor(b, 16, 32), y, M, N, K, **BLOCKS)
    check(operands)


def test_tf32x3(operands):
    a, b, y = operands
    config = {**BLOCKS, "TERMS": 32}
    factors = (
        Factor("a", "a_tiles.load([first_m + (product == 0) * M, start])"),
        Factor("b", "b_tiles.load([first_n + (product == 1) * N, start]).T"),
    )
    parameters = *"a_tiles b_tiles y_ptr M N K".split(), *constants(**config)
    run = kernel("tf32x3", *parameters, factors=factors, flat=False)
    run[(4,)](lib.tf32_tiles(a, 16, 16), lib.tf32_tiles(b.mT, 32, 16), y, M, N, K, **config)
    check(operands)


@pytest.mark.parametrize("lhs", [None, False, True])
def test_tf32x3_half(lhs, operands):
    """One factor is split ahead: the right one, or whichever LHS says."""
    a, b, y = operands
    config = BLOCKS if lhs is None else {**BLOCKS, "LHS": lhs}
    ways = (
        Split(
            DESCRIPTORS[0], *(f"b_tiles.load([{n}, start]).T" for n in ("first_n", "first_n + N"))
        ),
        Split(
            Factor("b", "b_tiles.load([first_n, start])"),
            *(f"a_tiles.load([{m}, start]).T" for m in ("first_m", "first_m + M")),
        ),
    )
    parameters = *"a_tiles b_tiles y_ptr M N K".split(), *constants(**config)
    run = kernel("tf32x3_half", *parameters, ways=ways[: 1 if lhs is None else 2])
    a_tiles, _ = lib.tiles_or_parts(a, 16, 16, bool(lhs))
    b_tiles, _ = lib.tiles_or_parts(b.mT.contiguous(), 32, 16, not lhs)
    run[(4,)](a_tiles, b_tiles, y, M, N, K, **config)
    check(operands)


@pytest.mark.parametrize("phases", [False, True])
def test_patches(phases, operands):
    """Addressing in a row, each seen by itself: a convolution of one tap."""
    a, b, y = operands
    config = dict(BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, PATCH_P=16, FLAT=False)
    place = Place("p", "M", "PATCH_P", "patches_p", "corner_p", "", "")
    slots = dict(taps="1", divisor="1", inside="(p < M) & (n < N)", places=(place,))
    if phases:
        slots |= dict(phases=True, batches="1")
    run = kernel(
        "patches",
        *"a_tiles b_tiles y_ptr M N K".split(),
        *constants(**config),
        factors=(
            Factor("a", "a_tiles.load([corner_p, k])"),
            Factor("b", "b_tiles.load([first_n, k])"),
        ),
        sums=(replace(SUM, left="b", right="a.T"),),
        stores=(replace(STORE, address="y_ptr + p * N + n"),),
        **slots,
    )
    described = lib.descriptor(a, 16, 16), lib.descriptor(b.mT.contiguous(), 32, 16)
    run[(4,)](*described, y, M, N, K, **config)
    check(operands)
