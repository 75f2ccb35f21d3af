"""Finds what an expression depends on: its indices, the tensors that it reads, its reducers; and changes its coordinates.

Input: an expression or nests. Output: names, or parts of the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, Poly, fetches_of, indices

Lines = Mapping[str, tuple[tuple[Poly, ...], set[str]]]
NO_LINES: Lines = MappingProxyType({})


def coordinates(expr: ir.Expr) -> Iterator[Poly]:
    """Every Poly in an expression: coordinates of reads, guards, index values, binder ends."""
    for node in ir.walk(expr):
        yield from own_coordinates(node)


def own_coordinates(node: ir.Expr) -> Iterator[Poly]:
    """Those of what stands at the top."""
    match node:
        case ir.Read(_, coords):
            yield from coords
        case ir.IndexValue(p):
            yield p
        case ir.Reduce(_, binders, guards):
            yield from (g.poly for g in guards)
            yield from (p for b in binders for p in (b.lo, b.hi))


def with_coordinates(expr: ir.Expr, new: Callable[[Poly], Poly]) -> ir.Expr:
    """expr with each coordinate, guard and value of an index replaced; binders keep their ranges."""

    def change(node: ir.Expr) -> ir.Expr:
        match node:
            case ir.Read(_, coords):
                return replace(node, coords=tuple(map(new, coords)))
            case ir.IndexValue(p):
                return replace(node, poly=new(p))
            case ir.Reduce(guards=guards) if guards:
                return replace(node, guards=tuple(replace(g, poly=new(g.poly)) for g in guards))
        return node

    return ir.rebuild(expr, change)


def free_indices(expr: ir.Expr, lines: Lines = NO_LINES) -> set[str]:
    """The indices that an expression depends on, without its own binders.

    A read depends on all its indices. A read of one of `lines` depends only on the indices that the line depends on.
    """
    match expr:
        case ir.Reduce(_, binders, guards, body):
            inner = free_indices(body, lines).union(*(indices(g.poly) for g in guards))
            return inner - {b.index for b in binders}
        case ir.Read(tensor, coords) if tensor in lines:
            own_coords, moved = lines[tensor]
            places = zip(own_coords, coords, strict=True)
            return set().union(*(indices(c) for own, c in places if indices(own) & moved))
        case ir.Read(_, coords):
            return set().union(*(indices(c) for c in coords))
        case ir.IndexValue(p):
            return set(indices(p))
    return set().union(*(free_indices(part, lines) for part in ir.parts(expr)))


def lines_of(nests: Iterable[ir.Nest]) -> Lines:
    """Each line behind the lines that it reads, with its coordinates and the indices that it depends on."""
    found: dict[str, tuple[tuple[Poly, ...], set[str]]] = {}
    for nest in nests:
        found[nest.name] = nest.coords, free_indices(nest.body, found)
    return found


def reads(expr: ir.Expr) -> list[ir.Read]:
    return [node for node in ir.walk(expr) if isinstance(node, ir.Read)]


def fetches(expr: ir.Expr) -> Iterator[Fetch]:
    """Reads that stand in coordinates."""
    return (a for p in coordinates(expr) for a in fetches_of(p))


def folds_of(expr: ir.Expr) -> list[ir.Reduce]:
    """Its reducers, the outermost first."""
    return [node for node in ir.walk(expr) if isinstance(node, ir.Reduce)]


def all_binders(*nests: ir.Nest) -> Iterator[ir.Binder]:
    """Those of each box, and of all reducers in it."""
    for nest in nests:
        yield from nest.box
        yield from (b for fold in folds_of(nest.body) for b in fold.binders)


def all_indices(nests: Iterable[ir.Nest]) -> set[str]:
    """Those of the boxes and of their reducers."""
    return {b.index for b in all_binders(*nests)}


def tensors_read(expr: ir.Expr) -> set[str]:
    """Names of all tensors an expression reads, gathered indices included."""
    names = set[str]()
    for node in ir.walk(expr):
        if isinstance(node, ir.Read):
            names.add(node.tensor)
        elif not isinstance(node, (ir.IndexValue, ir.Reduce)):
            continue
        for p in own_coordinates(node):
            names.update(atom.tensor for atom in fetches_of(p))
    return names


def binders_of(nest: ir.Nest) -> tuple[ir.Binder, ...]:
    """Binders of the reducer at the root, if there is one."""
    return nest.body.binders if isinstance(nest.body, ir.Reduce) else ()


def needed(nests: Sequence[ir.Nest], wanted: Iterable[str], there: Container[str] = ()) -> ir.Nests:
    """The nests that these values depend on, in order, without those that are there. Each stands behind what it reads."""
    names, kept = set(wanted), list[ir.Nest]()
    for nest in reversed(nests):
        if nest.name in names and nest.name not in there:
            names |= tensors_read(nest.body)
            kept.append(nest)
    return tuple(reversed(kept))


def leads_to(expr: ir.Expr, nests: Iterable[ir.Nest]) -> set[str]:
    """The tensors that an expression reads, by itself or through these values."""
    bodies, found, waiting = {n.name: n.body for n in nests}, set[str](), [expr]
    while waiting:
        new = tensors_read(waiting.pop()) - found
        found |= new
        waiting += [bodies[name] for name in new & bodies.keys()]
    return found


def following(nests: Iterable[ir.Nest], names: Set[str]) -> set[str]:
    """The nests that read one of these, or a nest that does. Each stands behind what it reads."""
    found = set[str]()
    for n in nests:
        if tensors_read(n.body) & (names | found):
            found.add(n.name)
    return found - names
