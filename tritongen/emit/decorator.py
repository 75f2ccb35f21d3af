"""Prints the arguments of an op's decorator: how f32 is multiplied, how its gradient is called, what functorch may do.

    @runtime.op("specs/softmax.op", ..., backward=runtime.Backward("softmax_backward", wrt=("x",), outputs=("y",)))

Input: an op's plans. Output: the arguments as text. `runtime/registry.py` and `runtime/gradients.py` explain them.
"""

from __future__ import annotations

from tritongen.emit.op_plans import OpPlans
from tritongen.emit.quoted import quoted
from tritongen.emit.wrapper import parameters
from tritongen.ir import nodes as ir
from tritongen.ir.batches import batched, by_itself, reduced_alone
from tritongen.ir.linear import linear_in


def asks_of(item: OpPlans) -> tuple[str, ...]:
    """The questions of a call about products of f32. A backward uses the answers of its forward.

    So an op without such products asks for its backward, as attention of half types does.
    """
    precisions = (step.precision for plan in item.plans for step in plan.steps)
    asked = tuple(dict.fromkeys(filter(None, precisions)))
    return asked or (asks_of(item.backward) if item.backward else ())


def options(item: OpPlans, asks: tuple[str, ...]) -> str:
    """What else the decorator is told."""
    op = item.typings[0]
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
    return f"no_gradient={quoted(item.no_gradient)}"


def alone(item: OpPlans, asks: tuple[str, ...]) -> list[str]:
    """The decorators of an op in a standalone module."""
    found = [f"runtime.{told}"] if (told := differentiable(item)) else []
    if item.autotune:  # a call that Triton measures is not like other calls
        found.append("runtime.resolved")
    else:
        more = ["runtime.f32_precision", *map(repr, asks)] if asks else []
        kernels = (k for plan in item.plans for step in plan.steps for k in step.kernels)
        if any(k.tiles or k.stored or k.boxes for k in kernels):  # it makes descriptors
            more.append("tiles=runtime.tiles_like")
        found.append(f"runtime.replayed({', '.join(more)})")
    return found


def differentiable(item: OpPlans) -> str:
    """What tells autograd of it; "" where that asks nothing: of integers."""
    op, back = item.typings[0], item.backward
    if item.forward is not None:
        return f'differentiable_by("{item.forward.name}", {len(op.outputs)})'
    if told := backward(item):
        own = parameters(back.typings[0]) if back else []
        takes = (*(name for name, _, _ in own), *(back.flags.values() if back else ()))
        fit = ", fit=runtime.fitted" if "before=" in told else ""
        views = any(dims for _, dims in item.handed_on.values())
        expand = ", expand=runtime.expanded" if views else ""
        return f"differentiable({told}, takes={takes}{fit}{expand})"
    floats = any(ir.kind_of(o.dtype, op) == "float" for o in op.outputs)
    return f"differentiable({no_gradient(item)})" if floats and item.no_gradient else ""


def backward(item: OpPlans) -> str:
    """How the op's gradient is called, as `runtime.Backward` takes it; "" where there is none."""
    op, back = item.typings[0], item.backward
    if back is None and not item.handed_on:
        return ""
    wrt = tuple(o.name.removeprefix("d") for o in back.typings[0].outputs) if back else ()
    told = f'"{back.name if back else ""}", wrt={wrt}, outputs={tuple(o.name for o in op.outputs)}'
    if back and (flags := tuple(back.flags.values())):
        told += f", flags={flags}"
    given = {**dict.fromkeys(wrt), **item.handed_on}
    places = ((t, t.dims.index(ir.BATCH_SIZE)) for t in batched(op) if t.name in given)
    own = reduced_alone(op)
    # Autograd itself sums over missing leading dims, but adds no f8.
    before = {t.name: at for t, at in places if at or t.name in own or ir.may_be_f8(t.dtype, op)}
    told += f", before={before}" if before else ""
    told += f", alone={tuple(n for n in before if n in own)}" if own & before.keys() else ""
    if item.handed_on:
        told += f", handed_on={ {name: of for name, (of, _) in item.handed_on.items()} }"
    along = {name: dims for name, (_, dims) in item.handed_on.items() if dims}
    return f"{told}, along={along}" if along else told


def batch(op: ir.Op) -> str:
    """The position of the batch dims, as `runtime.Batch` takes it. "" if batch elements depend on each other."""
    if not by_itself(op):
        return ""
    operands = {
        t.name: (at := t.dims.index(ir.BATCH_SIZE), len(t.dims) - 1 - at) for t in batched(op)
    }
    return f", batch=runtime.Batch({operands}, {tuple(o.dims.index(ir.BATCH_SIZE) for o in op.outputs)})"
