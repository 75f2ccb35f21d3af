"""Tiles of products and convolutions: a config, and the programs that take them.

tile("128", "256", "128 // itemsize", "8", "3", programs="1")
(("BLOCK_M", "128"), ("BLOCK_N", "256"), ("BLOCK_K", "128 // itemsize"), ("GROUP_M", "8"), ("num_warps", "8"), ...)
"""

from __future__ import annotations

from tritongen.schedule.plan import Rule

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


def waves(times: str, m: int, n: int) -> Rule:
    """How often every multiprocessor gets a tile of m x n; `times`: batches, as a rule begins with them."""
    return f"cdiv({times}cdiv(M, {m}) * cdiv(N, {n}), sms)"


def persistent_grid(times: str, rows: str = "BLOCK_M", parts: bool = False) -> tuple[Rule]:
    """A grid of `programs` per multiprocessor, or fewer if there are fewer tiles. `parts`: PARTS may share one tile."""
    shared = "PARTS * " if parts else ""
    return (f"min(PROGRAMS * sms, {shared}{times}cdiv(M, {rows}) * cdiv(N, BLOCK_N))",)
