"""Checks every step: a tensor is seen as each access to it says, and each variant stores all values.

Input: a step and the nests that it was made from. Output: nothing, or `Misplaced`, which names the op, the kernel and the
access. A finding is a bug of a class, never of a spec.

A reshaped tensor keeps the row-major number of each element. So a view is right if the number that its digits make is the
number that the coordinates make in the tensor's own dims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from random import Random

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, evaluate, index, poly, size, symbols, text
from tritongen.ir.bounds import Facts, require
from tritongen.ir.free import tensors_read
from tritongen.ir.reads import reads_of
from tritongen.kernel.nodes import PARTS, Walk
from tritongen.schedule import rules
from tritongen.schedule.canonical import same
from tritongen.schedule.members import Group
from tritongen.schedule.plan import Dims, KernelPlan, Sizes, Step, View, stored_dims
from tritongen.schedule.rules import conjuncts

Access = tuple[str, tuple[Poly, ...]]


class Misplaced(Exception):
    """A plan that would read or store elsewhere than its op says."""


def verify_places(op: str, step: Step, nests: ir.Nests, dims: Dims, facts: Facts):
    """Raises where a kernel of the step, or its launch, sees a tensor in another way than `nests` do."""
    for tensor, coords in _accesses(nests, step.stores, [t for t, _ in step.merged]):
        if not _is_broadcast(step, nests[-1], tensor, coords, dims, facts):
            raise Misplaced(f"{op}: {step.name}: merged dims are not {_shown(tensor, coords)}")
    copies = [p for v in step.variants for p in v.packs if p.stored]
    dims = dims | {p.stored: stored_dims(p, dims[p.tensor]) for p in copies}
    for kernel in step.kernels:
        if step.merged:  # it walks merged dims, which the launch gives all tensors
            dims = {
                v.tensor: tuple(d for d, run in zip(v.shape, v.runs, strict=True) if run)
                for v in kernel.views
            }
        _verify_kernel(op, kernel, dims, _tested(step, kernel, facts))


def verify_order(op: str, groups: Iterable[Group]) -> None:
    """Raises where a step reads a value that only later steps compute."""
    there = set[str]()
    asked: list[set[str]] = []  # what each step reads of what no step so far has
    for g in groups:
        new = {n.name for n in g.nests} - there
        if late := set().union(*asked) & new:
            raise Misplaced(f"{op}: {_listed(late)} is read before it is computed")
        there |= new
        asked.append(set().union(*(tensors_read(n.body) for n in g.nests)) - there)


def verify_grids(op: str, step: Step) -> None:
    """Raises where a launch of a lowered kernel has more or fewer programs than its walks have numbers and tiles."""
    random = Random(0)
    for run in (run for variant in step.variants for run in variant.launches):
        kernel = step.kernel(run.kernel).kernel
        if kernel is None:
            continue
        extents = [w.extent for w in kernel.walks]
        said = set[str]().union(*map(symbols, (PARTS, *extents, *(p for _, p in step.facts))))
        for _ in range(4):
            sizes = {name: random.choice((64, 96, 128, 192)) for name in sorted(said)}
            if any(evaluate(p, sizes) < 1 for p in extents):
                continue  # no call has such sizes, or no program
            blocks = {w.block: random.choice((16, 32, 64)) for w in kernel.walks if w.block}
            facts = {name: int(evaluate(p, sizes)) for name, p in step.facts}
            facts |= blocks | {"PARTS": int(evaluate(PARTS, sizes))}
            wanted = prod([_programs(w, sizes, blocks) for w in kernel.walks])
            given = prod([rules.evaluate(rule, facts) for rule in run.grid])
            if given != wanted:
                counts = f"{given} programs for {wanted} numbers and tiles"
                raise Misplaced(f"{op}: {kernel.name}: {counts}")


def verify_stores(op: str, step: Step) -> None:
    """Raises where a variant leaves a value of the step unstored, or a launch reads what none before it has stored."""
    for variant in step.variants:
        made = {name for name, _, _ in variant.scratch} | {*step.stores}
        into = (*variant.sums, *variant.parts, *variant.zeroed)  # scratch, and what it becomes
        there = set[str]()
        for run in variant.launches:
            kernel = step.kernel(run.kernel)
            read = set().union(*(tensors_read(n.body) for n in kernel.nests))
            if early := read & made - there - {n.name for n in kernel.nests}:
                raise Misplaced(f"{op}: {kernel.name} reads {_listed(early)}, not stored yet")
            lowered = kernel.kernel
            there |= {s.tensor for s in lowered.stores} if lowered else {*kernel.stores}
            there |= {result for scratch, result in into if scratch in there}
        if left := {*step.stores} - there:
            raise Misplaced(f"{op}: {step.name}: {variant.name} does not store {_listed(left)}")


def verify_scratch(op: str, step: Step) -> None:
    """Raises where a variant allocates a value in another shape than its kernels see."""
    random = Random(0)
    for variant in step.variants:
        kernels = [step.kernel(run.kernel) for run in variant.launches]
        dims = {n.name: n.dims for kernel in kernels for n in kernel.nests}
        for name, _, shape in variant.scratch:
            if name not in dims:
                continue  # parts of sums, or counters
            numbers = [p for _, p in step.facts]
            said = set[str]().union(*map(symbols, numbers))
            said |= set[str]().union(*map(symbols, dims[name])) - {fact for fact, _ in step.facts}
            for _ in range(4):
                sizes = {s: random.choice((64, 96, 128, 192)) for s in sorted(said)}
                facts = {fact: int(evaluate(p, sizes)) for fact, p in step.facts}
                sizes = facts | sizes  # some dims are numbers of the step, such as COPIES
                given = [rules.evaluate(rule, facts) for rule in shape]
                wanted = [int(evaluate(p, sizes)) for p in dims[name]]
                if given != wanted:
                    raise Misplaced(f"{op}: {variant.name}: {name} has dims {given}, not {wanted}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _programs(walk: Walk, sizes: dict[str, int], blocks: dict[str, int]) -> int:
    if walk.how not in ("program", "tile"):
        return 1
    extent = int(evaluate(walk.extent, sizes))
    return -(-extent // blocks[walk.block]) if walk.block else extent


def _tested(step: Step, kernel: KernelPlan, facts: Facts) -> Facts:
    """The facts, with the sizes that every call of the kernel has."""
    ways = [v for v in step.variants if kernel.name in {run.kernel for run in v.launches}]
    for test in step.tests:
        if isinstance(test, Sizes) and all(test.fact in conjuncts(v.requires) for v in ways):
            for value, at in test.values:
                # A product of sizes is 1 where each of them is.
                factors = map(size, symbols(value)) if at == 1 else [value]
                for factor in factors:
                    facts = require(facts, factor, "==", poly(at))
    return facts


def _verify_kernel(op: str, kernel: KernelPlan, dims: Dims, facts: Facts) -> None:
    own = {d.index: d for a in kernel.axes for d in a.digits}
    seen = {v.tensor: v for v in kernel.views}
    for tensor, coords in _accesses(kernel.nests, kernel.stores, list(seen)):
        if not _is_view(seen[tensor], coords, own, dims[tensor], facts):
            raise Misplaced(f"{op}: {kernel.name}: a view is not {_shown(tensor, coords)}")
    # Tiles of patches and strips move with their window: these take what a step leaves of each coordinate.
    tiles = () if kernel.skeleton in ("patches", "strips") else (*kernel.tiles, *kernel.stored)
    for view in tiles:
        found = list(_accesses(kernel.nests, kernel.stores, [view.tensor]))
        if not any(_is_view(view, c, own, dims[view.tensor], facts) for _, c in found):
            raise Misplaced(f"{op}: {kernel.name}: tiles are not {_shown(*found[0])}")


def _accesses(nests: Iterable[ir.Nest], stores, tensors: list[str]) -> Iterator[Access]:
    """All reads of these tensors, those in coordinates too, and all stores to them."""
    for nest in nests:
        yield from ((t, coords) for t, coords, _ in reads_of(nest.body) if t in tensors)
        if nest.name in stores and nest.name in tensors:
            yield nest.name, nest.coords


def _is_view(view: View, coords, own: dict[str, ir.Binder], dims, facts: Facts) -> bool:
    """Whether the digits of a view make the number of the element that the coordinates name."""
    order = view.order or range(len(dims))
    runs = ([own[name] for name in run] for run in view.runs)
    at = [_number([index(d.index) for d in run], [d.hi - d.lo for d in run]) for run in runs]
    want = _number([coords[k] for k in order], [dims[k] for k in order])
    return same(facts, _number(at, view.shape), want)


def _is_broadcast(step: Step, root: ir.Nest, tensor: str, coords, dims: Dims, facts) -> bool:
    """Whether a tensor has just the dims of the result that the launch broadcasts it along, once and in order."""
    at = dict(step.merged)[tensor] or tuple(range(len(root.box)))
    box = [root.box[k] for k in at]
    if list(at) != sorted(set(at)) or coords != tuple(index(b.index) for b in box):
        return False
    return all(same(facts, d, b.hi - b.lo) for d, b in zip(dims[tensor], box, strict=True))


def _number(coords, dims) -> Poly:
    """The row-major number of an element."""
    total = poly(0)
    for coordinate, dim in zip(coords, dims, strict=True):
        total = total * dim + coordinate
    return total


def _shown(tensor: str, coords: tuple[Poly, ...]) -> str:
    return f"{tensor}[{', '.join(map(text, coords))}]"
