"""The entries of a config that only decide how fast a kernel is, and values to try for them.

    free(step, kernel)     # ("ROWS", "num_warps", "num_stages"): the kernel is right with any value of these
    table(step, kernel)    # ({"ROWS": 8, "num_warps": 1, "num_stages": 3}, ...): what the rules give in calls of all kinds

The tests force other values on all entries, except for those that a kernel needs (`proof/variants.py`). `build --autotune`
prints tables of free entries (`emit/tuning.py`), if only the kernel depends on them: scratch, other launches and other
entries do not follow what is measured.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator
from itertools import product

from tritongen.ir import nodes as ir
from tritongen.schedule import rules
from tritongen.schedule.classes.contraction_stages import itemsizes
from tritongen.schedule.plan import KernelPlan, Launch, Rule, Step, Variant

TILES = ("BLOCK", "ROWS", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
OPTIONS = {"num_warps": 4, "num_stages": 3}  # with Triton's defaults
# The entries that a skeleton asks for: a BLOCK holds rows, or lines; BLOCK_K divides the channels.
ASKED = {
    **dict.fromkeys(("rows", "lines", "lines_loop", "nest"), {"BLOCK"}),
    "box": {"BLOCK", "ROWS"},
    "patches": {"BLOCK_K"},
}
PRODUCTS = frozenset(
    "contraction taps ragged persistent subtiles patches strips tf32x3 tf32x3_half".split()
)

# Configs of a table: those that suit a call are compiled and timed, a second each.
MOST = 16
MOST_WARPS = 16  # where they are more than the rules say
# Calls for which rules are evaluated: sizes from few to many, elements of all widths, one kind of device.
SIZES = (1, 2, 8, 32, 128, 512, 1024, 4096, 8192, 16384, 32768, 1 << 20)
BYTES = (1, 2, 4, 8)
DEVICE = {"sms": 132, "shared": 227, "forward_progress": True, "tma": True}
# Terms of a step of tl.dot that the proof forces: where factors follow from 8 bits, Triton 3.6 gets fewer wrong.
LEAST_TERMS = 32

Entries = dict[str, int]
Row = tuple[int, ...]  # values of entries, in their order


# ---- what is free -------------------------------------------------------------------------------
def asked(step: Step, variant: Variant) -> set[str]:
    """The entries that the variant's kernels ask for, or take long without."""
    kernels = [step.kernel(run.kernel) for run in variant.launches]
    found = set[str]().union(*(ASKED.get(kernel.skeleton, ()) for kernel in kernels))
    walks = (w for k in kernels if k.kernel for w in k.kernel.walks if w.how == "whole")
    found |= {block for w in walks for block in (w.block, w.rest) if block}
    found |= {f"BLOCK_{axis.upper()}" for kernel in kernels for axis in kernel.packed}
    # Of sides of 16 and more Triton makes a product of tensor cores, in TF32, where lanes were to multiply.
    found |= {"BLOCK_M", "BLOCK_N"} if "LANES" in dict(variant.config) else set()
    return found


def free(step: Step, kernel: str) -> tuple[str, ...]:
    """The entries that only decide about speed, wherever the kernel is launched. Empty for a kernel that is not tuned.

    Programs that wait for each other must be on the GPU together, which warps and tiles decide, so they are not tuned. Nor is a launch with a
    config of its own, which takes little time beside the one in front of it.
    """
    runs = launched(step, kernel)
    if step.kernel(kernel).counter or not runs or any(run.config for _, run in runs):
        return ()
    found = set.intersection(*(_free_in(step, variant, run) for variant, run in runs))
    return tuple(n for n in (*TILES, *OPTIONS) if n in found) if found >= {*OPTIONS} else ()


def launched(step: Step, kernel: str) -> list[tuple[Variant, Launch]]:
    """But for launches that share sums: the number and size of parts go with their tiles."""
    every = [(v, run) for v in step.variants for run in v.launches if run.kernel == kernel]
    return [(v, run) for v, run in every if not run.scratch]


def _free_in(step: Step, variant: Variant, run: Launch) -> set[str]:
    config = dict(variant.config)
    others = [other for other in variant.launches if other is not run]
    found = {name for name in TILES if name in config} - asked(step, variant)
    found -= _bounded(step.kernel(run.kernel), config)
    if any(not other.config for other in others):
        found = set()  # they take what this one takes
    found |= OPTIONS.keys()
    for other in others:
        own = dict(other.config)
        found -= _spoken(other.grid) - own.keys() | _spoken(own.values())
    for _, _, shape in variant.scratch:
        found -= _spoken(shape)
    while said := found & _spoken(rule for name, rule in config.items() if name not in found):
        found -= said
    return found


def _spoken(texts: Iterable[Rule]) -> set[str]:
    """The names that rules speak of."""
    return set[str]().union(*map(rules.names, texts))


def _bounded(kernel: KernelPlan, config: dict[str, str]) -> set[str]:
    """Entries for which other values than the rules give are right, but not all values of other calls."""
    found = {"BLOCK_M"} if kernel.skeleton == "patches" else set()  # the host shapes patches by it
    folds = [nest.body for nest in kernel.nests if isinstance(nest.body, ir.Reduce)]
    scaled = any(fold.scale is not None for fold in folds)
    return found | ({"BLOCK_K"} if scaled or "TERMS" in config else set())  # which it divides


# ---- what to try --------------------------------------------------------------------------------
def table(
    step: Step, kernel: str, taken: Collection[str], least_columns: int = 1
) -> tuple[Entries, ...]:
    """The values that the free entries have in calls of several kinds, as far as the kernel has parameters for them.

    Of each variant some, small tiles and large ones; where these are few, the same in twice the warps, but for products,
    whose tiles go with theirs. What has one value in all of them is left to `choose`. Empty where there is nothing to
    choose among. `least_columns`: the smallest BLOCK_N that the host can describe tiles of.
    """
    names = [n for n in free(step, kernel) if n in taken or n in OPTIONS]
    if not names:
        return ()
    least = {"BLOCK_K": LEAST_TERMS, "BLOCK_N": least_columns}
    lowest = [least.get(name, 1) for name in names]
    found = []
    for variant, _ in launched(step, kernel):
        every = set(_values(step, variant, names, widths(step.kernel(kernel))))
        found.append(sorted(row for row in every if all(map(operator.ge, row, lowest))))
    rows = _some_of_each(found)
    if step.kernel(kernel).skeleton not in PRODUCTS and names != [*OPTIONS]:
        warps = names.index("num_warps")
        more = ((*row[:warps], 2 * row[warps], *row[warps + 1 :]) for row in rows)
        rows = [*dict.fromkeys((*rows, *(row for row in more if row[warps] <= MOST_WARPS)))][:MOST]
    if len(rows) < 2:
        return ()
    told = [k for k, n in enumerate(names) if n in OPTIONS or len({row[k] for row in rows}) > 1]
    return tuple({names[k]: row[k] for k in told} for row in rows)


def widths(kernel: KernelPlan) -> tuple[int, ...]:
    """Bytes of an element in the calls that a kernel may run. For products, of a factor."""
    return itemsizes(kernel) if kernel.skeleton in PRODUCTS else BYTES


def _values(
    step: Step, variant: Variant, names: list[str], itemsizes: tuple[int, ...]
) -> Iterator[Row]:
    """The free entries for each kind of call that may choose the variant."""
    config = dict(variant.config)
    ahead, needed = [*names], set[str]()
    while ahead:
        name = ahead.pop()
        if name not in needed:
            needed.add(name)
            ahead += rules.names(config[name]) if name in config else ()
    spoken = sorted(needed - config.keys() - OPTIONS.keys())
    asks = [c for c in rules.conjuncts(variant.when) if rules.names(c) <= {*spoken, *DEVICE}]
    sizes = {name for name, _ in step.facts}
    several = SIZES if sum(name in sizes for name in spoken) <= 3 else SIZES[::2]
    for call in product(*(_called(name, sizes, several, itemsizes) for name in spoken)):
        facts = DEVICE | dict(zip(spoken, call, strict=True))
        if all(rules.evaluate(c, facts) for c in asks):
            known = dict(facts)
            for name, rule in config.items():
                if name in needed:
                    known[name] = rules.evaluate(rule, known)
            yield tuple(known.get(n, OPTIONS.get(n, 0)) for n in names)


def _called(
    fact: str, sizes: set[str], several: tuple[int, ...], itemsizes: tuple[int, ...]
) -> tuple[int, ...]:
    """The possible values of a fact."""
    if fact in DEVICE:
        return (DEVICE[fact],)
    if fact in sizes:
        return several
    return {"itemsize": itemsizes, "stored_bytes": BYTES}.get(fact, (False, True))


def _some_of_each(found: list[list[Row]]) -> list[Row]:
    """Evenly spread rows of each list, each once, at most as many together as a table has."""
    shares = (n for n in range(MOST, 1, -1) if sum(min(n, len(own)) for own in found) <= MOST)
    share = next(shares, 1)
    return [*dict.fromkeys(row for own in found for row in _spread(own, share))][:MOST]


def _spread(rows: list[Row], most: int) -> list[Row]:
    """So many of them, evenly spread, including the first and the last."""
    if len(rows) <= most:
        return rows
    return [rows[k * (len(rows) - 1) // max(1, most - 1)] for k in range(most)]
