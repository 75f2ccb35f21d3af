"""Builds expressions with the usual identities: x * 1, x + 0, a - (-b).

Input: expressions of the IR. Output: expressions: `add(w, neg(p))` gives `w - p`. A `where` with a zero branch takes factors
into its other branch. So a branch that is not taken is never multiplied, and 0 * inf cannot arise. This module also
substitutes, renames, and finds what an expression depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count

from tritongen.ir.algebra import Atom, Idx, Poly, index, substitute_atoms
from tritongen.ir.free import with_coordinates
from tritongen.ir.names import free_name
from tritongen.ir.nodes import BATCH, Call, Cast, Const, Expr, Reduce, with_parts

COMPUTE = "compute"
Change = Callable[[Atom], "Poly | None"]


# ---- numbers ------------------------------------------------------------------------------------
def number(value: float, dtype: str) -> Const:
    return Const(float(value), dtype)


def is_number(expr: Expr, value: float) -> bool:
    return isinstance(expr, Const) and not isinstance(expr.value, bool) and expr.value == value


def is_zero(expr: Expr) -> bool:
    return is_number(expr, 0)


def call(fn: str, *args: Expr, dtype: str = "") -> Call:
    return Call(fn, args, dtype or args[-1].dtype)


# ---- arithmetic ---------------------------------------------------------------------------------
def neg(a: Expr) -> Expr:
    match a:
        case Const(value, dtype):
            return Const(-value, dtype) if value else a
        case Call("neg", (inner,)):
            return inner
        case Call("sub", (x, y)):
            return sub(y, x)
        case Call("mul" | "div" as fn, (x, y)) if isinstance(x, Const):
            return call(fn, neg(x), y)
        case Call("where", (c, x, y)) if is_zero(x) or is_zero(y):
            return where(c, neg(x), neg(y))
    return call("neg", a)


def add(a: Expr, b: Expr) -> Expr:
    match a, b:
        case _ if is_zero(a):
            return b
        case _ if is_zero(b):
            return a
        case Const(x, dtype), Const(y) if x + y == x + y:  # no constant is NaN
            return Const(x + y, dtype)
        case _, Call("neg", (inner,)):
            return sub(a, inner)
        case Call("neg", (inner,)), _:
            return sub(b, inner)
        case Call("where", (c, x, y)), Call("where", (d, z, w)) if c == d:
            return where(c, add(x, z), add(y, w))
        case Call("div", (x, s)), Call("div", (y, t)) if s == t:
            return div(add(x, y), s)
    return call("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    match a, b:
        case _ if is_zero(b):
            return a
        case _ if is_zero(a):
            return neg(b)
        case Const(x, dtype), Const(y) if x - y == x - y:
            return Const(x - y, dtype)
        case _, Call("neg", (inner,)):
            return add(a, inner)
        case Call("div", (x, s)), Call("div", (y, t)) if s == t:
            return div(sub(x, y), s)
    return call("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    match a, b:
        case _ if is_zero(a) or is_number(b, 1):
            return a
        case _ if is_zero(b) or is_number(a, 1):
            return b
        case Const(x, dtype), Const(y):
            return Const(x * y, dtype)
        case _ if is_number(a, -1):
            return neg(b)
        case _ if is_number(b, -1):
            return neg(a)
        case Call("where", (c, x, y)), _ if is_zero(x) or is_zero(y):
            return where(c, mul(x, b), mul(y, b))
        case _, Call("where", (c, x, y)) if is_zero(x) or is_zero(y):
            return where(c, mul(a, x), mul(a, y))
        case Call("add" | "sub" as fn, (x, y)), _ if is_masked(x) and is_masked(y):
            return (add if fn == "add" else sub)(mul(x, b), mul(y, b))
        case Call("neg", (inner,)), _:
            return neg(mul(inner, b))
        case _, Call("neg", (inner,)):
            return neg(mul(a, inner))
        case _, Call("div", (x, y)) if is_number(x, 1):
            return div(a, y)
        case _, Const():
            return mul(b, a)
        case Const(), Call("mul", (Const() as c, x)):
            return mul(mul(a, c), x)
    return call("mul", a, b)


def div(a: Expr, b: Expr) -> Expr:
    match a:
        case _ if is_zero(a) or is_number(b, 1):
            return a
        case Call("neg", (inner,)):
            return neg(div(inner, b))
        case Call("where", (c, x, y)) if is_zero(x) or is_zero(y):
            return where(c, div(x, b), div(y, b))
        case Call("add" | "sub" as fn, (x, y)) if is_masked(x) and is_masked(y):
            return (add if fn == "add" else sub)(div(x, b), div(y, b))
    return call("div", a, b)


def is_masked(e: Expr) -> bool:
    """Whether it is 0 outside of a condition, or a sum of such values: none is to become 0 * inf."""
    match e:
        case Call("where", (_, x, y)):
            return is_zero(x) or is_zero(y)
        case Call("add" | "sub", (x, y)):
            return is_masked(x) and is_masked(y)
    return False


def where(condition: Expr, yes: Expr, no: Expr) -> Expr:
    if isinstance(condition, Const):
        return yes if condition.value else no
    return yes if yes == no else Call("where", (condition, yes, no), yes.dtype)


def cast(expr: Expr, dtype: str) -> Expr:
    """expr in dtype, going back over casts between compute types rather than adding to them."""
    match expr:
        case _ if expr.dtype == dtype:
            return expr
        case Const(value):
            return Const(value, dtype)
        case Cast(arg, "f64" | "compute") if arg.dtype == dtype and dtype in ("f64", COMPUTE):
            return arg
        case Call("where", (c, x, y)) if dtype in ("f64", COMPUTE) and (is_zero(x) or is_zero(y)):
            return where(c, cast(x, dtype), cast(y, dtype))  # what it is multiplied by goes inside
    return Cast(expr, dtype)


def compute_dtype(dtype: str) -> str:
    """The float type in which values of a float dtype are computed."""
    return "f64" if dtype == "f64" else COMPUTE


# ---- coordinates --------------------------------------------------------------------------------
def substitute(expr: Expr, change: Change) -> Expr:
    return with_coordinates(expr, lambda p: substitute_atoms(p, change))


def by_name(values: dict[str, Poly]) -> Change:
    return lambda atom: values.get(atom.name) if isinstance(atom, Idx) else None


# ---- names of binders ---------------------------------------------------------------------------
MARK = "~"  # parts a name of ours from the one it came from, until `name_binders` settles it
_serial = count()


def unique(name: str) -> str:
    """A name that nothing else has. Its origin stands before the mark."""
    return f"{name.split(MARK)[0]}{MARK}{next(_serial)}"


def rename_binders(expr: Expr, name: Callable[[str], str]) -> Expr:
    """expr with every reducer's binders renamed, outermost first."""
    if isinstance(expr, Reduce):
        return rename_reduce(expr, name)
    return with_parts(expr, lambda e: rename_binders(e, name))


def rename_reduce(
    reduce: Reduce,
    name: Callable[[str], str] = unique,
    below: Callable[[Expr], Expr] | None = None,
) -> Reduce:
    """The reducer with its binders renamed, and those in its body: also by `name`, or as `below` says."""
    names = {b.index: name(b.index) for b in reduce.binders}
    change = by_name({old: index(new) for old, new in names.items()})
    inner = _reduce(substitute(replace(reduce, binders=()), change))
    binders = tuple(replace(b, index=names[b.index]) for b in reduce.binders)
    body = below(inner.body) if below else rename_binders(inner.body, name)
    return replace(inner, binders=binders, body=body)


def _reduce(expr: Expr) -> Reduce:
    if not isinstance(expr, Reduce):
        raise TypeError(expr)
    return expr


def with_own_binders(expr: Expr) -> Expr:
    """expr with binders that no other expression has."""
    return rename_binders(expr, unique)


def name_binders(expr: Expr, in_force: Iterable[str], reserved: frozenset[str]) -> Expr:
    """expr with readable binders: the name each came from, or its first free variation."""
    if not isinstance(expr, Reduce):
        return with_parts(expr, lambda e: name_binders(e, in_force, reserved))
    taken = set(in_force)

    def chosen(name: str) -> str:
        base = name.split(MARK)[0]
        base = "row" if base == BATCH and BATCH in taken else base  # a second walk of `...`
        found = free_name(base, taken, reserved)
        taken.add(found)
        return found

    return rename_reduce(expr, chosen, lambda e: name_binders(e, taken, reserved))
