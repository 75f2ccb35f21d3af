"""Finds the bf16 values that a kernel must widen by their bits, because LLVM would compute with them in f16.

    y[i] = x[i] + z[i]    # x and y in f16, z in bf16: LLVM adds f16(z) to x, which is infinite from 65520 on

LLVM (InstCombine) narrows an operation between `fpext` and `fptrunc` to f16 if its inputs have at most f16's number of
digits. It ignores the range: bf16 has 8 digits, f16 has 11, but bf16 goes up to 2**128. It looks through a select, and not
through bits.

Input: an op and the nests of one kernel, after `forms.py`. Output: the values that such an operation is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tritongen.ir.nodes import (
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
    dtypes_of,
    kind_of,
    may_be_half,
    walk,
)

MADE = frozenset("add sub mul div square pow_int reciprocal".split())
SELECTED = frozenset("neg abs where maximum minimum relu".split())

Key = str | Expr  # a tensor, or another value that is rounded on the way


def key_of(value: Expr) -> Key:
    return value.tensor if isinstance(value, Read) else value


def by_bits(op: Op, nests: Sequence[Nest]) -> frozenset[Key]:
    """The values that may be bf16 while an operation on them is rounded to f16."""
    named = {n.name: n.body for n in nests}
    found: set[Key] = set()
    for cast in (e for n in nests for e in walk(n.body) if isinstance(e, Cast)):
        if "f16" in dtypes_of(cast.dtype, op):
            for args in _made(cast.arg, named):
                dtypes = _widened(op, args, named) or {}
                wider = {
                    k for k, d in dtypes.items() if d != cast.dtype and "bf16" in dtypes_of(d, op)
                }
                found |= wider
    return frozenset(found)


def _made(expr: Expr, named: Mapping[str, Expr]) -> Iterator[Sequence[Expr]]:
    """The operands of the operations whose results are rounded without further arithmetic.

    A product of two terms is such an operation, because LLVM drops the 1 that it starts with. It keeps the 0 of a sum, because of -0.
    """
    match expr:
        case Call(fn, args) if fn in MADE:
            yield args
        case Reduce("prod", body=body):
            yield (body,)
        case Call(fn, args) if fn in SELECTED:
            for arg in args:
                yield from _made(arg, named)
        case Read(tensor) if tensor in named:
            yield from _made(named[tensor], named)


def _widened(op: Op, args: Sequence[Expr], named: Mapping[str, Expr]) -> dict[Key, str] | None:
    """The values, with their dtypes, that these are, widened; None where one is computed."""
    found: dict[Key, str] = {}
    for arg in args:
        match arg:
            case Reduce(
                "max" | "min", body=body
            ):  # one of the values: LLVM moves the widening behind it
                more: dict[Key, str] | None = _widened(op, (body,), named)
            case Const() | IndexValue() | Reduce():  # of no terms, a number that LLVM knows
                more = {}
            case ScalarRef(name) if any(c.name == name for c in op.constants):
                more = {}
            case Cast(value) if may_be_half(value.dtype, op):
                more = {key_of(value): value.dtype}
            case Cast(value) if kind_of(value.dtype, op) != "float":
                more = {}
            case Read(tensor) if tensor in named:
                more = _widened(op, (named[tensor],), named)
            case Call("mul" | "div", (value, Const(1))) | Call("mul", (Const(1), value)):
                more = _widened(op, (value,), named)  # as LLVM has it, too
            case Call("add" | "sub", (value, Const(0))) | Call("add", (Const(0), value)):
                more = _widened(op, (value,), named)
            case Call(fn, inner) if fn in SELECTED:
                more = _widened(op, inner[1:] if fn == "where" else inner, named)
            case _:
                more = None
        if more is None:
            return None
        found |= more
    return found
