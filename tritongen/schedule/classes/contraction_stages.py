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
from functools import lru_cache
from itertools import product
from math import prod

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Poly, fetches_of, indices
from tritongen.ir.dtypes import DTYPES
from tritongen.ir.free import coordinates, free_indices, reads
from tritongen.schedule.classes.contraction_operands import F8, SMALL, WHOLE, stored_as
from tritongen.schedule.classes.packed import neighbours
from tritongen.schedule.plan import Axis, KernelPlan, Step, Variant, under
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


def memory_of(step: Step, variant: Variant) -> Memory | None:
    """The shared memory of the variant's first kernel; None where it has no loop over tiles of factors."""
    if not dict(variant.config).keys() >= {*BLOCKS, "num_stages"}:
        return None
    return Memory(step.kernel(variant.launches[0].kernel), variant)


def fitted_variant(step: Step, variant: Variant) -> Variant | None:
    """The variant with stages that fit. None if at most one stage ever fits, or if no call may take the variant."""
    memory = memory_of(step, variant)
    if memory is None:
        return variant
    widths = [rule for rule in conjuncts(variant.requires) if names(rule) == {"itemsize"}]
    if not any(all(evaluate(r, {"itemsize": n}) for r in widths) for n in itemsizes(memory.kernel)):
        return None  # a form for elements of other widths
    cases = [Case(config, memory.stages_that_fit(config)) for config in configs(memory)]
    if all(case.room >= case.config["num_stages"] for case in cases):
        return variant
    if all(case.room == 1 for case in cases):
        return None
    rules = dict(variant.config)
    rules["num_stages"] = at_most(rules["num_stages"], cases)
    return replace(variant, config=tuple(rules.items()))


def where_room(step: Step, variant: Variant) -> Variant:
    """The requirement that the GPU has the shared memory that the variant needs in any call."""
    memory = memory_of(step, variant)
    described = DESCRIBED & {*conjuncts(variant.requires)}
    if memory is None or described or "LANES" in dict(variant.config):
        return variant
    rooms = dict[int, int]()  # what each width of elements takes
    for room in reversed(ROOMS):
        cases = [(c["itemsize"], memory.bytes(c)) for c in configs(memory, room)]
        full = {itemsize for itemsize, size in cases if size > room << 10}
        rooms |= {itemsize: room for itemsize, _ in cases if itemsize not in full}
    if len(set(rooms.values())) <= 1:
        asked = f"shared >= {max(rooms.values(), default=ROOMS[-1])}"
    else:
        *some, last = sorted(rooms)
        texts = [f"{rooms[n]} if itemsize <= {n} else" for n in some]
        asked = f"shared >= ({' '.join(texts)} {rooms[last]})"
    return under(asked, variant)


def at_most(rule: str, cases: list[Case]) -> str:
    """The rule for stages, limited to what fits, by the number that predicts it best: for halves another than for wider ones."""
    halves = [c for c in cases if c.config["itemsize"] <= 2]
    wider = [c for c in cases if c.config["itemsize"] > 2]
    text, kept = limit(rule, cases)
    if halves and wider:
        (some, few), (others, rest) = limit(rule, halves), limit(rule, wider)
        if few + rest > kept:
            return f"{some} if itemsize <= 2 else {others}"
    return text


def limit(rule: str, cases: list[Case]) -> tuple[str, int]:
    """The limited rule, and how many stages it leaves in all cases together."""
    if all(c.room >= c.config["num_stages"] for c in cases):
        return rule, sum(c.stages for c in cases)
    fits = {name: by_value(cases, name) for name in DECIDING}

    def kept(name: str, most: int = 8) -> int:
        """The stages that are left, in calls that store no more than so many bytes."""
        counted = (c for c in cases if c.config["stored_bytes"] <= most)
        return sum(min(c.stages, fits[name][c.config[name]]) for c in counted)

    best = max(DECIDING, key=lambda name: (kept(name, 4), kept(name)))
    most = sorted(fits[best].items())
    text = str(most[-1][1])
    for (value, stages), (_, above) in reversed(list(zip(most, most[1:], strict=False))):
        if stages != above:
            text = f"{stages} if {best} <= {value} else {text}"
    told = names(rule) <= {best} or len({c.stages for c in cases}) == 1
    return text if told else f"min({rule}, {text})", kept(best)


def by_value(cases: list[Case], name: str) -> dict[int, int]:
    """For each value of one of the numbers the stages that fit in every case, as far as any asks for them."""
    found = dict[int, int]()
    for value in {c.config[name] for c in cases}:
        own = [c for c in cases if c.config[name] == value]
        short = (c.room for c in own if c.room < c.config["num_stages"])
        found[value] = min(short, default=max(c.stages for c in own))
    return found


def configs(memory: Memory, room: int = ROOMS[-1]) -> Iterable[Mapping[str, int]]:
    """The configs of a variant, one for each kind of call that it may run in, with the widths of what is in tiles.

    Tensor cores before Hopper's take factors from registers, so one stage less waits in shared memory.
    """
    kernel, variant = memory.kernel, memory.variant
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


# ---- what is held -------------------------------------------------------------------------------
def shared_bytes(kernel: KernelPlan, variant: Variant, config: Mapping[str, int]) -> int:
    """The shared memory that a program asks for. `config` has the call's `itemsize`, and `stored_bytes` if the plan names
    it.

    It is 0 for kernels without a loop over tiles of factors, which hold their tiles in registers.
    """
    return Memory(kernel, variant).bytes(config) if config.keys() >= {*BLOCKS} else 0


class Memory:
    """The shared memory of one kernel of a variant, by its configs."""

    def __init__(self, kernel: KernelPlan, variant: Variant):
        self.kernel, self.variant = kernel, variant
        self.factors = multiplied(kernel.nests[0])
        self.loaded = loaded(kernel)
        self.reads = tiles_read(kernel)
        self.meets = bool(met(kernel))
        # A tile of coordinates is loaded in 64 bits.
        self.gathers = any(fetches_of(c) for read in self.reads for c in read.coords)
        dtypes = {n.name: n.dtype for n in kernel.nests}
        # A kernel that may share its sums stores results where a tile has one part.
        self.stored = {name: dtypes[name] for name in kernel.stores}

    def stages_that_fit(self, config: Mapping[str, int]) -> int:
        wished = range(config["num_stages"], 1, -1)
        asked = ((n, self.bytes({**config, "num_stages": n})) for n in wished)
        return next((n for n, size in asked if size <= ROOMS[-1] << 10), 1)

    def bytes(self, config: Mapping[str, int]) -> int:
        """As `shared_bytes` says."""
        staged = self.of_stages(config)
        held, passing = self.behind(config) if self.stored else (0, 0)
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
        copied = {pack.tensor for pack in self.variant.packs if pack.like}  # as what is multiplied

        def each(r: ir.Read, own: Axis) -> float:
            if r.tensor in copied:
                return itemsize
            return self.size(r.dtype, itemsize) / self.share(r, own)

        left, right = (
            asked + sum(each(r, own) for r in tiles)
            for own, (tiles, asked) in zip(kernel.axes[1:3], self.loaded, strict=True)
        )
        columns = n * kernel.products
        if left <= itemsize and right <= itemsize * kernel.products:
            made = max(itemsize * (m + columns), 8 * columns if itemsize == 4 else 0)
        else:
            made = (m + columns) * (8 if itemsize == 4 else itemsize)
        return int(k * ((stages - 1) * (left * m + right * n) + made))

    def share(self, read: ir.Read, own: Axis) -> int:
        """How many elements of a tile follow from each that is loaded."""
        if not self.kernel.packed:
            return 1
        return prod(neighbours(read, axis.digits) for axis in (own, self.kernel.axes[3]))

    def size(self, dtype: str, itemsize: int) -> int:
        return bytes_of(dtype, itemsize, self.factors)

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
        parts = parts_behind(kernel, bool(self.reads))
        part = config["BLOCK_M"] * config["BLOCK_N"] // parts
        sizes = {dtype: self.size(dtype, itemsize) for dtype in self.stored.values()}
        last = self.stored[kernel.stores[-1]]
        if not width(last):
            sizes[last] = config.get("stored_bytes", sizes[last])
        leaving = dict(self.stored)
        kinds = {leaving.pop(view.tensor) for view in kernel.stored}
        # In a call of f32 a type parameter is f32, too.
        held = {d if width(d) or sizes[d] < 4 else f"f{8 * sizes[d]}": sizes[d] for d in kinds}
        passing = max((sizes[d] for d in leaving.values()), default=0)
        if self.reads:
            passing = sums
        if self.gathers and parts == 1:  # 256 KiB of 128 x 256 in Triton 3.6 (291202-327)
            passing = 8
        if kernel.nests[0].fold.body.dtype in ir.INTS:
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
    factors = multiplied(kernel.nests[0])
    if width(dtype) or dtype == factors:
        return (bytes_of(dtype, itemsize, factors),)
    if dtype == "compute":  # f64 where what the sums meet is
        least, beside = max(4, itemsize), met(kernel) - {"compute", factors}
        wide = any(d == "f64" or not width(d) for d in beside)
        return (least, 8) if wide and least < 8 else (least,)
    return 2, 4, 8


# ---- what is loaded -----------------------------------------------------------------------------
def loaded(kernel: KernelPlan) -> list[tuple[set[ir.Read], int]]:
    """What a step of the loop loads for the left factors, over rows and k, and for the right ones, over k and columns.

    First: the tiles. Second: the bytes an element of what conditions load. A guard of the sum asks twice: for its factor,
    and whether some row has the other one.
    """
    heads, (_, m, n, *ks) = kernel.nests[: kernel.products], kernel.axes
    k = {i for axis in ks for i in axis.names}

    def asked(polys: Iterable[Poly]) -> set[Fetch]:
        return {a for p in polys for a in fetches_of(p)}

    guards = asked(g.poly for head in heads for g in head.fold.guards)
    every = guards | asked(p for head in heads for p in coordinates(head.fold.body))
    used = [(a, set[str]().union(*map(indices, a.coords))) for a in every]
    found = []
    for side, own in enumerate(({*m.names}, {*n.names})):
        read = (r for head in heads for r in reads(head.fold.factors[side]))
        tiles = {r for r in read if free_indices(r) & k and free_indices(r) & own}
        found.append((tiles, sum(8 * (1 + (a in guards)) for a, i in used if i & k and i & own)))
    return found


def tiles_read(kernel: KernelPlan) -> set[ir.Read]:
    """The tiles over rows and columns that are loaded beside the sums."""
    _, m, n, *_ = ({*axis.names} for axis in kernel.axes)
    return {r for r in read_behind(kernel) if free_indices(r) & m and free_indices(r) & n}


def read_behind(kernel: KernelPlan) -> set[ir.Read]:
    """All that is loaded behind the sums, numbers of a row too."""
    own = {nest.name for nest in kernel.nests}
    found = (read for nest in kernel.nests[kernel.products :] for read in reads(nest.body))
    return {read for read in found if read.tensor not in own}


def met(kernel: KernelPlan) -> set[str]:
    return {read.dtype for read in read_behind(kernel)}


def multiplied(nest: ir.Nest) -> str:
    """The dtype that the factors of a product have in memory and in tl.dot; nothing where they are computed, in f32 or f64."""
    kinds = {stored_as(side) for side in nest.fold.factors}
    found = kinds - SMALL - {WHOLE} or kinds
    return min(found) if len(found) == 1 or found <= F8 else ""


def itemsizes(kernel: KernelPlan) -> tuple[int, ...]:
    """The sizes in bytes that an element of a factor may have in tl.dot."""
    dtype = multiplied(kernel.nests[0])
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
