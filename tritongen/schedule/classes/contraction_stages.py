"""The shared memory that a program of a contraction needs, and how many stages of its loop fit in it.

    sum[k](x[m, k] * g[m, k] * w[k, n])     two tiles of BLOCK_M x BLOCK_K a stage, and one of BLOCK_K x BLOCK_N
    sum[k](x[m, k] * f16(w[k, n]))          w of f32: a tile of it has twice the bytes of what is multiplied
    sum[k](x[m, k] * w[k, n]) + h[m, n]     h, on its way to the registers of the sums, and what is stored

Input: a contraction's `Step`, whose configs assume one tile of each factor as it is multiplied. Output: the same step, with
fewer stages where shared memory would not hold them. `tune` leaves out what does not fit, by the same count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Poly, indices, walk
from tritongen.ir.dtypes import DTYPES
from tritongen.ir.free import coordinates, free_indices, reads
from tritongen.schedule.classes.contraction_operands import SMALL, WHOLE, stored_as
from tritongen.schedule.plan import Axis, KernelPlan, Step, Variant
from tritongen.schedule.rules import conjuncts, evaluate, names

# KiB of shared memory that a program may have: CDNA 3; Ada, and Ampere and Blackwell of consumers; A100; H100 and newer.
ROOMS = (64, 99, 163, 227)
DESCRIBED = frozenset({"tma", "patched", "one_tap"})  # takes descriptors, which ask for the last
BARRIERS = 1024  # and other small buffers: rows and columns on their way to other registers
BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
SUBTILES = 3  # of BLOCK_M rows, in one tile of the skeleton `subtiles`
# One loop over tiles and terms: the next tile's stages are there while this one is stored.
FLATTENED = ("persistent", "tf32x3_half")
# Tiles grow with M and N, but are deeper for small ones. Other facts of the rules are large.
EXTENTS = tuple(product((32, 64, 128, 1 << 20), (32, 4096, 8192, 1 << 20)))
DECIDING = ("itemsize", "stored_bytes", "BLOCK_N", "BLOCK_M", "BLOCK_K")


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of call: its config with the facts that decide about it, and how many stages fit."""

    config: Mapping[str, int]
    room: int

    @property
    def stages(self) -> int:
        return min(self.room, self.config["num_stages"])


def fitted(step: Step) -> Step:
    """Drops variants with only one stage. Their loads do not overlap products, so smaller tiles are faster."""
    *found, last = (fitted_variant(step, v) for v in step.variants)
    roomy = (where_room(step, v) for v in found if v is not None)
    variants = (*roomy, last or step.variants[-1])
    launched = {launch.kernel for v in variants for launch in v.launches}
    kernels = tuple(k for k in step.kernels if k.name in launched)
    return replace(step, variants=variants, kernels=kernels)


def fitted_variant(step: Step, variant: Variant) -> Variant | None:
    """The variant with stages that fit. None if at most one stage ever fits, or if no call may take the variant."""
    rules = dict(variant.config)
    if not rules.keys() >= {*BLOCKS, "num_stages"}:
        return variant
    kernel = step.kernel(variant.launches[0].kernel)
    widths = [rule for rule in conjuncts(variant.requires) if names(rule) == {"itemsize"}]
    if not any(all(evaluate(r, {"itemsize": n}) for r in widths) for n in itemsizes(kernel)):
        return None  # a form for elements of other widths
    memory = Memory(kernel, variant)
    cases = [Case(c, stages_that_fit(memory, c)) for c in configs(kernel, variant)]
    if all(case.room >= case.config["num_stages"] for case in cases):
        return variant
    if all(case.room == 1 for case in cases):
        return None
    rules["num_stages"] = at_most(rules["num_stages"], cases)
    return replace(variant, config=tuple(rules.items()))


def where_room(step: Step, variant: Variant) -> Variant:
    """The requirement that the GPU has the shared memory that the variant needs in any call."""
    if not dict(variant.config).keys() >= {*BLOCKS, "num_stages"}:
        return variant
    if DESCRIBED & {*conjuncts(variant.requires)} or "LANES" in dict(variant.config):
        return variant
    kernel = step.kernel(variant.launches[0].kernel)
    memory = Memory(kernel, variant)
    rooms = dict[int, int]()  # what each width of elements takes
    for room in reversed(ROOMS):
        cases = [(c["itemsize"], memory.bytes(c)) for c in configs(kernel, variant, room)]
        full = {itemsize for itemsize, size in cases if size > room << 10}
        rooms |= {itemsize: room for itemsize, _ in cases if itemsize not in full}
    if len(set(rooms.values())) <= 1:
        asked = f"shared >= {max(rooms.values(), default=ROOMS[-1])}"
    else:
        *some, last = sorted(rooms)
        texts = [f"{rooms[n]} if itemsize <= {n} else" for n in some]
        asked = f"shared >= ({' '.join(texts)} {rooms[last]})"
    when, requires = (f"{asked} and {rule}" for rule in (variant.when, variant.requires))
    return replace(variant, when=when, requires=requires)


def at_most(rule: str, cases: list[Case]) -> str:
    """The rule for stages, limited to what fits, by the number that predicts it best."""
    best = min(DECIDING, key=lambda name: sum(c.stages for c in cases) - kept(cases, name))
    fit = by_value(cases, best)
    most = sorted(fit.items())
    text = str(most[-1][1])
    for (value, stages), (_, above) in reversed(list(zip(most, most[1:], strict=False))):
        if stages != above:
            text = f"{stages} if {best} <= {value} else {text}"
    told = names(rule) <= {best} or len({c.stages for c in cases}) == 1
    return text if told else f"min({rule}, {text})"


def by_value(cases: list[Case], name: str) -> dict[int, int]:
    """For each value of one of the numbers the stages that fit in every case, as far as any asks for them."""
    values = {c.config[name] for c in cases}
    found = {v: [c for c in cases if c.config[name] == v] for v in values}
    return {
        v: min(min(c.room for c in own), max(c.stages for c in own)) for v, own in found.items()
    }


def kept(cases: list[Case], name: str) -> int:
    fit = by_value(cases, name)
    return sum(min(c.stages, fit[c.config[name]]) for c in cases)


def configs(
    kernel: KernelPlan, variant: Variant, room: int = ROOMS[-1]
) -> Iterable[Mapping[str, int]]:
    """The configs of a variant, one for each kind of call that it may run in, with the widths of what is in tiles.

    Tensor cores before Hopper's take factors from registers, so one stage less waits in shared memory.
    """
    widths = tuple((n, stored) for n in itemsizes(kernel) for stored in widths_stored(kernel, n))
    return _configs(variant.requires, variant.config, widths, room)


@lru_cache(maxsize=1 << 8)  # the products of a chain ask alike
def _configs(
    requires: str,
    rules: tuple[tuple[str, str], ...],
    widths: tuple[tuple[int, int], ...],
    room: int,
) -> tuple[Mapping[str, int], ...]:
    spoken = names(requires).union(*(names(rule) for _, rule in rules))
    found = dict[tuple[tuple[str, int], ...], dict[str, int]]()
    for (m, n), (itemsize, stored) in product(EXTENTS, widths):
        facts = dict.fromkeys(spoken, 1 << 20) | {"shared": room, "sms": 132, "M": m, "N": n}
        config = {"itemsize": itemsize, "stored_bytes": stored}
        if evaluate(requires, facts | config):
            for name, rule in rules:
                config[name] = evaluate(rule, facts | config)
            if room < ROOMS[-1]:
                config["num_stages"] = max(1, config["num_stages"] - 1)
            found[tuple(config.items())] = config
    return tuple(found.values())


def stages_that_fit(memory: Memory, config: Mapping[str, int]) -> int:
    wished = range(config["num_stages"], 1, -1)
    asked = ((n, memory.bytes({**config, "num_stages": n})) for n in wished)
    return next((n for n, size in asked if size <= ROOMS[-1] << 10), 1)


# ---- what is held -------------------------------------------------------------------------------
def shared_bytes(kernel: KernelPlan, variant: Variant, config: Mapping[str, int]) -> int:
    """The shared memory that a program asks for. `config` has the call's `itemsize`, and `stored_bytes` if the plan names
    it.

    It is 0 for kernels without a loop over tiles of factors, which hold their tiles in registers.
    """
    return Memory(kernel, variant).bytes(config)


class Memory:
    """The shared memory of one kernel of a variant, by its configs."""

    def __init__(self, kernel: KernelPlan, variant: Variant):
        self.kernel, self.variant = kernel, variant
        self.part = any(run.part for run in variant.launches)

    def bytes(self, config: Mapping[str, int]) -> int:
        """As `shared_bytes` says."""
        if not config.keys() >= {*BLOCKS}:
            return 0
        staged = self.of_stages(config)
        held, passing = (0, 0) if self.part else self.behind(config)
        flat = self.kernel.skeleton in FLATTENED and self.kernel.products == 1
        together = flat or config.get("FLAT", False)
        return BARRIERS + held + (staged + passing if together else max(staged, passing))

    def of_stages(self, config: Mapping[str, int]) -> int:
        """The shared memory of all stages. All but one hold tiles as they were loaded. The current one holds the factors
        made of them.

        A factor of f32 takes two parts. If it is loaded as it is, only the right one does: the left one is in registers.
        """
        m, n, k = (config[name] for name in BLOCKS)
        itemsize, stages = config["itemsize"], max(1, config.get("num_stages", 1))
        kernel = self.kernel
        if kernel.skeleton == "tf32x3":
            return stages * k * 4 * (m + n)
        if kernel.skeleton == "tf32x3_half":  # both parts of the factor that was split ahead
            return stages * k * 4 * (m + n + (m if config.get("LHS") else n))
        m *= SUBTILES if kernel.skeleton == "subtiles" else 1
        left, right = self.loaded(itemsize)
        columns = n * kernel.products
        if left <= itemsize and right <= itemsize * kernel.products:
            made = max(itemsize * (m + columns), 8 * columns if itemsize == 4 else 0)
        else:
            made = (m + columns) * (8 if itemsize == 4 else itemsize)
        return k * ((stages - 1) * (left * m + right * n) + made)

    def loaded(self, itemsize: int) -> tuple[int, int]:
        """The bytes that are loaded for an element of the left factor and of the right one."""
        copied = {pack.tensor for pack in self.variant.packs if pack.like}  # as what is multiplied
        left, right = (
            sum(itemsize if t in copied else self.bytes_of(dtype, itemsize) for t, dtype in side)
            for side in self.tiles
        )
        return left + self.asked[0], right + self.asked[1]

    def bytes_of(self, dtype: str, itemsize: int) -> int:
        return bytes_of(dtype, itemsize, self.multiplied)

    @cached_property
    def multiplied(self) -> str:
        return multiplied(self.kernel)

    @cached_property
    def tiles(self) -> tuple[list[tuple[str, str]], ...]:
        return tuple([(r.tensor, r.dtype) for r in side] for side in tiles_loaded(self.kernel))

    @cached_property
    def asked(self) -> tuple[int, int]:
        return bytes_asked(self.kernel)

    @cached_property
    def reads(self) -> bool:
        return bool(tiles_read(self.kernel))

    @cached_property
    def gathers(self) -> bool:
        """Whether a tile of coordinates is loaded, which Triton counts in 64 bits."""
        places = (c for read in tiles_read(self.kernel) for c in read.coords)
        return any(isinstance(a, Fetch) for c in places for a in walk(c))

    @cached_property
    def meets(self) -> bool:
        return bool(met(self.kernel))

    @cached_property
    def stored(self) -> list[str]:
        """The dtype of each result."""
        dtypes = {n.name: n.dtype for n in self.kernel.nests}
        return [dtypes[name] for name in self.kernel.stores]

    def behind(self, config: Mapping[str, int]) -> tuple[int, int]:
        """The shared memory that the epilogue holds all the time, and what it needs for a moment.

        - A tile that is stored by descriptor has a place of its own. Outputs of one dtype share it.
        - If the epilogue reads a tile, the sums pass through shared memory to the layout of that tile.
        - If a tile is stored through pointers (always where rows are not aligned), the sums or the result pass through
          shared memory: the narrower of the two, unless the result met something wider on the way.
        - Sums of integers pass as they are, and so do coordinates of a gather.
        """
        kernel, itemsize = self.kernel, config["itemsize"]
        sums = max(4, itemsize)
        parts = parts_behind(kernel, self.reads)
        part = config["BLOCK_M"] * config["BLOCK_N"] // parts
        sizes = {dtype: self.bytes_of(dtype, itemsize) for dtype in self.stored}
        if not width(self.stored[-1]):
            sizes[self.stored[-1]] = config.get("stored_bytes", sizes[self.stored[-1]])
        leaving = dict(zip(kernel.stores, self.stored, strict=True))
        kinds = {leaving.pop(view.tensor) for view in kernel.stored}
        # In a call of f32 a type parameter is f32, too.
        held = {d if width(d) or sizes[d] < 4 else f"f{8 * sizes[d]}": sizes[d] for d in kinds}
        passing = max((sizes[d] for d in leaving.values()), default=0)
        if self.reads:
            passing = sums
        if self.gathers and parts == 1:  # 256 KiB of 128 x 256 in Triton 3.6 (291202-327)
            passing = 8
        if adds_integers(kernel):
            passing = max(passing, sums - sum(held.values()))
        widest = passing if self.meets else min(passing, sums)
        return part * sum(held.values()), part * widest


def parts_behind(kernel: KernelPlan, reads: bool) -> int:
    """The number of parts into which an epilogue cuts the columns of its tile; `reads`: whether it loads a tile."""
    if kernel.skeleton == "tf32x3" or kernel.skeleton == "persistent" and reads:
        return 4
    return 2 if kernel.skeleton in ("persistent", "tf32x3_half") else 1


def widths_stored(kernel: KernelPlan, itemsize: int) -> tuple[int, ...]:
    """The sizes in bytes that an element of the last output may have."""
    dtype = next(n.dtype for n in kernel.nests if n.name == kernel.stores[-1])
    factors = multiplied(kernel)
    if width(dtype) or dtype == factors:
        return (bytes_of(dtype, itemsize, factors),)
    if dtype == "compute":  # f64 where what the sums meet is
        least = max(4, itemsize)
        return (least, 8) if meets_f64(kernel) and least < 8 else (least,)
    return 2, 4, 8


# ---- what is loaded -----------------------------------------------------------------------------
def tiles_loaded(kernel: KernelPlan) -> tuple[set[ir.Read], set[ir.Read]]:
    """The tiles that a step of the loop loads: over rows and k for the left factors, over k and columns for the right ones."""
    heads, (_, m, n, *ks) = kernel.nests[: kernel.products], kernel.axes
    k = set[str]().union(*map(indices_of, ks))

    def loaded(side: int, axis: Axis) -> set[ir.Read]:
        found = [read for head in heads for read in reads(head.fold.factors[side])]
        own = indices_of(axis)
        return {r for r in found if free_indices(r) & k and free_indices(r) & own}

    return loaded(0, m), loaded(1, n)


def bytes_asked(kernel: KernelPlan) -> tuple[int, int]:
    """The bytes an element of what conditions load: over rows and k, over k and columns.

    A guard of the sum asks twice: for its factor, and whether some row has the other one.
    """
    heads, (_, m, n, *ks) = kernel.nests[: kernel.products], kernel.axes
    k = set[str]().union(*map(indices_of, ks))

    def asked(polys: Iterable[Poly]) -> set[Fetch]:
        return {a for p in polys for a in walk(p) if isinstance(a, Fetch)}

    guards = asked(g.poly for head in heads for g in head.fold.guards)
    every = guards | asked(p for head in heads for p in coordinates(head.fold.body))

    def loaded(axis: Axis) -> int:
        own = indices_of(axis)
        used = ((a, set[str]().union(*map(indices, a.coords))) for a in every)
        return sum(8 * (1 + (a in guards)) for a, i in used if i & k and i & own)

    return loaded(m), loaded(n)


def tiles_read(kernel: KernelPlan) -> set[ir.Read]:
    """The tiles over rows and columns that are loaded beside the sums."""
    _, m, n, *_ = map(indices_of, kernel.axes)
    own = {nest.name for nest in kernel.nests}
    found = (read for nest in kernel.nests[kernel.products :] for read in reads(nest.body))
    return {r for r in found if r.tensor not in own and free_indices(r) & m and free_indices(r) & n}


def met(kernel: KernelPlan) -> set[str]:
    """The dtypes of what is loaded behind the sums, a number a row too."""
    own = {nest.name for nest in kernel.nests}
    found = (read for nest in kernel.nests[kernel.products :] for read in reads(nest.body))
    return {read.dtype for read in found if read.tensor not in own}


def meets_f64(kernel: KernelPlan) -> bool:
    """Whether that may be f64 where the factors are not."""
    return any(d == "f64" or not width(d) for d in met(kernel) - {"compute", multiplied(kernel)})


def adds_integers(kernel: KernelPlan) -> bool:
    return kernel.nests[0].fold.body.dtype in ir.INTS


def indices_of(axis: Axis) -> set[str]:
    return {d.index for d in axis.digits}


def multiplied(kernel: KernelPlan) -> str:
    """The dtype that factors have in memory and in tl.dot; nothing where they are computed, in f32 or f64."""
    kinds = {stored_as(side) for side in kernel.nests[0].fold.factors}
    wide = kinds - SMALL - {WHOLE}
    return next(iter(wide or kinds)) if len(wide) <= 1 else ""


def itemsizes(kernel: KernelPlan) -> tuple[int, ...]:
    """The sizes in bytes that an element of a factor may have in tl.dot."""
    dtype = multiplied(kernel)
    if not dtype:
        return (4, 8)
    return (width(dtype),) if width(dtype) else (2, 4, 8)


def bytes_of(dtype: str, itemsize: int, factors: str) -> int:
    """The bytes that are loaded for an element. A type parameter that is converted first may be as wide as the sums.

    `factors`: the dtype of what is multiplied.
    """
    return width(dtype) or (itemsize if dtype == factors else max(4, itemsize))


def width(dtype: str) -> int:
    """The bytes of an element. 0 for a type parameter."""
    return DTYPES[dtype].itemsize if dtype in DTYPES else 0
