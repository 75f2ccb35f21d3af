"""Products of f32 as three products of TF32 numbers: which operands are split ahead, and in what tiles.

    a * b = rest(a) * b + a * rest(b) + a * b      without rest(a) * rest(b), which is 2**-22 of it

Input: a group of the class `contraction` and its axes. Output: its kernels and variants for large calls. Splitting an
operand ahead reads it and writes twice as much. Splitting it in registers is free, but products wait for it, and only the
first factor of the tensor cores can come from registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.schedule.canonical import uncast
from tritongen.schedule.classes.contraction_operands import stored_tiles
from tritongen.schedule.classes.contraction_tiles import persistent, tile, waves
from tritongen.schedule.plan import KernelPlan, Variant, View

Kernels = tuple[KernelPlan, ...]
SPLIT = "tma and tf32x3 and itemsize == 4"


def forms(
    kernel: Callable[..., KernelPlan], group, stores, out: tuple[View, ...], tiles
) -> tuple[Kernels, tuple[Variant, ...]]:
    """The kernels that split operands of f32, and when each runs; `kernel` makes one of the step's."""
    if not tiles:
        return (), ()
    one = kernel("presplit_one", "tf32x3_half", tiles=tiles, stored=out)
    left_factor, right_factor = map(uncast, group.nests[0].fold.factors)
    if not isinstance(left_factor, ir.Read):
        # Facts about the output hold for the right operand too.
        last = next(nest.dtype for nest in group.nests if nest.name == stores[-1])
        return ((one,), (computed(one),)) if last == right_factor.dtype else ((), ())
    if left_factor.dtype != right_factor.dtype:
        return (), ()
    both = kernel("tf32x3", "tf32x3", tiles=tiles, stored=out)
    one = replace(one, either=True)
    return (both, one), (few_rows(one), presplit(both), many_rows(one))


def split_tiles(group, axes, seen, dims, facts) -> tuple[View, ...]:
    """How the operands of the one sum lie in memory, where the right one may be f32 as stored; or nothing.

    The left factor may be computed, of one operand in tiles and of numbers of its rows.
    """
    head, p = group.nests[0], group.product
    if group.products > 1 or head.dtype != "compute" or head.fold.guards:
        return ()
    left, right = head.fold.factors
    stored = uncast(right)
    if not isinstance(stored, ir.Read) or stored.dtype not in group.split:
        return ()
    k = frozenset(b.index for b in p.k)
    views = (
        stored_tiles(group, left, p.m, axes, seen, dims, facts, k),
        stored_tiles(group, right, p.n, axes, seen, dims, facts),
    )
    return tuple(view for view in views if view) if all(views) else ()


# ---- one operand ahead ---------------------------------------------------------------------------
def filled(kernel: KernelPlan, n: int, programs: int) -> str:
    """Whether tiles of 128 x n fill their waves, so many programs a multiprocessor."""
    slots = f"{programs} * sms" if programs > 1 else "sms"
    return f"filled({kernel.times}cdiv(M, 128) * cdiv(N, {n}), {slots})"


def few_rows(kernel: KernelPlan) -> Variant:
    """At most 768 rows: only the left operand is split ahead, since splitting the large right one costs more than it saves.

    Splitting moves 12 bytes an element. us on an H200 (both split ahead; torch at "highest"):

    - 64 x 16384 x 16384: 396 (1,632; 757)
    - 512 x 8192 x 8192: 667 (731; 1,357), 768 rows: 989 (1,092; 2,028), 1024 rows: 1,308 (1,240; 2,700)

    A single tile a multiprocessor takes 64 terms a step: 128 x 4096 x 4096 takes 66 us, with 32 terms 80 or more.
    """
    single = f"BLOCK_M == 64 and {kernel.times}cdiv(M, 64) * cdiv(N, 64) <= sms"
    config = tile(
        f"128 if M > 64 and {filled(kernel, 128, 1)} else 64",
        "BLOCK_M",
        f"64 if {single} else 32",
        "8 if BLOCK_M == 128 else 4",
        "3",
        ("LHS", "True"),
        programs="1 if BLOCK_M == 128 else 3",
    )
    why = "left operand split ahead into TF32 numbers and rests, right one in registers"
    return persistent("presplit_lhs", kernel, SPLIT, why, config)


def many_rows(kernel: KernelPlan) -> Variant:
    """Few columns, few terms, or a small product: only the right operand is split ahead.

    Small products take tiles of 64 x 64, others of 128 x 64. us on an H200 (the next best tile; torch at "highest"):

    - 1024^3: 34.9 (39; 63.5)
    - 200704 x 128 x 64: 53 (61; 115), 200704 x 64 x 256: 82 (no other; 165)
    - 4096 x 4096 x 512: 176 (188; 358), 32768^2 x 64: 1,800 (1,983; 4,021)
    """
    config = tile(
        f"128 if {filled(kernel, 64, 2)} else 64",
        "64",
        "32",
        "4",
        "3",
        ("LHS", "False"),
        programs="2 if BLOCK_M == 128 else 3",
    )
    why = "right operand split ahead into TF32 numbers and rests, left one in registers"
    return persistent("presplit_rhs", kernel, SPLIT, why, config)


def computed(kernel: KernelPlan) -> Variant:
    """Products with a factor that is computed, such as the weights of attention.

    1024 times 512 x 1024 x 512: 7.7 ms in these tiles, 17.7 with both factors split in registers.
    """
    times = kernel.times
    large = f"{times}M * N * K >= 2**28 and 2 * {times}cdiv(M, 64) * cdiv(N, 64) > sms"
    why = "rows that are computed, in f32: split in registers, the right operand ahead"
    config = tile("128", "128", "32", "8", "3", programs="1")
    requires, more = f"{SPLIT} and stored_bytes == 4", f"{large} and M > 64 and N >= 64"
    return persistent("presplit_rhs", kernel, requires, why, config, more)


# ---- both ----------------------------------------------------------------------------------------
def presplit(kernel: KernelPlan) -> Variant:
    """Both operands are split once, ahead.

    us at 4096^3 on an H200: 1,017 and 111 for splitting. With one operand split anew in registers for each tile 1,337, with
    both 1,907; torch at "highest" 2,675. TERMS of 512 would take 972, at twice the error (torch's error).
    """
    stages = "4 if BLOCK_N == 256 else 6"
    columns = f"256 if 5 * {waves(kernel, 128, 256)} <= 3 * {waves(kernel, 128, 128)} else 128"
    config = tile("128", columns, "32", "8", stages, ("TERMS", "256"), programs="1")
    why = "both operands split ahead into TF32 numbers and rests"
    return persistent("presplit", kernel, SPLIT, why, config)
