"""What several classes ask of the lines of a group."""

from __future__ import annotations

from collections.abc import Iterable

from tritongen.ir import nodes as ir
from tritongen.ir.free import binders_of, reads, tensors_read


def indices_in(nests: Iterable[ir.Nest]) -> set[str]:
    """All indices of the lines, those that they reduce too."""
    return {b.index for n in nests for b in (*n.box, *binders_of(n))}


def names_in(nests: tuple[ir.Nest, ...]) -> set[str]:
    """The names of the lines, of their indices and of what they read: no new line or index may have one."""
    read = set[str]().union(*(tensors_read(n.body) for n in nests))
    return {n.name for n in nests} | indices_in(nests) | read


def operands(nests: tuple[ir.Nest, ...]) -> list[ir.Read]:
    """The reads of what none of the lines computes."""
    computed = {n.name for n in nests}
    return [r for n in nests for r in reads(n.body) if r.tensor not in computed]


def results(nests: tuple[ir.Nest, ...]) -> tuple[str, ...]:
    """The lines that no other one reads."""
    read = set[str]().union(*(tensors_read(n.body) for n in nests))
    return tuple(n.name for n in nests if n.name not in read)
