"""A contraction as tiles of tl.dot: [BLOCK_M, BLOCK_N] accumulators over steps of BLOCK_K.

Input: a `KernelPlan` of the skeleton `contraction`, whose first nest is the sum of a product of two
factors, `taps`, where the loop takes one tap of the window and BLOCK_K channels at a time, or `combine`, which
adds up the parts of split sums. Output: its `ProductView`: factors and sums for the K loop, values and stores
behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tritongen.emit.body import Body
from tritongen.emit.bounded import (
    FREE,
    LEFT,
    LOOPED,
    RIGHT,
    Bounds,
    Side,
    along,
    bounds_of,
    guards_of,
    hoist,
    in_some_row,
    is_kept_run,
)
from tritongen.emit.fold_lines import guard_text
from tritongen.emit.parameters import TRITON_DTYPES
from tritongen.emit.product_view import Factor, Output, ProductView, Scale, Sum, Value
from tritongen.emit.sliding import SlidingBody
from tritongen.emit.text import bytes_of, may_be_f64
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, walk
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import coordinates, free_indices, tensors_read
from tritongen.schedule.classes.contraction_operands import (
    PAIR,
    WHOLE,
    pair_of,
    storage_dtype,
    stored_as,
)

AXES = ("batch", "m", "n", "k", "tap")  # as templates call what walks them
PLURALS = {"batch": "batches", "tap": "taps", "segment": "segment_count"}
BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")


def contraction_view(body: Body) -> KernelView:
    kernel = body.kernel
    heads, split = kernel.nests[: kernel.products], kernel.role != "whole"
    if kernel.slides:
        body = SlidingBody(body.context, kernel)
    size = open_axes(body)
    if isinstance(body, SlidingBody):
        body.sliding = LOOPED
        counted = kernel.axes[4:] or kernel.axes[3:]
        body.narrow |= {d.index for a in (kernel.axes[1], *counted) for d in a.digits}
        body.args.constants["INDEX"] = "INDEX"
    invariant(body, heads)
    bounds = bounds_of(body, heads[0].fold.guards, size)  # several products have none
    terms = terms_of(body, size, split, bounds)
    opening, body.lines = body.lines, []
    before = dict(body.cache)
    factors, sums = products(body, heads, size, bounds)
    scale = None if heads[0].fold.scale is None else scale_of(body, heads[0].fold.scale, size)
    body.cache = before | {key: name for key, name in body.cache.items() if is_kept_run(body, key)}
    if isinstance(body, SlidingBody):
        forget_columns(body)
    inside = mask_tile(body, size)
    behind, body.lines = body.lines, []
    if isinstance(body, SlidingBody):
        body.columns = {d.index for d in kernel.axes[2].digits}
        body.looping = frozenset({"n"})
    sums, stores = (with_parts(body, sums), []) if split else (sums, stores_of(body))
    if isinstance(body, SlidingBody):
        behind += body.points
    body.prologue += opening
    return product_view(
        body,
        size,
        **terms,
        index="INDEX" if kernel.slides else "tl.int64",
        inside=inside,
        factors=factors,
        sums=sums,
        scale=scale,
        behind=behind,
        stores=stores,
        halves=kernel.slides,
    )


def combine_view(body: Body) -> KernelView:
    """The second kernel of a split sum: the parts in their order, then the epilogue."""
    size = open_axes(body, without="k")
    sums = with_parts(body, [sum_of(body, h) for h in body.kernel.nests[: body.kernel.products]])
    mask_tile(body, size)
    blocks = ("BLOCK_M", "BLOCK_N", "PARTS")
    return product_view(body, size, blocks, sums=sums, stores=stores_of(body))


def product_view(
    body: Body, size: dict[str, str], blocks: tuple[str, ...] = BLOCKS, **fields
) -> KernelView:
    own = {name.upper(): size.get(name, "") for name in ("m", "n", "k")}
    own |= {"batches": size.get("batch", ""), "taps": size.get("tap", "")}
    own["inside"] = f"(m < {own['M']}) & (n < {own['N']})"
    phases = bool(body.kernel.lets)
    return view(body, {}, blocks, "", ProductView, phases=phases, **own | fields)


def open_axes(body: Body, names: tuple[str, ...] = AXES, without: str = "") -> dict[str, str]:
    """The spec's indices by what a template walks: m is [BLOCK_M, 1], n [1, BLOCK_N], k either by side.

    Their extents, `without` that of an axis that the kernel does not ask for.
    """
    size = {}
    for axis, name in zip(body.kernel.axes, names, strict=False):
        if len(axis.digits) == 1:
            body.index[axis.digits[0].index] = name
        body.axis_var[axis.name] = name
        if axis.digits and name != without:
            wish = name.upper() if name in ("m", "n", "k") else PLURALS[name]
            size[name] = body.extent(axis.extent, wish)
            if name in ("m", "n", "k"):
                body.axis_mask[axis.name] = f"{name} < {size[name]}"
    return size


def terms_of(
    body: Body, size: dict[str, str], split: bool, bounds: Bounds = FREE
) -> dict[str, Any]:
    """Where the K loop begins and ends, and what the config gives it."""
    if not split:
        return {"begin": bounds.begin, "end": bounds.to or size["k"]}
    body.args.sizes["CHUNK"] = 'config["CHUNK"]'
    ends = {"begin": "begin", "end": f"tl.minimum(begin + CHUNK, {size['k']})"}
    return {**ends, "split": True, "blocks": (*BLOCKS, "PARTS")}


def invariant(body: Body, heads: Iterable[ir.Nest]) -> None:
    """Loads that no step of the loop changes, in front of it."""
    k = {d.index for axis in body.kernel.axes[3:] for d in axis.digits}

    def visit(e: ir.Expr) -> None:
        target = e.arg if isinstance(e, ir.Cast) else e
        if isinstance(target, ir.Read):
            if not free_indices(target) & k:
                body.expr(e)
            return
        for part in ir.parts(e):
            visit(part)

    for side in (side for head in heads for side in head.fold.factors):
        visit(side)
        hoist(body, coordinates(side))


# ---- the K loop ----------------------------------------------------------------------------------
def products(
    body: Body,
    heads: tuple[ir.Nest, ...],
    size: dict[str, str],
    bounds: Bounds = FREE,
    rows: tuple[ir.Guard, ...] = (),
) -> tuple[list[Factor], list[Sum]]:
    """The factors, each once, and what each sum adds up of them. `rows`: what the mask of rows follows from."""
    made: dict[tuple[ir.Expr, str], Factor] = {}
    sums, others = [], in_some_row(body, bounds, size)
    for head in heads:
        left, right = head.fold.factors
        narrow = storage_dtype(left, right, body.op)
        for e, side in ((left, LEFT), (right, RIGHT)):
            if (e, narrow) not in made:
                some = others.get(side, "")
                made[e, narrow] = factor(body, e, side, narrow, size, bounds, some)
        sides = [made[left, narrow].name, made[right, narrow].name]
        if kind := factor_dtype(body, head, narrow):
            sides = [f"{side}.to({kind})" for side in sides]
        for k, (e, side) in enumerate(((left, LEFT), (right, RIGHT))):
            paired = body.context.wide and terms_of_pair(body, e) and head.dtype == "compute"
            behind = [*guards_of(body, bounds.guards, side), *(rows if side is LEFT else ())]
            if paired or follows_from_narrow(body, head, e, behind):
                sides[k] = f"lib.f64_factor({sides[k]})"
        masked = LEFT in others or guards_of(body, bounds.guards, LEFT)
        computed = masked or not is_loaded(left, narrow) or terms_of_pair(body, left)
        options = dot_options(body, head)
        sums.append(sum_of(body, head, sides[0], sides[1], options, bool(computed)))
    return list(made.values()), sums


def sum_of(
    body: Body,
    head: ir.Nest,
    left: str = "",
    right: str = "",
    options: str = "",
    computed: bool = False,
) -> Sum:
    """The accumulator of a sum, and what is added to it; `computed`: whether the left factor is."""
    body.assigned.add(head.name)
    body.values[head.name] = (head.name, ATOM)
    integer = ir.kind_of(head.dtype, body.op) == "int"
    awaited = computed and not integer and head.fold.scale is None
    dtype, comment = sum_dtype(body, head), body.comment(head.name)
    return Sum(head.name, dtype, left, right, options, integer, awaited, comment=comment)


def dot_options(body: Body, head: ir.Nest) -> str:
    dtype, precision = sum_dtype(body, head), ""
    if ir.kind_of(head.dtype, body.op) != "int":
        body.args.constants["PRECISION"] = "PRECISION"
        precision = "input_precision=PRECISION, "
    return f"{precision}out_dtype={dtype}"


def sum_dtype(body: Body, head: ir.Nest) -> str:
    """What a program adds up in: integers in i32, as tl.dot does, where their sum is i64."""
    return "tl.int32" if ir.kind_of(head.dtype, body.op) == "int" else body.dtype(head.dtype)


def with_parts(body: Body, sums: Iterable[Sum]) -> list[Sum]:
    """With the workspace of a split sum."""
    return [replace(s, parts=body.pointer(f"{s.name}_parts")) for s in sums]


def factor_dtype(body: Body, head: ir.Nest, narrow: str) -> str:
    """What factors are converted to, where the call may compute in f64 though they are stored as less.

    tl.dot takes factors and sums in f64, or neither.
    """
    if not is_widened(head, narrow, body.op):
        return ""
    if not narrow:
        return body.dtype(head.dtype)
    kind = TRITON_DTYPES.get(narrow)
    if kind is None:
        operand = next(t.name for t in (*body.op.tensors, *body.op.outputs) if t.dtype == narrow)
        kind = f"getattr(tl, str({operand}.dtype)[6:])"
    passed = f"COMPUTE if COMPUTE == tl.float64 else {kind}"
    return body.parameter(body.args.constants, "FACTOR", passed)


def is_widened(head: ir.Nest, narrow: str, op: ir.Op) -> bool:
    """Whether a call may add up in f64 what is stored as less."""
    reads = (r for side in head.fold.factors for r in ir.walk(side) if isinstance(r, ir.Read))
    factors = {narrow} if narrow else {r.dtype for r in reads}
    return head.dtype == "compute" and any(beside_f64(kind, op) for kind in factors)


def beside_f64(dtype: str, op: ir.Op) -> bool:
    """Whether a call that computes in f64 may have tensors of this dtype that are of another type."""
    return bool({t.dtype for t in op.tensors if may_be_f64(t, op)} - {dtype})


def follows_from_narrow(body: Body, head: ir.Nest, e: ir.Expr, guards: Iterable[ir.Guard]) -> bool:
    """Whether a factor in f64 may follow from a load of less than 32 bits: of a value, an index or a bound."""
    bounds = {a.tensor for g in guards for a in walk(g.poly) if isinstance(a, Fetch)}
    dtypes = {body.context.dtypes[tensor] for tensor in tensors_read(e) | bounds}
    narrow = [d for d in dtypes if min(bytes_of(d, body.op)) < 4]
    return head.dtype == "compute" and any(beside_f64(d, body.op) for d in narrow)


def scale_of(body: Body, scale: ir.Expr, size: dict[str, str]) -> Scale:
    """The scale that the terms of a step share, read at `ahead`."""
    axis = body.kernel.axes[3]
    (k,) = (d.index for d in axis.digits)
    own, mask, cache = body.index[k], body.axis_mask[axis.name], body.cache
    body.index[k], body.axis_mask[axis.name] = "ahead", f"ahead < {size['k']}"

    def value() -> Value:
        body.cache = dict(cache)
        text = body.expr(scale)[0]
        lines, body.lines = body.lines, []
        return Value(lines, text)

    out = Scale(value(), value())
    body.index[k], body.axis_mask[axis.name], body.cache = own, mask, cache
    return out


def is_loaded(side: ir.Expr, narrow: str) -> bool:
    """Whether a factor is multiplied as it lies in memory."""
    return isinstance(side, ir.Cast) and isinstance(side.arg, ir.Read) and side.arg.dtype == narrow


def factor(
    body: Body,
    e: ir.Expr,
    side: Side,
    narrow: str,
    size: dict[str, str],
    bounds: Bounds = FREE,
    some: str = "",
) -> Factor:
    """One factor inside the loop. `some`: what else masks it."""
    inner, wish = e, "left" if side is LEFT else "right"
    if narrow:
        bare = e.arg if isinstance(e, ir.Cast) else e
        inner = bare if bare.dtype == narrow else ir.Cast(bare, narrow)
    with along(body, side, bounds, size):
        body.fill = {part.tensor: 0.0 for part in ir.walk(e) if isinstance(part, ir.Read)}
        read, cast = (inner.arg, inner.dtype) if isinstance(inner, ir.Cast) else (inner, "")
        # The last pair of an odd number of terms has one more.
        pair = terms_of_pair(body, inner)
        simple = isinstance(read, ir.Read) and not pair
        if isinstance(read, ir.Read) and simple and (read, cast) not in body.cache:
            value, name = body.load(read, cast), body.variable(read.tensor)
        else:
            value = joined(body, pair, side) if pair else body.expr(inner)[0]
            name, value = (value, "") if value.isidentifier() else (body.fresh(wish), value)
        checks = [guard_text(body, g) for g in guards_of(body, bounds.guards, side)]
        checks += [some] if some else []
        mask = ""
        # A whole number that is not there is multiplied by the other factor's 0, and is no NaN.
        if checks or not (simple or stored_as(e) == WHOLE):
            mask = body.mask(body.axes_in_names(free_indices(e)), checks)
        body.fill = {}
    lines, body.lines = body.lines, []
    return Factor(name, value, lines, mask, bool(pair))


def terms_of_pair(body: Body, e: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
    """The two terms of a factor that lie in one element."""
    return pair_of(e, body.kernel.axes[3].digits[0].index) if body.kernel.pairs else None


def joined(body: Body, both: tuple[ir.Expr, ir.Expr], side: Side) -> str:
    """A factor whose terms lie two in one element: both from one load, side by side."""
    axis = body.kernel.axes[3]
    body.index[PAIR], body.axis_of[PAIR] = f"pair{side.orient}", axis
    own = body.axis_mask[axis.name]
    # A number of its own: of `2 * pair < K` Triton does not know that it holds for 16 in a row.
    pairs = body.count(-(-axis.extent // 2), "pairs")
    body.axis_mask[axis.name] = f"pair{side.orient} < {pairs}"
    parts = [
        body.assign(body.fresh(f"{word}_terms"), body.expr(p)[0])
        for word, p in zip(("even", "odd"), both, strict=True)
    ]
    body.axis_mask[axis.name] = own
    text = f"tl.join({', '.join(parts)})"
    if side is RIGHT:
        return f"{text}.permute(0, 2, 1).reshape(BLOCK_K, BLOCK_N)"
    return f"{text}.reshape(BLOCK_M, BLOCK_K)"


# ---- behind it -----------------------------------------------------------------------------------
def mask_tile(body: Body, size: dict[str, str]) -> str:
    """The mask of a tile, called `inside` from here on; that of m with its ragged coordinates."""
    checks = [f"m < {size['m']}"]
    for coordinate, extent in body.kernel.ragged:
        stored = next(nest for nest in body.kernel.nests if nest.name in body.kernel.stores)
        at = body.coordinate(stored.name, stored.coords.index(coordinate), coordinate)
        checks.append(f"{at} < {body.size(extent)[0]}")
    body.axis_mask |= {"m": checks[0], "n": f"n < {size['n']}"}
    if len(checks) > 1:
        text = " & ".join(f"({c})" for c in checks)
        body.axis_mask["m"] = body.assign(body.fresh("row_inside"), text)
    inside = body.mask(frozenset({"m", "n"}))
    body.together = {frozenset({"m", "n"}): "inside"}
    return inside


def forget_columns(body: SlidingBody) -> None:
    """Columns are decoded again for each half of a tile: what a whole one stores has an address an element.

    (Triton 3.7, behind a transposed convolution in 128 x 128: 1,560 bytes spilled a thread; in halves 8.)
    """
    body.sliding = frozenset()
    own = {d.index for d in body.kernel.axes[2].digits}
    body.cache = {k: v for k, v in body.cache.items() if k[0] == "run" and not set(k[1]) & own}
    if len(own) > 1:
        for name in own:
            body.index.pop(name, None)


def stores_of(body: Body, parts: int = 1) -> list[Output]:
    """Whatever follows from the sums over m and n, as far as it is stored: so many `parts` of a tile's columns at a time."""
    kernel, found = body.kernel, []
    tiles = {tile.tensor: tile for tile in kernel.stored}
    for k, nest in enumerate(kernel.nests):
        value = body.values[nest.name][0] if k < kernel.products else body.value(nest)
        if nest.name not in kernel.stores:
            continue
        name, outer, host = "", [], ""
        if tile := tiles.get(nest.name):
            name = body.names.free(f"{nest.name}_tiles")
            body.args.pointers[name] = name
            body.args.tiles[name] = ("BLOCK_M", "BLOCK_N", parts)
            outer = [f"{body.run_text(run)}.to(tl.int32)" for run in tile.runs[:-2]]
            columns = 'config["BLOCK_N"]' + (f" // {parts}" if parts > 1 else "")
            host = f'{name} = lib.tiles_to_store({nest.name}, config["BLOCK_M"], {columns})'
        before, body.lines = body.lines, []
        found.append(Output(value, *body.stored_at(nest), before, name, outer, host))
    return found
