"""What the variants of products and convolutions share: their tiles, how one is made, and the sizes that its rules speak of.

tile("128", "256", "128 // itemsize", "8", "3", programs="1")
(("BLOCK_M", "128"), ("BLOCK_N", "256"), ("BLOCK_K", "128 // itemsize"), ("GROUP_M", "8"), ("num_warps", "8"), ...)
"""

from __future__ import annotations

from typing import Any

from tritongen.ir.algebra import Poly
from tritongen.schedule.members import Product
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Rule, Variant

SIZES = ("batches", "M", "N", "K", "segments")
TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")  # as `lib.tile` takes them


def tile(
    m: Rule,
    n: Rule,
    k: Rule,
    warps: Rule,
    stages: Rule,
    *more: tuple[str, Rule],
    programs: Rule = "",
) -> tuple[tuple[str, Rule], ...]:
    """`programs` a multiprocessor, each taking one tile after another; none: as many programs as tiles."""
    return (
        ("BLOCK_M", m),
        ("BLOCK_N", n),
        ("BLOCK_K", k),
        ("GROUP_M", "8"),
        *more,
        ("num_warps", warps),
        ("num_stages", stages),
        *((("PROGRAMS", programs),) if programs else ()),
    )


def waves(kernel: KernelPlan, m: int, n: int) -> Rule:
    """How often every multiprocessor gets a tile of m x n."""
    return f"cdiv({kernel.times}cdiv(M, {m}) * cdiv(N, {n}), sms)"


def axes_of(p: Product, as_stored: bool = False) -> tuple[Axis, ...]:
    """The axes of a tile, and that of its terms. `as_stored`: m are the rows of the result, whichever factor is the left one."""
    m, n = (p.n, p.m) if as_stored and p.exchanged else (p.m, p.n)
    return Axis("batch", p.batch), Axis("m", m), Axis("n", n), Axis("k", p.k)


def sizes_of(axes: tuple[Axis, ...]) -> tuple[tuple[str, Poly], ...]:
    """The facts that say how long the axes of a product are, in their order."""
    return tuple((name, axis.extent) for name, axis in zip(SIZES, axes, strict=False))


def variant(
    name: str, requires: Rule, why: str, config, launch: Launch, more: Rule = "", **fields: Any
) -> Variant:
    """A variant that is right wherever `requires` holds, and chosen where `more` holds, too."""
    when = f"{requires} and {more}" if more else requires
    return Variant(name, when, why, config, (launch,), requires=requires, **fields)


def one_each(kernel: KernelPlan) -> Launch:
    """A program for each tile, or PARTS of them where several share one."""
    return Launch(kernel.name, (_tiles(kernel, "BLOCK_M"),))


def _tiles(kernel: KernelPlan, rows: Rule) -> Rule:
    shared = "PARTS * " if kernel.splits else ""
    return f"{shared}{kernel.times}cdiv(M, {rows}) * cdiv(N, BLOCK_N)"


def persistent(
    name: str,
    kernel: KernelPlan,
    requires: Rule,
    why: str,
    config,
    more: Rule = "",
    rows: Rule = "BLOCK_M",
) -> Variant:
    """A variant whose programs, a number of each multiprocessor or fewer, take one tile of so many `rows` after another."""
    grid = f"min(PROGRAMS * sms, {_tiles(kernel, rows)})"
    return variant(name, requires, why, config, Launch(kernel.name, (grid,)), more)


def columns(kernel: KernelPlan) -> int:
    """The divisor of a tile's columns: accumulators of several sums share the registers of one tile."""
    return {1: 1, 2: 2}.get(kernel.products, 4)
