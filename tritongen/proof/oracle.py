"""The right answers of a call: for every output a value in f64, and how far off a kernel may be.

    expect(softmax, {"x": x})["y"]   # Expected(value, slack, dtype): y must be what some number
                                     # in [value - slack, value + slack] rounds to

The oracle walks the IR as `ir.interp` does, with an error bound beside every value:

- A function of the table adds its `ulp`. It passes on the errors of its arguments: it is evaluated at both ends of each.
- A sum adds `SUM_ERROR * u * sum(|terms|)`, whatever its length. The classical bound `n * u` would never fail.
- A sum of products adds what the tensor cores lose of each factor (`truncated`, `unsplit`), and of the sum.
- Reads, comparisons, where, max and integers are exact. Ops made of these have no slack at all.
- Beyond the largest number of the compute type every answer is right (slack inf): f64 sees no overflow there.

Not here: comparing (`judge.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tritongen.ir.algebra import Fetch, Poly
from tritongen.ir.algebra import walk as walk_poly
from tritongen.ir.batches import own_batches
from tritongen.ir.binding import bind, torch_dtype
from tritongen.ir.forms import with_forms
from tritongen.ir.functions import FUNCTIONS, power_ulp
from tritongen.ir.interp import DENSE_LIMIT, Axes, Run, axes_of, flat_terms, fold, pieces
from tritongen.ir.nodes import (
    INTS,
    Call,
    Cast,
    Const,
    Expr,
    IndexValue,
    Nest,
    Op,
    Read,
    Reduce,
    ScalarRef,
    walk,
)
from tritongen.ir.reads import switch_of
from tritongen.ir.rounding import widen
from tritongen.proof.errors import (
    absorb,
    beyond,
    contenders,
    distance,
    farthest,
    moved,
    swung,
    unsure,
    wandered,
)
from tritongen.proof.factors import (
    TINIEST,
    burst,
    high,
    is_exponential,
    is_half,
    missing,
    moved_on,
    opposed,
    products_of,
    regrouped,
    truncated,
    unsplit,
)
from tritongen.runtime.precision import f32_precision
from tritongen.schedule.factored import factors_of
from tritongen.schedule.members import paste

# In units of u * sum(|terms|): 1 to 3 is seen with serial and tree sums.
SUM_ERROR = 8
BLOCK = 16  # of a row, at least, where a kernel walks it
_UNIT = {"f32": 2.0**-24, "f64": 2.0**-53}
_LARGEST = {"f32": torch.finfo(torch.float32).max, "f64": torch.finfo(torch.float64).max}
_SUM_OF_F8 = 2.0**-13  # Hopper adds products of f8 with 14 bits

# A product that overflows alone may not do so inside a fused multiply-add.
_MAY_FUSE = ("add", "sub", "mul", "square", "pow_int")

Pair = tuple[torch.Tensor, "torch.Tensor | None"]  # a value and its error; None: exact


@dataclass(frozen=True, slots=True)
class Expected:
    """`slack` is None where the value is exact, inf where anything goes: `near`, what is about the value, or not finite."""

    value: torch.Tensor
    slack: torch.Tensor | None
    dtype: torch.dtype
    near: bool = False


def expect(
    op: Op,
    args: Mapping[str, Any],
    serial: bool = False,
    split: str = "",
    flushed: bool = False,
    moving: bool = False,
    means: Collection[str] = (),
) -> dict[str, Expected]:
    """The right answers of a call. Raises ValueError or IndexError if the arguments are no call of the op.

    - `serial`: sums run one term after another. Each rounding is of the sum so far (`wandered`).
    - `split`: products of f32 are sums of three parts (tf32x3). The smallest part is left out (4 units of u), and so are
      low parts that are no normal numbers. The largest numbers are infinite in TF32. With "ours" they keep 11 digits. With
      "triton" sums over them may be anything: they are "infinite" or "nan" to what reads them.
    - `flushed`: a sum of f32 is 0 wherever it passes through a denormal number.
    - `moving`: sums move with a maximum. exp(x - maximum) is rounded with a maximum that may be smaller, and then
      multiplied.
    - `means`: lines that are means of rows, and that read again what their terms leave (`schedule/means.py`).
    """
    bound = bind(op, args)
    op = with_forms(own_batches(op)[0])
    declared = {o.name: o for o in op.outputs}
    tolerances = {t.dtype: t for t in op.tolerances}
    tensors = {t.name: widen(bound.values[t.name]) for t in op.tensors}
    errors: dict[str, torch.Tensor | None] = dict.fromkeys(tensors)
    found, near = {}, bool(split) or moving
    for nest in op.nests:
        again = nest.name in means
        run = _Bounded(op, bound, tensors, nest.name, errors, serial, split, flushed, moving, again)
        value, error = run.nest_pair(nest)
        if nest.name in declared:
            dtype = bound.dtype(nest.dtype)
            if dtype in tolerances:
                error = tolerances[dtype].atol + tolerances[dtype].rtol * value.abs()
            shape = bound.shape(declared[nest.name])
            slack = None if error is None else error.reshape(shape)
            found[nest.name] = Expected(value.reshape(shape), slack, torch_dtype(dtype), near)
            value, error = run.cast_pair(value, error, nest.dtype)
        tensors[nest.name], errors[nest.name] = value, error
    return {o.name: found[o.name] for o in op.outputs}


@dataclass(frozen=True, slots=True)
class _Bounded(Run):
    """One nest of one call; the methods follow the shape of an expression."""

    errors: Mapping[str, torch.Tensor | None] = field(default_factory=dict)
    serial: bool = False
    split: str = ""
    flushed: bool = False
    moving: bool = False
    again: bool = False

    @property
    def compute(self) -> str:
        return self.bound.dtypes["compute"]

    def on_cores(self, expr: Reduce) -> bool:
        """Whether tensor cores may add it up, from factors in tf32."""
        product = expr.op == "sum" and isinstance(expr.body, Call) and expr.body.fn == "mul"
        product = product and expr.body.dtype not in INTS
        return product and self.compute == "f32" and bool(self.split or self.word(expr) == "tf32")

    def word(self, expr: Reduce) -> str:
        """How f32 is multiplied, where it is a sum of products."""
        return f32_precision(self.op.precision or switch_of(expr))

    def nest_pair(self, nest: Nest) -> Pair:
        dims = [self.bound.size(d) for d in nest.dims]
        value = torch.zeros(dims, dtype=self.dtype(nest.dtype), device=self.device)
        error = torch.zeros(dims, dtype=torch.float64, device=self.device)
        ranges = [range(self.bound.size(b.lo), self.bound.size(b.hi)) for b in nest.box]
        if not all(ranges):
            return value, None
        exact = True
        for piece in pieces(ranges, DENSE_LIMIT // max(1, self.widest(nest.body))):
            axes = axes_of(
                [(b.index, r) for b, r in zip(nest.box, piece, strict=True)], self.device
            )
            live = torch.ones((1,) * len(piece), dtype=torch.bool, device=self.device)
            v, e = self.pair(nest.body, axes, live)
            where = tuple(self.coordinate(c, axes, live)[0] for c in nest.coords) or ...
            sizes = [len(r) for r in piece]
            value[where] = v.expand(sizes).to(value.dtype)
            if e is not None:
                exact = False
                error[where] = e.expand(sizes).to(error.dtype)
        return value, None if exact else error

    # ---- expressions ----------------------------------------------------------------------------
    def pair(self, expr: Expr, axes: Axes, live: torch.Tensor) -> Pair:
        """The value at every point and how far off it may be."""
        match expr:
            case Const():
                return self.constant(self.value(expr, axes, live))
            case ScalarRef():
                return self.value(expr, axes, live), None
            case IndexValue(p):
                return self.value(expr, axes, live), unsure(None, self.doubt((p,), axes, live))
            case Read():
                return self.read_pair(expr, axes, live)
            case Cast(arg, dtype):
                wide, own = self.pair(arg, axes, live)
                value, error = self.cast_pair(wide, own, dtype)
                narrow = torch_dtype(self.bound.dtype(dtype))
                if self.moving and is_half(narrow) and is_exponential(arg, self.op):
                    error = moved_on(wide, value, error, narrow)
                return value, error
            case Call("where", (condition, yes, no)):
                return self.where_pair(condition, yes, no, axes, live)
            case Call("pow_int", (base, Const(exponent))):
                return self.call_pair(expr, (self.pair(base, axes, live),), lambda a: a**exponent)
            case Call("div", (Reduce("sum") as total, IndexValue(count))) if self.again:
                found = self.call_pair(
                    expr, tuple(self.pair(a, axes, live) for a in expr.args), self.function("div")
                )
                return self.looked_at_again(*found, total, self.bound.size(count), axes, live)
            case Call(fn, args):
                pairs = tuple(self.pair(a, axes, live) for a in args)
                if fn in ("floordiv", "mod") and not pairs[1][0].dtype.is_floating_point:
                    divisor = pairs[1][0]
                    pairs = pairs[0], (torch.where(live, divisor, divisor.clamp(min=1)), None)
                return self.call_pair(expr, pairs, self.function(fn))
            case Reduce():
                return self.reduce_pair(expr, axes, live)
        raise TypeError(expr)

    def read_pair(self, expr: Read, axes: Axes, live: torch.Tensor) -> Pair:
        value = self.value(expr, axes, live)
        error = self.error_at(expr.tensor, expr.coords, axes, live)
        return value, unsure(error, self.doubt(expr.coords, axes, live))

    def error_at(self, tensor: str, coords, axes: Axes, live: torch.Tensor):
        error = self.errors[tensor]
        if error is None or not error.numel():
            return None
        inside, where = self.place(self.tensors[tensor], coords, axes, live)
        return torch.where(inside, error[where] if where else error, 0.0)

    def doubt(self, polys: Iterable[Poly], axes: Axes, live: torch.Tensor) -> torch.Tensor | None:
        """The places where a coordinate was read from an uncertain number. None if all are certain."""
        found = None
        for atom in (a for p in polys for a in walk_poly(p) if isinstance(a, Fetch)):
            error = self.error_at(atom.tensor, atom.coords, axes, live)
            if error is not None:
                found = error > 0 if found is None else found | (error > 0)
        return found

    def cast_pair(self, value: torch.Tensor, error: torch.Tensor | None, dtype: str) -> Pair:
        out = self.cast(value, dtype)
        if value.dtype == torch.bool:
            return out, error
        outside = beyond(value, error, torch_dtype(self.bound.dtype(dtype)))
        if error is not None:
            ends = [self.cast(end, dtype) for end in moved(value, error)]
            error = absorb(farthest(out, ends), (error,))
        return out, unsure(error, outside)

    def where_pair(self, condition: Expr, yes: Expr, no: Expr, axes: Axes, live) -> Pair:
        chosen, unsure = self.pair(condition, axes, live)
        doubt = torch.zeros_like(chosen) if unsure is None else unsure > 0
        a, ea = self.pair(yes, axes, live & (chosen | doubt))
        b, eb = self.pair(no, axes, live & (~chosen | doubt))
        value = torch.where(chosen, a, b)
        if ea is None and eb is None and unsure is None:
            return value, None
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        error = torch.where(chosen, zero if ea is None else ea, zero if eb is None else eb)
        if unsure is not None:
            either = distance(a, b) + (0 if ea is None else ea) + (0 if eb is None else eb)
            error = torch.where(doubt, either, error)
        return value, error

    def call_pair(self, expr: Call, pairs: tuple[Pair, ...], function) -> Pair:
        values = [v for v, _ in pairs]
        target = self.dtype(expr.dtype)
        out = function(*values).to(target)
        error = None
        for k, (v, e) in enumerate(pairs):
            if e is None:
                continue
            ends = [function(*values[:k], m, *values[k + 1 :]).to(target) for m in moved(v, e)]
            if v.dtype == torch.bool:  # two may be otherwise at once, and each is one of two
                others = [w if d is None else moved(w, d)[0] for w, d in pairs]
                spread = farthest(out, [*ends, function(*others).to(target)])
            else:
                spread = absorb(swung(expr.fn, farthest(out, ends), e), (e,))
            error = spread if error is None else error + spread
        if error is not None and expr.fn in ("mul", "div"):  # of two wrong ones also together
            (a, ea), (b, eb) = pairs
            if ea is not None and eb is not None:
                ends = [function(x, y).to(target) for x in moved(a, ea) for y in moved(b, eb)]
                error = torch.maximum(error, absorb(farthest(out, ends), (ea, eb)))
        if expr.fn == "abs" and not out.dtype.is_floating_point:
            # The least integer: compilers assume that its abs is not below 0.
            error = unsure(error, out < 0)
        if expr.fn in _MAY_FUSE and out.dtype.is_floating_point:
            burst = out.isinf()
            for v in values:
                burst = burst & v.isfinite()
            if bool(burst.any()):
                error = torch.where(
                    burst, math.inf, torch.zeros_like(out) if error is None else error
                )
        return self.rounded(out, error, self.ulp(expr))

    def ulp(self, expr: Call) -> float:
        """How far off the form that a kernel computes may be."""
        match expr:
            case Call("pow_int", (_, Const(exponent))):
                return power_ulp(int(exponent))
        row = FUNCTIONS[expr.fn]
        halved = row.half and torch_dtype(self.bound.dtype(expr.stored or "f32")).itemsize <= 2
        return row.half if halved else row.ulp

    def constant(self, value: torch.Tensor) -> Pair:
        """A number of the spec, and what the compute type rounds off it."""
        if not value.dtype.is_floating_point or self.compute == "f64":
            return value, None
        lost = (value - value.to(torch.float32).to(value.dtype)).abs()
        return value, lost if bool((lost > 0).any()) else None

    def rounded(self, out: torch.Tensor, error, ulp: float) -> Pair:
        """The error after a function that is right to `ulp` units in the last place."""
        if not out.dtype.is_floating_point:
            return out, error
        if ulp > 0:
            # The f64 oracle is no better than an f64 kernel: both may be off.
            units = 2 * ulp + (4 if self.compute == "f64" else 0)
            own = units * _UNIT[self.compute] * out.abs() + TINIEST[self.compute]
            own = torch.where(out.isfinite(), own, 0.0)
            error = own if error is None else error + own
        return out, self.overflowed(out, error)

    def overflowed(self, out: torch.Tensor, error: torch.Tensor | None):
        """Anything goes once the compute type cannot hold what f64 holds."""
        reach = out.abs() if error is None else out.abs() + error
        return unsure(error, out.isfinite() & (reach > _LARGEST[self.compute]))

    # ---- reducers -------------------------------------------------------------------------------
    def reduce_pair(self, expr: Reduce, axes: Axes, live: torch.Tensor) -> Pair:
        value = self.value(expr, axes, live)  # raises where there is nothing to choose from
        inner, used, terms = self.space(expr, axes, live)
        shaky = self.shaky(expr, inner, live[(...,) + (None,) * len(expr.binders)])
        v, e = self.pair(expr.body, inner, used if shaky is None else used | shaky)
        if (
            self.split in ("infinite", "nan")
            and self.on_cores(expr)
            and isinstance(expr.body, Call)
        ):
            among = factors_of(paste(expr.body, products_of(self.op), None))
            among = among if len(among) > 2 else list(expr.body.args)
            factors = torch.broadcast_tensors(*(self.value(f, inner, used) for f in among))
            v = burst(v, factors, self.split)
            value = fold(expr.op, *(flat_terms(expr, t, terms) for t in (v, terms)))
        most, lost = self.factors(expr, v, inner, used)
        found = (None if t is None else flat_terms(expr, t, terms) for t in (v, e, most, lost))
        flat = flat_terms(expr, terms, terms)
        if not flat.shape[-1] and self.meets_no_sum(expr, inner, used):
            return value, torch.full_like(value, math.inf)
        if shaky is None:
            return value, self.folded(expr, value, flat, *found)
        return value, self.folded_with(flat_terms(expr, shaky, terms), expr, value, flat, *found)

    def looked_at_again(self, mean, error, total: Reduce, count: int, axes: Axes, live) -> Pair:
        """A mean, and how far off it may be once the mean of what it leaves of its terms is added.

        For equal terms it is exact.

        A sum of large terms loses digits of the terms. A sum of what is left loses digits of the rest only. The mean is
        rounded once, or once a block if terms differ.
        """
        if error is None or self.compute != "f32":
            return mean, error
        inner, used, terms = self.space(total, axes, live)
        v, e = self.pair(total.body, inner, used)
        lost = torch.zeros((), dtype=torch.float64) if e is None else e
        v, lost, terms = (flat_terms(total, t, terms) for t in (v, lost, terms))
        few, n = _UNIT["f32"] * min(SUM_ERROR, v.shape[-1] + 3), v.shape[-1]
        apart = torch.where(terms, (v - mean[..., None]).abs(), 0.0)
        lost = torch.where(terms, lost + few * (apart + few * v.abs()), 0.0).sum(-1) / max(1, count)
        ends = [(mean + d).to(torch.float32).to(torch.float64) for d in (lost, -lost)]
        differ = (apart > 2.0**-40 * v.abs()).any(-1)
        blocks = min(SUM_ERROR, 1 + n // BLOCK) * _UNIT["f32"]
        again = farthest(mean, ends) + torch.where(differ, blocks * mean.abs(), 0.0)
        # A sum that overflows stays infinite, whatever is left of its terms.
        return mean, torch.where((again < error) & error.isfinite(), again, error)

    def meets_no_sum(self, expr: Reduce, axes: Axes, live: torch.Tensor) -> bool:
        """Whether a factor may be infinite times the 0 that no terms of an inner sum come to: sum[i](x[i] * sum[j](...))."""
        among = factors_of(expr.body) if expr.op == "sum" else []
        if len(among) < 3 or len(expr.binders) < 2:
            return False
        values = [self.value(f, axes, live) for f in among]
        return any(bool((~v.isfinite()).any()) for v in values if v.dtype.is_floating_point)

    def shaky(self, expr: Reduce, axes: Axes, live: torch.Tensor) -> torch.Tensor | None:
        """Terms that may be there or not, since what their bounds read may be another number."""
        sure = maybe = live
        for guard in expr.guards:
            holds, doubt = self.passes(guard, axes, live), self.doubt((guard.poly,), axes, live)
            maybe = maybe & (holds if doubt is None else holds | doubt)
            sure = sure & (holds if doubt is None else holds & ~doubt)
        return None if sure is maybe or bool((sure == maybe).all()) else maybe & ~sure

    def folded_with(self, shaky: torch.Tensor, expr: Reduce, value, terms, v, e, most, lost):
        """The error where some terms may be there or not."""
        if expr.op != "sum":
            return unsure(self.folded(expr, value, terms, v, e, most, lost), shaky.any(-1))
        known = torch.zeros((), dtype=torch.float64) if e is None else e
        e = torch.where(shaky, (known + v.abs()).nan_to_num(nan=math.inf), known)
        v = torch.where(terms, v, torch.zeros_like(v))
        return self.folded(expr, value, terms | shaky, v, e, most, lost)

    def folded(self, expr: Reduce, value, terms, v, e, most, lost) -> torch.Tensor | None:
        """The error of a reducer, of its terms and theirs."""
        if expr.op in ("sum", "prod") and v.dtype.is_floating_point:
            error = self.accumulated(expr, v, e, terms, most)
            if lost is not None:
                error = error + torch.where(terms, lost, 0.0).sum(-1)
            return self.overflowed(value, error)
        if e is None:
            return None
        if expr.is_place:
            return torch.where(contenders(expr.op, v, e, terms) > 1, math.inf, 0.0)
        if v.dtype == torch.bool:
            ends = [fold(expr.op, v | (e > 0), terms), fold(expr.op, v & (e == 0), terms)]
        else:
            ends = [fold(expr.op, end, terms) for end in moved(v, e)]
        return unsure(farthest(value, ends), (terms & e.isinf()).any(-1))

    def factors(self, expr: Reduce, term: torch.Tensor, axes: Axes, live: torch.Tensor):
        """The values that terms of a sum pass through, if larger than the terms, and how much of them is lost."""
        most = lost = None
        among = factors_of(paste(expr.body, products_of(self.op), None)) if expr.op == "sum" else []
        if self.on_cores(expr) and isinstance(expr.body, Call):
            (a, ea), (b, eb) = (self.pair(arg, axes, live) for arg in expr.body.args)
            a, b = a.to(torch.float64), b.to(torch.float64)
            if self.word(expr) == "tf32":
                left, right = (truncated(x, e, len(among) > 2) for x, e in ((a, ea), (b, eb)))
            else:
                left, right = unsplit(a, self.split), unsplit(b, self.split)
                most = high(a) * high(b)
            lost = missing(a, left, b) + missing(b, right, a)
        if len(among) > 2 and term.dtype.is_floating_point:
            values = [self.value(f, axes, live) for f in among]
            through, under = regrouped(term, values, TINIEST[self.compute])
            under = torch.where(opposed(term, live, len(expr.binders)), math.inf, under)
            most = through if most is None else torch.maximum(through, most)
            lost = under if lost is None else lost + under
        return most, lost

    def together(self, expr: Reduce) -> int:
        """How many terms tensor cores add at once, at least: the terms of a step lie along one of the axes."""
        sizes = [self.bound.size(b.hi) - self.bound.size(b.lo) for b in expr.binders]
        return max(1, min([4, *sizes]))

    def sums_of_f8(self, expr: Reduce) -> bool:
        """Whether the tensor cores add with fewer bits than f32 has, as `precision tf32` allows."""
        stored = {self.bound.dtype(e.dtype) for e in walk(expr.body) if isinstance(e, Read)}
        return self.op.precision == "tf32" and bool(stored) and all("f8" in d for d in stored)

    def accumulated(self, expr: Reduce, v, e, terms, most) -> torch.Tensor:
        """The error of a sum or product of floats. Any value is allowed if some order of it overflows."""
        count = v.shape[-1]
        size = torch.where(terms & v.isfinite(), v.abs(), 0.0)
        spread = torch.zeros_like(size) if e is None else torch.where(terms, e, 0.0)
        if expr.op == "prod":
            size = torch.where(terms & v.isfinite(), v.abs(), 1.0)
            wider = size * (1 + 2 * _UNIT[self.compute]) + spread
            error = wider.prod(-1) - size.prod(-1) + TINIEST[self.compute]
            # Factors may meet in any order: any of them may leave the range together.
            swing = torch.where(size > 0, size, 1.0).log2().abs().sum(-1)
            outside = swing > math.log2(_LARGEST[self.compute]) - 2
        else:
            unit = _SUM_OF_F8 if self.sums_of_f8(expr) else _UNIT[self.compute]
            few = min(SUM_ERROR, count + 3)
            if self.on_cores(expr):
                # Tensor cores add four terms at a time and truncate the sum so far, which grows: all in all
                # n / 8 units, as measured on an H200 to the last digit. Twice that, and the part left out.
                few += count / self.together(expr) + (4 if self.split else 0)
            error = few * unit * size.sum(-1) + spread.sum(-1)
            if self.flushed and self.compute == "f32":
                error = error + TINIEST["f32"] * terms.sum(-1)
            if self.serial:
                # Scaled first: what sums near the end of f64 pass through leaves it when added up.
                error = error + wandered(unit * v, terms)
            through = size if most is None else torch.where(terms, most, 0.0).maximum(size)
            outside = through.sum(-1) + error > _LARGEST[self.compute]
        # A term that is NaN makes the result NaN in any order, unless the term may be anything.
        unknown = spread.isinf()
        outside = outside & ~(terms & v.isnan() & ~unknown).any(-1) | unknown.any(-1)
        return torch.where(outside, math.inf, error)
