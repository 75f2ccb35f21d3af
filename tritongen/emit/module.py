"""Plans to the text of one generated module: kernels, choose, launch, checks, reference, wrapper.

Input: for each op of a file its typings' plans. Output: Python source, walked against the allow-list
(`allow.py`) and its names checked (`scopes.py`); formatting it is `format.py`, which the run-time path leaves
out until someone asks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import SimpleNamespace

from tritongen.emit import allow, asked, folds, lanes, lines, paired, runs, scopes
from tritongen.emit.allocation import ANY, CHANNELS_LAST, allocation
from tritongen.emit.body import Context
from tritongen.emit.facts import touched
from tritongen.emit.kernels import kernel_view
from tritongen.emit.launch import TORCH_DTYPES, LaunchView, batch_lines, launch_view, scratch_lines
from tritongen.emit.reference import claim_lines, reference_lines
from tritongen.emit.sizes import own_lines, size_lines
from tritongen.emit.text import may_be_f64
from tritongen.emit.view import KernelView
from tritongen.emit.wrapper import as_written, check_lines, docstring, parameters
from tritongen.ir import nodes as ir
from tritongen.ir.batches import batched, by_itself, own_batches
from tritongen.ir.bounds import facts_of
from tritongen.ir.helpers import HELPERS
from tritongen.ir.linear import linear_in
from tritongen.resources import folder, own_text
from tritongen.schedule.plan import Pack, Plan, Step

GRADIENTS = "# The gradients of a module that imports nothing of tritongen."
ALL_HELPERS = HELPERS | folds.HELPERS | paired.HELPERS | runs.HELPERS
ALL_HELPERS |= lanes.HELPERS | lines.HELPERS


@dataclass(frozen=True, slots=True)
class OpPlans:
    """One op of a file: a plan for each of its typings.

    `hosts`: the typings with the names that what the public calls has for them, `shown` from those to the
    spec's. `own`: what the op's functions are called after. `outside`, `mark`: as in `Context`.
    `on_request`: whoever calls says which results are wanted (`asked.py`). `backward`: the gradient, but of operands
    whose gradient is `handed_on`: what comes in for an output; or `no_gradient`: why there is none. `forward`: what
    runs in its place where a gradient is wanted, that is then behind it: it keeps values.
    """

    name: str
    plans: tuple[Plan, ...]
    hosts: tuple[ir.Op, ...]
    own: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    outside: frozenset[str] = frozenset()
    mark: str = ""
    on_request: bool = False
    backward: OpPlans | None = None
    forward: OpPlans | None = None
    handed_on: Mapping[str, str] = field(default_factory=dict)
    no_gradient: str = ""

    @property
    def differentiated(self) -> ir.Op:
        """The typing that the gradient is of: that with the most floats."""
        return differentiated(tuple(p.op for p in self.plans))

    @property
    def printed(self) -> Iterator[OpPlans]:
        """The op, and those behind it."""
        yield self
        for other in (self.forward, self.backward):
            if other is not None:
                yield from other.printed

    @property
    def flags(self) -> dict[str, str]:
        """The parameter that asks for each output, where there are such."""
        return asked.flags(self.plans[0], self.hosts[0]) if self.on_request else {}


def differentiated(typings: tuple[ir.Op, ...]) -> ir.Op:
    return max(typings, key=lambda op: sum(p.kind == "float" for p in op.typarams))


@lru_cache(maxsize=1)
def environment():
    """Jinja with line statements that read as Python comments; an undefined name is an error."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder("templates")),
        line_statement_prefix="#%",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def module_source(
    title: str, source_name: str, text: str, items: tuple[OpPlans, ...], standalone: bool = False
) -> str:
    """The unformatted text of a module."""
    out = rendered(title, source_name, text, items, standalone)
    allow.walk(out)
    scopes.check_names(out)
    return out.replace(GRADIENTS, _own_page("runtime/gradients.py"))


def rendered(
    title: str, source_name: str, text: str, items: tuple[OpPlans, ...], standalone: bool = False
) -> str:
    """The same, not looked at."""
    printed = [own for item in items for own in item.printed]
    views = [op_view(item) for item in printed]
    helpers = dict.fromkeys(h for v in views for h in v.helpers)
    skeletons = {k.skeleton for i in printed for p in i.plans for s in p.steps for k in s.kernels}
    body = SimpleNamespace(
        title=f"{title}: {', '.join(i.name for i in items)}" if len(items) > 1 else items[0].name,
        spec=[_docstring_safe(line) for line in text.strip().splitlines()],
        source=source_name,
        digest=hashlib.sha256(text.encode()).hexdigest()[:8],
        helpers=[ALL_HELPERS[h] for h in helpers],
        ops=views,
        runtime=not standalone,
        first_kernel=views[0].first_kernel,
        merges=any(
            "_three_dims(" in line
            for v in views
            for own in v.launches
            for line in (*own.lines, *(x for _, ls in own.branches for x in ls))
        ),
        layout=_layout(views) if standalone else "",
        gradients=GRADIENTS if standalone and any(v.differentiable for v in views) else "",
        uses_multiprocessors=any(
            "_multiprocessors(" in line for v in views for own in v.launches for line in own.lines
        ),
        describes=any(v.describes for v in views),
        asks=any(v.asks for v in views),
        splits=bool(skeletons & {"tf32x3", "tf32x3_half"}),
        matrices=bool(skeletons & {"persistent", "tf32x3_half"}),
        patches="patches" in skeletons,
        steps=any(
            "_every(" in line
            for v in views
            for own in v.launches
            for _, branch in own.branches
            for line in branch
        ),
        imports=[],
    )
    libdevice = any(v.libdevice for v in views)
    body.imports = _imports(body, views, libdevice, standalone)
    return environment().get_template("module.py.j2").render(module=body)


def _own_page(file: str) -> str:
    """The functions of a module of the runtime, for one that imports nothing of tritongen."""
    text = own_text(file)
    text = text[text.index("\ndef ") :]
    names = "|".join(re.findall(r"^def ([a-z]\w*)", text, re.M))
    return re.sub(rf"(?<![.\w])({names})(?=\()", r"_\1", text)


def _layout(views: list[SimpleNamespace]) -> str:
    """The text of what allocations call, for a module that imports nothing of tritongen; it is called there."""
    used = "".join(text for v in views for _, text in v.outputs)
    if "runtime." not in used:
        return ""
    for view in views:
        view.outputs = [(name, text.replace("runtime.", "_")) for name, text in view.outputs]
    return _own_page("runtime/layout.py")


def _docstring_safe(line: str) -> str:
    return line.rstrip().replace("\\", "\\\\").replace('"""', "'''")


def _imports(body, views, libdevice: bool, standalone: bool) -> list[str]:
    everything = "\n".join(
        line
        for v in views
        for line in (
            *v.checks,
            *(line for lines in v.references for line in lines),
            *(
                x
                for own in (*v.launches, *v.sequences)
                for x in (*own.lines, *(y for _, b in own.branches for y in b))
            ),
        )
    )
    lines = []
    if body.patches or re.search(r"\bmath\.", everything):
        lines.append("import math")
    if body.gradients:
        lines += ["import functools", "import inspect"]
        lines += ["from collections.abc import Callable, Mapping", "from typing import Any"]
    if body.uses_multiprocessors or body.describes:
        lines.append("from functools import cache")
    if lines:
        lines.append("")
    lines += ["import torch", "import triton", "import triton.language as tl"]
    lines.append("from triton.runtime.interpreter import InterpretedFunction")
    if body.describes:
        lines.append("from triton.tools.tensor_descriptor import TensorDescriptor")
    if libdevice:
        lines.append("from triton.language.extra import libdevice")
    if not standalone:
        lines += ["", "from tritongen import runtime"]
        if body.asks:
            lines.append("from tritongen.runtime import f32_precision as _f32_precision")
    return lines


# ---- one op -------------------------------------------------------------------------------------
def op_view(item: OpPlans) -> SimpleNamespace:
    op, host = item.plans[0].op, item.hosts[0]
    kernels, launches, sequences, libdevice = [], [], [], False
    helpers: dict[str, None] = {}
    flags = item.flags
    for plan in item.plans:
        context = context_of(plan, item)
        calls: list[str] = []
        inner = context.op
        results = frozenset(o.name for o in inner.outputs) if flags else frozenset()
        tensors = (
            *(t.name for t in inner.tensors),
            *(n.name for n in plan.scratch),
            *(o.name for o in inner.outputs),
        )
        numbers: tuple[ir.Scalar | ir.Constant, ...] = (*inner.scalars, *inner.constants)
        values = tuple(p.name for p in numbers)
        packs = [(p.step, p) for own in plan.steps for p in own.packs]
        steps: list[tuple[Step, Pack | None]] = [*packs, *((own, None) for own in plan.steps)]
        for step, pack in steps:
            known = pack_context(context, pack) if pack else step_context(context, step)
            known = replace(known, absent=results - set(step.stores))
            views = {k.name: kernel_view(known, k) for k in step.kernels}
            for view in views.values():
                kernels.append(render_kernel(view))
                helpers |= dict.fromkeys(view.helpers)
                libdevice |= view.libdevice or any(
                    "libdevice." in ALL_HELPERS[h] for h in view.helpers
                )
            taken = (touched(step), ()) if pack else (tensors, values)
            alone = len(plan.steps) == 1 and not pack
            launch = launch_view(known, step, views, *taken, alone)
            launches.append(_named(launch, single=len(launch.branches) == 1))
            if not pack:
                calls.append(f"{launch.name}({launch.parameters})")
        if len(plan.steps) > 1:
            known = replace(context, absent=results)
            sequences.append(sequence(known, plan, tensors, calls))
    given = [(flag, "bool", "True") for flag in flags.values()]
    params, own = [*parameters(op), *given], [*parameters(host), *given]
    asks = asks_of(item)
    names = [o.name for o in host.outputs]
    where = asked.allocated_for(item.plans[0], flags) if flags else {}
    inside = dict(zip(names, (o.name for o in item.plans[0].inner.outputs), strict=True))
    outputs = [(o.name, allocation(host, o, *kept(o, item))) for o in host.outputs]
    some = f"any(t is not None and t.numel() > 0 for t in ({', '.join(names)}))"
    return SimpleNamespace(
        name=item.name,
        own=item.own or item.name,
        parameters=_signature(params),
        plain=", ".join(n for n, _, _ in params),
        host_parameters=_signature(own),
        host_plain=", ".join(n for n, _, _ in own),
        aside=params != own,
        returns=_returns(len(names), bool(flags)),
        reference_parameters=", ".join(n for n, _, _ in parameters(host)),
        doc=docstring(op),
        checks=[as_written(line, item.shown) for line in check_lines(item.hosts)],
        outputs=[
            (n, f"{text} if {where[inside[n]]} else None" if where else text) for n, text in outputs
        ],
        output_names=", ".join(names),
        not_empty=some if flags else " or ".join(f"{n}.numel() > 0" for n in names),
        first=host.tensors[0].name,
        dispatch=dispatch(item),
        references=_in_torch(item, params != own),
        cpu=f"{item.own or item.name}_{'reference' if op.ref is None else 'torch'}",
        options=options(item, asks),
        differentiable=differentiable(item),
        asks=asks,
        kernels=kernels,
        launches=launches,
        sequences=sequences,
        helpers=list(helpers),
        libdevice=libdevice,
        describes=any(k.tiles for p in item.plans for s in p.steps for k in s.kernels),
        first_kernel=item.plans[0].steps[0].kernels[0].name,
    )


def asks_of(item: OpPlans) -> tuple[str, ...]:
    """What a call asks about products of f32: a backward goes by its forward's answers.

    So an op without such products asks for its backward, as attention of half types does.
    """
    precisions = (step.precision for plan in item.plans for step in plan.steps)
    asked = tuple(dict.fromkeys(filter(None, precisions)))
    return asked or (asks_of(item.backward) if item.backward else ())


def options(item: OpPlans, asks: tuple[str, ...]) -> str:
    """What else the decorator is told."""
    op = item.plans[0].op
    out = f", equals={item.own or item.name}_torch" if op.ref is not None else ""
    out += f', autocast="{op.autocast}"' if op.autocast else ""
    out += f", precision={asks}" if asks else ""
    out += batch(op)
    out += f", linear={linear}" if (linear := linear_in(op)) else ""
    if item.forward is not None:
        return f'{out}, forward="{item.forward.name}"'
    if told := backward(item):
        return f"{out}, backward=runtime.Backward({told})"
    return f"{out}, {no_gradient(item)}" if item.no_gradient else out


def no_gradient(item: OpPlans) -> str:
    """Why an op has no gradient, as a decorator takes it."""
    return f'no_gradient="{_in_quotes(item.no_gradient)}"'


def differentiable(item: OpPlans) -> str:
    """What decorates an op in a module that imports nothing of ours; "" where autograd asks nothing: of integers."""
    op = item.plans[0].op
    if item.forward is not None:
        return f'_differentiable_by("{item.forward.name}", {len(op.outputs)})'
    floats = any(ir.kind_of(o.dtype, op) == "float" for o in op.outputs)
    told = backward(item) or (no_gradient(item) if floats and item.no_gradient else "")
    return f"_differentiable({told})" if told else ""


def backward(item: OpPlans) -> str:
    """How the op's gradient is called, as `runtime.Backward` takes it; "" where there is none."""
    op, back = item.plans[0].op, item.backward
    if back is None and not item.handed_on:
        return ""
    wrt = tuple(o.name.removeprefix("d") for o in back.plans[0].op.outputs) if back else ()
    told = f'"{back.name if back else ""}", wrt={wrt}, outputs={tuple(o.name for o in op.outputs)}'
    if back and (flags := tuple(back.flags.values())):
        told += f", flags={flags}"
    given = {**dict.fromkeys(wrt), **item.handed_on}
    places = ((t, t.dims.index(ir.BATCH_SIZE)) for t in batched(op) if t.name in given)
    before = {t.name: at for t, at in places if at}
    told += f", before={before}" if before else ""
    return f"{told}, handed_on={item.handed_on}" if item.handed_on else told


def batch(op: ir.Op) -> str:
    """Where the batch dims stand, as `runtime.Batch` takes it; "" where one element of them needs another."""
    if not by_itself(op):
        return ""
    operands = {
        t.name: (at := t.dims.index(ir.BATCH_SIZE), len(t.dims) - 1 - at) for t in batched(op)
    }
    return f", batch=runtime.Batch({operands}, {tuple(o.dims.index(ir.BATCH_SIZE) for o in op.outputs)})"


def _in_quotes(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _in_torch(item: OpPlans, aside: bool) -> list[list[str]]:
    """The body in torch, and the `ref`: behind functions with the public parameters where their own step aside."""
    params, out = parameters(item.plans[0].op), []
    for kind, printed in (("reference", reference_lines), ("torch", claim_lines)):
        name = f"{item.own or item.name}_{kind}"
        lines = printed(*item.hosts, name=f"run_{name}" if aside else name, mark=item.mark)
        if not lines:
            continue
        out.append(lines)
        if aside:
            opening = f"def {name}({_signature(params)}){_returns(len(item.hosts[0].outputs))}:"
            call = f"    return run_{name}({', '.join(n for n, _, _ in params)})"
            out.append([opening, f'    """{item.name} on CPU tensors."""', call])
    return out


def _signature(params: list[tuple[str, str, str]]) -> str:
    return ", ".join(f"{n}: {t}{f' = {d}' if d else ''}" for n, t, d in params)


def _returns(count: int, on_request: bool = False) -> str:
    one = "torch.Tensor | None" if on_request else "torch.Tensor"
    return " -> torch.Tensor" if count == 1 else f" -> tuple[{', '.join([one] * count)}]"


def kept(output: ir.Tensor, item: OpPlans) -> tuple[str, tuple[str, ...]]:
    """What layouts an output may have, and the outputs that have the same one: they are stored together."""
    known = (
        layouts(p, host).get(output.name, ("", ()))
        for p, host in zip(item.plans, item.hosts, strict=True)
    )
    return min(known)


def layouts(plan: Plan, host: ir.Op) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Outputs of any layout, or channels last, by what `host` calls them."""
    own = {o.name: p.name for o, p in zip(plan.inner.outputs, host.outputs, strict=True)}
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for step in plan.steps:
        together = tuple(own[name] for name in step.stores if name in own)
        for name in own.keys() & set(step.stores):
            if name in step.merged or any(v.merged for v in step.variants):
                found[own[name]] = ANY, together
            elif all(takes_images(s, name) for s in plan.steps):
                found[own[name]] = CHANNELS_LAST, (own[name],)
    return found


def takes_images(step: Step, tensor: str) -> bool:
    """Whether a tensor may be stored channels last: a step asks for strides, and does not reshape it."""
    if tensor not in touched(step):
        return True
    asks = step.orders or any(k.slides or k.any_format for k in step.kernels)
    reshaping = [k for k in step.kernels if not (step.orders or k.any_format)]
    return bool(asks) and all(v.tensor != tensor for k in reshaping for v in k.views)


def alike(plan: Plan) -> dict[str, str]:
    """What passes between steps, and the output of its shape that it lies as: where all steps ask for strides."""
    known = layouts(plan, plan.inner)
    found = {}
    for nest in plan.scratch:
        if len(nest.dims) in (4, 5) and all(takes_images(s, nest.name) for s in plan.steps):
            for o in plan.inner.outputs:
                if o.dims == nest.dims and o.name in known:
                    found[nest.name] = o.name
    return found


def context_of(plan: Plan, item: OpPlans) -> Context:
    op = plan.inner
    op = replace(op, facts=(*op.facts, *plan.defines))
    stored = (*op.tensors, *op.outputs)
    dims = {t.name: t.dims for t in stored}
    dtypes = {t.name: t.dtype for t in stored}
    copies = tuple(n for s in plan.steps for p in s.packs for n in p.step.kernels[0].nests)
    for nest in (*plan.nests, *copies):
        dims.setdefault(nest.name, nest.dims)
        dtypes.setdefault(nest.name, nest.dtype)
    wide = any(may_be_f64(t, op) for t in op.tensors)
    names = frozenset(n.name for n in op.nests)
    return Context(op, dims, dtypes, facts_of(op), wide, names, item.outside, item.mark)


def step_context(context: Context, step: Step) -> Context:
    """With the copies that the step makes of its operands: another step's may have the same names."""
    dims, dtypes = dict(context.dims), dict(context.dtypes)
    for pack in (p for v in step.variants for p in v.packs if p.stored):
        dims[pack.stored] = (*(dims[pack.tensor][k] for k in pack.order[:-1]), pack.lanes)
        dtypes[pack.stored] = dtypes[pack.tensor]
    return replace(context, dims=dims, dtypes=dtypes)


def pack_context(context: Context, pack: Pack) -> Context:
    """What the launch of a copy knows: its one operand."""
    operand = ir.Tensor(pack.tensor, context.dtypes[pack.tensor], pack.dims)
    op = replace(context.op, params=(operand,), outputs=(), facts=())
    return replace(context, op=op, dims=context.dims | {pack.tensor: pack.dims})


def render_kernel(view: KernelView) -> str:
    return (
        environment()
        .get_template(f"{view.template}.py.j2")
        .render(kernel=view, var=SimpleNamespace(**view.var))
    )


def _named(launch: LaunchView, single: bool) -> SimpleNamespace:
    fields = {name: getattr(launch, name) for name in launch.__slots__}
    return SimpleNamespace(**fields, single=single)


def sequence(context: Context, plan: Plan, tensors, calls: list[str]) -> SimpleNamespace:
    """`launch_<op>` of an op in several steps: scratch, then each step in turn."""
    op = context.op
    scratch = {n.name for n in plan.scratch}
    where = _where(plan) if context.absent else {}
    wanted = {n: where[s.name] for s in plan.steps for n in s.stores} if where else {}
    like = {} if where else alike(plan)  # an output that is not asked for is no example
    lines = scratch_lines(context, plan.scratch, like, wanted)
    text = "\n".join(lines)
    opening = size_lines(context.measured, text)
    opening += batch_lines(context.measured, text)
    for step, call in zip(plan.steps, calls, strict=True):
        condition = where.get(step.name)
        lines += [f"if {condition}:", f"    {call}"] if condition else [call]
    given = [t for t in tensors if t not in scratch]
    parameters_ = [*given, *(s.name for s in op.scalars), *(c.name for c in op.constants)]
    return SimpleNamespace(
        name=f"launch_{plan.name}",
        parameters=", ".join(parameters_),
        doc=f"{len(plan.steps)} steps, unchecked; what passes between them is in scratch storage.",
        lines=[*opening, *lines],
        branches=(),
    )


def _where(plan: Plan) -> dict[str, str]:
    """The condition of each step, "" where all outputs follow from it."""
    led = asked.leads_to(plan)
    return {
        name: asked.any_there(outputs) if len(outputs) < len(plan.inner.outputs) else ""
        for name, outputs in led.items()
    }


def dispatch(item: OpPlans) -> list[str]:
    """The call of launch, by what kind of dtype the operands have where there are several typings."""
    lines = []
    for k, (plan, op) in enumerate(zip(item.plans, item.hosts, strict=True)):
        owns = own_batches(op)[1]
        names = [t.name for t in op.tensors] + [own.name for own in owns]
        names += [o.name for o in op.outputs]
        names += [s.name for s in op.scalars] + [c.name for c in op.constants]
        calls = [*own_lines(owns), f"launch_{plan.name}({', '.join(names)})"]
        if len(item.plans) == 1:
            return calls
        tests = []
        for p in op.typarams:
            operand = op.typed(p.name).name
            allowed = ", ".join(TORCH_DTYPES[d] for d in p.dtypes)
            tests.append(f"{operand}.dtype in ({allowed},)")
        keyword = "if" if k == 0 else "elif"
        lines += [
            f"{keyword} {' and '.join(tests)}:" if k < len(item.plans) - 1 else "else:",
            *(f"    {call}" for call in calls),
        ]
    return lines
