"""A contraction as tiles of tl.dot: [BLOCK_M, BLOCK_N] accumulators over steps of BLOCK_K.

Input: a `KernelPlan` of the skeleton `contraction`, whose first nest is the sum of a product of two
factors, or `taps`, where the loop takes one tap of the window and BLOCK_K channels at a time. Output:
its `KernelView`: left and right lines for the loop, epilogue lines behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from tritongen.emit.sliding import SlidingBody
from tritongen.emit.text import bytes_of, may_be_f64
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView, Loop
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


def contraction_view(body: Body) -> KernelView:
    kernel = body.kernel
    heads, tail = kernel.nests[: kernel.products], kernel.nests[kernel.products :]
    if kernel.slides:
        body = SlidingBody(body.context, kernel)
    var = axis_names(body)
    if isinstance(body, SlidingBody):
        body.sliding = LOOPED
        counted = kernel.axes[4:] if len(kernel.axes) > 4 else kernel.axes[3:]
        body.narrow |= {d.index for a in (kernel.axes[1], *counted) for d in a.digits}
        body.args.constants["INDEX"] = "INDEX"
    var["index"] = "INDEX" if kernel.slides else "tl.int64"
    invariant(body, tuple(side for head in heads for side in head.fold.factors))
    split = kernel.role != "whole"
    bounds = bounds_of(body, heads[0].fold.guards, var)  # several products have none
    turn = turn_lines(body, var, split)
    opening, body.lines = body.lines, []
    before = dict(body.cache)
    scale: list[str] = []
    if heads[0].fold.scale is not None:
        var["scale"] = body.names.free("scale")
    loads, dots = products(body, heads, bounds, var)
    if heads[0].fold.scale is not None:
        scale, first, last = scale_lines(body, heads[0].fold.scale, var)
        loads, dots = [*first, *loads], [*dots, *last]
    body.cache = before | {key: name for key, name in body.cache.items() if is_kept_run(body, key)}
    opening += [*accumulators(body, heads), *scale]
    if isinstance(body, SlidingBody):
        body.sliding = frozenset()
        points = half_at_a_time(body, heads, tail, var)
    else:
        points = inside_lines(body, var)
        points += (f"{var['inside']} = {var['both']}",)
        store_parts(body, heads, var) if split else follow(body, heads, tail)
    walk = "one tap and BLOCK_K channels" if "tap" in var else "BLOCK_K terms"
    doc = f"A tile of BLOCK_M x BLOCK_N sums a program, {walk} at a time."
    if split:
        doc = "A tile of BLOCK_M x BLOCK_N sums over one CHUNK of the terms a program, BLOCK_K at a time."
    blocks = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", *(("PARTS",) if split else ()))
    return view(
        body,
        var,
        blocks,
        doc,
        epilogue=points,
        lines=tuple(body.lines),
        loops=(Loop(tuple(opening), (*loads, *dots), ()),),
        turn=turn,
    )


def turn_lines(body: Body, var: dict[str, str], split: bool) -> tuple[str, ...]:
    """From the number of a program to its part of the terms, its batch and its tile.

    Phases of a transposed convolution lie between one another in memory: those of one place run side by
    side, so that L2 sees whole sectors.
    """
    tiles, number = f"{var['tiles_m']} * {var['tiles_n']}", "tl.program_id(0)"
    lines, batched = [], bool(body.kernel.axes[0].digits)
    if split:
        var["part"], var["begin"] = map(body.names.free, ("part", "begin"))
        body.args.sizes["CHUNK"] = 'config["CHUNK"]'
        times = f"{tiles} * {var['BATCH']}" if batched else tiles
        lines = [
            f"{var['part']} = {number} // ({times})",
            f"{var['begin']} = {var['part']} * CHUNK",
        ]
        var["to"] = f"tl.minimum({var['begin']} + CHUNK, {var['K']})"
    if body.kernel.lets:
        lines.append(f"{var['batch']} = ({number} % {var['BATCH']}).to(tl.int64)")
        return (*lines, f"{var['tile']} = {number} // {var['BATCH']}")
    if batched:
        inner = f" % {var['BATCH']}" if split else ""
        lines.append(f"{var['batch']} = ({number} // ({tiles}){inner}).to(tl.int64)")
    among = f" % ({tiles})" if split or batched else ""
    return (*lines, f"{var['tile']} = {number}{among}")


def follow(body: Body, heads: tuple[ir.Nest, ...], tail: tuple[ir.Nest, ...]) -> None:
    """Whatever follows from the sums over m and n, and the stores."""
    widen(body, heads)
    for nest in (*heads, *tail):
        value = body.values[nest.name][0] if nest in heads else body.value(nest)
        if nest.name in body.kernel.stores:
            body.store(nest, value)


def store_parts(body: Body, heads: tuple[ir.Nest, ...], var: dict[str, str]) -> None:
    """What a program that has one CHUNK of the terms leaves of each sum."""
    for head in heads:
        at = part_address(body, head, var)
        body.line(f"tl.store({at}, {body.values[head.name][0]}, mask={var['inside']})")


def part_address(body: Body, head: ir.Nest, var: dict[str, str]) -> str:
    """Where a part of the sums stands in scratch storage: [PARTS, batches, M, N]."""
    pointer = body.pointer(f"{head.name}_parts")
    row = f"tl.cast({var['part']}, tl.int64)"
    if body.kernel.axes[0].digits:
        row = f"({row} * {var['BATCH']} + {var['batch']})"
    return f"{pointer} + ({row} * {var['M']} + {var['m']}) * {var['N']} + {var['n']}"


def half_at_a_time(
    body: SlidingBody, heads: tuple[ir.Nest, ...], tail: tuple[ir.Nest, ...], var: dict[str, str]
) -> tuple[str, ...]:
    """The same in two halves of n: what a whole tile stores has an address an element, and these may spill.

    (Triton 3.7, behind a transposed convolution in 128 x 128: 1,560 bytes a thread; in halves 8.)
    """
    n = body.kernel.axes[2]
    own = {d.index for d in n.digits}
    body.cache = {k: v for k, v in body.cache.items() if k[0] == "run" and not set(k[1]) & own}
    if len(own) > 1:  # decoded again, for half as many columns
        for name in own:
            body.index.pop(name, None)
    points = inside_lines(body, var)
    half, splits = body.fresh("half"), []
    for head in heads:
        name, halves = body.values[head.name][0], body.fresh(f"{head.name}_halves")
        turned = f"{name}.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1)"
        splits.append(f"{halves} = tl.split({turned})")
        body.line(f"{name} = {halves}[{half}]")
    first = f"{var['tile_n']}.to(tl.int64) * BLOCK_N + {half} * (BLOCK_N // 2)"
    body.line(f"{var['n']} = {first} + tl.arange(0, BLOCK_N // 2)[None, :]")
    body.line(f"{var['inside']} = {var['both']}")
    body.columns, body.looping = own, frozenset({n.name})
    follow(body, heads, tail)
    body.columns, body.looping = set(), frozenset()
    splits.append(f"for {half} in tl.static_range(2):")
    body.lines = [*splits, *(f"    {line}" for line in body.lines)]
    return (*points, *body.points)


def products(
    body: Body, heads: tuple[ir.Nest, ...], bounds: Bounds, var: dict[str, str]
) -> tuple[list[str], list[str]]:
    """The lines of the loop: what makes the factors, each once, and a tl.dot for each sum."""
    made: dict[tuple[ir.Expr, str], str] = {}
    dots, others = [], in_some_row(body, bounds, var)
    for head in heads:
        left, right = head.fold.factors
        narrow = storage_dtype(left, right, body.op)
        for e, side in ((left, LEFT), (right, RIGHT)):
            if (e, narrow) not in made:
                made[e, narrow] = factor(body, e, side, narrow, var, bounds, others.get(side, ""))
        sides = [made[left, narrow], made[right, narrow]]
        if kind := factor_dtype(body, head, narrow):
            sides = [f"{side}.to({kind})" for side in sides]
        for k, (e, side) in enumerate(((left, LEFT), (right, RIGHT))):
            paired = body.context.wide and terms_of_pair(body, e) and head.dtype == "compute"
            if paired or follows_from_narrow(body, head, e, guards_of(body, bounds.guards, side)):
                sides[k] = f"lib.f64_factor({sides[k]})"
        if head.fold.scale is not None:
            dot = f"tl.dot({', '.join(sides)}, {dot_options(body, head)})"
            dots.append(f"{head.name} += {dot} * {var['scale']}")
            continue
        dots.append(dot_line(body, head, *sides))
        masked = LEFT in others or guards_of(body, bounds.guards, LEFT)
        computed = masked or not is_loaded(left, narrow) or terms_of_pair(body, left)
        if computed and ir.kind_of(head.dtype, body.op) != "int":
            dots.append(f"{head.name} = lib.awaited({head.name})")
    loads, body.lines = body.lines, []
    return loads, dots


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


def dot_line(body: Body, head: ir.Nest, left: str, right: str, name: str = "") -> str:
    """`name`: the accumulator, where it is not called as the sum is."""
    name = name or head.name
    return f"{name} = tl.dot({left}, {right}, {name}, {dot_options(body, head)})"


def dot_options(body: Body, head: ir.Nest) -> str:
    dtype, precision = sum_dtype(body, head), ""
    if ir.kind_of(head.dtype, body.op) != "int":
        body.args.constants["PRECISION"] = "PRECISION"
        precision = "input_precision=PRECISION, "
    return f"{precision}out_dtype={dtype}"


def scale_lines(
    body: Body, scale: ir.Expr, var: dict[str, str]
) -> tuple[list[str], list[str], list[str]]:
    """The scale that the terms of a step share: lines in front of the loop, its first ones, and its last one.

    It is read a step ahead: Triton waits for what is not read for tl.dot itself, a microsecond a step.
    """
    axis = body.kernel.axes[3]
    (k,) = (d.index for d in axis.digits)
    ahead, following = body.names.free("ahead"), body.names.free("next_scale")
    own, mask, lines, cache = body.index[k], body.axis_mask[axis.name], body.lines, body.cache
    body.index[k], body.axis_mask[axis.name] = ahead, f"{ahead} < {var['K']}"

    def read(at: str, name: str) -> list[str]:
        body.lines, body.cache = [f"{ahead} = tl.cast({at}, tl.int64)"], dict(cache)
        body.line(f"{name} = {body.expr(scale)[0]}")
        return body.lines

    before = read(var["begin"], var["scale"])
    first = read(f"{var['start']} + BLOCK_K", following)
    body.index[k], body.axis_mask[axis.name], body.lines, body.cache = own, mask, lines, cache
    return before, first, [f"{var['scale']} = {following}"]


def accumulators(
    body: Body, heads: tuple[ir.Nest, ...], shape: str = "(BLOCK_M, BLOCK_N)"
) -> list[str]:
    """The lines in front of the loop, one a sum."""
    for head in heads:
        name = body.assign(head.name, f"tl.zeros({shape}, {sum_dtype(body, head)})")
        body.values[head.name] = (name, ATOM)
    lines, body.lines = body.lines, []
    return lines


def sum_dtype(body: Body, head: ir.Nest) -> str:
    """What a program adds up in: integers in i32, as tl.dot does, where their sum is i64."""
    return "tl.int32" if ir.kind_of(head.dtype, body.op) == "int" else body.dtype(head.dtype)


def widen(body: Body, heads: tuple[ir.Nest, ...]) -> None:
    """Behind the loop: the sums as all that follows takes them."""
    for name in (body.values[h.name][0] for h in heads if ir.kind_of(h.dtype, body.op) == "int"):
        body.line(f"{name} = {name}.to(tl.int64)")


def inside_lines(body: Body, var: dict[str, str]) -> tuple[str, ...]:
    """Behind the loop: the mask of m with its ragged coordinates, as lines; `inside` joins it with n's."""
    m, n = (axis.name for axis in body.kernel.axes[1:3])
    checks = [f"{var['m']} < {var['M']}"]
    stored = next(nest for nest in body.kernel.nests if nest.name in body.kernel.stores)
    for coordinate, extent in body.kernel.ragged:
        at = body.coordinate(stored.name, stored.coords.index(coordinate), coordinate)
        checks.append(f"{at} < {body.size(extent)[0]}")
    body.axis_mask[n] = f"{var['n']} < {var['N']}"
    body.axis_mask[m] = checks[0]
    if len(checks) > 1:
        text = " & ".join(f"({c})" for c in checks)
        body.axis_mask[m] = body.assign(body.fresh("row_inside"), text)
    var["both"] = body.mask(frozenset({m, n}))
    body.together = {frozenset({m, n}): var["inside"]}
    lines, body.lines = tuple(body.lines), []
    return lines


def invariant(body: Body, factors: tuple[ir.Expr, ...]) -> None:
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

    for side in factors:
        visit(side)
        hoist(body, coordinates(side))


def axis_names(body: Body) -> dict[str, str]:
    """The tile's variables: m is [BLOCK_M, 1], n is [1, BLOCK_N], k a row or a column by side."""
    var = {}
    for axis, wish in zip(body.kernel.axes, ("batch", "m", "n", "k", "tap"), strict=False):
        single = len(axis.digits) == 1 and axis.digits[0].index != ir.BATCH
        name = axis.digits[0].index if single else body.names.free({"batch": "z"}.get(wish, wish))
        if len(axis.digits) == 1:
            body.index[axis.digits[0].index] = name
        var[wish] = body.axis_var[axis.name] = name
        if axis.digits:
            count = {"batch": "batches", "tap": "taps"}.get(wish, wish.upper())
            var[wish.upper()] = body.extent(axis.extent, count)
            if wish not in ("batch", "tap"):
                body.axis_mask[axis.name] = f"{name} < {var[wish.upper()]}"
    for name in (
        "pid",
        "tiles_m",
        "tiles_n",
        "tile",
        "group",
        "first_m",
        "size_m",
        "tile_m",
        "tile_n",
        "start",
        "inside",
        "chunks",
    ):
        var[name] = body.names.free(name)
    return var


def is_loaded(side: ir.Expr, narrow: str) -> bool:
    """Whether a factor is multiplied as it lies in memory."""
    return isinstance(side, ir.Cast) and isinstance(side.arg, ir.Read) and side.arg.dtype == narrow


def factor(
    body: Body,
    e: ir.Expr,
    side: Side,
    narrow: str,
    var: dict[str, str],
    bounds: Bounds = FREE,
    some: str = "",
) -> str:
    """The lines of one factor inside the loop; the name that goes into tl.dot. `some`: what else masks it."""
    inner = e
    if narrow:
        bare = e.arg if isinstance(e, ir.Cast) else e
        inner = bare if bare.dtype == narrow else ir.Cast(bare, narrow)
    with along(body, side, bounds, var):
        reads = {part.tensor for part in ir.walk(e) if isinstance(part, ir.Read)}
        body.fill = {tensor: 0.0 for tensor in reads}
        out = joined(body, inner, side, var) or body.expr(inner)[0]
        if not out.isidentifier():
            out = body.assign(body.fresh("left" if side is LEFT else "right"), out)
        simple = isinstance(inner, ir.Read) or (
            isinstance(inner, ir.Cast) and isinstance(inner.arg, ir.Read)
        )
        # The last pair of an odd number of terms has one more.
        simple = simple and not terms_of_pair(body, inner)
        checks = [guard_text(body, g) for g in guards_of(body, bounds.guards, side)]
        checks += [some] if some else []
        # A whole number that is not there is multiplied by the other factor's 0, and is no NaN.
        if checks or not (simple or stored_as(e) == WHOLE):
            mask = body.mask(body.axes_in_names(free_indices(e)), checks)
            if mask:
                body.line(f"{out} = tl.where({mask}, {out}, 0)")
        body.fill = {}
    return out


def terms_of_pair(body: Body, e: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
    """The two terms of a factor that lie in one element."""
    return pair_of(e, body.kernel.axes[3].digits[0].index) if body.kernel.pairs else None


def joined(body: Body, e: ir.Expr, side: Side, var: dict[str, str]) -> str:
    """A factor whose terms lie two in one element: both from one load, side by side; nothing for others."""
    both, axis = terms_of_pair(body, e), body.kernel.axes[3]
    if both is None:
        return ""
    pair = body.fresh("pair")
    body.line(f"{pair} = {var['start']} // 2 + tl.arange(0, BLOCK_K // 2).to({var['index']})")
    body.index[PAIR], body.axis_of[PAIR] = f"{pair}{side.orient}", axis
    own = body.axis_mask[axis.name]
    # A number of its own: of `2 * pair < K` Triton does not know that it holds for 16 in a row.
    pairs = body.count(-(-axis.extent // 2), "pairs")
    body.axis_mask[axis.name] = f"{pair}{side.orient} < {pairs}"
    parts = [
        body.assign(body.fresh(f"{word}_terms"), body.expr(p)[0])
        for word, p in zip(("even", "odd"), both, strict=True)
    ]
    body.axis_mask[axis.name] = own
    text = f"tl.join({', '.join(parts)})"
    if side is RIGHT:
        return f"{text}.permute(0, 2, 1).reshape(BLOCK_K, BLOCK_N)"
    return f"{text}.reshape(BLOCK_M, BLOCK_K)"
