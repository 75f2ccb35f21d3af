"""Kernels over a tile of two axes (or one): flat, tile, rows, loop, part, finish.

Input: a `KernelPlan`. Output: its `KernelView`. The tile is [ROWS, BLOCK]; values that depend on the
row alone are [ROWS, 1], on the column alone [1, BLOCK], so every line reads the same in all six.
"""

from __future__ import annotations

from tritongen.emit.body import Body, Context
from tritongen.emit.folds import FOLDS, combined
from tritongen.emit.masked import choose_fill
from tritongen.emit.view import KernelView, Loop
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index, poly
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import free_indices, reads, tensors_read
from tritongen.schedule.group import is_reducer
from tritongen.schedule.plan import KernelPlan, Level
from tritongen.schedule.steps import fold_state

TEMPLATES = {"finish": "part"}  # merging and walking one chunk is one skeleton
NO_PLACE = "2147483647"  # the index of a masked lane: later than any other


def kernel_view(context: Context, kernel: KernelPlan) -> KernelView:
    """The view of one tile kernel, by its skeleton."""
    body = Body(context, kernel)
    return PRINTERS[kernel.skeleton](body)


# ---- the tile -----------------------------------------------------------------------------------
def _axis_name(body: Body, position: int) -> str:
    axis = body.kernel.axes[position]
    if len(axis.digits) == 1 and axis.digits[0].index != ir.BATCH:
        name = axis.digits[0].index
        body.index[name] = name
        return name
    name = body.names.free("row" if axis.digits and axis.digits[0].index == ir.BATCH and axis.name != "col" else axis.name)
    if len(axis.digits) == 1:
        body.index[axis.digits[0].index] = name
    return name


def open_tile(body: Body) -> dict[str, str]:
    """Names and masks of the two axes; {role: name} for the template."""
    row, col = body.kernel.axes
    var = {}
    for role, position, wish in (("row", 0, "rows"), ("col", 1, "cols")):
        axis = body.kernel.axes[position]
        var[role] = _axis_name(body, position)
        body.axis_var[axis.name] = var[role]
        var[wish] = body.extent(axis.extent, wish) if axis.digits else "1"
        body.axis_mask[axis.name] = f"{var[role]} < {var[wish]}"
        var[f"{role}_low"] = ""
        if len(axis.digits) == 1 and axis.digits[0].lo.terms:
            low = body.size(axis.digits[0].lo)[0]
            body.axis_mask[axis.name] = f"{var[role]} < {low} + {var[wish]}"
            var[f"{role}_low"] = f"{low} + "
        var[f"{role}_mask"] = body.axis_mask[axis.name]
    var["inside"] = body.names.free("inside")
    var["start"] = body.names.free("start")
    body.together = {frozenset({row.name, col.name}): var["inside"]}
    return var


def view(body: Body, var: dict[str, str], blocks: tuple[str, ...], doc: str, **fields) -> KernelView:
    """The frozen view: parameters in the order pointers, scalars, sizes, strides, constexprs."""
    args = body.args
    plain = {**args.pointers, **args.scalars, **args.sizes, **args.strides}
    parameters = (*plain, *(f"{name}: tl.constexpr" for name in (*args.constants, *blocks)))
    arguments = (*plain.values(), *(f"{name}={value}" for name, value in args.constants.items()))
    return KernelView(
        name=body.kernel.name,
        template=TEMPLATES.get(body.kernel.skeleton, body.kernel.skeleton),
        doc=doc,
        parameters=parameters,
        arguments=arguments,
        var=var,
        prologue=tuple(body.prologue),
        helpers=tuple(body.helpers),
        libdevice=body.libdevice,
        blocks=blocks,
        **fields,
    )


def flat(body: Body) -> KernelView:
    (axis,) = body.kernel.axes
    single = len(axis.digits) == 1 and axis.digits[0].index != ir.BATCH
    name = axis.digits[0].index if single else body.names.free("i")
    body.axis_var[axis.name] = name
    for digit in axis.digits:
        if len(axis.digits) == 1:
            body.index[digit.index] = name
    total = body.extent(axis.extent, "total")
    inside = body.names.free("inside")
    body.axis_mask[axis.name] = inside
    straight_lines(body)
    var = {"i": name, "total": total, "inside": inside}
    return view(body, var, ("BLOCK",), "BLOCK elements a program.", lines=tuple(body.lines))


def tile(body: Body) -> KernelView:
    var = open_tile(body)
    var["tiles"] = body.names.free("tiles")
    straight_lines(body)
    doc = "A tile of ROWS x BLOCK elements a program."
    return view(body, var, ("ROWS", "BLOCK"), doc, lines=tuple(body.lines))


def rows(body: Body) -> KernelView:
    var = open_tile(body)
    tensors = wide_tensors(body)
    body.fill, served = choose_fill(body.kernel.nests, tensors)
    folds_left = sum(is_reducer(nest) for nest in body.kernel.nests)
    for nest in body.kernel.nests:
        if is_reducer(nest):
            fold_resident(body, nest, var, nest.name in served)
            folds_left -= 1
        elif nest.name not in body.values:
            if body.kernel.reload and not folds_left and not is_row_value(body, nest):
                reload(body, tensors)
                folds_left = -1
            tile_values(body, needs(body, nest.body) - set(body.values))
            body.value(nest)
        if nest.name in body.kernel.stores:
            body.store(nest, body.values[nest.name][0])
    doc = "ROWS whole rows a program, held in registers: every element is read once."
    if body.kernel.reload:
        doc = "ROWS whole rows a program, read once for the folds and once more for the result."
    return view(body, var, ("ROWS", "BLOCK"), doc, lines=tuple(body.lines))


def is_row_value(body: Body, nest: ir.Nest) -> bool:
    return {b.index for b in nest.box} == {d.index for d in body.kernel.axes[0].digits}


def reload(body: Body, tensors: tuple[str, ...]) -> None:
    """Behind the last fold, what was read along the columns is forgotten, and read again where it is used."""
    body.line("# Read again, from L2: the registers this frees let two programs share a multiprocessor.")
    forget_tile(body)
    body.cache = {k: v for k, v in body.cache.items() if not (isinstance(k[0], ir.Read) and k[0].tensor in tensors)}
    body.fill = {}


def straight_lines(body: Body) -> None:
    for nest in body.kernel.nests:
        body.value(nest)
        if nest.name in body.kernel.stores:
            body.store(nest, body.values[nest.name][0])


def wide_tensors(body: Body) -> tuple[str, ...]:
    """Tensors read along the columns: their masked lanes reach the folds."""
    col = {d.index for d in body.kernel.axes[1].digits}
    found: dict[str, None] = {}
    computed = {n.name for n in body.kernel.nests}
    for nest in body.kernel.nests:
        for read in reads(nest.body):
            if read.tensor not in computed and free_indices(read) & col and read.fill is None:
                if ir.kind_of(read.dtype, body.op) == "float":
                    found[read.tensor] = None
    return tuple(found)


# ---- folds --------------------------------------------------------------------------------------
def start_text(body: Body, nest: ir.Nest, dtype: str) -> str:
    """What an empty lane of a fold holds."""
    op = nest.body.op
    kind = ir.kind_of(dtype, body.op)
    start = FOLDS[op.replace("arg", "")].start[kind]
    if start in ("LOWEST", "HIGHEST"):
        return body.lowest(dtype, highest=start == "HIGHEST")
    return start


def term(body: Body, nest: ir.Nest, var: dict[str, str], served: bool) -> tuple[str, int]:
    """The term of a fold over the whole tile, masked lanes holding its start."""
    reduce = nest.body
    out = body.expr(reduce.body)
    wide = free_indices(reduce.body) >= {d.index for d in body.kernel.axes[1].digits[:1]}
    guards = [guard_text(body, g) for g in reduce.guards]
    if served and not guards and wide:
        return out
    mask = body.mask(frozenset(a.name for a in body.kernel.axes), guards)
    start = start_text(body, nest, reduce.body.dtype)
    if not body.strong(reduce.body):
        out = (body.full(reduce.body, reduce.body.dtype), ATOM)
    return f"tl.where({mask}, {out[0]}, {start})", ATOM


def guard_text(body: Body, guard: ir.Guard) -> str:
    return f"{body.size(guard.poly)[0]} {guard.op} 0"


def end_text(body: Body, nest: ir.Nest, tile_text: str, axis: int = 1) -> str:
    kind = ir.kind_of(nest.body.body.dtype, body.op)
    fold = FOLDS[nest.body.op]
    if fold.helper[kind]:
        body.helpers[fold.helper[kind]] = None
    return fold.end[kind].format(t=tile_text, axis=axis)


def place_of(body: Body, nest: ir.Nest) -> str:
    """The row-major number of a term, for argmax and argmin."""
    number = poly(0)
    for b in nest.body.binders:
        number = number * (b.hi - b.lo) + (index(b.index) - b.lo)
    return body.size(number)[0]


def arg_helper(body: Body, nest: ir.Nest) -> str:
    helper = f"_first_{nest.body.op[3:]}"
    body.helpers[helper] = None
    return helper


def fold_resident(body: Body, nest: ir.Nest, var: dict[str, str], served: bool) -> None:
    """A fold of a tile that is in registers."""
    if nest.body.op.startswith("arg"):
        value = body.assign(body.fresh(f"{nest.name}_value"), term(body, nest, var, False)[0])
        place = body.assign(
            body.fresh("place"), f"tl.where({var['inside']}, {place_of(body, nest)}, {NO_PLACE})"
        )
        best = body.fresh(f"{nest.name}_best")
        both = f"tl.reduce(({value}, {place}), 1, {arg_helper(body, nest)}, keep_dims=True)"
        body.line(f"{best}, {nest.name} = {both}")
        body.values[nest.name] = (nest.name, ATOM)
        return
    out = end_text(body, nest, term(body, nest, var, served)[0])
    if nest.name in body.context.user_names or nest.name in body.kernel.stores or uses(body, nest.name) != 1:
        name = body.assign(nest.name, out)
        body.values[nest.name] = (name, ATOM)
    else:
        body.values[nest.name] = (out, 1 if out.endswith("!= 0") else ATOM)


def uses(body: Body, name: str) -> int:
    return sum(e.tensor == name for n in body.kernel.nests for e in ir.walk(n.body) if isinstance(e, ir.Read))


# ---- walks that loop ----------------------------------------------------------------------------
def loop(body: Body) -> KernelView:
    """Every level in turn, then the values over the whole tile."""
    var = open_tile(body)
    first, *levels = body.kernel.levels
    row_values(body, first, store=True)
    opening, body.lines = tuple(body.lines), []
    walks = [walk_level(body, level, var, final=True) for level in levels]
    walks += walk_outputs(body, var)
    doc = f"ROWS rows a program, of any width, BLOCK elements at a time: {_passes(len(walks))} over each row."
    return view(body, var, ("ROWS", "BLOCK"), doc, lines=opening, loops=tuple(walks))


def _passes(count: int) -> str:
    return {1: "one pass", 2: "two passes", 3: "three passes"}.get(count, f"{count} passes")


def part(body: Body) -> KernelView:
    """One level of one part of some rows; what the levels before it left is merged first."""
    number = int(body.kernel.role.split()[1])
    var = open_tile(body) | part_names(body)
    for level in body.kernel.levels[:number]:
        merge_level(body, level, var)
    merged, body.lines = tuple(body.lines), []
    level = body.kernel.levels[number]
    walk = walk_level(body, level, var, final=False)
    doc = f"Program (part, row): {', '.join(level.folds)} over one CHUNK of ROWS rows."
    flags = {"merges": number > 1}
    return view(body, var, ("ROWS", "BLOCK", "PARTS"), doc, lines=merged, loops=(walk,), flags=flags)


def finish(body: Body) -> KernelView:
    """Merge all levels; row values are stored by the first part, tile values by all."""
    var = open_tile(body) | part_names(body)
    for level in body.kernel.levels:
        merge_level(body, level, var, store=True)
    merged, body.lines = tuple(body.lines), []
    walks = walk_outputs(body, var)
    doc = "Program (part, row): merge what the parts left, then write one CHUNK of ROWS rows."
    flags = {"merges": True}
    return view(body, var, ("ROWS", "BLOCK", "PARTS"), doc, lines=merged, loops=tuple(walks), flags=flags)


def part_names(body: Body) -> dict[str, str]:
    body.args.sizes["CHUNK"] = 'config["CHUNK"]'
    return {name: body.names.free(name) for name in ("part", "parts", "stop")}


def enter_loop(body: Body) -> tuple[dict, list[str], set[str]]:
    """A loop over the columns: what is loaded or decoded in it is forgotten behind it."""
    saved = dict(body.cache), body.lines, set(body.assigned)
    body.lines = []
    body.looping = frozenset({"col"})
    return saved


def leave_loop(body: Body, saved) -> tuple[str, ...]:
    lines = tuple(body.lines)
    body.cache, body.lines, body.assigned = saved
    body.looping = frozenset()
    digits = body.kernel.axes[1].digits
    if len(digits) > 1:  # decoded in the loop; a single digit is the axis itself
        for digit in digits:
            body.index.pop(digit.index, None)
    return lines


def walk_level(body: Body, level: Level, var: dict[str, str], final: bool) -> Loop:
    """One pass: accumulate every fold of the level over the columns."""
    nests = {n.name: n for n in body.kernel.nests}
    tensors = wide_tensors(body)
    body.fill, served = choose_fill(body.kernel.nests, tensors)
    outer, body.lines = body.lines, []
    before: list[str] = []
    accumulators: dict[str, tuple[str, ...]] = {}
    for name in level.folds:
        nest = nests[name]
        shape = "(ROWS, BLOCK)"
        dtype = body.dtype(nest.body.body.dtype)
        start = start_text(body, nest, nest.body.body.dtype)
        if nest.body.op.startswith("arg"):
            best, at = body.fresh(f"{name}_best"), body.fresh(f"{name}_at")
            before += [f"{best} = tl.full({shape}, {start}, {dtype})", f"{at} = tl.full({shape}, {NO_PLACE}, tl.int64)"]
            accumulators[name] = best, at
        else:
            acc = body.fresh(f"{name}_acc")
            before.append(f"{acc} = tl.full({shape}, {start}, {dtype})")
            accumulators[name] = (acc,)
    saved = enter_loop(body)
    for name in level.folds:
        accumulate(body, nests[name], accumulators[name], var, name in served)
    lines = leave_loop(body, saved)
    for name in level.folds:
        close_fold(body, nests[name], accumulators[name], final, var)
    if final:
        row_values(body, level, store=True)
    after, body.lines = tuple(body.lines), outer
    return Loop(tuple(before), lines, after)


def tile_values(body: Body, needed: set[str]) -> None:
    """Pointwise values over the whole tile that a term reads, computed where they are read."""
    row = {d.index for d in body.kernel.axes[0].digits}
    for nest in body.kernel.nests:
        if nest.name in needed and not is_reducer(nest) and {b.index for b in nest.box} != row:
            body.value(nest)


def needs(body: Body, expr: ir.Expr) -> set[str]:
    """Names of all values that expr depends on, through other tile values."""
    nests = {n.name: n for n in body.kernel.nests}
    row = {d.index for d in body.kernel.axes[0].digits}
    found: set[str] = set()

    def visit(e: ir.Expr) -> None:
        for tensor in sorted(tensors_read(e)):
            nest = nests.get(tensor)
            if nest and nest.name not in found and not is_reducer(nest) and {b.index for b in nest.box} != row:
                found.add(nest.name)
                visit(nest.body)

    visit(expr)
    return found


def accumulate(body: Body, nest: ir.Nest, names: tuple[str, ...], var, served: bool) -> None:
    tile_values(body, needs(body, nest.body.body) - set(body.values))
    if nest.body.op.startswith("arg"):
        best, at = names
        value = term(body, nest, var, False)[0]
        place = f"tl.where({var['inside']}, {place_of(body, nest)}, {NO_PLACE})"
        body.line(f"{best}, {at} = {arg_helper(body, nest)}({best}, {at}, {value}, {place})")
        forget_tile(body)
        return
    kind = ir.kind_of(nest.body.body.dtype, body.op)
    fold = FOLDS[nest.body.op]
    value = term(body, nest, var, served)
    if fold.helper[kind]:
        body.helpers[fold.helper[kind]] = None
    body.line(combined(fold.combine[kind], names[0], value))


def forget_tile(body: Body) -> None:
    """Tile values live as long as one pass of a loop."""
    row = {d.index for d in body.kernel.axes[0].digits}
    for nest in body.kernel.nests:
        if not is_reducer(nest) and {b.index for b in nest.box} != row:
            body.values.pop(nest.name, None)


def close_fold(body: Body, nest: ir.Nest, names: tuple[str, ...], final: bool, var) -> None:
    """The accumulator of a fold to one value a row: kept, or left in scratch for the next kernel."""
    forget_tile(body)
    if nest.body.op.startswith("arg"):
        best, at = names
        out = f"tl.reduce(({best}, {at}), 1, {arg_helper(body, nest)}, keep_dims=True)"
        if final:
            body.line(f"{best}, {nest.name} = {out}")
            body.values[nest.name] = (nest.name, ATOM)
        else:
            body.line(f"{best}, {at} = {out}")
            store_parts(body, nest, (best, at), var)
        return
    out = end_text(body, nest, names[0])
    if final:
        body.values[nest.name] = (body.assign(nest.name, out), ATOM)
    else:
        store_parts(body, nest, (out,), var)


def store_parts(body: Body, nest: ir.Nest, values: tuple[str, ...], var) -> None:
    for (name, _), value in zip(fold_state(nest), values):
        at = f"{body.pointer(name)} + {var['row']} * PARTS + {var['part']}"
        body.line(f"tl.store({at}, {value}, mask={body.axis_mask['row']})")


def merge_level(body: Body, level: Level, var: dict[str, str], store: bool = False) -> None:
    """What the parts of a level left, merged: one value a row."""
    nests = {n.name: n for n in body.kernel.nests}
    for name in level.folds:
        nest = nests[name]
        loaded = []
        starts = [start_text(body, nest, nest.body.body.dtype), NO_PLACE]
        for (state, _), start in zip(fold_state(nest), starts):
            at = f"{body.pointer(state)} + {var['row']} * PARTS + {var['parts']}"
            mask = f"({body.axis_mask['row']}) & ({var['parts']} < PARTS)"
            loaded.append(body.assign(body.fresh(f"{state}s"), f"tl.load({at}, mask={mask}, other={start})"))
        if nest.body.op.startswith("arg"):
            best = body.fresh(f"{name}_best")
            out = f"tl.reduce(({loaded[0]}, {loaded[1]}), 1, {arg_helper(body, nest)}, keep_dims=True)"
            body.line(f"{best}, {name} = {out}")
            body.values[name] = (name, ATOM)
        else:
            body.values[name] = (body.assign(name, end_text(body, nest, loaded[0])), ATOM)
    row_values(body, level, store, first_part=var["part"] if store else "")


def row_values(body: Body, level: Level, store: bool, first_part: str = "") -> None:
    """Values a row that follow from the level's folds, and the stores of both."""
    nests = {n.name: n for n in body.kernel.nests}
    for name in level.lines:
        body.value(nests[name])
    if store:
        for name in (*level.folds, *level.lines):
            if name in body.kernel.stores:
                checks = [f"{first_part} == 0"] if first_part else []
                body.store(nests[name], body.values[name][0], checks)


def walk_outputs(body: Body, var: dict[str, str]) -> list[Loop]:
    """The last pass: values over the whole tile that are stored."""
    row = {d.index for d in body.kernel.axes[0].digits}
    wide = [n for n in body.kernel.nests if n.name in body.kernel.stores and {b.index for b in n.box} != row]
    if not wide:
        return []
    saved = enter_loop(body)
    body.fill = {}
    for nest in wide:
        tile_values(body, needs(body, nest.body) - set(body.values))
        if nest.name not in body.values:
            body.value(nest)
        body.store(nest, body.values[nest.name][0])
    lines = leave_loop(body, saved)
    forget_tile(body)
    return [Loop((), lines, ())]


PRINTERS = {"flat": flat, "tile": tile, "rows": rows, "loop": loop, "part": part, "finish": finish}
