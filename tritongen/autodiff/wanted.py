"""The condition under which a gradient is wanted: the uses of a value, as cases.

A value that is used only under a `where`, or inside of a binder's bounds, may be anything elsewhere, and so may its
derivative. A product with it could be 0 * inf, which is NaN. So a gradient carries the condition of its uses, and is multiplied
inside of that condition:

    t[n] = exp(x[n]);  y[n] = where(x[n] < 0, t[n], 0)        dx[n] = where(x[n] < 0, dy[n] * t[n], 0)

A condition is a tuple of cases, one of which holds. A case is a tuple of literals, all of which hold: guards, and conditions
that are not guards. A case without literals always holds. Outside of its condition a gradient is 0.
"""

from __future__ import annotations

from collections.abc import Iterable

from tritongen.autodiff import exprs
from tritongen.ir.algebra import (
    Fetch,
    Poly,
    atoms,
    extreme,
    indices,
    poly,
    substitute,
    substitute_atoms,
    with_modulo,
)
from tritongen.ir.conditions import guards_of
from tritongen.ir.nodes import (
    INTS,
    Binder,
    Call,
    Cast,
    Const,
    Expr,
    Guard,
    IndexValue,
    Read,
    Reduce,
    ScalarRef,
    core,
    with_parts,
)
from tritongen.work import remembered

Literal = Guard | Expr
Case = tuple[Literal, ...]
Wanted = tuple[Case, ...]
ALWAYS: Wanted = ((),)
NEVER: Wanted = ()
MOST_CASES = 64  # of an index that `whole` looks at


def literals(condition: Expr) -> Case:
    """The conditions of an and-chain."""
    guards, rest = guards_of(lambda dtype: "int" if dtype in INTS else "", condition)
    return (*guards, *(_chain(rest) if rest is not None else ()))


def _chain(condition: Expr) -> Case:
    match condition:
        case Call("and", (a, b)):
            return (*_chain(a), *_chain(b))
    return (condition,)


def opposite(condition: Expr) -> Case:
    """The opposite of a condition."""
    match literals(condition):
        case (one,):
            return (_denied(one),)
    return (exprs.call("not", condition),)


def _denied(literal: Literal) -> Literal:
    match literal:
        case Guard():
            return failing(literal)
        case Call("not", (a,)):
            return a
    return exprs.call("not", literal)


@remembered(maxsize=1 << 12)
def failing(guard: Guard) -> Literal:
    """The opposite of a guard; each case of a gradient asks for that of each other one."""
    if guard.op == ">=":
        return Guard(-guard.poly - 1, ">=")
    return exprs.call("not", of_guards((guard,)))


def both(wanted: Wanted, case: Iterable[Literal]) -> Wanted:
    """Holds if the condition and the case hold."""
    return tuple(tuple(dict.fromkeys((*own, *case))) for own in wanted)


def either(a: Wanted, b: Wanted) -> Wanted:
    """Holds if one of the conditions holds. A case and its opposite become one."""
    found: list[Case] = []
    for case in (*a, *b):
        found = _with(found, case)
    return tuple(found)


def _with(cases: list[Case], case: Case) -> list[Case]:
    for k, other in enumerate(cases):
        if set(other) <= set(case):
            return cases
        one, two = ([e for e in x if e not in y] for x, y in ((case, other), (other, case)))
        if len(one) == len(two) == 1 and (_denied(one[0]) == two[0] or _denied(two[0]) == one[0]):
            merged = tuple(e for e in case if e not in one)
            return _with([*cases[:k], *cases[k + 1 :]], merged)
    return [other for other in cases if not set(case) <= set(other)] + [case]


def whole(wanted: Wanted, box: tuple[Binder, ...]) -> Wanted:
    """ALWAYS where some index of a box has few values, and each of them a case.

    Queries, keys and values in one tensor have the cases c == 0, c == 1 and c == 2, where c is below 3.
    """

    def holds(literal: Literal, b: Binder, value: int) -> bool:
        if not isinstance(literal, Guard):
            return False
        p = substitute(literal.poly, {b.index: b.lo + value}).constant
        return p is not None and (p >= 0 if literal.op == ">=" else p == 0)

    def has_all(b: Binder) -> bool:
        count = (b.hi - b.lo).constant
        if count is None or not 0 < count <= MOST_CASES:
            return False
        values = range(int(count))
        return all(any(all(holds(e, b, v) for e in case) for case in wanted) for v in values)

    return ALWAYS if len(wanted) > 1 and any(map(has_all, box)) else wanted


def changed(wanted: Wanted, change: exprs.Change) -> Wanted:
    def literal(e: Literal) -> Literal:
        if isinstance(e, Guard):
            return Guard(substitute_atoms(e.poly, change), e.op)
        return exprs.substitute(e, change)

    return tuple(tuple(map(literal, case)) for case in wanted)


def parted(wanted: Wanted) -> tuple[tuple[Guard, ...], tuple[Expr, ...]]:
    """The guards that every case has, and what else is asked for."""
    if not wanted:
        return (), ()
    common = [e for e in wanted[0] if all(e in case for case in wanted)]
    guards = tuple(e for e in common if isinstance(e, Guard))
    rest = tuple(e for e in common if not isinstance(e, Guard))
    left = [tuple(e for e in case if e not in common) for case in wanted]
    if any(not case for case in left):
        return guards, rest
    if (end := _far_end(left)) is not None:
        return (*guards, end), rest
    first, *others = map(as_condition, left)
    for other in others:
        first = exprs.call("or", first, other)
    return guards, (*rest, first)


def _far_end(cases: list[Case]) -> Guard | None:
    """One guard that holds where one of several bounds holds: `k < max(a, b)` for `k < a` or `k < b`.

    None if the bounds differ in more than sizes and numbers that operands hold.
    """
    ends = [e.poly for case in cases for e in case if isinstance(e, Guard) and e.op == ">="]
    if len(ends) < len(cases) or any(len(case) > 1 for case in cases):
        return None
    shared = Poly(tuple(term for term in ends[0].terms if all(term in p.terms for p in ends)))
    own = [p - shared for p in ends]
    if any(indices(poly(a)) for p in own for a in atoms(p) if not isinstance(a, Fetch)):
        return None
    return Guard(shared + extreme("max", own), ">=")


def as_condition(case: Iterable[Literal]) -> Expr:
    """A case as one condition; it asks for something."""
    first, *others = (of_guards((e,)) if isinstance(e, Guard) else e for e in case)
    for other in others:
        first = exprs.call("and", first, other)
    return first


def multiplies(weight: Expr) -> bool:
    """Whether a gradient was multiplied by what may be infinite, or divided by what may be 0."""
    match weight:
        case Read() | ScalarRef() | Const() | IndexValue():
            return False
        case Cast(arg) | Call("neg", (arg,)):
            return multiplies(arg)
        case Call("where", (_, a, b)) | Call("add" | "sub", (a, b)):
            return multiplies(a) or multiplies(b)
        case Call("mul", (a, b)) if _is_number(a):
            return multiplies(b)
        case Call("mul", (a, b)) if _is_number(b):
            return multiplies(a)
        case Call("div", (a, b)) if _is_number(b) and not _may_be_0(b):
            return multiplies(a)
    return True


def _is_number(e: Expr) -> bool:
    e = core(e)
    return isinstance(e, IndexValue) or (isinstance(e, Const) and abs(e.value) < float("inf"))


def _may_be_0(e: Expr) -> bool:
    e = core(e)
    return not (isinstance(e, Const) and e.value)


# ---- guards as conditions ----------------------------------------------------------------------
def of_guards(guards: tuple[Guard, ...]) -> Expr:
    """Guards as one condition, in the language's comparisons."""

    def compare(guard: Guard) -> Expr:
        p, fn = guard.poly, {">=": "ge", "==": "eq"}[guard.op]
        if fn == "ge" and dict(p.terms).get((), 0) == -1:
            p, fn = p + 1, "gt"
        left, right = sides(p)
        return exprs.call(fn, _side(left), _side(right), dtype="bool")

    first, *rest = map(compare, guards)
    for other in rest:
        first = exprs.call("and", first, other)
    return first


def sides(p: Poly) -> tuple[Poly, Poly]:
    """p as left - right, without minus signs; a remainder stays one."""
    if p != (shown := with_modulo(p)) and len(shown.terms) == 1:
        return p, Poly()
    positive = Poly(tuple(t for t in p.terms if t[1] > 0))
    return positive, positive - p


def _side(p: Poly) -> Expr:
    """One side of a comparison, as the checker types it."""
    if p.constant is not None:
        return Const(int(p.constant), "i64")
    return IndexValue(p, "i64")


# ---- conditions inside of themselves ------------------------------------------------------------
def without_repeats(expr: Expr, known: Case = ()) -> Expr:
    """expr without the conditions that hold where they stand, by those around them."""
    match expr:
        case Call("where", (condition, yes, no)):
            asked = literals(condition)
            if any(_denied(e) in known for e in asked):
                return without_repeats(no, known)
            left = tuple(e for e in asked if e not in known)
            yes = without_repeats(yes, (*known, *asked))
            if not left:
                return yes
            if len(left) < len(asked):
                condition = as_condition(left)
            return exprs.where(condition, yes, without_repeats(no, known))
        case Reduce(guards=guards):
            known = (*known, *guards)
    return with_parts(expr, lambda e: without_repeats(e, known))
