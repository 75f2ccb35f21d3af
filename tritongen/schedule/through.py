"""An op without kernels of its own: it runs those of the op that keeps statistics for its gradient, and drops these.

`torch.native_group_norm` and FlashAttention store statistics in each call, too: a number for each row costs next to
nothing, and both ops are compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.free import free_indices, tensors_read
from tritongen.schedule.plan import Plan, Step


def through(plan: Plan, keeping: Plan) -> Plan | None:
    """The plan of an op by the steps of the one that keeps values, which are scratch then. None if it would do more.

    It does more if its steps differ, if it folds something else, or if it keeps the result of a product.
    """
    op, kept = keeping.inner, {*keeping.op.kept}
    if [*map(_way, plan.steps)] != [*map(_way, keeping.steps)] or _folds(plan) != _folds(keeping):
        return None
    names = [o.name for k, o in zip(keeping.op.outputs, op.outputs, strict=True) if k.name in kept]
    nests = {n.name: n for n in keeping.nests}
    if _called(plan.inner) != _called(op) - {*names} or any(_is_product(n, nests) for n in names):
        return None
    scratch = (*(nests[name] for name in names), *keeping.scratch)
    return replace(plan, steps=keeping.steps, scratch=scratch, nests=keeping.nests)


def _called(op: ir.Op) -> set[str]:
    """What its kernels call operands and results."""
    return {p.name for p in (*op.params, *op.outputs)}


def _way(step: Step) -> tuple:
    """What a step does, whatever its values are called."""
    variants = ((v.name, v.when, v.requires, v.config, v.estimate) for v in step.variants)
    return step.skeleton, step.facts, (*variants,), (*(k.skeleton for k in step.kernels),)


def _folds(plan: Plan) -> int:
    return sum(isinstance(n.body, ir.Reduce) for n in plan.nests)


def _is_product(name: str, nests: Mapping[str, ir.Nest]) -> bool:
    """Whether a value is a sum of products that has an index of each factor alone: as large as a result."""
    nest = nests[name]
    match nest.body:
        case ir.Reduce("sum", _, _, ir.Call("mul", sides)):
            return all(nest.over - free_indices(side) for side in sides)
        case ir.Reduce():
            return False
    return any(_is_product(t, nests) for t in tensors_read(nest.body) & nests.keys())
