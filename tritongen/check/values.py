"""Types: what an operator makes of its operands' dtypes, by torch's rules.

Input: typed values and the operator or function. Output: a typed value, every cast in it explicit.
`x + 1` computes in x's dtype (1 is *weak*, as a Python number is to torch), `x / 2` in floats, and a
comparison gives a bool. Floats compute in "compute", whatever they are stored as. Integers made of
indices and sizes stay one `IndexValue`. Not here: reads and reducers (`lower`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tritongen.check import casts
from tritongen.check.coordinates import divisor, held, too_large
from tritongen.check.scope import Scope
from tritongen.errors import Span
from tritongen.ir.algebra import Poly, affine, extreme, floordiv, is_size, poly
from tritongen.ir.functions import FUNCTIONS, SMALL_POWERS, Function
from tritongen.ir.integers import wraps
from tritongen.ir.nodes import (
    INTS,
    Call,
    Cast,
    Const,
    Expr,
    IndexValue,
    Reduce,
    ScalarRef,
    walk,
    with_parts,
)
from tritongen.syntax.limits import MAX_INTEGER

RANK = {"bool": 0, "int": 1, "float": 2}
WEAK_DTYPE = {"bool": "bool", "int": "i64", "float": "compute"}
BITS = {"i8": 8, "u8": 8, "i16": 16, "i32": 32, "i64": 64}


@dataclass(frozen=True, slots=True)
class Value:
    """An expression; `weak` where it is made of Python scalars only."""

    expr: Expr
    weak: bool = False

    @property
    def dtype(self) -> str:
        return self.expr.dtype

    @property
    def poly(self) -> Poly | None:
        """The size or coordinate that the value is."""
        match self.expr:
            case IndexValue(p, "i64"):
                return p
            case Const(int(value), "i64") if self.weak:
                return poly(value)
        return None


def number(value: int | float | bool) -> Value:
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
    return Value(Const(value, WEAK_DTYPE[kind]), weak=True)


def of_poly(p: Poly, weak: bool) -> Value:
    constant = p.constant
    if weak and constant is not None and constant.denominator == 1:
        return number(int(constant))
    return Value(IndexValue(p, "i64"), weak)


# ---- promotion ----------------------------------------------------------------------------------
def promote(scope: Scope, values: tuple[Value, ...], span: Span | None) -> str:
    """The dtype in which values meet; E301 where integer dtypes have none at build time."""
    kinds = [scope.kind(v.dtype) for v in values]
    highest = max(kinds, key=RANK.__getitem__)
    strong = [
        v.dtype for v, kind in zip(values, kinds, strict=True) if kind == highest and not v.weak
    ]
    if not strong:
        return WEAK_DTYPE[highest]
    if highest == "bool":
        return "bool"
    if highest == "float":
        return "f64" if "f64" in strong else "compute"
    joined = strong[0]
    for dtype in strong[1:]:
        joined = _join(scope, joined, dtype, span)
    return joined


def _join(scope: Scope, a: str, b: str, span: Span | None) -> str:
    if a == b or scope.concrete(a) == scope.concrete(b):
        return a
    a, b = scope.concrete(a), scope.concrete(b)
    if "i64" in (a, b):
        return "i64"
    if a not in INTS or b not in INTS:
        scope.report.fail(
            "E301",
            f"`{a}` and `{b}` have no common dtype before the call",
            span,
            **casts.help_at(
                scope,
                span,
                "cast one",
                f"cast one, as `i64(...)` or `{a}(...)`",
                *map(casts.to, ("i64", a, b)),
            ),
        )
    if {a, b} == {"i8", "u8"}:
        return "i16"
    return max(a, b, key=BITS.__getitem__)


def convert(scope: Scope, value: Value, dtype: str) -> Expr:
    """The value in a dtype, with as few casts as can be."""
    expr = value.expr
    if expr.dtype == dtype:
        return expr
    match expr:
        case Const(number_, _):
            kind = scope.kind(dtype)
            return Const({"float": float, "int": int, "bool": bool}[kind](number_), dtype)
        case IndexValue(p) if scope.kind(dtype) != "bool":
            return IndexValue(p, dtype)
        case Cast(arg, "i64") if arg.dtype == "i32" and dtype == "compute":
            return Cast(arg, dtype)
    return Cast(expr, dtype)


def widened(scope: Scope, expr: Expr, into: str = "i64") -> Expr:
    """The integer term of a sum, with all its arithmetic: reads are widened before anything wraps.

    A cast that narrows stays: `u8(a + b)` keeps the 8 bits. Conditions are treated like the term.
    """
    kind = scope.kind(expr.dtype)
    match expr:
        case Cast(Call() as arg) if expr.dtype == arg.dtype and not wraps(expr, scope.is_int):
            return convert(scope, Value(expr), into)
        case Cast(arg) if kind == scope.kind(arg.dtype) == "int" and _holds(scope, expr):
            return widened(scope, arg, into)
        case Cast(arg) if kind == scope.kind(arg.dtype) == "int" and _computes(scope, arg):
            return convert(scope, Value(replace(expr, arg=widened(scope, arg, into))), into)
        case Cast(arg, "bool") if scope.is_int(arg.dtype):
            return replace(expr, arg=widened(scope, arg, into))
        case Call("pow_int", (base, exponent)) if kind == "int":
            return replace(expr, args=(widened(scope, base, into), exponent), dtype=into)
        case Call(_, args) if all(scope.kind(a.dtype) != "float" for a in args):
            if _computes(scope, expr):
                args = tuple(widened(scope, a, into) for a in args)
                return replace(expr, args=args, dtype=into if kind == "int" else "bool")
        case Reduce(body=body) if scope.kind(body.dtype) != "float" and _computes(scope, body):
            body = widened(scope, body, into)  # an inner max or any
            return replace(expr, body=body, dtype=into if kind == "int" else "bool")
    return convert(scope, Value(expr), into) if kind == "int" else widened_in(scope, expr)


def widened_in(scope: Scope, expr: Expr) -> Expr:
    """The floating term of a sum: integers in it are widened where their arithmetic could wrap, to i32 if that holds them."""
    if all(scope.kind(e.dtype) != "float" for e in walk(expr)):
        if not wraps(expr, scope.is_int):
            return expr
        return widened(scope, expr, "i64" if wraps(expr, scope.is_int, "i32") else "i32")
    return with_parts(expr, lambda e: widened_in(scope, e))


def _computes(scope: Scope, expr: Expr) -> bool:
    """Whether there is integer arithmetic in it."""
    return any(isinstance(e, Call) and scope.kind(e.dtype) == "int" for e in walk(expr))


def _holds(scope: Scope, expr: Cast) -> bool:
    """Whether the dtype can hold all converted values. A scalar has no dtype of its own, as a Python number has none."""
    into, own = scope.concrete(expr.dtype), scope.concrete(expr.arg.dtype)
    wider = into == "i64" or BITS.get(into, 0) > BITS.get(own, 64)
    return wider or isinstance(expr.arg, ScalarRef)


# ---- functions ----------------------------------------------------------------------------------
def apply(scope: Scope, row: Function, values: tuple[Value, ...], span: Span | None) -> Value:
    """A row of the function table applied to values."""
    if row.name == "where":
        return _where(scope, values, span)
    below = values[-1].poly
    if row.name in ("floordiv", "mod") and values[0].poly is not None and below is not None:
        divisor(scope, below)
    folded = _fold(scope, row.name, values, span)
    if folded is not None:
        return folded
    dtype = promote(scope, values, span)
    _check_literals(scope, values, dtype, span)
    kind = scope.kind(dtype)
    shown = row.surface or row.name
    match row.args:
        case "float" if kind != "float":
            dtype = "compute"
        case "number" if kind == "bool":
            _refuse(scope, f"`{shown}` does not take bool", span, "cast it", casts.to("i64"))
        case "int" if kind == "float":
            _refuse(scope, f"`{shown}` takes integers", span, "cast it", casts.to("i64"))
        case "bool" if kind != "bool":
            _refuse(scope, f"`{shown}` takes bools", span, "compare it", casts.not_zero)
    args = tuple(convert(scope, v, dtype) for v in values)
    result = "bool" if row.result == "bool" else dtype
    weak = row.result != "bool" and all(v.weak for v in values)
    return Value(Call(row.name, args, result), weak)


def _check_literals(
    scope: Scope, values: tuple[Value, ...], dtype: str, span: Span | None, help: str = ""
) -> None:
    """E302 for a literal that the dtype of the others cannot hold, as torch."""
    dtype = scope.concrete(dtype)
    bits = BITS.get(dtype)
    if bits is None:
        return
    low, high = (0, 2**bits - 1) if dtype == "u8" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for value in values:
        if value.weak and isinstance(value.expr, Const) and not low <= value.expr.value <= high:
            _refuse(
                scope,
                f"`{value.expr.value}` does not fit {dtype}",
                span,
                help or "cast the other side",
                casts.to("i64"),
            )


def _refuse(scope: Scope, message: str, span: Span | None, help: str, change: casts.Change) -> None:
    otherwise = f"{help}: `... != 0`" if change is casts.not_zero else f"{help}, as `i64(...)`"
    scope.report.fail("E302", message, span, **casts.help_at(scope, span, help, otherwise, change))


def _where(scope: Scope, values: tuple[Value, ...], span: Span | None) -> Value:
    condition, a, b = values
    if scope.kind(condition.dtype) != "bool":
        _refuse(scope, "the condition of `where` is not a bool", span, "compare it", casts.not_zero)
    dtype = promote(scope, (a, b), span)
    _check_literals(scope, (a, b), dtype, span)
    args = (condition.expr, convert(scope, a, dtype), convert(scope, b, dtype))
    return Value(Call("where", args, dtype))


def _fold(scope: Scope, name: str, values: tuple[Value, ...], span: Span | None) -> Value | None:
    """Keeps sizes and coordinates as polys, and computes literals. None if neither applies."""
    polys = [v.poly for v in values if v.poly is not None]
    weak = all(v.weak for v in values)
    if len(polys) == len(values):
        folded = _fold_polys(name, polys)
        if folded is not None:
            return of_poly(held(scope, folded, span), weak)
    numbers = [v.expr.value for v in values if isinstance(v.expr, Const)]
    if not weak or len(numbers) < len(values):
        return None
    match name, numbers:
        case "pow", [int(base), int(exponent)]:
            if exponent * abs(base).bit_length() > 2 * MAX_INTEGER.bit_length():
                too_large(scope, span)  # or takes a while to compute
    return _fold_numbers(name, numbers)


def _fold_polys(name: str, polys: list[Poly]) -> Poly | None:
    match name, polys:
        case "add", [a, b]:
            return a + b
        case "sub", [a, b]:
            return a - b
        case "neg", [a]:
            return -a
        case "mul", [a, b]:
            product = a * b
            return product if affine(product) is not None else None
        case "floordiv", [a, b] if is_size(b) and b.terms:
            return floordiv(a, b)
        case "mod", [a, b] if is_size(b) and b.terms:
            return a % b
        case "maximum" | "minimum", [a, b] if is_size(a) and is_size(b):
            return extreme(name[:3], (a, b))
    return None


def _fold_numbers(name: str, numbers: list[int | float | bool]) -> Value | None:
    """The number that literals come to; None where there is none, and the kernel computes NaN or inf."""
    try:
        value = _computed(name, numbers)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(value, (int, float)) and value == value:  # no literal says NaN
        return number(value)
    return None


def _computed(name: str, numbers: list[int | float | bool]) -> int | float | complex | None:
    match name, numbers:
        case "add", [a, b]:
            return a + b
        case "sub", [a, b]:
            return a - b
        case "mul", [a, b]:
            return a * b
        case "div", [a, b]:
            return a / b
        case "pow", [a, b]:
            return a**b
        case "sqrt", [a] if a >= 0:
            return math.sqrt(a)
        case "neg", [a]:
            return -a
    return None


def power(scope: Scope, values: tuple[Value, ...], span: Span | None) -> Value:
    """`x ** n`: a small whole n is a product."""
    base, exponent = values
    n = exponent.expr.value if exponent.weak and isinstance(exponent.expr, Const) else None
    if isinstance(n, float) and n.is_integer():
        n, kind = int(n), "float"
    else:
        kind = scope.kind(base.dtype)
    folded = _fold(scope, "pow", (base, exponent), span)
    if folded is not None or n not in SMALL_POWERS or isinstance(n, bool):
        return folded or apply(scope, FUNCTIONS["pow"], (base, exponent), span)
    if kind == "bool":
        _refuse(scope, "`**` does not take bool", span, "cast it", casts.to("i64"))
    needs_float = kind == "float" or n < 0
    dtype = promote(scope, (base, number(0.0)), span) if needs_float else base.dtype
    args = (convert(scope, base, dtype), Const(n, "i64"))
    return Value(Call("pow_int", args, dtype), base.weak)


def cast(scope: Scope, value: Value, dtype: str, span: Span | None) -> Value:
    """`f32(x)`, `T(x)`: rounded to the dtype; floats compute on as before."""
    _check_literals(scope, (value,), dtype, span, "cast to a dtype that holds it")
    if scope.kind(dtype) != "float":
        if value.dtype == dtype != "i64" and _computes(scope, value.expr):
            return Value(Cast(value.expr, dtype))  # nothing as yet; in a sum the term is widened
        return Value(convert(scope, Value(value.expr), dtype))
    if dtype == "f64":
        return Value(convert(scope, value, "f64"))
    back = "f64" if value.dtype == "f64" else "compute"
    source = value.expr
    if isinstance(source, Const):
        source = convert(scope, value, "compute")
    return Value(Cast(Cast(source, dtype), back))


def store(scope: Scope, value: Value, dtype: str, span: Span | None) -> Expr:
    """Converts a value to the dtype of an output. Reports E301 if that would drop the fraction or the sign."""
    kind, into = scope.kind(value.dtype), scope.kind(dtype)
    if RANK[kind] > RANK[into]:
        what = {"float": "a float", "int": "an integer"}[kind]
        scope.report.fail(
            "E301",
            f"{what} does not fit `{dtype}`",
            span,
            **(
                casts.help_for_line(scope, "compare it", "compare it: `... != 0`", casts.not_zero)
                if into == "bool"
                else casts.help_for_line(
                    scope, "convert it", f"convert it: `{dtype}(...)`", casts.to(dtype)
                )
            ),
        )
    return convert(scope, value, dtype)
