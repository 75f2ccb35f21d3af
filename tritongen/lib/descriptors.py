"""Tiles by tensor descriptor: which operands can have one, the descriptors, and copies for the others.

    if takes_tiles(x, w):
        x_tiles, trans_x = tiles(x, BLOCK_M, BLOCK_K)    # x [..., rows, cols]
        y_tiles = tiles_to_store(y, BLOCK_M, BLOCK_N)     # None if y is stored through pointers

A descriptor needs rows that are contiguous and start at multiples of 16 bytes.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from tritongen.lib.copies import copied, packed
from tritongen.lib.device import gpu


def takes_tiles(*operands: torch.Tensor) -> bool:
    """Whether tiles of these, or of copies where they are not aligned, can be loaded by descriptor."""
    if not gpu(operands[0].device).tma:
        return False
    # Coordinates have 32 bits, that of the tile behind the last one too.
    return all(min(x.shape) > 0 and max(x.shape) < 2**31 - 2**16 for x in operands)


def repeats(*operands: torch.Tensor) -> bool:
    """Whether a tensor repeats itself along a batch. A descriptor cannot, and a copy is as large as the tensor looks."""
    return any(0 in x.stride()[:-2] for x in operands)


def is_aligned(x: torch.Tensor) -> bool:
    """Whether rows are contiguous and begin at multiples of 16 bytes."""
    step = 16 // x.element_size()
    outer = zip(x.shape[:-1], x.stride(), strict=False)
    return (
        x.stride(-1) == 1
        and x.data_ptr() % 16 == 0
        and all(stride % step == 0 and stride > 0 or size == 1 for size, stride in outer)
    )


def descriptor(x: torch.Tensor, *block: int) -> TensorDescriptor:
    """A descriptor for tiles of an aligned tensor, over its last dims."""
    outer = zip(x.shape[:-1], x.stride(), strict=False)
    strides = [16 if size == 1 else stride for size, stride in outer]
    whole = [*[1] * (x.dim() - len(block)), *block]
    return TensorDescriptor(x, list(x.shape), [*strides, 1], whole)


def boxes(x: torch.Tensor, *sides: int) -> TensorDescriptor | None:
    """A descriptor for boxes of these sides, one for each dim; None if a side is 0. If x is not aligned, a copy is described."""
    if 0 in sides:
        return None
    return descriptor(x if is_aligned(x) else packed(x), *sides)


# ---- matrices -----------------------------------------------------------------------------------
def tiles(
    x: torch.Tensor, rows: int, cols: int, by_columns: bool = False
) -> tuple[TensorDescriptor, bool]:
    """A descriptor by tiles of rows x cols, and whether it sees x transposed. If x is not aligned, a copy is described.

    `by_columns`: tensor cores take the second factor by columns, except for 16 bits. A copy costs less than transposing tiles.
    """
    if by_columns and x.element_size() != 2 and x.stride(-2) != 1:
        x = packed(x.mT).mT
    transposed = not is_aligned(x) and (x.stride(-1) != 1 or x.shape[-1] == 1)
    x = x.mT if transposed else x
    x = x if is_aligned(x) else packed(x)
    return (descriptor(x, cols, rows) if transposed else descriptor(x, rows, cols)), transposed


def tiles_to_store(y: torch.Tensor, rows: int, cols: int) -> TensorDescriptor | None:
    """A descriptor for tiles of rows x cols to store. None if rows are not aligned, or if they or tiles end within 16 bytes."""
    size = y.element_size()
    whole = y.shape[-1] * size % 16 == 0 and cols * size >= 16  # a store fills what it has begun
    return descriptor(y, rows, cols) if whole and is_aligned(y) else None


def copied_bytes(*operands: torch.Tensor) -> int:
    """The bytes of operands whose tiles no descriptor can take as they are stored, in either order."""
    return sum(x.nbytes for x in operands if not (is_aligned(x) or is_aligned(x.mT)))


def transposed_bytes(*operands: torch.Tensor) -> int:
    """The bytes of second factors that a descriptor takes only by rows. `tiles` copies them by columns."""
    return sum(
        x.nbytes for x in operands if x.element_size() != 2 and x.stride(-2) != 1 and is_aligned(x)
    )


def vectorized(*operands: torch.Tensor) -> bool:
    """Whether Triton knows that lanes can load 16 bytes: rows start and end at multiples of 16 elements.

    An f32 factor of at most 16 rows or columns does not count beside a factor of eight times its size, which makes nearly all loads.
    Narrower types always count: an asynchronous copy has at least four bytes, and a narrower load makes a step wait, however few there are.
    us on an H100, with such a factor counted and not counted: f32 3 x 8192 x 8192 132, 113 (cuBLAS 139), 16 x 4096 x 14336 124, 103
    (132), 10 x 752 x 752 12.5, 13.7; f16 5 x 2048 x 32768 68, 223.
    """
    most = max(x.numel() for x in operands)
    dims = list[tuple[int, int]]()
    for x in operands:
        if x.element_size() < 4 or min(x.shape[-2:]) > 16 or 8 * x.numel() > most:
            dims += zip(x.shape, x.stride(), strict=True)
            if x.data_ptr() % 16:
                return False
    return all(s % 16 == 0 or s == 1 and n % 16 == 0 for n, s in dims if n > 1)


def vec(*numbers: int) -> int:
    """The power of two that divides sizes and strides, if Triton does not see it by itself. 1 if 16 divides all of them.

    Stated in that case too, it took a kernel of three dims from 123 registers to 134, and one program from each multiprocessor.
    """
    return math.gcd(16, *numbers) % 16 or 1


# ---- images -------------------------------------------------------------------------------------
def padded(x: torch.Tensor, multiple: int) -> torch.Tensor:
    """x [..., channels], or a copy with aligned rows, whose channels are padded with zeros to a multiple."""
    channels = x.shape[-1]
    behind = -channels % multiple
    if not behind and is_aligned(x):
        return x
    copy = torch.empty((*x.shape[:-1], channels + behind), dtype=x.dtype, device=x.device)
    copied(x, copy[..., :channels], behind)
    return copy


def packed_bytes(*operands: torch.Tensor, whole: int = 1) -> int:
    """The bytes of operands whose channels, the last dim, are not adjacent or not a multiple of so many."""
    return sum(x.nbytes for x in operands if x.stride(-1) != 1 or x.shape[-1] % whole)


def has_room(*packed: torch.Tensor, whole: int, beside: tuple[torch.Tensor, ...]) -> bool:
    """Whether padded copies take at most 64 MiB, or at most as much as the tensors `beside`.

    The last dim of each copy is padded to a multiple of `whole`.
    """
    copied = [x for x in packed if x.stride(-1) != 1 or x.shape[-1] % whole]
    wider = (-(-x.shape[-1] // whole) * whole * x.nbytes // max(1, x.shape[-1]) for x in copied)
    return sum(wider) <= max(64 << 20, sum(t.nbytes for t in beside))


def takes_patches(*operands: torch.Tensor, copied: bool = False, stepped: bool = False) -> bool:
    """Whether patches of these, or of packed copies, can be loaded by descriptor along the last dim.

    `copied`: unaligned operands are copied. `stepped`: for the tensors that `every` returns.
    """
    if stepped:  # a row reaches over others, and coordinates have 32 bits
        reach = (n * s for x in operands for n, s in zip(x.shape[1:], x.stride()[1:], strict=True))
        if max(reach) >= 2**29:
            return False
    step = 16 // operands[0].element_size()
    aligned = (is_aligned(x) or x.stride(-1) != 1 and x.shape[-1] % step == 0 for x in operands)
    return takes_tiles(*operands) and not repeats(*operands) and (copied or all(aligned))


def every(x: torch.Tensor, *steps: int) -> torch.Tensor:
    """A view with every step-th element along each dim but the last. The last dim also covers the elements in between."""
    shape, strides, reach = [], [], x.shape[-1]
    for size, stride, step in zip(x.shape, x.stride(), steps, strict=False):
        shape.append(size // step)
        strides.append(stride * step)
        reach += stride * (step - 1)
    return x.as_strided((*shape, reach), (*strides, 1))


@cache
def strip(ends: tuple[tuple[int, bool], ...]) -> tuple[int, int]:
    """The dim along which strips are long, and their length. (-1, 0) if no dim has strips that end with its last term.

    `ends`: of each dim, how many terms it has, and whether a strip may reach beyond the last one.

    The time of a strip grows with its length + 24: on an H200 one of 32 terms takes 0.6 of the time of one of 64, one of 16 takes 0.45.
    """
    found = [
        (_count(ends, dim, length) * (length + 24), -length, -dim)
        for dim, (extent, beyond) in enumerate(ends)
        for length in (64, 32, 16)
        if beyond or extent % length == 0
    ]
    _, length, dim = min(found, default=(0, 0, 1))
    return -dim, -length


def strip_dim(ends: tuple[tuple[int, bool], ...]) -> int:
    """The dim along which strips are long."""
    return strip(ends)[0]


def strip_terms(ends: tuple[tuple[int, bool], ...]) -> int:
    """The length of a strip."""
    return strip(ends)[1]


def strips(ends: tuple[tuple[int, bool], ...]) -> int:
    """The number of strips that take all terms."""
    return _count(ends, *strip(ends))


def _count(ends: tuple[tuple[int, bool], ...], dim: int, length: int) -> int:
    return math.prod(-(-n // length) if k == dim else n for k, (n, _) in enumerate(ends))


@cache
def rereads(whole: int, terms: int, step: int, first: int, apart: int = 0, hops: int = 1) -> bool:
    """Whether strips of a dim may reach beyond the last term: all that they read there is read anyway, or lies outside of the dim.

    The dim has `whole` elements. Term t of hop h is the element `t * step + first + h * apart`.
    """
    if step < 1:
        return False
    # Hops whose starts have one remainder read the same elements. Behind the last term of a hop, the next hop begins at `after`.
    starts = [first + h * apart for h in range(hops)]
    ordered = sorted((start % step, start) for start in starts)
    for (rest, start), (other, after) in zip(ordered, [*ordered[1:], (-1, 0)], strict=False):
        end = start + terms * step
        stop = end + 63 * step
        if rest == other:
            stop = min(stop, after)
        if any(0 <= at < whole for at in range(end, stop, step)):
            return False
    return True


@cache
def patch(places: int, *extents: int, steps: int = 1, apart: int = 1) -> tuple[int, ...]:
    """The sides of patches of so many places: powers of two that cover the extents at the least cost. Long sides come last.

    A patch takes `steps` of the loop and its store. The store costs more if fewer places of a row are adjacent: neighbours along the last dim
    are `apart` elements apart. f32 as TF32, 18 steps, 2, 4, 8, 16 and 32 places of a row: 95, 130, 194, 227 and 239 TFLOP/s. Rows of
    13 places in patches of single places, which waste none: 2,236 us, by taps 726.
    """
    return _cover(places, extents, steps, apart)[1]


@cache
def covered(*extents: int, apart: int = 1) -> int:
    """The number of places that patches of 128 cover, including places outside, in a loop of about 8 steps."""
    return 128 * _cover(128, extents, 8, apart)[0]


def _cover(
    places: int, extents: tuple[int, ...], steps: int, apart: int
) -> tuple[int, tuple[int, ...]]:
    """The number of patches, and their sides.

    The fewest patches of 2**k places that cover the dims so far follow from those of fewer dims: a dim takes a part of k.
    """
    *outer, last = extents
    fewest: list[tuple[int, tuple[int, ...]] | None] = [
        (1, ()),
        *[None] * (places.bit_length() - 1),
    ]
    for extent in outer:
        counts = [-(-extent // side) for side in _powers(places)]
        fewest = [
            min(
                (one[0] * count, (*one[1], side))
                for one, count, side in zip(fewest[k::-1], counts, _powers(places), strict=False)
                if one is not None
            )
            for k in range(len(counts))
        ]
    found = []
    for one, side in zip(reversed(fewest), _powers(places), strict=True):
        if one is not None:
            # Neighbours that lie further apart share no sector, and patches need no long rows.
            stored = 800 / (side * (side + 8)) if apart <= 8 else 0
            count = one[0] * -(-last // side)
            found.append((count * (steps + 8 + stored), -side, (*one[1], side), count))
    *_, sides, count = min(found)
    return count, sides


@cache
def _powers(places: int) -> tuple[int, ...]:
    return tuple(1 << k for k in range(places.bit_length()))
