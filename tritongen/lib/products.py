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
