"""Functions that kernels of products share."""

import triton
import triton.language as tl


@triton.jit
def tile_order(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """The row and the column of a tile: GROUP_M rows of tiles run together, so that they share what they read in L2."""
    group = tile // (GROUP_M * tiles_n)
    size_m = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    tile_m = group * GROUP_M + tile % (GROUP_M * tiles_n) % size_m
    return tile_m, tile % (GROUP_M * tiles_n) // size_m


@triton.jit
def dot_of_whole(a, b, sum, HALVES: tl.constexpr, PRECISION: tl.constexpr):
    """sum + a b, for whole numbers a of at most 8 bits. Where HALVES, each b is a product of two numbers of bf16.

    Such a b is the sum of two numbers of bf16, so two products of bf16 are exact. Three of TF32 take three times as long.
    """
    if HALVES:
        whole, high = a.to(tl.bfloat16), b.to(tl.bfloat16)
        low = b - high.to(tl.float32)
        # If high is infinite, low is not finite, and the sum would be NaN.
        low = tl.where(tl.abs(low) < float("inf"), low, 0.0).to(tl.bfloat16)
        sum = tl.dot(whole, high, sum)
        return tl.dot(whole, low, sum)
    else:
        return tl.dot(a, b, sum, input_precision=PRECISION, out_dtype=sum.dtype)
