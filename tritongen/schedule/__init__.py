"""Turns nests into a `Plan`: passes, canonical form, groups, steps. Every decision is data, with its reason.

`plan_op(op)` is the whole of it; `only="nest"` plans every step as the general nest, which the
tests compare all others with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, indices, size
from tritongen.ir.batches import own_batches
from tritongen.ir.bounds import facts_of
from tritongen.ir.forms import stable, stored, truncating, undetached
from tritongen.ir.free import tensors_read
from tritongen.ir.integers import in_32_bits
from tritongen.ir.reads import switch_of
from tritongen.ir.verify import verify
from tritongen.schedule.apart import apart
from tritongen.schedule.aside import names_of
from tritongen.schedule.canonical import canonical
from tritongen.schedule.chunks import Cut, cut
from tritongen.schedule.classes import CLASSES
from tritongen.schedule.classes.chains import by_rows, with_copies, with_seen
from tritongen.schedule.classes.contraction import product_or_reason
from tritongen.schedule.classes.contraction_operands import may_be_f32, maybe_f8
from tritongen.schedule.classes.picked import with_picked
from tritongen.schedule.classes.segments import with_ends
from tritongen.schedule.classes.weighted import with_weighted
from tritongen.schedule.digits import Number, numbers_in, split_all
from tritongen.schedule.factored import factored
from tritongen.schedule.group import group
from tritongen.schedule.held import with_held
from tritongen.schedule.means import with_means, with_second_looks
from tritongen.schedule.members import Group, Virtual, is_reducer
from tritongen.schedule.of_two import of_two
from tritongen.schedule.placed import (
    verify_grids,
    verify_order,
    verify_places,
    verify_scratch,
    verify_stores,
)
from tritongen.schedule.plan import Chunks, Plan, Step
from tritongen.schedule.row_totals import with_row_totals
from tritongen.schedule.settled import settled
from tritongen.schedule.stored_factors import with_stored_factors

# Passes before planning. Each returns an op with the same meaning, which is verified.
PASSES = undetached, stable, truncating, of_two, stored, factored, in_32_bits


def plan_op(
    op: ir.Op,
    name: str | None = None,
    only: str | None = None,
    inner: ir.Op | None = None,
    aside: Mapping[str, str] = MappingProxyType({}),
    unstored: frozenset[str] = frozenset(),
) -> Plan:
    """The plan of one verified op. `inner`: the op as it is evaluated, with the names that are used inside.

    `aside`: the names that were changed there. Steps are still called by them. `unstored`: lines that the
    op whose gradient this is never stores: what follows from them is stored in chunks, where it is large.
    """
    called = {new: old for old, new in aside.items()}
    own, checked, inner = name or op.name, op, inner or own_batches(op)[0]
    op = passed(inner)
    facts = facts_of(op)
    nests, groups = best_form(op, facts, only)
    outputs = {o.name for o in op.outputs}
    nests, groups = with_means(nests, groups, facts, outputs)
    dims = {t.name: t.dims for t in (*op.tensors, *op.outputs)} | {
        n.name: n.dims for n in nests if n.name not in outputs
    }
    verify_order(own, groups)
    steps, scratch = [], []
    bools = frozenset({"bool", *(p.name for p in op.typarams if p.kind == "bool")})
    of_op: dict[str, Any] = dict(split=split_dtypes(op), maybe_f8=maybe_f8(op), bools=bools)
    of_op["doubles"] = ir.may_compute_f64(op)
    for k, g in enumerate(groups):
        others = [n for other in groups if other is not g for n in other.nests]
        read = {t for n in others for t in tensors_read(n.body)}
        # Pointwise temporaries are computed by each reader.
        stored = outputs | read - {n.name for n in others}
        stores = tuple(n.name for n in g.nests if n.name in stored)
        shown = (n for own in (outputs - set(op.kept), outputs) for n in stores if n in own)
        first = next(shown, stores[0] if stores else str(k))  # a result, not what is kept beside it
        first = called.get(first, first)
        step = own if len(groups) == 1 else f"{own}_{first}"
        # A scan holds an extreme for each place.
        told = replace(g, nests=g.nests if g.kind == "scan" else with_held(g.nests), **of_op)
        made = CLASSES[g.kind].make(step, told, stores, dims, facts)
        verify_places(own, made, told.nests, dims, facts)
        verify_grids(own, made)
        verify_stores(own, made)
        verify_scratch(own, made)
        if op.gradient == "none" and made.skeleton in ("pointwise", "rows") and not made.orders:
            made = replace(made, optional=alike_outputs(made, outputs, dims))
        made = settled(made, op)
        reason = no_product(g, nests, facts)
        steps.append(replace(made, precision=precision_of(op, g), no_product=reason))
        scratch += [n for n in g.nests if n.name in stores and n.name not in outputs]
    names = frozenset(aside.get(name, name) for name in unstored)
    if only is None and (found := cut(inner, [n.name for n in scratch], names)):
        if whole := in_chunks(found, own, checked, aside):
            return whole
    reasoned = [
        replace(step, apart=tuple((steps[j].name, why) for j, why in reasons))
        for step, reasons in zip(steps, apart(groups), strict=True)
    ]
    defines = (*(d for g in groups for d in g.defines), *(d for s in steps for d in s.defines))
    return Plan(own, checked, inner, tuple(reasoned), tuple(scratch), nests, defines)


def alike_outputs(step: Step, outputs: set[str], dims) -> tuple[str, ...]:
    """The largest results of a step of a gradient, if there are several of one shape.

    A call may ask for some of them only: a loss rarely needs the gradient of its target. Kernels store a result only if its pointer
    is not None, and the compiler removes what nothing stores.
    """
    most = max((len(dims[s]) for s in step.stores), default=0)
    found = tuple(s for s in step.stores if len(dims[s]) == most)
    if len(found) < 2 or not all(s in outputs and dims[s] == dims[found[0]] for s in found):
        return ()
    shown = any(dims[t] == dims[found[0]] for t in step.touched if t not in step.stores)
    return found if shown or len(found) == len(step.stores) else ()


def in_chunks(found: Cut, own: str, checked: ir.Op, aside: Mapping[str, str]) -> Plan | None:
    """The plan of an op that runs in chunks: the plan of one, and of what is behind them.

    None where a step fills its sums with zeros first, which hold the sums of the chunks before, where a chunk stores
    nothing that is large, or where a kernel sees a part of a result in other dims, which a part in memory cannot have.
    """
    op, ops = found
    last = ops.behind.outputs[0].name
    called = {new: old for old, new in aside.items()}
    names = f"{own}_chunk", f"{own}_{called.get(last, last)}"
    for each in (op, ops.body, ops.behind):
        verify(each)
    body, behind = (
        plan_op(each, name, None, each, aside)
        for each, name in zip((ops.body, ops.behind), names, strict=True)
    )
    sums = {n.name for n in ops.sums}
    # A kernel reads each sum that it adds to, so none of these may be missing.
    kept = (tuple(s for s in step.optional if s not in sums) for step in body.steps)
    of_chunk = (replace(s, optional=o) for s, o in zip(body.steps, kept, strict=True))
    body = replace(body, steps=tuple(of_chunk))
    zeroed = {t for step in body.steps for v in step.variants for _, t in v.zeroed}
    cut_dim = size(ops.size)
    large = any(cut_dim in n.dims for n in body.scratch)
    if zeroed & sums or not large or _is_torn(cut_dim, body):
        return None
    scratch = (*body.scratch, *ops.sums, *behind.scratch)
    nests, defines = (*body.nests, *behind.nests), (*body.defines, *behind.defines)
    steps = (*body.steps, *behind.steps)
    chunks = Chunks(ops.size, ops.parts, ops.first, ops.whole, ops.count, ops.sums, body, behind)
    return Plan(own, checked, op, steps, scratch, nests, defines, chunks)


def _is_torn(cut_dim: Poly, body: Plan) -> bool:
    """Whether a kernel counts the dim of a result that is cut, and dims in front of it, as one."""
    views = [v for s in body.steps for k in s.kernels for v in k.views]
    results = {o.name for o in body.inner.outputs}
    for n in (n for n in body.nests if n.name in results and cut_dim in n.dims):
        own = indices(n.coords[n.dims.index(cut_dim)])
        runs = (run for v in views if v.tensor == n.name for run in v.runs)
        if any(own & {*run[1:]} for run in runs):
            return True
    return False


def passed(op: ir.Op) -> ir.Op:
    """The op behind all PASSES."""
    for each in PASSES:
        op = each(op)
        verify(op)
    return op


def split_dtypes(op: ir.Op) -> frozenset[str]:
    """The dtypes of the op that may be f32, where products of f32 are three of TF32."""
    if op.precision not in ("", "tf32x3"):
        return frozenset()
    return frozenset({"f32", *(p.name for p in op.typarams if "f32" in p.dtypes)})


def precision_of(op: ir.Op, group: Group) -> str:
    """What decides how products of f32 are computed. Empty if the group has none."""
    switches = sorted({switch_of(head.fold) for head in group.heads if may_be_f32(head, op)})
    return (op.precision or switches[0]) if switches else ""


def no_product(group: Group, nests: ir.Nests, facts) -> str:
    """Why the first sum of several factors in a group is not computed by tensor cores."""
    if group.product is not None or group.kind == "fused":
        return ""
    virtual = Virtual(n for n in nests if not is_reducer(n))
    found = (product_or_reason(n, virtual, facts) for n in group.nests if is_reducer(n))
    reasons = [r if isinstance(r, str) else "it runs with lines of another kind" for r in found]
    return next(filter(None, reasons), "")


def best_form(op: ir.Op, facts, only: str | None):
    """Canonical nests and their groups. Digits are split only where that finds a faster class. Reads of single elements become
    sums, weighted products are summed apart, and values are copied, only where fewer lines are stored then.
    """
    lines = with_second_looks(canonical(op, facts), names_of(op), facts)
    lines = with_ends(with_row_totals(lines, names_of(op))) if only is None else lines
    found = form_of(op, lines, facts, only)
    for change in (with_picked, with_weighted, with_copies) if only is None else ():
        if (changed := change(op, lines, facts)) != lines:
            told = form_of(op, changed, facts, only)
            if _slowness(told[1])[:2] < _slowness(found[1])[:2]:
                lines, found = changed, told
    return found


def form_of(op: ir.Op, lines: ir.Nests, facts, only: str | None):
    """The form of these lines, and its groups."""
    whole = by_rows(op, lines, facts)
    groups = group(op, whole, facts, only)
    if only is None:
        if (seen := with_seen(op, whole, facts)) != whole:
            told = group(op, seen, facts)
            others = (n for g in told if g.kind != "fused" for n in g.nests)
            calls = (e for n in others for e in ir.walk(n.body) if isinstance(e, ir.Call))
            # No other kernel has a factor that says which of its elements some row has.
            if _slowness(told) < _slowness(groups) and all(e.fn != "seen" for e in calls):
                whole, groups = seen, told
        own, names = with_stored_factors(op, whole, groups)
        if names:
            told = group(op, own, facts, apart=names)
            if not any(names & {n.name for n in g.nests} for g in told if g.kind == "fused"):
                whole, groups = own, told
    return with_digits(op, whole, groups, facts, only)


def with_digits(op: ir.Op, whole: ir.Nests, groups, facts, only: str | None):
    """The form with the digits of numbers, where that is faster.

    In a fused kernel, a tile of a low digit is no larger than that, as a page is. Such a number stays whole if that is no slower.
    """

    def form(stay: frozenset[Number]):
        nests = by_rows(op, split_all(whole, facts, names_of(op), stay), facts)
        return nests, group(op, nests, facts, only)

    numbers = numbers_in(whole, facts)
    found = form(frozenset()) if numbers else (whole, groups)
    if not _slowness(found[1]) < _slowness(groups):
        return whole, groups
    tiles = {b.hi for g in found[1] if g.kind == "fused" for b in (*g.row, *g.col)}
    stay = frozenset[Number]()
    for number in numbers:
        if number[1] in tiles:
            fewer = form(stay | {number})
            if _slowness(fewer[1]) <= _slowness(found[1]):
                found, stay = fewer, stay | {number}
    return found


def _slowness(groups) -> tuple[int, ...]:
    """Groups without a class of their own, lines with values that are stored, sums that are no product of tiles, groups in all."""
    general = sum(g.kind in ("box", "nest") for g in groups)
    tiled = sum(g.products for g in groups if g.product is not None)
    inside = {n.line for g in groups for n in g.nests if n.name in g.inside}
    return general, -len(inside), -tiled, len(groups)
