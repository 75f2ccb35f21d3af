"""Which nests run together, and as what: canonical nests in, groups out.

A group is a set of nests for one step and the kernel class (`classes/`) that its shape allows. Only
the IR's shape decides. A pointwise temporary belongs to no group: whoever reads it computes it.
"""

from __future__ import annotations

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import indices
from tritongen.ir.bounds import Facts
from tritongen.ir.free import fetches, needed, reads, tensors_read
from tritongen.schedule.classes import CLASSES, fused, segments
from tritongen.schedule.classes.chains import pairs
from tritongen.schedule.classes.contraction import as_product
from tritongen.schedule.classes.ragged import as_ragged
from tritongen.schedule.digits import joined
from tritongen.schedule.members import Group, Virtual, closure, is_reducer

MOST_READS = 64  # that a temporary may consist of if each reader computes it again
MOST_PASSES = 8  # of folds one behind the other, each of which computes again what it reads


def group(
    op: ir.Op,
    nests: ir.Nests,
    facts: Facts,
    only: str | None = None,
    apart: frozenset[str] = frozenset(),
    within: bool = True,
) -> tuple[Group, ...]:
    """Groups, in an order in which every stored value is written before it is read.

    `only`: the one class that may take nests. `apart`: temporaries that are stored, whoever reads them. `within`: whether sums that
    each term of a segment has may be computed where they are read.
    """
    outputs = {o.name for o in op.outputs}
    by_name = {n.name: n for n in nests}
    gathered = {a.tensor for n in nests for a in fetches(n.body)}
    sizes = [d for t in (*op.tensors, *op.outputs) for d in t.dims]
    stored = outputs | gathered | padded(nests) | apart
    stored |= multiplied_again(nests, stored, facts)
    stored |= heavy(nests, stored)
    own = segments.inside(nests, stored) if only is None and within else set()
    stored |= finished(tuple(n for n in nests if n.name not in own), stored, facts)
    runs = runs_of(nests, stored, facts)
    # What a later run of folds reads.
    later = ((t, n.name) for n in nests for t in tensors_read(n.body) & runs.keys())
    stored |= {t for t, name in later if runs[t] < runs[name]}
    chains: list[fused.Chain] = []
    for pair in pairs(op, nests, facts) if only is None else ():
        if pair.inside & own:
            continue
        if kernels := fused.sets(pair, nests, stored, frozenset(op.kept)):
            chains += kernels
            stored -= pair.inside
    fused_into = {n.name: k for k, (members, _) in enumerate(chains) for n in members}
    inside = frozenset(own).union(*(g.inside for _, g in chains))
    roots = [n for n in nests if n.name not in inside and (is_reducer(n) or n.name in stored)]
    virtual = Virtual(n for n in nests if n not in roots)
    places: dict[str, int] = {}
    groups: list[list[ir.Nest]] = []
    rare = rarely_asked(op, nests)

    def joins(place: int, root: ir.Nest) -> bool:
        first = groups[place][0].name
        if first in fused_into or runs[first] != runs[root.name]:
            return False
        together = [*groups[place], root]
        kind = classify(together, virtual, by_name, facts, only, extending=True)
        # Rows that are crossed may leave out what a call does not ask for.
        alone = (first in rare) == (root.name in rare)
        if kind is None or not (alone or kind.kind == "crossed") or not takes(kind, together):
            return False
        if kind.product is not None or kind.kind == "segments" or only is not None:
            return True
        # Lines of another kind take a product off the tensor cores.
        return not any(as_product(n, virtual, facts) for n in together)

    def takes(found: Group, members: list[ir.Nest]) -> bool:
        """Whether a kernel computes what each term of a segment has."""
        led = (n.name for m in members for n in closure(m, virtual)) if own else ()
        return found.kind in ("segments", "scatter") or own.isdisjoint(led)

    for root in sorted(roots, key=lambda n: n.name in rare):
        if root.name in places:
            continue
        read = sorted({places[t] for t in _read_by(root, virtual) if t in places})
        behind = range(read[-1] if read else 0, len(groups))
        movable = (p for p in reversed(read[:-1]) if _may_wait(groups, p, virtual))
        if root.name in fused_into:
            groups.append(list(chains[fused_into[root.name]][0]))
        elif (place := next((p for p in behind if joins(p, root)), None)) is not None:
            groups[place].append(root)
        elif (place := next((p for p in movable if joins(p, root)), None)) is not None:
            # An epilogue of more than one group: its own runs last.
            groups.append([*groups.pop(place), root])
        else:
            groups.append([root])
        places = {n.name: k for k, members in enumerate(groups) for n in members}
    found = []
    for members in groups:
        if members[0].name in fused_into:
            found.append(chains[fused_into[members[0].name]][1])
            continue
        kind = classify(members, virtual, by_name, facts, only)
        assert kind is not None, "the general nest takes any one root"
        if not takes(kind, members):
            return group(op, nests, facts, only, apart, within=False)
        found.append(with_numbers(kind, members, virtual, facts, sizes))
    return tuple(found)


def rarely_asked(op: ir.Op, nests: tuple[ir.Nest, ...]) -> set[str]:
    """The lines of a gradient that only gradients of scalars need. Few calls ask for these, so they get steps of their own."""
    if op.gradient != "none" or not any(o.dims for o in op.outputs):
        return set()
    often = needed(nests, (o.name for o in op.outputs if o.dims))
    return {n.name for n in nests} - {n.name for n in often}


def with_numbers(kind: Group, members, virtual, facts: Facts, sizes) -> Group:
    """A product whose digits are those of one number, for what it computes alone; all else as it was."""
    if kind.product is None:
        return kind
    behind = {n.name: n for root in members for n in closure(root, virtual)}
    split = (*members, *behind.values())
    nests = joined(split, facts, sizes)
    if nests == split:
        return kind
    own, rest = list(nests[: len(members)]), Virtual(nests[len(members) :])
    found = classify(own, rest, {n.name: n for n in nests}, facts)
    return found if found is not None and found.kind == kind.kind else kind


def _read_by(root: ir.Nest, virtual: dict[str, ir.Nest]) -> set[str]:
    return set().union(*(tensors_read(n.body) for n in (root, *closure(root, virtual))))


def _may_wait(groups: list[list[ir.Nest]], place: int, virtual: dict[str, ir.Nest]) -> bool:
    """Whether no later group reads what this one computes."""
    own = {n.name for n in groups[place]}
    return not any(own & _read_by(n, virtual) for members in groups[place + 1 :] for n in members)


def padded(nests: ir.Nests) -> set[str]:
    """Temporaries that a reducer reads with `else`, a convolution's input: computed once, not for each tap."""
    own = {n.name for n in nests}
    found = (r for n in nests if is_reducer(n) for r in reads(n.body) if r.fill is not None)
    return {r.tensor for r in found} & own


def multiplied_again(nests: ir.Nests, stored: set[str], facts: Facts) -> set[str]:
    """Values that several products would compute again: they sum over different dims of it, or read it at more places than its own.

    1. Usually it is the gradient of a product's result, which one product for each operand multiplies. Each tile of its readers would
       compute it again, and a window would for each tap. us on an H200, f32: swiglu_linear of 8344 x 397 to 1437 10,846 (torch
       1,147), a gelu behind a transposed convolution 7,887 (1,240).
    2. A value that is the same along an index that a product needs, as a mean's gradient is. A sum that reads what it is made of is not a
       product. conv_transpose2d and a mean, f32, on an H100: 23,000 us by rows, 670 stored (torch 610).
    """
    virtual = Virtual(n for n in nests if not is_reducer(n) and n.name not in stored)
    calls = ((n.name, e) for n in virtual.values() for e in ir.walk(n.body))
    made = {name for name, e in calls if isinstance(e, ir.Call)}
    slid, summed = set[str](), dict[str, set[frozenset[int]]]()
    for nest in filter(is_reducer, nests):
        found = [r for r in reads(nest.body) if r.tensor in made]
        if not found:
            continue
        if as_product(nest, virtual, facts) is None:
            alike = {r.tensor for r in found}
            others = Virtual(line for line in virtual.values() if line.name not in alike)
            if as_product(nest, others, facts) is not None:
                slid |= alike
            continue
        own = nest.reduced
        for read in found:
            dims = [indices(c) for c in read.coords]
            if any(used & own and used - own for used in dims):
                slid.add(read.tensor)
            over = frozenset(k for k, used in enumerate(dims) if used & own)
            summed.setdefault(read.tensor, set()).add(over)
    return slid | {name for name, ways in summed.items() if len(ways) > 1}


def heavy(nests: ir.Nests, stored: set[str]) -> set[str]:
    """Temporaries that are read at another place than their own, and that are too large to be computed there again.

    A chain of `t2[i] = t1[i - 1] + t1[i + 1]` would double at each link.
    """
    own = {n.name: n.coords for n in nests}
    read = [r for n in nests for r in reads(n.body) if r.tensor in own]
    elsewhere = {r.tensor for r in read if r.coords != own[r.tensor] or r.fill is not None}
    found, made_of = set(), dict.fromkeys(own, 0)
    for nest in nests:
        if is_reducer(nest) or nest.name in stored:
            continue
        count = sum(1 + made_of.get(r.tensor, 0) for r in reads(nest.body))
        if count > MOST_READS and nest.name in elsewhere:
            found.add(nest.name)
        else:
            made_of[nest.name] = count
    return found


def runs_of(nests: ir.Nests, stored: set[str], facts: Facts) -> dict[str, int]:
    """The number of the run of folds that each value belongs to. A chain of many norms is cut, so that its kernels stay short."""
    virtual = Virtual(n for n in nests if not is_reducer(n) and n.name not in stored)
    found: dict[str, tuple[int, int]] = {}  # the run, and the folds in it up to here
    for n in nests:
        run, depth = max((found[t] for t in tensors_read(n.body) & found.keys()), default=(0, 0))
        if is_reducer(n):
            depth = 0 if as_product(n, virtual, facts) else depth + 1  # a product has its kernel
            run, depth = (run + 1, 1) if depth > MOST_PASSES else (run, depth)
        found[n.name] = run, depth
    return {name: run for name, (run, _) in found.items()}


def finished(nests: ir.Nests, stored: set[str], facts: Facts) -> set[str]:
    """The value that is stored in place of a sum: the last pointwise value that all its readers go through.

    1. Of a sum of products: its epilogue computes gelu(h) once. A norm behind it would compute it in each of its passes.
    2. Of each row, where it is added to a product's result: each tile would load everything that the value is computed from.
    """
    virtual = Virtual(n for n in nests if not is_reducer(n) and n.name not in stored)
    computed = {n.name for n in nests}
    readers_of: dict[str, list[ir.Nest]] = {n.name: [] for n in nests}
    for n in nests:
        for name in computed & tensors_read(n.body):
            readers_of[name].append(n)

    def only_reader(nest: ir.Nest) -> ir.Nest | None:
        readers = readers_of[nest.name]
        if len(readers) != 1 or readers[0].name not in virtual or nest.name in stored:
            return None
        (reader,) = readers
        if reader.over != nest.over:
            return None
        own = [r for r in reads(reader.body) if r.tensor in computed]
        alike = all((r.tensor, r.coords, r.fill) == (nest.name, nest.coords, None) for r in own)
        return reader if own and alike else None

    products = {n.name for n in filter(is_reducer, nests) if as_product(n, virtual, facts)}

    def meets_product(nest: ir.Nest) -> bool:
        readers = readers_of[nest.name]
        return all(len(r.box) > len(nest.box) and products & tensors_read(r.body) for r in readers)

    found = set()
    for head in filter(is_reducer, nests):
        last = head
        while following := only_reader(last):
            last = following
        if last is head:
            continue
        if head.name in products or as_ragged(head, virtual, facts) or meets_product(last):
            found.add(last.name)
    return found


def classify(members, virtual, by_name, facts, only=None, extending=False) -> Group | None:
    """The best class that takes all members together."""
    own = {n.name: n.coords for n in members}
    if any(own.get(a.tensor, a.coords) != a.coords for n in members for a in fetches(n.body)):
        return None  # gathered at another place than where it is computed: from storage
    for kind, members_of in CLASSES.items():
        if only not in (None, kind):
            continue
        if found := members_of.classify(members, virtual, by_name, facts, extending):
            # What a group reads of its own at another place needs storage first.
            own = {n.name: n.coords for n in found.nests}
            every = (r for n in found.nests for r in virtual.reads(n))
            if all(own.get(r.tensor, r.coords) == r.coords for r in every):
                return found
    return None
