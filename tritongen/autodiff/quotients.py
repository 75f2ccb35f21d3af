"""Replaces quotients that an output already holds: `u / s * e` is `u * y` if the op says `y = e / s`.

Input: the lines of a backward op, and the forward lines of the outputs that it reads anyway. Output: the lines with the
output in place of the quotient. The gradient of softmax then reads as one written by hand:

    dx[d] = (dy[d] - t) / s * e[d]        dx[d] = (dy[d] - t) * y[d]

and x need not be kept. The output must have all places at which `e` is read, or some would lie outside. An output that nothing reads yet is not used, because it would cost its memory, and neither is one of whole
numbers, or of a half type that no operand has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tritongen.autodiff import exprs
from tritongen.ir.algebra import Poly, index, substitute
from tritongen.ir.free import free_indices
from tritongen.ir.nodes import (
    Binder,
    Call,
    Cast,
    Expr,
    IndexValue,
    Nest,
    Op,
    Read,
    core,
    kind_of,
    may_be_half,
    rebuild,
    walk,
)


@dataclass(frozen=True, slots=True)
class Quotient:
    """`value` is above / below, at every point of the box."""

    value: Expr
    above: Expr
    below: Expr
    box: set[str]


def rounds_apart(op: Op, body: Expr) -> bool:
    """Whether a line is rounded to whole numbers, or to a half type that no operand has."""
    own = {t.dtype for t in op.tensors}
    while isinstance(body, Cast):
        if kind_of(body.dtype, op) != "float":
            return True
        if body.dtype not in own and may_be_half(body.dtype, op):
            return True
        body = body.arg
    return False


def quotients(
    nests: tuple[Nest, ...], dims: Mapping[str, tuple[Poly, ...]]
) -> tuple[Quotient, ...]:
    """Those among the lines of outputs that are one. `dims`: of all that may be read."""
    found = []
    for nest in nests:
        body = core(nest.body)
        if isinstance(body, Call) and body.fn == "div":
            value = exprs.cast(Read(nest.name, nest.coords, None, nest.dtype), body.dtype)
            above, below = body.args
            if all(_is_whole(b, above, dims) for b in nest.box):
                found.append(Quotient(value, above, below, free_indices(above)))
    return tuple(found)


def _is_whole(b: Binder, above: Expr, dims: Mapping[str, tuple[Poly, ...]]) -> bool:
    """Whether the index takes every place of a dim that it reads alone: what is read there is a place of the output."""
    return not b.lo.terms and any(
        (c, dim) == (index(b.index), b.hi)
        for read in walk(above)
        if isinstance(read, Read) and read.fill is None
        for c, dim in zip(read.coords, dims[read.tensor], strict=True)
    )


def use_quotients(nests: tuple[Nest, ...], known: tuple[Quotient, ...]) -> tuple[Nest, ...]:
    def change(expr: Expr) -> Expr:
        match expr:
            case Call("mul", (Call("div", (u, below)), above)) | Call(
                "mul", (above, Call("div", (u, below)))
            ):
                for quotient in known:
                    value = _found(quotient, above, below)
                    if value is not None:
                        return exprs.mul(u, value)
        return expr

    return tuple(replace(nest, body=rebuild(nest.body, change)) for nest in nests)


def _found(quotient: Quotient, above: Expr, below: Expr) -> Expr | None:
    """The quotient's value where it is above / below."""
    here: dict[str, Poly] = {}
    if not _matches(quotient.above, above, quotient.box, here):
        return None
    change = exprs.by_name(here)
    whole = exprs.substitute(exprs.call("div", quotient.above, quotient.below), change)
    if whole != exprs.call("div", above, below):
        return None
    return exprs.substitute(quotient.value, change)


def _matches(pattern: Expr, expr: Expr, box: set[str], here: dict[str, Poly]) -> bool:
    """Whether expr may be the pattern at other coordinates; `here` gets those of the box's indices."""
    match pattern, expr:
        case Read(tensor, coords, fill), Read(other, others, filled):
            same = tensor == other and fill == filled
            return same and all(
                _coordinate(c, d, box, here) for c, d in zip(coords, others, strict=True)
            )
        case IndexValue(p, dtype), IndexValue(q, other):
            return dtype == other and _coordinate(p, q, box, here)
        case Cast(arg, dtype), Cast(other, kind):
            return dtype == kind and _matches(arg, other, box, here)
        case Call(fn, args), Call(other, others):
            same = fn == other and len(args) == len(others)
            return same and all(
                _matches(a, b, box, here) for a, b in zip(args, others, strict=True)
            )
    return pattern == expr and not free_indices(pattern) & box


def _coordinate(pattern: Poly, p: Poly, box: set[str], here: dict[str, Poly]) -> bool:
    for name in box:
        if pattern == index(name):
            return here.setdefault(name, p) == p
    return substitute(pattern, here) == p
