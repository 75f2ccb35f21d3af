"""How a tile sees a tensor: as a reshaped view with one stride for each run of digits.

`x[n, g * Cg + c, h, w]` over the axes row = (n, g) and col = (c, h, w) is the 2-D view [N * groups, Cg * H * W]:
neighbouring digits of one axis, in order, are one run. A tensor that is read in another way (an offset, a reversal, a window, a
fill) has no view, and is addressed dim by dim.
"""

from __future__ import annotations

from math import prod

from tritongen.ir.algebra import Idx, Poly, affine, poly
from tritongen.ir.bounds import Facts
from tritongen.ir.free import fetches, reads
from tritongen.ir.nodes import BATCH_SIZE
from tritongen.schedule.canonical import same
from tritongen.schedule.plan import Axis, Dims, View

Digits = tuple[str, ...]
NOTHING = Facts()


def digits_of(coordinate: Poly, extents: dict[str, Poly], dim: Poly, facts: Facts) -> Digits | None:
    """The digits, highest first, whose mixed-radix number this coordinate is, covering all of dim.

    None where it is no such number, or has an index that `extents` lacks. A literal 0 in a dim of size 1 has no digits.
    """
    parts = affine(coordinate)
    if parts is None or parts[1].terms:
        return None
    left = dict(parts[0])
    if not all(isinstance(atom, Idx) and atom.name in extents for atom in left):
        return None
    found: list[str] = []
    weight = poly(1)
    while left:
        here = [a for a, w in left.items() if same(facts, w, weight)]
        if len(here) != 1 or not isinstance(here[0], Idx):
            return None
        del left[here[0]]
        found.append(here[0].name)
        weight = weight * extents[here[0].name]
    return tuple(reversed(found)) if same(facts, weight, dim) else None


def digits_by_dim(coords, dims, extents, facts) -> Digits | None:
    """All digits of an access, dim after dim; None where some dim is not a whole mixed-radix number."""
    out: list[str] = []
    for coordinate, dim in zip(coords, dims, strict=True):
        digits = digits_of(coordinate, extents, dim, facts)
        if digits is None:
            return None
        out += digits
    return tuple(out) if len(set(out)) == len(out) else None


def view_of(tensor: str, digits: Digits, axes: tuple[Axis, ...], cuts: Digits = ()) -> View:
    """Neighbouring digits that follow each other on one axis become one run; none goes on over a cut."""
    place = {d.index: (a.name, k) for a in axes for k, d in enumerate(a.digits)}
    extents = {d.index: d.hi - d.lo for a in axes for d in a.digits}
    runs: list[list[str]] = []
    for digit in digits:
        axis, k = place[digit]
        if runs and place[runs[-1][-1]] == (axis, k - 1) and digit not in cuts:
            runs[-1].append(digit)
        else:
            runs.append([digit])
    shape = (prod((extents[digit] for digit in run), start=poly(1)) for run in runs)
    return View(tensor, tuple(shape), tuple(map(tuple, runs)))


def views(
    accesses, dims: Dims, axes: tuple[Axis, ...], facts: Facts, cuts: Digits = ()
) -> tuple[View, ...]:
    """A view for every tensor whose accesses (tensor, coords) all use it whole and in the same way.

    `cuts`: digits that begin a run of their own.
    """
    whole = {d.index: d.hi for a in axes for d in a.digits if not d.lo.terms}
    ways: dict[str, set[Digits | None]] = {}
    for tensor, coords in accesses:
        ways.setdefault(tensor, set()).add(digits_by_dim(coords, dims[tensor], whole, facts))
    return tuple(
        view_of(tensor, digits, axes, cuts)
        for tensor, found in ways.items()
        if len(found) == 1 and (digits := next(iter(found))) is not None
    )


def holds_channels_last(view: View, dims: Dims, facts: Facts = NOTHING) -> bool:
    """Whether a view of an output merges no dims but those behind the channels."""
    own = dims[view.tensor]
    if BATCH_SIZE in own[:2]:
        return False  # what has any number of dims may have channels
    if len(own) < 3 or len(view.shape) < 2:
        return len(own) < 3
    return all(same(facts, view.shape[k], own[k]) for k in (0, 1))


def accesses(nests, stores, dims):
    """(tensor, coords) of all reads of stored tensors and of all stores, in order of appearance.

    Reads that are only used as numbers are not included: they are addressed dim by dim. A tensor that is also read normally is seen as all
    of its coordinates are.
    """
    computed = {n.name for n in nests}
    read: set[str] = set()
    for nest in nests:
        for node in reads(nest.body):
            if node.tensor not in computed and (dims is None or node.tensor in dims):
                read.add(node.tensor)
                yield node.tensor, node.coords
    for nest in nests:  # a bound may read elsewhere what is a value here
        yield from ((f.tensor, f.coords) for f in fetches(nest.body) if f.tensor in read)
    for nest in nests:
        if nest.name in stores:
            yield nest.name, nest.coords
