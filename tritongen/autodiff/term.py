"""Writes out one contribution to a gradient: an inverted read as a sum over the remaining indices.

Input: a solved `System`. Output: an expression over the target's indices, such as

    sum[r]((dy[n, (i - r + pad) / stride] else 0) * w[r])

A guard that always holds is dropped. So is a guard that fails only where a factor of the term reads its `else 0`: this makes the
gradient of a convolution look like a convolution. Such a guard stays if another factor reads an element that only points outside of
the guard read: that element may be NaN. The other guards stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from math import gcd

from tritongen.autodiff import exprs, wanted
from tritongen.autodiff.invert import System, decide
from tritongen.ir import nodes
from tritongen.ir.algebra import (
    Atom,
    Fetch,
    Floor,
    Idx,
    Poly,
    affine,
    denominator,
    extreme,
    index,
    indices,
    is_fractional,
    is_index_like,
    numerator,
    poly,
    substitute_atoms,
    walk,
)
from tritongen.ir.bounds import Facts, prove, simplify
from tritongen.ir.free import folds_of, free_indices, reads, with_coordinates
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
    Tensor,
    rebuild,
)

ZERO = Poly()
# What stands for a read outside, where conditions say that it does not count: by dtype; other floats and type parameters 0
OUTSIDE = dict.fromkeys(INTS, -1) | {"u8": 255, "bool": False}
TAME = ("add", "sub", "mul", "neg", "where")
Shapes = Mapping[str, Tensor]  # everything that may be read


def write(system: System, shapes: Shapes, said: Facts, gradients: Set[str]) -> Expr:
    """The sum over the remaining unknowns, or the weight itself if there is none.

    `said`: the facts about sizes in the text, by which reads without `else` are checked again. `gradients`: the lines of gradients, which
    are 0 where they are not wanted.
    """
    _tidy(system)
    ranges = system.ranges | inner_ranges(system.weight)
    weight = _all_filled(said, system.weight, ranges, shapes)
    guards = _needed(system, weight, shapes, said)
    if guards is None:
        return exprs.number(0, weight.dtype)
    binders = tuple(Binder(name, lo, hi) for name, (lo, hi) in system.unknown.items())
    left = set(system.unknown)
    inner = tuple(g for g in guards if indices(g.poly) & left)
    outer = tuple(g for g in guards if not indices(g.poly) & left)
    only = [_all_filled(said, e, ranges, shapes) for e in system.only]
    within = [e for e in only if free_indices(e) & left]
    for condition in within:
        weight = _masked(condition, weight, system, gradients)
    if binders and not exprs.is_zero(weight):
        factored = not (inner or within)
        weight = _sum(binders, weight, said) if factored else _plain_sum(binders, inner, weight)
    asked = (*outer, *(e for e in only if not free_indices(e) & left))
    if not asked or exprs.is_zero(weight):
        return weight
    return exprs.where(wanted.as_condition(asked), weight, exprs.number(0, weight.dtype))


def _masked(condition: Expr, weight: Expr, system: System, gradients: Set[str]) -> Expr:
    """The weight inside of a condition. In a matrix product, each factor that has all indices of the condition is masked.

    The factor that brings the gradient in is 0 there already.
    """
    used, own = free_indices(condition), {b.index for b in system.target.box}

    def masked(e: Expr) -> Expr:
        return exprs.where(condition, e, exprs.number(0, e.dtype))

    def factor(e: Expr) -> Expr:
        reads = {r.tensor for r in nodes.walk(e) if isinstance(r, Read)}
        settled = reads & gradients and not wanted.multiplies(e)
        return e if settled or not used <= free_indices(e) else masked(e)

    match weight:
        case Call("mul", (a, b)):
            rows, columns = free_indices(a) & own, free_indices(b) & own
            if rows - columns and columns - rows:
                return exprs.call("mul", factor(a), factor(b))
    return masked(weight)


def condition_of(system: System, shapes: Shapes, said: Facts) -> tuple[wanted.Wanted, bool]:
    """Under which condition on the target's indices the gradient is wanted, and whether that is all of it.

    What binders are asked is left out where it cannot be said without them.
    """
    found: wanted.Wanted = wanted.NEVER
    whole = True
    for case in system.wanted:
        asked: list[wanted.Literal] = []
        guards = [e for e in (*case, *system.guards) if isinstance(e, Guard)]
        for literal in (*case, *system.guards, *_met(system, guards)):
            if isinstance(literal, Guard):
                part = _for_some(system, literal)
                if part is None:
                    whole = False
                    continue
                kept = _undecided(system, part, shapes, said)
                if kept is None:
                    break
                asked += kept
            elif free_indices(literal) & set(system.unknown):
                whole = False
            else:
                asked.append(_all_filled(said, literal, system.ranges, shapes))
        else:
            weaker = _weaker((e for e in asked if isinstance(e, Guard)), system)
            left = tuple(e for e in dict.fromkeys(asked) if e not in weaker)
            found = wanted.either(found, (left,))
    return found, whole


def _for_some(system: System, guard: Guard) -> Guard | None:
    """What a guard asks of the target's indices, for some value of a binder; None where it cannot be said."""
    left = indices(guard.poly) & set(system.unknown)
    if not left:
        return guard
    split = affine(guard.poly)
    if guard.op == "==" or split is None or len(left) > 1 or is_fractional(guard.poly):
        return None
    (name,), ends = left, system.unknown[next(iter(left))]
    sign = split[0].get(Idx(name), ZERO).constant
    if sign not in (1, -1) or name in indices(guard.poly - index(name) * sign):
        return None
    end = ends[1] - 1 if sign == 1 else ends[0]
    return replace(guard, poly=guard.poly + (end - index(name)) * sign)


def _met(system: System, guards: list[Guard]) -> list[Guard]:
    """Guards that hold if the guards leave each binder some value: `a <= i` and `i <= b` give `a <= b`.

    This is Fourier-Motzkin elimination of one index. It is exact, since the bounds are integers.
    """
    found = []
    for name in system.unknown:
        i = index(name)
        sums = [g.poly for g in guards if g.op == ">=" and name in indices(g.poly)]
        above = [p for p in sums if name not in indices(p - i)]
        below = [p for p in sums if name not in indices(p + i)]
        found += [Guard(a + b, ">=") for a in above for b in below]
    return found


def _undecided(
    system: System, guard: Guard, shapes: Shapes, said: Facts
) -> tuple[Guard, ...] | None:
    """The parts of a guard that are neither true nor false everywhere; None where one never holds."""
    kept = []
    for part in _whole(system, guard):
        part = replace(part, poly=_filled_fetches(said, part.poly, system.ranges, shapes))
        verdict = decide(part.poly, part.op, ZERO, system.facts, system.ranges)
        if verdict is False:
            return None
        if verdict is None:
            kept.append(part)
    return tuple(kept)


def _plain_sum(binders: tuple[Binder, ...], guards: tuple[Guard, ...], weight: Expr) -> Expr:
    """The sum under conditions: one of nothing is 0 whatever the factor that all terms have."""
    return Reduce("sum", binders, guards, weight, weight.dtype)


def _sum(binders: tuple[Binder, ...], weight: Expr, said: Facts) -> Expr:
    """The sum, with factors in front that are the same for all terms.

    If its divisor is the number of its terms, as in a mean's gradient, it is not 0 / 0.
    """
    own = {b.index for b in binders}
    counts = {poly(1)}
    for b in binders:
        extent = b.hi - b.lo
        counts = {c * e for c in counts for e in (extent, extreme("max", (ZERO, extent)))}

    def at_least_1(e: Expr) -> Expr:
        if not isinstance(e, IndexValue) or e.poly not in counts or prove(e.poly, ">", ZERO, said):
            return e
        return replace(e, poly=extreme("max", (e.poly, poly(1))))

    def total(e: Expr) -> Expr:
        match e:
            case Call("neg", (a,)):
                return exprs.neg(total(a))
            case Call("mul", (a, b)) if not free_indices(a) & own:
                return exprs.mul(a, total(b))
            case Call("mul", (a, b)) if not free_indices(b) & own:
                return exprs.mul(total(a), b)
            case Call("div", (a, b)) if not free_indices(b) & own:
                return exprs.div(total(a), rebuild(b, at_least_1))
        return _plain_sum(binders, (), e)

    return total(_gather(weight, own))


def _gather(e: Expr, own: set[str]) -> Expr:
    """A product with the factors that do not depend on `own` outermost."""
    match e:
        case Call("mul", (a, Call("div", (b, c)))):
            return _gather(exprs.div(exprs.mul(a, b), c), own)
        case Call("neg", (a,)):
            return exprs.neg(_gather(a, own))
        case Call("div", (a, b)):
            return exprs.div(_gather(a, own), b)
        case Call("mul", (a, b)):
            a = _gather(a, own)
            match a:
                case Call("mul" | "div" as fn, (x, y)) if not free_indices(y) & own:
                    inner = exprs.mul(x, b)
                    return exprs.mul(inner, y) if fn == "mul" else exprs.div(inner, y)
            return exprs.mul(a, b)
    return e


# ---- coordinates --------------------------------------------------------------------------------
def _tidy(system: System) -> None:
    """Floors of what is known to be a remainder are 0."""
    ranges = system.ranges | inner_ranges(system.weight)

    def proves(left: Poly, op: str, right: Poly) -> bool:
        return decide(left, op, right, system.facts, ranges) is True

    def change(atom: Atom) -> Poly | None:
        if not isinstance(atom, Floor) or not is_index_like(atom):
            return None
        settled = proves(atom.num, ">=", ZERO) and proves(atom.num, "<", atom.den)
        return ZERO if settled else None

    system.weight = exprs.substitute(system.weight, change)
    system.guards = [Guard(substitute_atoms(g.poly, change), g.op) for g in system.guards]


def inner_ranges(expr: Expr) -> dict[str, tuple[Poly, Poly]]:
    return {b.index: (b.lo, b.hi) for fold in folds_of(expr) for b in fold.binders}


def inside(said: Facts, coords: tuple[Poly, ...], dims: tuple[Poly, ...], ranges) -> bool:
    """Whether the coordinates are in bounds wherever the guards hold or not."""
    for c, dim in zip(coords, dims, strict=True):
        plain = next((r for name, r in ranges.items() if c == index(name)), None)
        if plain == (ZERO, dim) or (c == ZERO and dim == poly(1)):
            continue
        if is_fractional(c) or any(isinstance(a, Fetch) for a in walk(c)):
            return False
        for left, right in ((c, ZERO), (dim - 1, c)):
            if decide(left, ">=", right, said, ranges) is not True:
                return False
    return True


def _all_filled(said: Facts, expr: Expr, ranges, shapes: Shapes) -> Expr:
    """Fills of all reads below, those in coordinates and in the values of indices included."""
    expr = with_coordinates(expr, lambda p: _filled_fetches(said, p, ranges, shapes))
    return rebuild(expr, lambda e: _filled(said, e, ranges, shapes))


def _filled(said: Facts, expr: Expr, ranges, shapes: Shapes) -> Expr:
    """A read that only the guards, or the box it came from, kept inside gets a fill."""
    if not isinstance(expr, Read) or expr.fill is not None:
        return expr
    if inside(said, expr.coords, shapes[expr.tensor].dims, ranges):
        return expr
    return replace(expr, fill=OUTSIDE.get(expr.dtype, 0.0))


def _filled_fetches(said: Facts, p: Poly, ranges, shapes: Shapes) -> Poly:
    def change(atom: Atom) -> Poly | None:
        if isinstance(atom, Fetch) and atom.fill is None:
            if not inside(said, atom.coords, shapes[atom.tensor].dims, ranges):
                return poly(replace(atom, fill=OUTSIDE.get(shapes[atom.tensor].dtype, 0)))
        return None

    return substitute_atoms(p, change)


# ---- guards -------------------------------------------------------------------------------------
def _needed(system: System, weight: Expr, shapes: Shapes, said: Facts) -> tuple[Guard, ...] | None:
    """The guards that must stay. None if one of them never holds."""
    implied = _implied(weight, shapes) if _is_tame(weight, system) else frozenset()
    implied = frozenset(simplify(p, system.facts) for p in implied)
    loose = [(free_indices(r), _said_by(r, system, shapes)) for r in reads(weight)]
    leaving = tuple(_leaving(system, shapes, said))
    said_by_reads = {g: simplify(g.poly, system.facts) for g in system.guards if g.op == ">="}
    said_by_reads = {g: asked for g, asked in said_by_reads.items() if asked in implied}
    bounds = [indices(g.poly) for g in system.bounds if g.op == ">="]
    boxed = {b.index for b in system.target.box}
    kept: dict[Guard, None] = {}
    for guard in system.guards:
        if guard in said_by_reads:
            others = [used for used, own in loose if said_by_reads[guard] not in own]
            # With a condition of its own, a factor may be excluded that the guard's indices reach.
            others += leaving if others else ()
            own = indices(guard.poly)
            if not any(own <= used or _together(own, used, bounds) for used in others):
                if not any(own & used & boxed for used in others):
                    continue
                # A window may read less than all: then no value of the binder lets the element through that another factor reads.
                guard = _for_some(system, guard) or guard
        parts = _undecided(system, guard, shapes, said)
        if parts is None:
            return None
        kept |= dict.fromkeys(parts)
    weaker = _weaker(kept, system)
    return tuple(g for g in kept if g not in weaker)


def _together(own: Set[str], used: Set[str], bounds: Iterable[Set[str]]) -> bool:
    """Whether a factor with these indices may have elements that a guard and a bound exclude only together.

    Each lets the element through in some row, as `p < P` and `r <= p` do for w[r], but no row may pass both. So do
    `n - r < P` and `n >= 2`. One of them may leave the element out, as `p < P` does for a[k] beside `k <= p`.
    """
    return any((own | bound) & used and bound & own - used for bound in bounds)


def _leaving(system: System, shapes: Shapes, said: Facts) -> Iterator[set[str]]:
    """The indices of conditions that read outside of a tensor where the guards do not hold: nothing says what they are there."""
    for e in system.only:
        if _all_filled(said, e, system.ranges, shapes) != e:
            yield free_indices(e)
    for g in system.guards:
        if _filled_fetches(said, g.poly, system.ranges, shapes) != g.poly:
            yield set(indices(g.poly))


def _said_by(read: Read, system: System, shapes: Shapes) -> frozenset[Poly]:
    """Polys that are >= 0 wherever the read does not give its `else 0`."""
    return frozenset(simplify(p, system.facts) for p in _implied(read, shapes))


def _weaker(guards: Iterable[Guard], system: System) -> set[Guard]:
    """The guards that hold where others do: where `a // d > b // d`, a > b, and where others are multiples of less."""
    asked = {g: simplify(g.poly, system.facts) for g in guards if g.op == ">="}
    implied = {_undivided(p) for p in asked.values()}
    found = {g for g, p in asked.items() if p in implied}
    for g, p in asked.items():
        others = (q for h, q in asked.items() if h is not g and h not in found)
        if g not in found and any(_follows(p, q, system) for q in others):
            found.add(g)
    return found


def _follows(p: Poly, q: Poly, system: System) -> bool:
    """Whether p >= 0 wherever q >= 0, since a * p >= b * q for two whole numbers: those that let a term of both vanish.

    Of a chain of convolutions, `H + 2 * R >= p + 5` implies `H + R >= p + 3` for p < H.
    """
    ours, theirs = dict(p.terms), dict(q.terms)
    pairs = {(theirs[m], ours[m]) for m in ours.keys() & theirs.keys() if m}
    alike = {
        (a // gcd(a, b), b // gcd(a, b))
        for a, b in pairs
        if type(a) is type(b) is int and a * b > 0
    }
    return any(system.proves(p * abs(a), ">=", q * abs(b)) for a, b in alike)


def _undivided(p: Poly) -> Poly | None:
    """a - b - 1, where p is a // d - b // d - 1."""
    floors = {value: atom for m, value in p.terms for atom, _ in m if isinstance(atom, Floor)}
    a, b = floors.get(1), floors.get(-1)
    if a is None or b is None or a.den != b.den or (a.den.constant or 0) <= 0:
        return None
    return a.num - b.num - 1 if p == poly(a) - poly(b) - 1 else None


def _whole(system: System, guard: Guard) -> tuple[Guard, ...]:
    """A guard without fractions. That the division is exact becomes a guard of its own."""
    if not is_fractional(guard.poly):
        return (guard,)
    above, below = numerator(guard.poly), denominator(guard.poly)
    if guard.op == "==":
        return (Guard(above, "=="),)
    divided = Poly(tuple(t for t in guard.poly.terms if is_fractional(Poly((t,)))))
    divided = divided if divided.terms[0][1] > 0 else -divided  # alike at both ends of a range
    exact = Guard(numerator(divided) % denominator(divided), "==")
    if system.proves(below, "<", ZERO):
        above, below = -above, -below
    positive = system.proves(below, ">", ZERO)
    return (exact, Guard(above if positive else above // below, ">="))


# ---- factors that vanish ------------------------------------------------------------------------
def _is_tame(expr: Expr, system: System) -> bool:
    """Whether every factor stays finite if any read is filled with 0: true for sums and products of reads."""
    match expr:
        case Const() | ScalarRef() | IndexValue():
            return True
        case Read(fill=fill):
            return fill is None or abs(fill) < float("inf")
        case Cast(arg):
            return _is_tame(arg, system)
        case Call("where", (_, yes, no)):
            return _is_tame(yes, system) and _is_tame(no, system)
        case Call("div", (a, b)):
            return _is_tame(a, system) and _is_divisor(b, system)
        case Call(fn, args) if fn in TAME:
            return all(_is_tame(arg, system) for arg in args)
    return False


def _is_divisor(expr: Expr, system: System) -> bool:
    """Whether it is a number that is not 0 anywhere, where the guards hold or not: 1 / (i + 1) is none at i = -1."""
    inner = [e for e in nodes.walk(expr) if not isinstance(e, (Const, ScalarRef, Cast, Call))]
    values = [e.poly for e in inner if isinstance(e, IndexValue)]
    if len(values) < len(inner):
        return False  # it reads
    if not any(indices(p) for p in values):
        return True
    match expr:
        case IndexValue(p) | Cast(IndexValue(p)):
            return decide(p, "!=", ZERO, system.facts, system.ranges) is True
    return False


def _implied(expr: Expr, shapes: Shapes) -> frozenset[Poly]:
    """Polys that are >= 0 wherever expr is not 0, by its reads with `else 0`."""
    match expr:
        case Read(tensor, coords, fill) if fill == 0:
            dims = shapes[tensor].dims
            return frozenset(p for c, d in zip(coords, dims, strict=True) for p in (c, d - 1 - c))
        case Cast(arg) | Call("neg", (arg,)) | Call("div", (arg, _)):
            return _implied(arg, shapes)
        case Call("mul", (a, b)):
            return _implied(a, shapes) | _implied(b, shapes)
        case Call("add" | "sub", (a, b)) | Call("where", (_, a, b)):
            if exprs.is_zero(a) or exprs.is_zero(b):
                return _implied(b if exprs.is_zero(a) else a, shapes)
            return _implied(a, shapes) & _implied(b, shapes)
    return frozenset()
