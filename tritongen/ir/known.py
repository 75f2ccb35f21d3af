"""What is known about the sizes of an op, in the form that proofs use.

Input: facts of the IR, ranges of indices, guards. Output: `Facts`.

- An equality becomes a replacement.
- `X % k == 0` makes X a multiple of a name of its own.
- Everything else becomes a poly that is not negative.

Every range is taken to be non-empty: in an empty one there is no point where a proof could be wrong. `bounds` derives
everything that is not immediate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import gcd

from tritongen.ir.algebra import (
    Atom,
    Extreme,
    Floor,
    Idx,
    Number,
    Poly,
    Sym,
    atoms,
    extreme,
    indices,
    is_fractional,
    poly,
    size,
    substitute,
    symbols,
    text,
    walk,
)
from tritongen.ir.nodes import BATCH, BATCH_SIZE, Define, Fact, Op, Require
from tritongen.work import priced, remembered

Ranges = Mapping[str, tuple[Poly, Poly]]  # index: lo <= index < hi


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What is known about sizes. `equal` replaces names, `low` bounds them, and `known` are all >= 0.

    `nonzero` have either sign but are not 0: divisors of the call. `quotients` are names for `X // k` where `X % k == 0` is required. Two
    Facts are the same if they are one object (`one`): proofs are cached by that.
    """

    equal: Mapping[str, Poly] = field(default_factory=dict)
    low: Mapping[str, int] = field(default_factory=dict)
    known: tuple[Poly, ...] = ()
    nonzero: tuple[Poly, ...] = ()
    ranges: Ranges = field(default_factory=dict)
    quotients: Mapping[str, Poly] = field(default_factory=dict)
    constants: frozenset[str] = frozenset()  # names that the compiler knows the values of


def one(facts: Facts) -> Facts:
    """The one object for all facts that say the same: what was proven from them need not be proven again."""
    said = (facts.equal, facts.low, facts.ranges, facts.quotients)
    rest = facts.known, facts.nonzero, facts.constants
    return _one(tuple(tuple(mapping.items()) for mapping in said), *rest)


@remembered(maxsize=1 << 10)
def _one(
    said: tuple[tuple, ...],
    known: tuple[Poly, ...],
    nonzero: tuple[Poly, ...],
    constants: frozenset[str],
) -> Facts:
    equal, low, ranges, quotients = map(dict, said)
    return Facts(equal, low, known, nonzero, ranges, quotients, constants)


def facts_of(op: Op) -> Facts:
    """The facts of an op: its dims are not negative, its requirements hold."""
    sizes = {a.name for t in op.tensors for d in t.dims for a in walk(d) if isinstance(a, Sym)}
    sizes -= {c.name for c in op.constants}
    batched = {t.name for t in op.tensors if BATCH_SIZE in t.dims}
    # A fact about the batch dims of some operands need not hold for those of the op.
    facts = (f for f in op.facts if isinstance(f, Define) or not f.batch or {*f.batch} == batched)
    known = gather(sizes, facts, (d for t in (*op.tensors, *op.outputs) for d in t.dims))
    return one(replace(known, constants=frozenset(c.name for c in op.constants)))


def gather(sizes: Iterable[str], facts: Iterable[Fact] = (), dims: Iterable[Poly] = ()) -> Facts:
    """Facts from the names of sizes (without constants), from `with`, and from dims."""
    known = Facts(low={BATCH: 0} | {name: 0 for name in sizes})
    facts = tuple(facts)
    # Definitions first: a requirement may bound the parts of a derived size.
    for fact in facts:
        if isinstance(fact, Define):
            known = define(known, fact.name, fact.value)
    said = [fact for fact in facts if isinstance(fact, Require)]
    found = _required(known, said)
    if not all(map(partial(_is_named, found), found.quotients)):
        # K == 2 * P leaves no K that G divides: equalities that do not say a multiple come last.
        said.sort(key=lambda fact: fact.op == "==" and _quotient(fact.left - fact.right) is None)
        found = _required(known, said)
    for dim in dims:
        found = learn(found, dim)
    return found


def _required(facts: Facts, said: Iterable[Require]) -> Facts:
    for fact in said:
        facts = require(facts, fact.left, fact.op, fact.right)
    return facts


def _is_named(facts: Facts, name: str) -> bool:
    """Whether the facts replace what a quotient of theirs is made of by the name for the quotient."""
    (quotient,) = atoms(facts.quotients[name])
    return (
        isinstance(quotient, Floor)
        and not simplify(quotient.num - quotient.den * size(name), facts).terms
    )


def define(facts: Facts, name: str, value: Poly) -> Facts:
    """Adds `name = value`, a size that is not negative."""
    value = simplify(value, facts)
    return learn(replace(facts, equal={**facts.equal, name: value}), value)


def require(facts: Facts, left: Poly, op: str, right: Poly) -> Facts:
    """Adds `left op right`."""
    match op:
        case "==":
            return _equate(facts, simplify(left - right, facts), left)
        case ">=":
            return learn(facts, left - right)
        case ">":
            return learn(facts, left - right - 1)
        case "<=":
            return learn(facts, right - left)
        case "<":
            return learn(facts, right - left - 1)
        case "!=":
            return _apart(facts, simplify(left - right, facts))
    return facts


def _apart(facts: Facts, gap: Poly) -> Facts:
    """Adds gap != 0."""
    for side in (gap, -gap):
        if plainly_nonnegative(side, facts):
            return learn(facts, side - 1)
    return replace(facts, nonzero=(*facts.nonzero, gap))


def within(facts: Facts, ranges: Ranges, guards: Iterable[Poly] = ()) -> Facts:
    """Adds a point in the box: no range is empty, and every guard is >= 0 there."""
    return _within(facts, tuple(ranges.items()), tuple(guards))


@priced(maxsize=1 << 10)
def _within(
    facts: Facts, ranges: tuple[tuple[str, tuple[Poly, Poly]], ...], guards: tuple[Poly, ...]
) -> Facts:
    found = dict(facts.ranges)
    for name, (lo, hi) in ranges:
        lo, hi = simplify(lo, facts), simplify(hi, facts)
        found[name] = (lo, _reached(lo, hi))
    facts = replace(facts, ranges=found)
    for lo, hi in found.values():
        facts = learn(facts, hi - lo - 1)
    for guard in guards:
        facts = learn(facts, guard)
    return one(facts)


def _reached(lo: Poly, hi: Poly) -> Poly:
    """The end of a range that has a point: of 0 <= k < max(0, e) it is e."""
    for atom in atoms(hi):
        if isinstance(atom, Extreme) and atom.op == "max" and hi == poly(atom) and lo in atom.args:
            return extreme("max", (a for a in atom.args if a != lo))
    return hi


def simplify(p: Poly, facts: Facts) -> Poly:
    """p with derived sizes and all equalities put in."""
    return substitute(p, facts.equal)


@priced(maxsize=1 << 14)
def plainly_nonnegative(p: Poly, facts: Facts) -> bool:
    """Whether every term is, once each name is counted from its lower bound."""
    if _least(p, facts.low) < 0:  # the term without a name, found without counting anew
        return False
    shift = {name: size(name) + low for name, low in facts.low.items() if low}
    for monomial, value in substitute(p, shift).terms:
        if value < 0 or not all(power > 0 and _not_below(a, facts) for a, power in monomial):
            return False
    return True


def _least(p: Poly, low: Mapping[str, int]) -> Number:
    """The value of p with each size at its bound and each index at 0. 0 if p has other parts."""
    total: Number = 0
    for monomial, value in p.terms:
        for atom, power in monomial:
            match atom:
                case Sym(name) if power > 0:
                    value *= low.get(name, 0) ** power
                case Idx():
                    value = 0
                case _:
                    return 0
        total += value
    return total


def _not_below(atom: Atom, facts: Facts) -> bool:
    """Whether an atom of a shifted poly is >= 0."""
    match atom:
        case Sym(name):
            return name in facts.low
        case Idx(name):
            return name in facts.ranges and plainly_nonnegative(facts.ranges[name][0], facts)
        case Floor(num, den):
            # A shifted floor has shifted names in it: `low` counts them from 0 now.
            at_zero = one(replace(facts, low={name: 0 for name in facts.low}))
            return plainly_nonnegative(num, at_zero) and plainly_nonnegative(den, at_zero)
    return False


# ---- learning -----------------------------------------------------------------------------------
def learn(facts: Facts, p: Poly) -> Facts:
    """Adds p >= 0."""
    p = simplify(p, facts)
    if is_fractional(p) or p.constant is not None or plainly_nonnegative(p, facts):
        return facts
    low = dict(facts.low)
    names = [t for t in p.terms if t[0]]
    constant = _number(p)
    if len(names) == 1 and names[0][1] > 0:
        ((monomial, value),) = names
        if len(monomial) == 1 and isinstance(monomial[0][0], Sym) and monomial[0][1] == 1:
            name = monomial[0][0].name
            least = -(constant // value)
            low[name] = max(low.get(name, least), least)
            return _relearn(replace(facts, low=low))
        if len(monomial) == 1 and isinstance(monomial[0][0], Floor) and monomial[0][1] == 1:
            floor = monomial[0][0]
            if plainly_nonnegative(floor.den - 1, facts):
                facts = learn(facts, floor.num - floor.den * -(constant // value))
    if constant < 0 and all(
        value > 0 and all(isinstance(a, Sym) and low.get(a.name, -1) >= 0 for a, _ in monomial)
        for monomial, value in names
    ):  # a sum of products of names >= 0 is positive: so is a name that is in each of them
        for name in frozenset.intersection(*(symbols(Poly((t,))) for t in names)):
            low[name] = max(low[name], 1)
        facts = replace(facts, low=low)
    return replace(facts, known=_with(facts.known, p))


def _with(known: tuple[Poly, ...], p: Poly) -> tuple[Poly, ...]:
    """What is known, and p. Of polys that differ by a number the least is kept: every other one follows from it.

    `x[n] + x[n + 1] + ...` asks for a larger tensor with each read, and a proof would try all that was asked for.
    """
    names = tuple(term for term in p.terms if term[0])
    for place, q in enumerate(known):
        if q.terms == p.terms:
            return known
        if tuple(term for term in q.terms if term[0]) == names:
            least = min(p, q, key=_number)
            return (*known[:place], least, *known[place + 1 :])
    return (*known, p)


def _number(p: Poly) -> Number:
    """The term of p without a name."""
    return next((value for monomial, value in p.terms if not monomial), 0)


def _relearn(facts: Facts) -> Facts:
    """A new lower bound may decide what a known product or floor says."""
    known = facts.known
    facts = replace(facts, known=())
    for p in known:
        facts = learn(facts, p)
    return facts


def _equate(facts: Facts, gap: Poly, left: Poly | None = None) -> Facts:
    """Adds gap == 0: a name that is alone in it is replaced everywhere.

    Of several names, the one whose value is as clearly above its lower bound is replaced: `B` by `P + A` in P == B - A, which keeps A > 0
    as clear as before. If there is none, the name on the left, as if the fact defined it.
    """
    weights = [value for _, value in gap.terms if isinstance(value, int)]
    if gap.terms and len(weights) == len(gap.terms):
        gap = gap * Fraction(1, gcd(*weights))  # 2 * H == 128 * G
    if (quotient := _quotient(gap)) is not None:
        return _divides(facts, quotient)
    # The ends of a range are the same for all indices, so they keep their names.
    ends = frozenset[str]().union(*(symbols(end) for pair in facts.ranges.values() for end in pair))
    found = [(name, rest) for name, rest in _alone(gap) if name not in ends or not indices(rest)]
    for name, rest in found:
        if plainly_nonnegative(rest - facts.low.get(name, 0), facts):
            return _replace_name(facts, name, rest)
    if found:
        defined = (pair for pair in found if left == size(pair[0]))
        return _replace_name(facts, *next(defined, found[0]))
    return learn(learn(facts, gap), -gap)


def _quotient(gap: Poly) -> Floor | None:
    """X // k where the gap is X % k, or less than 0 by that."""
    for atom in dict.fromkeys(atoms(gap)):
        if isinstance(atom, Floor):
            rest = atom.num - atom.den * poly(atom)
            if gap in (rest, -rest):
                return atom
    return None


def _alone(gap: Poly) -> Iterator[tuple[str, Poly]]:
    """Each name that is alone in gap, once, with its value for gap == 0."""
    for monomial, value in gap.terms:
        if len(monomial) != 1 or monomial[0][1] != 1 or abs(value) != 1:
            continue
        atom = monomial[0][0]
        rest = poly(atom) - gap * value
        if isinstance(atom, Sym) and atom not in set(walk(rest)):
            yield atom.name, rest


def _divides(facts: Facts, quotient: Floor) -> Facts:
    """Adds `num % den == 0`: num is den times a name for the quotient."""
    name = text(poly(quotient))
    if plainly_nonnegative(quotient.den, facts):
        facts = learn(facts, quotient.den - 1)  # a call that divides by 0 is refused
    facts = replace(facts, quotients={**facts.quotients, name: poly(quotient)})
    if plainly_nonnegative(quotient.num, facts) and plainly_nonnegative(quotient.den - 1, facts):
        facts = replace(facts, low={**facts.low, name: 0})
    return _equate(facts, quotient.num - quotient.den * size(name))


def _replace_name(facts: Facts, name: str, value: Poly) -> Facts:
    old = {name: value}
    equal = {other: substitute(p, old) for other, p in facts.equal.items()} | old
    low = {other: bound for other, bound in facts.low.items() if other != name}
    known = [substitute(p, old) for p in facts.known]
    if name in facts.low:
        known.append(value - facts.low[name])
    ranges = {i: (substitute(lo, old), substitute(hi, old)) for i, (lo, hi) in facts.ranges.items()}
    facts = replace(facts, equal=equal, low=low, known=(), ranges=ranges)
    for p in known:
        facts = learn(facts, p)
    return facts
