"""A contraction as tiles of tl.dot: [BLOCK_M, BLOCK_N] accumulators over steps of BLOCK_K.

Input: a `KernelPlan` of the skeleton `contraction`, whose first nest is the sum of a product of two
factors, or `taps`, where the loop takes one tap of the window and BLOCK_K channels at a time. Output:
its `KernelView`: left and right lines for the loop, epilogue lines behind it.
"""

from __future__ import annotations

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import guard_text
from tritongen.emit.sliding import SlidingBody
from tritongen.emit.tiles import view
from tritongen.emit.view import KernelView, Loop
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, affine, index, indices, poly
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import free_indices
from tritongen.schedule.classes.contraction_operands import storage_dtype
from tritongen.schedule.plan import KernelPlan

LOOPED = frozenset({"k", "tap"})  # axes of the loop
ROWS, COLUMNS = {"batch", "m", "k", "tap"}, {"batch", "n", "k", "tap"}  # axes of a factor


def contraction_view(body: Body) -> KernelView:
    kernel = body.kernel
    heads, tail = kernel.nests[: kernel.products], kernel.nests[kernel.products :]
    if kernel.slides:
        body = SlidingBody(body.context, kernel)
    var = axis_names(body)
    guards = list(heads[0].fold.guards)  # several products have none
    if isinstance(body, SlidingBody):
        body.sliding = LOOPED
        counted = kernel.axes[4:] if len(kernel.axes) > 4 else kernel.axes[3:]
        body.narrow |= {d.index for a in (kernel.axes[1], *counted) for d in a.digits}
        body.args.constants["INDEX"] = "INDEX"
    var["index"] = "INDEX" if kernel.slides else "tl.int64"
    invariant(body, tuple(side for head in heads for side in head.fold.factors))
    var |= numbers(kernel, var)
    skip_blocks(body, guards, var)
    opening, body.lines = body.lines, []
    before = dict(body.cache)
    loads, dots = products(body, heads, guards, var)
    body.cache = before | {key: name for key, name in body.cache.items() if is_kept_run(body, key)}
    opening += accumulators(body, heads)
    if isinstance(body, SlidingBody):
        body.sliding = frozenset()
        points = half_at_a_time(body, heads, tail, var)
    else:
        points = inside_lines(body, var)
        points += (f"{var['inside']} = {var['both']}",)
        follow(body, heads, tail)
    walk = "one tap and BLOCK_K channels" if "tap" in var else "BLOCK_K terms"
    doc = f"A tile of BLOCK_M x BLOCK_N sums a program, {walk} at a time."
    blocks = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
    return view(
        body,
        var,
        blocks,
        doc,
        epilogue=points,
        lines=tuple(body.lines),
        loops=(Loop(tuple(opening), (*loads, *dots), ()),),
        flags={"batched": bool(kernel.axes[0].digits)},
    )


def numbers(kernel: KernelPlan, var: dict[str, str]) -> dict[str, str]:
    """From the number of a program to its batch and its tile.

    Phases of a transposed convolution lie between one another in memory: those of one place run side by
    side, so that L2 sees whole sectors.
    """
    tiles = f"{var['tiles_m']} * {var['tiles_n']}"
    if kernel.lets:
        number, tile = f"tl.program_id(0) % {var.get('BATCH')}", f"// {var.get('BATCH')}"
    else:
        number, tile = f"tl.program_id(0) // ({tiles})", f"% ({tiles})"
    return {"batch_number": number, "tile_number": f"tl.program_id(0) {tile}"}


def follow(body: Body, heads: tuple[ir.Nest, ...], tail: tuple[ir.Nest, ...]) -> None:
    """Whatever follows from the sums over m and n, and the stores."""
    for nest in (*heads, *tail):
        value = body.values[nest.name][0] if nest in heads else body.value(nest)
        if nest.name in body.kernel.stores:
            body.store(nest, value)


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
    body: Body, heads: tuple[ir.Nest, ...], guards: list[ir.Guard], var: dict[str, str]
) -> tuple[list[str], list[str]]:
    """The lines of the loop: what makes the factors, each once, and a tl.dot for each sum."""
    made: dict[tuple[ir.Expr, str], str] = {}
    dots = []
    for head in heads:
        left, right = head.fold.factors
        narrow = storage_dtype(left, right, body.op)
        for side, orient, roles in ((left, "[None, :]", ROWS), (right, "[:, None]", COLUMNS)):
            if (side, narrow) not in made:
                made[side, narrow] = factor(body, side, orient, guards, narrow, var, roles)
        dots.append(dot_line(body, head, made[left, narrow], made[right, narrow]))
        if not is_loaded(left, narrow) and ir.kind_of(head.dtype, body.op) != "int":
            body.helpers["_awaited"] = None
            dots.append(f"{head.name} = _awaited({head.name})")
    loads, body.lines = body.lines, []
    return loads, dots


def dot_line(body: Body, head: ir.Nest, left: str, right: str, name: str = "") -> str:
    """`name`: the accumulator, where it is not called as the sum is."""
    name = name or head.name
    dtype, precision = body.dtype(head.dtype), ""
    if ir.kind_of(head.dtype, body.op) != "int":
        body.args.constants["PRECISION"] = "PRECISION"
        precision = "input_precision=PRECISION, "
    return f"{name} = tl.dot({left}, {right}, {name}, {precision}out_dtype={dtype})"


def accumulators(
    body: Body, heads: tuple[ir.Nest, ...], shape: str = "(BLOCK_M, BLOCK_N)"
) -> list[str]:
    """The lines in front of the loop, one a sum."""
    for head in heads:
        name = body.assign(head.name, f"tl.zeros({shape}, {body.dtype(head.dtype)})")
        body.values[head.name] = (name, ATOM)
    lines, body.lines = body.lines, []
    return lines


def is_kept_run(body: Body, key) -> bool:
    """Whether a cached name is a run of digits of an axis that no loop walks."""
    return key[0] == "run" and body.axis_of[key[1][0]].name not in LOOPED


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


def skip_blocks(body: Body, guards: list[ir.Guard], var: dict[str, str]) -> None:
    """`k <= i` and its kin end (or begin) the loop where the last row of the tile does.

    A guard `rest(i) - k >= 0` has its largest rest at one end of the tile: no k beyond it passes.
    """
    var |= {"begin": "0", "to": var["K"]}
    k_axis = body.kernel.axes[3]
    if "tap" in var:
        return
    for guard in guards:
        parts = affine(guard.poly)
        if guard.op != ">=" or parts is None or len(k_axis.digits) != 1:
            continue
        k_weight = sign(parts[0].pop(Idx(k_axis.digits[0].index), poly(0)))
        tiled = [(a.name, sign(w)) for a, w in parts[0].items() if isinstance(a, Idx)]
        if not k_weight or len(tiled) != 1 or len(parts[0]) != 1 or not tiled[0][1]:
            continue
        ((name, weight),) = tiled
        axis = body.axis_of.get(name)
        if axis is None or axis.name not in ("m", "n") or len(axis.digits) != 1:
            continue
        block, number = f"BLOCK_{axis.name.upper()}", var[f"tile_{axis.name}"]
        extreme = f"{number} * {block} + {block} - 1" if weight > 0 else f"{number} * {block}"
        edge = body.assign(body.fresh(f"{name}_{'last' if weight > 0 else 'first'}"), extreme)
        own, body.index[name] = body.index[name], edge
        rest = parts[1] + weight * index(name)
        behind, first = body.size(rest + 1)[0], body.size(-rest)[0]
        body.index[name] = own
        if k_weight < 0:
            var["to"] = body.assign(body.fresh("stop"), f"tl.minimum({var['to']}, {behind})")
        else:
            at = f"tl.maximum({first}, 0) // BLOCK_K * BLOCK_K"
            var["begin"] = body.assign(body.fresh("begin"), at)


def sign(weight: Poly) -> int:
    """Of 1 and -1; 0 for any other weight."""
    return {poly(1): 1, poly(-1): -1}.get(weight, 0)


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
    body: Body, side: ir.Expr, orient: str, guards: list, narrow: str, var, roles: set[str]
) -> str:
    """The lines of one factor inside the loop; the name that goes into tl.dot."""
    axis = body.kernel.axes[3]
    name = var["k"] + orient
    saved, cache = dict(body.index), dict(body.cache)
    body.axis_var[axis.name] = name
    body.axis_mask[axis.name] = f"{name} < {var['K']}"
    body.looping = LOOPED
    if len(axis.digits) == 1:
        body.index[axis.digits[0].index] = name
    reads = {e.tensor for e in ir.walk(side) if isinstance(e, ir.Read)}
    body.fill = {tensor: 0.0 for tensor in reads}
    inner = side
    if narrow and isinstance(side, ir.Cast):
        inner = side.arg if side.arg.dtype == narrow else ir.Cast(side.arg, narrow)
    out = body.expr(inner)
    if not out[0].isidentifier():
        out = (
            body.assign(body.fresh("left" if orient.startswith("[N") else "right"), out[0]),
            ATOM,
        )
    mine = {d.index for a in body.kernel.axes if a.name in roles for d in a.digits}
    here = [g for g in guards if indices(g.poly) <= mine]
    simple = isinstance(inner, ir.Read) or (
        isinstance(inner, ir.Cast) and isinstance(inner.arg, ir.Read)
    )
    checks = [guard_text(body, g) for g in here]
    if checks or not simple:
        mask = body.mask(body.axes_in_names(free_indices(side)), checks)
        if mask:
            body.line(f"{out[0]} = tl.where({mask}, {out[0]}, 0)")
    for g in here:
        guards.remove(g)
    # What one factor decoded of k lies along its own side of the tile.
    k = {d.index for d in axis.digits}
    body.index = saved | {name: text for name, text in body.index.items() if name not in k}
    body.cache = cache | {key: name for key, name in body.cache.items() if is_kept_run(body, key)}
    body.fill = {}
    body.looping = frozenset()
    return out[0]
