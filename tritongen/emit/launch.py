"""Prints `launch_<step>`, the host side of a step, from the rules of the plan.

The function reshapes its tensors to the form that the kernels need, asks `choose_<step>` (`choose.py`), and launches. It
checks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tritongen.emit.choose import ChooseView, assigned, choose_view, rule_text
from tritongen.emit.facts import computes_wide, counted_text, fact_lines, known_wide, pack_source
from tritongen.emit.kernel_writer import Context
from tritongen.emit.launches import (
    Call,
    call_of,
    call_texts,
    calls_behind,
    closed,
    rule_names,
    said_once,
    split_call,
    stand_ins,
    with_parts,
)
from tritongen.emit.matrices import matrix_text, permuted
from tritongen.emit.merged import flat_lines, is_scratch, merge_lines, one_batch, put_back_lines
from tritongen.emit.sizes import at_least_0, names_read, size_lines, whole
from tritongen.emit.text import launch_text, tuple_text
from tritongen.emit.view import KernelView, call_lines, indented
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import is_size, symbols
from tritongen.ir.batches import broadcasting, spanning
from tritongen.ir.dtypes import DTYPES
from tritongen.kernel.nodes import PARTS, Walk
from tritongen.reference.batches import batch_slice, broadcast_text, expanded
from tritongen.reference.printer import together
from tritongen.schedule.plan import Pack, Plan, Reuse, Step, Variant, View

# What Triton says in a launch of its own, options and names: no parameter of a kernel is called so. (A test compares.)
LAUNCH_WORDS = frozenset(
    """allow_flush_denorm allowed_dot_input_precisions arch backend backend_name debug default_dot_input_precision
    deprecated_fp8_dot_operand_dtypes device device_type enable_fp_fusion enable_reflect_ftz extern_libs grid
    instrumentation_mode ir_override kpack launch_cooperative_grid launch_pdl matrix_instr_nonkdim max_num_imprecise_acc_default
    maxnreg num_ctas num_stages num_warps options params ptx_options ptx_version sanitize_overflow schedule_hint
    self stream specialization specialize_impl supported_fp8_dtypes warmup warp_size waves_per_eu""".split()
)
TORCH_DTYPES = {d.name: f"torch.{d.torch}" for d in DTYPES.values()}
LONG = 92  # characters that a line of a branch has room for
LAUNCHED = re.compile(r"^ *(\w+)\[(?:grid|\()", re.MULTILINE)
Branches = tuple[tuple[str, tuple[str, ...]], ...]  # which variants, lines


@dataclass(slots=True)
class LaunchView:
    """choose and launch of one step, as complete lines; or what calls several launches in turn, which chooses nothing."""

    name: str
    parameters: str
    doc: str
    lines: Sequence[str]
    choose: ChooseView | None = None
    kernels: Sequence[str] = ()
    reused: bool = False  # whether another launch calls it, with its own `choose`


def launch_view(
    context: Context, step: Step, kernels: dict[str, KernelView], given: list[str], alone: bool
) -> LaunchView:
    """The view of a launch function. `given`: the tensors, scalars and constants that it may take, in order.

    `alone`: the op's only step takes all of them. One of several steps takes those that its lines use.
    """
    views = {v.tensor: v for k in step.kernels for v in k.views}
    one_batch_lines = batches_first(context, step)
    context = replace(context, flat=bool(one_batch_lines))
    lines = [*step_values(context, step, kernels), *workspace_lines(context, step)]
    shaped = stand_in_lines(context, step)
    shared = [t for t in step.touched if step.is_shared(t)]
    flat = flat_lines(context, step)
    seen = [t for t in shared if not flat or t in step.stores or not context.dims[t]]
    view_lines = merge_lines(context, step) or [
        *flat,
        *(line for t in seen for line in view_line(context, t, views.get(t), t in step.stores)),
    ]
    facts, told = fact_lines(context, step, views)
    shared_packs, packing = packed_first(step)
    own_packing = [() if v.packs == shared_packs else packing_of(v) for v in step.variants]
    own = [branch(context, step, v, kernels) for v in step.variants]
    behind = calls_behind(context, step, kernels)
    everywhere = said_once(
        [*(calls for _, calls in own), behind], [packing, *(ls for ls, _ in own), *own_packing]
    )
    ways = []
    for v, packs, (ls, calls) in zip(step.variants, own_packing, own, strict=True):
        added = (f"lib.add_parts({parts}, {result})" for parts, result in v.sums)
        ways.append((v.name, packs, (*ls, *call_texts(calls, everywhere), *added)))
    branches = by_one_kernel(alike(ways))
    one_way = len(branches) == 1
    asked = not one_way or "variant" in "\n".join(branches[0][1])
    choose = f"(choose or choose_{step.name})" if step.reused else f"choose_{step.name}"
    call = call_lines(f"{'variant' if asked else '_'}, config = {choose}", told)
    precision = precision_lines(step, kernels)
    lines += everywhere.lines
    packing, branches, entries = with_names(step, packing, branches)
    body = [*countable_lines(step), *shaped, *one_batch_lines, *view_lines, *precision, *facts]
    body += [*call, *entries, *lines, *packing]
    closing = [*closed(step, call_texts(behind, everywhere)), *put_back_lines(context, step)]
    said = "\n".join([*body, *(x for _, ls in branches for x in ls), *closing])  # but for tests
    opening = opening_lines(context.measured, said, measured_by(context, step))
    named = names_read("\n".join([*opening, said]))
    for test, own_lines in branches:
        body += own_lines if one_way else [test, *indented(own_lines)]
    taken = [name for name in given if alone or name in named]
    return LaunchView(
        f"launch_{step.name}",
        ", ".join(taken),
        f"Computes {', '.join(step.stores)} with the chosen variant. Does not check operands.",
        [*opening, *body, *closing],
        choose_view(step),
        reused=step.reused,
    )


def launch_of_another(
    context: Context, step: Step, reuse: Reuse, given: list[str], alone: bool
) -> LaunchView:
    """The view of a launch function that calls the one of the step that it reuses. `given`, `alone`: as for `launch_view`."""
    merged = (t for t in step.touched if ir.BATCH_SIZE in context.dims[t])
    lines = [x for t in merged for x in view_line(context, t, None, t in step.stores)]
    operands = [matrix_text(tensor, [*order]) for _, tensor, order in reuse.given]
    lines += call_lines(f"launch_{reuse.step}", [*operands, f"choose_{step.name}"])
    opening = opening_lines(context.measured, "\n".join(lines), measured_by(context, step))
    named = names_read("\n".join([*opening, *lines]))
    taken = ", ".join(name for name in given if alone or name in named)
    return by_another(step, reuse, taken, [*opening, *lines])


def by_another(step: Step, reuse: Reuse, taken: str, lines: list[str]) -> LaunchView:
    """The view of a launch function that calls the one of the step that it reuses.

    `taken`: its parameters. `lines`: its body. Without lines it hands its parameters on.
    """
    own = [*taken.split(", "), f"choose_{step.name}"]
    return LaunchView(
        f"launch_{step.name}",
        taken,
        f"Computes {', '.join(step.stores)} by the kernels of `launch_{reuse.step}`. Does not check operands.",
        lines or call_lines(f"launch_{reuse.step}", own),
        choose_view(step),
    )


def touched_first(op: ir.Op, step: Step) -> ir.Op:
    """The op with the tensors of a step in front, where sizes and dtypes are looked up first."""
    params = sorted(op.params, key=lambda p: p.name not in step.touched)
    outputs = sorted(op.outputs, key=lambda o: o.name not in step.touched)
    return replace(op, params=tuple(params), outputs=tuple(outputs))


def measured_by(context: Context, step: Step) -> ir.Op:
    """The op with the tensors in whose shapes a step finds sizes: first those that it touches, scratch and results among them."""
    op, known = context.measured, {p.name for p in context.op.params}
    made = [t for t in step.touched if t not in known | context.absent]
    added = (ir.Tensor(t, context.dtypes[t], context.dims[t]) for t in made)
    at = sum(p.name in step.touched for p in op.params)
    return replace(op, params=(*op.params[:at], *added, *op.params[at:]))


def launch_of_all(context: Context, plan: Plan, doc: str, lines: list[str]) -> LaunchView:
    """The function that launches all steps of a plan by these lines."""
    opening = opening_lines(context.measured, "\n".join(lines))
    parameters, doc = parameters_of(plan.inner), f"{doc}. Does not check operands."
    return LaunchView(f"launch_{plan.name}", ", ".join(parameters), doc, [*opening, *lines])


def parameters_of(op: ir.Op) -> list[str]:
    """What the launch of all steps of an op takes."""
    tensors = [*(t.name for t in op.tensors), *(o.name for o in op.outputs)]
    return [*tensors, *(s.name for s in op.scalars), *(c.name for c in op.constants)]


def call_of_all(plan: Plan, given: Mapping[str, str]) -> str:
    """The launch of all steps of a plan. `given`: what it is given, where that is called otherwise."""
    names = (given.get(n, n) for n in parameters_of(plan.inner))
    return f"launch_{plan.name}({', '.join(names)})"


def opening_lines(op: ir.Op, text: str, measured: ir.Op | None = None) -> list[str]:
    """Assignments for every size that a text names, and for the batch shape of the call.

    `measured`: the op with scratch, for sizes. Scratch has one batch dim, so it says nothing of the batch shape.
    """
    return [*size_lines(measured or op, text), *batch_lines(op, text)]


def with_names(step: Step, packing: list[str], branches: Branches):
    """What lines speak of more than once has a name: in front of all of them where every config has it, else in its branch."""
    shared = set.intersection(*({name for name, _ in v.config} for v in step.variants))
    entries = dict.fromkeys(name for v in step.variants for name, _ in v.config)
    every = [*packing, *(line for _, lines in branches for line in lines)]
    opening, names = _naming(every, [n for n in entries if n in shared])
    packing = _spoken(packing, names)
    found = list[tuple[str, tuple[str, ...]]]()
    for test, lines in branches:
        own, more = _naming(lines, [n for n in entries if n not in shared])
        found.append((test, (*own, *_spoken(lines, [*names, *more]))))
    return packing, tuple(found), opening


def _naming(lines: Iterable[str], entries: list[str]) -> tuple[list[str], list[str]]:
    """The lines that name entries of which lines speak more than once, or one line that is long; and these entries."""
    text = "\n".join(lines)
    long = "\n".join(line for line in text.split("\n") if len(line) > LONG)
    names = [name for name in entries if text.count(_entry(name)) > 1 or _entry(name) in long]
    return together([(name, _entry(name)) for name in names]), names


def _spoken(lines: Iterable[str], names: list[str]) -> list[str]:
    text = "\n".join(lines)
    for name in names:
        text = text.replace(_entry(name), name)
    return text.split("\n") if text else []


def _entry(name: str) -> str:
    return f'config["{name}"]'


def alike(branches: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]]) -> Branches:
    """Of (variant, how its operands are packed, further lines): those with the same further lines share them.

    ((which, as Python opens it, lines), ...).
    """
    shared: dict[tuple[str, ...], dict[tuple[str, ...], list[str]]] = {}
    for name, packing, lines in branches:
        shared.setdefault(lines, {}).setdefault(packing, []).append(name)
    last = branches[-1][2]  # what goes without a test
    rest = [each for each in shared if each != last]
    found = [
        (f"{'elif' if k else 'if'} {is_one_of(sum(shared[each].values(), []))}:", each)
        for k, each in enumerate(rest)
    ]
    every = [*found, ("else:", last)]
    return tuple((test, (*packed_apart(shared[each]), *each)) for test, each in every)


def by_one_kernel(branches: Branches) -> Branches:
    """The last two branches as one if they differ in what they launch alone: the kernel is chosen by the variant."""
    if len(branches) < 2:
        return branches
    *before, (test, one), (_, other) = branches
    found = [LAUNCHED.search("\n".join(lines)) for lines in (one, other)]
    kernels = [launched[1] for launched in found if launched]
    texts = [
        re.sub(rf"\b{kernel}\b", "kernel", "\n".join(lines))
        for kernel, lines in zip(kernels, (one, other), strict=False)
    ]
    if len(texts) < 2 or texts[0] != texts[1]:
        return branches
    asked = test.partition(" ")[2].removesuffix(":")
    chosen = assigned("kernel", f"{kernels[0]} if {asked} else {kernels[1]}")
    short = re.sub(r"^grid = (.*)\nkernel\[grid\]", r"kernel[\1]", texts[0], flags=re.MULTILINE)
    lines = min(
        short, texts[0], key=lambda text: (max(map(len, text.split("\n"))) > LONG, len(text))
    )
    return (*before, ("else:", (*chosen, *lines.split("\n"))))


def packed_apart(ways: dict[tuple[str, ...], list[str]]) -> Iterator[str]:
    """The lines that pack operands, in one branch of several variants."""
    if len(ways) == 1:
        yield from next(iter(ways))
        return
    packed = [(names, lines) for lines, names in ways.items() if lines]
    for k, (names, lines) in enumerate(packed):
        yield f"{'elif' if k else 'if'} {is_one_of(names)}:"
        yield from indented(lines)


def is_one_of(names: list[str]) -> str:
    """A test of the variant."""
    listed = ", ".join(f'"{name}"' for name in names)
    return f"variant == {listed}" if len(names) == 1 else f"variant in ({listed})"


def packed_first(step: Step) -> tuple[tuple[Pack, ...], list[str]]:
    """The packs that several variants share, and their lines, which stand once in front of all launches."""
    wanting: dict[tuple[Pack, ...], list[str]] = {}
    for v in step.variants:
        if v.packs:
            wanting.setdefault(v.packs, []).append(v.name)
    packs, names = max(wanting.items(), key=lambda item: len(item[1]), default=((), []))
    if len(names) < 2:
        return (), []
    return packs, [f"if {is_one_of(names)}:", *indented(map(pack_line, packs))]


def packing_of(variant: Variant) -> tuple[str, ...]:
    """How a variant's operands are packed, and the sizes that then are others."""
    wider = {p.widens: f"{p.multiple} * lib.cdiv({p.widens}, {p.multiple})" for p in variant.packs}
    sizes = [f"{size} = {text}" for size, text in wider.items() if size]
    return *map(pack_line, variant.packs), *sizes


def pack_line(pack: Pack) -> str:
    """The operand with the wanted dim innermost: itself or a copy. A copy without a name is seen as the operand."""
    name, order = pack.tensor, pack.order
    if pack.like:
        dtype = pack.like if "." in pack.like else f"{pack.like}.dtype"
        return f"{name} = lib.converted({name}, {dtype})"
    if pack.stored:
        source = f"{pack_source(pack)}{permuted(order)}"
        return f"{pack.stored} = lib.padded({source}, {pack.multiple})"
    if pack.widens:
        back = permuted(tuple(order.index(k) for k in range(len(order))))
        joined = f".flatten({pack.split[0]}, {pack.split[0] + 1})" if pack.split else ""
        source = f"{pack_source(pack)}{permuted(order)}"
        return f"{name} = lib.padded({source}, {pack.multiple}){back}{joined}"
    if pack.split is not None:  # whose two dims are one of the operand
        at, _ = pack.split
        order = (*(k - (k > at) for k in order[:-2]), at)
    back = permuted(tuple(order.index(k) for k in range(len(order))))
    return f"{name} = lib.in_lines({name}{permuted(order)}){back}"


def stand_in_lines(context: Context, step: Step) -> list[str]:
    """Lines that put a tensor without memory in place of each result that is None. The rest of the launch reads only its shape.

    The shape comes from another result. If all of them may be None, it comes from an operand.
    """
    some = stand_ins(context, step)
    if not some:
        return []
    alike = (t for t in step.touched if t not in step.stores)
    operand = [t for t in alike if context.dims[t] == context.dims[some[0]]][:1]
    asked = f"asked = {', '.join(f'{t} is not None' for t in some)}"
    if len(some) == len(step.stores):
        return [asked, f"{', '.join(some)} = lib.stand_ins({', '.join(some)})"]
    return [asked, f"*_, {', '.join(some)} = lib.stand_ins({', '.join([*operand, *some])})"]


def view_line(context: Context, tensor: str, view: View | None, stored: bool) -> list[str]:
    """`x = lib.reshaped(x, rows, D)`, or `.view` for stored tensors. Nothing if the kernel takes the tensor as it is."""
    op, dims = context.op, context.dims[tensor]
    flat = ir.BATCH_SIZE in dims and not one_batch(context, tensor)
    out = tensor
    operand = next((t for t in op.tensors if t.name == tensor), None)
    if flat and operand in broadcasting(op):
        out = expanded(operand, "batch_shape")  # type: ignore[arg-type]
    if view is not None:
        out += permuted(view.order)
    shape = dims if view is None else view.shape
    if shape != dims or flat:
        # The checks of a call have seen the sizes of operands.
        inside = ", ".join(map(at_least_0 if is_scratch(context, tensor) else whole, shape))
        if stored:
            out += f".view({inside or '()'})"  # one element, no dim
        else:
            out = f"lib.reshaped({', '.join([out, inside] if inside else [out])})"
    if view is not None and view.in_rows and not stored:
        out = f"lib.in_rows({out})"
    return [] if out == tensor else [f"{tensor} = {out}"]


def batches_first(context: Context, step: Step) -> list[str]:
    """All tensors with one batch dim, if later lines number dims.

    They do in facts of products whose variants see operands in different ways, and in orders of sliding operands.
    """
    batched = [t for t in step.touched if ir.BATCH_SIZE in context.dims[t]]
    shared = all(step.is_shared(t) for t in batched) and not any(k.slides for k in step.kernels)
    if step.skeleton != "contraction" or shared:
        return []
    return [line for t in batched for line in view_line(context, t, None, t in step.stores)]


def batch_lines(op: ir.Op, text: str) -> list[str]:
    """The batch shape of the call and its number of elements, if `text` uses them."""
    if not any(ir.BATCH_SIZE in t.dims for t in op.tensors):
        return []
    counted = re.search(r"\bbatch\b", text)
    if not counted and not re.search(r"\bbatch_shape\b", text):
        return []
    source = next((o for o in op.outputs if ir.BATCH_SIZE in o.dims), None)
    shape = batch_slice(source) if source is not None else broadcast_text(spanning(op))
    if not re.search(r"\bbatch_shape\b", text):
        return [f"batch = math.prod({shape})"]
    return [f"batch_shape = {shape}", *(["batch = math.prod(batch_shape)"] if counted else [])]


def countable_lines(step: Step) -> list[str]:
    """The check of the sizes that kernels with loops count in 32 bits."""
    lowered = [k.kernel for k in step.kernels if k.kernel is not None]
    looping = [k for k in lowered if any(w.how == "loop" and is_counted(w) for w in k.walks)]
    walks = [w for k in looping for w in k.walks if is_counted(w)]
    tiles, loops = (
        tuple_text([*dict.fromkeys(launch_text(w.extent) for w in walks if w.how == how)])
        for how in ("tile", "loop")
    )
    return [f'lib.countable("{step.name}", {tiles}, {loops})'] if walks else []


def is_counted(walk: Walk) -> bool:
    """Whether a walk goes over a size in blocks."""
    p, in_blocks = walk.extent, walk.how in ("tile", "loop") and bool(walk.block)
    return in_blocks and p != PARTS and bool(symbols(p)) and is_size(p)


def precision_lines(step: Step, kernels: dict[str, KernelView]) -> list[str]:
    """PRECISION as the kernels want it; where no product is of f32, all are the same."""
    if not any("PRECISION=PRECISION" in kernels[k.name].arguments for k in step.kernels):
        return []
    asked = step.precision
    return [f'PRECISION = runtime.f32_precision("{asked}")' if asked else 'PRECISION = "ieee"']


def step_values(context: Context, step: Step, kernels: dict[str, KernelView]) -> list[str]:
    """COMPUTE, INDEX and scalars as the kernels want them."""
    used = {a for k in step.kernels for a in kernels[k.name].arguments}
    made = [d for v in step.variants for _, d, _ in v.scratch]
    lines = compute_lines(context, made, known_wide(context, step))
    scalars = [s for s in context.op.scalars if s.name in used]
    if "COMPUTE=COMPUTE" in used or context.wide and scalars:
        lines.append(f"COMPUTE = tl.float64 if {known_wide(context, step)} else tl.float32")
    if "INDEX=INDEX" in used:
        lines.append(f"INDEX = tl.int32 if {counted_text(step)} < 2_000_000_000 else tl.int64")
    for name in (s.name for s in scalars if s.dtype == "bool"):
        lines += [f"if not isinstance({name}, torch.Tensor):", f"    {name} = int({name})"]
    for s in scalars:
        if context.wide and ir.kind_of(s.dtype, context.op) == "float":
            wide = f"torch.full((), {s.name}, dtype=torch.float64, device={step.touched[0]}.device)"
            lines += [
                f"if COMPUTE == tl.float64 and not isinstance({s.name}, torch.Tensor):",
                "    # A Python number reaches a kernel as f32.",
                f"    {s.name} = {wide}",
            ]
    return lines


def branch(
    context: Context, step: Step, variant: Variant, kernels: dict[str, KernelView]
) -> tuple[tuple[str, ...], tuple[Call, ...]]:
    """Scratch of one variant, whose operands are packed, and its launches; what all that leave parts do is not its own."""
    lines: list[str] = []
    device = step.touched[0]
    copies = [p.stored for p in variant.packs if p.stored]
    for tensor in (*step.touched, *copies):
        if tensor in copies or not (step.is_shared(tensor) or step.merged):
            way = step.seen_by(variant.launches[0].kernel, tensor)
            lines += view_line(context, tensor, way, tensor in step.stores)
    shared = variant.launches[0].part and with_parts(step)
    made_here = {name for name, _, _ in variant.scratch}
    for name, dtype, shape in () if shared else variant.scratch:
        sizes = tuple_text([rule_text(r, rule_names(context, step, variant)) for r in shape])
        made = "zeros" if (name, name) in variant.zeroed else "empty"
        result = dict((*variant.sums, *variant.parts)).get(name, "")
        asked = f" if {result} is not None else None" if result in context.left_out else ""
        lines.append(
            f"{name} = torch.{made}({sizes}, dtype={host_dtype(context, dtype)}, device={device}.device){asked}"
        )
    for name, tensor in variant.zeroed:
        if name not in made_here:
            lines.append(("" if name == tensor else f"{name} = ") + f"{tensor}.zero_()")
    runs = variant.launches[:1] if shared else variant.launches
    calls = tuple(call_of(context, step, variant, run, kernels[run.kernel]) for run in runs)
    if len(runs) == 2 and "MERGE" in dict(variant.config):
        calls = (split_call(calls, context, step, variant),)
    return tuple(lines), calls


def workspace_lines(context: Context, step: Step) -> Iterator[str]:
    """Lines in front of all launches: the number of parts of sums, and the workspace for them."""
    if variant := with_parts(step):
        yield 'PARTS = config.get("PARTS", 1)'
        renames, device = rule_names(context, step, variant), step.touched[0]
        for name, dtype, (_, *shape) in variant.scratch:
            sizes = ", ".join(rule_text(r, renames) for r in shape)
            kind = host_dtype(context, dtype)
            yield f"{name} = lib.workspace(config, ({sizes}), {kind}, {device}.device)"


def compute_lines(context: Context, dtypes: Iterable[str], is_wide: str) -> list[str]:
    """The dtype that a call computes in, where storage of these is made and it depends on the call."""
    if not context.wide or "compute" not in dtypes:
        return []
    return [f"compute = torch.float64 if {is_wide} else torch.float32"]


def host_dtype(context: Context, dtype: str) -> str:
    """A dtype as torch names it, in the launch function (behind `compute_lines`)."""
    if dtype == "compute":
        return "compute" if context.wide else "torch.float32"
    if dtype in TORCH_DTYPES:
        return TORCH_DTYPES[dtype]
    return f"{context.op.typed(dtype).name}.dtype"


def scratch_lines(
    context: Context,
    scratch: tuple[ir.Nest, ...],
    alike: dict[str, str],
    where: Mapping[str, str],
    filled: str = "empty",
) -> list[str]:
    """Memory for the temporaries that pass between steps.

    `alike`: the output whose layout one has. `where`: the condition under which one is needed, if not always. `filled`: with
    "zeros", or with nothing.
    """
    lines = compute_lines(context, [n.dtype for n in scratch], computes_wide(context.op))
    first = context.op.tensors[0].name
    for nest in scratch:
        dtype = host_dtype(context, nest.dtype)
        if nest.name in alike:
            example = alike[nest.name]
            if ir.BATCH_SIZE in nest.dims and not context.flat:
                example += f".view({', '.join(map(whole, nest.dims))})"
            made = f"torch.empty_like({example}, dtype={dtype})"
        else:
            # What is a result of the op has the batch dims of one.
            batch = None if one_batch(context, nest.name) else ir.BATCH_SIZE
            sizes = tuple_text(["*batch_shape" if d == batch else at_least_0(d) for d in nest.dims])
            made = f"torch.{filled}({sizes}, dtype={dtype}, device={first}.device)"
        asked = f" if {where[nest.name]} else None" if where.get(nest.name) else ""
        lines.append(f"{nest.name} = {made}{asked}")
    return lines
