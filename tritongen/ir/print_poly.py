"""Sizes, coordinates and guards, in the language.

Input: a `Poly`. Output: a syntax tree from which the checker builds an equal `Poly`. Example:

    p / stride + pad / stride        (p + pad) / stride
    i - (i // 4) * 4                 i % 4
    i - k - 1 >= 0                   k < i, as a binder's bound; `i > k` as a condition

Not here: expressions and ops (`print.py`), text in error messages (`algebra.text`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tritongen.ir.algebra import (
    Atom,
    Extreme,
    Fetch,
    Floor,
    Group,
    Idx,
    Monomial,
    Number,
    Poly,
    Sym,
    atoms,
    denominator,
    is_fractional,
    numerator,
    poly,
)
from tritongen.ir.nodes import BATCH
from tritongen.syntax import ast

Term = tuple[bool, ast.Expr]  # whether it is subtracted, and its absolute value


class NotWritable(ValueError):
    """Raised for something that the language cannot write."""


def number(value: int | float) -> ast.Expr:
    """A literal; the language writes a negative one with an operator."""
    text = "inf" if value in (float("inf"), float("-inf")) else repr(abs(value))
    literal = ast.Number(abs(value), text)
    return ast.Unary("-", literal) if value < 0 else literal


def poly_ast(p: Poly) -> ast.Expr:
    return _sum(_terms(p))


def condition_ast(p: Poly, op: str) -> ast.Expr:
    """`p >= 0` or `p == 0`, with what is subtracted on the other side."""
    if not is_fractional(p):
        terms = _terms(p)
        left = [(False, e) for minus, e in terms if not minus]
        right = [(False, e) for minus, e in terms if minus]
        if op == ">=" and _is_minus_one(p):
            op, right = ">", [(False, e) for minus, e in _terms(p + 1) if minus]
        if not left and right and op != "==":
            return ast.Compare({">": "<", ">=": "<="}[op], _sum(right), number(0))
        return ast.Compare(op, _sum(left), _sum(right))
    # A fraction fails both, so that it divides is a condition of its own.
    above, below = numerator(p), denominator(p)
    if op == "==":
        return condition_ast(above, op)
    exact = ast.Compare("==", ast.Binary("%", poly_ast(above), poly_ast(below)), number(0))
    if not all(value > 0 and all(isinstance(a, Sym) for a, _ in m) for m, value in below.terms):
        above = above // below  # which may be negative
    return ast.BoolOp("and", exact, condition_ast(above, op))


def bound_of(index: str, p: Poly) -> tuple[bool, Poly] | None:
    """The guard `p >= 0` as `index <= bound` (True) or `index >= bound` (False)."""
    own = [(m, c) for m, c in p.terms if any(_mentions(atom, index) for atom, _ in m)]
    if len(own) != 1 or own[0][0] != ((Idx(index), 1),) or abs(own[0][1]) != 1:
        return None
    upper = own[0][1] < 0
    rest = p - Poly((own[0],))
    if is_fractional(rest):
        return None
    return upper, rest if upper else -rest


def bound_ast(upper: bool, bound: Poly) -> tuple[ast.Expr, bool]:
    """The bound as written, and whether it is strict: `k <= i - 1` is `k < i`."""
    strict = _constant_part(bound) == (-1 if upper else 1)
    return poly_ast(bound + (1 if upper else -1) if strict else bound), strict


def _mentions(atom: Atom, index: str) -> bool:
    if isinstance(atom, Idx):
        return atom.name == index
    match atom:
        case Floor(num, den):
            inner: tuple[Poly, ...] = (num, den)
        case Fetch(_, coords) | Extreme(_, coords):
            inner = coords
        case Group(one):
            inner = (one,)
        case _:
            inner = ()
    return any(_mentions(a, index) for p in inner for a in atoms(p))


def _constant_part(p: Poly) -> Number:
    return next((value for monomial, value in p.terms if not monomial), 0)


def _is_minus_one(p: Poly) -> bool:
    return _constant_part(p) == -1


# ---- sums ---------------------------------------------------------------------------------------
def _sum(terms: list[Term]) -> ast.Expr:
    if not terms:
        return number(0)
    (minus, total), *rest = sorted(terms, key=lambda term: term[0])
    if minus:
        total = _negated(total)
    for minus, e in rest:
        total = ast.Binary("-" if minus else "+", total, e)
    return total


def _negated(e: ast.Expr) -> ast.Expr:
    """-e, with the sign on a product's first factor."""
    if isinstance(e, ast.Binary) and e.op == "*":
        return ast.Binary("*", _negated(e.a), e.b)
    return ast.Unary("-", e)


def _terms(p: Poly) -> list[Term]:
    """The terms as written: what varies first, numbers last."""
    p, remainders = _take_remainders(p)
    divided = Poly(tuple(t for t in p.terms if is_fractional(Poly((t,)))))
    whole = p - divided
    terms = remainders + _divided(divided)
    ordered = sorted(whole.terms, key=lambda term: not term[0])
    return terms + [(value < 0, _product(m, max(value, -value))) for m, value in ordered]


def _divided(p: Poly) -> list[Term]:
    """All terms that divide, over one denominator."""
    if not p.terms:
        return []
    above, below = numerator(p), denominator(p)
    if all(value < 0 for _, value in above.terms):
        return [(True, ast.Binary("/", poly_ast(-above), poly_ast(below)))]
    return [(False, ast.Binary("/", poly_ast(above), poly_ast(below)))]


def _take_remainders(p: Poly) -> tuple[Poly, list[Term]]:
    """Every `c * (a - b * (a // b))` in p, as `c * (a % b)`, and what is left."""
    found: list[Term] = []
    for atom in dict.fromkeys(a for a in atoms(p) if isinstance(a, Floor)):
        for times in _remainder_factors(p, atom):
            taken = times * (atom.num - atom.den * poly(atom))
            left = p - taken
            if len(left.terms) + len(taken.terms) != len(p.terms):
                continue
            p = left
            e: ast.Expr = ast.Binary("%", poly_ast(atom.num), poly_ast(atom.den))
            ((_, value),) = times.terms
            times = times if value > 0 else -times
            found.append(
                (value < 0, e if times == poly(1) else ast.Binary("*", e, poly_ast(times)))
            )
    return p, found


def _remainder_factors(p: Poly, atom: Floor) -> Iterable[Poly]:
    """Each c for which p has -c * den * (the floor) among its terms, judged by den's first."""
    if not atom.den.terms:
        return
    for monomial, value in p.terms:
        if (atom, 1) in monomial:
            others = tuple(pair for pair in monomial if pair != (atom, 1))
            times = Poly(((others, -value),)) / Poly((atom.den.terms[0],))
            if not is_fractional(times):
                yield times


# ---- products -----------------------------------------------------------------------------------
def _product(monomial: Monomial, value: Number) -> ast.Expr:
    """A term without division: `2 * i * stride`."""
    factors = [_atom(atom) for atom, power in monomial for _ in range(power)]
    if value != 1 or not factors:
        factors.insert(0, number(int(value)))
    return _joined(factors)


def _joined(factors: Iterable[ast.Expr]) -> ast.Expr:
    total, *rest = factors
    for factor in rest:
        total = ast.Binary("*", total, factor)
    return total


def _atom(atom: Atom) -> ast.Expr:
    match atom:
        case Idx(name) | Sym(name) if name == BATCH:
            raise NotWritable("it compares places in `...`, which have no name")
        case Idx(name):
            return ast.Name(name)
        case Sym(name):
            return ast.Size(name) if name[0].isupper() else ast.Name(name)
        case Floor(num, den):
            return ast.Binary("//", poly_ast(num), poly_ast(den))
        case Fetch(tensor, coords, fill):
            return read_ast(tensor, coords, fill)
        case Extreme(op, args):
            return ast.Call(op, tuple(poly_ast(a) for a in args))
        case Group(inner):
            return poly_ast(inner)
    raise TypeError(atom)


def read_ast(tensor: str, coords: tuple[Poly, ...], fill: int | float | bool | None) -> ast.Expr:
    """A read; a tensor without dims is its name."""
    if not coords:
        return ast.Name(tensor)
    return ast.Read(tensor, tuple(_index(c) for c in coords), literal(fill))


def _index(c: Poly) -> ast.Index:
    return ast.Dots() if c == poly(Idx(BATCH)) else poly_ast(c)


def literal(value: int | float | bool | None) -> ast.Literal | None:
    """A fill or a default, which alone may be negative."""
    if value is None:
        return None
    if isinstance(value, bool):
        return ast.Bool(value)
    text = repr(value).replace("Infinity", "inf")
    return ast.Number(value, text)
