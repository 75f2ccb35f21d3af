"""The index algebra: one class for sizes, coordinates and guards.

A `Poly` is a sum of products of atoms with rational coefficients. It is kept in normal form, so equal polys are the same.
Powers may be negative: `(p + pad - r) / stride` is `p/stride + pad/stride - r/stride`. A coordinate whose value is not an
integer reads the fill. A *size* has no index in it. A *coordinate* is affine in its index-like atoms (indices, floors of
coordinates, integer reads).

    >>> p, r, s = index("p"), index("r"), size("stride")
    >>> str((p * s + r) // s), str((p * s) / s)
    ('p + r // stride', 'p')

This module constructs, substitutes and evaluates. `algebra_text.py` prints, and `bounds.py` has proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Union

from tritongen.ir.algebra_text import factor_text, text
from tritongen.ir.atoms import Atom, Extreme, Fetch, Floor, Group, Idx, Mod, Monomial, Number, Sym
from tritongen.work import remembered, spend

MOST_TERMS = 1 << 11  # of a product, before equal ones are one
KEPT = 1 << 14  # monomials and polynomials: an op has a few, and all its coordinates use them


class Overgrown(ArithmeticError):
    """Raised for a product of sums that has too many terms."""


class _Hashed:
    """Keeps its hash: caches are asked about the same sizes again and again. A copy for another process has none."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class Poly(_Hashed):
    """A polynomial in normal form: monomials in a fixed order, none with coefficient 0."""

    terms: tuple[tuple[Monomial, Number], ...] = ()

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash(self.terms)
            object.__setattr__(self, "_hash", found)
            return found

    def __add__(self, other: PolyLike) -> Poly:
        total = dict(self.terms)
        for monomial, value in poly(other).terms:
            total[monomial] = total.get(monomial, 0) + value
        return _from(total)

    def __mul__(self, other: PolyLike) -> Poly:
        if type(other) is int and other:
            return _scaled(self, other)
        total: dict[Monomial, Number] = {}
        others = poly(other).terms
        if len(self.terms) * len(others) > MOST_TERMS:
            raise Overgrown
        for left, a in self.terms:
            for right, b in others:
                monomial = _times(left, right)
                total[monomial] = total.get(monomial, 0) + a * b
        return _from(total)

    def __neg__(self) -> Poly:
        return _scaled(self, -1)

    def __sub__(self, other: PolyLike) -> Poly:
        total = dict(self.terms)
        for monomial, value in poly(other).terms:
            total[monomial] = total.get(monomial, 0) - value
        return _from(total)

    def __rsub__(self, other: PolyLike) -> Poly:
        return poly(other) - self

    def __truediv__(self, other: PolyLike) -> Poly:
        """Exact division. If there is a remainder, the coordinate is out of bounds."""
        return self * reciprocal(poly(other))

    def __floordiv__(self, other: PolyLike) -> Poly:
        return floordiv(self, poly(other))

    def __mod__(self, other: PolyLike) -> Poly:
        return self - poly(other) * floordiv(self, poly(other))

    __radd__, __rmul__ = __add__, __mul__

    @property
    def constant(self) -> Number | None:
        """The number this is, if it has no atom in it."""
        if not self.terms:
            return 0
        (monomial, value), *rest = self.terms
        return value if not monomial and not rest else None

    def __str__(self) -> str:
        return text(self)


PolyLike = Union[Poly, Atom, Number]


def poly(value: PolyLike) -> Poly:
    """A number, an atom or a poly, as a poly."""
    if isinstance(value, Poly):
        return value
    if isinstance(value, (int, Fraction)):
        return Poly((((), whole(value)),)) if value else Poly()
    return Poly(((((value, 1),), 1),))


def whole(value: Number) -> Number:
    return value.numerator if value.denominator == 1 else value


def size(name: str) -> Poly:
    return poly(Sym(name))


def index(name: str) -> Poly:
    return poly(Idx(name))


def reciprocal(p: Poly) -> Poly:
    """1 / p; ZeroDivisionError for 0."""
    if not p.terms:
        raise ZeroDivisionError("division by zero in an index expression")
    if len(p.terms) > 1:
        return Poly(((((Group(p), -1),), 1),))
    ((monomial, value),) = p.terms
    return Poly(((tuple((atom, -power) for atom, power in monomial), whole(Fraction(1, value))),))


def floordiv(num: Poly, den: Poly) -> Poly:
    """num // den, with whole multiples of den taken out: `(a * k + b) // k` is `a + b // k`.

    There is no fraction under a floor: `(a / 2) // k` is `a // (2 * k)`.
    """
    if not den.terms:
        raise ZeroDivisionError("division by zero in an index expression")
    if is_fractional(num) or is_fractional(den):
        above, below = numerator(num), denominator(num)
        return floordiv(above * denominator(den), below * numerator(den))
    if all(value < 0 for _, value in den.terms):
        num, den = -num, -den  # the same quotient, by what proofs know to be positive
    if den.constant == 1:
        return num
    quotient, rest = Poly(), Poly()
    for term in num.terms:
        part = Poly((term,))
        if not term[0] and den.constant is not None:
            # `(n + 3) // 2` is `(n + 1) // 2 + 1`: equal sums stay equal under a floor.
            carried = term[1] // den.constant
            quotient, rest = quotient + carried, rest + (term[1] - carried * den.constant)
            continue
        ratio = part * reciprocal(den)
        if is_fractional(ratio) or len(den.terms) > 1:
            rest = rest + part
        else:
            quotient = quotient + ratio
    lead = reciprocal(Poly(den.terms[-1:]))
    for term in rest.terms:  # `(k + k * n + b) // (n + 1)`: all terms of a multiple are there
        ratio = Poly((term,)) * lead
        multiple = ratio * den
        if not is_fractional(ratio) and set(multiple.terms) <= set(rest.terms):
            quotient, rest = quotient + ratio, rest - multiple
    if not rest.terms:
        return quotient
    a, b = rest.constant, den.constant
    if a is not None and b is not None:
        return quotient + a // b
    return quotient + poly(Floor(rest, den))


def extreme(op: str, args: Iterable[Poly]) -> Poly:
    """min or max of sizes, folded where all are numbers."""
    args = tuple(dict.fromkeys(args))
    constants = [a.constant for a in args if a.constant is not None]
    if len(args) == 1:
        return args[0]
    if len(constants) == len(args):
        return poly((min if op == "min" else max)(constants))
    return poly(Extreme(op, args))


# ---- looking inside -----------------------------------------------------------------------------
def is_affine_map(p: Poly) -> bool:
    """Whether p is indices times sizes, and sizes, in whole numbers."""
    parts = affine(p)
    return parts is not None and not is_fractional(p) and all(isinstance(a, Idx) for a in parts[0])


def is_fractional(p: Poly) -> bool:
    """Whether some term divides: the value may fail to be an integer."""
    return any(
        value.denominator != 1 or any(power < 0 for _, power in monomial)
        for monomial, value in p.terms
    )


def children(atom: Atom) -> tuple[Poly, ...]:
    match atom:
        case Floor(num, den) | Mod(num, den):
            return num, den
        case Fetch(_, coords) | Extreme(_, coords):
            return coords
        case Group(inner):
            return (inner,)
    return ()


def atoms(p: Poly) -> Iterator[Atom]:
    """The atoms that stand at the top of p, each once per occurrence."""
    for monomial, _ in p.terms:
        for atom, _ in monomial:
            yield atom


def walk(p: Poly) -> Iterator[Atom]:
    """Every atom in p, nested ones included."""
    waiting = list(atoms(p))[::-1]
    while waiting:
        atom = waiting.pop()
        spend()
        yield atom
        waiting += [a for inner in children(atom) for a in atoms(inner)][::-1]


@remembered(maxsize=KEPT)
def indices(p: Poly) -> frozenset[str]:
    """The names of all indices in p."""
    return frozenset(atom.name for atom in walk(p) if isinstance(atom, Idx))


def moved_by(p: Poly, names: Set[str]) -> Poly:
    """The terms of p in which any of these indices stand: an offset, where the rest is a place."""
    return Poly(tuple(term for term in p.terms if indices(Poly((term,))) & names))


@remembered(maxsize=KEPT)
def symbols(p: Poly) -> frozenset[str]:
    """The names of all sizes and constants in p."""
    return frozenset(atom.name for atom in walk(p) if isinstance(atom, Sym))


@remembered(maxsize=KEPT)
def fetches_of(p: Poly) -> tuple[Fetch, ...]:
    """All reads in p."""
    return tuple(atom for atom in walk(p) if isinstance(atom, Fetch))


def is_index_like(atom: Atom) -> bool:
    """Whether the atom varies over the box: an index, a read, or a floor of either."""
    if isinstance(atom, (Idx, Fetch)):
        return True
    return any(is_index_like(inner) for child in children(atom) for inner in atoms(child))


def is_size(p: Poly) -> bool:
    return not any(is_index_like(atom) for atom in atoms(p))


def affine(p: Poly) -> tuple[dict[Atom, Poly], Poly] | None:
    """p as {index-like atom: size coefficient} and a size; None where it is not affine."""
    coefficients: dict[Atom, dict[Monomial, Number]] = {}
    rest = []
    for monomial, value in p.terms:
        varying = [(atom, power) for atom, power in monomial if is_index_like(atom)]
        if not varying:
            rest.append((monomial, value))
            continue
        if len(varying) > 1 or varying[0][1] != 1:
            return None
        atom = varying[0][0]
        others = tuple(pair for pair in monomial if pair[0] != atom)
        coefficients.setdefault(atom, {})[others] = value
    return {atom: _from(terms) for atom, terms in coefficients.items()}, Poly(tuple(rest))


def weight_of(p: Poly, name: str) -> Poly | None:
    """w where p is w * name and a rest that the index does not move; None where it moves p otherwise, as in `i % n`."""
    weight = (affine(p) or ({}, p))[0].get(Idx(name), Poly())
    return weight if name not in indices(p - weight * index(name)) else None


def denominator(p: Poly) -> Poly:
    """The least monomial d such that p * d has no division: p is an integer iff d divides p * d."""
    powers: dict[Atom, int] = {}
    number = 1
    for monomial, value in p.terms:
        number = lcm(number, value.denominator)
        for atom, power in monomial:
            powers[atom] = max(powers.get(atom, 0), -power)
    result = poly(number)
    for atom, power in powers.items():
        base = atom.poly if isinstance(atom, Group) else poly(atom)
        for _ in range(power):
            result = result * base
    return result


def numerator(p: Poly) -> Poly:
    """p * denominator(p), with every divided sum cancelled."""
    powers: dict[Atom, int] = {}
    for monomial, _ in p.terms:
        for atom, power in monomial:
            if isinstance(atom, Group):
                powers[atom] = max(powers.get(atom, 0), -power)
    if not powers:
        return p * denominator(p)
    opaque = Poly(((tuple(powers.items()), 1),)) * p
    opaque = opaque * denominator(opaque)
    return substitute_atoms(opaque, lambda a: a.poly if isinstance(a, Group) else None)


# ---- substitution and evaluation ----------------------------------------------------------------
def substitute_atoms(p: Poly, change: Callable[[Atom], Poly | None]) -> Poly:
    """p with every atom for which `change` gives a poly replaced by it, innermost last."""
    total: dict[Monomial, Number] = {}
    for monomial, value in p.terms:
        product, same = poly(value), []
        for atom, power in monomial:
            new = change(atom)
            if new is None and not children(atom):
                same.append((atom, power))
                continue
            if new is None:
                new = _rebuild(atom, change)
            factor = new if power > 0 else reciprocal(new)
            for _ in range(abs(power)):
                product = product * factor
        for part, number in product.terms:
            own = _times(part, tuple(same))
            total[own] = total.get(own, 0) + number
    return _from(total)


def substitute(p: Poly, values: Mapping[str, PolyLike]) -> Poly:
    """p with indices and sizes replaced by name."""

    def change(atom: Atom) -> Poly | None:
        if isinstance(atom, (Sym, Idx)) and atom.name in values:
            return poly(values[atom.name])
        return None

    if not values or all(change(atom) is None for atom in walk(p)):
        return p
    return substitute_atoms(p, change)


def _rebuild(atom: Atom, change: Callable[[Atom], Poly | None]) -> Poly:
    match atom:
        case Floor(num, den):
            return floordiv(substitute_atoms(num, change), substitute_atoms(den, change))
        case Fetch(tensor, coords, fill):
            return poly(Fetch(tensor, tuple(substitute_atoms(c, change) for c in coords), fill))
        case Extreme(op, args):
            return extreme(op, (substitute_atoms(a, change) for a in args))
        case Group(inner):
            return substitute_atoms(inner, change)
    return poly(atom)


def evaluate(p: Poly, values: Mapping[str, int]) -> Number:
    """The value of a size (or of a coordinate without reads) at whole numbers, by name."""
    total: Number = 0
    for monomial, value in p.terms:
        for atom, power in monomial:
            own = _atom_value(atom, values)
            value = value * (own if power == 1 else Fraction(own) ** power)
        total += value
    return whole(total)


def _atom_value(atom: Atom, values: Mapping[str, int]) -> Number:
    match atom:
        case Sym(name) | Idx(name):
            return values[name]
        case Floor(num, den):
            return evaluate(num, values) // evaluate(den, values)
        case Extreme(op, args):
            return (min if op == "min" else max)(evaluate(a, values) for a in args)
        case Group(inner):
            return evaluate(inner, values)
    raise TypeError(f"a read has no value without its tensor: {atom}")


def with_modulo(p: Poly) -> Poly:
    """p with every `a - (a // b) * b` shown as `a % b`, and `a * s - (a // b) * b * s` as `a % b * s`."""
    terms = dict(p.terms)
    for monomial, value in p.terms:
        for atom, power in monomial:
            if not isinstance(atom, Floor) or power != 1 or len(atom.den.terms) != 1:
                continue
            rest = Poly(((tuple(pair for pair in monomial if pair[0] != atom), value),))
            scale = rest * reciprocal(-atom.den)
            whole = scale * atom.num
            inside = all(terms.get(m) == v for m, v in whole.terms if m)
            if not is_fractional(scale) and scale.terms[0][1] > 0 and inside:
                left = p - whole + scale * poly(atom) * atom.den
                return with_modulo(left) + scale * poly(Mod(atom.num, atom.den))
    return p


# ---- normal form --------------------------------------------------------------------------------
@remembered(maxsize=None, each=0)
def _key(atom: Atom) -> tuple[int, str]:
    return (0 if is_index_like(atom) else 1, factor_text(atom, None))


@lru_cache(maxsize=KEPT)
def _order(monomial: Monomial) -> tuple[tuple[int, str, int], ...]:
    return tuple((*_key(atom), power) for atom, power in monomial)


@lru_cache(maxsize=KEPT)
def _times(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(((a, k) for a, k in powers.items() if k), key=lambda pair: _key(pair[0])))


def _scaled(p: Poly, factor: int) -> Poly:
    """p times a number that is not 0: its terms stay in order."""
    spend(1 + len(p.terms))
    return Poly(tuple((monomial, whole(value * factor)) for monomial, value in p.terms))


def _from(total: dict[Monomial, Number]) -> Poly:
    spend(1 + len(total))
    kept = [(monomial, whole(value)) for monomial, value in total.items() if value]
    if len(kept) > 1:
        kept.sort(key=lambda term: _order(term[0]))
    return Poly(tuple(kept))
