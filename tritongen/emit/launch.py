"""The host side of a step: `choose_<step>` and `launch_<step>`, printed from the plan's rules.

`choose` is plain whole numbers in, (variant, config) out, testable without a GPU. `launch` reshapes
its tensors to what the kernels walk, asks `choose`, and launches; it checks nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tritongen.emit.body import Context
from tritongen.emit.contraction import storage_dtype
from tritongen.emit.sizes import bare, batch_slice, size_lines, whole
from tritongen.emit.text import launch_text
from tritongen.emit.view import KernelView
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import indices
from tritongen.schedule import rules
from tritongen.schedule.aside import names_of
from tritongen.schedule.canonical import reads, tensors_read
from tritongen.schedule.plan import Pack, Run, Sizes, Step, Variant, View

HOST_FUNCTIONS = {"pow2": "triton.next_power_of_2", "cdiv": "triton.cdiv"}
TORCH_DTYPES = {
    "f64": "torch.float64", "f32": "torch.float32", "f16": "torch.float16", "bf16": "torch.bfloat16",
    "f8e4m3": "torch.float8_e4m3fn", "f8e5m2": "torch.float8_e5m2", "i64": "torch.int64",
    "i32": "torch.int32", "i16": "torch.int16", "i8": "torch.int8", "u8": "torch.uint8", "bool": "torch.bool",
}  # fmt: skip

BOOLEANS = (
    "across",
    "turned",
    "tma",
    "patched",
    "hip",
    "channels_last",
    "one_tap",
    "as_rows",
    "deterministic",
)


@dataclass(frozen=True, slots=True)
class LaunchView:
    """choose and launch of one step, as complete lines."""

    choose_name: str
    choose_parameters: str
    variants: tuple[tuple[str, str, tuple[str, ...], str], ...]  # when, why, assignments, return
    name: str
    parameters: str
    doc: str
    lines: tuple[str, ...]
    branches: tuple[tuple[str, tuple[str, ...]], ...]  # which variants, lines


def rule_text(rule: str, renames: dict[str, str]) -> str:
    """A rule as Python for the host: as it is written, but for the names."""
    names = HOST_FUNCTIONS | renames
    return re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), rule)


def launch_view(
    context: Context,
    step: Step,
    kernels: dict[str, KernelView],
    tensors: tuple[str, ...],
    values: tuple[str, ...],
) -> LaunchView:
    """`tensors`, `values`: every tensor, and scalar or constant, that the launch function takes, in order."""
    op = context.op
    facts = used_facts(step)
    names = [n for n, _ in facts]
    local = fact_names(context, step)
    given = [local.get(n, n) for n in names]
    parameters = ", ".join(f"{n}: {'bool' if n in BOOLEANS else 'int'}" for n in names)
    views = {v.tensor: v for k in step.kernels for v in k.views}
    lines = [*step_values(context, step, kernels)]
    shared = [t for t in touched(step) if is_shared(step, t)]
    view_lines = merge_lines(context, step) or [
        line for t in shared for line in view_line(context, t, views.get(t))
    ]
    fact_lines = [f"{name} = {text}" for name, text in fact_texts(context, step, views)]
    branches = alike([(v.name, branch(context, step, v, kernels)) for v in step.variants])
    if len(branches) == 1:
        call = f"_, config = choose_{step.name}({', '.join(given)})"
    else:
        call = f"variant, config = choose_{step.name}({', '.join(given)})"
    body = [*view_lines, *fact_lines, call, *lines]
    everything = "\n".join([*body, *(x for _, ls in branches for x in ls)])
    opening = size_lines(op, everything)
    opening += batch_lines(op, everything)
    return LaunchView(
        f"choose_{step.name}",
        parameters,
        tuple(choose_branch(v) for v in step.variants),
        f"launch_{step.name}",
        ", ".join([*tensors, *values]),
        f"Computes {', '.join(step.stores)} by the variant that fits, unchecked.",
        tuple([*opening, *body]),
        branches,
    )


def alike(branches) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Variants that differ in their configs alone share their lines; ((which, as Python opens it, lines), ...)."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, lines in branches:
        names.setdefault(lines, []).append(name)
    found, keyword = [], "if"
    for k, (lines, own) in enumerate(names.items()):
        listed = ", ".join(f'"{name}"' for name in own)
        test = f"variant == {listed}" if len(own) == 1 else f"variant in ({listed})"
        last = k == len(names) - 1
        found.append(("else:" if last else f"{keyword} {test}:", lines))
        keyword = "elif"
    return tuple(found)


def seen_by(step: Step, kernel: str, tensor: str) -> View | None:
    return next((v for v in step.kernel(kernel).views if v.tensor == tensor), None)


def is_shared(step: Step, tensor: str) -> bool:
    """Whether all kernels see a tensor alike, and none wants it packed: then its view is said once."""
    ways = {seen_by(step, k.name, tensor) for k in step.kernels}
    return len(ways) == 1 and all(p.tensor != tensor for p in step.packs)


def pack_lines(context: Context, pack: Pack) -> list[str]:
    """The operand with the wanted dim innermost: as it is, or a copy seen as the operand."""
    name, innermost = pack.tensor, pack.order[-1]
    copy = pack.step.stores[0]
    dims = context.dims[name]
    sizes = ", ".join(whole(dims[k]) for k in pack.order)
    if pack.stored:
        outer, inner = (
            ", ".join(whole(dims[k]) for k in part) for part in (pack.order[:-1], pack.order[-1:])
        )
        return [
            f"# {whole(pack.lanes)} channels where {name} has {inner}: zeros behind those.",
            f"{pack.stored} = torch.zeros(({outer}, {whole(pack.lanes)}), dtype={name}.dtype, device={name}.device)",
            f"launch_{pack.step.name}({name}, {pack.stored}[..., :{inner}])",
        ]
    back = ", ".join(str(pack.order.index(k)) for k in range(len(dims)))
    if pack.like:
        return [
            f"{copy} = torch.empty(({sizes}), dtype={pack.like}.dtype, device={name}.device)",
            f"launch_{pack.step.name}({name}, {copy})",
            f"{name} = {copy}",
        ]
    return [
        f"if {name}.stride({innermost}) != 1:  # {pack.why}",
        f"    {copy} = torch.empty(({sizes}), dtype={name}.dtype, device={name}.device)",
        f"    launch_{pack.step.name}({name}, {copy})",
        f"    {name} = {copy}.permute({back})",
    ]


def used_facts(step: Step) -> tuple[tuple[str, str], ...]:
    """The facts that some rule speaks of, in a fixed order."""
    config = {name for v in step.variants for name, _ in v.config}
    spoken = set()
    for v in step.variants:
        spoken |= rules.names(v.when).union(*(rules.names(r) for _, r in v.config))
    known = [n for n, _ in step.facts]
    order = [*known, *(o.fact for o in step.orders), *(t.fact for t in step.tests)]
    order += ["across", "turned", "tma", "patched", "itemsize", "stored_bytes", "added_bytes"]
    order += ["deterministic", "hip", "sms"]
    return tuple((n, n) for n in order if n in spoken - config)


def fact_names(context: Context, step: Step) -> dict[str, str]:
    """What each size of the plan is called in the launch: `M` may be a size of the spec, and another one."""
    scope, names = names_of(context.op), {}
    for name, p in step.facts:
        text, own = launch_text(p), name
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
            yield test.fact, test_text(test)
    if step.merged:
        yield "turned", f"any(0 < t.stride(1) < t.stride(2) for t in ({', '.join(step.merged)}))"
    if "across" in spoken:
        yield "across", across_text(step, views)
    if "tma" in spoken:
        yield "tma", f"_takes_tiles({', '.join(described(step, 'persistent'))})"
    if "patched" in spoken:
        orders = {p.tensor: ", ".join(map(str, p.order)) for p in step.packs}
        shown = (f"{t}.permute({orders[t]})" for t in described(step, "patches"))
        yield "patched", f"_takes_patches({', '.join(shown)})"
    if "itemsize" in spoken:
        yield "itemsize", itemsize_text(context, step)
    if "stored_bytes" in spoken:
        yield "stored_bytes", f"{step.stores[-1]}.element_size()"
    if "added_bytes" in spoken:
        yield "added_bytes", added_bytes_text(context, step)
    if "deterministic" in spoken:
        yield "deterministic", "torch.are_deterministic_algorithms_enabled()"
    if "hip" in spoken:
        yield "hip", "torch.version.hip is not None"
    if "sms" in spoken:
        yield "sms", f"_multiprocessors({touched(step)[0]}.device)"


def test_text(test: Run | Sizes) -> str:
    """What a fact of the call asks, on the host."""
    match test:
        case Run(_, orders):
            return " and ".join(f"{t}{permuted(order)}.is_contiguous()" for t, order in orders)
        case Sizes(_, values, tiles):
            asked = (f"{launch_text(p)} == {value}" for p, value in values)
            return " and ".join([*asked, f"_takes_tiles({', '.join(tiles)})"])


def described(step: Step, skeleton: str) -> dict[str, None]:
    """The operands that kernels of a kind load by descriptor."""
    return dict.fromkeys(t.tensor for k in step.kernels if k.skeleton == skeleton for t in k.tiles)


def added_bytes_text(context: Context, step: Step) -> str:
    """Bytes of what a scatter adds up in."""
    kernel = next(k for k in step.kernels if k.skeleton == "scatter")
    dtype = next(n.dtype for n in kernel.nests if n.name in kernel.stores)
    if dtype == "compute":
        return f"8 if {is_wide_text(context)} else 4" if context.wide else "4"
    return str(int(dtype[1:]) // 8)


def itemsize_text(context: Context, step: Step) -> str:
    """Bytes of one element of what lanes load or store, the widest of several, or of what goes into tl.dot."""
    if step.skeleton in ("window", "scan"):
        tensor = step.orders[0].tensor if step.orders else step.stores[-1]
        return f"{tensor}.element_size()"
    if step.skeleton == "pointwise":
        widest = {context.dtypes[t]: f"{t}.element_size()" for t in reversed(touched(step))}
        texts = [*reversed(widest.values())]
        return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"
    left, right = step.kernels[0].nests[0].fold.factors
    narrow = storage_dtype(left, right, context.op)
    if not narrow:
        return f"8 if {is_wide_text(context)} else 4" if context.wide else "4"
    own = set(touched(step))
    source = next((t for t, d in context.dtypes.items() if d == narrow and t in own), None)
    return f"{source}.element_size()" if source else "2"


def merge_lines(context: Context, step: Step) -> list[str]:
    """Operands broadcast to the batch shape, and the batch dims of all merged to three."""
    if not step.merged:
        return []
    op = context.op
    batched = [t.name for t in op.tensors if ir.BATCH_SIZE in t.dims]
    lines = [
        f"{t} = {t}.expand(batch_shape)" for t in step.merged if t in batched and len(batched) > 1
    ]
    names = ", ".join(step.merged)
    last = step.stores[-1]
    return [
        *lines,
        f"{names} = _three_dims({names})",
        f"outer, middle, inner = {last}.shape",
        f"total = {last}.numel()",
    ]


def across_text(step: Step, views: dict[str, View]) -> str:
    """Whether memory runs along the kept indices rather than the reduced ones."""
    row, col = ({d.index for d in a.digits} for a in step.kernels[0].axes[:2])
    for view in views.values():
        rows = [k for k, run in enumerate(view.runs) if set(run) & row]
        cols = [k for k, run in enumerate(view.runs) if set(run) & col]
        if rows and cols:
            t = view.tensor
            return f"{t}.stride({rows[-1]}) < {t}.stride({cols[-1]})"
    return "False"


def touched(step: Step) -> tuple[str, ...]:
    """Tensors that a step's kernels take, operands first."""

    names: dict[str, None] = {}
    nests = [n for k in step.kernels for n in k.nests]
    computed = {n.name for n in nests}
    for nest in nests:
        for tensor in sorted(tensors_read(nest.body)):
            if tensor not in computed:
                names[tensor] = None
    return (*names, *step.stores)


def view_line(context: Context, tensor: str, view: View | None) -> list[str]:
    """`x = x.reshape(rows, D)`; nothing where the kernel takes the tensor as it is."""
    op, dims = context.op, context.dims[tensor]
    batched = ir.BATCH_SIZE in dims
    out = tensor
    operand = next((t for t in op.tensors if t.name == tensor), None)
    if batched and operand and sum(ir.BATCH_SIZE in t.dims for t in op.tensors) > 1:
        sizes = ", ".join("*batch_shape" if d == ir.BATCH_SIZE else whole(d) for d in dims)
        # A batch of no dims leaves expand without an argument.
        out += ".expand(batch_shape)" if sizes == "*batch_shape" else f".expand({sizes})"
    if view is not None:
        out += permuted(view.order)
    shape = dims if view is None else view.shape
    if shape != dims or batched and not _one_batch(context, tensor):
        inside = ", ".join(whole(d) for d in shape) or "()"  # one element, no dim
        out += f".view({inside})" if operand is None else f".reshape({inside})"
    return [] if out == tensor else [f"{tensor} = {out}"]


def permuted(order: tuple[int, ...]) -> str:
    """A tensor's dims in this order, on the host; nothing for none, or where they are so."""
    if order == tuple(range(len(order))):
        return ""
    return f".permute({', '.join(map(str, order))})"


def _one_batch(context: Context, tensor: str) -> bool:
    """Scratch is allocated with its batch dims flat."""
    return tensor not in {t.name for t in (*context.op.tensors, *context.op.outputs)}


def batch_lines(op: ir.Op, text: str) -> list[str]:
    """The batch shape of the call and its number of elements, where `text` speaks of them."""
    counted = re.search(r"\bbatch\b", text)
    if not counted and not re.search(r"\bbatch_shape\b", text):
        return []
    source = next((o for o in op.outputs if ir.BATCH_SIZE in o.dims), None)
    batched = [t for t in op.tensors if ir.BATCH_SIZE in t.dims]
    if source is not None:
        shape = batch_slice(source)
    elif len(batched) == 1:
        shape = batch_slice(batched[0])
    else:
        shape = f"torch.broadcast_shapes({', '.join(batch_slice(t) for t in batched)})"
    if not re.search(r"\bbatch_shape\b", text):
        return [f"batch = math.prod({shape})"]
    return [f"batch_shape = {shape}", *(["batch = math.prod(batch_shape)"] if counted else [])]


def step_values(context: Context, step: Step, kernels: dict[str, KernelView]) -> list[str]:
    """COMPUTE, PRECISION and scalars as the kernels want them."""
    used = {a for k in step.kernels for a in kernels[k.name].arguments}
    lines = []
    if "COMPUTE=COMPUTE" in used or (
        context.wide and any(s.name in used for s in context.op.scalars)
    ):
        lines.append(f"COMPUTE = {compute_text(context)}")
    if "INDEX=INDEX" in used:
        lines.append(f"INDEX = tl.int32 if {counted_text(step)} < 2_000_000_000 else tl.int64")
    if "PRECISION=PRECISION" in used:
        default = context.op.precision or "tf32x3"
        ieee = '"ieee" if torch.version.hip else ' if default == "tf32x3" else ""
        lines.append(f'PRECISION = {ieee}"{default}"')
    for s in context.op.scalars:
        if s.name in used and s.dtype == "bool":
            lines += [
                f"if not isinstance({s.name}, torch.Tensor):",
                f"    {s.name} = int({s.name})",
            ]
    if context.wide:
        for s in context.op.scalars:
            if s.name in used and ir.kind_of(s.dtype, context.op) == "float":
                device = touched(step)[0]
                lines.append(
                    f"if COMPUTE == tl.float64 and not isinstance({s.name}, torch.Tensor):"
                )
                lines.append("    # A Python number reaches a kernel as f32.")
                lines.append(
                    f"    {s.name} = torch.full((), {s.name}, dtype=torch.float64, device={device}.device)"
                )
    return lines


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


def may_be_f64(tensor: ir.Tensor, op: ir.Op) -> bool:
    return tensor.dtype == "f64" or any(
        p.name == tensor.dtype and "f64" in p.dtypes for p in op.typarams
    )


def branch(
    context: Context, step: Step, variant: Variant, kernels: dict[str, KernelView]
) -> tuple[str, ...]:
    """Scratch and launches of one variant."""
    renames = {name: f'config["{name}"]' for name, _ in variant.config}
    renames |= fact_names(context, step)
    renames |= {name: launch_text(p) for name, p in step.facts if bare(p) and bare(p) != ir.BATCH}
    lines = [line for pack in variant.packs for line in pack_lines(context, pack)]
    device = touched(step)[0]
    for tensor in touched(step):
        if not is_shared(step, tensor) and not step.merged:
            way = seen_by(step, variant.launches[0].kernel, tensor)
            lines += view_line(context, tensor, way)
    for name, dtype, shape in variant.scratch:
        sizes = ", ".join(rule_text(r, renames) for r in shape)
        made = "zeros" if (name, name) in variant.zeroed else "empty"
        comma = "," if len(shape) == 1 else ""
        lines.append(
            f"{name} = torch.{made}(({sizes}{comma}), dtype={host_dtype(context, dtype)}, device={device}.device)"
        )
    made_here = {name for name, _, _ in variant.scratch}
    for name, tensor in variant.zeroed:
        if name not in made_here:
            lines.append(("" if name == tensor else f"{name} = ") + f"{tensor}.zero_()")
    for launch in variant.launches:
        kernel = kernels[launch.kernel]
        lines += kernel.setup
        grid = ", ".join(rule_text(r, renames | dict(launch.config)) for r in launch.grid)
        passed = [a for a in kernel.arguments if a != 'config["CHUNK"]']
        parameters = [p.split(":")[0] for p in kernel.parameters]
        if "CHUNK" in parameters:  # by name, since the config gives it
            cut = parameters.index("CHUNK")
            plain, rest = passed[:cut], zip(parameters[cut + 1 :], passed[cut:], strict=False)
            named = [a if "=" in a else f"{p}={a}" for p, a in rest]
            passed = [*plain, *named]
        comma = "," if len(launch.grid) == 1 else ""
        # Said out loud, since Triton 3.10 turns the default: a * b + c rounds once, as in torch's kernels.
        own = [f"{name}={rule_text(rule, renames)}" for name, rule in launch.config]
        passed += ["enable_fp_fusion=True", *(own or config_texts(variant, parameters))]
        lines.append(f"{kernel.name}[({grid}{comma})]({', '.join(passed)})")
    return tuple(lines)


def config_texts(variant: Variant, parameters: list[str]) -> list[str]:
    """A config as a kernel takes it: what it has no parameter for is left out."""
    taken = [n for n, _ in variant.config if n in parameters or not n.isupper()]
    if len(taken) == len(variant.config):
        return ["**config"]
    return [f'{name}=config["{name}"]' for name in taken]


def host_dtype(context: Context, dtype: str) -> str:
    """A dtype as torch names it, in the launch function."""
    if dtype == "compute":
        if not context.wide:
            return "torch.float32"
        return f"torch.float64 if {is_wide_text(context)} else torch.float32"
    if dtype in TORCH_DTYPES:
        return TORCH_DTYPES[dtype]
    return f"{next(t.name for t in context.op.tensors if t.dtype == dtype)}.dtype"


def choose_branch(variant: Variant) -> tuple[str, str, tuple[str, ...], str]:
    """(condition, reason, assignments, return): what another entry speaks of gets a name of its own."""
    spoken = set().union(*(rules.names(rule) for _, rule in variant.config))
    named = [(name, rule_text(rule, {})) for name, rule in variant.config if name in spoken]
    entries = ", ".join(
        f"{name}={name if name in spoken else rule_text(rule, {})}" for name, rule in variant.config
    )
    when = "" if variant.when == "True" else rule_text(variant.when, {})
    return (
        when,
        variant.why,
        tuple(f"{n} = {text}" for n, text in named),
        f'return "{variant.name}", dict({entries})',
    )


def scratch_lines(context: Context, scratch: tuple[ir.Nest, ...]) -> list[str]:
    """Storage for the temporaries that pass between steps."""
    lines = []
    first = context.op.tensors[0].name
    for nest in scratch:
        sizes = ", ".join(whole(d) for d in nest.dims)
        comma = "," if len(nest.dims) == 1 else ""
        lines.append(
            f"{nest.name} = torch.empty(({sizes}{comma}), dtype={host_dtype(context, nest.dtype)}, device={first}.device)"
        )
    return lines
