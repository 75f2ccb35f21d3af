"""Groups to steps: axes, kernels, variants. One function a kernel class, every constant with its reason.

Input: a `Group`. Output: a `Step` whose rules speak of the step's facts (`rows`, `cols`, `sms`, ...).
Figures are for one H200 and come from the design's performance page unless a comment says otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, affine, index, indices, poly, size
from tritongen.ir.bounds import Facts
from tritongen.schedule.canonical import reads, tensors_read
from tritongen.schedule.group import Group, is_reducer
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Level, Step, Variant, View
from tritongen.schedule.views import digits_by_dim, views


def accesses(nests, stores, dims):
    """(tensor, coords) of all reads of stored tensors and of all stores, in order of appearance."""
    computed = {n.name for n in nests}
    for nest in nests:
        for read in reads(nest.body):
            if read.tensor not in computed and (dims is None or read.tensor in dims):
                yield read.tensor, read.coords
    for nest in nests:
        if nest.name in stores:
            yield nest.name, nest.coords


def make_step(name: str, group: Group, stores: tuple[str, ...], dims, facts: Facts) -> Step:
    """The step of one group; `stores` are the values that someone outside it reads."""
    return MAKERS[group.kind](name, group, stores, dims, facts)


# ---- pointwise ----------------------------------------------------------------------------------
def pointwise(name, group, stores, dims, facts) -> Step:
    whole = (Axis("i", group.row),)
    seen = views(accesses(group.nests, stores, dims), dims, whole, facts)
    touched = {tensor for tensor, _ in accesses(group.nests, stores, dims)}
    if all(len(v.runs) == 1 and len(v.runs[0]) == len(group.row) for v in seen) and len(
        seen
    ) == len(touched):
        return _flat(name, group, stores, whole, seen)
    return _tile(name, group, stores, dims, facts)


def _flat(name, group, stores, axes, seen) -> Step:
    if [d.index for d in group.row] == [ir.BATCH]:
        return _merged(name, group, stores)
    kernel = KernelPlan(f"{name}_flat", "flat", "whole", axes, group.nests, stores, seen)
    variant = _flat_variant(kernel, "True", "every operand is walked as one run of elements")
    numbers = (("total", axes[0].extent),)
    return Step(name, "pointwise", "no reducer", stores, numbers, (kernel,), (variant,))


def _flat_variant(kernel: KernelPlan, when: str, why: str) -> Variant:
    # 16 bytes a thread and access, and several accesses in flight: 97% of copy.
    config = (("BLOCK", "2048"), ("num_warps", "8"))
    return Variant("flat", when, why, config, (Launch(kernel.name, ("cdiv(total, BLOCK)",)),))


def _merged(name, group, stores) -> Step:
    """A box of batch dims alone: the launch merges them to three dims, to one where all lie in one run."""
    tensors = dict.fromkeys(t for t, coords in accesses(group.nests, stores, None) if coords)
    one = Axis("i", (ir.Binder(ir.BATCH, Poly(), size("total")),))
    run = tuple(View(t, (poly(1), poly(1), size("total")), ((), (), (ir.BATCH,))) for t in tensors)
    kernel = KernelPlan(f"{name}_flat", "flat", "whole", (one,), group.nests, stores, run)
    strided, fallback = _strided(name, group, stores, tuple(tensors))
    flat = _flat_variant(kernel, "outer * middle == 1", "every operand lies in one run")
    numbers = tuple((d, size(d)) for d in (*BATCH_DIGITS, "total"))
    kernels, variants = (kernel, strided), (flat, fallback)
    return Step(
        name, "pointwise", "no reducer", stores, numbers, kernels, variants, merged=tuple(tensors)
    )


BATCH_DIGITS = ("outer", "middle", "inner")


def _strided(name, group, stores, tensors: tuple[str, ...]) -> tuple[KernelPlan, Variant]:
    """Operands of any rank and strides, as three dims."""
    digits = tuple(ir.Binder(f"{d}_at", Poly(), size(d)) for d in BATCH_DIGITS)
    axes = (Axis("row", digits[:2]), Axis("col", digits[2:]))
    nests = tuple(_with_batch(n, digits) for n in group.nests)
    runs = tuple((d.index,) for d in digits)
    seen = tuple(View(t, tuple(size(d) for d in BATCH_DIGITS), runs) for t in tensors)
    kernel = KernelPlan(f"{name}_strided", "tile", "whole", axes, nests, stores, seen)
    config = (
        ("BLOCK", "64 if turned else min(1024, max(16, pow2(inner)))"),
        ("ROWS", "max(1, 4096 // BLOCK)"),
        ("num_warps", "8"),
    )
    why = "any strides: a square tile where memory runs along another dim than the last"
    grid = ("cdiv(outer * middle, ROWS) * cdiv(inner, BLOCK)",)
    return kernel, Variant("strided", "True", why, config, (Launch(kernel.name, grid),))


def _with_batch(nest: ir.Nest, digits) -> ir.Nest:
    """A nest over the batch dims as three indices."""
    three = tuple(index(d.index) for d in digits)

    def spread(coords):
        return tuple(c for p in coords for c in (three if p == index(ir.BATCH) else (p,)))

    def change(node: ir.Expr) -> ir.Expr:
        return replace(node, coords=spread(node.coords)) if isinstance(node, ir.Read) else node

    return replace(nest, box=digits, coords=spread(nest.coords), body=ir.rebuild(nest.body, change))


def _tile(name, group, stores, dims, facts) -> Step:
    touched = list(accesses(group.nests, stores, dims))
    split = _column_digits(group, touched, dims, facts)
    axes = (Axis("row", group.row[:split]), Axis("col", group.row[split:]))
    seen = views(touched, dims, axes, facts)
    kernel = KernelPlan(f"{name}_tile", "tile", "whole", axes, group.nests, stores, seen)
    if _disagree(seen, axes):
        config = (("ROWS", "64"), ("BLOCK", "64"), ("num_warps", "8"))
        why = "operands disagree on the fastest axis: a square tile reads and writes whole lines"
    else:
        config = (
            ("BLOCK", "min(1024, max(16, pow2(cols)))"),
            ("ROWS", "max(1, 2048 // BLOCK)"),
            ("num_warps", "8"),
        )
        why = "rows of the fastest axis"
    grid = ("cdiv(rows, ROWS) * cdiv(cols, BLOCK)",)
    variant = Variant("tile", "True", why, config, (Launch(kernel.name, grid),))
    numbers = (("rows", axes[0].extent), ("cols", axes[1].extent))
    return Step(name, "pointwise", "no reducer", stores, numbers, (kernel,), (variant,))


def _column_digits(group, touched, dims, facts) -> int:
    """Where the box splits into rows and columns: the longest tail that every tensor walks whole or not at all."""
    box = [b.index for b in group.row]
    extents = {b.index: b.hi - b.lo for b in group.row}
    for split in range(max(len(box) - 1, 0)):
        tail = box[split + 1 :]
        if all(
            _walks_whole(coords, dims[tensor], tail, extents, facts) for tensor, coords in touched
        ):
            return split + 1
    return max(len(box) - 1, 0)


def _walks_whole(coords, dims, tail, extents, facts) -> bool:
    used = set().union(*(indices(c) for c in coords)) & set(tail)
    if not used:
        return True
    digits = digits_by_dim(coords, dims, extents, facts)
    if digits is None or used != set(tail):
        return False
    start = digits.index(tail[0])
    return list(digits[start : start + len(tail)]) == tail


def _disagree(seen: tuple[View, ...], axes) -> bool:
    last = {v.runs[-1] for v in seen if v.runs}
    cols = {d.index for d in axes[1].digits}
    return any(not set(run) & cols for run in last if run) and any(set(run) & cols for run in last)


# ---- rows ---------------------------------------------------------------------------------------
def rows(name, group, stores, dims, facts) -> Step:
    touched = list(accesses(group.nests, stores, dims))
    row = _in_storage_order(group.row, touched, dims, facts)
    axes = (Axis("row", row), Axis("col", group.col))
    seen = views(touched, dims, axes, facts)
    levels = levels_of(group.nests)
    shared = (axes, group.nests, stores, seen, levels)
    resident = KernelPlan(f"{name}_rows", "rows", "whole", *shared)
    again = (
        (KernelPlan(f"{name}_wide", "rows", "whole", *shared, reload=True),)
        if _has_columns(touched, group)
        else ()
    )
    loop = KernelPlan(f"{name}_loop", "loop", "whole", *shared)
    numbered = len(levels) > 2
    parts = tuple(
        KernelPlan(f"{name}_part{k if numbered else ''}", "part", f"part {k}", *shared)
        for k in range(1, len(levels))
    )
    finish = KernelPlan(f"{name}_finish", "finish", "finish", *shared)
    numbers = (("rows", axes[0].extent), ("cols", axes[1].extent))
    split = _split_variant(parts, finish, group)
    variants = (split, *_resident_variants(resident, again), _loop_variant(loop))
    kernels = (resident, *again, loop, *parts, finish)
    return Step(
        name, "rows", "reducers over one set of indices", stores, numbers, kernels, variants
    )


def _has_columns(touched, group) -> bool:
    """Whether some operand is the same for all rows (a gain, a bias), and a value over the tile is stored."""
    col, row = {b.index for b in group.col}, {b.index for b in group.row}
    used = [set().union(*(indices(c) for c in coords)) for _, coords in touched]
    return any(u and u <= col for u in used) and any(u >= row | col for u in used)


def _split_variant(parts, finish, group) -> Variant:
    grid = ("PARTS", "cdiv(rows, ROWS)")
    state = tuple(
        (part, dtype, ("rows", "PARTS"))
        for nest in group.nests
        if is_reducer(nest)
        for part, dtype in fold_state(nest)
    )
    config = (
        ("ROWS", "32 if across else 1"),
        ("BLOCK", "64 if across else 2048"),
        (
            "PARTS",
            "pow2(max(1, min(256, cdiv(4 * sms, max(1, cdiv(rows, ROWS))), cdiv(cols, 2 * BLOCK))))",
        ),
        ("CHUNK", "BLOCK * cdiv(cols, BLOCK * PARTS)"),
        ("num_warps", "8"),
    )
    return Variant(
        "split",
        "cdiv(rows, 32 if across else 1) < 2 * sms and cols > 8192",
        "too few rows to fill the GPU: several programs share one",
        config,
        (*(Launch(p.name, grid) for p in parts), Launch(finish.name, grid)),
        state,
    )


def _resident_variants(resident, again) -> tuple[Variant, ...]:
    """Measured with softmax, rms_norm and layer_norm in bf16 at 256 to 16,384 wide, 2^27 elements.

    An empty row goes to the loop, which has no masked lanes to keep out of its folds. Without column
    operands, one row of 8,192 in 4 warps reaches 95% of copy. With them, two things
    count: several rows share each load of a gain (4 rows of 4,096 in 8 warps: 91 to 95%, one row: 78),
    and beyond 4,096 a row, its gain and its bias no longer fit the registers of two programs a
    multiprocessor; reading x again from L2 does (16,384 wide: 84%, held: 55 to 74).
    """
    grid = ("cdiv(rows, ROWS)",)
    across = Variant(
        "across",
        "across and 0 < cols <= 512",
        "short rows whose elements lie far apart: memory runs along the rows' own axis",
        (("BLOCK", "max(16, pow2(cols))"), ("ROWS", "max(1, 8192 // BLOCK)"), ("num_warps", "8")),
        (Launch(resident.name, grid),),
    )
    if not again:
        config = (
            ("BLOCK", "max(16, pow2(cols))"),
            ("ROWS", "max(1, 2048 // BLOCK)"),
            (
                "num_warps",
                "2 if BLOCK <= 2048 else 4 if BLOCK <= 8192 else 16 if BLOCK <= 16384 else 32",
            ),
        )
        rows_ = Variant(
            "rows",
            "0 < cols <= 32768 and not across",
            "a row fits in registers",
            config,
            (Launch(resident.name, grid),),
        )
        return across, rows_
    narrow = (
        ("BLOCK", "max(16, pow2(cols))"),
        ("ROWS", "max(1, 2048 // BLOCK) if BLOCK <= 1024 else 4"),
        ("num_warps", "2 if BLOCK <= 1024 else 8"),
    )
    wide = (
        ("BLOCK", "pow2(cols)"),
        ("ROWS", "1"),
        ("num_warps", "8 if BLOCK <= 8192 else 16 if BLOCK <= 16384 else 32"),
    )
    return (
        across,
        Variant(
            "rows",
            "0 < cols <= 4096 and not across",
            "rows fit in registers",
            narrow,
            (Launch(resident.name, grid),),
        ),
        Variant(
            "wide",
            "0 < cols <= 32768 and not across",
            "a row fits in registers, but not for long beside its column operands",
            wide,
            (Launch(again[0].name, grid),),
        ),
    )


def _loop_variant(loop) -> Variant:
    config = (
        ("ROWS", "32 if across else 1"),
        ("BLOCK", "64 if across else 4096"),
        ("num_warps", "8"),
    )
    return Variant("loop", "True", "any width", config, (Launch(loop.name, ("cdiv(rows, ROWS)",)),))


def fold_state(nest: ir.Nest) -> tuple[tuple[str, str], ...]:
    """(name, dtype) of what one part of a reduction leaves behind."""
    if nest.body.op.startswith("arg"):
        return (f"{nest.name}_best", nest.body.body.dtype), (f"{nest.name}_at", "i64")
    return ((f"{nest.name}_part", nest.dtype),)


def levels_of(nests) -> tuple[Level, ...]:
    """Folds by the number of earlier folds they wait for, each level with the row values it allows.

    Level 0 has no folds: row values that need none.
    """
    depth: dict[str, int] = {}
    for nest in nests:
        below = max((depth[t] for t in tensors_read(nest.body) if t in depth), default=0)
        depth[nest.name] = below + (1 if is_reducer(nest) else 0)
    count = max(depth[n.name] for n in nests if is_reducer(n))
    row = next({b.index for b in n.box} for n in nests if is_reducer(n))
    return tuple(
        Level(
            tuple(n.name for n in nests if is_reducer(n) and depth[n.name] == k),
            tuple(
                n.name
                for n in nests
                if not is_reducer(n) and depth[n.name] == k and {b.index for b in n.box} == row
            ),
        )
        for k in range(count + 1)
    )


def _in_storage_order(row, touched, dims, facts):
    """The kept indices in the order of the dims of the widest tensor, so that they make few runs."""
    names = {b.index for b in row}
    best: tuple[str, ...] = ()
    for tensor, coords in touched:
        flat = [n for c in coords for n in _ordered(c, names)]
        if len(flat) > len(best) and len(set(flat)) == len(flat):
            best = tuple(flat)
    place = {n: k for k, n in enumerate(best)}
    return tuple(sorted(row, key=lambda b: place.get(b.index, len(place))))


def _ordered(coordinate: Poly, names: set[str]) -> list[str]:
    """The indices of one coordinate, the one with the largest weight first."""
    found = [n for n in sorted(indices(coordinate)) if n in names]
    return sorted(found, key=lambda n: coordinate_weight(coordinate, n) == poly(1))


def coordinate_weight(coordinate: Poly, name: str) -> Poly:
    parts = affine(coordinate)
    return (
        next((w for a, w in parts[0].items() if getattr(a, "name", "") == name), poly(0))
        if parts
        else poly(0)
    )


# ---- the general nest ---------------------------------------------------------------------------
def nest(name, group, stores, dims, facts) -> Step:
    axes = (Axis("i", group.row),)
    kernel = KernelPlan(f"{name}_nest", "nest", "whole", axes, group.nests, stores)
    variant = Variant(
        "nest",
        "True",
        "right for every shape: an element a lane, reducers as loops",
        (("BLOCK", "256"), ("num_warps", "4")),
        (Launch(kernel.name, ("cdiv(total, BLOCK)",)),),
    )
    facts_ = (("total", axes[0].extent),)
    return Step(name, "nest", "no special form fits", stores, facts_, (kernel,), (variant,))


# ---- contraction --------------------------------------------------------------------------------
def contraction(name, group, stores, dims, facts) -> Step:
    p = group.product
    axes = (Axis("batch", p.batch), Axis("m", p.m), Axis("n", p.n), Axis("k", p.k))
    seen = views(list(accesses(group.nests, stores, dims)), dims, axes, facts)
    kernel = KernelPlan(f"{name}_tiles", "contraction", "whole", axes, group.nests, stores, seen)
    times = "batches * " if p.batch else ""
    grid = (f"{times}cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)",)
    launch = (Launch(kernel.name, grid),)
    wide = "128 // itemsize"  # K elements that make a 128-byte line
    numbers = (
        ("batches", axes[0].extent),
        ("M", axes[1].extent),
        ("N", axes[2].extent),
        ("K", axes[3].extent),
    )

    def tile(m, n, k, warps, stages):
        return (
            ("BLOCK_M", m),
            ("BLOCK_N", n),
            ("BLOCK_K", k),
            ("GROUP_M", "8"),
            ("num_warps", warps),
            ("num_stages", stages),
        )

    # 64 KiB of shared memory on AMD take the small tile alone; 227 KiB on an H200 take all.
    variants = (
        Variant(
            "large",
            f"not hip and itemsize <= 2 and {times}cdiv(M, 128) * cdiv(N, 256) >= sms",
            "enough work for the widest tile on every multiprocessor",
            tile("128", "256", wide, "8", "3"),
            launch,
        ),
        Variant(
            "medium",
            f"not hip and itemsize <= 4 and {times}cdiv(M, 128) * cdiv(N, 128) >= sms",
            "enough tiles of 128 x 128",
            tile("128", "128", wide, "8", "4 if itemsize <= 2 else 3"),
            launch,
        ),
        Variant(
            "slim",
            "not hip and itemsize <= 4 and M <= 32",
            "few rows: deep in K, narrow in N",
            tile("16 if M <= 16 else 32", "64", "256 // itemsize", "4", "4"),
            launch,
        ),
        Variant(
            "small",
            "True",
            "any size",
            tile("64", "64", "32", "4", "3 if itemsize <= 4 else 2"),
            launch,
        ),
    )
    return Step(
        name,
        "contraction",
        "a sum of products of two factors",
        stores,
        numbers,
        (kernel,),
        variants,
    )


MAKERS = {"pointwise": pointwise, "rows": rows, "nest": nest, "contraction": contraction}
