"""Products of f32 as three products of TF32 numbers: which operands are split ahead, and in what tiles.

    a * b = rest(a) * b + a * rest(b) + a * b      but for rest(a) * rest(b), 2**-22 of it

Input: a group of the class `contraction` and its axes. Output: its kernels and variants for large calls.
To split an operand ahead is to read it and to write twice as much; in registers it is free, but products
wait for it, and only the first factor of the tensor cores can come from there.
"""

from __future__ import annotations

from collections.abc import Callable

from tritongen.ir import nodes as ir
from tritongen.schedule.classes.contraction_operands import stored_tiles
from tritongen.schedule.plan import KernelPlan, Launch, Variant, View

Kernels = tuple[KernelPlan, ...]


def forms(
    kernel: Callable[..., KernelPlan], group, stores, axes, out: tuple[View, ...], tiles
) -> tuple[Kernels, tuple[Variant, ...]]:
    """The kernels that split operands of f32, and when each runs; `kernel` makes one of the step's."""
    times = "batches * " if axes[0].digits else ""
    if not tiles:
        return (), ()
    right = kernel("right_ahead", "tf32x3_half", tiles=tiles, stored=out)
    left_factor, right_factor = map(bare, group.nests[0].fold.factors)
    if not isinstance(left_factor, ir.Read):
        # What the facts say of the output holds for the right operand, too.
        last = next(nest.dtype for nest in group.nests if nest.name == stores[-1])
        return ((right,), (computed(right, times),)) if last == right_factor.dtype else ((), ())
    if left_factor.dtype != right_factor.dtype:
        return (), ()
    both = kernel("tf32x3", "tf32x3", tiles=tiles, stored=out)
    left = kernel("left_ahead", "tf32x3_half", tiles=tiles, stored=out, exchanged=True)
    variants = (few_rows(left, times), prepared(both, times), rows(right, times))
    return (both, left, right), variants


def split_tiles(group, axes, seen, dims, facts) -> tuple[View, ...]:
    """How the operands of the one sum lie in memory, where the right one may be f32 as stored; or nothing.

    The left factor may be computed, of one operand in tiles and of numbers of its rows.
    """
    head, p = group.nests[0], group.product
    if group.products > 1 or head.dtype != "compute" or head.fold.guards:
        return ()
    left, right = head.fold.factors
    stored = bare(right)
    if not isinstance(stored, ir.Read) or stored.dtype not in group.split:
        return ()
    k = frozenset(b.index for b in p.k)
    views = (
        stored_tiles(left, p.m, axes, seen, dims, facts, k),
        stored_tiles(right, p.n, axes, seen, dims, facts),
    )
    return tuple(view for view in views if view) if all(views) else ()


def bare(side: ir.Expr) -> ir.Expr:
    return side.arg if isinstance(side, ir.Cast) else side


def tiles_of(m: str, n: str, warps: str, stages: str, programs: str, *more: tuple[str, str]):
    """A config; `programs` a multiprocessor, each taking one tile after another."""
    return (
        ("BLOCK_M", m),
        ("BLOCK_N", n),
        ("BLOCK_K", "32"),
        ("GROUP_M", "8"),
        ("num_warps", warps),
        ("num_stages", stages),
        ("PROGRAMS", programs),
        *more,
    )


def launch(kernel: KernelPlan, times: str) -> tuple[Launch, ...]:
    grid = f"min(PROGRAMS * sms, {times}cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N))"
    return (Launch(kernel.name, (grid,)),)


def waves(times: str, m: int, n: int) -> str:
    return f"cdiv({times}cdiv(M, {m}) * cdiv(N, {n}), sms)"


# ---- one operand ahead ---------------------------------------------------------------------------
def half(name: str, when: str, why: str, kernel: KernelPlan, times: str) -> Variant:
    """Tiles of 128 x 128, or of 64 x 64 where those leave much of their last wave empty.

    us, torch at "highest" in brackets: 1024^3 35 in 64 x 64, three programs a multiprocessor (63; two programs
    of 64 x 128 54, one 39, of 128 x 64 38; both operands ahead 39 to 43; both in registers 53 to 120); 2048^3
    186 in 128 x 128 (343; 64 x 128 216). BLOCK_K 64: 2048^3 226. All behind the sums of one loop (`flatten`):
    200704 x 128 x 64 60, else 87 (114); x 256 156, else 171 (334).
    """
    tile = f"128 if 7 * {times}cdiv(M, 128) * cdiv(N, 128) >= 5 * sms * {waves(times, 128, 128)} else 64"
    config = tiles_of(
        tile,
        "BLOCK_M if N > 64 else 64",
        "8 if BLOCK_M == 128 else 4",
        "3",
        "1 if BLOCK_M == 128 else 3",
    )
    return Variant(
        name, f"{large(times)} and M > 64 and N >= 64{when}", why, config, launch(kernel, times)
    )


def large(times: str) -> str:
    """Fewer sums are left to parts of k."""
    tiles = f"{times}cdiv(M, 64) * cdiv(N, 64)"
    return f"tma and itemsize == 4 and {times}M * N * K >= 2**30 and 2 * {tiles} > sms"


def few_rows(kernel: KernelPlan, times: str) -> Variant:
    """At most 768 rows: products as fast as with both ahead save less than splitting the right operand costs.

    Both ahead are 128 TFLOP/s, one 106; 12 bytes an element are read and written: even at 900 rows. 128 x
    16384 x 16384 654 us (both ahead 1,546, torch 1,436), 1024 x 8192 x 8192 1,308 (1,240, 2,700).
    """
    why = "few rows in f32: split ahead into TF32 numbers and rests, the right operand in registers"
    return half("left_ahead", " and M <= 768 and M < N", why, kernel, times)


def rows(kernel: KernelPlan, times: str) -> Variant:
    """Few columns, few terms, or a small product: 1024 times 512 x 512 x 1024 7.4 ms (both ahead 8.3)."""
    why = (
        "large in f32: the right operand split ahead into TF32 numbers and rests, rows in registers"
    )
    return half("right_ahead", "", why, kernel, times)


def computed(kernel: KernelPlan, times: str) -> Variant:
    """Weights of attention, 1024 times 512 x 1024 x 512: 7.7 ms, 17.7 where both are split in registers."""
    why = "rows that are computed, in f32: split in registers, the right operand ahead"
    return half("right_ahead", " and stored_bytes == 4", why, kernel, times)


# ---- both ----------------------------------------------------------------------------------------
def prepared(kernel: KernelPlan, times: str) -> Variant:
    """Both operands split once: 4096^3 in 1,017 us and 111 for splitting.

    Split anew in registers for each tile 1,907 us, one operand so 1,337, torch at "highest" 2,675. Three tl.dot
    a step, from four tiles: 1,256. TERMS of 512: 972, of twice the error (torch's); tiles of 128 x 128: 1,221.
    """
    columns = f"256 if 5 * {waves(times, 128, 256)} <= 3 * {waves(times, 128, 128)} else 128"
    return Variant(
        "prepared",
        f"tma and itemsize == 4 and K >= 1024 and N > 768 and {times}M * N * K >= 2**32"
        f" and 2 * {times}cdiv(M, 128) * cdiv(N, 128) > sms",
        "large in f32: both operands split once into TF32 numbers and their rests",
        tiles_of("128", columns, "8", "4 if BLOCK_N == 256 else 6", "1", ("TERMS", "256")),
        launch(kernel, times),
    )
