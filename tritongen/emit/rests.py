"""A kernel whose indices are walked in two blocks, with a statement for each.

    whole e < E by BLOCK_D + REST_D        whole e < E by BLOCK_D, rest e_rest < E by REST_D

    s[i, j] = sum[e](q[i, e] * k[j, e])    s[i, j] = sum[e](q[i, e] * k[j, e])
                                           s[i, j] += sum[e_rest](q[i, e_rest] * k[j, e_rest])
    store o[i, e]                          store o[i, e]
                                           store o[i, e_rest] = o_rest

Input: a lowered kernel and its nests. Output: the same with both blocks. `e_rest` counts on from BLOCK_D. The printer puts its
statements under `if REST_D:`, since REST_D is 0 where one block holds all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, substitute
from tritongen.ir.names import fresh
from tritongen.kernel.nodes import Fold, Kernel, Let, Loop, Stmt, Store, Walk
from tritongen.schedule.canonical import rename_nest


def in_two(kernel: Kernel, nests: ir.Nests, taken: set[str]) -> tuple[Kernel, ir.Nests]:
    """The kernel and its nests. `taken`: what neither indices nor values may be called."""
    for w in kernel.walks:
        if w.rest:
            names = {n.name: fresh(f"{n.name}_rest", taken) for n in nests if w.index in n.over}
            kernel, nests = _Split(w, fresh(f"{w.index}_rest", taken), names, nests).both(kernel)
    return kernel, nests


def behind(kernel: Kernel) -> dict[str, str]:
    """Of each index of a second block the constexpr behind whose lanes it begins."""
    found = zip(kernel.walks, kernel.walks[1:], strict=False)
    return {rest.index: first.block for first, rest in found if rest.how == "rest"}


@dataclass(frozen=True, slots=True)
class _Split:
    walk: Walk
    name: str  # of the index of the second block
    values: dict[str, str]  # those that have lanes there, and what they are called there
    nests: ir.Nests

    def both(self, kernel: Kernel) -> tuple[Kernel, ir.Nests]:
        walks = list[Walk]()
        for w in kernel.walks:
            walks.append(replace(w, rest="") if w is self.walk else w)
            if w is self.walk:
                walks.append(Walk(self.name, w.extent, "rest", w.rest))
        nests = list[ir.Nest]()
        for n in self.nests:
            nests.append(n)
            if n.name in self.values:
                nests.append(replace(self.moved(n), name=self.values[n.name]))
        body = tuple(s for stmt in kernel.body for s in self.statements(stmt))
        return replace(kernel, walks=tuple(walks), body=body), tuple(nests)

    def statements(self, s: Stmt) -> Iterator[Stmt]:
        own = self.walk.index
        if isinstance(s, Loop):
            body = tuple(inner for stmt in s.body for inner in self.statements(stmt))
            yield replace(s, body=body)
            return
        yield s
        if own in s.axes:
            axes = tuple(self.name if i == own else i for i in s.axes)
            match s:
                case Store():
                    value = self.values[s.value or s.tensor]
                    coords = tuple(map(self.coordinate, s.coords))
                    yield replace(s, coords=coords, axes=axes, value=value)
                case Let() | Fold():
                    yield replace(s, name=self.values[s.name], value=self.value(s), axes=axes)  # type: ignore[arg-type]
        elif isinstance(s, Fold) and own in s.over:
            yield replace(s, value=self.value(s), again=True)  # type: ignore[arg-type]

    def value(self, s: Let | Fold) -> ir.Expr:
        return self.moved(next(n for n in self.nests if n.name == s.name)).body

    def moved(self, n: ir.Nest) -> ir.Nest:
        """A nest at the lanes of the second block."""
        moved = rename_nest(n, {self.walk.index: self.name})
        return moved.reading(lambda r: replace(r, tensor=self.values.get(r.tensor, r.tensor)))

    def coordinate(self, c: Poly) -> Poly:
        return substitute(c, {self.walk.index: index(self.name)})
