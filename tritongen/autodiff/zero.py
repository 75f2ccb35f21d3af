"""Tests whether an expression is 0: softmax's gradient through its max vanishes, and a variance's through its mean.

Input: an expression and the lines that it may look through. Output: True if it is 0 for all values that it reads:

    dlse - sum[v](dlse / s * exp(x[v] - m))  with  s = sum[v](exp(x[v] - m))   ->   True

The normal form is a polynomial over opaque atoms (reads, functions of normal forms, sums of one product) with sizes as
coefficients. Sums are linear, and factors without a binder leave the sum. A cast that may change a number is opaque, and so is
arithmetic that may wrap: `t - T(i32(t))` is not 0. The test decides what is dropped; it never rewrites what is kept.
If the normal form grows too large the answer is False. That costs time in the kernel, and is never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import permutations, product

from tritongen.autodiff import exprs
from tritongen.autodiff.wanted import failing, literals
from tritongen.ir.algebra import (
    Idx,
    Poly,
    atoms,
    index,
    indices,
    numerator,
    poly,
    reciprocal,
    substitute_atoms,
)
from tritongen.ir.free import free_indices, tensors_read
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
    core,
    kind_of,
    may_be_f64,
    may_be_half,
)

# An atom is (kind, data...), a monomial a sorted tuple of (atom, power); forms map these to sizes.
Atom = tuple
Monomial = tuple
Form = dict
CONDITIONS = ("guard", "condition")
LIMIT = 96  # terms in a form
EFFORT = 1000  # expressions that one test may look at
MOST_ALIKE = 4  # binders of one sum that nothing tells apart


class TooLarge(Exception):
    """The normal form outgrew what is worth computing."""


@dataclass(slots=True)
class Lines:
    """The lines of an op that a test looks through, those whose rounding it does not see, and how many expressions it still may look at."""

    op: Op
    nests: Mapping[str, Nest]
    exact: Set[str]
    left: int


def vanishes(expr: Expr, op: Op, lines: Mapping[str, Nest], exact: Set[str] = frozenset()) -> bool:
    """Whether it is 0, as if casts rounded nothing that depends on the lines `exact`."""
    if exprs.is_zero(expr):
        return True
    try:
        seen = Lines(op, lines, exact, EFFORT)
        form = _without_denominators(_normal(exprs.with_own_binders(expr), seen))
    except (TooLarge, RecursionError):
        return False
    return all(not numerator(size).terms for size in form.values())


# ---- polynomials over atoms ---------------------------------------------------------------------
def _sum(a: Form, b: Form, sign: int = 1) -> Form:
    total = dict(a)
    for monomial, size in b.items():
        total[monomial] = total.get(monomial, Poly()) + size * sign
    total = {m: s for m, s in total.items() if s.terms}
    if len(total) > LIMIT:
        raise TooLarge
    return total


def _product(a: Form, b: Form) -> Form:
    total: Form = {}
    for left, s in a.items():
        for right, t in b.items():
            total = _sum(total, {_times(left, right): s * t})
    return total


def _times(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
        if atom[0] in CONDITIONS:  # 1 or 0
            powers[atom] = min(powers[atom], 1)
    return tuple(sorted(((a, k) for a, k in powers.items() if k), key=_text))


def _inverse(form: Form) -> Form:
    if len(form) == 1:
        ((monomial, size),) = form.items()
        return {tuple((a, -k) for a, k in monomial): reciprocal(size)}
    return _atom("inverse", _key(form))


def _without_denominators(form: Form) -> Form:
    """The form times each sum that it is divided by, which is 0 where the form is: so a / (a + b) + b / (a + b) - 1 is 0."""
    while found := {atom for monomial in form for atom, _ in monomial if atom[0] == "inverse"}:
        atom = min(found, key=_text)
        most = max(dict(monomial).get(atom, 0) for monomial in form)
        total: Form = {}
        for monomial, size in form.items():
            powers = dict(monomial)
            rest = _power(dict(atom[1]), most - powers.pop(atom, 0))
            total = _sum(total, _product({tuple(powers.items()): size}, rest))
        form = total
    return form


def _power(form: Form, n: int) -> Form:
    total: Form = {(): poly(1)}
    for _ in range(abs(n)):
        total = _product(total, form)
    return total if n >= 0 else _inverse(total)


def _atom(*atom) -> Form:
    return {((atom, 1),): poly(1)}


def _key(form: Form) -> tuple:
    """A form as a value that may stand in an atom."""
    return tuple(sorted(form.items(), key=_text))


@lru_cache(maxsize=4096)
def _text(value: tuple) -> str:
    return repr(value)


# ---- expressions --------------------------------------------------------------------------------
def _normal(expr: Expr, lines: Lines) -> Form:
    lines.left -= 1
    if lines.left < 0:
        raise TooLarge
    match expr:
        case Const(value):
            if isinstance(value, bool) or value != value or abs(value) == float("inf"):
                return _atom("value", expr)
            return {(): poly(Fraction(value))} if value else {}
        case IndexValue(p):
            return _atom("value", expr) if indices(p) else ({(): p} if p.terms else {})
        case Cast(arg, dtype):
            form = _normal(arg, lines)
            return form if _is_same(arg, dtype, lines) else _atom("cast", dtype, _key(form))
        case Read():
            return _read(expr, lines)
        case Reduce("sum", binders, guards, body):
            form = _normal(body, lines)
            for guard in guards:
                form = _guarded(form, guard)
            return _summed(form, binders)
        case Call(fn, args, dtype):
            return _call(fn, args, dtype, lines)
    return _atom("value", expr)


def _is_same(arg: Expr, dtype: str, lines: Lines) -> bool:
    """Whether a cast gives the number that it is given."""
    op, given = lines.op, arg.dtype
    if kind_of(dtype, op) != "float":
        return given == dtype or (dtype == "i64" and kind_of(given, op) != "float")
    if given == dtype or tensors_read(arg) & lines.exact:
        return True
    wide = given == exprs.COMPUTE and any(may_be_f64(t.dtype, op) for t in op.tensors)
    wide = wide or may_be_f64(given, op)
    return not may_be_half(dtype, op) and not (dtype == "f32" and wide)


def _read(read: Read, lines: Lines) -> Form:
    """A read of a line is the line, at those coordinates; a reducer that is no sum stays a read.

    What rounds the line as a whole is left out: the mean of what differs from an output that is the mean is 0.
    """
    nest = lines.nests.get(read.tensor)
    if nest is None or read.fill is not None or not _is_open(nest.body):
        return _atom("value", read)
    values = {b.index: c for b, c in zip(_left(nest), _right(nest, read), strict=True)}
    body = exprs.substitute(exprs.with_own_binders(nest.body), exprs.by_name(values))
    while isinstance(body, Cast) and kind_of(body.dtype, lines.op) == "float":
        body = body.arg
    return _normal(body, lines)


def _left(nest: Nest) -> list[Binder]:
    box = {index(b.index): b for b in nest.box}
    return [box[c] for c in nest.coords if c in box]


def _right(nest: Nest, read: Read) -> list[Poly]:
    box = {index(b.index) for b in nest.box}
    return [c for own, c in zip(nest.coords, read.coords, strict=True) if own in box]


def _is_open(body: Expr) -> bool:
    body = core(body)
    return not isinstance(body, Reduce) or body.op == "sum"


def _where(form: Form, condition: Expr, lines: Lines) -> Form:
    """The form where a condition holds, else 0."""
    for literal in literals(condition):
        match literal:
            case Call("not", (a,)):
                form = _sum(form, _where(form, a, lines), -1)
            case Call("or"):
                either, terms = _atom("condition", literal), list(form.items())
                form = {}
                for monomial, size in terms:
                    implied = _implies(monomial, literal, lines)
                    term = {monomial: size}
                    form = _sum(form, term if implied else _product(term, either))
            case Guard():
                form = _guarded(form, literal)
            case _:
                form = _product(form, _atom("condition", literal))
    return form


def _guarded(form: Form, guard: Guard) -> Form:
    """The form where a guard holds, else 0. Of values alone, one atom stands for it and its opposite: `t[n] < 0` is 1 - `t[n] >= 0`."""
    other = failing(guard)
    of_values = not any(isinstance(a, Idx) for a in atoms(guard.poly))
    if of_values and isinstance(other, Guard) and _text((other,)) < _text((guard,)):
        return _sum(form, _product(form, _atom("guard", other)), -1)
    return _product(form, _atom("guard", guard))


def _implies(monomial: Monomial, condition: Expr, lines: Lines) -> bool:
    """Whether a monomial is 0 where a condition does not hold: it has one side as a factor, or x where a side is x != 0."""
    own = {atom for atom, power in monomial if power > 0}
    match condition:
        case Call("or", (a, b)):
            return _implies(monomial, a, lines) or _implies(monomial, b, lines)
        case Call("ne", (x, Const(0))):
            form = _normal(x, lines)
            return len(form) == 1 and own >= {a for m in form for a, power in m if power > 0}
    return bool(own & {("condition", condition), ("guard", condition)})


def _call(fn: str, args: tuple[Expr, ...], dtype: str, lines: Lines) -> Form:
    kind = "" if fn == "where" else kind_of(dtype, lines.op)
    if kind == "bool" or (kind == "int" and dtype != "i64"):
        return _atom("call", fn, dtype, *(_key(_normal(a, lines)) for a in args))  # it may wrap
    if fn == "where":
        yes, no = (_normal(a, lines) for a in args[1:])
        return _sum(no, _where(_sum(yes, no, -1), args[0], lines))
    if fn == "pow_int" and isinstance(args[1], Const):
        return _power(_normal(args[0], lines), int(args[1].value))
    forms = [_normal(a, lines) for a in args]
    match fn, forms:
        case "add", [a, b]:
            return _sum(a, b)
        case "sub", [a, b]:
            return _sum(a, b, -1)
        case "neg", [a]:
            return _sum({}, a, -1)
        case "mul", [a, b]:
            return _product(a, b)
        case "div", [a, b] if b:
            return _product(a, _inverse(b))
    return _atom("call", fn, *map(_key, forms))


# ---- sums ---------------------------------------------------------------------------------------
def _summed(form: Form, binders: tuple[Binder, ...]) -> Form:
    for b in binders:
        total: Form = {}
        for monomial, size in form.items():
            inside = tuple(pair for pair in monomial if b.index in _indices(pair))
            outside = tuple(pair for pair in monomial if b.index not in _indices(pair))
            if not inside:
                term = {outside: size * (b.hi - b.lo)}
            else:
                term = {_times(outside, ((_canonical((b,), inside), 1),)): size}
            total = _sum(total, term)
        form = total
    return form


def _canonical(binders: tuple[Binder, ...], inside: Monomial) -> Atom:
    """sum[b](f * sum[c](g)) as sum[b, c](f * g), its binders numbered in the least order."""
    while nested := next((a for a, k in inside if a[0] == "sum" and k == 1), None):
        _, ranges, factors = nested
        names = {name: exprs.unique("b") for name, _, _ in ranges}
        rest = tuple(pair for pair in inside if pair[0] != nested)
        inside = _times(rest, _renamed(factors, names))
        binders += tuple(Binder(names[name], lo, hi) for name, lo, hi in ranges)
    return min((_numbered(order, inside) for order in _orders(binders, inside)), key=_text)


def _orders(binders: tuple[Binder, ...], inside: Monomial) -> Iterator[tuple[Binder, ...]]:
    """Binders by how they are used; every order of those that are used alike."""
    if len(binders) == 1:
        yield binders
        return
    alike: dict[str, list[Binder]] = {}
    for own in binders:
        masks = {b.index: "#own" if b is own else "#other" for b in binders}
        use = _text((own.lo, own.hi, _renamed(inside, masks)))
        alike.setdefault(use, []).append(own)
    if any(len(group) > MOST_ALIKE for group in alike.values()):
        raise TooLarge
    for orders in product(*(permutations(alike[use]) for use in sorted(alike))):
        yield tuple(b for order in orders for b in order)


def _numbered(binders: Iterable[Binder], inside: Monomial) -> Atom:
    binders = tuple(binders)
    depth = _depth(inside)
    names = {b.index: f"#{depth}.{i}" for i, b in enumerate(binders)}
    ranges = tuple((names[b.index], b.lo, b.hi) for b in binders)
    return ("sum", ranges, _renamed(inside, names))


def _depth(value) -> int:
    """How many sums stand inside one another; numbers of nested ones must differ."""
    if not isinstance(value, tuple):
        return 0
    below = max(map(_depth, value), default=0)
    return below + 1 if value and value[0] == "sum" else below


def _renamed(value, names: Mapping[str, str]):
    """An atom, monomial or key with indices renamed, and what is sorted sorted again."""
    change = exprs.by_name({old: index(new) for old, new in names.items()})
    match value:
        case Poly():
            return value
        case Guard(p, op):
            return Guard(substitute_atoms(p, change), op)
        case tuple():
            parts = tuple(_renamed(part, names) for part in value)
            pairs = bool(parts) and all(isinstance(p, tuple) and len(p) == 2 for p in parts)
            return tuple(sorted(parts, key=_text)) if pairs else parts
        case str() | int() | Fraction():
            return value
    return exprs.substitute(value, change)


def _indices(value) -> frozenset[str]:
    match value:
        case ("sum", ranges, factors):
            return _indices(factors) - {name for name, _, _ in ranges}
        case tuple():
            return frozenset().union(*map(_indices, value))
        case Guard(p):
            return indices(p)
        case Poly() | str() | int():
            return frozenset()
    return frozenset(free_indices(value))
