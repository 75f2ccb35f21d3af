"""Elements of a pair's values that are read at one place each: the logit of a target, a score on the diagonal.

    loss[n] = lse[n] - z[n, t[n]]    is    z_at[n] = sum[v if v == t[n]](z[n, v]);  loss[n] = lse[n] - z_at[n]

Read as it stands, z would be stored for one element of each row. As a sum it is one more fold of the loop that computes z.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index, indices
from tritongen.ir.bounds import Facts
from tritongen.ir.free import reads
from tritongen.ir.names import fresh
from tritongen.schedule.canonical import names_beside, read_of
from tritongen.schedule.classes.chains import all_pairs


def with_picked(op: ir.Op, nests: ir.Nests, facts: Facts) -> ir.Nests:
    """The nests. What reads one element of a row of a pair's values reads a sum over that row."""
    taken = names_beside(op, nests)
    for pair in all_pairs(op, nests, facts):
        own = {n.name: n for n in nests if n.name in pair.inside}
        sums: dict[ir.Read, ir.Nest] = {}
        for n in nests:
            for r in reads(n.body):
                if r.tensor in own and n.name not in own and r not in sums:
                    if picked := _as_sum(r, own[r.tensor], pair.indices):
                        name = fresh(f"{r.tensor}_at", taken)
                        sums[r] = replace(picked, name=name, part_of=n.line)
        if sums:
            return _with_sums(nests, sums)
    return nests


def _as_sum(r: ir.Read, read: ir.Nest, ends: frozenset[str]) -> ir.Nest | None:
    """The read as a sum over the one dim in which it is at another place than the value; None where it is no such read."""
    moved = [k for k, (c, own) in enumerate(zip(r.coords, read.coords, strict=True)) if c != own]
    if len(moved) != 1 or r.fill not in (None, 0):
        return None
    (k,) = moved
    loop = next(b for b in read.box if read.coords[k] == index(b.index))
    box = tuple(b for b in read.box if b is not loop)
    if loop.index not in ends or not indices(r.coords[k]) <= {b.index for b in box}:
        return None
    here = ir.Guard(index(loop.index) - r.coords[k], "==")
    row = ir.Read(r.tensor, read.coords, None, r.dtype)
    rest = (x for n, x in enumerate(zip(read.coords, read.dims, strict=True)) if n != k)
    coords, dims = zip(*rest, strict=True)
    return ir.Nest("", box, coords, dims, ir.Reduce("sum", (loop,), (here,), row, r.dtype), r.dtype)


def _with_sums(nests: ir.Nests, sums: dict[ir.Read, ir.Nest]) -> ir.Nests:
    """The nests with these reads replaced; each sum stands in front of the first line that reads it."""

    def change(read: ir.Read) -> ir.Read:
        return read_of(sums[read]) if read in sums else read

    found, left = list[ir.Nest](), dict(sums)
    for n in nests:
        found += [left.pop(r) for r in dict.fromkeys(reads(n.body)) if r in left]
        found.append(n.reading(change))
    return tuple(found)
