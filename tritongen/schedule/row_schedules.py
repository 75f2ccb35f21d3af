"""How rows run: the variants of a step, each with the formula of its config and what set it.

Input: the kernels of `classes/rows.py`. Output: `Variant`s, first match first. Figures are per cent of a
copy on one H200 (bytes read plus written) unless a comment says otherwise.
"""

from __future__ import annotations

from tritongen.schedule.plan import Axis, Launch, Variant


def tiles(row: Axis, size: str = "ROWS") -> str:
    """How many tiles of `size` rows there are."""
    return f"row_runs * cdiv(row_run, {size})" if row.tail else f"cdiv(rows, {size})"


def rows(row: Axis, rule: str) -> str:
    """Rows a tile: no more than a run has."""
    return f"min({rule}, pow2(max(1, row_run)))" if row.tail else rule


def block(col: Axis, rule: str) -> str:
    """Columns a tile: no more than a run has."""
    return f"min({rule}, max(16, pow2(col_run)))" if col.tail else rule


def block_config(row: Axis, col: Axis, width: str, warps: str, far: tuple[int, int]):
    """ROWS, BLOCK and num_warps of a kernel that walks its columns in blocks of `width`.

    `far`: rows and columns where the tile lies across, its lanes along the rows. Where a run of columns is
    shorter than a block, rows fill the tile: batch norm of [64, 64, 112, 112] 89% of its plan's bytes
    with 4 x 1,024 in 4 warps.
    """
    if not col.tail:
        return (
            ("ROWS", rows(row, f"{far[0]} if across else 1")),
            ("BLOCK", f"{far[1]} if across else {width}"),
            ("num_warps", "8" if warps == "8" else f"8 if across else {warps}"),
        )
    return (
        ("BLOCK", block(col, f"{far[1]} if across else 1024")),
        ("ROWS", rows(row, f"{far[0]} if across else 4096 // BLOCK")),
        ("num_warps", "8 if across else 4"),
    )


def split_variant(parts, finish, state: tuple[tuple[str, str], ...]) -> Variant:
    """`state`: (name, dtype) of what one part of a row leaves behind."""
    row, col = finish.axes
    grid = tiles(row)
    chunk = "cdiv(col_runs * cdiv(col_run, BLOCK), PARTS)"
    # Across, columns of [1048576, 64] and [65536, 4096] f32: 81 and 103% with 32 x 64; 64 x 32 65 to 76. A
    # pair of folds ends each block with reductions, so its blocks are longer.
    paired = any(level.pairs for level in finish.levels)
    *sizes, warps = block_config(row, col, "2048", "8", (32, 256 if paired else 64))
    merges = finish.skeleton == "merge"
    config = (
        *sizes,
        (
            "PARTS",
            f"pow2(max(1, min(256, cdiv(8 * sms, max(1, {grid})), cdiv(cols, 2 * BLOCK))))",
        ),
        ("CHUNK", chunk if col.tail else "BLOCK * cdiv(cols, BLOCK * PARTS)"),
        *((("MERGE", "1 if PARTS > 16 else 16"),) if merges else ()),
        warps,
    )
    last = (tiles(row, "MERGE"),) if merges else ("PARTS", grid)
    return Variant(
        "split",
        f"{tiles(row, '32 if across else 1')} < 2 * sms and cols > 8192",
        "too few rows to fill the GPU: several programs share one",
        config,
        (*(Launch(p.name, ("PARTS", grid)) for p in parts), Launch(finish.name, last)),
        tuple((part, dtype, ("rows", "PARTS")) for part, dtype in state),
    )


def resident_variants(resident, again, counts: bool) -> tuple[Variant, ...]:
    """Measured with softmax, rms_norm and layer_norm in bf16 at 256 to 16,384 wide, 2^27 elements.

    An empty row goes to the loop, which has no masked lanes to keep out of its folds. Without column
    operands, one row of 8,192 in 4 warps reaches 95% of copy. With them, two things
    count: several rows share each load of a gain (4 rows of 4,096 in 8 warps: 91 to 95%, one row: 78),
    and beyond 4,096 a row, its gain and its bias no longer fit the registers of two programs a
    multiprocessor; reading x again from L2 does (16,384 wide: 84%, held: 55 to 74).
    Short rows do best in programs of one warp, 1,024 elements each: softmax 256, 512 and 1,024 wide
    93, 99 and 99% of copy (2,048 in two warps 90, 97, 99), layer_norm 98 and 99.
    """
    row = resident.axes[0]
    launch = (Launch(resident.name, (tiles(row),)),)
    across = Variant(
        "across",
        "across and 0 < cols <= 512",
        "short rows whose elements lie far apart: memory runs along the rows' own axis",
        (
            ("BLOCK", "max(16, pow2(cols))"),
            ("ROWS", rows(row, "max(1, 8192 // BLOCK)")),
            ("num_warps", "4 if BLOCK <= 16 else 8"),
        ),
        launch,
    )
    if not again:
        config = (
            ("BLOCK", "max(16, pow2(cols))"),
            ("ROWS", rows(row, "max(1, 1024 // BLOCK)")),
            (
                "num_warps",
                "1 if BLOCK <= 1024 else 2 if BLOCK <= 2048 else 4 if BLOCK <= 8192 else 16 if BLOCK <= 16384 else 32",
            ),
        )
        rows_ = Variant(
            "rows",
            f"0 < cols <= {1024 if counts else 32768} and not across",
            "a row fits in registers",
            config,
            launch,
        )
        return across, rows_
    narrow = (
        ("BLOCK", "max(16, pow2(cols))"),
        (
            "ROWS",
            rows(
                row,
                "max(1, 1024 // BLOCK) if BLOCK <= 512 else max(2, 2048 // BLOCK) if BLOCK <= 1024 else 4",
            ),
        ),
        ("num_warps", "1 if BLOCK <= 512 else 2 if BLOCK <= 1024 else 8"),
    )
    wide = (
        ("BLOCK", "pow2(cols)"),
        ("ROWS", "1"),
        ("num_warps", "8 if BLOCK <= 8192 else 16"),
    )
    return (
        across,
        Variant("rows", "0 < cols <= 4096 and not across", "rows fit in registers", narrow, launch),
        Variant(
            "wide",
            "0 < cols <= 16384 and not across",
            "a row fits in registers, but not for long beside its column operands",
            wide,
            (Launch(again[0].name, (tiles(row),)),),
        ),
    )


def loop_variant(loop, wide_tiles: bool, counts: bool) -> Variant:
    """Any width.

    Where a value over the tile is stored, 16,384 columns in 16 warps: layer_norm at 32,768 wide 77%
    (8,192: 66 to 73; held in registers 66), at 131,072 66% with hints for the cache, 60 without. An argmax carries
    two accumulators a lane: 1,024 columns in 4 warps 85 and 92% at 4,096 and 65,536 wide, 4,096 in 8
    warps 50 and 83. Across, mean and argmax over the middle of [128, 4096, 4095] and [64, 1024, 4096] in f32: 64
    rows by 32 columns in 8 warps 93 to 104%, 128 x 32 94, 64 x 16 in 4 warps 85 to 104.
    """
    row, col = loop.axes
    width, warps = ("16384", "16") if wide_tiles else ("1024", "4") if counts else ("4096", "8")
    paired = any(level.pairs for level in loop.levels)
    config = block_config(row, col, width, warps, (32, 256) if paired else (64, 32))
    return Variant("loop", "True", "any width", config, (Launch(loop.name, (tiles(row),)),))
