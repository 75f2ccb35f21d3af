"""Rounds factors of matrix products in a gradient to the type of the operand that they meet.

Input: the lines of a backward op. Output: the same lines, where a factor that meets an operand in a matrix product is
rounded to the operand's type first:

    dacc[m, n] = dy[m, n] * g(acc[m, n])              dacc[m, n] = T(dy[m, n] * g(acc[m, n]))
    dx[m, k] = sum[n](dacc[m, n] * w[n, k])           dx[m, k] = sum[n](dacc[m, n] * w[n, k])

Autograd rounds there too: it passes tensors of that type from one function to the next. In f32 and f64 nothing changes. In half
types one product of two halves replaces three TF32 products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tritongen.autodiff import exprs
from tritongen.ir.free import free_indices
from tritongen.ir.nodes import (
    NARROW_FLOATS,
    Call,
    Cast,
    Const,
    Expr,
    Nest,
    Op,
    Read,
    Reduce,
    dtypes_of,
    may_be_half,
    rebuild,
    walk,
)

COMPUTE = exprs.COMPUTE


def matrix_products(line: Nest) -> Iterator[tuple[Expr, Expr]]:
    """The factors of each sum in a line where both have an index of the line to themselves."""
    own = line.over
    for expr in walk(line.body):
        match expr:
            case Reduce("sum", binders, _, Call("mul", (left, right))) if binders:
                rows, columns = free_indices(left) & own, free_indices(right) & own
                if rows - columns and columns - rows:
                    yield left, right


def in_stored_types(op: Op, lines: tuple[Nest, ...], gradients: set[str]) -> tuple[Nest, ...]:
    """The lines, with factors rounded; one that is a line itself, of the `gradients`, where it is computed."""
    halves = {n.name: dtype for n in (*op.nests, *lines) if (dtype := _rounded_to(n.body))}
    met: dict[str, set[str]] = {}
    for line in lines:
        for factor, dtype in _wide_factors(op, line, halves):
            if isinstance(factor, Read) and factor.tensor in gradients:
                met.setdefault(factor.tensor, set()).add(dtype)
    rounded = {name: dtypes.pop() for name, dtypes in met.items() if len(dtypes) == 1}
    return tuple(_with_rounded(op, line, rounded, halves) for line in lines)


def _wide_factors(op: Op, line: Nest, halves: dict[str, str]) -> Iterator[tuple[Expr, str]]:
    """Factors in the compute type that meet one of a type which may be a half type, in a line that is no wider. With that type.

    `halves`: the temporaries that are rounded to a type, with it.
    """
    for left, right in matrix_products(line):
        for wide, other in ((left, right), (right, left)):
            dtype = _stored_type(other, halves)
            if _stored_type(wide, halves) or set(dtypes_of(dtype, op)) & set(NARROW_FLOATS):
                continue
            if may_be_half(dtype, op) and line.dtype in (dtype, COMPUTE):
                yield wide, dtype


def _stored_type(factor: Expr, halves: dict[str, str]) -> str:
    """The type that a factor is read in, or rounded to; nothing where it is another value."""
    match factor:
        case Cast(Read(dtype=dtype), "compute") if dtype != COMPUTE:
            return dtype
        case Read(tensor):
            return halves.get(tensor, "")
        case Call("where", (_, factor, Const(0))):
            return _stored_type(factor, halves)
    return _rounded_to(factor)


def _rounded_to(e: Expr) -> str:
    """The type that a value is rounded to before it is computed on; nothing where it is not rounded."""
    match e:
        case Cast(Cast(_, dtype), "compute") if dtype != COMPUTE:
            return dtype
    return ""


def _with_rounded(op: Op, line: Nest, rounded: dict[str, str], halves: dict[str, str]) -> Nest:
    wide = {
        factor: _round(factor, dtype)
        for factor, dtype in _wide_factors(op, line, halves)
        if not (isinstance(factor, Read) and factor.tensor in rounded)
    }

    def change(e: Expr) -> Expr:
        match e:
            case Reduce(body=Call("mul", (a, b)) as product):
                return replace(e, body=replace(product, args=(wide.get(a, a), wide.get(b, b))))
        return e

    body = rebuild(line.body, change) if wide else line.body
    return replace(line, body=_round(body, rounded[line.name]) if line.name in rounded else body)


def _round(e: Expr, dtype: str) -> Expr:
    return Cast(Cast(e, dtype), COMPUTE)
