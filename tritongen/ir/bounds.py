"""Proofs about sizes and coordinates: is `p + r <= H - 1` under `P = H - R + 1`, whatever the sizes?

Input: two polys, the facts of an op, the ranges of the indices in force. Output: True (holds at
every point), False (fails at every point) or None (undecided):

    facts = gather(("H", "R"), (Define("P", H - R + 1),))
    prove(p + r, "<", H, facts, {"p": (0, P), "r": (0, R)})  ->  True

All points are whole numbers and every range is taken to be non-empty: where one is not, there is no
point to be wrong at. A proof adds known inequalities until every term is plainly non-negative; what
it cannot find it leaves undecided. Not here: what a decision means for a spec (`check.reads`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from random import Random

from tritongen.ir.algebra import (
    Atom,
    Extreme,
    Fetch,
    Floor,
    Idx,
    Monomial,
    Poly,
    Sym,
    affine,
    atoms,
    denominator,
    evaluate,
    floordiv,
    is_fractional,
    is_size,
    numerator,
    poly,
    reciprocal,
    size,
    substitute,
    substitute_atoms,
    symbols,
    text,
    walk,
)
from tritongen.ir.nodes import BATCH, Define, Fact, Op

Ranges = Mapping[str, tuple[Poly, Poly]]  # index: lo <= index < hi
EFFORT = 4  # how many inequalities a proof may add
POINTS = 12
OFFSETS = (0, 0, 1, 1, 2, 3, 5)
STEPS = 80  # how many polys a search may look at before it gives up


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of sizes: `equal` replaces names, `low` bounds them, `known` are all >= 0.

    `quotients` are names of our own: `X // k` where `X % k == 0` is required.
    """

    equal: Mapping[str, Poly] = field(default_factory=dict)
    low: Mapping[str, int] = field(default_factory=dict)
    known: tuple[Poly, ...] = ()
    ranges: Ranges = field(default_factory=dict)
    quotients: Mapping[str, Poly] = field(default_factory=dict)


def facts_of(op: Op) -> Facts:
    """The facts of an op: its dims are not negative, its requirements hold."""
    sizes = {a.name for t in op.tensors for d in t.dims for a in walk(d) if isinstance(a, Sym)}
    sizes -= {c.name for c in op.constants}
    return gather(sizes, op.facts, (d for t in (*op.tensors, *op.outputs) for d in t.dims))


def gather(sizes: Iterable[str], facts: Iterable[Fact] = (), dims: Iterable[Poly] = ()) -> Facts:
    """Facts from the names of sizes (constants apart), what is written after `with`, and dims."""
    known = Facts(low={BATCH: 0} | {name: 0 for name in sizes})
    facts = tuple(facts)
    # Defines first: a requirement may bound what a derived size is made of.
    for fact in facts:
        if isinstance(fact, Define):
            known = define(known, fact.name, fact.value)
    for fact in facts:
        if not isinstance(fact, Define):
            known = require(known, fact.left, fact.op, fact.right)
    for dim in dims:
        known = learn(known, dim)
    return known


def define(facts: Facts, name: str, value: Poly) -> Facts:
    """With `name = value`, a size: not negative."""
    value = simplify(value, facts)
    return learn(replace(facts, equal=facts.equal | {name: value}), value)


def require(facts: Facts, left: Poly, op: str, right: Poly) -> Facts:
    """With `left op right`."""
    match op:
        case "==":
            return _equate(facts, simplify(left - right, facts))
        case ">=":
            return learn(facts, left - right)
        case ">":
            return learn(facts, left - right - 1)
        case "<=":
            return learn(facts, right - left)
        case "<":
            return learn(facts, right - left - 1)
    return facts


def within(facts: Facts, ranges: Ranges, guards: Iterable[Poly] = ()) -> Facts:
    """With a point in the box: no range is empty, every guard is >= 0 there."""
    found = dict(facts.ranges)
    for name, (lo, hi) in ranges.items():
        found[name] = (simplify(lo, facts), simplify(hi, facts))
    facts = replace(facts, ranges=found)
    for lo, hi in found.values():
        facts = learn(facts, hi - lo - 1)
    for guard in guards:
        facts = learn(facts, guard)
    return facts


def simplify(p: Poly, facts: Facts) -> Poly:
    """p with derived sizes and all equalities put in."""
    return substitute(p, facts.equal)


# ---- proofs -------------------------------------------------------------------------------------
def prove(
    left: Poly,
    op: str,
    right: Poly,
    facts: Facts,
    ranges: Ranges | None = None,
    guards: Iterable[Poly] = (),
) -> bool | None:
    """Whether `left op right` holds at every point (True), at none (False), or it depends (None)."""
    facts = within(facts, ranges or {}, guards)
    gap = simplify(left - right, facts)
    if op in ("==", "!="):
        equal = _zero(gap, facts)
        return equal if equal is None or op == "==" else not equal
    if op in ("<", "<="):
        gap = -gap
    if is_fractional(gap):
        if not nonnegative(denominator(gap) - 1, facts):
            return None
        gap = numerator(gap)
    yes, no = (gap - 1, -gap) if op in ("<", ">") else (gap, -gap - 1)
    seen = [value >= 0 for value in _samples(yes, facts)]
    if all(seen) and nonnegative(yes, facts):
        return True
    return False if not any(seen) and nonnegative(no, facts) else None


def _zero(gap: Poly, facts: Facts) -> bool | None:
    if not gap.terms:
        return True
    if is_fractional(gap):
        return None
    seen = [value == 0 for value in _samples(gap, facts)]
    if all(seen) and nonnegative(gap, facts) and nonnegative(-gap, facts):
        return True
    if not any(seen) and (nonnegative(gap - 1, facts) or nonnegative(-gap - 1, facts)):
        return False
    return None


def _samples(p: Poly, facts: Facts) -> list[Fraction]:
    """p at a few points that the facts allow: one that refutes a claim saves the search for a proof."""
    relevant = [q for q in facts.known if not any(isinstance(a, Fetch) for a in walk(q))]
    ends = [end for pair in facts.ranges.values() for end in pair]
    if any(isinstance(a, Fetch) for a in walk(p)):
        return []
    names = sorted(set().union(*(symbols(q) for q in (p, *relevant, *ends))))
    random, found = Random(0), []
    for _ in range(10 * POINTS):
        point = {name: facts.low.get(name, -2) + random.choice(OFFSETS) for name in names}
        try:
            for name, (lo, hi) in facts.ranges.items():
                first, last = evaluate(lo, point), evaluate(hi, point) - 1
                point[name] = int(random.choice((first, last, (first + last) // 2)))
                if last < first:
                    break
            else:
                if all(evaluate(q, point) >= 0 for q in relevant):
                    found.append(evaluate(p, point))
        except ZeroDivisionError:
            continue
        if len(found) == POINTS:
            break
    return found


def nonnegative(p: Poly, facts: Facts, effort: int = EFFORT) -> bool:
    """Whether p >= 0 is found to hold at every point of `facts.ranges`; p is whole-numbered."""
    if plainly_nonnegative(p, facts):
        return True
    for atom in walk(p):
        if isinstance(atom, Extreme):
            # It equals one of its arguments: all must do.
            return all(nonnegative(_replaced(p, atom, arg), facts, effort) for arg in atom.args)
    if is_fractional(p) or any(isinstance(a, Fetch) for a in walk(p)):
        return False
    return _search(p, facts, effort)


def _search(p: Poly, facts: Facts, effort: int) -> bool:
    """Breadth first, so that the shortest proof is found before the steps run out."""
    seen = {p}
    level = [p]
    for _ in range(effort):
        following = []
        for q in level:
            for weaker in _weaker(q, facts):
                if weaker in seen:
                    continue
                if plainly_nonnegative(weaker, facts):
                    return True
                if len(seen) >= STEPS:
                    return False
                seen.add(weaker)
                following.append(weaker)
        level = following
    return False


def plainly_nonnegative(p: Poly, facts: Facts) -> bool:
    """Whether every term is, once each name is counted from its lower bound."""
    shift = {name: size(name) + low for name, low in facts.low.items() if low}
    for monomial, value in substitute(p, shift).terms:
        if value < 0 or not all(power > 0 and _not_below(a, facts) for a, power in monomial):
            return False
    return True


def _not_below(atom: Atom, facts: Facts) -> bool:
    """Whether an atom of a shifted poly is >= 0."""
    match atom:
        case Sym(name):
            return name in facts.low
        case Idx(name):
            return name in facts.ranges and plainly_nonnegative(facts.ranges[name][0], facts)
        case Floor(num, den):
            # A shifted floor has shifted names in it: `low` counts them from 0 now.
            at_zero = replace(facts, low={name: 0 for name in facts.low})
            return plainly_nonnegative(num, at_zero) and plainly_nonnegative(den, at_zero)
    return False


def _weaker(p: Poly, facts: Facts) -> Iterator[Poly]:
    """Polys that are <= p everywhere, each a step closer to a plain one."""
    yield from _without_floors(p, facts)
    yield from _less_known(p, facts)
    ends = _ends(p, facts, -1)
    if ends is not None and len(ends) == 1 and ends[0] != p:
        yield ends[0]


def _without_floors(p: Poly, facts: Facts) -> Iterator[Poly]:
    """`d * (n // d)` lies in n - d + 1 .. n; `n // d` itself is monotone in n."""
    parts = _linear_parts(p)
    for atom, scale in parts.items():
        if not isinstance(atom, Floor) or not plainly_nonnegative(atom.den - 1, facts):
            continue
        rest = p - scale * poly(atom)
        exact = _settled(atom, facts)
        if exact is not None:
            yield rest + scale * exact
        times = scale * reciprocal(atom.den)
        if is_fractional(times):  # d * p >= 0 says the same as p >= 0
            rest, times = rest * atom.den, scale
        if plainly_nonnegative(-times, facts):
            yield rest + times * atom.num
        elif plainly_nonnegative(times, facts):
            yield rest + times * (atom.num - atom.den + 1)


def _settled(atom: Floor, facts: Facts) -> Poly | None:
    """n // d where 0 <= n < d, or -d <= n < 0."""
    for low in (0, -1):
        start = atom.num - atom.den * low
        if plainly_nonnegative(start, facts) and plainly_nonnegative(
            atom.den - 1 - start, facts
        ):
            return poly(low)
    return None


def _less_known(p: Poly, facts: Facts) -> Iterator[Poly]:
    """p minus a multiple of a known inequality that cancels one of p's negative terms."""
    for known in facts.known:
        for monomial, value in p.terms:
            if value >= 0:
                continue
            for other, weight in known.terms:
                if weight >= 0:
                    continue
                factor = _quotient(monomial, other)
                if factor is None:
                    continue
                times = Poly(((factor, value / weight),))
                if plainly_nonnegative(times, facts):
                    yield p - times * known


def _quotient(monomial: Monomial, other: Monomial) -> Monomial | None:
    one = Fraction(1)
    ratio = Poly(((monomial, one),)) * reciprocal(Poly(((other, one),)))
    ((result, _),) = ratio.terms
    return None if any(power < 0 for _, power in result) else result


def corners(p: Poly, facts: Facts) -> tuple[Poly, ...] | None:
    """Index-free polys, the least of which is <= p at every point (and is reached, but for floors).

    More than one where the sign of an index's factor depends on a constant. None where p is not
    affine, or holds a read.
    """
    return _restored(_ends(p, facts, -1), facts)


def peaks(p: Poly, facts: Facts) -> tuple[Poly, ...] | None:
    """Index-free polys, the greatest of which is >= p at every point; None as for `corners`."""
    return _restored(_ends(p, facts, 1), facts)


def _restored(ends: tuple[Poly, ...] | None, facts: Facts) -> tuple[Poly, ...] | None:
    return ends and tuple(substitute(end, facts.quotients) for end in ends)


def _ends(p: Poly, facts: Facts, direction: int) -> tuple[Poly, ...] | None:
    p = simplify(p, facts)
    if is_size(p):
        return (p,)
    split = affine(p)
    if split is None:
        return None
    factors, rest = split
    totals = (rest,)
    for atom, factor in factors.items():
        options = _options(atom, factor, facts, direction)
        if options is None:
            return None
        totals = tuple(dict.fromkeys(total + option for total in totals for option in options))
    return totals if len(totals) <= 16 else None


def _options(atom: Atom, factor: Poly, facts: Facts, direction: int) -> tuple[Poly, ...] | None:
    """What `factor * atom` may be at its least (direction -1) or greatest (1)."""
    if plainly_nonnegative(factor, facts):
        wanted = (direction,)
    elif plainly_nonnegative(-factor, facts):
        wanted = (-direction,)
    else:
        wanted = (-1, 1)
    found: list[Poly] = []
    for end in wanted:
        match atom:
            case Idx(name) if name in facts.ranges:
                lo, hi = facts.ranges[name]
                found.append(factor * (lo if end < 0 else hi - 1))
            case Floor(num, den) if plainly_nonnegative(den - 1, facts):
                ends = _ends(num, facts, end)
                if ends is None:
                    return None
                found.extend(factor * floordiv(e, den) for e in ends)
            case _:
                return None
    return tuple(found)


# ---- learning -----------------------------------------------------------------------------------
def learn(facts: Facts, p: Poly) -> Facts:
    """With p >= 0."""
    p = simplify(p, facts)
    if is_fractional(p) or p.constant is not None or plainly_nonnegative(p, facts):
        return facts
    low = dict(facts.low)
    names = [t for t in p.terms if t[0]]
    constant = next((value for monomial, value in p.terms if not monomial), 0)
    if len(names) == 1 and names[0][1] > 0:
        ((monomial, value),) = names
        if len(monomial) == 1 and isinstance(monomial[0][0], Sym) and monomial[0][1] == 1:
            name = monomial[0][0].name
            low[name] = max(low.get(name, ceil(-constant / value)), ceil(-constant / value))
            return _relearn(replace(facts, low=low))
        if constant < 0 and all(isinstance(a, Sym) and low.get(a.name, -1) >= 0 for a, _ in monomial):
            for atom, _ in monomial:  # a product of names >= 0 is positive: each of them is
                low[atom.name] = max(low[atom.name], 1)
            facts = replace(facts, low=low)
        elif len(monomial) == 1 and isinstance(monomial[0][0], Floor) and monomial[0][1] == 1:
            floor = monomial[0][0]
            if plainly_nonnegative(floor.den - 1, facts):
                facts = learn(facts, floor.num - floor.den * ceil(-constant / value))
    return facts if p in facts.known else replace(facts, known=(*facts.known, p))


def _relearn(facts: Facts) -> Facts:
    """A new lower bound may decide what a known product or floor says."""
    known = facts.known
    facts = replace(facts, known=())
    for p in known:
        facts = learn(facts, p)
    return facts


def _equate(facts: Facts, gap: Poly) -> Facts:
    """With gap == 0: a name that stands alone in it is replaced everywhere."""
    for atom in dict.fromkeys(atoms(gap)):
        if isinstance(atom, Floor) and gap in (
            atom.num - atom.den * poly(atom),
            atom.den * poly(atom) - atom.num,
        ):
            return _divides(facts, atom)
    for monomial, value in gap.terms:
        if len(monomial) != 1 or monomial[0][1] != 1 or abs(value) != 1:
            continue
        atom = monomial[0][0]
        rest = poly(atom) - gap * (1 / value)
        if isinstance(atom, Sym) and atom not in set(walk(rest)):
            return _replace_name(facts, atom.name, rest)
    return learn(learn(facts, gap), -gap)


def _divides(facts: Facts, quotient: Floor) -> Facts:
    """With `num % den == 0`: num is den times a name that stands for the quotient."""
    name = text(poly(quotient))
    facts = replace(facts, quotients={**facts.quotients, name: poly(quotient)})
    if nonnegative(quotient.num, facts, 2) and plainly_nonnegative(quotient.den - 1, facts):
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
    facts = Facts(equal, low, (), ranges, facts.quotients)
    for p in known:
        facts = learn(facts, p)
    return facts


# ---- parts --------------------------------------------------------------------------------------
def _linear_parts(p: Poly) -> dict[Atom, Poly]:
    """Every floor that stands in p to the first power, once a term, with its factor."""
    parts: dict[Atom, Poly] = {}
    for monomial, value in p.terms:
        for atom, power in monomial:
            if isinstance(atom, Floor) and power == 1:
                others = tuple(pair for pair in monomial if pair[0] != atom)
                parts[atom] = parts.get(atom, Poly()) + Poly(((others, value),))
    return parts


def _replaced(p: Poly, old: Atom, new: Poly) -> Poly:
    return substitute_atoms(p, lambda atom: new if atom == old else None)
