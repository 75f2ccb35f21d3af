"""Proofs about sizes and coordinates: is `p + r <= H - 1` under `P = H - R + 1`, whatever the sizes?

Input: two polys, the facts of an op, the ranges of the indices in force. Output: True (holds at
every point), False (fails at every point) or None (undecided):

    facts = gather(("H", "R"), (Define("P", H - R + 1),))
    prove(p + r, "<", H, facts, {"p": (0, P), "r": (0, R)})  ->  True

A proof adds known inequalities until every term is plainly non-negative; what it cannot find it
leaves undecided. Not here: what is known to begin with (`known`), what a decision means for a spec
(`check.reads`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from heapq import heappop, heappush
from math import ceil
from random import Random

from tritongen.ir.algebra import (
    Atom,
    Extreme,
    Fetch,
    Floor,
    Idx,
    Monomial,
    Number,
    Poly,
    Sym,
    affine,
    denominator,
    evaluate,
    floordiv,
    index,
    indices,
    is_fractional,
    is_size,
    numerator,
    poly,
    reciprocal,
    substitute,
    substitute_atoms,
    symbols,
    walk,
    whole,
)
from tritongen.ir.known import (
    Facts,
    Ranges,
    define,
    facts_of,
    gather,
    learn,
    one,
    plainly_nonnegative,
    require,
    simplify,
    within,
)
from tritongen.ir.nodes import Binder, Guard, Reduce
from tritongen.work import priced, remembered

__all__ = [
    "Facts",
    "Ranges",
    "corners",
    "define",
    "facts_of",
    "gather",
    "learn",
    "nonnegative",
    "one",
    "peaks",
    "prove",
    "require",
    "simplify",
    "takes_all",
    "terms_between",
    "within",
]

ZERO = Poly()
EFFORT = 4  # how many inequalities a proof may add
POINTS = 12
TURNS = 5 * POINTS  # points that are drawn, of which some are not allowed
OFFSETS = (0, 0, 1, 1, 2, 3, 5)
FAR = (0, 1, 7, 60, 500, 5000)  # what no small size refutes, sizes far apart may
MENDS = 6  # how often a point is changed until it obeys what is known
STEPS = 80  # how many polys a search may look at before it gives up
TRIES = 250  # and how many it may come across


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
    return _proven(left - right, op, within(facts, ranges or {}, guards))


@priced(maxsize=1024)
def _proven(gap: Poly, op: str, facts: Facts) -> bool | None:
    """A cached proof. Kernels of an op ask the same question for each place that several of them read."""
    gap = simplify(gap, facts)
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
    if all(seen) and (nonnegative(yes, facts) or nonnegative(*in_digits(yes, facts))):
        return True
    return False if not any(seen) and nonnegative(no, facts) else None


def takes_all(reduce: Reduce, facts: Facts) -> bool:
    """Whether each place from 0 on is a term, and there is one: argmax finds it without more care."""
    return not reduce.guards and all(
        not b.lo.terms and prove(b.hi, ">", ZERO, facts) is True for b in reduce.binders
    )


def terms_between(
    binders: Collection[Binder], guards: Collection[Guard], facts: Facts
) -> Poly | None:
    """How many terms the guards of one index let through: hi - lo where they are ends that lie inside its range."""
    if len(binders) != 1 or any(guard.op != ">=" for guard in guards):
        return None
    (b,) = binders
    k, lo, hi = index(b.index), b.lo, b.hi
    for guard in guards:
        low, high = k - guard.poly, guard.poly + k + 1
        if b.index not in indices(low):
            lo, inside = low, prove(low, ">=", b.lo, facts)
        elif b.index not in indices(high):
            hi, inside = high, prove(high, "<=", b.hi, facts)
        else:
            return None
        if inside is not True:
            return None
    if len(guards) != (lo != b.lo) + (hi != b.hi):
        return None  # several say where one end is
    return hi - lo if prove(hi, ">=", lo, facts) is True else None


def in_digits(p: Poly, facts: Facts) -> tuple[Poly, Facts]:
    """p with an index d, which appears beside `d // q`, as two digits: `2 * (d // 2) + 1 - d % 2` moves both at once."""
    for atom in walk(p):
        if not isinstance(atom, Floor) or not is_size(atom.den):
            continue
        if not plainly_nonnegative(atom.den - 1, facts):
            continue  # by a negative number a remainder is negative
        for name, (lo, hi) in facts.ranges.items():
            if atom.num == index(name) and not lo.terms:
                high, low = f"{name} // {atom.den}", f"{name} % {atom.den}"
                digits = {high: (lo, (hi - 1) // atom.den + 1), low: (lo, atom.den)}
                whole = index(high) * atom.den + index(low)
                swap = {atom: index(high), Idx(name): whole}
                return substitute_atoms(p, swap.get), within(facts, digits)
    return p, facts


def _zero(gap: Poly, facts: Facts) -> bool | None:
    if not gap.terms:
        return True
    if is_fractional(gap):
        return None
    if any(_proportional(gap, simplify(p, facts)) for p in facts.nonzero):
        return False
    seen = [value == 0 for value in _samples(gap, facts)]
    if all(seen) and nonnegative(gap, facts) and nonnegative(-gap, facts):
        return True
    if not any(seen) and (nonnegative(gap - 1, facts) or nonnegative(-gap - 1, facts)):
        return False
    return None


def _proportional(p: Poly, q: Poly) -> bool:
    """Whether p is q times a number."""
    return bool(q.terms) and p * q.terms[0][1] == q * p.terms[0][1]


def _samples(p: Poly, facts: Facts) -> list[Number]:
    """p at a few points that the facts allow: one that refutes a claim saves the search for a proof."""
    if _read(p):
        return []  # the values of an operand are unknown here
    found = []
    for point in _points(facts, tuple(sorted(symbols(p) - facts.low.keys()))):
        try:
            found.append(evaluate(p, point))
        except ZeroDivisionError:
            continue
    return found


@remembered(maxsize=1 << 8)
def _points(facts: Facts, others: tuple[str, ...]) -> tuple[Mapping[str, int], ...]:
    """A few points that the facts allow: a value for each index and each size, and for other names."""
    ends = [end for pair in facts.ranges.values() for end in pair]
    if any(map(_read, ends)):
        return ()
    relevant = [q for q in facts.known if not _read(q)]
    names = sorted({*others, *facts.low}.union(*(symbols(q) for q in (*relevant, *ends))))
    raised = [(q, up) for q in relevant if is_size(q) and (up := _raising(q))]
    drawn = [q for q in relevant if not is_size(q) or not _raising(q)]
    random, found = Random(0), []
    for turn in range(TURNS):
        offsets = FAR if turn % 2 else OFFSETS
        point = {name: facts.low.get(name, -2) + random.choice(offsets) for name in names}
        try:
            if not _mended(point, raised, random):
                continue
            for name, (lo, hi) in facts.ranges.items():
                first, last = evaluate(lo, point), evaluate(hi, point) - 1
                point[name] = int(random.choice((first, last, (first + last) // 2)))
                if last < first:
                    break
            else:
                if all(evaluate(q, point) >= 0 for q in drawn):
                    found.append(point)
        except ZeroDivisionError:
            continue
        if len(found) == POINTS:
            break
    return tuple(found)


def _raising(p: Poly) -> list[tuple[str, Number]]:
    """The sizes that make p larger by a number for each step up."""
    return [
        (m[0][0].name, value)
        for m, value in p.terms
        if value > 0 and len(m) == 1 and isinstance(m[0][0], Sym) and m[0][1] == 1
    ]


def _mended(
    point: dict[str, int], raised: list[tuple[Poly, list[tuple[str, Number]]]], random: Random
) -> bool:
    """Raises sizes until the point obeys what is known. Of forty names hardly any drawn point does."""
    for _ in range(MENDS):
        obeyed = True
        for q, up in raised:
            if (short := evaluate(q, point)) < 0:
                name, weight = random.choice(up)
                point[name] += ceil(-short / Fraction(weight))
                obeyed = False
        if obeyed:
            return True
        raised = raised[::-1]  # of A >= B, B >= C the last one comes first
    return False


def _read(p: Poly) -> bool:
    """Whether p holds what an operand holds."""
    return any(isinstance(atom, Fetch) for atom in walk(p))


def nonnegative(p: Poly, facts: Facts, effort: int = EFFORT) -> bool:
    """Whether p >= 0 is found to hold at every point of `facts.ranges`; p is whole-numbered."""
    if plainly_nonnegative(p, facts):
        return True
    for atom in walk(p):
        if isinstance(atom, Extreme):
            # It equals one of its arguments: all must do, or one that it lets p fall to.
            enough = any if _falls(p, atom, facts) else all
            return enough(nonnegative(_replaced(p, atom, arg), facts, effort) for arg in atom.args)
    if is_fractional(p) or _read(p):
        return False
    return _search(p, facts, effort)


def _falls(p: Poly, atom: Extreme, facts: Facts) -> bool:
    """Whether p is at its least where a min is greatest, or a max least: each argument bounds it from below."""
    once = _replaced(p, atom, poly(1))  # not 0, by which p may divide
    rate = _replaced(p, atom, poly(2)) - once
    linear = p == rate * atom + once - rate
    return linear and plainly_nonnegative(rate if atom.op == "max" else -rate, facts)


def _search(p: Poly, facts: Facts, effort: int) -> bool:
    """Shortest poly first: what cancels terms is on the way to a proof."""
    seen, tried = {p}, 0
    waiting = [(len(p.terms), 0, 0, p)]
    while waiting and len(seen) < STEPS:
        _, depth, _, q = heappop(waiting)
        for weaker in _weaker(q, facts):
            tried += 1
            if plainly_nonnegative(weaker, facts):
                return True
            if tried > TRIES:
                return False
            if weaker not in seen and depth + 1 < effort:
                seen.add(weaker)
                heappush(waiting, (len(weaker.terms), depth + 1, tried, weaker))
    return False


def _weaker(p: Poly, facts: Facts) -> Iterator[Poly]:
    """Polys that are <= p everywhere, each a step closer to a plain one."""
    yield from _without_floors(p, facts)
    yield from _less_known(p, facts)
    ends = _ends(p, facts, -1)
    if ends is not None and len(ends) == 1 and ends[0] != p:
        yield ends[0]


def _without_floors(p: Poly, facts: Facts) -> Iterator[Poly]:
    """`d * (n // d)` lies in n - d + 1 .. n; `n // d` itself is monotone in n.

    A p that is whole is >= 0 where d * p > -d.
    """
    parts = _linear_parts(p)
    for atom, scale in parts.items():
        if not isinstance(atom, Floor) or not _is_positive(atom.den, facts):
            continue
        rest = p - scale * poly(atom)
        exact = _settled(atom, facts)
        if exact is not None:
            yield rest + scale * exact
        times = scale * reciprocal(atom.den)
        if is_fractional(times):  # d * p >= 0 says the same as p >= 0
            rest, times = rest * atom.den, scale
            rest = rest if is_fractional(p) else rest + atom.den - 1
        if plainly_nonnegative(-times, facts):
            yield rest + times * atom.num
        elif plainly_nonnegative(times, facts):
            yield rest + times * (atom.num - atom.den + 1)


def _is_positive(p: Poly, facts: Facts) -> bool:
    """Whether p >= 1 is plain, or follows from one known inequality. An index below W, for example, implies W - 1 >= 0."""
    gaps = (p - 1, *(p - 1 - known for known in facts.known))
    return any(plainly_nonnegative(gap, facts) for gap in gaps)


def _settled(atom: Floor, facts: Facts) -> Poly | None:
    """n // d where 0 <= n < d, or -d <= n < 0."""
    for low in (0, -1):
        start = atom.num - atom.den * low
        if plainly_nonnegative(start, facts) and plainly_nonnegative(atom.den - 1 - start, facts):
            return poly(low)
    return None


def _less_known(p: Poly, facts: Facts) -> Iterator[Poly]:
    """p minus a multiple of a known inequality that cancels one of p's negative terms."""
    negative = [(monomial, dict(monomial), value) for monomial, value in p.terms if value < 0]
    for known in facts.known:
        for monomial, powers, value in negative:
            for other, weight in known.terms:
                if weight >= 0 or any(powers.get(atom, 0) < power for atom, power in other):
                    continue
                factor = _quotient(monomial, other)
                if factor is None:
                    continue
                times = Poly(((factor, whole(Fraction(value, weight))),))
                if plainly_nonnegative(times, facts):
                    yield p - times * known


def _quotient(monomial: Monomial, other: Monomial) -> Monomial | None:
    ratio = Poly(((monomial, 1),)) * reciprocal(Poly(((other, 1),)))
    ((result, _),) = ratio.terms
    return None if any(power < 0 for _, power in result) else result


def corners(p: Poly, facts: Facts) -> tuple[Poly, ...] | None:
    """Polys without indices, the least of which is <= p at every point. p reaches it, except for floors.

    There is more than one if the sign of an index's factor depends on a constant. None if p is not affine, or holds a read.
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
    totals: tuple[Poly, ...] = (rest,)
    for atom, factor in factors.items():
        options = _options(atom, factor, facts, direction)
        if options is None:
            return None
        totals = tuple(dict.fromkeys(total + option for total in totals for option in options))
    return totals if len(totals) <= 16 else None


def _options(atom: Atom, factor: Poly, facts: Facts, direction: int) -> tuple[Poly, ...] | None:
    """The least (direction -1) or greatest (1) values of `factor * atom`."""
    wanted: tuple[int, ...]
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


# ---- parts --------------------------------------------------------------------------------------
def _linear_parts(p: Poly) -> dict[Atom, Poly]:
    """Every floor that is in p to the first power, once per term, with its factor."""
    parts: dict[Atom, Poly] = {}
    for monomial, value in p.terms:
        for atom, power in monomial:
            if isinstance(atom, Floor) and power == 1:
                others = tuple(pair for pair in monomial if pair[0] != atom)
                parts[atom] = parts.get(atom, Poly()) + Poly(((others, value),))
    return parts


def _replaced(p: Poly, old: Atom, new: Poly) -> Poly:
    return substitute_atoms(p, lambda atom: new if atom == old else None)
