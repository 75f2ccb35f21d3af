"""A kernel run tile by tile in torch, floats in f64: without Triton, and without its text.

    run(kernel, op, nests, {"x": x}, {"BLOCK": 16})    # {"y": ...}

Input: a kernel, the op and the nests that it was lowered from, the arguments of a call, how many lanes each block has.
Output: what the kernel stores; NaN (or the lowest integer) where it stores nothing. Lanes outside of an index's range compute
garbage, as they would on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Any

import torch

from tritongen.ir import nodes as ir
from tritongen.ir.binding import bind
from tritongen.ir.interp import Axes, Run, fold
from tritongen.ir.rounding import widen
from tritongen.kernel.moving import exponential
from tritongen.kernel.nodes import PARTS, Fold, Kernel, Let, Loop, Stmt, Store, carried, statements


def run(
    kernel: Kernel,
    op: ir.Op,
    nests: Sequence[ir.Nest],
    args: Mapping[str, Any],
    blocks: Mapping[str, int],
    given: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> dict[str, torch.Tensor]:
    """What the kernel stores, by name; AssertionError where an element is stored twice.

    `blocks` says PARTS, too, where programs share a loop; `given`: what another kernel stored.
    """
    bound = bind(op, args)
    tensors = {t.name: widen(bound.values[t.name]) for t in op.tensors} | dict(given)
    by_name = {n.name: n for n in nests}
    machine = _Machine(op, bound, tensors, kernel.name, kernel, dict(blocks), nests=by_name)
    for store in (s for s in statements(kernel.body) if isinstance(s, Store)):
        name, nest = store.tensor, by_name[store.value or store.tensor]
        dims = [*([blocks["PARTS"]] if store.value else []), *map(bound.size, nest.dims)]
        machine.stored[name] = _nothing(dims, machine.dtype(nest.dtype))
        machine.counts[name] = torch.zeros(dims, dtype=torch.int64)
    for axes in machine.programs():
        machine.body(kernel.body, axes, {})
    for name, count in machine.counts.items():
        assert not count.numel() or int(count.max()) <= 1, f"{name}: an element is stored twice"
    return machine.stored


def _nothing(dims: list[int], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.full(dims, torch.nan, dtype=dtype)
    return torch.full(dims, torch.iinfo(dtype).min if dtype != torch.bool else 0, dtype=dtype)


Values = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Machine(Run):
    """One call. A value has a dim for each walk, of one element where it does not depend on that."""

    kernel: Kernel
    blocks: dict[str, int]
    stored: Values = field(default_factory=dict)
    counts: Values = field(default_factory=dict)
    nests: Mapping[str, ir.Nest] = field(default_factory=dict)
    values: Values = field(default_factory=dict)  # of the statements so far, in this program

    # ---- programs
    def programs(self) -> Iterator[dict[str, torch.Tensor]]:
        """The index blocks of each program."""
        starts = []
        for w in self.kernel.walks:
            extent = self.extent(w.index)
            step = {"program": 1, "tile": self.lanes(w.index)}.get(w.how, max(1, extent))
            inner = w.index in self.kernel.loops
            starts.append(range(1) if inner else range(0, extent if step else 0, step))
        for at in product(*starts):
            self.values.clear()
            yield {
                w.index: self.block(w.index, start)
                for w, start in zip(self.kernel.walks, at, strict=True)
                if w.index not in self.kernel.loops
            }

    def extent(self, index: str) -> int:
        extent = self.kernel.walk(index).extent
        return self.blocks["PARTS"] if extent == PARTS else self.bound.size(extent)

    def lanes(self, index: str) -> int:
        w = self.kernel.walk(index)
        if index in self.kernel.numbers:
            return 1
        if w.how == "whole":
            return 1 << max(0, self.extent(index) - 1).bit_length()
        return self.blocks[w.block]

    def block(self, index: str, start: int) -> torch.Tensor:
        """Lanes from `start` on, along the dim of the index."""
        at = [w.index for w in self.kernel.walks].index(index)
        shape = [1] * len(self.kernel.walks)
        shape[at] = -1
        return torch.arange(start, start + self.lanes(index)).view(shape)

    def live(self, names: Sequence[str], axes: Axes) -> torch.Tensor:
        """Where the lanes of these indices are in range, in this program."""
        live = torch.ones((1,) * len(self.kernel.walks), dtype=torch.bool)
        for name in names:
            live = live & (axes[name] < self.extent(name))
        return live

    # ---- statements
    def body(
        self, body: tuple[Stmt, ...], axes: dict[str, torch.Tensor], states: dict[str, Fold]
    ) -> None:
        for stmt in body:
            match stmt:
                case Let(name, value):
                    self.values[name] = self.value(value, axes, self.live(stmt.axes, axes))
                case Fold():
                    self.fold(stmt, axes, states)
                case Store():
                    self.store(stmt, axes)
                case Loop():
                    self.loop(stmt, axes, states)

    def loop(self, loop: Loop, axes: dict[str, torch.Tensor], states: dict[str, Fold]) -> None:
        own = {f.name: f for f in carried(self.kernel, loop)}
        for name, f in own.items():
            self.values[name] = self.identity(f.value, f.dtype)
            if f.value.is_place:
                extreme = replace(f.value, op=f.value.op.removeprefix("arg"))
                self.values[_held(name)] = self.identity(extreme, f.value.body.dtype)
        first, stop, step = 0, self.extent(loop.index), self.lanes(loop.index)
        if loop.part:
            chunk = -(-stop // (self.extent(loop.part) * step)) * step
            first = int(axes[loop.part]) * chunk
            stop = min(stop, first + chunk)
        for start in range(first, stop, step):
            within = axes | {loop.index: self.block(loop.index, start)}
            live = self.live(list(within), within)
            for guard in loop.within:
                live = live & self.passes(guard, within, live)
            if bool(live.any()) or not loop.within:
                self.body(loop.body, within, states | own)

    def identity(self, value: ir.Reduce, dtype: str) -> torch.Tensor:
        """What a reducer gives of no terms."""
        shape = (1,) * len(self.kernel.walks) + (0,)
        terms = torch.zeros(shape, dtype=self.dtype(value.body.dtype))
        return fold(value.op, terms, terms.bool()).to(self.dtype(dtype))

    def fold(self, f: Fold, axes: dict[str, torch.Tensor], states: dict[str, Fold]) -> None:
        terms = self.live((*f.axes, *f.over), axes)
        for guard in f.value.guards:
            terms = terms & self.passes(guard, axes, terms)
        order = [w.index for w in self.kernel.walks]
        dims = [order.index(x) for x in f.over]
        given = self.value(f.value.body, axes, terms)
        number = self.coordinate(f.value.number, axes, terms)[0]
        shape = torch.broadcast_shapes(given.shape, terms.shape, *(axes[x].shape for x in f.over))
        body, terms, number = (
            t.expand(shape).movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
            for t in (given, terms, number)
        )
        if f.value.is_place:
            self.fold_place(f, body, terms, number, sorted(dims))
            return
        block = fold(f.value.op, body, terms)
        for d in sorted(dims):
            block = block.unsqueeze(d)
        if f.name not in states:
            self.values[f.name] = block.to(self.dtype(f.dtype))
            return
        old = self.values[f.name]
        if f.moved_by:
            old = old * self.moved_on(f, axes)
        both = torch.stack(torch.broadcast_tensors(old, block.to(old.dtype)), -1)
        new = fold(f.value.op, both, torch.ones((), dtype=torch.bool).expand(both.shape))
        self.values[_before(f.name)] = self.values[f.name]
        self.values[f.name] = new

    def moved_on(self, f: Fold, axes: Axes) -> torch.Tensor:
        """What a sum is multiplied by, where its maximum has moved."""
        found = exponential(f.value.body, self.nests[f.moved_by], self.nests)
        assert found is not None
        live, new = self.live((), axes), self.values[f.moved_by]
        now = self.value(found.shift, axes, live)
        self.values[f.moved_by] = self.values[_before(f.moved_by)]
        before = self.value(found.shift, axes, live)
        self.values[f.moved_by] = new
        return torch.where(before == now, 1.0, torch.exp(before - now))

    def fold_place(self, f: Fold, body, terms, number, dims: list[int]) -> None:
        """The place of the first extreme so far, and that extreme."""
        best, at = self.values[_held(f.name)], self.values[f.name]
        for d in reversed(dims):
            best, at = best.squeeze(d), at.squeeze(d)
        body, terms, number = (
            torch.cat([old.unsqueeze(-1).expand(*new.shape[:-1], 1), new], -1)
            for old, new in ((best, body), (at >= 0, terms), (at, number))
        )
        which = fold(f.value.op, body, terms).unsqueeze(-1)
        some, which = which >= 0, which.clamp_min(0)
        best = fold(f.value.op.removeprefix("arg"), body, terms)
        at = torch.where(some, number.gather(-1, which), -1).squeeze(-1)
        for d in dims:
            best, at = best.unsqueeze(d), at.unsqueeze(d)
        self.values[_held(f.name)], self.values[f.name] = best, at

    def value(self, expr: ir.Expr, axes: Axes, live: torch.Tensor) -> torch.Tensor:
        match expr:
            case ir.Call("held", (ir.Read(place),)):
                return self.values[_held(place)]
        return Run.value(self, expr, axes, live)

    def store(self, s: Store, axes: dict[str, torch.Tensor]) -> None:
        live = self.live(s.axes, axes)
        if any(int(axes[x].reshape(-1)[0]) for x in s.once):
            return
        shape = torch.broadcast_shapes(live.shape, *(axes[x].shape for x in s.axes))
        live = live.expand(shape)
        at = tuple(self.coordinate(c, axes, live)[0].expand(shape)[live] for c in s.coords)
        value = self.values[s.value or s.tensor].to(self.stored[s.tensor].dtype).expand(shape)[live]
        if not at:
            self.stored[s.tensor].fill_(value.reshape(-1)[0])
            self.counts[s.tensor] += 1
            return
        self.stored[s.tensor].index_put_(at, value)
        self.counts[s.tensor].index_put_(at, torch.ones((), dtype=torch.int64), accumulate=True)

    # ---- reads of values
    def read(self, tensor, coords, fill, axes, live) -> torch.Tensor:
        if tensor in self.values:
            return self.values[tensor]
        return Run.read(self, tensor, coords, fill, axes, live)


def _before(name: str) -> str:
    return f"{name} before"


def _held(name: str) -> str:
    return f"{name} held"
