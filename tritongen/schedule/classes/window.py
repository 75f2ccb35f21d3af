"""Windows: reducers over a few terms that slide with the box, `x[n, c, p * stride + r - pad, ...]`.

Pools, sliding means and depthwise convolutions, with the pointwise lines before and behind them. A program takes ROWS x
BLOCK outputs, and STEPS of them along one more index. Its windows are unrolled, so neighbouring steps load shared elements
once. `beside` serves other classes for the same nests. Figures are for one H200, in per cent of copy.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import (
    Idx,
    Poly,
    affine,
    extreme,
    index,
    indices,
    is_fractional,
    is_size,
    numerator,
    symbols,
    weight_of,
)
from tritongen.ir.bounds import Facts
from tritongen.ir.free import binders_of, coordinates, reads
from tritongen.ir.known import plainly_nonnegative, simplify
from tritongen.schedule.canonical import digits_of, same
from tritongen.schedule.classes import box
from tritongen.schedule.members import Group, is_reducer, operands
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Order, Pack, Step, Variant
from tritongen.schedule.rules import names

MOST_TERMS = 128  # that are unrolled: 11 x 11 windows at stride 11 reach 102%
UNROLLED = 256  # terms of all steps, each of weight 1: Triton takes seconds for more
UNROLLED_WEIGHTED = 400  # of channels last times weights: 7 x 7 in 8 steps 114 us, in 5 132
HELD, HELD_WEIGHTED = 64, 10  # terms whose loads a thread has room for beside its sums
FEW_TERMS = 16  # terms of 16 bytes that it has room for
RUN_TERMS = 40  # computed ones that are loaded in whole runs
SMALL = 1 << 20  # what an offset of a coordinate may be that is not counted
GATHERED = 32  # terms in any order that LLVM may hold as one vector: Triton 3.6 ends the process


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    reducers = [n for n in members if is_reducer(n)]
    if not reducers or not members[0].box or any(n.fold.guards for n in reducers):
        return None
    window = binders_of(reducers[0])
    if not window or any(binders_of(n) != window for n in reducers):
        return None
    if not virtual.slides(by_name.values()):
        return None
    found = box.classify(members, virtual, by_name, facts)
    if found is None or not {b.index for b in window} <= set(slides(found.nests, window, facts)):
        return None
    return replace(found, kind="window") if reach(found, len(found.row) - 1, facts) else None


def slides(lines, window, facts: Facts) -> dict[str, set[str]]:
    """Each index of the window that moves with indices of the box, and the indices that it moves with.

    Left out is an index whose windows lie side by side, such as `g * length + c`: it is a digit of a number, as the
    channels of a group are. It is kept if the compiler knows its length, or if there are several such indices.
    """
    found: dict[str, set[str]] = {}
    digits: set[str] = set()
    for p in places(lines):
        weights = dict(digits_of(p))
        for b in window:
            along = weights.keys() - {other.index for other in window}
            if b.index in weights and along:
                found.setdefault(b.index, set()).update(along)
                told = symbols(b.hi) <= facts.constants
                if not told and any(same(facts, weights[a], b.hi) for a in along):
                    digits.add(b.index)
    if len(digits) == 1:
        del found[digits.pop()]
    return found


def places(lines) -> dict[Poly, None]:
    """The coordinates of all reads."""
    return dict.fromkeys(c for n in lines for read in reads(n.body) for c in read.coords)


def reach(group: Group, col: int, facts: Facts) -> Poly | None:
    """A bound of the size of any coordinate along the lanes' index, but for small numbers. None if no bound is known.

    Lanes count in 32 bits, and stay below half of what these hold.
    """
    extents = {b.index: b.hi for n in group.nests for b in n.ranges}
    name = group.row[col].index
    total = extents[name]
    for p in (q for q in places(group.nests) if name in indices(q) and q != index(name)):
        parts = affine(numerator(p))
        if parts is None:
            return None
        for atom, weight in parts[0].items():
            if not isinstance(atom, Idx):
                return None
            total = total + size_of(weight, facts) * extents[atom.name]
        offset = parts[1].constant
        if not isinstance(offset, int) or abs(offset) >= SMALL:
            total = total + size_of(parts[1], facts)
    return total


def size_of(p: Poly, facts: Facts) -> Poly:
    """|p|."""
    plain = plainly_nonnegative(simplify(p, facts), facts)
    return p if plain else extreme("max", (p, -p))


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    """Nests whose reducers share their binders. The last variant takes any size."""
    whole = box.make(name, group, stores, dims, facts)
    kernel, facts_, variant = unrolled(name, group, stores, facts, "window", len(group.row) - 1)
    ways = [(kernel, facts_, replace(variant, packs=in_lines(group, dims)))]
    if (slid := in_runs(group, facts)) is not None:
        ways.insert(0, with_runs(ways[0], name, group, dims, slid))
    at, orders = channels(group, stores, facts) or (0, ())
    if orders:
        ways.insert(0, unrolled(name, group, stores, facts, "channels", at, orders))
    numbers = {fact: value for _, own, _ in ways for fact, value in own} | dict(whole.facts)
    return replace(
        whole,
        skeleton="window",
        why="reducers over windows that slide with the output",
        facts=tuple(numbers.items()),
        kernels=(*(kernel for kernel, _, _ in ways), *whole.kernels),
        variants=(*(way for _, _, way in ways), *whole.variants),
        orders=orders,
    )


def in_lines(group: Group, dims) -> tuple[Pack, ...]:
    """A copy of the operand that windows slide along, where its lines are not contiguous.

    Lanes run along the lines of the result, so they would load apart: means of 3 x 3 of 24 x 807 x 128 x 81 with H and W
    exchanged took 1,322 us.
    """
    lane = group.row[-1].index
    for read in operands(group.nests):
        own = dims[read.tensor]
        if len(own) > 1 and own[-1] != ir.BATCH_SIZE and {lane} < indices(read.coords[-1]):
            return (Pack(read.tensor, tuple(range(len(own)))),)
    return ()


def beside(name, group, stores, dims, facts, estimated) -> Step | None:
    """The same for a step of another class, but for the last variant. `estimated`: the estimate of each."""
    if reach(group, len(group.row) - 1, facts) is None:
        return None
    step = make(name, group, stores, dims, facts)
    few = tuple(
        replace(v, packs=(), estimate=estimated(v, step.orders)) for v in step.variants[:-1]
    )
    spoken = {"rows", "cols"} - {n for v in few for run in v.launches for n in names(run.grid[0])}
    own = tuple(n for n in step.facts if n[0] not in spoken)
    return replace(step, facts=own, kernels=step.kernels[:-1], variants=few)


def in_runs(group: Group, facts: Facts) -> tuple[Poly, Poly, Poly] | None:
    """The distances of neighbouring lanes' windows and of two terms, and the number of terms in line, of whole runs.

    A run needs one index of the window that slides along the lanes, in every read alike, by steps that are known when the
    kernel is compiled. All lanes of a run must lie on one line: `x[c, p + r]` does, `x[p, p + r]` does not. Runs of one operand
    lie along one dim, not as those of `x[p, q + r] - x[q + r, p]`.
    """
    lane, window = group.row[-1].index, {b.index for b in window_of(group)}
    told = facts.constants.union(*(symbols(b.lo) | symbols(b.hi) for b in window_of(group)))
    found: set[tuple[Poly, str, Poly]] = set()
    for coordinate in (p for p in places(group.nests) if {lane} < indices(p)):
        parts = affine(coordinate)
        if parts is None or is_fractional(coordinate) or not symbols(coordinate) <= told:
            return None
        weights = {a.name: weight for a, weight in parts[0].items() if isinstance(a, Idx)}
        if len(weights) < len(parts[0]):
            return None
        stride, rest = weights.pop(lane), set(weights)
        if len(rest) != 1 or not rest <= window or not is_size(parts[1]) or indices(stride):
            return None
        ((name, apart),) = weights.items()
        found.add((stride, name, apart))
    if len(found) != 1:
        return None
    ((stride, name, apart),) = found
    # The dims along which an operand has runs. VEC says what divides its strides once for all of them.
    slid: dict[str, set[int]] = {}
    for read in (r for n in group.nests for r in reads(n.body)):
        if any({lane, name} <= indices(c) for c in read.coords):
            at = {k for k, c in enumerate(read.coords) if indices(c) & {lane, name}}
            slid.setdefault(read.tensor, set()).update(at)
    slides_once = all(len(at) == 1 for at in slid.values())
    (binder,) = (b for b in window_of(group) if b.index == name)
    return (stride, apart, binder.hi - binder.lo) if slides_once else None


def line_of(group: Group, dims) -> Poly:
    """How long the line is that the lanes run along in the first operand that has one."""
    lane = group.row[-1].index
    every = (r for n in group.nests for r in reads(n.body))
    found = ((r.tensor, k) for r in every for k, c in enumerate(r.coords) if {lane} < indices(c))
    return next(dims[tensor][k] for tensor, k in found)


def is_gathered(nest: ir.Nest) -> bool:
    """Whether LLVM may make one vector of all terms: computed terms of a reducer that takes them in any order.

    It does so where several terms of a lane share a run. In Triton 3.6 its vectorizer then fails an assertion for 32, 64
    and 128 halves (`min(a * w)` at stride 2). It also holds all terms in registers: 255 for 64 terms of f32, where separate
    loads take 167. Neither was seen for windows that are one apart, nor for plain reads.
    """
    if not is_reducer(nest) or nest.fold.is_place:
        return False
    in_turn = nest.fold.op in ("sum", "prod") and nest.fold.dtype in ("compute", *ir.FLOATS)
    return is_computed(nest) and not in_turn


def is_computed(nest: ir.Nest) -> bool:
    """Whether the terms of a reducer are more than reads."""
    return is_reducer(nest) and any(
        not isinstance(e, ir.Read | ir.Cast) for e in ir.walk(nest.fold.body)
    )


def with_runs(way, name: str, group: Group, dims, slid: tuple[Poly, Poly, Poly]):
    """The same variant with lines loaded in whole runs.

    In per cent of copy on an H200 (separate loads): 3x3 pools at stride 2 of 64 x 64 x 256 x 512 in bf16 94 to 99 (71), 2x2
    pools 102 (86). 4 outputs a lane suit depthwise 3x3 in bf16: 80, with one 50.

    Where runs do not pay, in us (separate loads):

    - odd lines begin anywhere: 3x3 means of 107 x 57: 143 (63)
    - but computed terms with four or more in line gain even there: depthwise 2 x 4 of 251 x 50 x 21 x 95: 60 (140)
    - with two or three in line they do not: bf16 3 x 3 of 8 x 409 x 115 x 219: 405 (188)
    - many terms, whose loads wait for one another: f32 conv1d of 114 terms: 706 (97)
    """
    stride, apart, abreast = slid
    computed = any(map(is_computed, group.nests))
    kernel, numbers, variant = way
    kernel = replace(kernel, name=f"{name}_runs", skeleton="runs")
    line = ("line", line_of(group, dims))
    numbers = [*numbers, ("lane_stride", stride), ("dilation", apart), line]
    numbers += [("abreast", abreast)] if computed else []
    changed = dict(variant.config) | {"ROWS": "max(1, 128 // BLOCK)"}
    wide = ("PER_THREAD", "min(BLOCK, 8 // itemsize) if lane_stride == 1 else 1")
    warps = ("num_warps", "max(1, min(4, BLOCK // PER_THREAD // (32 if lane_stride == 1 else 64)))")
    config = tuple((k, v) for k, v in changed.items() if k != "num_warps")
    good = "line % 2 == 0 and itemsize <= 2 * lane_stride"
    if computed:
        good = f"terms <= {RUN_TERMS} and (line % 2 == 0 or lane_stride == 1 and abreast >= 4)"
    few = ""
    if any(map(is_gathered, group.nests)):
        few = f"(lane_stride == 1 or terms < {GATHERED}) and "
    # A run is a power of two, and the lines of a window are counted from its first term to its last.
    whole = "1 <= lane_stride <= 8 and pow2(lane_stride) == lane_stride and dilation >= 0"
    variant = replace(
        variant,
        name="runs",
        when=f"{few}{good} and {whole} and {variant.when}",
        requires=f"{few}{whole} and {variant.requires}",
        why=f"{variant.why}, lines loaded in whole runs",
        config=(*config, wide, warps),
        launches=tuple(replace(run, kernel=kernel.name) for run in variant.launches),
    )
    return kernel, numbers, variant


def window_of(group: Group) -> ir.Binders:
    return next(binders_of(n) for n in group.nests if is_reducer(n))


def channels(group: Group, stores, facts: Facts) -> tuple[int, tuple[Order, ...]] | None:
    """An index of the box along which memory may run instead of the last one, and how to tell.

    Both the operand and the result count: the maximum over one dim is allocated in lines, whatever its operand is.
    """
    box_names = [b.index for b in group.row]
    along = set().union(*slides(group.nests, window_of(group), facts).values())
    if box_names[-1] not in along:
        return None
    for read in operands(group.nests):  # what lies nowhere tells nothing of memory
        used = [indices(c) & frozenset(box_names) for c in read.coords]
        slid = [k for k, own in enumerate(used) if box_names[-1] in own]
        still = [b for b in box_names if b not in along and b != ir.BATCH and {b} in used]
        if slid and still and reach(group, place := box_names.index(still[-1]), facts):
            near = used.index(frozenset({still[-1]}))
            (coords,) = (n.coords for n in group.nests if n.name == stores[-1])
            both = still[-1], box_names[-1]
            at = [k for b in both for k, c in enumerate(coords) if b in indices(c)]
            return place, (
                Order("channels_last", read.tensor, *_dims(read.coords, near, slid[0])),
                Order("stored_last", stores[-1], *_dims(coords, *at)),
            )
    return None


def _dims(coords: tuple[Poly, ...], *at: int) -> list[int]:
    """Dims of a tensor that may have any number in place of `...`: those behind are counted from the end."""
    batch = next((k for k, c in enumerate(coords) if ir.BATCH in indices(c)), len(coords))
    return [k - len(coords) if k > batch else k for k in at]


def unrolled(name, group, stores, facts, kind, col, orders=()):
    """One kernel whose lanes run along the box's index `col`, its facts and its variant."""
    digits = [b for k, b in enumerate(group.row) if k != col]
    at = stepped(group.nests, digits, window_of(group), facts)
    step = () if at is None else (digits.pop(at),)
    axes = (Axis("row", tuple(digits)), Axis("step", step), Axis("col", (group.row[col],)))
    kernel = KernelPlan(f"{name}_{kind}", "window", axes, group.nests, stores)
    lines, steps, cols, far = "lines", "steps", "cols", "cols_extent"
    if orders:
        lines, steps, cols, far = "outer", "along", "lanes", "lanes_extent"
    terms = Axis("window", window_of(group)).extent
    numbers = [("terms", terms), (lines, axes[0].extent), (cols, axes[2].extent)]
    furthest = reach(group, col, facts)
    assert furthest is not None  # as the variant was chosen
    numbers.append((far, furthest))
    sums = (n.fold.body for n in group.nests if is_reducer(n))
    weighted = bool(orders) and any(len(reads(body)) > 1 for body in sums)
    unrolled_terms = UNROLLED_WEIGHTED if weighted else UNROLLED
    most_terms = unrolled_terms // cost_of(group, step or (() if orders else axes[2].digits))
    config = channels_tile(cols, weighted) if orders else columns_tile(cols, bool(step))
    few = f"{most_terms} // max(1, terms)"  # of steps
    if step:
        stride = f"stride_{step[0].index}"
        numbers += [(steps, axes[1].extent), (stride, stride_of(group, step[0].index))]
        # 16 rows at stride 1 (4 x 4 windows 78%, 8 rows 75), 4 at stride 2 (3 x 3 101%, 8 rows 97).
        squared = f"{stride} * {stride}"
        if not plainly_nonnegative(stride_of(group, step[0].index) - 1, facts):
            squared = f"max(1, {squared})"
        shared = "8" if weighted else f"16 // ({squared})"
        most = f"max(1, min(pow2({steps}), {shared}, {few}))"
        grid = f"cdiv({lines}, ROWS) * cdiv({steps}, STEPS) * cdiv({cols}, BLOCK)"
    else:
        # Blocks of columns: a 1-d pool 66% (torch.compile 56), with one block a program 38%.
        most = f"max(1, min(8, cdiv(pow2({cols}), BLOCK), {few}))"
        grid = f"cdiv({lines}, ROWS) * cdiv({cols}, STEPS * BLOCK)"
    config = (*config, ("STEPS", most))
    # Terms are unrolled, and lanes count in 32 bits.
    most_terms = min(MOST_TERMS, most_terms)
    requires = when = f"0 < terms <= {most_terms} and max({lines}, {far}) < 1 << 30"
    why = "a window small enough to unroll"
    if orders:
        # An odd number of channels pays, too: depthwise 5 x 2 of 673 channels in f16 takes 86 us, by lines 122 or 225 (H100).
        when = " and ".join([*(o.fact for o in orders), when])
        why = f"{why}, memory running along the channels"
    elif not any(map(is_computed, group.nests)):
        # Lanes of short lines lie as far apart as these: means of 3 x 3 at stride 2 of 160 x 331 x 128 x 5 in f16 took
        # 208 us, as loops over rows side by side 77 (H100).
        when = f"{when} and ({cols} > 4 or terms > 9)"
    launches = (Launch(kernel.name, (grid,)),)
    return kernel, numbers, Variant(kind, when, why, config, launches, requires=requires)


def cost_of(group: Group, step: ir.Binders) -> int:
    """How much longer an unrolled term takes to compile than a term of a pool.

    For each load Triton looks through everything that depends on it. Loads that steps do not share are repeated for each
    step. The place of a maximum takes four times the lines of its value. 8 x 8 windows in 4 steps: max 2 s, argmax 32 s.
    """
    window, moving = {b.index for b in window_of(group)}, {b.index for b in step}

    def is_shared(read: ir.Read) -> bool:
        """Whether a step on is a term on: `x[p + r, q + s]`, but neither `x[p, r]` nor `x[p + r, r]`."""
        used = [indices(c) for c in read.coords]
        slid = set().union(*(u & window for u in used if moving & u))
        others = set().union(*(u for u in used if not moving & u))
        return not slid & others and all(u & window for u in used if moving & u)

    total = 0
    for nest in filter(is_reducer, group.nests):
        body = nest.fold.body
        apart = sum(not is_shared(r) for r in reads(body))
        calls = sum(isinstance(e, ir.Call) for e in ir.walk(body))
        total += (1 + apart + calls // 4) * (4 if nest.fold.is_place else 1)
    return min(total, UNROLLED)


def columns_tile(cols: str, steps: bool):
    """One or two elements a thread, since neighbours of a line that is not aligned load apart.

    Narrow images take single warps.

    3x3 pools at stride 2, in per cent of copy: 512 wide 102, 56 wide 90 (in four warps 83). Short lines of few terms that
    no steps share take more rows a program: maxima of 3 along 14 x 913 x 117 take 7.0 us, before 12.1 (torch.compile 6.7;
    H100).
    """
    rows = "max(1, 64 // BLOCK)"
    return (
        ("BLOCK", f"max(1, min({256 if steps else 128}, pow2({cols})))"),
        ("ROWS", rows if steps else f"256 // BLOCK if BLOCK <= 64 and terms <= 8 else {rows}"),
        ("num_warps", "4 if BLOCK > 64 else 1"),
    )


def channels_tile(channels: str, weighted: bool):
    """The tile of lanes that run along the channels.

    - Few terms: 16 bytes a thread, so that one load is a term. 9 x 9 maxima of 16 x 256 x 56 x 56 take 150 us, with fewer
      bytes 268.
    - Many terms: fewer bytes. 3 x 3 x 3 maxima in f16 took 763 us, spilling, and take 82 (cuDNN 205; H100).
    - With weights: a warp of two rows, whose windows share lines. It takes 64 channels of up to ten terms, 32 of more, and
      one row of more than 64 terms; others spill. 7 x 7 of 32 x 384 x 28 x 28 in f16 took 537 us, and takes 114 (cuDNN
      104).
    """
    if not weighted:
        return (
            ("BLOCK", f"max(1, min(256, pow2({channels})))"),
            ("ROWS", f"max(1, (1024 // itemsize if terms <= {FEW_TERMS} else 256) // BLOCK)"),
            ("num_warps", f"2 if terms <= {HELD} else 4"),
        )
    few = f"terms <= {HELD_WEIGHTED}"
    return (
        ("BLOCK", f"max(1, min(64 if {few} else 32, pow2({channels})))"),
        ("ROWS", f"max(1, (128 if {few} else 64 if terms <= 64 else 32) // BLOCK)"),
        ("num_warps", "1"),
    )


def stride_of(group: Group, name: str) -> Poly:
    """How far a window moves with one step."""
    slid = (p for p in places(group.nests) if name in indices(p) and len(indices(p)) > 1)
    stride = weight_of(next(slid), name)
    assert stride is not None
    return stride


def stepped(nests, digits, window, facts) -> int | None:
    """The last index that windows slide along by whole steps, and that is used in no other way."""
    along = set().union(*slides(nests, window, facts).values())
    every = [p for n in nests for p in (*coordinates(n.body), *n.coords)]
    for k in reversed(range(len(digits))):
        name = digits[k].index
        used = [p for p in every if name in indices(p)] if name in along else []
        if used and not any(is_fractional(p) or weight_of(p, name) is None for p in used):
            return k
    return None
