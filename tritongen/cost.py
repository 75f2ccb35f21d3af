"""Counts the bytes and flops of a call, from the IR and the launches of the call.

    calls = trace(module, "softmax", args)
    step_costs(plan, args, calls)          # for each step its kernels: reads, writes, flops
    op_cost(plan, args)                    # what any implementation must move and compute
    scratch_bytes(plan, args, costs)       # memory beside operands and outputs
    least(cost, ceilings)                  # the least time in seconds, and whether memory or arithmetic sets it

A stored tensor counts once in each pass of a kernel over it, scratch included, whether it is in the cache or not. If an
operand is read in part, the part counts. An operation counts once for each combination of the indices that its operands
vary with, so a contraction is `2 * M * N * K` whatever scales its factors. `bench` measures time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import torch

from tritongen import lib
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Poly, denominator, evaluate, indices, size, substitute, walk
from tritongen.ir.batches import own_batches
from tritongen.ir.binding import Bound, bind, torch_dtype
from tritongen.ir.free import all_binders, coordinates, free_indices, reads, tensors_read
from tritongen.ir.reads import reads_of, switch_of
from tritongen.runtime.precision import f32_precision
from tritongen.schedule.plan import KernelPlan, Plan, Step, Variant
from tritongen.schedule.rules import evaluate as rule_value
from tritongen.trace import Calls, Choice, Launch

BY_TENSOR_CORES = frozenset(
    "contraction taps persistent subtiles patches strips tf32x3 tf32x3_half fused".split()
)
SAMPLES = 24  # points an index, where the share of a guarded box is estimated


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes by tensor, and operations; `precision` is what binds them: bf16, tf32x3, ..."""

    reads: dict[str, int]
    writes: dict[str, int]
    flops: int
    precision: str = ""  # of a contraction

    @property
    def bytes(self) -> int:
        return sum(self.reads.values()) + sum(self.writes.values())


@dataclass(frozen=True, slots=True)
class KernelCost:
    kernel: str
    grid: tuple[int, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step of one call: what was chosen, and its kernels in order."""

    step: Step
    choice: Choice
    kernels: tuple[KernelCost, ...]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The limits of a device: copied bytes per second (read plus written), and flops per second by precision."""

    copy: float
    matmul: dict[str, float]
    source: str


# Measured by `bench.measure.ceilings` with torch 2.11: cuBLAS at 8192^3 (4096^3 in f64 and plain f32).
H200 = Ceilings(
    4220e9,
    {
        **{"bf16": 750e12, "tf32": 379e12, "tf32x3": 126e12, "ieee": 51e12, "f64": 63e12},
        **{"f8": 1445e12, "i8": 961e12},
    },
    "one NVIDIA H200",
)


@dataclass(frozen=True, slots=True)
class Least:
    """The least time a cost takes, and why."""

    seconds: float
    by: str  # "memory" or "arithmetic"
    memory: float
    arithmetic: float


def least(cost: Cost, ceilings: Ceilings) -> Least:
    """The roofline: memory and arithmetic at their ceilings, at once."""
    memory = cost.bytes / ceilings.copy
    peak = ceilings.matmul.get(cost.precision)
    arithmetic = cost.flops / peak if peak else 0.0
    by = "arithmetic" if arithmetic > memory else "memory"
    return Least(max(memory, arithmetic), by, memory, arithmetic)


@dataclass(frozen=True, slots=True)
class KeptCost:
    """A value that a call keeps for its gradient: what storing and loading it takes, and what computing it again."""

    name: str
    bytes: int
    kept: Least
    again: Least


# ---- of a call ----------------------------------------------------------------------------------
def op_cost(plan: Plan, args: Mapping[str, Any]) -> Cost:
    """The least cost of an op: every operand is read once, every output is written once."""
    numbers = call_numbers(plan, args)
    stored = {t.name for t in numbers.op.tensors}
    outputs = {o.name for o in numbers.op.outputs}
    return Cost(
        {name: numbers.bytes_read(plan.nests, name) for name in sorted(stored)},
        {name: numbers.bytes_of(name) for name in sorted(outputs)},
        numbers.flops_of(plan.nests, plan.nests, outputs),
        numbers.precision(plan.nests),
    )


def kept_costs(plan: Plan, args: Mapping[str, Any], ceilings: Ceilings) -> Iterator[KeptCost]:
    """The cost of each value that an op keeps for its gradient (`autodiff/kept.py`), in the order of its results."""
    numbers = call_numbers(plan, args)
    lines = {n.name: n for n in numbers.op.nests}
    for public, own in zip(plan.op.outputs, numbers.op.outputs, strict=True):
        if public.name in plan.op.kept:
            line, stored = lines[own.name], numbers.bytes_of(own.name)
            twice = Cost({own.name: stored}, {own.name: stored}, 0)
            passed = twice  # a place computed again is stored for what reads it elsewhere
            if not isinstance(line.body, ir.Reduce):  # a copy, rounded
                (copied,) = tensors_read(line.body)
                line, passed = lines[copied], Cost({}, {}, 0)
            sums = tuple(
                replace(line, body=e) for e in ir.walk(line.body) if isinstance(e, ir.Reduce)
            )
            read = {
                t: numbers.bytes_read((line,), t)
                for t in tensors_read(line.body) & numbers.operands.keys()
            }
            again = Cost(
                read | passed.reads, passed.writes, numbers.flops(line), numbers.precision(sums)
            )
            yield KeptCost(line.name, stored, least(twice, ceilings), least(again, ceilings))


def scratch_bytes(plan: Plan, args: Mapping[str, Any], found: Iterable[StepCost]) -> int:
    """Scratch at its peak: temporaries that pass between steps, and the workspace of the step that has most."""
    numbers = call_numbers(plan, args)
    most = 0
    for step in found:
        variant = next(v for v in step.step.variants if v.name == step.choice.variant)
        known = {**step.choice.facts, **step.choice.config}
        try:
            shapes = [(t, [rule_value(d, known) for d in shape]) for _, t, shape in variant.scratch]
        except KeyError:  # a size that the launch function works out
            continue
        most = max(most, sum(prod(shape) * numbers.itemsize_of(t) for t, shape in shapes))
    share = chunk_share(plan, numbers)
    for nest in plan.scratch:
        cut = plan.chunks is not None and size(plan.chunks.size) in nest.dims
        most += round(numbers.bytes_of(nest.name) * (share if cut else 1))
    return most


def chunk_share(plan: Plan, numbers: CallNumbers) -> float:
    """The part of its size that a chunk of a plan has; 1 of a plan without chunks."""
    if plan.chunks is None:
        return 1.0
    cut = size(plan.chunks.size)
    total = numbers.sizes.size(cut)
    stored = sum(numbers.bytes_of(n.name) for n in plan.chunks.body.scratch if cut in n.dims)
    return lib.chunk_size(total, stored // max(1, total)) / max(1, total)


def step_costs(plan: Plan, args: Mapping[str, Any], calls: Calls) -> tuple[StepCost, ...]:
    """Each step of a call that was traced, with the launches that are its own."""
    numbers = call_numbers(plan, args)
    steps = {s.name: s for s in plan.steps}
    kernels = {s.name: {k.name for k in s.kernels} for s in plan.steps}
    owners: list[str] = []
    for launch in reversed(calls.launches):
        name, before = launch.kernel.fn.__name__, calls.choices[: launch.chosen]
        chosen_for = [c.step for c in before if name in kernels.get(c.step, ())][-1:]
        # What prepares operands belongs to what follows it.
        owners.insert(0, (*chosen_for, *owners[:1], "")[0])
    found = []
    chosen = {choice.step: choice for choice in reversed(calls.choices)}  # the first of each
    for choice in reversed(chosen.values()):
        step = steps[choice.step]
        own = [run for run, name in zip(calls.launches, owners, strict=True) if name == step.name]
        own = own[: len(own) // sum(c.step == step.name for c in calls.choices)]
        variant = next(v for v in step.variants if v.name == choice.variant)
        found.append(
            StepCost(step, choice, tuple(_kernels(plan, step, choice, variant, own, numbers)))
        )
    return tuple(found)


def _kernels(
    plan: Plan,
    step: Step,
    choice: Choice,
    variant: Variant,
    launches: list[Launch],
    numbers: CallNumbers,
) -> Iterator[KernelCost]:
    nests = nests_of(plan, step)
    written: set[str] = set()
    # A copy of an operand counts what is stored, whatever reads it.
    named = {k.name: k for k in step.kernels} if step in plan.steps else {}
    copies = {p.stored for v in step.variants for p in v.packs}
    planned = [launch.kernel.fn.__name__ in named for launch in launches]
    for launch, known in zip(launches, planned, strict=True):
        if not known:  # one operand in, a copy out
            (source, x), (copy, out) = tensors_of(launch, numbers.dims)
            cost = Cost({source: _stored_bytes(x)}, {copy: _stored_bytes(out)}, 0)
            yield KernelCost(launch.kernel.fn.__name__, launch.grid, cost)
    for k, launch in enumerate(run for run, known in zip(launches, planned, strict=True) if known):
        kernel = named[launch.kernel.fn.__name__]
        seen, given = {}, {}
        # Of one part there is no second kernel: the first one stores the results.
        parts = variant.launches[k].part and choice.config.get("PARTS") != 1
        number = launch.config.get("PASS", 0)
        early = {name for level in kernel.levels for name in level.stores} if number else set()
        own = set(kernel.levels[number].stores) if 0 < number < len(kernel.levels) else set()
        unstored = set(step.stores) - own if parts else early - own
        for name, tensor in tensors_of(launch, {*numbers.dims, *copies}):
            if name in unstored:
                continue
            if name in copies:
                seen[name] = _stored_bytes(tensor)
            elif name in step.stores or (not numbers.knows(name) and name not in written):
                written.add(name)
                given[name] = _stored_bytes(tensor)
            elif numbers.knows(name):
                times = passes(kernel, name, launch.config)
                if times:
                    seen[name] = numbers.bytes_read(nests, name) * times
            else:
                seen[name] = _stored_bytes(tensor)
        work = tuple(_share(step, launch, kernel, nests, k, sum(planned)))
        precision = numbers.precision(work)
        if precision and kernel.skeleton not in BY_TENSOR_CORES:
            precision = "f64" if precision == "f64" else "ieee"  # one multiplication after another
        stored = {n.name for n in plan.scratch} | {o.name for o in plan.inner.outputs}
        cost = Cost(
            seen, given, numbers.flops_of(work, nests, stored | set(step.stores)), precision
        )
        yield KernelCost(
            f"{kernel.name}, pass {number}" if number else kernel.name, launch.grid, cost
        )


def passes(kernel: KernelPlan, tensor: str, config: Mapping[str, Any]) -> int:
    """How often a launch reads a tensor. Rows that are processed level by level are loaded in each pass.

    `config`: that of the launch. PASS is the number of its pass, if each has a launch. Of a factor in two TF32 parts, each of three products
    reads one part, or each part is read once.
    """
    if kernel.skeleton == "tf32x3":
        return 3 if tensor in {tile.tensor for tile in kernel.tiles} else 1
    if kernel.skeleton == "tf32x3_half":
        return 2 if tensor == kernel.tiles[not config.get("LHS")].tensor else 1
    if kernel.skeleton not in ("loop", "lines_loop", "two_pass"):
        return 1
    number = config.get("PASS", 0)
    row = {d.index for d in kernel.axes[0].digits}
    nests = {n.name: n for n in kernel.nests}

    def reads_it(name: str) -> bool:
        """Whether a nest reads it, directly or through values over the tile. No pass keeps these for the next one."""
        below = tensors_read(nests[name].body)
        tile = [t for t in below & nests.keys() if nests[t].over != row]
        return tensor in below or any(map(reads_it, tile))

    stored = [n for n in kernel.stores if n in nests and nests[n].over != row]
    early = {name for level in kernel.levels for name in level.stores}
    walks = (
        *((*level.folds, *level.stores) for level in kernel.levels),
        [n for n in stored if n not in early],
    )
    found = [any(map(reads_it, names)) for names in walks]
    if not number:
        return max(1, sum(found))
    # A tensor that no pass reads is read for the row values that the last pass stores.
    return int(found[number] or number == len(walks) - 1 and not any(found))


def tensors_of(launch: Launch, known: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a launch passes, by the plan's names. A TMA descriptor counts as its tensor.

    `known`: names of the plan. A renamed `k_` is passed as `k_ptr`.
    """
    shown = {name.rstrip("_"): name for name in sorted(known, reverse=True)}
    passed = zip(launch.kernel.arg_names, launch.args, strict=False)
    for parameter, value in (*passed, *launch.config.items()):
        value = getattr(value, "base", None) if hasattr(value, "block_shape") else value
        if isinstance(value, torch.Tensor) and value.dim():
            name = re.sub(r"_(ptr|desc|tiles|patches|strips)$", "", parameter)
            yield shown.get(name, name), value


def _share(
    step: Step,
    launch: Launch,
    kernel: KernelPlan,
    nests: tuple[ir.Nest, ...],
    place: int,
    count: int,
) -> Iterable[ir.Nest]:
    """The nests that one of several launches computes: the folds of a part, or the rest in the last launch."""
    if count == 1:
        return nests
    folds = {n.name for n in nests if isinstance(n.body, ir.Reduce)}
    number = launch.config.get("PASS", 0)
    early = {name for level in kernel.levels for name in level.stores} if number else set()
    if 0 < number < len(kernel.levels):
        own = {*kernel.levels[number].folds, *kernel.levels[number].stores}
    else:
        own = folds if place == 0 else set()
    last = place == count - 1
    return [n for n in nests if n.name in own or (last and n.name not in folds | early)]


def nests_of(plan: Plan, step: Step) -> tuple[ir.Nest, ...]:
    """The nests that a step computes, including temporaries."""
    if step not in plan.steps:
        return step.kernels[0].nests  # a pack
    by_name = {n.name: n for n in plan.nests}
    elsewhere = {n.name for n in plan.scratch} | {o.name for o in plan.inner.outputs}
    elsewhere |= {s for other in plan.steps for s in other.stores}
    own = {n.name for n in step.kernels[0].nests} | set(step.stores)
    waiting, found = sorted(own & set(by_name)), set()
    while waiting:
        name = waiting.pop()
        found.add(name)
        for read in tensors_read(by_name[name].body):
            if read in by_name and read not in found | elsewhere:
                waiting.append(read)
    return tuple(n for n in plan.nests if n.name in found)


def _stored_bytes(t: torch.Tensor) -> int:
    """Bytes behind a tensor: dims of stride 0 hold one element."""
    held = prod(n for n, s in zip(t.shape, t.stride(), strict=True) if s or not n)
    return held * t.element_size()


# ---- numbers of one call ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class CallNumbers:
    """A plan and the sizes of a call."""

    op: ir.Op
    dims: dict[str, tuple[Poly, ...]]
    dtypes: dict[str, str]
    sizes: Bound
    operands: dict[str, torch.Tensor]

    def knows(self, name: str) -> bool:
        return name in self.dims

    def extent(self, b: ir.Binder) -> int:
        return max(0, self.sizes.size(b.hi - b.lo))

    def itemsize(self, name: str) -> int:
        return torch_dtype(self.sizes.dtype(self.dtypes[name])).itemsize

    def itemsize_of(self, dtype: str) -> int:
        return torch_dtype(self.sizes.dtype(dtype)).itemsize

    def count(self, name: str) -> int:
        """Elements behind a tensor; an operand's batch dims may be fewer than the op's."""
        if name in self.operands:
            t = self.operands[name]
            return _stored_bytes(t) // t.element_size()
        return prod(self.sizes.size(d) for d in self.dims[name])

    def bytes_of(self, name: str) -> int:
        return self.count(name) * self.itemsize(name)

    def bytes_read(self, nests: Iterable[ir.Nest], name: str) -> int:
        """The elements that reads can reach, each once."""
        reached: dict[Any, int] = {}
        for nest in nests:
            ranges = self.ranges(nest)
            for coords in _coords_of(nest.body, name):
                used = set().union(*map(indices, coords)) if coords else set()
                reached[coords] = prod(ranges[i] for i in sorted(used) if i in ranges)
        return min(self.count(name), sum(reached.values())) * self.itemsize(name)

    def ranges(self, nest: ir.Nest) -> dict[str, int]:
        return {b.index: self.extent(b) for b in all_binders(nest)}

    def flops_of(self, work: Iterable[ir.Nest], nests: Sequence[ir.Nest], stored: Set[str]) -> int:
        """The operations of `work`, where a value that is not stored is computed only for the terms that a reducer's bounds let through.

        `nests`: everything that is computed with it, in order.
        """
        parts = self._parts_read(nests, stored)
        return round(sum(self.flops(n) * parts[n.name] for n in work))

    def _parts_read(self, nests: Sequence[ir.Nest], stored: Set[str]) -> dict[str, float]:
        """By nest, the part of its box that others read: all of it if it is stored; half of the scores of causal attention."""
        parts = {n.name: float(n.name in stored) for n in nests}
        readers = {read for n in nests for read in tensors_read(n.body)}
        parts |= {n.name: 1.0 for n in nests if n.name not in readers}
        for nest in reversed(nests):
            share = parts[nest.name]
            if isinstance(nest.body, ir.Reduce):
                share *= self._share_of_box(nest.body, self.ranges(nest))
            for name in tensors_read(nest.body) & parts.keys():
                parts[name] = max(parts[name], share)
        return parts

    def flops(self, nest: ir.Nest) -> int:
        """Every operation once for each place of the indices that it depends on."""
        return round(self._flops(nest.body, self.ranges(nest), nest.over))

    def _flops(self, node: ir.Expr, ranges: Mapping[str, int], box: set[str]) -> float:
        below = sum(self._flops(e, ranges, box) for e in ir.parts(node))
        if isinstance(node, ir.Call):
            return below + self._points(node, free_indices(node), ranges)
        if not isinstance(node, ir.Reduce):
            return below
        own = {b.index for b in node.binders}
        terms = free_indices(node.body) | own
        guarded = set().union(*(indices(g.poly) for g in node.guards))
        if guarded - terms:  # the same terms for every place of the box: a scan
            return below + max(self._points(node.body, terms, ranges), prod(ranges[i] for i in box))
        return self._share_of_box(node, ranges) * (
            below + self._points(node.body, terms | box, ranges)
        )

    def _points(self, expr: ir.Expr, used: set[str], ranges: Mapping[str, int]) -> float:
        """Places of the indices; of a coordinate that divides, those where it is whole."""
        divisors = [self._divisor(p) for p in dict.fromkeys(coordinates(expr))]
        return prod(ranges.get(i, 1) for i in used) / prod(divisors)

    def _divisor(self, p: Poly) -> int:
        return int(evaluate(denominator(p), self.sizes.sizes)) if indices(p) else 1

    def _share_of_box(self, node: ir.Reduce, ranges: Mapping[str, int]) -> float:
        """The part of a box that the guards let through, on evenly spaced samples; all, where operands say how much."""
        share = 1.0
        for g in (g for g in node.guards if not any(isinstance(a, Fetch) for a in walk(g.poly))):
            used = sorted(indices(g.poly))
            if g.op == "==":
                share /= max((ranges.get(i, 1) for i in used), default=1)
            elif used and len(used) <= 2:
                share *= _share_passing(g.poly, used, ranges, self.sizes.sizes)
        return share

    def precision(self, nests: Iterable[ir.Nest]) -> str:
        """The precision that limits the products of a contraction. Empty if there are none."""
        read, asked = set(), ""
        for nest in nests:
            match nest.body:
                case ir.Reduce("sum", binders, body=ir.Call("mul", (left, right) as factors)) as e:
                    sides = free_indices(left), free_indices(right)
                    own = {b.index for b in binders}
                case _:
                    continue
            if all(s & own for s in sides) and sides[0] != sides[1]:
                read |= {r.dtype for f in factors for r in reads(f)}
                read |= {e.dtype for f in factors for e in ir.walk(f) if _narrows(e)}
                asked = asked or self.op.precision or switch_of(e)
        return _precision({self.sizes.dtype(d) for d in read}, asked)


def call_numbers(plan: Plan, args: Mapping[str, Any]) -> CallNumbers:
    checked, owns = own_batches(plan.op)
    if owns:
        seen = bind(plan.op, args).values
        args = {**args, **{own.name: seen[own.name] for own in owns}}
    op = plan.inner
    op = replace(op, facts=(*op.facts, *plan.defines))
    renamed: dict[str, Any] = {
        new.name: args[old.name] if old.name in args else getattr(old, "default", None)
        for new, old in zip(op.params, checked.params, strict=True)
    }
    types = zip(op.free_typarams, plan.op.free_typarams, strict=True)
    renamed |= {new.name: args[old.name] for new, old in types if old.name in args}
    stored = (*op.tensors, *op.outputs)
    dims = {t.name: t.dims for t in stored} | {n.name: n.dims for n in plan.scratch}
    dtypes = {t.name: t.dtype for t in stored} | {n.name: n.dtype for n in plan.scratch}
    if plan.chunks is not None:  # a chunk loads what those before it added up
        for before, own in zip(plan.chunks.befores, plan.chunks.sums, strict=True):
            dims[before], dtypes[before] = own.dims, own.dtype
    operands = {t.name: renamed[t.name] for t in op.tensors}
    return CallNumbers(op, dims, dtypes, bind(op, renamed), operands)


def _coords_of(expr: ir.Expr, name: str) -> Iterator[tuple[Poly, ...]]:
    return (coords for tensor, coords, _ in reads_of(expr) if tensor == name)


def _narrows(e: ir.Expr) -> bool:
    return isinstance(e, ir.Cast) and isinstance(e.arg, ir.Call)


def _precision(dtypes: set[str], asked: str) -> str:
    for name, group in (("f64", {"f64"}), ("bf16", {"f16", "bf16"})):
        if dtypes & group:
            return name
    if dtypes & {"f32", "compute"}:
        return f32_precision(asked)
    if dtypes & set(ir.NARROW_FLOATS):
        return "f8"
    return "i8" if dtypes & {"i8", "u8"} else ""


def _share_passing(
    p: Poly, used: list[str], ranges: Mapping[str, int], sizes: Mapping[str, int]
) -> float:
    grids = [sorted({k * ranges.get(i, 1) // SAMPLES for k in range(SAMPLES)}) for i in used]
    points = list(product(*grids))
    passed = sum(_at(p, dict(zip(used, point, strict=True)), sizes) >= 0 for point in points)
    return passed / max(len(points), 1)


def _at(p: Poly, at: Mapping[str, int], sizes: Mapping[str, int]) -> Any:
    return evaluate(substitute(p, at), sizes)
