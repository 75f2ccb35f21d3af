"""What the variants of products and convolutions share: how one is made, and the sizes that its rules speak of."""

from __future__ import annotations

from typing import Any

from tritongen.ir.algebra import Poly
from tritongen.schedule.members import Product
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Rule, Variant
from tritongen.schedule.tiles import persistent_grid

SIZES = ("batches", "M", "N", "K", "segments")


def axes_of(p: Product) -> tuple[Axis, ...]:
    """The axes of a tile, and that of its terms."""
    return Axis("batch", p.batch), Axis("m", p.m), Axis("n", p.n), Axis("k", p.k)


def sizes_of(axes: tuple[Axis, ...]) -> tuple[tuple[str, Poly], ...]:
    """The facts that say how long the axes of a product are, in their order."""
    return tuple((name, axis.extent) for name, axis in zip(SIZES, axes, strict=False))


def variant(
    name: str, requires: Rule, why: str, config, launch: Launch, more: Rule = "", **fields: Any
) -> Variant:
    """A variant that is right wherever `requires` holds, and chosen where `more` holds, too."""
    when = f"{requires} and {more}" if more else requires
    return Variant(name, when, why, config, (launch,), requires=requires, **fields)


def one_each(kernel: KernelPlan, times: str) -> Launch:
    """A program for each tile, or PARTS of them where several share one."""
    shared = "PARTS * " if kernel.splits else ""
    return Launch(kernel.name, (f"{shared}{times}cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)",))


def persistent(
    name: str,
    kernel: KernelPlan,
    times: str,
    requires: Rule,
    why: str,
    config,
    more: Rule = "",
    rows: Rule = "BLOCK_M",
) -> Variant:
    """A variant whose programs take one tile of so many `rows` after another."""
    launch = Launch(kernel.name, persistent_grid(times, rows, parts=kernel.splits))
    return variant(name, requires, why, config, launch, more)


def columns(kernel: KernelPlan) -> int:
    """The divisor of a tile's columns: accumulators of several sums share the registers of one tile."""
    return {1: 1, 2: 2}.get(kernel.products, 4)
