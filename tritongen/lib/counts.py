"""Functions of whole numbers in which rules speak of configs and grids: `min(64, cdiv(D, 4096))`.

`choose_<step>` calls them as they are printed, and `schedule/rules.py` runs this file to evaluate rules. It imports nothing.
"""

from __future__ import annotations


def cdiv(a: int, b: int) -> int:
    """Same as triton.cdiv, in a tenth of its time."""
    return -(-a // b)


def pow2(n: int) -> int:
    """The least power of two that is at least n. Same as triton.next_power_of_2."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


def first_block(n: int) -> int:
    """The lanes of a block that holds n numbers, or of the first of two (`rest_block`)."""
    return pow2(n) // 2 if rest_block(n) else max(16, pow2(n))


def rest_block(n: int) -> int:
    """The lanes of a second block: 96 numbers are 64 and 32, not 128. 0 where one block is as small."""
    rest = max(16, pow2(n - pow2(n) // 2))
    return rest if 2 * rest < pow2(n) else 0


def parts(programs: int, tiles: int, steps: int, least: int = 1) -> int:
    """The number of programs that share a tile: a power of two, as many as are free, each with at least four steps of the loop.

    If several share a tile, no fewer than `least` do: an accumulator of f32 loses digits with every term.
    """
    found = max(1, pow2(min(programs // max(1, tiles), cdiv(steps, 4)) + 1) // 2)
    return max(found, pow2(least)) if found > 1 else 1


def shares(programs: int, tiles: int, most: int) -> int:
    """The number of programs if each needs little: rounded up so that all programs have work, at most `most`."""
    return max(1, min(most, cdiv(programs, max(1, tiles))))


def spread(programs: int, tiles: int, most: int) -> int:
    """The same, a power of two."""
    return pow2(shares(programs, tiles, most))


def filled(tiles: int, programs: int) -> bool:
    """Whether the last waves of tiles leave at most two sevenths of the places empty."""
    return 7 * tiles >= 5 * programs * cdiv(tiles, programs)


def is_held(cols: int, aligned: bool, most: int, odd: int, full: int) -> bool:
    """Whether a program holds a whole row in registers.

    most: the largest number of columns.
    odd, full: limits of rows that are not aligned, in which each lane loads single elements. A row may have `odd` columns, or
        `full` if it fills three quarters of its block, so that few lanes are masked.
    """
    return 0 < cols <= most and (
        aligned or cols <= odd or cols <= full and 4 * cols > 3 * pow2(cols)
    )


def held_rows(block: int, aligned: bool) -> int:
    """The number of rows that a program holds. It is smaller if lanes load single elements."""
    return max(1, (512 if not aligned and block <= 256 else 1024) // block)


def held_warps(block: int) -> int:
    """The number of warps that hold a row."""
    least = ((1024, 1), (2048, 2), (8192, 4), (16384, 16))
    return next((warps for most, warps in least if block <= most), 32)


def wide_block(cols: int, aligned: bool, odd: int) -> int:
    """The number of columns that a loop over a row takes at a time. Rows that are not aligned take more from `odd` columns on."""
    if aligned:
        return 16384 if cols <= 65536 else 32768
    return 4096 if cols <= odd else 8192
