"""Every stage of the compilation as text: what `tritongen show` prints.

    stage_text(text, "specs/softmax.op", "plan")

Not here: the stages themselves (`pipeline.py`).
"""

from __future__ import annotations

import ast as python
import pprint
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from tritongen import pipeline
from tritongen.check import check, read
from tritongen.ir import nodes as ir
from tritongen.ir.print import print_op
from tritongen.ir.print_poly import NotWritable
from tritongen.kernel.nodes import Kernel
from tritongen.kernel_text import print_kernel
from tritongen.schedule.plan import Plan, Step


class CannotShow(Exception):
    """The stage does not exist for this spec; the message says why."""


def stage_text(
    text: str,
    name: str,
    stage: str,
    grad: bool = False,
    arch: str = "sm_90",
    sizes: Mapping[str, int] | None = None,
    origin: str | None = None,
) -> str:
    """One of ast, ir, plan, kernel, source, ptx of a file of ops, or of their derived gradients."""
    if grad:
        text = gradient_text(text, name)
    if stage == "ast":
        return "\n\n".join(pprint.pformat(i, width=100) for i in read(text, name).items)
    if stage == "ir":
        return "\n".join(print_op(op) for c in check(read(text, name)) for op in c.typings)
    written = stage == "source" and not grad
    built = pipeline.build(text, name, origin=origin, gradients=written)
    if stage == "plan":
        return "\n\n".join(plan_text(p) for plans in built.plans.values() for p in plans)
    if stage == "kernel":
        return _lowered(built)
    if stage == "source":
        return built.source
    return "\n\n".join(ptx_texts(built, arch, sizes or {}))


def gradient_text(text: str, name: str) -> str:
    """The backward ops of a file, in the language; before each what runs for it in the op's place, where it keeps values."""
    from tritongen.autodiff import with_gradient

    ops = [(op, c.typings) for c in check(read(text, name)) for op in c.typings if _is_float(op)]
    if not ops:
        raise CannotShow("no op here has a floating operand to differentiate")
    pairs = ((op, *with_gradient(op, typings)) for op, typings in ops)
    return "\n".join(
        _printed(each)
        for op, forward, back in pairs
        for each in ((back,) if forward is op else (forward, back))
    )


def _printed(back: ir.Op) -> str:
    try:
        return print_op(back)
    except NotWritable as error:
        raise CannotShow(f"`{back.name}` has no text: {error}; name the dims instead") from None


def _is_float(op: ir.Op) -> bool:
    return any(ir.kind_of(t.dtype, op) == "float" for t in op.tensors)


def _lowered(built: pipeline.Module) -> str:
    """The kernels that are statements before they are Triton."""

    def text(own: Kernel, plan: Plan) -> str:
        try:
            return print_kernel(own, plan.inner, plan.scratch)
        except NotWritable as error:
            return f"# {own.name} has no text: {error}"

    out = [
        text(kernel.kernel, plan)
        for plans in built.plans.values()
        for plan in plans
        for step in plan.steps
        for kernel in step.kernels
        if kernel.kernel is not None
    ]
    if not out:
        raise CannotShow(
            "no kernel here is lowered to statements: see the templates of `--stage plan`"
        )
    return "\n\n".join(out)


# ---- kernels ------------------------------------------------------------------------------------
def kernels(source: str) -> Iterator[tuple[str, int, str]]:
    """(name, first line counted from 1, text) of each kernel of a generated module."""
    lines = source.splitlines()
    for node in python.parse(source).body:
        if isinstance(node, python.FunctionDef) and node.decorator_list:
            first = node.decorator_list[0]
            if "triton.jit" in python.unparse(node.decorator_list[-1]):
                yield node.name, first.lineno, "\n".join(lines[first.lineno - 1 : node.end_lineno])


# ---- plans --------------------------------------------------------------------------------------
def plan_text(plan: Plan) -> str:
    lines = [f"op {plan.op.name}"]
    for nest in plan.scratch:
        lines.append(f"  scratch {nest.name}: {nest.dtype}[{', '.join(map(str, nest.dims))}]")
    if plan.chunks is not None:
        body, behind = (
            ", ".join(s.name for s in p.steps) for p in (plan.chunks.body, plan.chunks.behind)
        )
        lines.append(f"  for each chunk of {plan.chunks.size}: {body}; behind them: {behind}")
    for step in plan.steps:
        lines += [f"  {line}" for line in _step_lines(step)]
    return "\n".join(lines)


def _step_lines(step: Step) -> list[str]:
    lines = [
        f"step {step.name}: {step.skeleton}, since {step.why}; stores {', '.join(step.stores)}"
    ]
    lines += [f"  {name} = {value}" for name, value in step.facts]
    for variant in step.variants:
        when = "else" if variant.when == "True" else f"if {variant.when}"
        if variant.estimate is not None:
            when = f"{variant.when}, by estimate" if variant.when != "True" else "by estimate"
        lines.append(f"  {variant.name}, {when}: {variant.why}")
        lines += [f"    {name} = {rule}" for name, rule in variant.config]
        lines += [f"    {one.kernel}[{', '.join(one.grid)}]" for one in variant.launches]
        lines += [
            f"    scratch {name}: {dtype}[{', '.join(shape)}]"
            for name, dtype, shape in variant.scratch
        ]
    return lines


# ---- machine code -------------------------------------------------------------------------------
def ptx_texts(built: pipeline.Module, arch: str, sizes: Mapping[str, int]) -> list[str]:
    from tritongen import trace
    from tritongen.runtime.load import load_text

    try:
        trace.target(arch)
    except ValueError as error:
        raise CannotShow(str(error)) from None
    module = load_text(built.name, built.raw)
    out = []
    for plans in built.plans.values():
        op = plans[0].op
        _check_sizes(op, sizes)
        try:
            calls = trace.trace(module, op.name, example_arguments(op, sizes))
        except (ValueError, RuntimeError) as error:  # torch's own, where sizes overflow
            raise CannotShow(f"{error}: give sizes that fit, as `--size D=1024`") from None
        if not calls.launches:
            out.append(f"// {op.name}: nothing is launched: the result is empty")
        for launch in calls.launches:
            config = ", ".join(f"{k}={v}" for k, v in launch.config.items())
            head = f"// {launch.kernel.fn.__name__}[{', '.join(map(str, launch.grid))}] {config}"
            out.append(f"{head}\n{_assembly(launch, arch)}")
    return out


def _check_sizes(op: ir.Op, sizes: Mapping[str, int]) -> None:
    from tritongen.ir.algebra import symbols

    known = {name for t in op.tensors for d in t.dims for name in symbols(d)}
    known |= {c.name for c in op.constants if c.dtype == "int"}
    for name in sizes:
        if name not in known:
            raise CannotShow(f"{op.name} has no size {name}, but {', '.join(sorted(known))}")


def _assembly(launch: Any, arch: str) -> str:
    from triton.runtime.errors import PTXASError

    from tritongen import trace

    try:
        with redirect_stdout(StringIO()):  # where ptxas fails, Triton prints all that it was given
            return trace.ptx(launch, arch)
    except PTXASError as error:
        fatal = [line for line in str(error).splitlines() if "fatal" in line or "error" in line]
        raise CannotShow(f"{arch}: {(fatal or ['ptxas failed'])[-1].strip()}") from None
    except RuntimeError as error:
        raise CannotShow(str(error)) from None


def example_arguments(op: ir.Op, sizes: Mapping[str, int], default: int = 64) -> dict[str, Any]:
    """Meta tensors and numbers for one call; sizes that are not given are `default`."""
    import torch

    from tritongen.ir.algebra import evaluate, symbols
    from tritongen.ir.binding import operand_dtype, type_arguments

    numbers = {"int": 1, "float": 1.0, "bool": False}
    values: dict[str, Any] = {}
    known = {name: default for t in op.tensors for d in t.dims for name in symbols(d)} | dict(sizes)
    for c in op.constants:
        values[c.name] = numbers[c.dtype] if c.default is None else c.default
        if c.dtype == "int":
            values[c.name] = known[c.name] = sizes.get(c.name, values[c.name])
    for scalar in op.scalars:
        values[scalar.name] = 1 if scalar.default is None else scalar.default
    for define in op.defines:
        known[define.name] = int(evaluate(define.value, known))
    dtypes = {p.name: "f32" if "f32" in p.dtypes else p.dtypes[0] for p in op.typarams}
    for t in op.tensors:
        shape = [int(evaluate(d, known)) for d in t.dims]
        dtype = operand_dtype(t.dtype, dtypes)
        values[t.name] = torch.empty(shape, dtype=dtype, device="meta")
    return values | type_arguments(op, dtypes)
