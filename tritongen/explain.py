"""Explains the plan of an op, or one call of it: what was decided and why. As data, text or JSON.

    e = explain_op(plan)                      # every variant, in the plan's own sizes
    e = explain_call(module, plan, args)      # the variants that this call takes, and what they cost
    print(text(e)); as_json(e)

`schedule` makes the decisions, `cost.py` counts the cost of a kernel, and `show.py` prints the plan as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tritongen.choice import holding, microseconds
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import size
from tritongen.schedule.estimates import in_turn
from tritongen.schedule.plan import Plan, Step, Variant

if TYPE_CHECKING:
    from tritongen.cost import Ceilings, Cost, StepCost
    from tritongen.trace import Choice, Gpu

MUCH_SCRATCH = 4  # times operands and outputs, from which a plan is warned of


@dataclass(frozen=True, slots=True)
class Value:
    """One value that a step computes: where it ends up, and how it comes about."""

    name: str
    how: str  # "sum over k", "pointwise"
    where: str  # "output", "scratch f32[M, N]", "registers"


@dataclass(frozen=True, slots=True)
class Way:
    """One variant; `taken` where a call takes it. `us`: what it is estimated to take, of those that are compared so."""

    name: str
    when: str
    why: str
    kernels: tuple[str, ...]
    taken: bool
    estimated: bool
    us: float | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch of a call; `microseconds`: the least, by the ceilings, and what binds it."""

    name: str
    grid: tuple[int, ...]
    reads: dict[str, int]
    writes: dict[str, int]
    flops: int
    microseconds: float
    bound_by: str


@dataclass(frozen=True, slots=True)
class StepView:
    name: str
    kind: str
    why: str
    apart: dict[str, str]  # earlier steps that it is not part of, and why
    values: tuple[Value, ...]
    facts: dict[str, Any]  # sizes as text, or as numbers of the call
    precision: str  # precision of f32 products, with the reason; empty if there are none
    estimates: str  # whose coefficients they go by; empty where none are compared, and for a GPU that we measured
    no_product: str  # why sums of several factors are no contraction
    variants: tuple[Way, ...]
    config: dict[str, int]
    tuned: bool
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """The op against its plan: bytes that any implementation moves, bytes that these kernels move."""

    op_bytes: int
    plan_bytes: int
    flops: int
    op_microseconds: float
    plan_microseconds: float
    scratch_bytes: int  # at its peak, beside operands and outputs
    ceilings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """A value kept for the gradient: microseconds, at least, to store and load it and to compute it again."""

    name: str
    bytes: int
    microseconds: float
    again: float


@dataclass(frozen=True, slots=True)
class Explanation:
    op: str
    call: str
    steps: tuple[StepView, ...]
    totals: Totals | None
    kept: tuple[Kept, ...] = ()
    chunks: str = ""  # "8 chunks of V", where the steps are those of each


def explain_op(plan: Plan) -> Explanation:
    """Without a call: nothing is taken, nothing counted."""
    steps = tuple(
        StepView(
            s.name,
            s.skeleton,
            s.why,
            dict(s.apart),
            tuple(_values(plan, s)),
            {name: str(value) for name, value in s.facts},
            _precision(s) if s.precision else "",
            "",
            s.no_product,
            tuple(_way(v, False, None) for v in s.variants),
            {},
            False,
            (),
        )
        for s in plan.steps
    )
    return Explanation(plan.op.name, _typing(plan.op), steps, None)


def explain_call(
    module: ModuleType,
    plan: Plan,
    args: Mapping[str, Any],
    gpu: Gpu | None = None,
    ceilings: Ceilings | None = None,
    call: str = "",
    forward: Plan | None = None,
) -> Explanation:
    """Explains what one call would launch on that GPU, or on this machine's (`trace`). Its tensors may be meta tensors.

    `forward`: the plan of the op that keeps values for the gradient.
    """
    from tritongen.cost import H200, kept_costs, op_cost, scratch_bytes, step_costs
    from tritongen.trace import trace

    ceilings = ceilings or H200
    found = step_costs(plan, args, trace(module, plan.op.name, args, gpu))
    steps = tuple(_step_view(plan, s, ceilings) for s in found)
    costs = kept_costs(forward, args, ceilings) if forward is not None else ()
    kept = tuple(Kept(k.name, k.bytes, k.kept.seconds * 1e6, k.again.seconds * 1e6) for k in costs)
    scratch = scratch_bytes(plan, args, found)
    totals = _totals(op_cost(plan, args), found, steps, scratch, ceilings)
    return Explanation(plan.op.name, call, steps, totals, kept, _chunks(plan, args))


def _chunks(plan: Plan, args: Mapping[str, Any]) -> str:
    from tritongen.cost import call_numbers, chunk_share

    if plan.chunks is None:
        return ""
    count = math.ceil(1 / chunk_share(plan, call_numbers(plan, args)))
    large = [n.name for n in plan.chunks.body.scratch if size(plan.chunks.size) in n.dims]
    return f"{_many(count, 'chunk')} of {plan.chunks.size}, so that {' and '.join(large)} is never whole; counts are of all chunks together, and of sums once"


def _multiplies_f32(found: StepCost) -> bool:
    from tritongen.runtime.precision import PRECISIONS

    return any(k.cost.precision in PRECISIONS for k in found.kernels)


def _step_view(plan: Plan, found: StepCost, ceilings: Ceilings) -> StepView:
    step, choice = found.step, found.choice
    return StepView(
        step.name,
        step.skeleton,
        step.why,
        dict(step.apart),
        tuple(_values(plan, step)),
        {name: fact for name, fact in choice.facts.items() if name != "gpu"},
        _precision(step) if step.precision and _multiplies_f32(found) else "",
        _coefficients(step, choice),
        step.no_product,
        _ways(step, choice),
        choice.config,
        choice.tuned,
        tuple(_kernel(k.kernel, k.grid, k.cost, ceilings) for k in found.kernels),
    )


def _precision(step: Step) -> str:
    from tritongen.runtime.precision import f32_precision, reason

    return f"{f32_precision(step.precision)}, {reason(step.precision)}"


def _coefficients(step: Step, choice: Choice) -> str:
    """Where the coefficients of the GPU come from."""
    from tritongen.lib import coefficients

    if not any(v.estimate for v in step.variants):
        return ""
    source: str = coefficients(choice.facts["gpu"]).source
    return "" if source == "measured" else source


def _kernel(name: str, grid: tuple[int, ...], cost: Cost, ceilings: Ceilings) -> Kernel:
    from tritongen.cost import least

    time = least(cost, ceilings)
    return Kernel(name, grid, cost.reads, cost.writes, cost.flops, time.seconds * 1e6, time.by)


def _totals(
    whole: Cost,
    found: tuple[StepCost, ...],
    steps: tuple[StepView, ...],
    scratch: int,
    ceilings: Ceilings,
) -> Totals:
    from tritongen.cost import least

    return Totals(
        whole.bytes,
        sum(k.cost.bytes for s in found for k in s.kernels),
        whole.flops,
        least(whole, ceilings).seconds * 1e6,
        sum(k.microseconds for s in steps for k in s.kernels),
        scratch,
        asdict(ceilings),
    )


def _ways(step: Step, choice: Choice) -> tuple[Way, ...]:
    """The variants in the order in which a call tries them. Variants with estimates: the least first."""
    first, compared, others = in_turn(step)
    held = [v for v in holding(step, choice.facts) if v.estimate is not None]
    left = [v for v in compared if v not in held]
    us = {v.name: microseconds(step, v, choice.facts) for v in held}
    asked = (*first, *held, *left, *others)
    return tuple(_way(v, v.name == choice.variant, us.get(v.name)) for v in asked)


def _way(variant: Variant, taken: bool, us: float | None) -> Way:
    kernels = tuple(launch.kernel for launch in variant.launches)
    estimated = variant.estimate is not None
    return Way(variant.name, variant.when, variant.why, kernels, taken, estimated, us)


def _values(plan: Plan, step: Step) -> Iterator[Value]:
    outputs = {o.name for o in plan.inner.outputs}
    kinds = {n.name: n for n in plan.nests}
    for nest in step.kernels[0].nests:
        nest = kinds.get(nest.name, nest)
        if nest.name in step.stores:
            dims = ", ".join(map(str, nest.dims))
            where = "output" if nest.name in outputs else f"scratch {nest.dtype}[{dims}]"
        else:
            where = "registers"
        yield Value(nest.name, _how(nest.body), where)


def _how(body: ir.Expr) -> str:
    if isinstance(body, ir.Reduce):
        return f"{body.op} over {', '.join(b.index for b in body.binders) or 'a guard'}"
    return "pointwise"


def _typing(op: ir.Op) -> str:
    return ", ".join(f"{p.name}: {p.kind}" for p in op.typarams)


# ---- as JSON ------------------------------------------------------------------------------------
def as_json(e: Explanation) -> dict[str, Any]:
    return asdict(e)


# ---- as text ------------------------------------------------------------------------------------
Lines = Iterator[tuple[str, str]]  # (style, line); the style is rich's, empty for none


def text(e: Explanation) -> str:
    return "\n".join(line for _, line in lines(e))


def lines(e: Explanation) -> Lines:
    count = sum(len(s.kernels) for s in e.steps)
    head = f"{e.op} ({e.call})" if e.call else e.op
    if e.totals is None:
        yield "bold", f"{head}: {_many(len(e.steps), 'step')}"
    elif not e.steps:
        yield "bold", f"{head}: nothing is launched: the result is empty"
        return
    else:
        yield "bold", f"{head}: {_many(len(e.steps), 'step')}, {_many(count, 'kernel')}"
        if e.chunks:
            yield "", f"runs {e.chunks}"
        yield from _scratch_lines(e.totals)
    for step in e.steps:
        yield "", ""
        yield from _step_lines(step, called=e.totals is not None)
    if e.totals is not None:
        yield "", ""
        yield from _total_lines(e.totals)
    for kept in e.kept:
        yield "", (
            f"for the gradient: keeps {kept.name}, {bytes_text(kept.bytes)}: storing and loading it takes at least "
            f"{time_text(kept.microseconds)}, computing it again {time_text(kept.again)}"
        )


def _scratch_lines(t: Totals) -> Lines:
    """Memory beside operands and outputs; a warning where it is many times theirs."""
    if t.scratch_bytes:
        share = t.scratch_bytes / max(t.op_bytes, 1)
        yield "", f"scratch: {bytes_text(t.scratch_bytes)} at its peak, {share:.2g} times operands and outputs"
        if share > MUCH_SCRATCH and t.scratch_bytes > 1 << 20:
            yield "yellow", (
                f"warning: scratch is over {MUCH_SCRATCH} times operands and outputs; "
                "a narrower dtype or fewer steps would need less"
            )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _step_lines(step: StepView, called: bool) -> Lines:
    yield "bold", f"{step.name}: {step.kind}, since {step.why}"
    for other, reason in step.apart.items():
        yield "yellow", f"  not part of {other}: {reason}"
    width = max((len(v.name) for v in step.values), default=0)
    how = max((len(v.how) for v in step.values), default=0)
    for value in step.values:
        yield "", f"  {value.name:{width}}  {value.how:{how}}  -> {value.where}"
    if step.facts:
        yield "", f"  where {', '.join(f'{k} = {v}' for k, v in step.facts.items())}"
    if step.no_product:
        yield "yellow", f"  no contraction by tensor cores: {step.no_product}"
    if step.precision:
        yield "", f"  products of f32 in {step.precision}"
    if step.estimates:
        yield "", f"  estimates by coefficients {step.estimates}"
    passed = False
    for way in step.variants:
        yield from _way_lines(way, called, passed)
        passed |= way.taken
    if step.config:
        word = "config, tuned on this machine:" if step.tuned else "config"
        yield "", f"  {word} {', '.join(f'{k} = {v}' for k, v in step.config.items())}"
    for kernel in step.kernels:
        yield from _kernel_lines(kernel)


def _way_lines(way: Way, called: bool, passed: bool) -> Lines:
    """`> rows` is the way taken: those before it did not hold, those behind it were not asked."""
    mark = ">" if way.taken else " "
    yield "green" if way.taken else "", f"  {mark} {way.name}: {way.why}"
    if way.us is not None:
        when = f"estimated {time_text(way.us)}"
    elif way.when == "True":
        when = "always, unless another one is estimated to take less" if way.estimated else "always"
    elif way.estimated:
        when = f"not: {way.when}" if called else f"if {way.when}, and estimated to take least"
    elif called and not (way.taken or passed):
        when = f"not: {way.when}"
    else:
        when = f"{'since' if way.taken else 'if'} {way.when}"
    yield "dim", f"      {when}"


def _kernel_lines(kernel: Kernel) -> Lines:
    yield "cyan", f"  {kernel.name}[{', '.join(map(str, kernel.grid))}]"
    for word, tensors in (("reads", kernel.reads), ("writes", kernel.writes)):
        listed = ", ".join(f"{name} {bytes_text(n)}" for name, n in tensors.items())
        yield "", f"    {word:6} {listed or 'nothing'}"
    flops = f"{flops_text(kernel.flops)}; " if kernel.flops else ""
    yield "", f"    {flops}at least {time_text(kernel.microseconds)}, by {kernel.bound_by}"


def _total_lines(t: Totals) -> Lines:
    ratio = t.plan_bytes / max(t.op_bytes, 1)
    more = (
        "the same"
        if 0.995 < ratio < 1.005
        else f"{bytes_text(t.plan_bytes)}, {ratio:.2f} times as much"
    )
    yield "bold", f"bytes: operands and outputs once {bytes_text(t.op_bytes)}; these kernels move {more}"
    together = time_text(t.op_microseconds)
    yield "bold", (
        f"time: at least {together} for {flops_text(t.flops)}; "
        f"these kernels at least {time_text(t.plan_microseconds)}"
    )
    peaks = ", ".join(f"{k} {v / 1e12:.0f}" for k, v in t.ceilings["matmul"].items())
    copy = f"copy {t.ceilings['copy'] / 1e9:.0f} GB/s"
    yield "dim", f"ceilings: {t.ceilings['source']}; {copy}; TFLOP/s {peaks}"


def bytes_text(n: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" or n >= 100 else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.2f} GiB"


def flops_text(n: float) -> str:
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "FLOP" or n >= 100 else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.2f} TFLOP"


def time_text(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.3g} us"
    return f"{microseconds / 1000:.3g} ms"
