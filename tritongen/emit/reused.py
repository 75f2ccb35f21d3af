"""Finds steps that run the launch of an earlier step of their module, with other operands.

    launch_matmul(dy, b.mT, da)    # da[m, k] = sum[n](dy[m, n] * b[k, n]) is y[m, n] = sum[k](a[m, k] * b[k, n])

Input: an op with those behind it. Output: the same, where such steps have a `Reuse` and the names of the kernels that they run.

A launch takes operands of any sizes and strides. So it also computes a step whose lines are the same with other names for
tensors, indices and sizes, and with the dims of operands in another order. Both steps choose by the same rules.

An op and what keeps values for its gradient may have a step in common. Its launch is called with the same operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

from tritongen.emit.choose import choose_view
from tritongen.emit.op_plans import OpPlans
from tritongen.emit.text import bare
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices, symbols
from tritongen.ir.batches import broadcasting
from tritongen.ir.free import all_binders, reads
from tritongen.schedule.plan import Plan, Reuse, Step

Order = tuple[int, ...]
Named = tuple[ir.Tensor | ir.Nest, ...]


@dataclass(frozen=True, slots=True)
class _Names:
    """What the names of one step are in another one. For a tensor also the order of its dims there."""

    indices: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, tuple[str, Order]] = field(default_factory=dict)


Ways = Callable[[Any, Any, _Names], Iterator[_Names]]


def with_reuse(item: OpPlans) -> OpPlans:
    """The op, and those behind it."""
    known: list[tuple[Plan, Step]] = []
    item = _each_plan(item, lambda plan: _looked_up(plan, known))
    steps = (s for own in item.printed for plan in own.plans for s in plan.steps)
    reused = {s.reuses.step for s in steps if s.reuses}

    def marked(plan: Plan) -> Plan:
        return replace(plan, steps=tuple(replace(s, reused=s.name in reused) for s in plan.steps))

    return _each_plan(item, marked) if reused else item


def _each_plan(item: OpPlans, change: Callable[[Plan], Plan]) -> OpPlans:
    """The op with its plans changed, and those behind it, in the order in which they are printed."""
    if not item.through:  # else its own steps are not printed
        item = replace(item, plans=tuple(map(change, item.plans)))
    if item.forward is not None:
        return replace(item, forward=_each_plan(item.forward, change))
    if item.backward is not None:
        return replace(item, backward=_each_plan(item.backward, change))
    return item


def _looked_up(plan: Plan, known: list[tuple[Plan, Step]]) -> Plan:
    """The plan with its reuses. `known`: the steps before it. Its own are added."""
    if plan.chunks is not None:
        return plan
    steps, here = [], _dims(plan)
    for step in plan.steps:
        # A tensor with the name of a launch would hide it.
        free = (before for before in known if f"launch_{before[1].name}" not in here)
        ways = (_repeat(*b, plan, step) or _reuse(*b, plan, step) for b in free)
        reuse = next(filter(None, ways), None)
        if reuse is None:
            known.append((plan, step))
        steps.append(step if reuse is None else _renamed(step, reuse))
    return replace(plan, steps=tuple(steps))


def _renamed(step: Step, reuse: Reuse) -> Step:
    names = dict(zip((k.name for k in step.kernels), reuse.kernels, strict=True))
    lowered = (k.kernel and replace(k.kernel, name=names[k.name]) for k in step.kernels)
    kernels = tuple(
        replace(k, name=names[k.name], kernel=own)
        for k, own in zip(step.kernels, lowered, strict=True)
    )
    variants = tuple(
        replace(v, launches=tuple(replace(x, kernel=names[x.kernel]) for x in v.launches))
        for v in step.variants
    )
    return replace(step, kernels=kernels, variants=variants, reuses=reuse)


def _repeat(plan: Plan, first: Step, other: Plan, second: Step) -> Reuse | None:
    """How the launch of the first step computes the second one, if they differ by name alone and their ops take the same operands."""
    a, b = plan.inner, other.inner
    few = (a.params, a.facts, a.typarams, a.outputs, plan.defines)
    if few != (b.params, b.facts, b.typarams, b.outputs[: len(a.outputs)], other.defines):
        return None
    # A step that is alone takes all operands and outputs.
    if len(first.kernels) != len(second.kernels) or 1 in (len(plan.steps), len(other.steps)):
        return None
    reuse = Reuse(first.name, tuple(k.name for k in first.kernels), ())
    own = replace(_renamed(second, reuse), name=first.name, apart=first.apart, reuses=None)
    stored = ({n: t for n, t in _stored(p).items() if n in first.touched} for p in (plan, other))
    same = own == first and next(stored) == next(stored)
    # A launch finds the batch shape in a result. If its own is scratch, it takes another one for that.
    merged = ({n.name for n in p.scratch if ir.BATCH_SIZE in n.dims} for p in (plan, other))
    same = same and len({frozenset(names & {*first.touched}) for names in merged}) == 1
    return reuse if same and parameters(plan, first) == parameters(other, first) else None


def _reuse(plan: Plan, first: Step, other: Plan, second: Step) -> Reuse | None:
    """How the launch of the first step computes the second one, if it does."""
    alike = [k.skeleton for k in first.kernels] == [k.skeleton for k in second.kernels]
    alike = alike and first.precision == second.precision and _types(plan) == _types(other)
    if not alike or not _is_general(plan, first) or len(second.stores) > 1:
        return None
    theirs, own = first.kernels[0].nests, second.kernels[0].nests
    dims, here = _dims(plan), _dims(other)
    for names in _all_same(theirs, own, _Names(), _same_nest):
        given = tuple((t, *names.tensors[t]) for t in parameters(plan, first))
        # A result is allocated with its dims in order.
        straight = all(o == tuple(sorted(o)) for t, _, o in given if t in first.stores)
        if straight and _is_whole(theirs, dims) and _is_whole(own, here):
            if choose_view(replace(second, name=first.name)) == choose_view(first):
                return Reuse(first.name, tuple(k.name for k in first.kernels), given)
    return None


def parameters(plan: Plan, step: Step) -> tuple[str, ...]:
    """The tensors that the launch of a step takes, in order. What is kept for a gradient is a result, and else scratch."""
    stored: Named = (*plan.inner.tensors, *plan.scratch, *plan.inner.outputs)
    return tuple(t.name for t in stored if t.name in step.touched)


def _is_general(plan: Plan, step: Step) -> bool:
    """Whether the launch of a step takes nothing but its tensors, of any sizes: no two dims are told to be of one size."""
    op, touched = plan.inner, {*step.touched}
    tensors = {t.name for t in (*op.tensors, *op.outputs)}
    if len(plan.steps) == 1 and (op.scalars or op.constants or tensors != touched):
        return False
    own = step.kernels[0].nests
    said = {n.dtype for n in own}
    said |= {e.dtype for n in own for e in ir.walk(n.body) if isinstance(e, ir.Cast)}
    said &= {p.name for p in op.typarams}
    # The launch reads its compute type from these, or from a tensor that the forward kept if there are none (`computes_wide`).
    wide = {t.dtype for t in op.tensors if ir.may_be_f64(t.dtype, op)}
    said |= wide or ({"compute"} if ir.may_compute_f64(op) else set())
    # A launch finds the batch dims in the shape of a result, and may take one only for that.
    merged = {t for t, dims in _dims(plan).items() if ir.BATCH_SIZE in dims} & touched
    fewer, results = ({t.name for t in ts} for ts in (broadcasting(op), op.outputs))
    if merged & fewer or merged and not merged & results:
        return False
    if len(step.stores) > 1 or not said <= {t.dtype for t in op.tensors if t.name in touched}:
        return False
    sizes = [bare(hi) for hi in _extents(step.kernels[0].nests).values()]
    told = {c.name for c in op.constants}
    told |= {f.name for f in (*op.defines, *plan.defines)}
    told |= {s for f in op.requires for p in (f.left, f.right) for s in symbols(p)}
    return len({*sizes}) == len(sizes) and not {None, *told} & {*sizes}


def _types(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {p.name: p.dtypes for p in plan.inner.typarams}


def _stored(plan: Plan) -> dict[str, tuple[str, tuple[Poly, ...]]]:
    stored: Named = (*plan.nests, *plan.inner.tensors, *plan.inner.outputs)
    return {t.name: (t.dtype, t.dims) for t in stored}


def _dims(plan: Plan) -> dict[str, tuple[Poly, ...]]:
    return {name: dims for name, (_, dims) in _stored(plan).items()}


def _extents(nests: Sequence[ir.Nest]) -> dict[str, Poly]:
    return {b.index: b.hi for b in all_binders(*nests)}


def _is_whole(nests: Sequence[ir.Nest], dims: Mapping[str, tuple[Poly, ...]]) -> bool:
    """Whether each index walks all of each dim in which it stands."""
    extents = {index(i): hi for i, hi in _extents(nests).items()}
    places = [(n.name, n.coords) for n in nests]
    places += [(r.tensor, r.coords) for n in nests for r in reads(n.body)]
    own = {n.name: n.dims for n in nests}
    return all(b.lo == Poly() for b in all_binders(*nests)) and all(
        tuple(extents.get(c) for c in coords) == {**dims, **own}[t] for t, coords in places
    )


# ---- lines that are the same with other names -----------------------------------------------------
def _same_nest(a: ir.Nest, b: ir.Nest, names: _Names) -> Iterator[_Names]:
    for found in _same(a.body, b.body, names) if a.dtype == b.dtype else ():
        yield from _same_place((a.name, a.coords), (b.name, b.coords), found)


def _same(a: ir.Expr, b: ir.Expr, names: _Names) -> Iterator[_Names]:
    match a, b:
        case ir.Read(fill=None), ir.Read(fill=None) if a.dtype == b.dtype:
            yield from _same_place((a.tensor, a.coords), (b.tensor, b.coords), names)
        case ir.Cast(arg, dtype), ir.Cast(other, same) if dtype == same:
            yield from _same(arg, other, names)
        case ir.Reduce(op, guards=()), ir.Reduce(same, guards=()) if op == same:
            if a.dtype == b.dtype and len(a.binders) == len(b.binders) and not a.is_place:
                yield from _same(a.body, b.body, names)
        case ir.Call(), ir.Call() if replace(a, args=()) == replace(b, args=()):
            orders = [b.args, b.args[::-1]] if a.fn in ("mul", "add") else [b.args]
            for args in orders:
                yield from _all_same(a.args, args, names, _same)
        case ir.Const(), ir.Const() if a == b:
            yield names


def _all_same(
    first: Sequence[Any], second: Sequence[Any], names: _Names, same: Ways
) -> Iterator[_Names]:
    if len(first) == len(second) == 0:
        yield names
    elif first and second:
        for found in same(first[0], second[0], names):
            yield from _all_same(first[1:], second[1:], found, same)


def _same_place(
    a: tuple[str, tuple[Poly, ...]], b: tuple[str, tuple[Poly, ...]], names: _Names
) -> Iterator[_Names]:
    """Ways in which a place in one tensor is one in another: each dim by an index of its own."""
    (tensor, coords), (other, places) = a, b
    both = [*coords, *places]
    if len(coords) != len(places) or any(c != index(i) for c in both for i in [*indices(c)][:1]):
        return
    own, theirs = ([i for c in each for i in indices(c)] for each in (coords, places))
    if not len({*own}) == len({*theirs}) == len(coords):
        return
    for order in permutations(range(len(coords))):
        pairs = dict(zip(own, (theirs[k] for k in order), strict=True))
        known = {**names.indices, **pairs}
        same = all(names.indices.get(i, j) == j for i, j in pairs.items())
        if not same or len({*known.values()}) < len(known):
            continue
        if names.tensors.get(tensor, (other, order)) == (other, order):
            yield _Names(known, {**names.tensors, tensor: (other, order)})
