"""Splits f32 into two TF32 numbers, which tensor cores multiply. A product of f32 is three TF32 products."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tritongen.lib.descriptors import descriptor, tiles
from tritongen.lib.functions import blocks


@triton.jit
def tf32_parts(x):
    """Splits x into hi + lo. hi is a TF32 number with 10 bits of mantissa, and lo is the rest of x."""
    # An infinite hi times the other factor's lo, which may be 0, would be NaN. One exponent bit less makes it 1
    # (or -1), and leaves all of x to lo, whose product with the other one's hi is as x's own.
    kept = tl.where(tl.abs(x) < 3.401992901712019e38, -0x2000, -0x40002000)
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & kept  # rounds what is cut off
    hi = bits.to(tl.float32, bitcast=True)
    return hi, x - hi


@triton.jit
def _split_tf32(
    x_ptr, parts_ptr, rows, terms, x_batch, x_row, x_term, parts_row, BLOCK: tl.constexpr
):
    """Splits a tile of x into its two TF32 parts. lo is stored `rows` rows below hi."""
    tiles_m, tiles_n = blocks(rows, BLOCK), blocks(terms, BLOCK)
    tile = tl.program_id(0)
    batch = (tile // (tiles_m * tiles_n)).to(tl.int64)
    row = (tile // tiles_n % tiles_m).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    term = (tile % tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (term < terms)
    x = tl.load(x_ptr + batch * x_batch + row * x_row + term * x_term, mask=inside)
    hi, lo = tf32_parts(x)
    row += batch * 2 * rows
    tl.store(parts_ptr + row * parts_row + term, hi, mask=inside)
    tl.store(parts_ptr + (row + rows) * parts_row + term, lo, mask=inside)


def tf32_tiles(x: torch.Tensor, rows: int, cols: int) -> TensorDescriptor:
    """Tiles of x [..., rows, terms] in two TF32 parts, with lo below hi."""
    *outer, count, terms = x.shape
    width = triton.cdiv(terms, 4) * 4  # aligned to 16 bytes
    parts = torch.empty((*outer, 2 * count, width), dtype=torch.float32, device=x.device)
    flat = x.reshape(-1, count, terms)
    programs = flat.shape[0] * triton.cdiv(count, 64) * triton.cdiv(terms, 64)
    _split_tf32[(programs,)](
        flat, parts, count, terms, *flat.stride(), width, BLOCK=64, num_warps=8
    )
    return descriptor(parts[..., :terms], rows, cols)


def tiles_or_parts(
    x: torch.Tensor, rows: int, cols: int, split: bool
) -> tuple[TensorDescriptor, bool]:
    """Tiles of x, and whether they see it transposed. If x is split, tiles of its two TF32 parts."""
    return (tf32_tiles(x, rows, cols), False) if split else tiles(x, rows, cols)
