"""Copies of operands, by one kernel: if strides allow no view, or a descriptor cannot take their tiles.

    x = reshaped(x, batch, D)      # a view if there is one
    x, t = flattened(x, t)         # the same, for elements that may come in any order
    x = packed(x)                  # [..., rows, cols], rows at multiples of 16 bytes
    x = in_lines(x)                # the elements of the last dim next to each other
    w = converted(w, x.dtype)

On an H200 they move 3.3 TB/s of bf16. torch's copy moves 1.7 if rows are not aligned, and 0.6 if it transposes.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from tritongen.lib.functions import blocks


def reshaped(x: torch.Tensor, *shape: int) -> torch.Tensor:
    """Same as `x.reshape(shape)`, with one kernel if a copy is needed."""
    try:
        return x.view(shape)
    except RuntimeError:  # its strides allow none
        copy = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        return copied(x, copy, 0).view(shape)


def flattened(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Flattens tensors of one shape, in the memory order of the first tensor that repeats no element."""
    first = ([t for t in tensors if 0 not in t.stride()] or tensors)[0]
    order = sorted(range(first.dim()), key=first.stride, reverse=True)
    return tuple(reshaped(t.permute(order), t.numel()) for t in tensors)


def packed(x: torch.Tensor) -> torch.Tensor:
    """A copy of x [..., rows, cols] whose rows are contiguous and begin at multiples of 16 bytes."""
    step = 16 // x.element_size()
    cols = x.shape[-1]
    behind = -cols % step
    copy = torch.empty((*x.shape[:-1], cols + behind), dtype=x.dtype, device=x.device)
    return copied(x, copy[..., :cols], behind)


def in_lines(x: torch.Tensor) -> torch.Tensor:
    """x, or a copy, so that the elements of the last dim are next to each other."""
    if x.stride(-1) == 1:
        return x
    return copied(x, torch.empty(x.shape, dtype=x.dtype, device=x.device), 0)


def in_rows(x: torch.Tensor) -> torch.Tensor:
    """x [..., rows, cols], or a contiguous copy if its columns are contiguous instead and its rows have more than 512 elements.

    A kernel that holds whole rows would read a sector of 32 bytes for each element.
    """
    return in_lines(x) if 0 < x.stride(-2) < x.stride(-1) and x.shape[-1] > 512 else x


def converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A copy with another dtype."""
    return copied(x, torch.empty(x.shape, dtype=dtype, device=x.device), 0)


def copied(x: torch.Tensor, y: torch.Tensor, behind: int) -> torch.Tensor:
    """A copy of x as y, which has x's shape, with so many zeros behind each row.

    If more than five dims are left after merging, torch makes the copy.
    """
    *outer, (cols, x_col, y_col) = dims(x, y)
    if len(outer) > 4:
        if behind:
            after = y.storage_offset() + y.shape[-1]
            y.as_strided((*y.shape[:-1], behind), y.stride(), after).zero_()
        return y.copy_(x)
    if y.numel() == 0:
        return y
    outer = [(1, 0, 0)] * (4 - len(outer)) + outer
    # A tile's rows lie along the memory of x, where its columns do not.
    nearest = min((stride or 2**62, k) for k, (_, stride, _) in enumerate(outer))[1]
    along = 3 if x_col == 1 else nearest
    rows, x_row, y_row = outer.pop(along)
    sizes, xs, ys = zip(*outer, strict=True)
    width = cols + behind
    VEC_X, VEC_Y = math.gcd(16, cols, *xs, x_row), math.gcd(16, width, *ys, y_row)
    # If lanes load and store 2 bytes each, one warp transposes a small tile: bf16 15 x 285 x 34777 217 us, else 372.
    alone = x_col != 1 and x.element_size() * max(VEC_Y, math.gcd(16, x_col, *xs)) <= 2
    BLOCK = min(triton.next_power_of_2(width), 1024 if x_col == 1 else 32 if alone else 64)
    ROWS = min(triton.next_power_of_2(rows), 32 if alone else 4096 // BLOCK)
    tiles = math.prod(sizes) * triton.cdiv(rows, ROWS) * triton.cdiv(width, BLOCK)
    _copy[(tiles,)](
        x, y, *sizes[1:], rows, cols, width, *xs, x_row, x_col, *ys, y_row, y_col,
        VEC_X=VEC_X, VEC_Y=VEC_Y, ROWS=ROWS, BLOCK=BLOCK, num_warps=1 if alone else 4,
    )  # fmt: skip
    return y


def dims(x: torch.Tensor, y: torch.Tensor) -> list[tuple[int, int, int]]:
    """(size, stride in x, stride in y) of each dim, y's outermost first. Neighbours that are one run in both are merged."""
    found: list[tuple[int, int, int]] = []
    last = max(0, y.dim() - 1)
    for k in sorted(range(y.dim()), key=y.stride, reverse=True):
        size, x_stride, y_stride = x.shape[k], x.stride(k), y.stride(k)
        if found and found[-1][1:] == (size * x_stride, size * y_stride):
            found[-1] = found[-1][0] * size, x_stride, y_stride
        elif size != 1 or k == last:
            found.append((size, x_stride, y_stride))
    return found or [(1, 1, 1)]


@triton.jit
def _copy(
    x_ptr, y_ptr, n1, n2, rows, cols, width, x_0, x_1, x_2, x_row, x_col, y_0, y_1, y_2, y_row,
    y_col,
    VEC_X: tl.constexpr, VEC_Y: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program copies a tile of ROWS x BLOCK elements. A row loads `cols` elements and stores `width`, so that stores are wide."""
    # VEC_X, VEC_Y divide these sizes, so accesses may be that wide. Triton only knows multiples of 16.
    cols, x_row = cols // VEC_X * VEC_X, x_row // VEC_X * VEC_X
    x_0, x_1, x_2 = x_0 // VEC_X * VEC_X, x_1 // VEC_X * VEC_X, x_2 // VEC_X * VEC_X
    width, y_row = width // VEC_Y * VEC_Y, y_row // VEC_Y * VEC_Y
    y_0, y_1, y_2 = y_0 // VEC_Y * VEC_Y, y_1 // VEC_Y * VEC_Y, y_2 // VEC_Y * VEC_Y
    tiles_m, tiles_n = blocks(rows, ROWS), blocks(width, BLOCK)
    tile = tl.program_id(0)
    row = (tile // tiles_n % tiles_m).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = (tile % tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    outer = (tile // tiles_n // tiles_m).to(tl.int64)
    at_0, at_1, at_2 = outer // n2 // n1, outer // n2 % n1, outer % n2
    x_at = x_ptr + at_0 * x_0 + at_1 * x_1 + at_2 * x_2 + row * x_row + col * x_col
    y_at = y_ptr + at_0 * y_0 + at_1 * y_1 + at_2 * y_2 + row * y_row + col * y_col
    x = tl.load(x_at, mask=(row < rows) & (col < cols), other=0.0)
    tl.store(y_at, x, mask=(row < rows) & (col < width))
