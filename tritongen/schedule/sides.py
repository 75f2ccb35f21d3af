"""Tells two dims of one size apart, so that a square temporary can be stored for some of its rows at a time.

    s[i, j] = sum[d](x[i, d] * y[j, d])        x: T[N, D], y: T[N, D]    is    x: T[rows_N, D], y: T[N, D]

Dims that one index subscripts are one side. Both sizes are the same number: the op computes the same. `chunks.py` then cuts one of
them. It has no way to cut both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import index, size
from tritongen.ir.free import all_binders, free_indices, tensors_read
from tritongen.ir.names import fresh
from tritongen.schedule.aside import names_of
from tritongen.schedule.canonical import places, with_ranges

Place = tuple[str, str, str]  # an index of a line, or a dim of a tensor
Stored = TypeVar("Stored", ir.Tensor, ir.Nest)


def sides(op: ir.Op, name: str, square: ir.Nest) -> Iterator[tuple[ir.Op, str]]:
    """The op with a size of its own for one side of a temporary, and that size; once for each of its sides."""
    op = _without_equals(op)
    found = _Sides(op, name)
    along = {found.of_dim(square.name, k) for k, d in enumerate(square.dims) if d == found.size}
    if len(along) > 1:
        yield from ((found.apart(one), found.rows) for one in sorted(along))


class _Sides:
    """The sides of one size in an op: sets of indices and dims."""

    def __init__(self, op: ir.Op, name: str):
        self.op, self.size = op, size(name)
        self.parent: dict[Place, Place] = {}
        dims = {t.name: t.dims for t in op.tensors} | {n.name: n.dims for n in op.nests}
        for n in op.nests:
            own = [b.index for b in all_binders(n) if b.hi == self.size]
            for tensor, k, c in places(n):
                i = next((i for i in own if c == index(i)), None)
                if i is not None and dims[tensor][k] == self.size:
                    self.parent[self.of_index(n, i)] = self.of_dim(tensor, k)
        self.rows = fresh(f"rows_{name}", {*names_of(op)})

    def of(self, x: Place) -> Place:
        while self.parent.setdefault(x, x) != x:
            x = self.parent[x]
        return x

    def of_index(self, n: ir.Nest, name: str) -> Place:
        return self.of(("index", n.name, name))

    def of_dim(self, tensor: str, k: int) -> Place:
        return self.of(("dim", tensor, str(k)))

    def apart(self, side: Place) -> ir.Op:
        """The op where this side has the size `rows`."""

        def resized(t: Stored) -> Stored:
            mine = (self.of_dim(t.name, k) == side for k in range(len(t.dims)))
            both = zip(t.dims, mine, strict=True)
            dims = (size(self.rows) if m and d == self.size else d for d, m in both)
            return replace(t, dims=tuple(dims))

        def changed(n: ir.Nest) -> ir.Nest:
            def range_of(b: ir.Binder) -> ir.Binder:
                mine = b.hi == self.size and self.of_index(n, b.index) == side
                return replace(b, hi=size(self.rows)) if mine else b

            return resized(with_ranges(n, lambda p: p, lambda own: tuple(map(range_of, own))))

        op = self.op
        params = (resized(p) if isinstance(p, ir.Tensor) else p for p in op.params)
        outputs, nests = tuple(map(resized, op.outputs)), tuple(map(changed, op.nests))
        return replace(op, params=tuple(params), outputs=outputs, nests=nests)


def _without_equals(op: ir.Op) -> ir.Op:
    """The op where nobody reads a line whose elements are all the same number, `dl[i] = dloss / N`: its readers compute it."""
    outputs = {o.name for o in op.outputs}
    equal = {
        n.name: n.body
        for n in op.nests
        if n.box and n.name not in outputs and not free_indices(n.body) | tensors_read(n.body)
    }

    nests = (n.reading(lambda r: equal.get(r.tensor, r)) for n in op.nests)
    return replace(op, nests=tuple(nests))
