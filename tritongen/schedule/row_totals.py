"""Splits a sum over all elements into sums of rows and a total, if an operand has one value a row or one a column.

    loss = sum[n, c](w[n] * x[n, c])      is      loss_rows[n] = sum[c](w[n] * x[n, c]);  loss = sum[n](loss_rows[n])

Such a sum cannot walk memory as one long row. A program would take one short run at a time, or divide to find n and c. As a sum
of each row, it runs in the kernels of rows, which take many short rows a tile. Input and output: canonical nests.

H200, torch.compile's time in parentheses: a focal loss of 524,288 x 80 in bf16 434 us before (195), its pos_weight alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import indices
from tritongen.ir.free import binders_of, reads
from tritongen.ir.names import fresh
from tritongen.schedule.canonical import line_over, read_of
from tritongen.schedule.members import closure, is_reducer


def with_row_totals(nests: ir.Nests, names: Collection[str]) -> ir.Nests:
    lines = {n.name: n for n in nests}
    taken, found = {*names, *(n.name for n in nests)}, list[ir.Nest]()
    for nest in nests:
        inner = _row(nest, lines) if is_reducer(nest) else ()
        if inner:
            outer = binders_of(nest)[: -len(inner)]
            name = fresh(f"{nest.name}_rows", taken)
            rows = line_over(name, outer, replace(nest.fold, binders=inner), nest.line)
            found.append(rows)
            nest = replace(nest, body=replace(nest.fold, binders=outer, body=read_of(rows)))
        found.append(nest)
    return tuple(found)


def _row(nest: ir.Nest, lines: dict[str, ir.Nest]) -> tuple[ir.Binder, ...]:
    """The last indices of the sum that each operand has as one run, or not at all. Empty if all indices are one run."""
    binders, fold = binders_of(nest), nest.fold
    if nest.box or fold.is_place or fold.guards or any(b.lo.terms for b in binders):
        return ()
    used = set(_used(fold.body, {b.index: frozenset((b.index,)) for b in binders}, lines))
    if any(is_reducer(line) for line in closure(nest, lines)):
        return ()  # the kernel of those folds may compute the sum
    for k in range(len(binders)):
        inner = frozenset(b.index for b in binders[k:])
        if all(own & inner in (frozenset(), inner) for own in used):
            return binders[k:] if k else ()
    return ()


def _used(
    expr: ir.Expr, here: Mapping[str, frozenset[str]], lines: dict[str, ir.Nest]
) -> Iterator[frozenset[str]]:
    """The indices of each operand that a value reads. `here`: what the indices of the value depend on."""
    for read in reads(expr):
        places = [
            frozenset[str]().union(*(here.get(i, frozenset()) for i in indices(c)))
            for c in read.coords
        ]
        line = lines.get(read.tensor)
        if line is None:
            yield frozenset[str]().union(*places)
        else:
            own = zip(line.coords, places, strict=True)
            inside = {i: place for c, place in own for i in indices(c)}
            yield from _used(line.body, inside, lines)
