"""One op as `module.py.j2` prints it: kernels, choose and launch, allocation and checks, references, wrapper.

Input: an op's plans. Output: a namespace of texts. Not here: the module around them (`module.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from tritongen.emit import asked
from tritongen.emit.allocation import alike, allocation, kept
from tritongen.emit.chunked import in_chunks
from tritongen.emit.comments import comment, comments_of
from tritongen.emit.decorator import alone, asks_of, options
from tritongen.emit.kernel_writer import Context
from tritongen.emit.kernels import kernel_view
from tritongen.emit.launch import (
    TORCH_DTYPES,
    LaunchView,
    by_another,
    call_of_all,
    launch_of_all,
    launch_of_another,
    launch_view,
    opening_lines,
    parameters_of,
    scratch_lines,
    touched_first,
)
from tritongen.emit.op_plans import OpPlans
from tritongen.emit.tuning import tabled, with_table
from tritongen.emit.unread import unread, without, without_lines
from tritongen.emit.view import KernelView, indented
from tritongen.emit.wrapper import as_written, check_lines, docstring, parameters
from tritongen.ir import nodes as ir
from tritongen.ir.batches import own_batches
from tritongen.ir.bounds import facts_of
from tritongen.reference import claim_lines, reference_lines
from tritongen.reference.batches import own_lines
from tritongen.resources import folder
from tritongen.schedule.plan import Plan, Step, stored_dims
from tritongen.work import CHARACTERS, spend


@lru_cache(maxsize=1)
def environment():
    """Jinja with line statements that read as Python comments; an undefined name is an error."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder("templates")),
        line_statement_prefix="#%",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters["lines"] = lambda lines, indent=4: f"\n{' ' * indent}".join(lines)
    return made


def _launches_of(
    plan: Plan,
    item: OpPlans,
    added: frozenset[str] = frozenset(),
    totals: frozenset[str] = frozenset(),
) -> Iterator[LaunchView]:
    """The launches of one typing with their kernels, and what calls them in turn where they are several.

    `added`: operands that are there if a result is asked for, the sums of chunks. `totals`: those of its results that lie
    where such an operand does.
    """
    context = context_of(plan, item)
    if plan.chunks:
        sums = frozenset(n.name for n in plan.chunks.sums)
        yield from _launches_of(plan.chunks.body, item, frozenset(plan.chunks.befores), sums)
        yield from _launches_of(plan.chunks.behind, item, sums)
        yield in_chunks(context, plan, plan.chunks, bool(item.flags))
        return
    inner, calls = context.op, list[str]()
    # Where there is one result, nothing runs if it is not asked for.
    some = item.flags and len(inner.outputs) > 1
    results = added | {o.name for o in inner.outputs} if some else frozenset()
    stored: tuple[ir.Tensor | ir.Nest, ...] = (*inner.tensors, *plan.scratch, *inner.outputs)
    given = [p.name for p in (*stored, *inner.scalars, *inner.constants)]
    for step in plan.steps:
        left_out = asked.left_out(plan, step) if results else frozenset[str]()
        every = (pair for v in step.variants for pair in (*v.sums, *v.parts))
        parts = {own for own, result in every if result in left_out}
        absent = results - set(step.touched) | left_out
        known = replace(step_context(context, step), absent=absent, left_out=left_out | parts)
        alone = len(plan.steps) == 1
        if step.reuses and step.reuses.given:
            launch = launch_of_another(known, step, step.reuses, given, alone)
        else:
            views = {k.name: kernel_view(known, k) for k in step.kernels}
            if item.autotune:
                views = {name: with_table(view, step) for name, view in views.items()}
            printed = {name: printed_of(view, bool(item.mark)) for name, view in views.items()}
            for view, text in printed.values():
                check_asked(view, text, left_out)
            views = {name: view for name, (view, _) in printed.items()}
            launch = launch_view(known, step, views, given, alone)
            if step.reuses:
                launch = by_another(step, step.reuses, launch.parameters, [])
            else:
                launch.kernels = [tabled(text, v, step, totals) for v, text in printed.values()]
            spend(sum(len(text) // CHARACTERS for text in launch.kernels))
        calls.append(f"{launch.name}({launch.parameters})")
        yield launch
    if len(plan.steps) > 1:
        yield sequence(replace(context, absent=results), plan, calls)


def op_view(item: OpPlans) -> SimpleNamespace:
    op, host, flags = item.typings[0], item.hosts[0], item.flags
    if item.through and item.forward is not None:
        pairs = zip(item.plans, item.forward.plans, strict=True)
        launches = [dropping(plan, keeping, item) for plan, keeping in pairs]
    else:
        launches = [launch for plan in item.plans for launch in _launches_of(plan, item)]
    given = [(flag, "bool", "True") for flag in flags.values()]
    params, own = [*parameters(op), *given], [*parameters(host), *given]
    asks = asks_of(item)
    names = [o.name for o in host.outputs]
    checks, outputs = _allocated(item)
    some = f"any(t is not None and t.numel() > 0 for t in ({', '.join(names)}))"
    return SimpleNamespace(
        name=item.name,
        own=item.own or item.name,
        parameters=_signature(params),
        plain=", ".join(n for n, _, _ in params),
        host_parameters=_signature(own),
        host_defaults=", ".join(f"{n}={d}" if d else n for n, _, d in own),
        host_plain=", ".join(n for n, _, _ in own),
        aside=params != own,
        returns=_returns(len(names), bool(flags)),
        doc=docstring(op),
        checks=checks,
        outputs=outputs,
        output_names=", ".join(names),
        not_empty=some if flags else " or ".join(f"{n}.numel() > 0" for n in names),
        first=host.tensors[0].name,
        dispatch=dispatch(item),
        references=_in_torch(item, params != own),
        on_cpu=_on_cpu(item),
        options=options(item, asks),
        alone=alone(item, asks),
        kernels=[kernel for launch in launches for kernel in launch.kernels],
        # Behind them what calls them.
        launches=sorted(launches, key=lambda launch: launch.choose is None),
    )


def _allocated(item: OpPlans) -> tuple[list[str], list[tuple[str, str]]]:
    """The lines that check the operands, and an expression for each output.

    Where another op checks the same and allocates the first outputs, one line calls what does that.
    """
    flags, base = item.flags, item.stands_for
    # Half types may have a form of their own. What is kept in the type of the call is f64 in another one.
    host = next((op for op in item.hosts if ir.may_compute_f64(op)), item.hosts[0])
    called = tuple(replace(op, name=base.name if base else op.name) for op in item.hosts)
    checks = [as_written(line, item.shown) for line in check_lines(called)]
    may_lie, outputs = kept(item), list[tuple[str, str]]()
    where = asked.allocated_for(item.plans, flags) if flags else {}
    for o, inner in zip(host.outputs, item.plans[0].inner.outputs, strict=True):
        condition = f" if {where[inner.name]} else None" if where.get(inner.name) else ""
        outputs.append((o.name, f"{allocation(host, o, *may_lie[o.name])}{condition}"))
    if base is None:
        return checks, outputs
    same, first = _allocated(base)
    rest = outputs[len(first) :]
    if (checks, outputs) != (same, [*first, *rest]):
        return checks, outputs
    given = ", ".join(n for n, _, _ in parameters(host))
    names = ", ".join(n for n, _ in first)
    known, text = replace(host, outputs=host.outputs[: len(first)]), " ".join(t for _, t in rest)
    call = f"{names} = allocate_{base.own or base.name}({given})"
    return [call, *opening_lines(known, text)], rest


def _on_cpu(item: OpPlans) -> str:
    """The results on CPU tensors: those of the `ref`, which may be views of operands, or of the reference."""
    host = item.hosts[0]
    given = ", ".join(n for n, _, _ in parameters(host))
    if item.typings[0].ref is None:
        return f"{item.own or item.name}_reference({given})"
    operands = ", ".join(t.name for t in host.tensors)
    return f"lib.apart({item.own or item.name}_torch({given}), {operands})"


def _in_torch(item: OpPlans, aside: bool) -> list[list[str]]:
    """The body in torch, and the `ref`: behind functions with the public parameters where their own step aside."""
    params, out = parameters(item.typings[0]), []
    kinds = {tuple(p.kind for p in op.typarams): op for op in item.hosts}
    for kind, printed in (("reference", reference_lines), ("torch", claim_lines)):
        name = f"{item.own or item.name}_{kind}"
        lines = printed(*kinds.values(), name=f"run_{name}" if aside else name, mark=item.mark)
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


def context_of(plan: Plan, item: OpPlans) -> Context:
    op = plan.inner
    op = replace(op, facts=(*op.facts, *plan.defines))
    stored = (*op.tensors, *op.outputs)
    dims = {t.name: t.dims for t in stored}
    dtypes = {t.name: t.dtype for t in stored}
    for nest in plan.nests:
        dims.setdefault(nest.name, nest.dims)
        dtypes.setdefault(nest.name, nest.dtype)
    wide = ir.may_compute_f64(op)
    names = frozenset(n.name for n in op.nests)
    comments = comments_of(plan, dims)
    kept = frozenset({o.name for o in op.outputs} | {n.name for n in plan.scratch})
    facts = facts_of(op)
    return Context(op, dims, dtypes, kept, facts, wide, names, item.outside, item.mark, comments)


def step_context(context: Context, step: Step) -> Context:
    """The context of a step, with its copies of operands and what its kernels hand on. Another step may use the same names."""
    dims, dtypes = dict(context.dims), dict(context.dtypes)
    handed_on = [n for k in step.kernels for n in k.nests if n.name in k.stores]
    for nest in handed_on:
        dims.setdefault(nest.name, nest.dims)
        dtypes.setdefault(nest.name, nest.dtype)
    new = (n for n in handed_on if n.name not in context.comments)
    own = {n.name: comment(context.op, n, dims) for n in new if n.part_of}
    for pack in (p for v in step.variants for p in v.packs if p.stored):
        dims[pack.stored] = stored_dims(pack, dims[pack.tensor])
        dtypes[pack.stored] = dtypes[pack.tensor]
    op, comments = touched_first(context.op, step), {**own, **context.comments}
    return replace(context, op=op, dims=dims, dtypes=dtypes, comments=comments)


class _Watched:
    """A tile that notes which of its fields a template reads."""

    def __init__(self, tile: Any):
        self.tile, self.read = tile, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.tile, name)


def render_kernel(view: KernelView) -> str:
    """The kernel's source. A template must say where the rows and columns of a tile begin, if not at 0."""
    template = environment().get_template(f"{view.template}.py.j2")
    tile = _Watched(getattr(view, "tile", None))
    shown = view if tile.tile is None else replace(view, tile=tile)  # type: ignore[call-arg]
    text = template.render(kernel=shown)
    for low in ("row_low", "col_low"):
        if getattr(tile.tile, low, "") and low not in tile.read:
            raise AssertionError(f"{view.template}.py.j2 begins at 0 and not at {low}")
    return re.sub("^ +\n", "", text, flags=re.MULTILINE)  # slots that no lines fill


def check_asked(view: KernelView, text: str, left_out: Set[str]) -> None:
    """Raises AssertionError if a kernel stores a result that a call may leave out, and does not ask whether it is there."""
    for name, given in zip(view.names, view.arguments, strict=False):
        asked = f"if {name} is not None" in text
        if given in left_out and not asked and re.search(rf"tl\.store\(\s*{name}\b", text):
            raise AssertionError(f"{view.name} stores {given} for every call")


def printed_of(view: KernelView, marked: bool) -> tuple[KernelView, str]:
    """The view of a kernel without parameters that it does not read, and its source.

    Under marks all of them stay: without the marks, a name may be one that the kernel reads.
    """
    if marked:
        return view, render_kernel(view)
    text = without_lines(render_kernel(view))
    names = unread(text, view.names) - {*view.blocks}
    if not names:
        return view, text
    view = without(view, names)
    return view, without_lines(render_kernel(view))


def dropping(plan: Plan, keeping: Plan, item: OpPlans) -> LaunchView:
    """`launch_<op>` of an op that runs what keeps values for a gradient: these are scratch."""
    dropped = frozenset(parameters_of(keeping.inner)) - {*parameters_of(plan.inner)}
    context = replace(context_of(keeping, item), absent=dropped)
    lines = scratch_lines(context, tuple(n for n in plan.scratch if n.name in dropped), {}, {})
    doc = f"Runs the kernels of {keeping.op.name}, and drops what they keep"
    return launch_of_all(context, plan, doc, [*lines, call_of_all(keeping, {})])


def sequence(context: Context, plan: Plan, calls: list[str]) -> LaunchView:
    """`launch_<op>` of an op in several steps: scratch, then each step in turn."""
    wanted = asked.conditions(plan) if context.absent else {}
    like = {} if wanted else alike(plan)  # an output that is not asked for is no example
    lines = scratch_lines(context, plan.scratch, like, wanted)
    led = asked.leads_to(plan)
    for step, call in zip(plan.steps, calls, strict=True):
        some = context.absent and len(led[step.name]) < len(context.op.outputs)
        lines += [f"if {asked.any_there(led[step.name])}:", f"    {call}"] if some else [call]
    between = ", with scratch memory between them" if plan.scratch else ""
    doc = f"Runs {len(plan.steps)} steps{between}"
    return launch_of_all(context, plan, doc, lines)


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
        last = k == len(item.plans) - 1
        lines += ["else:" if last else f"{keyword} {' and '.join(tests)}:", *indented(calls)]
    return lines
