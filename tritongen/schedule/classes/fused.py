"""Products whose values are never stored: attention and its gradients, loss heads, and all that has their shape.

    s[i, j] = sum[e](q[i, e] * k[j, e])      o[i, e] = sum[j](exp(s[i, j] - max[j](s[i, j])) * v[j, e])

A program walks a block of rows i and loops over blocks of columns j, so that s is never stored. `chains.py` finds the
pairs (i, j); `sets` says which of a pair's folds one kernel computes. The kernel is lowered from walks (`tritongen/kernel`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices, poly, weight_of
from tritongen.ir.bounds import Facts, prove
from tritongen.ir.conditions import where_known
from tritongen.ir.free import (
    all_indices,
    binders_of,
    fetches,
    following,
    free_indices,
    reads,
    tensors_read,
)
from tritongen.ir.names import fresh
from tritongen.kernel.lower import CannotLower, lower
from tritongen.kernel.nodes import (
    NUMBERS,
    PARTS,
    Fold,
    Kernel,
    Let,
    Loop,
    Store,
    Walk,
    is_dot,
    statements,
)
from tritongen.kernel.parts import PART, added_up, in_parts, merging
from tritongen.kernel.verify import verify
from tritongen.schedule.canonical import rename_nest, uncast
from tritongen.schedule.classes.chain_lines import in_groups, with_nan, with_scales, with_shifts
from tritongen.schedule.classes.chains import Pair, is_multiplied, reads_in_place, tells_terms
from tritongen.schedule.classes.contraction_stages import width
from tritongen.schedule.classes.contraction_tiles import variant
from tritongen.schedule.held import with_held
from tritongen.schedule.members import (
    Group,
    Virtual,
    closure,
    gather_lines,
    is_reducer,
    names_in,
    operands,
    results,
)
from tritongen.schedule.plan import Dims, KernelPlan, Launch, Sizes, Step, Variant, walked_axes
from tritongen.schedule.rules import conjunction

ROOM, DEPTH = 200 << 10, 64  # bytes for the stages of a loss head, of so many summed elements
FOLDS = ("sum", "max", "min", "argmax", "argmin")
Config = tuple[tuple[str, str], ...]
Chain = tuple[ir.Nests, Group]  # the nests that a kernel stores, all that it computes


def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    """None: which nests make a kernel of this kind is asked of a whole op (`sets`)."""
    return None


# ---- which folds of a pair a kernel computes -----------------------------------------------------
def sets(pair: Pair, nests: ir.Nests, stored: set[str], kept: frozenset[str]) -> tuple[Chain, ...]:
    """The folds of a pair by kernel, with the outputs that follow from them; none where a fold can't be printed.

    One kernel computes the folds over one index, if it can be lowered and runs in the place of the first.
    """
    inside = pair.inside
    roots = [n.name for n in nests if n.name not in inside and (is_reducer(n) or n.name in stored)]
    virtual = Virtual(n for n in nests if n.name not in roots)
    place = {name: k for k, name in enumerate(roots)}

    def led(n: ir.Nest) -> set[str]:
        """The stored values that a nest reads."""
        lines = (n, *closure(n, virtual))
        return set().union(*(tensors_read(line.body) for line in lines)) & place.keys()

    def kernel_of(*members: ir.Nest) -> Group | None:
        return group_of(pair, members, virtual, kept, nests)

    def joins(n: ir.Nest, places: list[int]) -> bool:
        """Adds a nest to the first of these kernels that it can be part of. That runs in the place of its first nest."""
        for k in places:
            members, _ = found[k]
            late = led(n) - {m.name for m in members}
            in_time = all(place[t] <= place[members[0].name] for t in late)
            if in_time and (group := kernel_of(*members, n)):
                found[k] = (*members, n), group
                return True
        return False

    found: list[Chain] = []
    for fold in pair.folds:
        over = pair.loops(fold)
        if len(over) > 1:
            return ()
        alike = [k for k, (members, _) in enumerate(found) if pair.loops(members[0]) == over]
        if not joins(fold, alike if over else []):
            group = kernel_of(fold)
            if group is None:
                return ()
            found.append(((fold,), group))
    for n in nests:
        if n.name in stored and not is_reducer(n):
            read = led(n)
            joins(n, [k for k, (own, _) in enumerate(found) if read & {m.name for m in own}])
    return tuple(found)


def group_of(
    pair: Pair,
    members: ir.Nests,
    virtual: Virtual,
    kept: frozenset[str],
    nests: ir.Nests,
) -> Group | None:
    """The members as one kernel; None where it can't be lowered or printed. `nests`: all lines of the op."""
    loop = next((b for b in pair.ends if b.index in pair.loops(members[0])), pair.ends[1])
    row = next(b for b in pair.ends if b is not loop)
    own = all_indices(members).union(*(virtual[name].over for name in pair.inside))
    if not all(tells_terms(n, row.index) for n in members):
        return None
    lines = gather_lines(members, virtual, own)
    own_coords = {n.name: n.coords for n in lines}
    if not all(reads_in_place(n, own_coords) for n in lines):
        return None
    names, here = frozenset(n.name for n in nests), {n.name for n in lines}
    others = frozenset().union(*(tensors_read(n.body) for n in nests if n.name not in here))
    guards = [set(n.fold.guards) for n in lines if loop.index in n.reduced]
    known = set[ir.Guard]().union(*guards[:1]).intersection(*guards)
    lines = tuple(
        replace(n, body=where_known(n.body, known)) if n.name in pair.inside else n for n in lines
    )
    lines = with_shifts(with_scales(with_held(lines)), loop.index)
    group = Group("fused", lines, (row,), (loop,), inside=pair.inside)
    last = results(lines)
    try:
        kernel = lower("", group.nests, walks_of(group), last)
        group = with_nan(group, kernel, kept, names, others)
        kernels = [lower("", group.nests, walks_of(group), last)]
        kernels += [
            lower("", g.nests, walks_of(g, wide=True), own) for g, own in by_columns(group, last)
        ]
    except CannotLower:
        return None
    return group if all(map(is_printable, kernels)) else None


def by_columns(group: Group, stores: tuple[str, ...]) -> list[tuple[Group, tuple[str, ...]]]:
    """What of the group each result follows from, those with as many columns together: their columns are one index.

    The first products sum over indices of their own: elsewhere those may be columns, which other programs have.
    """
    columns, by_name = columns_of(group), {n.name: n for n in group.nests}
    extents = {b.index: b.hi for n in group.nests for b in n.box}
    alike, one = dict[Poly, str](), dict[str, str]()
    for name, c in columns.items():
        first = alike.setdefault(extents[c], c)
        spoken = first in all_indices((by_name[name],))
        one[c] = first if not spoken and one.get(c, first) == first else c
    several = list(dict.fromkeys(one[columns[n]] for n in stores if n in columns)) or [""]
    taken, found = names_in(group.nests), []
    for column in several:
        own = tuple(n for n in stores if one.get(columns.get(n, ""), several[0]) == column)
        needed, lines = set(own), list[ir.Nest]()
        for n in reversed(group.nests):
            if n.name not in needed:
                continue
            if n.name in group.inside and is_reducer(n):
                old = {
                    b.index: "batch" if b.index == ir.BATCH else b.index.rstrip("0123456789")
                    for b in binders_of(n)
                }
                n = _at_indices(n, {i: fresh(wish, taken) for i, wish in old.items()}, by_name)
            elif n.name in columns:
                n = rename_nest(n, {columns[n.name]: column})
            needed |= tensors_read(n.body)
            lines.append(n)
        found.append((replace(group, nests=tuple(reversed(lines))), own))
    return found


def _at_indices(n: ir.Nest, new: dict[str, str], by_name: dict[str, ir.Nest]) -> ir.Nest:
    """A nest with other names of indices. Pointwise lines that it reads at these indices are computed in it."""

    def change(read: ir.Read) -> ir.Expr:
        line = by_name.get(read.tensor)
        opened = line and not is_reducer(line) and new.keys() & line.over
        return ir.with_reads(line.body, change) if line and opened else read

    return rename_nest(n.reading(change), new)


def is_printable(kernel: Kernel) -> bool:
    """Whether it has blocks of two dims, and folds that loops can carry; where it loops over columns, no other loop beside that."""
    outer = [s for s in kernel.body if isinstance(s, Loop)]
    numbers = kernel.numbers
    alone = any(w.how == "loop" and w.block == "BLOCK_N" for w in kernel.walks)
    for s in statements(kernel.body):
        match s:
            case Loop(index, body) if index in numbers and alone:
                if sum(isinstance(inner, Loop) for inner in body) != 1:
                    return False
            case Fold(value=value, axes=axes):
                over = set(s.over) - numbers
                most = 3 if is_dot(s, kernel) else 2
                if value.op not in FOLDS or len({*axes, *over}) > most or len(over) > 1:
                    return False
                if not over and (alone or value.is_place):
                    return False
                if value.is_place and not over & {loop.index for loop in outer}:
                    return False
            case Let(axes=axes) if len(axes) > 2:
                return False
    return len(outer) == 1 or not alone


# ---- how a kernel walks its indices --------------------------------------------------------------
def batch_of(group: Group) -> ir.Binders:
    """The indices of the values inside but rows and columns: a program has a number of each."""
    ends = {*group.row, *group.col}
    own = (b for n in group.nests if n.name in group.inside for b in n.box if b not in ends)
    return tuple(dict.fromkeys(own))


def numbers_of(group: Group) -> ir.Binders:
    """Those of them that folds sum over: a loop over single numbers."""
    folded = {b for n in group.nests if n.name not in group.inside for b in binders_of(n)}
    return tuple(b for b in batch_of(group) if b in folded)


def has_loop(group: Group) -> bool:
    """Whether a program loops over columns; else it has a tile of them, as of rows."""
    return any(group.cols <= n.reduced for n in group.nests)


def columns_of(group: Group) -> dict[str, str]:
    """The index of its columns, of each value that has some. A factor of the first product has none: it is summed over."""
    known = group.rows | group.cols | {b.index for b in batch_of(group)}
    behind = following(group.nests, group.inside)
    return {
        n.name: b.index
        for n in group.nests
        for b in n.box
        if n.name in behind and b.index not in known
    }


def walks_of(group: Group, wide: bool = False) -> tuple[Walk, ...]:
    """How the kernel walks each index; `wide`: of columns of any number, in blocks of which each computes the rows' terms again."""
    (row,), (loop,) = group.row, group.col
    numbers, columns = numbers_of(group), set(columns_of(group).values())
    found = [Walk(b.index, b.hi, "program") for b in batch_of(group) if b not in numbers]
    found.append(Walk(row.index, row.hi, "tile", "BLOCK_M"))
    if not has_loop(group):
        found.append(Walk(loop.index, loop.hi, "tile", "BLOCK_N"))
    known = {b.index: b for n in group.nests for b in n.ranges}
    if wide:
        found += [Walk(i, known[i].hi, "tile", "BLOCK_D") for i in known if i in columns]
    found += [Walk(b.index, b.hi, "each") for b in numbers]
    if has_loop(group):
        found.append(Walk(loop.index, loop.hi, "loop", "BLOCK_N"))
    blocks: dict[Poly, str] = {}
    seen = {w.index for w in found}
    for b in known.values():
        if b.index not in seen:
            block = blocks.setdefault(b.hi, f"BLOCK_D{len(blocks) + 1}" if blocks else "BLOCK_D")
            found.append(
                Walk(b.index, b.hi, "loop", "BLOCK_K")
                if wide
                else Walk(b.index, b.hi, "whole", block)
            )
    return tuple(found)


def merge_walks(group: Group, behind: ir.Nests) -> tuple[Walk, ...]:
    """A row a program, all of its parts, a block of its columns."""
    columns = set(columns_of(group).values())
    shared = {b.index: b for n in behind for b in n.box}.values()
    rows = (Walk(b.index, b.hi, "program") for b in shared if b.index not in columns)
    across = (Walk(b.index, b.hi, "tile", "BLOCK_D") for b in shared if b.index in columns)
    return (*rows, Walk(PART, PARTS, "whole", "BLOCK_P"), *across)


# ---- how it runs ---------------------------------------------------------------------------------
WHY = "a product, folds over its columns, and products that sum over them: what lies between is never stored"


def make(name, group, stores, dims, facts) -> Step:
    numbers = numbers_of(group)
    heads = (b for b in batch_of(group) if b not in numbers)
    grouped = in_groups(group, heads, dims, facts)
    return _Maker(name, group, stores, grouped, dims, facts).step()


class _Maker:
    """The kernels of one group, and the variants that launch them.

    Where a row has columns, a kernel holds all of them, and all terms of the first products (`whole`). Where it has none,
    as a loss head, the first products have a loop of their own, as in any product.
    """

    def __init__(
        self,
        name: str,
        group: Group,
        stores: tuple[str, ...],
        grouped: Group | None,
        dims: Dims,
        facts: Facts,
    ):
        columns = columns_of(group)
        self.name, self.group, self.grouped = name, group, grouped
        self.stores = tuple(sorted(stores, key=lambda store: store not in columns))
        self.whole = bool(columns)
        self.parted = by_columns(group, self.stores)
        if not self.whole:
            ((self.group, _),) = self.parted
        (row,), (loop,) = group.row, group.col
        walks = walks_of(self.group, wide=not self.whole)
        self.sizes = {
            f"batch{k}": w.extent for k, w in enumerate(w for w in walks if w.how == "program")
        }
        self.batches = "".join(f"{n} * " for n in self.sizes)
        self.sizes |= {"rows": row.hi, "terms": loop.hi}
        held = {w.block: w.extent for w in walks if w.how == "whole"}
        whole = {f"whole{k}": extent for k, extent in enumerate(held.values())}
        self.sizes |= whole
        self.widest = _most(whole)
        self.whole_blocks = dict(zip(held, whole, strict=True))
        self.fits = f"{self.widest} <= 256" if self.whole else "True"
        extents = {b.index: b.hi for n in group.nests for b in n.box}
        self.columns = []
        for k, (g, own) in enumerate(self.parted):
            column = next((c for n, c in columns_of(g).items() if n in own), "")
            self.columns.append(f"columns{k}" if column else "")
            self.sizes |= {f"columns{k}": extents[column]} if column else {}
        self.kernel = lower(f"{name}_rows", self.group.nests, walks, self.stores)
        verify(self.kernel, self.group.nests, self.stores)
        self.rests = rests_of(self.kernel)
        self.moved = any(f.moved_by for f in self.kernel.folds)
        self.seconds = sum(
            is_dot(f, self.kernel) and f.name not in group.inside for f in self.kernel.folds
        )
        self.loops = [s for s in statements(self.kernel.body) if isinstance(s, Loop)]
        within = [g.poly for s in self.loops if s.index == loop.index for g in s.within]
        self.bounds = len(within)
        self.begins = any(weight_of(p, loop.index) == poly(1) for p in within)
        self.boxes = described(self.group, dims, facts)
        self.loads = loads_of(self.group)
        self.met = met_by_sums(self.group)
        self.share = 2 if any(w > 2 for w in self.loads.values()) else 1  # of 16 bits an element
        self.kernels: list[KernelPlan] = []

    def step(self) -> Step:
        # Parts leave no extremes beside places.
        places = any(f.value.is_place for f in self.kernel.folds)
        # What a loop over heads stores for each of them, programs that share a loop inside of it would all store.
        inside = any(isinstance(s, Store) for loop in self.loops for s in statements(loop.body))
        shared = (self.moved or self.whole and has_loop(self.group)) and not inside
        variants = [self.in_parts()] if shared and not places else []
        if numbers_of(self.group) and not has_loop(self.group) and not inside:
            variants += self.numbers_in_parts()
        if self.boxes:
            variants.append(self.at_once("tiles", conjunction("tiled", self.fits), self.boxes))
        if not (self.boxes and self.whole):
            variants.append(self.at_once("rows", self.fits))
        if self.whole:
            wide = self.wide()
            if variants[0].name == "parts" and self.moved and len(self.parted) == 1:
                variants.append(self.wide_in_parts(wide))
            variants.append(wide)
        tests = (Sizes("tiled", (), self.boxes),) if self.boxes else ()
        # What each row has one number of, beside results that have columns, costs little to have, or to leave out.
        columns = columns_of(self.group)
        alone = tuple(name for name in self.stores if name not in columns)
        optional = alone if len(alone) < len(self.stores) else ()
        numbers, kernels = tuple(self.sizes.items()), tuple(self.kernels)
        step = Step(self.name, "fused", WHY, self.stores, numbers, kernels, tuple(variants))
        return replace(step, tests=tests, optional=optional)

    def planned(self, kernel: Kernel, nests: ir.Nests, boxes: tuple[str, ...] = ()) -> str:
        """The name of a kernel that is now the step's."""
        axes = walked_axes(kernel.walks)
        stores = tuple(s.tensor for s in kernel.stores)
        stores = stores if kernel.walks[0].index == PART else self.stores
        self.kernels.append(
            KernelPlan(kernel.name, "fused", axes, nests, stores, kernel=kernel, boxes=boxes)
        )
        return kernel.name

    def config(self, boxes: bool) -> Config:
        """Blocks, warps and stages by what a program carries: sums that move, or products in flight."""
        widest = self.widest
        t128, t64, t32 = (str(terms // self.share) for terms in (128, 64, 32))
        rows, terms, stages, warps, registers = "64", t64, "2", "4", Config()
        if not self.whole:
            most = (128, 256, 4) if boxes else (128, 128, 3)
            if sum(is_dot(f, self.kernel) for f in self.kernel.folds) > 1:
                most = (64, 128, 3)
            if not has_loop(self.group) or self.met * most[0] * most[1] > ROOM:
                most = (most[0], 64, most[2])
            rows, terms, stages = self.that_fit(*most)
            warps = "8"
        elif self.moved:
            stages = f"3 if {widest} <= 128 else 2"
            terms = t64 if boxes else f"{t64} if {widest} <= 128 else {t32}"
            if boxes and self.share == 1 and not self.met and not self.begins and self.plain:
                # A multiprocessor has room for one such program: 64 rows of 192 and of 128 take 132 KiB, 128 rows 164.
                rows, warps = (
                    f"64 if {widest} <= 128 or rows <= 64 else 128",
                    "4 if BLOCK_M <= 64 else 8",
                )
                # With two stages and 168 registers a thread, a multiprocessor has room for three programs of two blocks. Heads
                # of 96: 377 TFLOP/s with three stages, 412 with two, 425 with two and 160 registers (H200).
                stages = f"3 if {widest} <= 128 and not rest_block({widest}) else 2"
                registers = (("maxnreg", f"168 if {widest} <= 128 and num_stages == 2 else 255"),)
        elif self.seconds == 1:
            rows, stages = (f"{a} if {widest} <= 64 else {b}" for a, b in ((128, 64), (3, 2)))
        elif self.seconds:
            warps = f"8 if {widest} > 128 else 4"
            # A term may have numbers of its own, such as a maximum. With 128 terms, 4 warps load each number once. With fewer
            # than they have threads, Triton loads them in the product's layout, and threads load the same numbers again. dk
            # of 2 x 16 x 8755 x 64: 1.4 ms, with 64 terms 1.8. With two bounds, 128 terms spill.
            terms = f"{t128} if {widest} <= 64 else {t64}" if self.bounds <= 1 else t64
            terms = f"min({terms}, max(16, pow2(terms)))"
        else:
            warps = "8"
        if self.begins and self.moved:
            warps = self.three_passes
        return (
            ("BLOCK_M", f"16 if rows <= 16 else {rows}"),
            ("BLOCK_N", terms),
            *self.blocks(boxes),
            *(() if self.whole else (("BLOCK_K", str(DEPTH)),)),
            ("num_warps", warps),
            ("num_stages", stages),
            *registers,
        )

    def blocks(self, in_two: bool = False) -> Config:
        """Blocks that hold all of an index; `in_two`: some with a second one, where that is less."""
        found: Config = ()
        for block, n in self.whole_blocks.items():
            if in_two and block in self.rests:
                found += (block, f"first_block({n})"), (self.rests[block], f"rest_block({n})")
            else:
                found += ((block, f"max(16, pow2({n}))"),)
        return found

    def that_fit(self, rows: int, terms: int, stages: int) -> tuple[str, str, str]:
        """The rows, terms and stages of a loss head: of fewer terms, or stages, where a factor follows from several tiles."""
        (row,) = self.group.row
        left = sum(w for read, w in self.loads.items() if row.index in free_indices(read))
        right = sum(self.loads.values()) - left
        for fewer in (1, 2, 4):
            fit = ROOM // (DEPTH * (rows * left + terms // fewer * right))
            if fit >= stages or fewer == 4:
                break
        return str(rows), str(terms // fewer), str(max(1, min(stages, fit)))

    @property
    def plain(self) -> bool:
        """Whether the first products multiply what is stored."""
        first = (n for n in self.group.nests if n.name in self.group.inside and is_multiplied(n))
        return all(isinstance(uncast(f), ir.Read) for n in first for f in n.fold.factors)

    @property
    def three_passes(self) -> str:
        """Warps of a loop of three passes, which leave a thread fewer registers."""
        return f"8 if {self.widest} > 128 else 4" if self.whole else "8"

    def called(self, extent: Poly) -> str:
        """The fact that is this number: one of its own, where no other is."""
        found = next((name for name, own in self.sizes.items() if own == extent), "")
        if not found:
            found = f"dim{len(self.sizes)}"
            self.sizes[found] = extent
        return found

    @property
    def tiles(self) -> str:
        columns = "" if has_loop(self.group) else " * cdiv(terms, BLOCK_N)"
        return f"{self.batches}cdiv(rows, BLOCK_M){columns}"

    # ---- variants
    def at_once(self, name: str, when: str, boxes: tuple[str, ...] = ()) -> Variant:
        rests = self.rests if boxes else {}
        walks = tuple(replace(w, rest=rests.get(w.block, "")) for w in self.kernel.walks)
        own = replace(self.kernel, name=f"{self.name}_{name}", walks=walks)
        kernel = self.planned(own, self.group.nests, boxes)
        why = "tiles of all factors by descriptor" if boxes else "tiles by pointers"
        launch = Launch(kernel, (self.tiles,))
        return variant(name, when, why, self.config(bool(boxes)), launch)

    def in_parts(self) -> Variant:
        """Programs share a loop; where heads share its columns, a tile has rows of all of them.

        Best by hand, for 1 query of 64 over 8 heads and 16 x 32,768 keys of 128: 33 parts in blocks of 128 keys, by pointers.
        """
        group, kernel, rows, tiles = self.group, self.kernel, "rows", self.tiles
        boxes = () if self.whole else self.boxes
        if self.grouped and self.whole:
            group, rows = self.grouped, "group_rows"
            walks = walks_of(group)
            kernel = lower("", group.nests, walks, self.stores)
            extents = [w.extent for w in walks if w.how == "program"]
            self.sizes |= {f"group{k}": extent for k, extent in enumerate(extents)}
            self.sizes[rows] = group.row[0].hi
            tiles = "".join(f"group{k} * " for k in range(len(extents))) + f"cdiv({rows}, BLOCK_M)"
        few = f"2 * {self.batches}cdiv(rows, 128) <= sms"
        # A loss head's block is a product of its own: one is enough for a part.
        parts = f"max(1, min(sms // max(1, {tiles}), cdiv(terms, BLOCK_N), 128))"
        config = self.config(bool(boxes))
        if self.whole:
            # Partial gradients are as large as the result: only where half of the GPU would be idle.
            busy = tiles.replace("BLOCK_M", "64")
            few, each = f"{busy} < sms" if self.moved else f"2 * {busy} <= sms", "4"
            wide, terms = str(128 // self.share), str(64 // self.share)
            least = "4 * BLOCK_N"
            if rows != "rows":
                few, each, least = f"({few} or rows <= 16)", "32", "2 * BLOCK_N"
                terms = f"{wide} if {rows} <= 16 and {self.widest} <= 128 else {terms}"
            parts = f"shares({each} * sms, {tiles}, min(64, cdiv(terms, {least})))"
            warps = self.three_passes if self.begins else "4"
            if not self.moved:
                # The registers of 4 warps do not hold two sums of 64 x 128, or one of 64 x 256.
                warps = f"8 if {self.widest} > {64 if self.seconds > 1 else 128} else 4"
            config = (
                ("BLOCK_M", f"16 if {rows} <= 16 else 64"),
                ("BLOCK_N", terms),
                *self.blocks(),
                ("num_warps", warps),
                ("num_stages", "2"),
            )
        requires = conjunction("tiled" if boxes else "True", self.fits)
        when = conjunction(few, "terms >= 1024", requires)
        why = "few rows: programs share a row's loop, and a second kernel merges what they leave"
        alone = Variant("parts", when, why, (*config, ("PARTS", parts)), (), requires=requires)
        return self.split(alone, "part", kernel, group.nests, tiles, boxes)

    def numbers_in_parts(self) -> list[Variant]:
        """The variant whose programs share a loop over numbers, such as batches; empty if the kernel does more than add.

        The gradient of a bias has few tiles, and each is a sum over all batches. A step of the loop holds all terms of the first
        products, so it has no loop inside, and Triton prefetches the operands of the next step.
        """
        walks, nests = walks_of(self.group), self.group.nests
        kernel = lower("", nests, walks, self.stores)
        loops = [s for s in kernel.body if isinstance(s, Loop)]
        merged = ((merging(kernel, g.nests), own) for g, own in self.parted)
        if len(loops) > 1 or not all(added_up(behind, own) for behind, own in merged):
            return []
        held = {w.block: self.called(w.extent) for w in walks if w.how == "whole"}
        count = self.called(kernel.walk(loops[0].index).extent)
        busy = self.tiles.replace("BLOCK_M", "64").replace("BLOCK_N", "64")
        requires = conjunction(
            "tiled" if self.boxes else "True", f"{_most([*held.values()])} <= 128"
        )
        config = (
            ("BLOCK_M", "16 if rows <= 16 else 64"),
            ("BLOCK_N", "64"),
            *((block, f"max(16, pow2({size}))") for block, size in held.items()),
            ("num_warps", "4"),
            ("num_stages", f"3 if {_most([*held.values()])} <= 64 else 2"),
            ("PARTS", f"shares(3 * sms, {self.tiles}, min(128, {count}))"),
        )
        when = conjunction(f"2 * {busy} <= sms and {count} >= 16", requires)
        why = "few tiles: programs share what each sums over, and a second kernel adds up what they leave"
        alone = Variant("parts", when, why, config, (), requires=requires)
        return [self.split(alone, "part", kernel, nests, self.tiles, self.boxes)]

    def split(self, alone: Variant, what: str, kernel, nests, tiles: str, boxes=()) -> Variant:
        """The variant whose programs share a kernel's loop, with the launches that merge what they leave."""
        part = in_parts(f"{self.name}_{what}", kernel, nests)
        left = tuple(s for s in part.body if isinstance(s, Store))
        verify(part, nests, [s.tensor for s in left])
        launch = Launch(self.planned(part, nests, boxes), (f"PARTS * {tiles}",))
        merges, sums = self.merges
        merged = (("BLOCK_P", "pow2(PARTS)"),) if merges else ()
        return replace(
            alone,
            config=(*alone.config, *merged),
            launches=(launch, *merges),
            scratch=tuple(self.scratch(s) for s in left),
            sums=sums,
        )

    @cached_property
    def merges(self) -> tuple[list[Launch], tuple[tuple[str, str], ...]]:
        """The launches that merge what parts leave, and the results that are sums of their parts."""
        launches, sums = list[Launch](), list[tuple[str, str]]()
        for (g, own), columns in zip(self.parted, self.columns, strict=True):
            behind = merging(self.kernel, g.nests)
            if added := added_up(behind, own):
                sums += added
                continue
            what = f"merge_{own[0]}" if len(self.parted) > 1 else "merge"
            merge = lower(f"{self.name}_{what}", behind, merge_walks(g, behind), own)
            verify(merge, behind, own)
            grid, blocks = f"{self.batches}rows", Config()
            if columns:
                grid += f" * max(1, cdiv({columns}, BLOCK_D))"
                blocks = (("BLOCK_D", "64"),)
            single = (*blocks, ("num_warps", "1"))
            launches.append(Launch(self.planned(merge, behind), (grid,), single))
        return launches, tuple(sums)

    def wide_in_parts(self, whole: Variant) -> Variant:
        """The same, where so few programs share loops: 32 batches of 16 queries, and 4,096 keys of 576."""
        ((g, own),) = self.parted
        kernel = lower("", g.nests, walks_of(g, wide=True), own)
        ((tiles,),) = (launch.grid for launch in whole.launches)
        few = tiles.replace("BLOCK_M", "64").replace("BLOCK_D", "512")
        parts = f"max(1, min(sms // max(1, {tiles}), cdiv(terms, 4 * BLOCK_N), 64))"
        alone = replace(
            whole,
            name="wide_parts",
            when=f"2 * {few} <= sms and terms >= 1024",
            why=f"{whole.why}; programs share a row's loop, and a second kernel merges what they leave",
            config=(*whole.config, ("PARTS", parts)),
        )
        return self.split(alone, "wide_part", kernel, g.nests, tiles)

    def wide(self) -> Variant:
        launches, loops = [], set[str]()
        most = _most([n for n in self.columns if n])
        across, depth, stages = "256", "64", "2"
        if self.moved and self.seconds == self.share == 1:
            # With a single sum of 16 rows, a program has room for all columns. It computes the terms of each row once, and loads ahead.
            found = (("512", "256"), ("128", "64"), ("3", "2"))
            across, depth, stages = (f"({a} if rows <= 16 else {b})" for a, b in found)
        for (g, own), columns in zip(self.parted, self.columns, strict=True):
            what = f"wide_{own[0]}" if len(self.parted) > 1 else "wide"
            walks = walks_of(g, wide=True)
            loops |= {w.block for w in walks if w.how == "loop"} - {"BLOCK_N"}
            kernel = lower(f"{self.name}_{what}", g.nests, walks, own)
            verify(kernel, g.nests, own)
            # Its batches may be numbers that other kernels loop over.
            batches = "".join(f"{self.called(w.extent)} * " for w in walks if w.how == "program")
            grid = f"{batches}cdiv(rows, BLOCK_M) * max(1, cdiv({columns}, BLOCK_D))"
            launches.append(Launch(self.planned(kernel, g.nests), (grid,)))
        return Variant(
            "wide",
            "True",
            "any number of columns: each block of them computes the products of its rows again",
            (
                ("BLOCK_M", "16 if rows <= 16 else 64"),
                ("BLOCK_N", "64"),
                ("BLOCK_D", f"max(16, min({across}, pow2({most})))"),
                *((block, depth) for block in sorted(loops)),
                ("num_warps", "8"),
                ("num_stages", stages),
            ),
            tuple(launches),
        )

    def scratch(self, s: Store) -> tuple[str, str, tuple[str, ...]]:
        """Storage for a state of all parts."""
        nest = next(n for n in self.group.nests if n.name == s.value)
        return s.tensor, nest.dtype, ("PARTS", *map(self.called, nest.dims))


def rests_of(kernel: Kernel) -> dict[str, str]:
    """Blocks that may have a second one beside them, by name: of indices over which all folds are products."""
    rests = {w.block: w.block.replace("BLOCK", "REST") for w in kernel.walks if w.how == "whole"}
    for f in kernel.folds:
        if not is_dot(f, kernel) or len(f.over) > 1:
            for w in kernel.walks:
                if w.index in f.over:
                    rests.pop(w.block, None)
    return rests


def _most(sizes: Collection[str]) -> str:
    """The largest of these facts."""
    return f"max({', '.join(sizes)})" if len(sizes) > 1 else "".join(sizes)


def loads_of(group: Group) -> dict[ir.Read, int]:
    """The tiles that factors of products are computed from, each with the bytes of an element in memory."""
    lines = {n.name: n for n in group.nests if not is_reducer(n)}
    left, found = list(filter(is_multiplied, group.nests)), list[ir.Read]()
    own = {n.name for n in group.nests}
    while left:
        for read in reads(left.pop().body):
            if read.tensor in lines:
                left.append(lines[read.tensor])
            elif read.tensor not in own:
                found.append(read)
    numbers = {w.index for w in walks_of(group) if w.how in NUMBERS}
    tiles = (r for r in found if len(free_indices(r) - numbers) > 1)
    return {r: width(r.dtype) or (4 if r.dtype == "compute" else 2) for r in tiles}


def met_by_sums(group: Group) -> int:
    """The most bytes of an element of what is loaded by rows and terms, beside the factors of products.

    A sum of products has a layout of its own, and such a tile comes to it through shared memory.
    """
    (row,), (loop,) = group.row, group.col
    both, beside = {row.index, loop.index}, {*operands(group.nests)}
    tiles = (r for r in beside - loads_of(group).keys() if both <= free_indices(r))
    numbers = (f for n in group.nests for f in fetches(n.body))  # of 64 bits, whatever their type
    numbers = (f for f in numbers if both <= frozenset().union(*map(indices, f.coords)))
    return max([*(width(r.dtype) or 4 for r in tiles), *(8 for _ in numbers)], default=0)


def described(group: Group, dims: Dims, facts: Facts) -> tuple[str, ...]:
    """The operands of products whose tiles descriptors take."""
    walks = walks_of(group)
    own = {n.name for n in group.nests}
    found: dict[str, bool] = {}
    for n in filter(is_multiplied, group.nests):
        for read in (r for r in reads(n.body) if r.tensor not in own):
            fits = is_tile(read, walks, dims[read.tensor], facts)
            fits = fits and read.dtype not in group.bools
            found[read.tensor] = found.get(read.tensor, True) and fits
    return tuple(t for t, fits in found.items() if fits)


def is_tile(read: ir.Read, walks: tuple[Walk, ...], dims: tuple[Poly, ...], facts: Facts) -> bool:
    """Whether a read is of a tile that one descriptor takes: two dims with two walks by blocks, a number of the program in others.

    It has 0 outside of the tensor, so a block walks all of its dim: behind `sum[e < 5]` are further elements.
    """
    numbers = {w.index for w in walks if w.how in NUMBERS}
    extents = {w.index: w.extent for w in walks if w.how not in NUMBERS}
    pairs = [(c, d) for c, d in zip(read.coords, dims, strict=True) if indices(c) - numbers]
    blocks = [c for c, _ in pairs]
    bare = all(
        c == index(i) and (extents[i] == d or prove(extents[i], "==", d, facts) is True)
        for c, d in pairs
        for i in [*indices(c)][:1]
    )
    apart = len(blocks) == len({*blocks}) == 2  # a diagonal has one walk
    return apart and bare and blocks[-1] == read.coords[-1] and read.fill is None
