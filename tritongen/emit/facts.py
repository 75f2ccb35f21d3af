"""The facts of a call that `choose`, grids and scratch use, as the launch function computes them.

    gpu = lib.gpu(x.device)
    variant, config = choose_matmul(M=M, ..., tma=lib.takes_tiles(a, b), gpu=gpu)

A fact that a grid uses, or that is long, has a line of its own. The others stand in the call. A fact that no rule of the
step needs is not printed. `launch.py` prints the launches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tritongen.emit.contraction import is_widened, storage_dtype
from tritongen.emit.kernel_writer import Context
from tritongen.emit.matrices import SIDES, matrix_order, matrix_text, permuted
from tritongen.emit.patches import covered_text
from tritongen.emit.sizes import stride_along
from tritongen.emit.strips import ends_text, sides_of
from tritongen.emit.text import bare, launch_text, tuple_text, wrap_text
from tritongen.ir.algebra import indices, poly
from tritongen.ir.free import reads
from tritongen.ir.functions import TERM
from tritongen.ir.nodes import BATCH, Op, kind_of, may_be_f64
from tritongen.schedule import rules
from tritongen.schedule.classes.patches import Dim, operand, walked
from tritongen.schedule.estimates import shared
from tritongen.schedule.members import operands
from tritongen.schedule.plan import KernelPlan, Order, Pack, Run, Sizes, Step, View

LONG = 56  # characters of what is better read on a line of its own


def spoken_of(step: Step) -> set[str]:
    """The names that conditions, configs and estimates speak of."""
    sizes, others = shared(step)
    spoken: set[str] = set()
    for v in step.variants:
        spoken |= rules.names(v.when).union(*(rules.names(r) for _, r in v.config))
        if v.estimate is not None:
            spoken |= set().union(*map(rules.names, (*v.estimate.asked, *sizes, *others)))
    return by_gpu(spoken) - {name for v in step.variants for name, _ in v.config}


def by_gpu(names: set[str]) -> set[str]:
    """Replaces the GPU facts that a rule uses by `gpu`."""
    return names - {*rules.OF_GPU} | ({"gpu"} if names & {*rules.OF_GPU} else set())


def used_facts(step: Step) -> tuple[tuple[str, str], ...]:
    """(name, type) of what `choose` takes, in a fixed order."""
    spoken = spoken_of(step)
    types = {n: "int" for n, _ in step.facts}
    types |= {f.fact: "bool" for f in (*step.orders, *step.tests)}
    types |= {n: kind for n, kind in FACTS.items() if n not in types}
    return tuple((n, t) for n, t in types.items() if n in spoken)


def fact_names(context: Context, step: Step) -> dict[str, str]:
    """The name of each size of the plan in the launch: `M` may be another size in the spec.

    A type parameter may have the same name, because a launch uses no type parameter.
    """
    scope, names = context.scope - {p.name for p in context.op.typarams}, {}
    for name, p in step.facts:
        text, own = launch_text(p), name + context.mark
        while own in scope and own != text:
            own = text if bare(p) else f"{own}_"
        names[name] = own
    return names


def fact_lines(context: Context, step: Step, views: dict[str, View]) -> tuple[list[str], list[str]]:
    """Lines for the facts that grids and scratch speak of, or that are long; and what `choose` is given, by name."""
    launched = set[str]()
    for v in step.variants:
        rules_of = [r for run in v.launches for r in run.grid]
        rules_of += [r for _, _, shape in v.scratch for r in shape]
        launched |= by_gpu(set().union(*map(rules.names, rules_of)))
    own, asked = fact_names(context, step), dict(used_facts(step))
    texts = {n: launch_text(p) if p.terms else "0" for n, p in step.facts}
    texts |= {t.fact: tested(t) for t in (*step.orders, *step.tests)}
    wanted = asked.keys() | launched | ({"strip_ends"} if "strips" in asked else set())
    more = [n for n in FACTS if n in wanted and n not in texts]
    texts |= {n: fact_text(n, context, step, views) for n in more}
    spoken = launched | {"in_f64", "strip_ends", "strip_dim"}  # by later lines
    bares = {n for n, p in step.facts if bare(p)}  # which are called what the spec calls them
    named = {n for n in texts.keys() - bares if n in spoken or n in asked and len(texts[n]) > LONG}
    assigned = [(own.get(n, n), text) for n, text in texts.items() if n in named]
    lines = [f"{name} = {text}" for name, text in assigned if name != text]
    lines = with_named_views(context, step, lines)
    return lines, [f"{n}={own.get(n, n) if n in named else texts[n]}" for n in asked]


def with_named_views(context: Context, step: Step, lines: list[str]) -> list[str]:
    """The lines, with a name for each view of an operand that several of them ask about."""
    taken = context.scope
    for pack in (p for v in step.variants for p in v.packs):
        text = packed_text((pack,))
        own = re.compile(rf"(?<![\w.]){re.escape(text)}")
        asking = [k for k, line in enumerate(lines) if own.search(line)]
        if text.isidentifier() or len(asking) < 2:
            continue
        name = f"{pack.tensor}_last"
        if any(line.startswith(f"{name} = ") for line in lines):  # another dim of it is last
            name = f"{pack.tensor}_dim{pack.order[-1]}_last"
        while name in taken or any(line.startswith(f"{name} = ") for line in lines):
            name += "_"
        lines = [own.sub(name, line) for line in lines]
        lines.insert(asking[0], f"{name} = {text}")
    return lines


def tested(test: Order | Run | Sizes) -> str:
    """The host expression of a fact."""
    match test:
        case Order(_, tensor, near, far):
            return f"{tensor}.stride({near}) < {tensor}.stride({far})"
        case Run(_, orders):
            return " and ".join(f"{t}{permuted(order)}.is_contiguous()" for t, order in orders)
        case Sizes(_, values, tiles):
            asked = (f"{launch_text(p)} == {value}" for p, value in values)
            told = ", ".join(tiles)  # of images that repeat themselves a copy is not counted
            return " and ".join([*asked, f"lib.takes_tiles({told}) and not lib.repeats({told})"])


def is_stepped(kernel: KernelPlan) -> bool:
    """Whether a patch or a strip takes only every second place of an image, or fewer."""
    if kernel.skeleton == "strips":
        seen: tuple[Dim, ...] | None = sides_of(kernel)[0][1]
    else:
        image = operand(kernel.nests[0].fold.factors[0])
        seen = None if image is None else walked(image, kernel.axes[1], kernel.axes[3])
    return any(dim.step != poly(1) for dim in seen or ())


def described(step: Step, skeleton: str) -> dict[str, None]:
    """The operands that kernels of a kind load by descriptor."""
    return dict.fromkeys(t.tensor for k in step.kernels if k.skeleton == skeleton for t in k.tiles)


def matrices(step: Step) -> tuple[dict[str, None], dict[str, None]]:
    """The operands of left and of right factors, as the matrices that a descriptor takes tiles of."""
    kernel = next(k for k in step.kernels if k.skeleton == "persistent")
    found: tuple[dict[str, None], dict[str, None]] = {}, {}
    for k, tile in enumerate(kernel.tiles):
        found[k % 2][matrix_text(tile.tensor, matrix_order(kernel, tile, SIDES[k % 2]))] = None
    return found


def added_bytes_text(context: Context, step: Step) -> str:
    """Bytes of what a scatter adds up in; 0 if the result holds numbers of another kind, each of which would be cut off."""
    added = {name for v in step.variants for name, _ in v.zeroed}
    dtype = next(n.dtype for k in step.kernels for n in k.nests if n.name in added & {*k.stores})
    stored = context.dtypes[step.stores[-1]]
    if kind_of(stored, context.op) != kind_of(dtype, context.op):
        return "0"
    if dtype == "compute":
        return compute_bytes(context)
    return str(int(dtype[1:]) // 8)


def itemsize_text(context: Context, step: Step, views: dict[str, View]) -> str:
    """Bytes of one element of what lanes load or store, the widest of several, or of what goes into tl.dot."""
    if step.skeleton in ("window", "scan", "rows", "scatter"):
        tiled = _tiled(step, views) if step.skeleton in ("rows", "scatter") else []
        named = [order.tensor for order in step.orders] or [tensor for tensor, *_ in tiled]
        return f"{(*named, step.stores[-1])[0]}.element_size()"
    if step.skeleton == "pointwise":
        widest = {context.dtypes[t]: f"{t}.element_size()" for t in reversed(step.touched)}
        texts = [*reversed(widest.values())]
        return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"
    head = step.kernels[0].nests[0]
    narrow = storage_dtype(*head.fold.factors, context.op)
    if not narrow:
        return compute_bytes(context)
    own = set(step.touched)
    source = next((t for t, d in context.dtypes.items() if d == narrow and t in own), None)
    text = f"{source}.element_size()" if source else "2"
    widened = is_widened(head, narrow, context.op)
    return f"8 if {computes_wide(context.op)} else {text}" if widened else text


def strided_text(step: Step, views: dict[str, View]) -> str:
    """Whether memory runs along the kept indices rather than the reduced ones, in some operand: tiles serve both orders."""
    if step.orders:
        return "False"  # images in order; for others there is another walk
    # Expanded rows lie nowhere: their columns are what memory has.
    asked = [f"0 < {row} < {col}" for _, row, col in _tiled(step, views)]
    return " or ".join(asked) or "False"


def aligned_text(step: Step, views: dict[str, View]) -> str:
    """Whether rows begin and end where accesses may have 8 bytes at least: their kernels say what divides both."""
    cols = dict(step.facts)["cols"]
    asked = wrap_text(launch_text(cols), TERM)
    if step.orders:
        tensor = step.orders[0].tensor
    elif found := _tiled(step, views):
        tensor, row, _ = found[0]
        asked = f"math.gcd({launch_text(cols)}, {row})"
    else:
        tensor = step.touched[0]
    return f"{asked} * {tensor}.element_size() % 8 == 0"


def _tiled(step: Step, views: dict[str, View]) -> list[tuple[str, str, str]]:
    """The operands that are as large as rows and columns, and the stride of the last dim of each; else one tensor that has both."""
    row, col = ({*a.names} for a in step.kernels[0].axes[:2])
    found, widest = list[tuple[str, str, str]](), set[str]()
    for view in views.values():
        rows = [k for k, run in enumerate(view.runs) if set(run) & row]
        cols = [k for k, run in enumerate(view.runs) if set(run) & col]
        strides = [_stride(step, view, own[-1]) for own in (rows, cols) if own]
        if len(strides) == 2 and all(strides):
            found.append((view.tensor, strides[0], strides[1]))
            widest |= {view.tensor} if set().union(*view.runs) >= row | col else set()
    if found:
        every = [each for each in found if each[0] in widest - {*step.stores}]
        return every or found[:1]
    # One that is gathered from as well has no view: `x[n, v]` beside `x[n, target[n]]`.
    for read in operands(step.kernels[0].nests):
        rows = [k for k, c in enumerate(read.coords) if indices(c) and indices(c) <= row]
        cols = [k for k, c in enumerate(read.coords) if indices(c) and indices(c) <= col]
        if rows and cols and BATCH not in row | col:
            name = read.tensor
            return [(name, f"{name}.stride({rows[-1]})", f"{name}.stride({cols[-1]})")]
    return []


def _stride(step: Step, view: View, run: int) -> str:
    """How far apart neighbours along a run of a view are; nothing where batch dims, which may be any number, are one run.

    A view that not all kernels share is made behind the choice: until then the tensor has its own dims.
    """
    if step.is_shared(view.tensor):
        return f"{view.tensor}.stride({run})"
    if (digit := view.runs[run][-1]) == BATCH:
        return ""
    nests = [n for k in step.kernels for n in k.nests]
    places = [n.coords for n in nests if n.name == view.tensor]
    places += [r.coords for n in nests for r in reads(n.body) if r.tensor == view.tensor]
    coords = next(own for own in places if any(digit in indices(c) for c in own))
    return stride_along(view.tensor, coords, digit)


def pack_source(pack: Pack) -> str:
    """The operand with the dims that a pack speaks of."""
    if pack.split is None:
        return pack.tensor
    at, parts = pack.split
    return f"{pack.tensor}.unflatten({at}, ({', '.join(map(launch_text, parts))}))"


def counted_text(step: Step) -> str:
    """The largest number that a sliding kernel counts to: rows, terms, or a coordinate of what slides."""
    kernel = step.kernels[-1]
    left = kernel.nests[0].fold.factors[0]
    seen = {v.tensor for v in kernel.views}
    slid = dict.fromkeys(r.tensor for r in reads(left) if r.tensor not in seen)
    numbers = [a.extent for a in (kernel.axes[1], kernel.axes[3]) if not indices(a.extent)]
    return f"max({', '.join([*map(launch_text, numbers), *(f'*{t}.shape' for t in slid)])})"


def known_wide(context: Context, step: Step) -> str:
    """The fact that the call computes in f64. It has a name if `choose` takes it."""
    return "in_f64" if "in_f64" in spoken_of(step) else computes_wide(context.op)


def compute_bytes(context: Context) -> str:
    """The bytes of an element of the dtype that a call computes in."""
    return f"8 if {computes_wide(context.op)} else 4" if context.wide else "4"


def computes_wide(op: Op) -> str:
    """Whether a call computes in f64. What was kept in the type of the forward's call says nothing new, unless it is all there is."""
    told = [t for t in op.tensors if t.dtype != "compute" and may_be_f64(t.dtype, op)]
    told = told or [t for t in op.tensors if t.dtype == "compute"]
    floats = {t.dtype: t.name for t in reversed(told)}.values()  # the first of each type
    if len(floats) == 1:
        return f"{told[0].name}.dtype == torch.float64"
    return f"torch.float64 in ({', '.join(f'{f}.dtype' for f in floats)})"


# ---- facts that any step may ask for -------------------------------------------------------------
# With their types, in the order in which `choose` takes them.
FACTS = dict(
    transposed="bool", strided="bool", aligned="bool", tma="bool", patched="bool", covered="int",
    tf32x3="bool", tile_bytes="int", in_f64="bool", itemsize="int", stored_bytes="int",
    added_bytes="int", copied_bytes="int", transposed_bytes="int", vectorized="bool",
    operand_bytes="int", packed_bytes="int", pad4_bytes="int", padded_bytes="int",
    pad4_fits="bool", padded_fits="bool", as_strips="bool", strip_ends="tuple",
    strip_dim="int", strip_terms="int", strips="int", strip_bytes="int", strips_fit="bool",
    deterministic="bool", gpu="lib.Gpu",
)  # fmt: skip


def fact_text(name: str, context: Context, step: Step, views: dict[str, View]) -> str:
    """The host expression of a fact."""
    match name:
        case "transposed":
            merged = tuple_text([t for t, _ in step.merged])
            return f"any(0 < t.stride(1) < t.stride(2) for t in {merged})"
        case "strided":
            return strided_text(step, views)
        case "aligned":
            return aligned_text(step, views)
        case "tma":
            tiled = described(step, "persistent") or described(step, "tf32x3_half")
            return f"lib.takes_tiles({', '.join(tiled)})"
        case "patched" | "as_strips":
            return patched_text(step, "patches" if name == "patched" else "strips")
        case "strip_ends":
            kernel = next(k for k in step.kernels if k.skeleton == "strips")
            return ends_text(kernel, context.dims)
        case "covered":
            return covered_text(next(k for k in step.kernels if k.skeleton == "patches"))
        case "strip_dim" | "strip_terms" | "strips":
            return f"lib.{name}(strip_ends)"
        case "tf32x3":
            return 'PRECISION == "tf32x3"'
        case "tile_bytes":  # of what is loaded of each place of rows and columns
            seen = [v.tensor for v in views.values() if v.tensor not in step.stores]
            return " + ".join(f"{tensor}.element_size()" for tensor in seen)
        case "in_f64":
            return computes_wide(context.op)
        case "itemsize":
            return itemsize_text(context, step, views)
        case "stored_bytes":
            return f"{step.stores[-1]}.element_size()"
        case "added_bytes":
            return added_bytes_text(context, step)
        case "copied_bytes" | "transposed_bytes" | "vectorized":
            lefts, rights = matrices(step)
            given = rights if name == "transposed_bytes" else {**lefts, **rights}
            return f"lib.{name}({', '.join(given)})"
        case "operand_bytes":
            return " + ".join(f"{tensor}.nbytes" for tensor in factors_read(step))
        # By the estimate that asks for them.
        case "packed_bytes" | "pad4_bytes" | "padded_bytes" | "strip_bytes":
            packs = next(v.packs for v in step.variants if v.estimate and name in v.estimate.asked)
            whole = f", whole={packs[0].multiple}" if packs[0].multiple > 1 else ""
            return f"lib.packed_bytes({packed_text(packs)}{whole})"
        case "pad4_fits" | "padded_fits" | "strips_fit":
            packs = next(v.packs for v in step.variants if name in v.when.split())
            tensors = [*dict.fromkeys((*factors_read(step), *step.stores))]
            whole = f"whole={packs[0].multiple}"
            return f"lib.has_room({packed_text(packs)}, {whole}, beside={tuple_text(tensors)})"
        case "deterministic":
            return "torch.are_deterministic_algorithms_enabled()"
        case "gpu":
            return f"lib.gpu({step.touched[0]}.device)"
    raise KeyError(name)


def factors_read(step: Step) -> dict[str, None]:
    """The tensors that the factors of a product are read from."""
    factors = step.kernels[-1].nests[0].fold.factors
    return dict.fromkeys(read.tensor for side in factors for read in reads(side))


def patched_text(step: Step, skeleton: str) -> str:
    packs = {p.stored or p.tensor: p for v in step.variants for p in v.packs}
    asked_of = [packs[t] for t in described(step, skeleton)]
    copied = ", copied=True" if all(p.stored for p in asked_of) else ""
    kernel = next(k for k in step.kernels if k.skeleton == skeleton)
    stepped = ", stepped=True" if is_stepped(kernel) else ""
    return f"lib.takes_patches({packed_text(asked_of)}{copied}{stepped})"


def packed_text(packs: Iterable[Pack]) -> str:
    return ", ".join(f"{pack_source(p)}{permuted(p.order)}" for p in packs)
