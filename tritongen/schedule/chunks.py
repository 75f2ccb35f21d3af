"""Stores a temporary that is larger than each operand and result for a chunk of one size at a time.

The gradient of a loss head has one, of the logits z = x w^T:

    dz[m, v] = ...                             for each chunk of V:
    dx[m, k] = sum[v](dz[m, v] * w[v, k])          dz[m, v] = ...
    dw[v, k] = sum[m](dz[m, v] * x[m, k])          dx_sum[m, k] = dx_sum_before[m, k] + sum[v](dz[m, v] * w[v, k])
                                                   dw[v, k] = ...
                                               behind all: dx[m, k] = T(dx_sum[m, k])

Input: an op, and the temporaries that its plan stores. Output: the op of one chunk, and the op behind all chunks; they are
planned as any op. In the first one V is the size of the chunk: it is given a part of each tensor with that dim. An index of
V that is used as a number begins at the scalar `first_V`. The plan of both is one plan (`Plan.chunks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index, indices, poly, size, symbols, weight_of
from tritongen.ir.batches import own_batches
from tritongen.ir.free import (
    all_binders,
    coordinates,
    folds_of,
    following,
    free_indices,
    needed,
    own_coordinates,
    tensors_read,
)
from tritongen.ir.names import fresh
from tritongen.schedule.aside import names_of
from tritongen.schedule.plan import Chunks, Plan
from tritongen.schedule.sides import sides

Cut = tuple[ir.Op, Chunks[ir.Op]]


def cut(op: ir.Op, stored: Iterable[str], unstored: frozenset[str]) -> Cut | None:
    """The op, which may get one size more, and its chunks by the size that the fewest operands have; None where nothing is that
    large, or no size serves.

    `unstored`: only what has the dims of one of these lines counts as large. The hidden layer of two products does not: the forward
    stores it, too, and each chunk would add a pass over the sums.
    """
    by_name = {n.name: n for n in op.nests}
    room = [_sizes(t.dims) for t in (*op.tensors, *op.outputs)]
    never = [_sizes(by_name[name].dims) for name in unstored & by_name.keys()]
    large = [
        n
        for n in (by_name[name] for name in stored if name in by_name)
        if any(own <= _sizes(n.dims) for own in never) and all(_sizes(n.dims) - own for own in room)
    ]
    if not large or any(any(d == ir.BATCH_SIZE for d in n.dims) for n in large):
        return None
    named = {c.name for c in op.constants} | {d.name for d in op.defines}
    sizes = {name: size(name) for d in large[0].dims for name in symbols(d) if size(name) == d}
    having = {name: sum(p in t.dims for t in op.tensors) for name, p in sizes.items()}
    for name in sorted(sizes.keys() - named, key=lambda name: having[name]):
        if having[name] and all(sizes[name] in n.dims for n in large):
            for each, own in ((op, name), *sides(op, name, large[0])):
                if found := _Cutting(each, own).made():
                    return found
    return None


def _sizes(dims: Iterable[Poly]) -> Counter[Poly]:
    """The dims without constants: queries, keys and values packed in one tensor are no chunks of it."""
    return Counter(d for d in dims if d.constant is None)


def never_stored(plan: Plan) -> frozenset[str]:
    """The lines of an op that its kernels compute from a product and never store: those with an index of the product's columns."""
    stored = {n.name for n in plan.scratch} | {o.name for o in plan.inner.outputs}
    inside = set[str]()
    for k in (k for s in plan.steps for k in s.kernels):
        columns = {w.index for w in (k.kernel.walks if k.kernel else ()) if w.block == "BLOCK_N"}
        inside |= {n.name for n in k.nests if columns & n.over} - stored
    called = zip(plan.inner.nests, own_batches(plan.op)[0].nests, strict=True)
    return frozenset(line.name for inner, line in called if inner.name in inside)


class _Refused(Exception):
    """The size is used in a way that no chunk has."""


class _Cutting:
    """One size of an op. A line is of chunks (`own`) where its box has an index of the size, else it may sum over one."""

    def __init__(self, op: ir.Op, name: str):
        self.op, self.name, self.size = op, name, size(name)
        self.dims = {t.name: t.dims for t in op.tensors} | {n.name: n.dims for n in op.nests}
        self.taken = {*names_of(op)}
        # No template has names that end like a size.
        own = (fresh(f"{word}_{name}", self.taken) for word in ("first", "all", "chunk"))
        self.first, self.whole, self.count = own
        # By line, since indices of two lines may have one name.
        self.sums: dict[tuple[str, ir.Reduce], ir.Nest] = {}

    def made(self) -> Cut | None:
        try:
            own = {n.name for n in self.op.nests if self.of(n.box)}
            for n in self.op.nests:
                self.check(n, n.name in own)
            folds = {n.name: tuple(dict.fromkeys(self.summed(n))) for n in self.op.nests}
            summing = {name for name, found in folds.items() if found}
            behind = summing | following(self.op.nests, summing)
            used = {n.name for n in needed(self.op.nests, own)}
            used |= {t for found in folds.values() for e in found for t in tensors_read(e)}
            if not summing or used & behind:
                return None
            return self.apart(own, folds)
        except _Refused:
            return None

    # ---- what a chunk can have
    def of(self, binders: Iterable[ir.Binder]) -> set[str]:
        """The indices of the size."""
        found = set()
        for b in binders:
            if b.hi == self.size and not b.lo.terms:
                found.add(b.index)
            elif self.name in symbols(b.hi) | symbols(b.lo):
                raise _Refused
        return found

    def folded(self, n: ir.Nest) -> set[str]:
        return {i for e in folds_of(n.body) for i in self.of(e.binders)}

    def check(self, n: ir.Nest, own: bool) -> None:
        """Each index of the size stands alone, at a dim of that size; the size itself is used as a number only."""
        inner = self.folded(n)
        if own and inner:
            raise _Refused
        cut = self.of(n.box) | inner
        self.placed(n.dims, n.coords, cut)
        for e in ir.walk(n.body):
            match e:
                case ir.Read(tensor, coords):
                    self.placed(self.dims[tensor], coords, cut)
                case ir.IndexValue(p, dtype):
                    moved = indices(p) & cut
                    alone = all(weight_of(p, i) == poly(1) for i in moved)
                    if moved and (dtype not in ir.INTS or len(moved) > 1 or not alone):
                        raise _Refused
                    if self.name in symbols(p) and p != self.size:
                        raise _Refused
                case ir.Reduce():
                    over, others = self.of(e.binders), {*own_coordinates(e)} - {self.size}
                    spoken = any(indices(p) & cut or self.name in symbols(p) for p in others)
                    if spoken or over and (e.op != "sum" or len(over) > 1):
                        raise _Refused

    def placed(self, dims: tuple[Poly, ...], coords: tuple[Poly, ...], cut: set[str]) -> None:
        for d, c in zip(dims, coords, strict=True):
            if d != self.size and self.name in symbols(d):
                raise _Refused
            alone = any(c == index(i) for i in cut)
            moved = bool(indices(c) & cut) or self.name in symbols(c)
            if alone != (d == self.size) or moved != alone:
                raise _Refused

    def summed(self, n: ir.Nest) -> Iterable[ir.Reduce]:
        for e in folds_of(n.body):
            if self.of(e.binders):
                if not free_indices(e) <= n.over:
                    raise _Refused
                yield e

    # ---- both ops
    def apart(self, own: set[str], folds: dict[str, tuple[ir.Reduce, ...]]) -> Cut:
        op = self.op
        befores = list[ir.Tensor]()
        sums = list[ir.Nest]()
        for n in op.nests:
            for e in folds[n.name]:
                name = fresh(f"{n.name}_sum", self.taken)
                before = ir.Tensor(fresh(f"{name}_before", self.taken), e.dtype, n.dims)
                added = ir.Call("add", (_read(before.name, n.coords, e.dtype), e), e.dtype)
                self.sums[n.name, e] = replace(n, name=name, body=added, dtype=e.dtype)
                befores.append(before)
                sums.append(self.sums[n.name, e])
        lines = needed(op.nests, own.union(*(tensors_read(n.body) for n in sums)))
        inner = (*lines, *sums)
        inner = tuple(replace(n, body=ir.rebuild(n.body, self.shifted(n))) for n in inner)
        results = tuple(o for o in op.outputs if o.name in own)
        totals = tuple(ir.Tensor(n.name, n.dtype, n.dims) for n in sums)
        body = self.smaller(inner, (*results, *totals), befores)
        others = (n for n in op.nests if n.name not in own)
        last = tuple(replace(n, body=ir.rebuild(n.body, self.from_sums(n))) for n in others)
        rest = tuple(o for o in op.outputs if o.name not in own)
        last = needed(last, {o.name for o in rest})
        behind = self.smaller(last, rest, list(totals))
        parts = tuple(
            (t.name, t.dims.index(self.size), fresh(f"{t.name}_{self.name}", self.taken))
            for t in (*op.tensors, *op.outputs)
            if self.size in t.dims and t.name in {x.name for x in (*body.params, *results)}
        )
        names = self.name, parts, self.first, self.whole, self.count
        return op, Chunks(*names, tuple(sums), body, behind)

    def shifted(self, n: ir.Nest):
        """Index values of the size begin at the first one of the chunk, and the size as a number is the whole one."""
        cut = self.of(n.box) | self.folded(n)

        def change(e: ir.Expr) -> ir.Expr:
            match e:
                case ir.IndexValue(p, dtype) if p == self.size:
                    return _number(self.whole, dtype)
                case ir.IndexValue(p, dtype) if indices(p) & cut:
                    return ir.Call("add", (e, _number(self.first, dtype)), dtype)
            return e

        return change

    def from_sums(self, n: ir.Nest):
        """The sums of a line are read where they were computed, and the size as a number is the whole one."""

        def change(e: ir.Expr) -> ir.Expr:
            if isinstance(e, ir.Reduce) and (total := self.sums.get((n.name, e))):
                return _read(total.name, total.coords, e.dtype)
            if isinstance(e, ir.IndexValue) and e.poly == self.size:
                return _number(self.whole, e.dtype)
            return e

        return change

    def smaller(
        self, nests: ir.Nests, outputs: tuple[ir.Tensor, ...], more: list[ir.Tensor]
    ) -> ir.Op:
        """An op of these lines, with the operands and numbers that they use."""
        read = set().union(*(tensors_read(n.body) for n in nests))
        refs = {e.name for n in nests for e in ir.walk(n.body) if isinstance(e, ir.ScalarRef)}
        used = read | refs | {c.name for c in self.op.constants}
        params = [p for p in self.op.params if p.name in used]
        bounds = (p for b in all_binders(*nests) for p in (b.lo, b.hi))
        places = (p for n in nests for p in coordinates(n.body))
        spoken = set().union(*map(symbols, (*bounds, *places)))
        own = [p for p in params if isinstance(p, ir.Tensor)]
        asked: list[Poly] = [size(name) for name in sorted(spoken - {self.name})]
        if len(outputs) > 1:  # else nothing runs where `more` is not there
            asked += [d for t in more for d in t.dims] + [d for n in nests for d in n.dims]
            told = self.telling({t.dtype for t in own})
            own += told
            params += told
        else:
            own += more
        params += self.binding(asked, own)
        params += more
        params += [ir.Scalar(x, "i64", None) for x in (self.first, self.whole) if x in refs]
        tensors = [p for p in params if isinstance(p, ir.Tensor)]
        bound = {s for t in tensors for d in t.dims for s in symbols(d) if size(s) == d}
        bound |= {p.name for p in params if isinstance(p, ir.Constant)}
        facts = list[ir.Fact]()
        for f in self.op.facts:
            polys = (f.value,) if isinstance(f, ir.Define) else (f.left, f.right)
            said = set().union(*map(symbols, polys))
            if said <= bound and self.name not in said:
                facts.append(f)
                bound |= {f.name} if isinstance(f, ir.Define) else set()
        types = {t.dtype for t in (*tensors, *outputs)}
        if spoken - bound or not tensors or any(p.name not in types for p in self.op.typarams):
            raise _Refused
        return replace(
            self.op, params=tuple(params), outputs=outputs, nests=nests, facts=tuple(facts),
            gradient="none", ref=None, kept=(), text="",
        )  # fmt: skip

    def telling(self, known: set[str]) -> list[ir.Tensor]:
        """Operands beside those that are read, whose dtypes say whether the call computes in f64."""
        wide = (
            t for t in self.op.tensors if t.dtype != "compute" and ir.may_be_f64(t.dtype, self.op)
        )
        return [*{t.dtype: t for t in wide if t.dtype not in known}.values()]

    def binding(self, asked: Iterable[Poly], read: list[ir.Tensor]) -> list[ir.Tensor]:
        """Operands beside those that are read, whose shapes say these sizes."""
        known = {d for t in read for d in t.dims}
        found = list[ir.Tensor]()
        for d in dict.fromkeys(asked):
            if d not in known and (t := next((t for t in self.op.tensors if d in t.dims), None)):
                found.append(t)
                known.update(t.dims)
        return found


def _read(name: str, coords: tuple[Poly, ...], dtype: str) -> ir.Expr:
    return ir.Cast(ir.Read(name, coords, None, dtype), dtype)


def _number(name: str, dtype: str) -> ir.Expr:
    number = ir.ScalarRef(name, "i64")
    return number if dtype == "i64" else ir.Cast(number, dtype)
