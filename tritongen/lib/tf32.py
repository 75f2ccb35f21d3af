"""f32 as two TF32 numbers, what tensor cores multiply: a product of f32 is three of those."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tritongen.lib.descriptors import descriptor


@triton.jit
def tf32_parts(x):
    """x as TF32 numbers, of 10 bits of mantissa, and what they leave of it."""
    # An infinite number times the other factor's rest, which may be 0, would be NaN. One exponent bit less makes
    # it 1 (or -1), and leaves all of x to the rest, whose product with the other one's number is as x's own.
    kept = tl.where(tl.abs(x) < 3.401992901712019e38, -0x2000, -0x40002000)
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & kept  # rounds what is cut off
    number = bits.to(tl.float32, bitcast=True)
    return number, x - number


@triton.jit
def _split_tf32(
    x_ptr, parts_ptr, rows, terms, x_batch, x_row, x_term, parts_row, BLOCK: tl.constexpr
):
    """A tile of x in its two TF32 parts, the rests `rows` rows below the numbers."""
    tiles_m, tiles_n = tl.cdiv(rows, BLOCK), tl.cdiv(terms, BLOCK)
    tile = tl.program_id(0)
    batch = (tile // (tiles_m * tiles_n)).to(tl.int64)
    row = (tile // tiles_n % tiles_m).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[:, None]
    term = (tile % tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (term < terms)
    x = tl.load(x_ptr + batch * x_batch + row * x_row + term * x_term, mask=inside)
    number, rest = tf32_parts(x)
    row += batch * 2 * rows
    tl.store(parts_ptr + row * parts_row + term, number, mask=inside)
    tl.store(parts_ptr + (row + rows) * parts_row + term, rest, mask=inside)


def tf32_tiles(x: torch.Tensor, rows: int, cols: int) -> TensorDescriptor:
    """Tiles of x [..., rows, terms] in two parts, one below the other: TF32 numbers, and their rests."""
    *outer, count, terms = x.shape
    width = triton.cdiv(terms, 4) * 4  # aligned to 16 bytes
    parts = torch.empty((*outer, 2 * count, width), dtype=torch.float32, device=x.device)
    flat = x.reshape(-1, count, terms)
    tiles = flat.shape[0] * triton.cdiv(count, 64) * triton.cdiv(terms, 64)
    _split_tf32[(tiles,)](flat, parts, count, terms, *flat.stride(), width, BLOCK=64, num_warps=8)
    return descriptor(parts[..., :terms], rows, cols)
