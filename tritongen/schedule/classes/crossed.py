"""Folds both ways over one tile: over the columns of each row, and over the rows of each column.

    r[n] = rsqrt(mean[d](x[n, d] ** 2))
    dx[n, d] = dy[n, d] * w[d] * r[n] - ...
    dw[d] = sum[n](dy[n, d] * x[n, d] * r[n])

The gradient of a norm is one. Each element is read once. A program walks a run of rows and holds each row in registers. It
stores what belongs to a row at once. What it folds over rows is a state that it keeps to the end. A second kernel merges
the states of all programs, in their order. Kernels are lowered from walks (`tritongen/kernel`).

Rows that are too wide for registers are walked twice: first by rows, whose folds are stored, then by columns.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices
from tritongen.ir.free import (
    binders_of,
    fetches,
    following,
    free_indices,
    needed,
    reads,
    tensors_read,
)
from tritongen.kernel.lower import CannotLower, lower
from tritongen.kernel.nodes import PARTS, Kernel, Loop, Store, Walk, statements
from tritongen.kernel.parts import PART, in_parts, merging, state_name
from tritongen.kernel.verify import verify
from tritongen.schedule.classes.chain_lines import with_nan
from tritongen.schedule.classes.contraction import as_product
from tritongen.schedule.members import Group, gather_lines, is_reducer, operands, results
from tritongen.schedule.plan import Dims, KernelPlan, Launch, Step, Variant, View, walked_axes
from tritongen.schedule.views import accesses

ACROSS = ("sum", "max", "min", "mean")  # a row
MOST_LINES = 32  # of which a kernel holds tiles in registers: a norm's gradient has about fifteen
DOWN = ("sum",)  # a column


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    """The members as one kernel, where folds both ways read a tensor along rows and columns."""
    reducers = [n for n in members if is_reducer(n)]
    if len(reducers) < 2:
        return None
    row, col = reducers[0].box, binders_of(reducers[0])
    rows, cols = reducers[0].over, reducers[0].reduced
    if len(row) != 1 or len(col) != 1 or rows & cols:
        return None
    if not any(n.reduced == rows for n in reducers):
        return None
    if any(as_product(n, virtual, facts) for n in reducers):
        return None
    lines = gather_lines(members, virtual, rows | cols, (rows, cols, rows | cols, set()))
    if len(lines) > MOST_LINES:
        return None
    own = {b.index: b.hi for b in (*row, *col)}
    for n in lines:
        if any(b.lo.terms or own.get(b.index) != b.hi for b in n.ranges):
            return None
        if any(True for _ in fetches(n.body)) or not all(map(is_plain, reads(n.body))):
            return None
        if is_reducer(n) and not _is_fold(n, rows, cols):
            return None
    read = {(r.tensor, r.coords) for r in operands(lines)}
    if len(read) > len({tensor for tensor, _ in read}):  # a view has one set of coordinates
        return None
    group = Group("crossed", lines, row, col)
    if not _shared(group) or not all(_ends(n, group) for n in down_folds(group)):
        return None
    try:
        kernel = _walked("", group, lines, results(lines), "loop", "whole", "WIDTH")
    except CannotLower:
        return None
    return group if sum(isinstance(s, Loop) for s in kernel.body) == 1 else None


def is_plain(read: ir.Read) -> bool:
    """Whether a read is at indices, or numbers, alone."""
    alone = all(not indices(c) or c == index(next(iter(indices(c)))) for c in read.coords)
    return alone and read.fill is None


def _is_fold(n: ir.Nest, rows: set[str], cols: set[str]) -> bool:
    """Whether a reducer goes across rows, or down columns."""
    across = n.over == rows and n.reduced == cols and n.fold.op in ACROSS
    down = n.over <= cols and n.reduced == rows and n.fold.op in DOWN
    return (across or down) and not n.fold.guards


def _ends(fold: ir.Nest, group: Group) -> bool:
    """Whether nothing but values of columns follows from a fold over rows: that is there behind the last row."""
    behind = following(group.nests, {fold.name})
    own = (n for n in group.nests if n.name in behind)
    return not any(is_reducer(n) or not n.over <= group.cols for n in own)


def down_folds(group: Group) -> list[ir.Nest]:
    return [n for n in group.nests if n.reduced == group.rows]


def _shared(group: Group) -> bool:
    """Whether a fold over rows and one over columns of its own read the same tensor along rows and columns."""
    down = down_folds(group)
    across = [n.name for n in group.nests if is_reducer(n) and n not in down]
    both = group.rows | group.cols
    wide = {r.tensor for r in operands(group.nests) if free_indices(r) == both}
    down_lines = needed(group.nests, (n.name for n in down if n.box), across)
    one, other = (
        {t for n in lines for t in tensors_read(n.body)}
        for lines in (down_lines, needed(group.nests, across))
    )
    return bool(wide & one & other)


# ---- its kernels ---------------------------------------------------------------------------------
def _walked(name, group: Group, lines, stores, rows: str, cols: str, block: str) -> Kernel:
    """The kernel that walks rows and columns in these ways."""
    (row,), (col,) = group.row, group.col
    walks = Walk(row.index, row.hi, rows, "ROWS"), Walk(col.index, col.hi, cols, block)
    return lower(name, lines, walks, stores)


def make(name, group, stores, dims, facts) -> Step:
    (row,), (col,) = group.row, group.col
    nests = group.nests
    once = _walked(f"{name}_rows", group, nests, stores, "loop", "whole", "WIDTH")
    loop = next(s for s in once.body if isinstance(s, Loop))
    leaving = {s.tensor for s in statements(loop.body) if isinstance(s, Store)}
    merged = tuple(s for s in stores if s not in leaving)
    behind = merging(once, nests)
    walks = Walk(PART, PARTS, "loop", "BLOCK_P"), Walk(col.index, col.hi, "tile", "COLS")
    down = tuple(n.name for n in down_folds(group))
    across = [n.name for n in nests if is_reducer(n) and n.name not in down]
    by_columns = needed(nests, down, across)
    read = set[str]().union(*(tensors_read(n.body) for n in by_columns))
    kept = tuple(t for t in across if t in read)
    by_rows = with_sums(needed(nests, (*leaving, *kept)), col.hi, dims)
    left = tuple(dict.fromkeys((*(s for s in stores if s in leaving), *kept)))
    tall = _walked("", group, by_rows, left, "tile", "loop", "BLOCK")
    told = replace(group, nests=by_rows), tall, frozenset[str](), frozenset(dims), frozenset(left)
    by_rows = with_nan(*told).nests
    columns = _walked(f"{name}_columns", group, by_columns, down, "loop", "tile", "BLOCK")
    made = (
        (in_parts(once.name, once, nests), nests),
        (lower(f"{name}_merge", behind, walks, merged), behind),
        (_walked(f"{name}_wide", group, by_rows, left, "tile", "loop", "BLOCK"), by_rows),
        (in_parts(columns.name, columns, by_columns), by_columns),
    )
    views, kernels = views_of(group, stores, dims), []
    seen = tuple(replace(v, in_rows=v.runs[-1] == (col.index,)) for v in views)
    for own, lines in made:
        verify(own, lines, [s.tensor for s in own.stores])
        walked = sorted(own.walks, key=lambda w: w.index == PART)
        kernels.append(
            KernelPlan(own.name, "fused", walked_axes(walked), lines, stores, seen, kernel=own)
        )
    part, merge, tall, columns = (own for own, _ in made)

    # A number of the whole op, such as the gradient of a scalar, is rarely asked for.
    optional = tuple(s for s in merged if not dims[s] and len(stores) > 1)
    led = {n: [s for s in stores if n in {m.name for m in needed(nests, [s])}] for n in down}
    parts = tuple((state_name(n), s) for s in optional for n in led if led[n] == [s])
    states = tuple(
        (state_name(n.name), n.dtype, ("PARTS", *("cols" for _ in n.box)))
        for n in down_folds(group)
    )
    kept_there = tuple(
        (n.name, n.dtype, ("rows",)) for n in nests if n.name in kept and n.name not in stores
    )
    fits = "cols <= (4096 if in_f64 else 16384)"
    merging_launch = Launch(
        merge.name,
        ("max(1, cdiv(cols, COLS))",),
        (("BLOCK_P", "128"), ("COLS", "16"), ("STAGES", "2"), ("num_warps", "4")),
    )
    # Elements a thread has of each tile, and programs that a multiprocessor has the registers for: all run at once.
    lanes = "256 if in_f64 or ROWS * WIDTH < 2048 else 512"
    together = "max(1, (12 if in_f64 or ROWS > 1 else 24 if WIDTH < 2048 else 16) // num_warps)"
    whole = Variant(
        "rows",
        fits,
        "rows fit in registers: each is read once",
        (
            ("WIDTH", "max(16, pow2(cols))"),
            ("ROWS", "max(1, (4096 if strided else 1024) // WIDTH)"),
            ("num_warps", f"min(32, max(1, ROWS * WIDTH // ({lanes})))"),
            ("RESIDENT", together),
            ("PARTS", "max(1, min(RESIDENT * sms, cdiv(rows, ROWS)))"),
            ("STAGES", "min(3, 1 + 1000 * shared // (RESIDENT * tile_bytes * ROWS * WIDTH))"),
            ("HOLD", "WIDTH <= 8192"),
            ("COLS", "16"),
        ),
        (Launch(part.name, ("PARTS",)), merging_launch),
        states,
        parts=parts,
        requires=fits,
    )
    wide = Variant(
        "wide",
        "True",
        "any width: by rows, and again by columns",
        (
            ("ROWS", "1"),
            ("BLOCK", "4096"),
            ("num_warps", "8"),
            ("STAGES", "2"),
            ("COLS", "16"),
            ("PARTS", "shares(4 * sms, cdiv(cols, BLOCK), cdiv(rows, 16))"),
        ),
        (
            Launch(tall.name, ("cdiv(rows, ROWS)",)),
            Launch(columns.name, ("PARTS * max(1, cdiv(cols, BLOCK))",)),
            merging_launch,
        ),
        (*states, *kept_there),
        parts=parts,
    )
    why = "folds over rows and over columns of the same tensors: each element is read once"
    numbers, variants = (("rows", row.hi), ("cols", col.hi)), (whole, wide)
    return Step(name, "crossed", why, stores, numbers, tuple(kernels), variants, optional=optional)


def views_of(group: Group, stores: tuple[str, ...], dims: Dims):
    """What lies along rows and columns, as the kernels see it.

    A tensor that is read in two ways, or at a number such as `M - 1`, has no view. Kernels address it dim by dim.
    """
    row, col = group.row[0].index, group.col[0].index
    ways: dict[str, set[tuple[Poly, ...]]] = {}
    for tensor, at in accesses(group.nests, stores, dims):
        ways.setdefault(tensor, set()).add(at)
    for tensor, (coords, *others) in ways.items():
        plain = all(not c.terms or c in map(index, indices(c)) for c in coords)
        if not others and plain and all(index(x) in coords for x in (row, col)):
            yield View(tensor, dims[tensor], tuple(tuple(indices(c)) for c in coords))


def with_sums(nests: ir.Nests, count: Poly, dims: Dims) -> ir.Nests:
    """Means as sums, for a loop: first of the terms, then of what that mean leaves of them, as `lib.mean_of` has it."""
    taken = {n.name for n in nests} | set(dims)
    found = list[ir.Nest]()
    for n in nests:
        if not is_reducer(n) or n.fold.op != "mean":
            found.append(n)
            continue
        own = [f"{n.name}_{word}" for word in ("sum", "near", "rest_sum", "rest")]
        names = [f"{name}_" if name in taken else name for name in own]
        dtype, size = n.dtype, ir.IndexValue(count, n.dtype)
        at = [ir.Read(name, n.coords, None, dtype) for name in names]
        total = replace(n.fold, op="sum")
        apart = replace(total, body=ir.Call("sub", (total.body, at[1]), dtype))
        finite = ir.Call("isfinite", (at[3],), "bool")
        rest = ir.Call("where", (finite, at[3], ir.Const(0.0, dtype)), dtype)
        near, left = (ir.Call("div", (at[k], size), dtype) for k in (0, 2))
        bodies: tuple[ir.Expr, ...] = total, near, apart, left
        found += [replace(n, name=x, body=e) for x, e in zip(names, bodies, strict=True)]
        found.append(replace(n, body=ir.Call("add", (at[1], rest), dtype)))
    return tuple(found)
