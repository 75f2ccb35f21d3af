"""Reads that name their place: what a gradient sums at the read, before it goes to the place.

Input: a use of a read. Output: a line that makes the read, over the indices that its place depends on, and the use of that line
in its stead. The value is the same, and the gradient takes two steps:

    o[b, i, e] = sum[j](p[b, i, j] * v[page[b, j], e])

    v_read[b, j, e] = v[page[b, j], e]                  dv_read[b, j, e] = sum[i](p[b, i, j] * do[b, i, e])
    o[b, i, e] = sum[j](p[b, i, j] * v_read[b, j, e])   dv[m, e] = sum[b, j](where(page[b, j] == m, dv_read[b, j, e], 0))

The place does not depend on i, so the sum over i is that of any operand, which fused kernels compute, and one term goes to
each place instead of one for each i.

A place is one that an operand names, or that several indices name together, as `table[i - j + S - 1]`. Of the second kind only those
count whose line is smaller than a value that is summed: in a convolution, `x[p + r]`, products of windows would be stored.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from tritongen.autodiff.flow import Use
from tritongen.autodiff.invert import System, Target
from tritongen.autodiff.lift import line_over, read_of
from tritongen.ir.algebra import Poly, fetches_of, index, indices, substitute
from tritongen.ir.bounds import Facts
from tritongen.ir.free import free_indices
from tritongen.ir.names import free_name
from tritongen.ir.nodes import Binder, Guard, Nest, Read, walk

ZERO = Poly()


@dataclass(slots=True)
class _Part:
    """Coordinates of a read that share indices, those of no other coordinate."""

    names: frozenset[str]
    coords: tuple[Poly, ...]

    @property
    def is_named(self) -> bool:
        """Whether an operand says where it is."""
        return any(map(fetches_of, self.coords))

    @property
    def is_place(self) -> bool:
        return self.is_named or len(self.names) > len(self.coords)

    @property
    def is_kept(self) -> bool:
        """Whether the line has its indices: those of a place, and those that are coordinates themselves."""
        return self.is_place or all(index(name) in self.coords for name in self.names)


def _parts(coords: tuple[Poly, ...]) -> list[_Part]:
    found: list[_Part] = []
    for c in coords:
        names, own = indices(c), [c]
        for part in [part for part in found if part.names & names]:
            found.remove(part)
            names, own = part.names | names, [*part.coords, *own]
        found.append(_Part(names, tuple(own)))
    return found


def at_read(
    use: Use,
    box: tuple[Binder, ...],
    target: Target,
    taken: Container[str],
    facts: Facts,
) -> tuple[Nest, Read] | None:
    """The line of a use's read, still without a name, and what is read of it; None where the read names no place.

    `box`: that of the use's line. `target`: the tensor that is read. `taken`: what no index may be called.
    """
    if not isinstance(use.node, Read):
        return None
    parts = _parts(use.node.coords)
    if not (any(p.is_named for p in parts) or any(p.is_place for p in parts) and _is_smaller(use)):
        return None
    kept = frozenset[str]().union(*(p.names for p in parts if p.is_kept))
    scope = {b.index: b for b in (*box, *use.binders)}
    coords, places = list(use.node.coords), dict[str, Poly]()
    for k, c in enumerate(coords):
        if not indices(c) <= kept:  # a coordinate of its own, each value of which is one element
            i = free_name(next(iter(indices(target.coords[k])), "i"), scope, taken)
            scope[i] = Binder(i, ZERO, target.dims[k])
            coords[k], places[i] = index(i), c
    used = {i: scope[i] for c in coords for i in scope if i in indices(c)}
    # In the order of the use's line if that has all of them, else of the coordinates.
    own = box if used.keys() <= {b.index for b in box} else used.values()
    binders = tuple(b for b in own if b.index in used)
    line = line_over(binders, replace(use.node, coords=tuple(coords)), facts)
    read = read_of(line, binders)
    at = tuple(substitute(c, places) for c in read.coords)
    return line, replace(read, coords=at, fill=use.node.fill if places else None)


def _is_smaller(use: Use) -> bool:
    """Whether some value that is summed has all indices of the read, and more."""
    own = free_indices(use.node)
    return any(own < free_indices(e) for e in walk(use.weight) if isinstance(e, Read))


def sums(system: System) -> bool:
    """Whether terms are summed for each element of a line, as a loop may: none is looked for by what operands say of it.

    The terms of a segment `begin[n] <= k < begin[n + 1]` have one n each, which only the segment knows.
    """
    left = system.unknown.keys()
    asked = [*system.guards, *(e for case in system.wanted for e in case if isinstance(e, Guard))]

    def searched(g: Guard) -> bool:
        at = (names for f in fetches_of(g.poly) for names in map(indices, f.coords))
        return any(names & left for names in at) and not indices(g.poly) <= left

    return bool(left) and not any(map(searched, asked))
