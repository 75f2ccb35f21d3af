"""A spec beside torch: contenders, the comparison that each must pass, and rows of figures.

    report = bench(built, "softmax", [(op, case), ...], against=("eager", "compile"))
    report.rows[0]     # Row(shape="batch=64x128, D=1024, bf16", contender="ours", microseconds=..., ...)

`eager` is the spec's own `ref`, `compile` torch.compile of it. A contender that is wrong, or that
torch refuses, has no figures but the reason. Not here: timing itself (`measure.py`), tables, plots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import torch
import triton

from tritongen.bench.measure import (
    Call,
    Comparison,
    Timer,
    ceilings,
    compare,
    host_times,
    interleaved,
    on_poison,
    tf32,
)
from tritongen.cost import Ceilings, least, op_cost, step_costs
from tritongen.ir.nodes import Op
from tritongen.pipeline import Module
from tritongen.proof.cases import Case, all_sizes
from tritongen.proof.factors import words_of
from tritongen.runtime.load import load_text
from tritongen.schedule.plan import Plan
from tritongen.shapes import elements, random_arguments, shape_text
from tritongen.syntax.ref import parse_ref, ref_python
from tritongen.trace import Choice, at_hand, trace

RIVALS = ("eager", "compile", "max-autotune")


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on one shape; without figures where `problem` says why."""

    op: str
    shape: str
    sizes: dict[str, int]
    elements: int
    contender: str
    variants: str  # of ours: what was chosen
    microseconds: float | None  # of the device
    host_microseconds: float | None
    error: float | None
    bytes: int
    flops: int
    percent: float | None  # of the roofline: the least time, as a share of the measured
    bound_by: str
    plan_percent: float | None  # of ours: the same by the bytes that its kernels move
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    device: str
    torch: str
    triton: str
    copy: float
    matmul: dict[str, float]
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def bench(
    built: Module,
    name: str,
    calls: Sequence[tuple[Op, Case]],
    against: Sequence[str] = ("eager",),
    device: str = "cuda",
    seed: int = 0,
    timer: Timer | None = None,
    peaks: Ceilings | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Report:
    """Every contender on every call; `timer` and `peaks` stand in for a GPU in tests."""
    module = load_text(built.name, built.raw)
    plans = {id(p.op): p for p in built.plans[name]}
    if peaks is None:
        progress("ceilings")
        peaks = ceilings(tuple(precisions(plans, calls)), timer)
    rows: list[Row] = []
    for op, case in calls:
        progress(shape_text(op, case))
        args = random_arguments(op, case, device, seed)
        rows += _rows(module, plans[id(op)], case, args, against, peaks, timer)
    name_ = torch.cuda.get_device_name() if torch.cuda.is_available() else device
    return Report(
        name_, torch.__version__, triton.__version__, peaks.copy, peaks.matmul, tuple(rows)
    )


def precisions(plans: Mapping[int, Plan], calls: Sequence[tuple[Op, Case]]) -> Iterator[str]:
    from tritongen.shapes import meta_arguments

    for op, case in calls:
        if precision := op_cost(plans[id(op)], meta_arguments(op, case)).precision:
            yield precision
            if any(s.no_product for s in plans[id(op)].steps):
                yield "ieee"  # a sum of products without tensor cores


def _rows(
    module: ModuleType,
    plan: Plan,
    case: Case,
    args: dict[str, Any],
    against: Sequence[str],
    peaks: Ceilings,
    timer: Timer | None,
) -> list[Row]:
    contenders = {"ours": ours(module, plan.op, args), **rivals(plan.op, args, against)}
    own = getattr(module, plan.op.name).reference
    verdicts = judge(contenders, plan.op, reference(module, plan.op, args), lambda: own(**args))
    sound = {name: call for name, call in contenders.items() if verdicts[name].ok}
    times = interleaved(sound, timer=timer) if sound else {}
    hosts = host_times(sound) if timer is None else {}
    cost = op_cost(plan, args)
    bound = least(cost, peaks)
    calls = trace(module, plan.op.name, args, at_hand())
    moved = sum(
        least(k.cost, peaks).seconds for s in step_costs(plan, args, calls) for k in s.kernels
    )
    shown, chosen = shape_text(plan.op, case), "+".join(map(_variant, calls.choices))
    sizes = all_sizes(plan.op, case.sizes)
    rows = []
    for name in contenders:
        seconds, mine, host = times.get(name), name == "ours", hosts.get(name)
        rows.append(
            Row(
                op=plan.op.name,
                shape=shown,
                sizes=sizes,
                elements=elements(plan.op, case),
                contender=name,
                variants=chosen if mine else "",
                microseconds=seconds * 1e6 if seconds else None,
                host_microseconds=host * 1e6 if host else None,
                error=verdicts[name].error,
                bytes=cost.bytes,
                flops=cost.flops,
                percent=100 * bound.seconds / seconds if seconds else None,
                bound_by=bound.by,
                plan_percent=100 * moved / seconds if seconds and mine else None,
                problem=verdicts[name].problem,
            )
        )
    return rows


def _variant(choice: Choice) -> str:
    return f"{choice.variant}, tuned" if choice.tuned else choice.variant


# ---- contenders ---------------------------------------------------------------------------------
def ours(module: ModuleType, op: Op, args: Mapping[str, Any]) -> Call:
    function = getattr(module, op.name)
    return lambda: function(**args)


def rivals(op: Op, args: Mapping[str, Any], names: Sequence[str]) -> dict[str, Call]:
    """The spec's `ref`, run by torch eagerly and compiled."""
    if not names or op.ref is None:
        return {}
    found: dict[str, Call] = {}
    for name in names:
        function = eager_function(op)
        if name == "compile":
            function = torch.compile(function, dynamic=False)
        elif name == "max-autotune":
            function = torch.compile(function, dynamic=False, mode="max-autotune-no-cudagraphs")
        found[name] = _bound_call(function, args)
    return found


def _bound_call(function: Callable[..., Any], args: Mapping[str, Any]) -> Call:
    return lambda: function(**args)


def eager_function(op: Op) -> Callable[..., Any]:
    """`def softmax_eager(x): return torch.softmax(x, dim=-1)`: the ref on the operands as they are."""
    *steps, last = ref_python(parse_ref(op.ref or "")).splitlines()
    parameters = ", ".join(p.name for p in (*op.params, *op.free_typarams))
    lines = [*steps, f"return {last}"]
    text = f"def {op.name}_eager({parameters}):\n" + "\n".join(f"    {line}" for line in lines)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(text, f"<ref of {op.name}>", "exec"), scope)
    return scope[f"{op.name}_eager"]


# ---- comparing ----------------------------------------------------------------------------------
def reference(module: ModuleType, op: Op, args: Mapping[str, Any]) -> Call:
    """The result for CPU tensors on wider operands: f32 if some are narrower than that, else f64."""
    floats = [v for v in args.values() if isinstance(v, torch.Tensor) and v.is_floating_point()]
    wide = torch.float32 if any(v.dtype.itemsize < 4 for v in floats) else torch.float64
    ids = {id(v) for v in floats}
    widened = {n: v.to(wide) if id(v) in ids else v for n, v in args.items()}
    own = getattr(module, op.name)
    function = own.equals or own.reference
    return lambda: function(**widened)


def judge(
    contenders: Mapping[str, Call], op: Op, want: Call, rounded: Call | None = None
) -> dict[str, Comparison]:
    """Judges the result of each contender.

    Each may have as large an error as the lines of the spec have in the operands' own types, and ours as large a one as torch's.
    """
    with tf32(False):
        expected = want()
    verdicts: dict[str, Comparison] = {}
    for name in sorted(contenders, key=lambda n: n == "ours"):
        mine = name == "ours"
        beside = min((v.error for v in verdicts.values() if v.ok), default=0.0) if mine else 0.0
        try:
            got = on_poison(contenders[name])
            may_be_tf32 = not mine or "tf32" in words_of(op)
            verdicts[name] = compare(got, expected, may_be_tf32, beside)
            if not verdicts[name].ok and rounded is not None:
                beside = max(beside, compare(rounded(), expected).error)
                verdicts[name] = compare(got, expected, may_be_tf32, beside)
        except (
            Exception
        ) as error:  # a refusal of torch's, or a kernel that does not run, is a result
            first = str(error).strip().splitlines()[:1]
            verdicts[name] = Comparison(float("nan"), f"{type(error).__name__}: {''.join(first)}")
    return verdicts
