"""The oracle: evaluates an op in torch, with floats in f64 and exact integers.

Input: an op and the arguments of a call. Output: the value of every output, by name.

    run(softmax, {"x": torch.randn(4, 9)})["y"].sum(-1)    # ones, float64

A box becomes the shape of a dense tensor, a read becomes a gather, and a reducer becomes a reduction of the trailing
dims. `run` gives outputs before they are rounded to their dtype, `run_rounded` after. In both, a line that reads an
output reads the rounded value. A read without `else` that leaves its tensor where its value is used raises IndexError:
then the proof that accepted it was wrong. `binding.py` checks the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite, lcm, prod
from typing import Any

import torch

from tritongen.ir.algebra import (
    Atom,
    Extreme,
    Fetch,
    Floor,
    Group,
    Idx,
    Number,
    Poly,
    evaluate,
    is_fractional,
    is_index_like,
)
from tritongen.ir.batches import own_batches
from tritongen.ir.binding import Bound, bind, torch_dtype
from tritongen.ir.dtypes import DTYPES
from tritongen.ir.functions import FUNCTIONS
from tritongen.ir.nodes import (
    Binder,
    Call,
    Cast,
    Const,
    Expr,
    Guard,
    IndexValue,
    Nest,
    Op,
    Read,
    Reduce,
    ScalarRef,
    kind_of,
    parts,
)
from tritongen.ir.reducers import REDUCERS
from tritongen.ir.rounding import narrowed, widen

DENSE_LIMIT = 1 << 24  # elements of the largest intermediate; larger boxes are walked in pieces
_HOLES = {hole: hole for hole in "abc"}


def run(op: Op, args: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Every output, floats in f64 and not rounded to the output's dtype."""
    return {name: exact for name, (exact, _) in _outputs(op, args).items()}


def run_rounded(op: Op, args: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Every output in its own dtype."""
    return {name: rounded for name, (_, rounded) in _outputs(op, args).items()}


def count_points(op: Op, sizes: Mapping[str, int]) -> int:
    """How many points of boxes and reducers a run visits: what an op costs, whatever the schedule."""

    def extent(binders: tuple[Binder, ...]) -> int:
        return prod(max(0, int(evaluate(b.hi - b.lo, sizes))) for b in binders)

    def points(expr: Expr) -> int:
        below = sum(points(part) for part in parts(expr))
        return extent(expr.binders) * max(1, below) if isinstance(expr, Reduce) else below

    return sum(extent(nest.box) * max(1, points(nest.body)) for nest in op.nests)


def _outputs(op: Op, args: Mapping[str, Any]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    bound, (op, _) = bind(op, args), own_batches(op)
    declared, results = {o.name: o for o in op.outputs}, {}
    tensors = {t.name: widen(bound.values[t.name]) for t in op.tensors}
    for nest in op.nests:
        value = Run(op, bound, tensors, nest.name).nest(nest)
        if nest.name in declared:
            rounded = narrowed(value, torch_dtype(bound.dtype(nest.dtype)))
            shape = bound.shape(declared[nest.name])
            results[nest.name] = value.reshape(shape), rounded.reshape(shape)
            value = widen(rounded)
        tensors[nest.name] = value
    return {o.name: results[o.name] for o in op.outputs}


# An axis is the values of one index, shaped to broadcast against the dims of the box.
Axes = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Run:
    """One nest of one call; the methods follow the shape of an expression."""

    op: Op
    bound: Bound
    tensors: Mapping[str, torch.Tensor]
    name: str

    def nest(self, nest: Nest) -> torch.Tensor:
        dims = [self.bound.size(d) for d in nest.dims]
        result = torch.zeros(dims, dtype=self.dtype(nest.dtype), device=self.device)
        ranges = [range(self.bound.size(b.lo), self.bound.size(b.hi)) for b in nest.box]
        if not all(ranges):
            return result
        per_point = max(1, self.widest(nest.body))
        for piece in pieces(ranges, DENSE_LIMIT // per_point):
            axes = axes_of(
                [(b.index, r) for b, r in zip(nest.box, piece, strict=True)], self.device
            )
            live = torch.ones((1,) * len(piece), dtype=torch.bool, device=self.device)
            value = self.value(nest.body, axes, live).expand([len(r) for r in piece])
            if nest.coords:
                where = tuple(self.coordinate(c, axes, live)[0] for c in nest.coords)
                result[where] = value.to(result.dtype)
            else:
                result = value.to(result.dtype)
        return result

    @property
    def device(self) -> torch.device:
        return next((t.device for t in self.tensors.values()), torch.device("cpu"))

    def dtype(self, name: str) -> torch.dtype:
        """The dtype that holds values of a dtype of the IR: f64 for every float."""
        if kind_of(name, self.op) == "float":
            return torch.float64
        return torch_dtype(self.bound.dtype(name))

    def widest(self, expr: Expr) -> int:
        """Elements per point of the box of the largest intermediate."""
        below = max((self.widest(part) for part in parts(expr)), default=1)
        if not isinstance(expr, Reduce):
            return below
        return below * prod(self.bound.size(b.hi - b.lo) for b in expr.binders)

    # ---- expressions ----------------------------------------------------------------------------
    def value(self, expr: Expr, axes: Axes, live: torch.Tensor) -> torch.Tensor:
        """The value at every point; `live` says where it matters."""
        match expr:
            case Const(value, dtype):
                return torch.tensor(value, dtype=self.dtype(dtype), device=self.device)
            case ScalarRef(name, dtype):
                return self.scalar(name, dtype)
            case IndexValue(p, dtype):
                return self.coordinate(p, axes, live)[0].to(self.dtype(dtype))
            case Read(tensor, coords, fill):
                return self.read(tensor, coords, fill, axes, live)
            case Cast(arg, dtype):
                return self.cast(self.value(arg, axes, live), dtype)
            case Call("where", (condition, yes, no)):
                chosen = self.value(condition, axes, live)
                here = self.value(yes, axes, live & chosen)
                return torch.where(chosen, here, self.value(no, axes, live & ~chosen))
            case Call("pow_int", (base, Const(exponent)), dtype):
                return (self.value(base, axes, live) ** exponent).to(self.dtype(dtype))
            case Call(fn, args, dtype):
                values = [self.value(a, axes, live) for a in args]
                if fn in ("floordiv", "mod") and not _is_float(values[1]):
                    # torch raises on any zero; only one that matters is an error.
                    values[1] = torch.where(live, values[1], values[1].clamp(min=1))
                return self.function(fn)(*values).to(self.dtype(dtype))
            case Reduce():
                return self.reduce(expr, axes, live)
        raise TypeError(expr)

    def function(self, fn: str) -> Callable[..., torch.Tensor]:
        return _torch_function(fn)

    def scalar(self, name: str, dtype: str) -> torch.Tensor:
        given = self.bound.values[name]
        value = torch.as_tensor(given, device=self.device)
        if isinstance(given, float):
            value = torch.tensor(given, dtype=torch.float64, device=self.device)
        if kind_of(dtype, self.op) == "float":
            return widen(value.to(torch_dtype(self.bound.dtype(dtype))))
        return self.cast(value, dtype)

    def cast(self, value: torch.Tensor, dtype: str) -> torch.Tensor:
        target = self.bound.dtype(dtype)
        if kind_of(dtype, self.op) != "float":
            wide = value.to(torch.int64) if target != "bool" and _is_float(value) else value
            return wide.to(torch_dtype(target))
        if _is_float(value) and DTYPES[target].bits >= DTYPES[self.bound.dtypes["compute"]].bits:
            return value.to(torch.float64)
        return narrowed(value, torch_dtype(target)).to(torch.float64)

    def read(self, tensor, coords, fill, axes, live) -> torch.Tensor:
        source = self.tensors[tensor]
        inside, where = self.place(source, coords, axes, live)
        if fill is None:
            if bool((~inside & live).any()):
                raise IndexError(f"{self.op.name}: {self.name}: a read of {tensor} leaves it")
            fill = 0
        outside = torch.tensor(fill, dtype=source.dtype, device=self.device)
        if not source.numel():
            return outside.expand(inside.shape)
        return torch.where(inside, source[where] if where else source, outside)

    def place(self, source, coords, axes, live) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Whether the coordinates lie inside, and coordinates that do in any case."""
        inside = torch.ones((), dtype=torch.bool, device=self.device)
        where = []
        for c, extent in zip(coords, source.shape, strict=True):
            n, whole = self.coordinate(c, axes, live)
            inside = inside & whole & (n >= 0) & (n < extent)
            where.append(n.clamp(0, max(0, extent - 1)))
        return inside, tuple(where)

    # ---- reducers -------------------------------------------------------------------------------
    def reduce(self, expr: Reduce, axes: Axes, live: torch.Tensor) -> torch.Tensor:
        inner, used, terms = self.space(expr, axes, live)
        body = torch.zeros((), dtype=self.dtype(expr.body.dtype), device=self.device)
        if terms.numel():  # what has no terms divides nothing, by 0 least of all
            body = self.value(expr.body, inner, used)
        body, terms = flat_terms(expr, body, terms), flat_terms(expr, terms, terms)
        result = fold(expr.op, body, terms)
        if expr.is_place and len(expr.binders) == 1:
            result = torch.where(result < 0, result, result + self.bound.size(expr.binders[0].lo))
        return result.to(self.dtype(expr.dtype))

    def space(
        self, expr: Reduce, axes: Axes, live: torch.Tensor
    ) -> tuple[Axes, torch.Tensor, torch.Tensor]:
        """The axes of the terms, where a term matters, and which terms pass the guards."""
        k = len(expr.binders)
        ranges = [range(self.bound.size(b.lo), self.bound.size(b.hi)) for b in expr.binders]
        inner = {name: a[(...,) + (None,) * k] for name, a in axes.items()}
        inner |= axes_of(
            [(b.index, r) for b, r in zip(expr.binders, ranges, strict=True)], self.device
        )
        outer = torch.broadcast_shapes(live.shape, *(a.shape for a in axes.values()))
        shape = tuple(outer) + tuple(len(r) for r in ranges)
        terms = torch.ones((1,) * len(shape), dtype=torch.bool, device=self.device)
        for guard in expr.guards:
            terms = terms & self.passes(guard, inner, live[(...,) + (None,) * k])
        # A value that does not vary along an empty dim has an element. No term reads it.
        used = live[(...,) + (None,) * k] & terms & (0 not in shape)
        return inner, used, terms.expand(shape)

    def passes(self, guard: Guard, axes: Axes, live: torch.Tensor) -> torch.Tensor:
        """Whether a guard holds. A difference of two operands may not fit in 64 bits: its sides are compared."""
        below = Poly(tuple((m, -value) for m, value in guard.poly.terms if value < 0))
        if is_fractional(guard.poly):
            below = Poly()
        (n, whole), (least, also) = (
            self.coordinate(side, axes, live) for side in (guard.poly + below, below)
        )
        return whole & also & (n >= least if guard.op == ">=" else n == least)

    # ---- coordinates ----------------------------------------------------------------------------
    def coordinate(self, p: Poly, axes: Axes, live) -> tuple[torch.Tensor, torch.Tensor]:
        """The floor of p at every point, and whether p is a whole number there."""
        num, den, whole = self.rational(p, axes, live)
        return torch.div(num, den, rounding_mode="floor"), whole & (num % den == 0)

    def rational(self, p: Poly, axes: Axes, live) -> tuple[torch.Tensor, int, torch.Tensor]:
        """p as integers over one denominator; whether every division below a floor was exact."""
        whole = torch.ones((), dtype=torch.bool, device=self.device)
        terms: list[tuple[Number, torch.Tensor]] = []
        for monomial, factor in p.terms:
            product = torch.ones((), dtype=torch.int64, device=self.device)
            for atom, power in monomial:
                if not is_index_like(atom):
                    factor = factor * evaluate(Poly(((((atom, power),), 1),)), self.bound.sizes)
                    continue
                value, exact = self.atom(atom, axes, live)
                product, whole = product * value**power, whole & exact
            terms.append((factor, product))
        den = lcm(1, *(factor.denominator for factor, _ in terms))
        num = torch.zeros((), dtype=torch.int64, device=self.device)
        for factor, product in terms:
            num = num + product * int(factor * den)
        return num, den, whole

    def atom(self, atom: Atom, axes: Axes, live) -> tuple[torch.Tensor, torch.Tensor]:
        match atom:
            case Idx(name):
                return axes[name], torch.ones((), dtype=torch.bool, device=self.device)
            case Floor(num, den):
                top, _, whole = self.rational(num, axes, live)
                return torch.div(top, self.bound.size(den), rounding_mode="floor"), whole
            case Fetch(tensor, coords, fill):
                source = self.tensors[tensor]
                value = self.read(tensor, coords, fill, axes, live).to(torch.int64)
                return value, torch.ones((), dtype=torch.bool, device=source.device)
            case Group(inner):
                top, below, whole = self.rational(inner, axes, live)
                return torch.div(top, below, rounding_mode="floor"), whole & (top % below == 0)
            case Extreme(op, args):
                values = [self.coordinate(a, axes, live) for a in args]
                pick = torch.minimum if op == "min" else torch.maximum
                value, whole = values[0]
                for other, exact in values[1:]:
                    value, whole = pick(value, other), whole & exact
                return value, whole
        raise TypeError(atom)


@cache
def _torch_function(fn: str) -> Callable[..., torch.Tensor]:
    """The row's torch text, which is ours and no user's, as a function."""
    row = FUNCTIONS[fn]
    holes = "abc"[: row.arity]
    return eval(f"lambda {', '.join(holes)}: {row.torch.template.format_map(_HOLES)}")


def _is_float(t: torch.Tensor) -> bool:
    return t.dtype.is_floating_point


def axes_of(ranges: list[tuple[str, range]], device: torch.device) -> dict[str, torch.Tensor]:
    """One arange per index, each along its own dim."""
    rank = len(ranges)
    return {
        name: torch.arange(r.start, max(r.start, r.stop), device=device).view(
            [-1] + [1] * (rank - 1 - position)
        )
        for position, (name, r) in enumerate(ranges)
    }


def pieces(ranges: list[range], limit: int) -> Iterator[list[range]]:
    """The box cut along its longest side until each piece has at most `limit` points."""
    longest = max(range(len(ranges)), key=lambda i: len(ranges[i]), default=None)
    if prod(len(r) for r in ranges) <= limit or longest is None or len(ranges[longest]) == 1:
        yield ranges
        return
    r = ranges[longest]
    middle = r.start + len(r) // 2
    for half in (range(r.start, middle), range(middle, r.stop)):
        yield from pieces(ranges[:longest] + [half] + ranges[longest + 1 :], limit)


def _identity(op: str, dtype: torch.dtype) -> int | float | bool:
    value = REDUCERS[op].identity
    if dtype == torch.bool:
        return value > 0
    if isfinite(value) or dtype.is_floating_point:
        return value
    return torch.iinfo(dtype).max if value > 0 else torch.iinfo(dtype).min


def flat_terms(expr: Reduce, part: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """A value of every term, the dims of the terms as one."""
    k = len(expr.binders)
    part = part.expand(terms.shape)
    return part.flatten(-k) if k else part[..., None]


def fold(op: str, body: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """Reduce the last dim over the terms; sums and products keep the dtype and wrap."""
    identity = torch.tensor(_identity(op, body.dtype), dtype=body.dtype, device=body.device)
    kept = torch.where(terms, body, identity)
    if REDUCERS[op].is_place:
        return _first(kept, terms, op)
    if not body.shape[-1]:
        return identity.expand(body.shape[:-1])
    return getattr(kept, REDUCERS[op].torch)(-1).to(body.dtype)


def _first(kept: torch.Tensor, terms: torch.Tensor, op: str) -> torch.Tensor:
    """The number of the first NaN, else of the first extreme; -1 where there is no term."""
    if not kept.shape[-1]:
        return torch.full(kept.shape[:-1], -1, device=kept.device)
    best = (kept.amax if op == "argmax" else kept.amin)(-1, keepdim=True)
    hit = torch.where(kept.isnan().any(-1, keepdim=True), kept.isnan(), terms & (kept == best))
    return torch.where(terms.any(-1), hit.to(torch.int8).argmax(-1), -1)
