"""How many stages of a contraction's loop fit, where a step of it loads more than a tile of each factor's width.

    sum[k](x[m, k] * g[m, k] * w[k, n])     two tiles of BLOCK_M x BLOCK_K a stage, and one of BLOCK_K x BLOCK_N
    sum[k](x[m, k] * f16(w[k, n]))          w of f32: a tile of it has twice the bytes of what is multiplied

Input: a contraction's `Step`, whose configs are for one tile of each factor as it is multiplied. Output: the same,
with fewer stages where shared memory would not hold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tritongen.ir import nodes as ir
from tritongen.schedule.canonical import free_indices, reads
from tritongen.schedule.classes.contraction_operands import SMALL, stored_as
from tritongen.schedule.plan import Axis, KernelPlan, Step, Variant
from tritongen.schedule.rules import evaluate, names

SHARED = 226 * 1024  # bytes that a program may have on an H200, but for its barriers
LOADING = frozenset(
    {"contraction", "taps", "persistent"}
)  # skeletons whose loop loads what factors follow from
# Tiles grow with M and N, but are deeper for few of them; whatever else rules speak of is large.
EXTENTS = tuple(product((32, 64, 1 << 20), (32, 1 << 20)))


def fitted(step: Step) -> Step:
    return replace(step, variants=tuple(fitted_variant(step, v) for v in step.variants))


def fitted_variant(step: Step, variant: Variant) -> Variant:
    kernel = step.kernel(variant.launches[0].kernel)
    if kernel.skeleton not in LOADING:
        return variant
    left, right = tiles_loaded(kernel)
    fewer = []
    for itemsize in itemsizes(kernel):
        m, n = (sum(bytes_of(r.dtype, itemsize, kernel) for r in side) for side in (left, right))
        if m > itemsize or n > itemsize * kernel.products:
            for config in configs(variant, itemsize):
                room = stages_that_fit(config, itemsize, m, n, kernel)
                fewer += [room] * (room < config["num_stages"])
    if not fewer:
        return variant
    (rule,) = (rule for name, rule in variant.config if name == "num_stages")
    stages = f"min({rule}, {min(fewer)})" if names(rule) else str(min(fewer))
    rules = tuple((n, stages if n == "num_stages" else r) for n, r in variant.config)
    return replace(variant, config=rules)


def configs(variant: Variant, itemsize: int) -> Iterator[dict[str, int]]:
    """The variant's config for each kind of call that it may run in."""
    spoken = names(variant.requires).union(*(names(rule) for _, rule in variant.config))
    for m, n in EXTENTS:
        facts = dict.fromkeys(spoken, 1 << 20) | {
            "hip": False,
            "M": m,
            "N": n,
            "itemsize": itemsize,
        }
        if evaluate(variant.requires, facts):
            config: dict[str, int] = {}
            for name, rule in variant.config:
                config[name] = evaluate(rule, {**facts, **config})
            yield config


def stages_that_fit(
    config: dict[str, int], itemsize: int, left: int, right: int, kernel: KernelPlan
) -> int:
    """`left`, `right`: bytes that each element of a factor follows from.

    All stages but one wait in shared memory; the one at hand is there as the factors that it made, f32 in two
    parts. The half of a tile that a program stores by descriptor is there beside the next tile's stages.
    """
    m, n = config["BLOCK_M"], config["BLOCK_N"]
    made = (m + n) * (8 if itemsize == 4 else itemsize)
    wide = any(nest.dtype in ("i64", "f64") for nest in kernel.nests if nest.name in kernel.stores)
    stored = m * n // 2 * (8 if wide else 4) if kernel.stored else 0
    room = (SHARED - stored) // config["BLOCK_K"] - made
    return 1 + max(0, room) // (left * m + right * n)


# ---- what is loaded -----------------------------------------------------------------------------
def tiles_loaded(kernel: KernelPlan) -> tuple[set[ir.Read], set[ir.Read]]:
    """What a step of the loop loads over rows and k for the left factors, over k and columns for the right ones."""
    heads, (_, m, n, *ks) = kernel.nests[: kernel.products], kernel.axes
    k = set[str]().union(*map(indices_of, ks))

    def loaded(side: int, axis: Axis) -> set[ir.Read]:
        found = [read for head in heads for read in reads(head.fold.factors[side])]
        own = indices_of(axis)
        return {r for r in found if free_indices(r) & k and free_indices(r) & own}

    return loaded(0, m), loaded(1, n)


def indices_of(axis: Axis) -> set[str]:
    return {d.index for d in axis.digits}


def multiplied(kernel: KernelPlan) -> str:
    """The dtype that factors have in memory and in tl.dot; nothing where they are computed, in f32 or f64."""
    kinds = {stored_as(side) for side in kernel.nests[0].fold.factors}
    wide = kinds - SMALL
    return next(iter(wide or kinds)) if len(wide) <= 1 else ""


def itemsizes(kernel: KernelPlan) -> tuple[int, ...]:
    """What an element of a factor may take in tl.dot."""
    dtype = multiplied(kernel)
    if not dtype:
        return (4, 8)
    return (width(dtype),) if width(dtype) else (2, 4, 8)


def bytes_of(dtype: str, itemsize: int, kernel: KernelPlan) -> int:
    """What is loaded for an element: a type parameter that is not multiplied as it is may be as wide as the sums."""
    return width(dtype) or (itemsize if dtype == multiplied(kernel) else max(4, itemsize))


def width(dtype: str) -> int:
    """The bytes of an element; 0 of what a type parameter stands for."""
    found = re.fullmatch(r"b?[fiu](8|16|32|64)(e4m3|e5m2)?", dtype)
    return int(found[1]) // 8 if found else int(dtype == "bool")
