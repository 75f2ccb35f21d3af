"""A contraction as tiles of tl.dot: [BLOCK_M, BLOCK_N] accumulators over steps of BLOCK_K.

Input: a `KernelPlan` of the skeleton `contraction`, whose first nest is the sum of a product of two
factors, `taps`, where the loop takes one tap of the window and BLOCK_K channels at a time, or `combine`, which
adds up the parts of split sums. Output: its `ProductView`: factors and sums for the K loop, values and stores
behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tritongen.emit.bounded import (
    FREE,
    LEFT,
    LOOPED,
    RIGHT,
    Bounds,
    Cache,
    Side,
    along,
    bounds_of,
    forget_loop,
    guards_of,
    hoist,
    in_some_row,
    without_rows,
)
from tritongen.emit.fold_lines import guard_text
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.parameters import TRITON_DTYPES
from tritongen.emit.product_view import Factor, Output, ProductView, Scale, Sum, Value
from tritongen.emit.sliding import SlidingWriter
from tritongen.emit.text import bytes_of
from tritongen.emit.tiles import name_axis, view
from tritongen.emit.unpacking import Unpacking
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Poly, indices, symbols, walk
from tritongen.ir.free import coordinates, free_indices, reads, tensors_read
from tritongen.ir.functions import ATOM
from tritongen.schedule.classes.contraction_operands import WHOLE, storage_dtype, stored_as

AXES = ("batch", "m", "n", "k", "tap")  # as templates call what walks them
PLURALS = {"batch": "batches", "tap": "taps", "segment": "segment_count"}
BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")


def contraction_view(writer: KernelWriter) -> KernelView:
    kernel = writer.kernel
    heads = kernel.nests[: kernel.products]
    if kernel.slides:
        writer = SlidingWriter(writer.context, kernel)
    size = open_axes(writer)
    if isinstance(writer, SlidingWriter):
        writer.sliding = LOOPED
        counted = kernel.axes[4:] or kernel.axes[3:]
        writer.narrow |= {i for a in (kernel.axes[1], *counted) for i in a.names}
        writer.args.constants["INDEX"] = "INDEX"
    invariant(writer, heads)
    bounds = bounds_of(writer, heads[0].fold.guards, size)  # several products have none
    # What stands before the loop, and what the loop adds to it may read these lines: the rows of `x[i[n], c, p + r]`.
    writer.prologue += writer.taken()
    before = dict(writer.cache)
    factors, sums = products(writer, heads, size, bounds)
    scale = None if heads[0].fold.scale is None else scale_of(writer, heads[0].fold.scale, size)
    forget_loop(writer, before)
    if isinstance(writer, SlidingWriter):
        forget_columns(writer)
    inside = mask_tile(writer, size)
    without_rows(writer, heads[0].name, bounds.whole)
    behind = writer.taken()
    if isinstance(writer, SlidingWriter):
        writer.columns = {*kernel.axes[2].names}
        writer.looping = frozenset({"n"})
    stores = stores_of(writer)
    if isinstance(writer, SlidingWriter):
        behind += writer.points
    return product_view(
        writer,
        size,
        **in_parts(writer, sums, size, bounds),
        index="INDEX" if kernel.slides else "tl.int64",
        inside=inside,
        factors=factors,
        scale=scale,
        behind=behind,
        stores=stores,
        halves=kernel.slides,
    )


def combine_view(writer: KernelWriter) -> KernelView:
    """The second kernel of a split sum: the parts in their order, then the epilogue."""
    size = open_axes(writer)
    sums = [sum_of(writer, head) for head in writer.kernel.nests[: writer.kernel.products]]
    sums = [replace(s, parts=writer.pointer(f"{s.name}_parts")) for s in sums]
    mask_tile(writer, size)
    writer.args.sizes["PARTS"] = 'config["PARTS"]'
    blocks = ("BLOCK_M", "BLOCK_N", "AHEAD")
    return product_view(writer, size, blocks, sums=sums, stores=stores_of(writer))


def product_view(
    writer: KernelWriter, size: dict[str, str], blocks: tuple[str, ...] = BLOCKS, **fields
) -> KernelView:
    own = {name.upper(): size.get(name, "") for name in ("m", "n", "k")}
    own |= {"batches": size.get("batch", ""), "taps": size.get("tap", "")}
    own["inside"] = f"(m < {own['M']}) & (n < {own['N']})"
    ends = {"BLOCK_M": own["M"], "BLOCK_N": own["N"]}
    if "k" in size and is_constant(writer, writer.kernel.axes[3].extent):
        own["K"] = f"lib.at_run_time({size['k']})"
        if fields.get("end") == size["k"]:
            fields["end"] = own["K"]
    fields |= {"phases": bool(writer.kernel.lets), "exchanged": writer.kernel.exchanged}
    return view(writer, blocks, "", ProductView, ends=ends, **own | fields)


def is_constant(writer: KernelWriter, p: Poly) -> bool:
    """Whether the compilers know a count."""
    return not indices(p) and symbols(p) <= writer.args.constants.keys()


def open_axes(writer: KernelWriter, names: tuple[str, ...] = AXES) -> dict[str, str]:
    """The spec's indices by the template's axes: m is [BLOCK_M, 1], n is [1, BLOCK_N], k is either. Returns their extents."""
    size = {}
    for axis, name in zip(writer.kernel.axes, names, strict=False):
        name_axis(writer, axis, name)
        if axis.digits:
            wish = name.upper() if name in ("m", "n", "k") else PLURALS[name]
            size[name] = writer.extent(axis.extent, wish)
            if name in ("m", "n", "k"):
                writer.axis_mask[axis.name] = f"{name} < {size[name]}"
    return size


def in_parts(
    writer: KernelWriter, sums: Sequence[Sum], size: dict[str, str], bounds: Bounds = FREE
) -> dict[str, Any]:
    """The sums and the ends of the K loop, with the parameters of a launch that stores parts of them."""
    if not writer.kernel.splits:
        return {"sums": sums, "begin": bounds.begin, "end": bounds.to or size["k"]}
    left = [replace(s, parts=writer.fresh(f"{s.name}_parts_ptr")) for s in sums]
    told = ("LANES: tl.constexpr = False",) if writer.kernel.lanes else ()
    return {
        "sums": left,
        "begin": "begin",
        "end": "end",
        "splits": True,
        "lanes": writer.kernel.lanes,
        "optional": (*told, "PARTS=1", "CHUNK=0"),
        "workspaces": tuple(s.parts for s in left),
    }


def invariant(writer: KernelWriter, heads: Iterable[ir.Nest]) -> None:
    """Puts loads in front of the loop, if no step of it changes them."""
    k = {i for axis in writer.kernel.axes[3:] for i in axis.names}

    def visit(e: ir.Expr) -> None:
        target = e.arg if isinstance(e, ir.Cast) else e
        if isinstance(target, ir.Read):
            if not free_indices(target) & k:
                writer.expr(e)
            return
        for part in ir.parts(e):
            visit(part)

    for head in heads:
        for e, side in zip(head.fold.factors, (LEFT, RIGHT), strict=True):
            if Unpacking.of(writer, e, side) is None:
                visit(e)
                hoist(writer, coordinates(e))


# ---- the K loop ----------------------------------------------------------------------------------
def products(
    writer: KernelWriter,
    heads: tuple[ir.Nest, ...],
    size: dict[str, str],
    bounds: Bounds = FREE,
    rows: tuple[ir.Guard, ...] = (),
) -> tuple[list[Factor], list[Sum]]:
    """The factors, each once, and the product that each sum adds. `rows` gives the mask of rows."""
    made: dict[tuple[ir.Expr, str], Factor] = {}
    sums, (others, loaded) = [], in_some_row(writer, bounds, size)
    # Of two whole numbers, neither of which may be 0 where there is no term, the left one is masked.
    beside_whole = {n.fold.factors[0] for n in heads if stored_as(n.fold.factors[1]) == WHOLE}
    for head in heads:
        left, right = head.fold.factors
        narrow = storage_dtype(left, right, writer.op)
        for e, side in ((left, LEFT), (right, RIGHT)):
            if (e, narrow) not in made:
                some, known = others.get(side, ""), loaded.get(side, {})
                zeros = side is RIGHT or e not in beside_whole
                made[e, narrow] = factor(writer, e, side, narrow, size, bounds, some, known, zeros)
        sides = [made[left, narrow].name, made[right, narrow].name]
        if kind := factor_dtype(writer, head, narrow):
            some_f8 = any(ir.may_be_f8(r.dtype, writer.op) for e in (left, right) for r in reads(e))
            sides = [f"lib.cast({s}, {kind})" if some_f8 else f"{s}.to({kind})" for s in sides]
        for k, (e, side) in enumerate(((left, LEFT), (right, RIGHT))):
            unpacked = writer.context.wide and made[e, narrow].unpacked and head.dtype == "compute"
            behind = [*guards_of(writer, bounds.guards, side), *(rows if side is LEFT else ())]
            if unpacked or follows_from_narrow(writer, head, e, behind):
                sides[k] = f"lib.f64_factor({sides[k]})"
        masked = LEFT in others or guards_of(writer, bounds.guards, LEFT)
        computed = masked or not is_loaded(left, narrow)
        options = dot_options(writer, head)
        added = sum_of(writer, head, sides[0], sides[1], options, bool(computed))
        sums.append(replace(added, halves=of_halves(writer, left, right)))
    return list(made.values()), sums


def of_halves(writer: KernelWriter, left: ir.Expr, right: ir.Expr) -> str:
    """Whether a product of whole numbers and of products of two operands has operands in bf16; "" for any other product."""
    match right:
        case ir.Call("mul", (ir.Cast(ir.Read() as a), ir.Cast(ir.Read() as b))):
            halves = [
                d for d in dict.fromkeys((a.dtype, b.dtype)) if ir.kind_of(d, writer.op) == "float"
            ]
            if stored_as(left) == WHOLE and len({a.dtype, b.dtype}) == len(halves):
                return " and ".join(f"{writer.dtype(d)} == tl.bfloat16" for d in halves)
    return ""


def sum_of(
    writer: KernelWriter,
    head: ir.Nest,
    left: str = "",
    right: str = "",
    options: str = "",
    computed: bool = False,
) -> Sum:
    """The accumulator of a sum, and what is added to it; `computed`: whether the left factor is."""
    writer.assigned.add(head.name)
    writer.values[head.name] = (head.name, ATOM)
    integer = ir.kind_of(head.dtype, writer.op) == "int"
    awaited = computed and not integer and head.fold.scale is None
    dtype, comment = sum_dtype(writer, head), writer.comment(head.name)
    return Sum(head.name, dtype, left, right, options, integer, awaited, comment=comment)


def dot_options(writer: KernelWriter, head: ir.Nest) -> str:
    dtype, precision = sum_dtype(writer, head), ""
    if ir.kind_of(head.dtype, writer.op) != "int":
        writer.args.constants["PRECISION"] = "PRECISION"
        precision = "input_precision=PRECISION, "
    return f"{precision}out_dtype={dtype}"


def sum_dtype(writer: KernelWriter, head: ir.Nest) -> str:
    """The dtype of an accumulator. Integers use i32, as tl.dot does, if their sum is i64."""
    return "tl.int32" if ir.kind_of(head.dtype, writer.op) == "int" else writer.dtype(head.dtype)


def factor_dtype(writer: KernelWriter, head: ir.Nest, narrow: str) -> str:
    """The dtype that factors are converted to, if the call may compute in f64 while they are stored in a narrower type.

    tl.dot takes factors and sums in f64, or neither.
    """
    if not is_widened(head, narrow, writer.op):
        return ""
    if not narrow:
        return writer.dtype(head.dtype)
    kind = TRITON_DTYPES.get(narrow)
    if kind is None:
        kind = f"lib.triton_dtype({writer.op.typed(narrow).name})"
    passed = f"COMPUTE if COMPUTE == tl.float64 else {kind}"
    return writer.parameter(writer.args.constants, "FACTOR", passed)


def is_widened(head: ir.Nest, narrow: str, op: ir.Op) -> bool:
    """Whether a call may accumulate in f64 and store a narrower type."""
    factors = {narrow} if narrow else {r.dtype for side in head.fold.factors for r in reads(side)}
    return head.dtype == "compute" and any(beside_f64(kind, op) for kind in factors)


def beside_f64(dtype: str, op: ir.Op) -> bool:
    """Whether a call that computes in f64 may have tensors of this dtype that are of another type."""
    return bool({t.dtype for t in op.tensors if ir.may_be_f64(t.dtype, op)} - {dtype})


def follows_from_narrow(
    writer: KernelWriter, head: ir.Nest, e: ir.Expr, guards: Iterable[ir.Guard]
) -> bool:
    """Whether a factor in f64 may follow from a load of less than 32 bits: of a value, an index or a bound."""
    bounds = {a.tensor for g in guards for a in walk(g.poly) if isinstance(a, Fetch)}
    dtypes = {writer.context.dtypes[tensor] for tensor in tensors_read(e) | bounds}
    narrow = [d for d in dtypes if min(bytes_of(d, writer.op)) < 4]
    return head.dtype == "compute" and any(beside_f64(d, writer.op) for d in narrow)


def scale_of(writer: KernelWriter, scale: ir.Expr, size: dict[str, str]) -> Scale:
    """The scale that the terms of a step share, read at `ahead`."""
    axis = writer.kernel.axes[3]
    (k,) = (d.index for d in axis.digits)
    read, cast = (scale.arg, scale.dtype) if isinstance(scale, ir.Cast) else (scale, "")

    def value() -> Value:
        inner = writer.scope()
        inner.index[k], inner.axis_mask[axis.name] = "ahead", f"ahead < {size['k']}"
        with inner.apart() as lines:
            if isinstance(read, ir.Read) and read.tensor not in inner.values:
                text = inner.load(read, cast)
            else:
                text = inner.expr(scale)[0]
        return Value(lines, text)

    return Scale(value(), value())


def is_loaded(side: ir.Expr, narrow: str) -> bool:
    """Whether a factor is multiplied as it is stored."""
    return isinstance(side, ir.Cast) and holds_zeros(side.arg) and side.arg.dtype == narrow


def holds_zeros(e: ir.Expr) -> bool:
    """Whether a factor is one load that gives 0 where there is no term: `else 1` gives 1 there."""
    return isinstance(e, ir.Read) and not e.fill


def factor(
    writer: KernelWriter,
    e: ir.Expr,
    side: Side,
    narrow: str,
    size: dict[str, str],
    bounds: Bounds = FREE,
    some: str = "",
    known: Cache | None = None,
    zeros: bool = True,
) -> Factor:
    """One factor inside the loop.

    `some`: what else masks it. `known`: what the turn of the loop has loaded along its side. `zeros`: whether the other
    factor is 0 where there is no term.
    """
    inner, wish = e, "left" if side is LEFT else "right"
    if narrow:
        bare = e.arg if isinstance(e, ir.Cast) else e
        inner = bare if bare.dtype == narrow else ir.Cast(bare, narrow)
    with along(writer, side, bounds, size):
        writer.fill = {read.tensor: 0.0 for read in reads(e)}
        writer.cache |= known or {}
        read, cast = (inner.arg, inner.dtype) if isinstance(inner, ir.Cast) else (inner, "")
        unpacking = Unpacking.of(writer, inner, side)
        simple = isinstance(read, ir.Read)
        guards = guards_of(writer, bounds.guards, side)
        checks = list[str]()
        if isinstance(read, ir.Read) and simple and (read, cast) not in writer.cache:
            if asks_all(writer, read, guards, some):
                checks = checks_of(writer, guards, some)
            value, name = writer.load(read, cast, checks), writer.variable(read.tensor)
        else:
            value = unpacking.value() if unpacking else writer.expr(inner)[0]
            name, value = (value, "") if value.isidentifier() else (writer.fresh(wish), value)
        checks, mask = [] if checks else checks_of(writer, guards, some), ""
        # A whole number that is not there is multiplied by the other factor's 0, and is no NaN.
        finite = zeros and stored_as(e) == WHOLE
        if checks or not (simple and holds_zeros(read) or finite):
            mask = writer.mask(writer.axes_in_names(free_indices(e)) & side.axes, checks)
        writer.fill = {}
    return Factor(name, value, writer.taken(), mask, bool(unpacking))


def checks_of(writer: KernelWriter, guards: list[ir.Guard], some: str) -> list[str]:
    return [*(guard_text(writer, g) for g in guards), *([some] if some else [])]


def asks_all(writer: KernelWriter, read: ir.Read, guards: list[ir.Guard], some: str) -> bool:
    """Whether the mask of a load takes the guards of its factor, too.

    It must ask where coordinates are, and the load have all axes that the guards speak of.
    """
    names = {name for g in guards for name in indices(g.poly)} - writer.lets.keys()
    lanes = writer.axes_in_names(names) - {"batch", "tap"} | ({"k"} if some else set())
    return read.fill is not None and holds_zeros(read) and lanes <= writer.axes_in(read.coords)


# ---- behind it -----------------------------------------------------------------------------------
def mask_tile(writer: KernelWriter, size: dict[str, str]) -> str:
    """The mask of a tile, called `inside` from here on; that of m with its ragged coordinates."""
    checks = [f"m < {size['m']}", *ragged_checks(writer)]
    writer.axis_mask |= {"m": checks[0], "n": f"n < {size['n']}"}
    if len(checks) > 1:
        text = " & ".join(f"({c})" for c in checks)
        writer.axis_mask["m"] = writer.assign(writer.fresh("row_inside"), text)
    inside = writer.mask(frozenset({"m", "n"}))
    writer.together = {frozenset({"m", "n"}): "inside"}
    return inside


def ragged_checks(writer: KernelWriter) -> list[str]:
    """That the stored coordinates which may run out of their dims are inside."""
    stored = next(nest for nest in writer.kernel.nests if nest.name in writer.kernel.stores)
    checks = []
    for coordinate, extent in writer.kernel.ragged:
        at = writer.coordinate(stored.name, stored.coords.index(coordinate), coordinate)
        checks.append(f"{at} < {writer.size(extent)[0]}")
    return checks


def forget_columns(writer: SlidingWriter) -> None:
    """Makes each half of a tile decode its columns again. Otherwise a whole tile keeps one address per stored element.

    (Triton 3.7, behind a transposed convolution in 128 x 128: 1,560 bytes spilled a thread; in halves 8.)
    """
    writer.sliding = frozenset()
    own = {*writer.kernel.axes[2].names}
    writer.cache = {k: v for k, v in writer.cache.items() if k[0] == "run" and not set(k[1]) & own}
    if len(own) > 1:
        for name in own:
            writer.index.pop(name, None)


def stores_of(writer: KernelWriter, parts: int = 1) -> list[Output]:
    """Prints the stored values that follow from the sums, `parts` parts of a tile's columns at a time."""
    kernel, found = writer.kernel, []
    tiles = {tile.tensor: tile for tile in kernel.stored}
    for k, nest in enumerate(kernel.nests):
        value = writer.values[nest.name][0] if k < kernel.products else writer.value(nest)
        if nest.name not in kernel.stores:
            continue
        name, outer, host = "", [], ""
        if tile := tiles.get(nest.name):
            name = writer.descriptor(f"{nest.name}_tiles")
            writer.args.tiles[name] = ("BLOCK_M", "BLOCK_N", parts)
            outer = [f"{writer.run_text(run)}.to(tl.int32)" for run in tile.runs[:-2]]
            columns = 'config["BLOCK_N"]' + (f" // {parts}" if parts > 1 else "")
            host = f'{name} = lib.tiles_to_store({nest.name}, config["BLOCK_M"], {columns})'
        before = writer.taken()
        found.append(Output(value, *writer.stored_at(nest), before, name, outer, host))
    return found
