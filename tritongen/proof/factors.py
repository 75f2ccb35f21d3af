"""Factors of sums of products: what tensor cores lose of each factor, and what another order of multiplication loses.

    truncated(x, None)            # the digits of a factor that `precision tf32` leaves out
    unsplit(x, "triton")          # what tf32x3 loses of it
    regrouped([g, x, h], u)       # products of some of g, x and h that leave the range, though g * x * h does not

Not here: the sums (`oracle.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

import torch

from tritongen.ir.algebra import index
from tritongen.ir.nodes import Call, Cast, Expr, Nest, Op, Read, Reduce, walk
from tritongen.ir.reads import switch_of
from tritongen.runtime.precision import f32_precision
from tritongen.schedule.canonical import substitute_indices
from tritongen.schedule.members import Virtual

TF32 = 2.0**-10  # the digits of a factor that the tensor cores take reach this far below the first
TINIEST = {"f32": 2.0**-126, "f64": 2.0**-1022}  # inexact functions may flush denormals
_UNSPLIT = 2.0**128 - 2.0**116  # from here on a number in TF32 is infinite


def words_of(op: Op, exact: Collection[str] = ()) -> set[str]:
    """How the sums of products of an op are computed in f32, as spec, switches and `with` say now.

    Sums that only multiply factors in `exact` are left out: operands of half types have no digits to lose.
    """

    def is_exact(factor: Expr) -> bool:
        factor = factor.arg if isinstance(factor, Cast) else factor
        return isinstance(factor, Read) and factor.tensor in exact

    sums = [e for n in op.nests for e in walk(n.body) if isinstance(e, Reduce) and e.op == "sum"]
    products = [(e, e.body) for e in sums if isinstance(e.body, Call) and e.body.fn == "mul"]
    return {
        f32_precision(op.precision or switch_of(e))
        for e, product in products
        if not all(map(is_exact, product.args))
    }


def products_of(op: Op) -> Virtual:
    """Temporaries that are products: of kernels that multiply them again, factors among others."""
    outputs = {o.name for o in op.outputs}
    nests = [n for n in op.nests if n.name not in outputs]
    found = [n for n in nests if isinstance(n.body, Call) and n.body.fn == "mul"]
    return Virtual(replace(n, body=_apart(n)) for n in found)


def _apart(nest: Nest) -> Expr:
    """A body with fresh indices in its reducers, so that it can be pasted where others have these names."""
    reducers = (e for e in walk(nest.body) if isinstance(e, Reduce))
    names = {b.index for e in reducers for b in e.binders}
    return substitute_indices(nest.body, {k: index(f"{nest.name}.{k}") for k in names})


def is_exponential(expr: Expr, op: Op) -> bool:
    """Whether exp(x - maximum) is a factor of it, so that it moves with the maximum (`kernel.lower`)."""
    bodies = {n.name: n.body for n in op.nests}
    match expr:
        case Read(tensor) if tensor in bodies:
            return is_exponential(bodies[tensor], op)
        case Call("exp" | "exp2"):
            return True
        case Call("mul", args):
            return any(is_exponential(arg, op) for arg in args)
        case Call("div", (arg, _)) | Call("where", (_, arg, _)) | Cast(arg):
            return is_exponential(arg, op)
    return False


# ---- digits ---------------------------------------------------------------------------------------
def tf32(x: torch.Tensor) -> torch.Tensor:
    """The first 11 binary digits of numbers in f64: the part of an f32 that Hopper's tensor cores use.

    Rounding first (cvt.rna, as CUTLASS does) would lose at most half as much, and never more than this.
    """
    return (x.contiguous().view(torch.int64) >> 42 << 42).view(torch.float64)


def high(x: torch.Tensor) -> torch.Tensor:
    """The size of the first part of a factor in tf32x3: rounded, so maybe larger. Of an infinity: nothing."""
    size = torch.where(x.isfinite(), x.abs(), 0.0)
    rounded = tf32((size.view(torch.int64) + (1 << 41)).view(torch.float64))
    return torch.where(size < _UNSPLIT, rounded, size)


def truncated(x: torch.Tensor, error: torch.Tensor | None, regrouped: bool = False) -> torch.Tensor:
    """What `precision tf32` loses of a factor: all digits beyond 11, and everything below the normal numbers.

    `regrouped`: a kernel may multiply other factors of a term first. Then digits of other values are lost.
    """
    size = x.abs()
    known = error is None and not regrouped
    lost = size - tf32(size) if known else TF32 * (size if error is None else size + error)
    return torch.where(x.isfinite(), torch.where(size < TINIEST["f32"], size, lost), 0.0)


def unsplit(x: torch.Tensor, split: str) -> torch.Tensor:
    """What tf32x3 loses of a factor: a low part that is no normal number, since tensor cores take it for 0.

    The low part is at most 2^-11 of x, and a multiple of its last digit. From 2^-103 on it is normal, or 0. A factor that
    rounds to infinity has no parts as Triton splits it. As our kernels split it, it keeps 11 digits, and so does the other
    factor. Sums that are "infinite" or "nan" have nothing to lose (`burst`).
    """
    size, tiniest = x.abs(), TINIEST["f32"]
    low = torch.where(size < tiniest, size, (size * 2.0**-11).clamp(max=tiniest))
    low = torch.where(size < 2.0**-103, low, 0.0)
    large = (size >= _UNSPLIT) & size.isfinite()
    share = {"triton": math.inf, "ours": 4 * TF32}.get(split, 0.0)
    return torch.where(large, share * size, low)


def burst(term: torch.Tensor, factors: Sequence[torch.Tensor], split: str) -> torch.Tensor:
    """The terms of which a factor is infinite in TF32: infinite, or NaN where its parts cancel.

    Of three factors and more a kernel multiplies some first (`regrouped`).
    """
    largest = torch.stack([f.abs().to(torch.float64) for f in factors]).amax(0)
    if len(factors) > 2:
        largest, _ = regrouped(term, factors, 0.0)
    there = term * math.inf if split == "infinite" else torch.full_like(term, math.nan)
    return torch.where(term.isfinite() & (largest >= _UNSPLIT), there, term)


def is_half(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and dtype.itemsize <= 2


def moved_on(
    x: torch.Tensor, cast: torch.Tensor, error: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """The error of `cast`, a number x that was rounded as a larger one, and then multiplied by what is at most 1.

    Rounding to the nearest changes no number by more than itself.
    """
    info = torch.finfo(dtype)
    own = info.eps * cast.abs() + info.eps * info.tiny
    least = x.abs() + (cast - x).abs()
    own = torch.where(least.isfinite(), torch.minimum(own, least), own)
    return own if error is None else error + own


def missing(x: torch.Tensor, lost: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The part of a product x * y that is lost with `lost` of x. All of an infinite product, if x is lost as a whole."""
    part = torch.where((lost > 0) & ~y.isnan(), lost * y.abs(), 0.0)
    part = torch.where(y.isinf() & (lost < x.abs()), 0.0, part)
    return part.nan_to_num(nan=math.inf, posinf=math.inf)


# ---- order ----------------------------------------------------------------------------------------
def regrouped(
    term: torch.Tensor, factors: Sequence[torch.Tensor], tiniest: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest product of some factors of a term, and how much is lost of it if other factors are too small.

    A kernel multiplies the factors of the rows with each other, and those of the columns, whatever the order in the spec.
    It first sums over an index that belongs to some factors only. So where a term is inf times 0, any result may come out.
    """
    most = least = torch.ones((), dtype=torch.float64, device=term.device)
    for factor in factors:
        size = factor.abs().to(torch.float64)
        size = torch.where(size.isfinite() & (size > 0), size, 1.0)
        most, least = most * size.clamp(min=1), least * size.clamp(max=1)
    lost = torch.where((least < tiniest) & ~term.isnan(), term.abs(), 0.0)
    heard = reduce(or_, (factor.isnan() for factor in factors))
    unheard = term.isnan() & ~heard
    return most, torch.where(unheard, math.inf, lost)


def opposed(term: torch.Tensor, live: torch.Tensor, binders: int) -> torch.Tensor:
    """Whether a sum over so many of the last dims has terms of both infinities, which make it NaN.

    A kernel may compute inf * (w[0] + w[1]) for inf * w[0] + inf * w[1], and so see one infinity only.
    """
    over = tuple(range(-binders, 0))
    ends = [((term == end) & live).any(over, keepdim=True) for end in (math.inf, -math.inf)]
    return ends[0] & ends[1]
