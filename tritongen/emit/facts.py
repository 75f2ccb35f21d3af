"""The facts of one call that `choose`, grids and scratch speak of, as the launch function works them out.

    M = x.shape[0] * x.shape[1]
    across = x.stride(0) < x.stride(1)
    sms = lib.multiprocessors(x.device)

A fact that no rule of the step asks for is not printed. What is launched with them is in `launch.py`.
"""

from __future__ import annotations

from tritongen.emit.body import Context
from tritongen.emit.contraction import is_widened, storage_dtype
from tritongen.emit.matrices import SIDES, matrix_order, matrix_text
from tritongen.emit.sizes import bare
from tritongen.emit.text import launch_text, may_be_f64, tuple_text
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import indices, poly
from tritongen.schedule import rules
from tritongen.schedule.aside import names_of
from tritongen.schedule.canonical import reads, tensors_read
from tritongen.schedule.classes.patches import operand, walked
from tritongen.schedule.estimates import shared
from tritongen.schedule.plan import KernelPlan, Pack, Run, Sizes, Step, View

BOOLEANS = (
    "across",
    "aligned",
    "turned",
    "tma",
    "patched",
    "hip",
    "channels_last",
    "stored_last",
    "one_tap",
    "as_rows",
    "deterministic",
    "tf32x3",
    "wide",
)


# The bytes of operands that are packed in front: with their channels neighbours, and so many of them.
COPIED = ("packed_bytes", "lanes_bytes", "padded_bytes")


def used_facts(step: Step) -> tuple[tuple[str, str], ...]:
    """The facts that some rule speaks of, in a fixed order."""
    config = {name for v in step.variants for name, _ in v.config}
    spoken = set()
    sizes, others = shared(step)
    for v in step.variants:
        spoken |= rules.names(v.when).union(*(rules.names(r) for _, r in v.config))
        if v.estimate is not None:
            spoken |= set().union(*map(rules.names, (*v.estimate.asked, *sizes, *others)))
    known = [n for n, _ in step.facts]
    order = [*known, *(o.fact for o in step.orders), *(t.fact for t in step.tests)]
    order += [
        "across",
        "aligned",
        "turned",
        "tma",
        "patched",
        "tf32x3",
        "itemsize",
        "stored_bytes",
        "added_bytes",
        "copied_bytes",
        "turned_bytes",
        "operand_bytes",
        *COPIED,
        "wide",
    ]
    order += ["deterministic", "hip", "sms"]
    return tuple((n, n) for n in dict.fromkeys(order) if n in spoken - config)


def fact_names(context: Context, step: Step) -> dict[str, str]:
    """What each size of the plan is called in the launch: `M` may be a size of the spec, and another one.

    A type parameter may be called so too, since a launch speaks of none.
    """
    scope, names = names_of(context.op) - {p.name for p in context.op.typarams}, {}
    for name, p in step.facts:
        text, own = launch_text(p), name + context.mark
        while own in scope and own != text:
            own = text if bare(p) else f"{own}_"
        names[name] = own
    return names


def fact_texts(context: Context, step: Step, views: dict[str, View]):
    """(name, host text) of every fact that choose or a grid speaks of."""
    asked = {n for n, _ in used_facts(step)}
    spoken = set(asked)
    for v in step.variants:
        for launch in v.launches:
            spoken |= set().union(*(rules.names(r) for r in launch.grid))
        for _, _, shape in v.scratch:
            spoken |= set().union(*(rules.names(r) for r in shape))
    for name, p in step.facts:
        text = launch_text(p) if p.terms else "0"
        own = fact_names(context, step)[name]
        if name not in asked and bare(p) and bare(p) != ir.BATCH:
            continue  # a grid calls it what the spec does
        if name in spoken and text != own:
            yield own, text
    for o in step.orders:
        if o.fact in spoken:
            yield o.fact, f"{o.tensor}.stride({o.near}) < {o.tensor}.stride({o.far})"
    for test in step.tests:
        if test.fact in spoken:
            yield test.fact, tested(test)
    if step.merged:
        names = tuple_text([t for t, _ in step.merged])
        yield "turned", f"any(0 < t.stride(1) < t.stride(2) for t in {names})"
    if "across" in spoken - {o.fact for o in step.orders}:
        yield "across", across_text(step, views)
    if "aligned" in spoken:
        yield "aligned", aligned_text(context, step, views)
    if "tma" in spoken:
        tiled = described(step, "persistent") or described(step, "tf32x3_half")
        yield "tma", f"lib.takes_tiles({', '.join(tiled)})"
    if "patched" in spoken:
        packs = {p.stored or p.tensor: p for v in step.variants for p in v.packs}
        asked_of = [packs[t] for t in described(step, "patches")]
        shown = ", ".join(f"{pack_source(p)}{permuted(p.order)}" for p in asked_of)
        copied = ", copied=True" if all(p.stored for p in asked_of) else ""
        stepped = ", stepped=True" if any(map(is_stepped, step.kernels)) else ""
        yield "patched", f"lib.takes_patches({shown}{copied}{stepped})"
    if "tf32x3" in spoken:
        yield "tf32x3", 'PRECISION == "tf32x3"'
    if "itemsize" in spoken:
        yield "itemsize", itemsize_text(context, step)
    if "copied_bytes" in spoken:
        lefts, rights = matrices(step)
        every = ", ".join(dict.fromkeys([*lefts, *rights]))
        yield "copied_bytes", f"lib.copied_bytes({every})"
        yield "turned_bytes", f"lib.turned_bytes({', '.join(rights)})"
        yield "wide", f"lib.are_wide({every})"
    if "operand_bytes" in spoken:
        yield "operand_bytes", " + ".join(f"{t}.nbytes" for t in factors_of(step))
    for name in COPIED:
        if name in spoken:
            copies = next(v.packs for v in step.variants if v.estimate and name in v.estimate.asked)
            shown = ", ".join(f"{pack_source(p)}{permuted(p.order)}" for p in copies)
            whole = f", whole={copies[0].multiple}" if copies[0].multiple > 1 else ""
            yield name, f"lib.packed_bytes({shown}{whole})"
    if "stored_bytes" in spoken:
        yield "stored_bytes", f"{step.stores[-1]}.element_size()"
    if "added_bytes" in spoken:
        yield "added_bytes", added_bytes_text(context, step)
    if "deterministic" in spoken:
        yield "deterministic", "torch.are_deterministic_algorithms_enabled()"
    if "hip" in spoken:
        yield "hip", "torch.version.hip is not None"
    if "sms" in spoken:
        yield "sms", f"lib.multiprocessors({touched(step)[0]}.device)"


def tested(test: Run | Sizes) -> str:
    """What a fact of the call asks, on the host."""
    match test:
        case Run(_, orders):
            return " and ".join(f"{t}{permuted(order)}.is_contiguous()" for t, order in orders)
        case Sizes(_, values, tiles):
            asked = (f"{launch_text(p)} == {value}" for p, value in values)
            return " and ".join([*asked, f"lib.takes_tiles({', '.join(tiles)})"])


def factors_of(step: Step) -> dict[str, None]:
    """The operands of a product's factors."""
    head = step.kernels[-1].nests[0].fold
    return dict.fromkeys(read.tensor for side in head.factors for read in reads(side))


def is_stepped(kernel: KernelPlan) -> bool:
    """Whether a patch of an image has every second place of it, or fewer."""
    if kernel.skeleton != "patches":
        return False
    image = operand(kernel.nests[0].fold.factors[0])
    dims = image and walked(image, kernel.axes[1], kernel.axes[3])
    return any(dim.step != poly(1) for dim in dims or ())


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
    """Bytes of what a scatter adds up in."""
    kernel = next(k for k in step.kernels if k.skeleton == "scatter")
    dtype = next(n.dtype for n in kernel.nests if n.name in kernel.stores)
    if dtype == "compute":
        return f"8 if {is_wide_text(context)} else 4" if context.wide else "4"
    return str(int(dtype[1:]) // 8)


def itemsize_text(context: Context, step: Step) -> str:
    """Bytes of one element of what lanes load or store, the widest of several, or of what goes into tl.dot."""
    if step.skeleton in ("window", "scan", "rows"):
        tensor = step.orders[0].tensor if step.orders else step.stores[-1]
        return f"{tensor}.element_size()"
    if step.skeleton == "pointwise":
        widest = {context.dtypes[t]: f"{t}.element_size()" for t in reversed(touched(step))}
        texts = [*reversed(widest.values())]
        return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"
    head = step.kernels[0].nests[0]
    narrow = storage_dtype(*head.fold.factors, context.op)
    if not narrow:
        return f"8 if {is_wide_text(context)} else 4" if context.wide else "4"
    own = set(touched(step))
    source = next((t for t, d in context.dtypes.items() if d == narrow and t in own), None)
    text = f"{source}.element_size()" if source else "2"
    return (
        f"8 if {is_wide_text(context)} else {text}"
        if is_widened(head, narrow, context.op)
        else text
    )


def across_text(step: Step, views: dict[str, View]) -> str:
    """Whether memory runs along the kept indices rather than the reduced ones."""
    if step.orders or (found := _tiled(step, views)) is None:
        return "False"  # images in order; for others there is another walk
    t, row, col = found
    # Expanded rows lie nowhere: their columns are what memory has.
    return f"0 < {t}.stride({row}) < {t}.stride({col})"


def aligned_text(context: Context, step: Step, views: dict[str, View]) -> str:
    """Whether rows begin and end where accesses may have 8 bytes at least: their kernels say what divides both."""
    cols = dict(step.facts)["cols"]
    asked = fact_names(context, step)["cols"]
    if bare(cols) and "cols" not in {n for n, _ in used_facts(step)}:
        asked = launch_text(cols)  # no rule speaks of it, and so it has no name
    if step.orders:
        tensor = step.orders[0].tensor
    elif (found := _tiled(step, views)) is not None:
        tensor, row, _ = found
        asked = f"math.gcd({asked}, {tensor}.stride({row}))"
    else:
        tensor = touched(step)[0]
    return f"{asked} * {tensor}.element_size() % 8 == 0"


def _tiled(step: Step, views: dict[str, View]) -> tuple[str, int, int] | None:
    """A tensor that has both rows and columns, and the last dim of each."""
    row, col = ({d.index for d in a.digits} for a in step.kernels[0].axes[:2])
    for view in views.values():
        rows = [k for k, run in enumerate(view.runs) if set(run) & row]
        cols = [k for k, run in enumerate(view.runs) if set(run) & col]
        if rows and cols:
            return view.tensor, rows[-1], cols[-1]
    return None


def touched(step: Step) -> tuple[str, ...]:
    """Tensors that a step's kernels take, operands first; those of copies, which their launch alone knows."""
    copies = {p.stored: p.tensor for v in step.variants for p in v.packs if p.stored}
    names: dict[str, None] = {}
    nests = {id(n): n for k in step.kernels for n in k.nests}.values()  # kernels share theirs
    computed = {n.name for n in nests}
    for nest in nests:
        for tensor in sorted(tensors_read(nest.body)):
            if tensor not in computed:
                names[copies.get(tensor, tensor)] = None
    return (*names, *step.stores)


def pack_source(pack: Pack) -> str:
    """The operand with the dims that a pack speaks of."""
    if pack.split is None:
        return pack.tensor
    at, parts = pack.split
    return f"{pack.tensor}.unflatten({at}, ({', '.join(map(launch_text, parts))}))"


def permuted(order: tuple[int, ...]) -> str:
    """A tensor's dims in this order, on the host; nothing for none, or where they are so."""
    if order == tuple(range(len(order))):
        return ""
    return f".permute({', '.join(map(str, order))})"


def counted_text(step: Step) -> str:
    """The largest number that a sliding kernel counts to: rows, terms, or a coordinate of what slides."""
    kernel = step.kernels[-1]
    left = kernel.nests[0].fold.factors[0]
    seen = {v.tensor for v in kernel.views}
    slid = dict.fromkeys(r.tensor for r in reads(left) if r.tensor not in seen)
    numbers = [a.extent for a in (kernel.axes[1], kernel.axes[3]) if not indices(a.extent)]
    return f"max({', '.join([*map(launch_text, numbers), *(f'*{t}.shape' for t in slid)])})"


def compute_text(context: Context) -> str:
    return f"tl.float64 if {is_wide_text(context)} else tl.float32"


def is_wide_text(context: Context) -> str:
    """Whether the call computes in f64."""
    floats = [t.name for t in context.op.tensors if may_be_f64(t, context.op)]
    if len(floats) == 1:
        return f"{floats[0]}.dtype == torch.float64"
    return f"torch.float64 in ({', '.join(f'{f}.dtype' for f in floats)})"
