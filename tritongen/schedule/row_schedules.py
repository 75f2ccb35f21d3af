"""How rows run: the variants of a step, each with the formula of its config and what set it.

Input: the kernels of `classes/rows.py`. Output: `Variant`s, first match first. Figures are per cent of a
copy on one H200 (bytes read plus written) unless a comment says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tritongen.ir.dtypes import DTYPES
from tritongen.ir.free import free_indices
from tritongen.schedule.members import operands
from tritongen.schedule.paired import numbers_of
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Variant

# Rows that are not aligned: lanes load an element each, and pay for masked ones, so one that leaves a quarter of its block
# is walked instead. Beside a tile that is stored, folds in pairs, and single ones; not two tiles and a gain, which are
# walked three times: layer_norm's gradient of 16,001 x 11,349 in bf16 2,011 us, by the loop 2,754.
STORED, PAIRED, SINGLE = (8192, 32768), (4096, 8192), (8192, 16384)  # as `is_held` takes them

# (name, dtype) of what one part of a row leaves of the folds of a level.
State = tuple[tuple[str, str], ...]


def tiles(row: Axis, size: str = "ROWS") -> str:
    """How many tiles of `size` rows there are."""
    return f"row_runs * cdiv(row_run, {size})" if row.tail else f"cdiv(rows, {size})"


def rows(row: Axis, rule: str) -> str:
    """Rows a tile: no more than a run has."""
    return f"min({rule}, pow2(max(1, row_run)))" if row.tail else rule


FEW = "pow2(max(1, rows))"  # a tile has no more rows than there are, and the more columns


def near_or_across(near: str, far: str) -> str:
    """Columns of a tile: `near` of one row or a few, `far` elements in all where memory runs along the rows."""
    across = f"{far} // ROWS"
    return across if near == far else f"{across} if strided else {near}"


def block(col: Axis, rule: str) -> str:
    """Columns a tile: no more than a run has."""
    return f"min({rule}, max(16, pow2(col_run)))" if col.tail else rule


def split_variant(
    loop: KernelPlan,
    state: tuple[State, ...],
    writes: bool,
    counts: bool,
    along: bool = False,
    fits: str = "",
) -> Variant:
    """`state`: of each level; `writes`: whether tiles are stored; `along`: rows across memory run otherwise.

    `fits`: whether three blocks fit in shared memory, where a walk folds and stores. Gradients of gelu and of the bias behind it,
    16,384 x 8,192 in bf16, us with one block in flight, two and three: 304, 278, 295.

    softmax, rms_norm and layer_norm of one row of 4,194,304 in bf16: a block of 8,192 columns a program 59, 72 and
    63% of a copy of its size (four blocks of 4,096: 46, 59, 57), of 8 rows of 1,048,576 59, 59 and 57
    (58, 59, 53). Sums of 1 and of 16 rows, 2^27 and 2^26 f32: 2,048 columns, 96 and 85% (4 programs: 89 and 85). Across, columns of [1048576, 64] and [65536, 4096] in
    f32: 81 and 103% with 32 x 64 and 4 programs; 64 x 32 82 and 89. Sums over dim 0 in bf16 with 64 x 32, GB/s (32 x 64): [16384, 16384]
    3,871 (3,607), [4096, 50304] 3,711 (3,220), [32768, 4096] 3,362 (3,243), [2048, 12288] 1,915 (1,884). A pair of folds ends each block with reductions,
    so its blocks are longer there: batch norm of [64, 64, 112, 112] channels last 66% of its plan's
    bytes with 32 x 256, 39 with 32 x 64. Channels first, rows fill a tile that a run of columns
    does not: 4 x 1,024 in 4 warps 89%, and 95 of [64, 64, 256, 256]. Over short runs no more than 16 rows, since
    each merges PARTS_POW2 parts: batch norm of [4096, 128, 4, 4] in bf16 85 us (256 rows: 909; torch 284), of
    [512, 128, 7, 7] 82 (64 rows: 131; torch 81), of [1024, 64, 4, 4] in f32 74 (662; torch 15). An argmax, with two
    accumulators a lane, does best with 64 rows of 16 and 16 programs where there are many columns: over dim 0 of
    [65536, 4096] 92%, with 32 x 64 and 4 programs 77.
    """
    row, col = loop.axes
    grid, merges = tiles(row), not writes
    *_, programs = across(loop, counts)
    sides, warps, chunk = (
        tile_of_runs(loop, counts, along) if col.tail else tile_of_rows(loop, counts, merges)
    )
    most, near = ("2048" if merges else "256"), "16"
    if not merges and not col.tail:  # very wide rows, read twice: a block a program
        most, near = "256 if strided else 1024", "128 if cols >= 262144 else 16"
    programs = "16" if along else f"({programs} if strided else {near})"
    ahead = f"2 if strided and {in_wide_words(row)} and {fits} else 1"
    config = (
        *sides,
        ("PARTS", f"spread({programs} * sms, {grid}, min({most}, cdiv(cols, BLOCK)))"),
        ("CHUNK", chunk),
        # Fewer lanes than threads would give their layout to the whole tile.
        *((("PARTS_POW2", "max(PARTS, 256)"),) if len(state) > 1 or writes else ()),
        *((("MERGE", "1 if PARTS > 16 else 16"),) if merges else ()),
        *((("STAGES", ahead),) if fits else ()),
        ("num_warps", warps),
    )
    last = Launch(loop.name, (grid, "PARTS"))
    if merges:
        alone = ("ROWS", "MERGE"), ("PARTS_POW2", "PARTS"), ("num_warps", "num_warps")
        last = Launch(loop.name, (tiles(row, "MERGE"),), alone)
    many = "2"  # blocks of rows a multiprocessor, up to which several programs share a row
    if merges and not along and not col.tail:
        # us, H200, by split and by loop: cross_entropy of 427 x 537,072 in bf16 278, 354, of 320 x 310,232 134, 151;
        # logsumexp of 344 x 148,683 71, 83; maxima of 378 x 519,440 in f32 190, 207. Of 1,080 x 895,583 1,315, 1,259.
        many = "(2 if strided or cols <= 65536 else 4)"
    return Variant(
        "split",
        f"{unsplit(loop, along)} < {many} * sms and cols > {least_columns(loop, merges, along)}",
        "too few rows to fill the GPU: several programs share a row",
        config,
        in_passes(Launch(loop.name, (grid, "PARTS")), last, state),
        in_parts(*state),
    )


def across(loop: KernelPlan, counts: bool) -> tuple[str, str, str, str]:
    """The tile if memory runs along the rows: its rows and columns, warps, and programs per multiprocessor."""
    paired = numbers_of(loop.levels) > 0
    wide = "256" if paired else "64"
    if not counts:
        return "32", wide, "8", "4"
    rows_, cols, warps, programs = (
        f"({many} if rows > 1024 else {few})"
        for many, few in (("64", "32"), ("16", "64"), ("4", "8"), ("16", "4"))
    )
    return rows_, wide if paired else cols, warps, programs


Tile = tuple[tuple[tuple[str, str], ...], str, str]  # BLOCK and ROWS, num_warps, CHUNK


def tile_of_runs(loop: KernelPlan, counts: bool, along: bool) -> Tile:
    """The tile for rows that lie in several runs, and the number of blocks in a run."""
    row, col = loop.axes
    height, deep, few, _ = across(loop, counts)
    most, warps = ("2048", "8") if takes_few(loop) else ("4096", "4")
    width, own = f"{most} // min(4, {FEW})", f"min(16, {most} // BLOCK, {FEW})"
    if not along:
        width, own = f"{deep} if strided else {width}", f"{height} if strided else {own}"
        warps = warps if warps == few else f"{few} if strided else {warps}"
    chunk = "cdiv(col_runs * cdiv(col_run, BLOCK), PARTS)"
    return (("BLOCK", block(col, width)), ("ROWS", rows(row, own))), warps, chunk


def tile_of_rows(loop: KernelPlan, counts: bool, merges: bool) -> Tile:
    """The same of rows that lie in one run each, and how many columns in all."""
    height, _, few, _ = across(loop, counts)
    near = "2048" if merges else "8192 if cols >= 262144 else 4096"
    far = "8192" if numbers_of(loop.levels) else "2048"
    if counts:
        far = "(1024 if rows > 1024 else 2048)"
    elif merges and not numbers_of(loop.levels):
        height = "64 if itemsize <= 2 else 32"
    own = rows(loop.axes[0], f"min({height}, {FEW}) if strided else 1")
    warps = f"{few} if strided else 8" if counts else "8"
    sides = ("ROWS", own), ("BLOCK", near_or_across(near, far))
    return sides, warps, "BLOCK * cdiv(cols, BLOCK * PARTS)"


def unsplit(loop: KernelPlan, along: bool) -> str:
    """How many programs would take the rows whole. `along`: none of them lies across memory.

    Batch norm of [197, 300, 35, 9] in bf16 ran in 38 programs of 8 rows: 738 us (torch 138).
    """
    row, col = loop.axes
    most = "2048" if takes_few(loop) else "4096"
    short = f"{most} // {block(col, most)}" if col.tail else "1"  # ROWS of `loop`
    return tiles(row, short if along else f"32 if strided else {short}")


def least_columns(loop: KernelPlan, merges: bool, along: bool) -> str:
    """The number of columns above which programs share a row.

    Two launches and their scratch cost the host 29 us for a softmax of 64 rows of 32,768; eager takes 14. One launch takes 182 us for 4,096
    such rows, so about 6 for these. Few rows across memory make few tiles: 104 of 4,728 took 155 us in two programs, 405 of 1,688 took 128
    in seven.
    """
    least = "8192" if merges or loop.axes[1].tail else "32768"
    if along:
        return least
    return f"((512 if 32 <= rows < 16 * sms else 2048) if strided else {least})"


def takes_few(kernel: KernelPlan) -> bool:
    """Whether a thread has eight elements at a time: what folds take is stored as it is computed, or slides under the tile.

    Much is done for each of them then. us, H100, where a thread has up to 32, and spills, and so (torch): gradients of
    group_norm, f32 47 x 640 x 511 in 32 groups 1,885, 242 (123), bf16 112 x 407 x 416 312, 136 (66). Gradients of depthwise
    weights, by a loop of 4,096 a program, and so: f32 80 x 149 x 40 x 61 by 3 x 5 2,544, 1,567, f16 239 x 381 x 160 x 8 by
    1 x 3 1,654, 1,208, 136 x 649 x 19 x 96 by 2 x 5 937, 801; 16,384 in registers, f32 14 x 480 x 13 x 53 by 2 x 1 194, 58.
    """
    return kernel.slides or any(level.stores for level in kernel.levels)


def in_passes(part: Launch, last: Launch, state: tuple[State, ...]) -> tuple[Launch, ...]:
    """A launch for each level, which takes what those before it left, and one that stores what they come to."""
    runs = []
    for k in range(1, len(state) + 2):
        left = tuple(name for level in state[:k] for name, _ in level)
        run = part if k <= len(state) else last
        config = ("PASS", str(k)), *run.config
        runs.append(replace(run, config=config, part=k <= len(state), scratch=left))
    return tuple(runs)


def in_parts(*state: State) -> tuple[tuple[str, str, tuple[str, str]], ...]:
    """Scratch for them: a column for each part of a row."""
    return tuple((name, dtype, ("rows", "PARTS")) for level in state for name, dtype in level)


def two_pass_variant(two_pass: KernelPlan, state: State) -> Variant:
    """Rows that do not fit in registers, in tensors that do not fit in L2; one L2 for all programs, so no AMD.

    What lies between the two reads of a block, LAG blocks and a row, has to stay in L2: rms_norm of 128 rows of
    1,048,576 in bf16 71% of copy (4 * sms ahead: 67, 6: 63), of 1,024 rows of 131,072 75 (73, 65), as loops 58 and 69.
    With several rows a program, 2 x 4,096 or 4 x 2,048, 63. Folds in pairs are bound by instructions: in 4 warps
    each pays for more elements, and 80 registers let 6 programs share a multiprocessor. softmax 68 and 70 (as many
    registers as it takes, 96: 65 and 66; 8 warps 64 and 65; as loops 58 and 64). layer_norm, which reads a gain and a
    bias as well, 62 and 67 (57 and 68). softmax, rms_norm and layer_norm of 512 rows of 262,144 66, 73, 66 (58, 61,
    61). In f32 rms_norm 69 (59), layer_norm 48 (56). Moments of rows that are not aligned want more registers: layer_norm of
    717 x 158,569 1,450 us, by `split` 383.
    """
    (row, _), own = two_pass.axes, two_pass.counter
    numbers = numbers_of(two_pass.levels)
    least = 131072 if numbers > 2 else 65536
    blocks = "cdiv(cols, BLOCK)"
    scratch = tuple((part, dtype, ("rows", blocks)) for part, dtype in state)
    return Variant(
        "two_pass",
        f"not strided and forward_progress and {'itemsize <= 2 and ' if numbers else ''}"
        f"{'cols % 8 == 0 and ' if numbers > 2 else ''}{least} < cols <= 2**22 and rows * cols > 2**25",
        "x does not fit in L2, but the data between its two reads does",
        (
            ("BLOCK", "8192"),
            ("ROWS", "1"),
            ("LAG", "2 * sms"),
            ("num_warps", "4" if numbers else "8"),
            # Fewer lanes than threads would give their layout to the whole tile.
            ("PARTS_POW2", f"max(pow2({blocks}), 32 * num_warps)"),
            *((("maxnreg", "80"),) if numbers else ()),
        ),
        (Launch(two_pass.name, (f"({tiles(row)} + 1) * {blocks} + LAG",)),),
        (*scratch, (own, "i32", (f"1 + {tiles(row)}",))),
        ((own, own),),
        requires="forward_progress and 0 < cols <= 2**22",  # a lane for each block of a row
    )


def across_variant(
    loop: KernelPlan, state: State, doubles: bool, merge: KernelPlan, part: KernelPlan | None = None
) -> Variant:
    """Few rows across memory, such as the channels of images stored channels last: each lane keeps its own state.

    `part`: the kernel of the first launch, if that is not `loop`. The parts are merged once, and then written by short programs.

    The gradients of a ResNet-50's 53 batch norms, 128 images in bf16, ms on an H200: the sums with one block in flight and
    three 2.8 and 2.1 (a copy's speed is 1.3), dx behind merged parts 2.4 (1.9). By `split` all took 6.9. Of [719, 64, 27, 27] 105 us (154), of
    [776, 48, 30, 30] 115 (181). Channels that 16 does not divide: f32 [7943, 66, 8, 8] 2,453 (294).

    Moments: batch_norm of [64, 64, 256, 256] and [64, 64, 112, 112] in f32, per cent of a copy: the parts 99 and 87
    (64 x 64 in 8 warps 59 and 51, 64 x 128 in 8 96 and 84; a reduction a block, as `split` has it, 76 and 64);
    merged once, in 5 us, and then written by short programs 91 and 89 (merged by each, 163 registers a
    thread, 78 and 75); all of it 94 and 88, with 8,192 elements in 8 warps 93 and 85. In bf16 [64, 256, 56, 56]
    71% (by `split` 48), [256, 256, 14, 14] 50 (22); [64, 512, 7, 7] 20 us (by `loop` 115).
    """
    row, col = loop.axes
    grid, blocks = tiles(row), "col_runs * cdiv(col_run, BLOCK)"
    size, programs = ("4096", 3) if part else ("2048", 4)
    config = (
        ("ROWS", rows(row, "min(64, pow2(max(1, rows)))")),
        ("BLOCK", block(col, f"{size} // ROWS")),
        ("PARTS", f"spread({programs} * sms, {grid}, 512)"),
        ("CHUNK", f"cdiv({blocks}, PARTS)"),
        ("WRITES", f"max(4, cdiv({blocks}, 65535))"),  # a grid has no more along its second axis
        ("MERGE", "1"),
        ("STAGES", f"3 if {in_wide_words(row)} and {three_fit(loop, doubles)} else 1"),
        ("num_warps", "4"),
    )
    alone = ("PASS", "2"), ("PARTS_POW2", "1"), ("CHUNK", "WRITES"), ("num_warps", "4")
    left = tuple(name for name, _ in state)
    first = Launch(loop.name, (grid, "PARTS"), (("PASS", "1"),), part=True, scratch=left)
    first = Launch(part.name, ("PARTS", grid)) if part else first
    launches = (
        first,
        Launch(merge.name, (tiles(row, "MERGE"),)),
        Launch(loop.name, (grid, f"cdiv({blocks}, WRITES)"), alone, scratch=left),
    )
    return Variant(
        "across",
        f"strided and {tiles(row, '32')} < 2 * sms and cols > 512"
        + ("" if part else f" and {in_wide_words(row)}"),
        "few rows that lie across memory: several programs share them, each lane keeps a state",
        config,
        launches,
        in_parts(state),
        requires="cols > 0",  # without columns no program stores what a row has one number of
    )


def three_fit(loop: KernelPlan, doubles: bool) -> str:
    """Whether shared memory of 99 KiB holds three blocks of what a walk loads."""
    tiled = tiled_types(loop)
    known = sum(DTYPES[dtype].itemsize for dtype in tiled if dtype in DTYPES)
    varied = sum(dtype not in DTYPES for dtype in tiled)
    size = f"{known + 4 * varied}"
    if varied and doubles:
        size = f"({known + 8 * varied} if in_f64 else {size})"
    return f"ROWS * BLOCK * {size} <= 32768"


def tiled_types(loop: KernelPlan) -> list[str]:
    """The dtypes of the operands that lie along rows and columns."""
    row, col = ({*axis.names} for axis in loop.axes)
    read = ((r.tensor, r.dtype, free_indices(r)) for r in operands(loop.nests))
    found = dict.fromkeys((n, d) for n, d, own in read if own & col and (own & row or not row))
    return [dtype for _, dtype in found]


def in_wide_words(row: Axis) -> str:
    """Whether lanes can load 16 bytes of rows across memory. Asynchronous copies of 4 bytes are slower than plain loads."""
    return f"{'row_run' if row.tail else 'rows'} % 16 == 0"


def lines_variants(lines=None, loop=None) -> tuple[Variant, ...]:
    """A row of several runs: no element's run is found by a division, and a run has one gain.

    group_norm in bf16, us and per cent of the bytes in and out: [256, 256, 14, 14] in 8 groups 18 (66%; a copy of as many
    bytes 80), in 4 warps 20, flat 49; in 32 groups 17 (flat 39), [256, 128, 28, 28] 27 (89%; flat 75),
    [256, 512, 7, 7] 12, in 2 warps 14, flat 18; [64, 256, 56, 56] 73, in 32 warps 75, flat 485. By hand,
    without VEC 27 instead of 18. batch_norm by the loop: [256, 256, 14, 14] in bf16 21 us (in 16 warps 23, 8,192
    elements in 8 warps 25, `split` 75), [256, 256, 28, 28] 89 (88, 103, 101), [512, 256, 28, 28] 184 (183, `split` 196);
    f32 [64, 512, 28, 28] 67 (67, 75, `loop` 154), [128, 512, 14, 14] 31 (32, 35; 32,768 elements in registers 38).
    Longer runs: bf16 [136, 352, 45, 32] 136 (`split` 151, `loop` 290), group_norm of runs of 10,760 1,776 (1,903, 2,385).
    """
    run = "max(16, pow2(col_run))"
    size = f"pow2(col_runs) * {run}"

    def variant(kernel, when: str, why: str, fits: str, *config: tuple[str, str]) -> Variant:
        launch = Launch(kernel.name, ("rows",))
        when = f"{when} and not strided"
        return Variant(kernel.skeleton, when, why, config, (launch,), requires=fits)

    found = []
    if loop:
        full = "8 * col_run >= 5 * pow2(col_run)"  # runs of 2,357 by this loop 462 us, in registers 318
        when = f"sms <= rows and 16 <= col_run <= 16384 and {full} and {size} > 16384"
        why, fits = "short runs: many of them a tile", "0 < col_run <= 16384"
        config = ("BLOCK", run), ("LINES", "16384 // BLOCK"), ("num_warps", "8")
        found.append(variant(loop, when, why, fits, *config))
    if lines:
        when = f"512 <= cols and {size} <= min(32768, 2 * pow2(cols))"
        why, fits = "a row fits in registers, its runs as lines", f"0 < cols and {size} <= 32768"
        warps = "min(16, max(1, LINES * BLOCK // 1024))"
        config = ("LINES", "pow2(col_runs)"), ("BLOCK", run), ("num_warps", warps)
        found.append(variant(lines, when, why, fits, *config))
    return tuple(found)


def held_columns(dtypes: set[str], doubles: bool) -> str:
    """How wide a row is held in registers at most, where values and operands along it are of these types.

    Triton 3.6 takes a whole tile through shared memory where operands of two types lie in two layouts: 32,768
    elements of 8 bytes are 256 KiB, of 227 that there are (fuzz 1400-1995). `doubles`: whether a call may compute in f64.
    """
    if any(DTYPES[d].itemsize == 8 for d in dtypes & set(DTYPES)):
        return "16384"
    varied = doubles and not dtypes <= set(DTYPES)
    return "(16384 if in_f64 else 32768)" if varied else "32768"


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties that decide how whole rows are held in registers."""

    columns: bool  # whether operands lie along the columns alone, as a gain does
    counts: bool  # whether places are folded, and nothing is written along the row
    alone: bool  # whether one operand is a tile and none is a number a row (`is_alone`)
    several: bool  # whether more than one operand is a tile
    doubles: bool  # whether a call may compute in f64
    widest: str  # the most columns held, of `held_columns`
    odd: tuple[int, ...] = ()  # which rows that are not aligned are held, () for all
    plain: bool = False  # whether single folds are all that is computed of a row
    deep: bool = False  # whether many values of several tiles are held from fold to fold


def resident_variants(resident: KernelPlan, traits: Traits) -> tuple[Variant, ...]:
    """Measured with softmax, rms_norm and layer_norm in bf16 at 256 to 16,384 wide, 2^27 elements.

    An empty row goes to the loop, which has no masked lanes to keep out of its folds. Without column
    operands, one row of 8,192 in 4 warps reaches 95% of copy. With them several rows
    share each load of a gain (4 rows of 4,096 in 8 warps: 91 to 95%, one row: 78); beyond 4,096, 8 warps hold one
    row, 16,384 wide twice a multiprocessor: 91%, in 16 warps 78, read again from L2 84 (`row_values.py`).
    Short rows do best in programs of one warp, 1,024 elements each: softmax 256, 512 and 1,024 wide
    93, 99 and 99% of copy (2,048 in two warps 90, 97, 99), layer_norm 98 and 99; not beside other operands along
    the rows, where Triton 3.6 turns tiles within the warp, and `min` over bf16 was wrong on an H200. A softmax of 16,384 in 16
    warps reaches 92%, of 32,768 in 32 warps 75: 85 and 71 with an exp of twice the instructions.

    Rows that are not aligned by the loop instead, bf16 on one H200, us: logsumexp of 11,349 columns 870, 416, of
    16,385 320, 163, of 5,001 173, 124; softmax of 8,193 767, 595, of 11,349 998, 738, of 30,001 280, 303; rms_norm of
    11,349 1,057, 962. Of 2,305 with a gain in one row a program of 4 warps 272 (in four of 8 402), layer_norm 418
    (551), of 1,219 in two of 4 176 (in four of 8 199), of 2,047 113 (128), of 1,219 in f32 112 (127).
    """
    row, apart = resident.axes[0], "strided and 0 < cols <= 512"

    def held(name: str, when: str, why: str, height: str, warps: str, fits: str) -> Variant:
        block = "max(16, pow2(cols))" if name == "strided" else "max(4, pow2(cols))"
        config = ("BLOCK", block), ("ROWS", rows(row, height)), ("num_warps", warps)
        launch = Launch(resident.name, (tiles(row),))
        return Variant(name, when, why, config, (launch,), requires=fits)

    if takes_few(resident):  # of at most 8,192 elements, for which that is 32 warps
        why, fits = "a row fits in registers", "0 < cols <= 8192"
        when = "0 < cols <= 4096 and not strided"
        return (
            held("strided", apart, why, "max(1, 2048 // BLOCK)", "max(8, BLOCK // 256)", fits),
            held("rows", when, why, "max(1, 1024 // BLOCK)", "max(4, BLOCK // 256)", fits),
        )
    in_registers = "0 < cols <= 16384"  # masked lanes would reach the folds of an empty row
    # What is not aligned is loaded an element at a time, and few elements a thread hide that. 2^23 f32 and 2^25 bf16,
    # us, 1,024 elements in one warp and as here: log_softmax of 19 70 and 36, rms_norm of 31 92 and 35, layer_norm of
    # 100 64 and 48; softmax of 3 in 16 columns 89, in 4 23. kl_div, two operands: of 981 177 and 130, of 5,001 244 and 149.
    height = "held_rows(BLOCK, aligned)"
    short = "BLOCK <= 32"
    if traits.plain and traits.alone:
        # Programs of 1,024 elements start too slowly to read halves as fast as memory is. us of 2^28, H200, so and as here:
        # row_max in bf16 of 128 and 256 columns 166 and 137, 164 and 133, of 552 298 and 127, of 1,024 164 and 132;
        # in f32 of 552 298 and 250, else alike. An exp wants fewer elements: logsumexp of 552 325 and 422.
        many = "aligned and BLOCK <= 1024 and rows * BLOCK >= 2**22"
        height = f"4096 // BLOCK if {many} else {height}"
        short = "BLOCK <= 32 or BLOCK <= 1024 and ROWS * BLOCK == 4096"

    # H100, us, 8,192 elements in 8 warps and as here: means over the middle of 3000 x 40 x 100 in bf16 34 and 17, of 793 x 88 x 312
    # 37 and 28, of 1500 x 140 x 255 69 and 64; softmax of 700000 x 19 across 126 and 37, of 300000 x 60 59 and 35, of
    # 50000 x 450 45 and 43; in f32 of 350000 x 19 48 and 26; layer_norm of 100000 x 200 in bf16 45 and 40.
    # A thread holds half as many f64: 4,096 in two warps spilled.
    single, warps = " and not in_f64" if traits.doubles else "", 4 if traits.several else 2
    strided = held(
        "strided",
        apart,
        "short rows with elements far apart in memory: neighbouring rows are adjacent",
        f"max(1, (8192 if BLOCK > 128{single} else 4096) // BLOCK)",
        f"{warps} if BLOCK <= 128{single} else {2 * warps}",
        in_registers,
    )
    if traits.columns:
        low = f"({height})" if " if " in height else height
        height = f"{low} if BLOCK <= 512 else max(2, 2048 // BLOCK) if BLOCK <= 1024 else 4 if aligned and BLOCK <= 4096 else 2 if BLOCK <= 2048 else 1"
        one_warp, why = 512, "rows fit in registers"
        wide = "2 if BLOCK <= 1024 else 4 if not aligned and BLOCK <= 8192 else 8"
        most, fits = "16384", in_registers
    else:
        one_warp, why = 1024, "a row fits in registers"
        wide = "held_warps(BLOCK)" if traits.alone else "max(2, held_warps(BLOCK))"
        if traits.deep:
            wide = "max(4, BLOCK // 512)"
        elif traits.several:  # 16 elements a thread
            wide = f"max(4, BLOCK // 512) if not aligned and BLOCK <= 16384 else {wide}"
        # Of rows that are not aligned, us by the loop and so: f32 68744 x 685 105, 78, f16 498355 x 3311 2,283, 1,863.
        most = "(128 if aligned else 4096)" if traits.counts else traits.widest
        fits = in_registers if traits.counts else f"0 < cols <= {traits.widest}"
    if traits.alone:
        few = "" if wide == "held_warps(BLOCK)" else f"1 if BLOCK <= {one_warp} else "
        wide = f"4 if {short} else {few}{wide}"
    when = f"0 < cols <= {most} and not strided"
    if traits.odd:
        odd, full = traits.odd
        when = f"not strided and is_held(cols, aligned, {most.strip('()')}, {odd}, {full})"
    return strided, held("rows", when, why, height, wide, fits)


def loop_variant(
    loop, wide_tiles: bool, counts: bool, walked: bool = True, fits: str = ""
) -> Variant:
    """Any width. `walked`: whether these are whole rows as memory has them.

    `fits`: whether three blocks fit in shared memory, where single folds of one operand are all that is computed. us, one block in
    flight and three: sums of 4,096 rows of 65,536 in bf16 151, 131, of 4,402 of 30,490 135, 86, maxima of 565 of 237,168 in
    f16 88, 81, sums of these in f32 138, 145. With two operands kl_div of 4,402 x 30,490 in f16 234, 287. Pairs of folds: softmax of 2,048 x
    65,536 in bf16 168, 231.

    Where a value over the tile is stored: layer_norm at 32,768 wide 79% with 16,384 columns in 16 warps
    (32,768: 65; held in registers 66), at 131,072 69% with 32,768 in 32 (16,384: 63). group_norm of
    [64, 64, 256, 256] in 8 groups 93% with 4,096 in 8, of [64, 64, 112, 112] 89. An argmax carries
    two accumulators a lane: 8 rows by 128 columns in 2 warps 79 and 90% at 1,024 and 4,096 wide (held: 60), 1,024
    in 4 warps 89% at 65,536, of rows that are not aligned 512 in 2
    (f16 2000 x 6001 18 us, 8 x 128 58; bf16 32769 x 15991 331, as above 550), and 2,048 in 8 of longer ones (f32 823 x
    26241 44, 141; 12425 x 65537 437, 4,096 in 8 549; bf16 4848 x 53053 222, 210). Of such rows, layer_norm of 700 x 131,071 358 us with 4,096 columns in 8 warps (as above 599), softmax
    of 1500 x 40,001 131 with 8,192 in 16 (203), rms_norm of 700 x 50,001 in f32 135 (157); of 9,001 x 16,385 404 with
    4,096 in 8 (512), logsumexp of it 163 with 2,048 in 4 (190). Of few rows an argmax of 512 x 489,952 191 with 4,096 in 8
    (273), of 300 x 20,000 12 (17). Across, argmax over the middle of [128, 4096, 4095] and
    [64, 1024, 4096] in f32: 64 rows by 32 columns in 8 warps 94 and 101%, 64 x 16 92 and 102. Mean and max of the
    first, whose rows begin anywhere: 64 x 64 in 16 warps 95% (in 8 85), 32 x 64 in 16 95, 64 x 32 in 8 92 and 86,
    256 x 8 81; sums over dim 0 of [4096, 65536] in f32 and bf16 and of [4096, 65533] in f32 101, 95 and 91% (32 x 64
    101, 78 and 83; 64 x 32 in 8 99, 92 and 81). On an H100 32 x 64 in 8: means of 990 x 840 x 369 in f16 291, 252 us, of
    64 x 1024 x 1111 in bf16 82, 69, in f32 of half of them 71, 67, of 40 x 3000 x 1000 103, 104.
    """
    row, col = loop.axes
    numbers = numbers_of(loop.levels)
    paired = numbers > 0
    single = not (paired or col.tail or wide_tiles or counts)
    tall, far = "32" if paired or single else "64", "8192" if paired else "2048"
    height = f"min({tall}, {FEW}) if strided else 1"
    if col.tail:
        most = "2048" if takes_few(loop) else "4096"
        width, warps = f"{256 if paired else 32} if strided else {most}", "8"
        height = f"{tall} if strided else {most} // BLOCK"
    elif takes_few(loop):
        width, warps = "2048", "8"
    elif wide_tiles:
        width = f"wide_block(cols, aligned, {'cols' if numbers > 2 else 24576})"
        warps = "8 if strided else BLOCK // 512 if not aligned else 16 if cols <= 65536 else 32"
    elif counts:
        height = height.replace("else 1", "else 8 if cols <= 8192 and aligned else 1")
        odd = "512 if cols <= 16384 else 2048"
        far_ = "4096 if rows < 8 * sms else 1024"
        width = f"({odd}) if not aligned else 128 if cols <= 8192 else {far_}"
        short = "cols <= (8192 if aligned else 16384)"
        warps = f"8 if strided or BLOCK >= 2048 else 2 if {short} else 4"
    elif paired and walked:
        width = "4096 if aligned or rows < 4 * sms else 2048"
        warps = "8 if strided else BLOCK // 512"
    else:
        width, warps = "4096", "8"
    if not col.tail:
        width = near_or_across(width, far)
    sides = (("BLOCK", block(col, width)), ("ROWS", rows(row, height)))
    ahead = f"3 if not strided and itemsize <= 2 and {fits} else 1"
    fetched = (("STAGES", ahead),) if fits else ()
    config = (*(sides if col.tail else sides[::-1]), *fetched, ("num_warps", warps))
    return Variant("loop", "True", "any width", config, (Launch(loop.name, (tiles(row),)),))
