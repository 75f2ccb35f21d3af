"""Inverts the indices of one read: from the place where it is used to the place that it points at.

Input: a `Use` of x[d1, d2, ...] in a box, and indices i1, i2, ... of x. Output: the sum, over the box, of the weights of all
points with d == i, with as many indices as possible solved for. Example, for x[n, p * stride + r - pad] under the weight
dy[n, p] * w[r], p < P, r < R:

    sum[r]((dy[n, (i - r + pad) / stride] else 0) * w[r])

In order: indices read through `// q` and `% q` are split into digits; plain indices; mixed radix (`g * Cg + c` gives g = i //
Cg, c = i % Cg); rotations. Then one index is solved for, the longest. The demands of its range and of exact division become
guards, which `term.py` handles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tritongen.autodiff import exprs
from tritongen.autodiff.flow import Use
from tritongen.autodiff.wanted import ALWAYS, Wanted, changed
from tritongen.ir.algebra import (
    Atom,
    Floor,
    Idx,
    Poly,
    affine,
    atoms,
    extreme,
    index,
    indices,
    is_fractional,
    numerator,
    poly,
    reciprocal,
    substitute,
    substitute_atoms,
    walk,
)
from tritongen.ir.bounds import Facts, Ranges, corners, peaks, prove, simplify, within
from tritongen.ir.nodes import BATCH, Binder, Expr, Guard, Read

ZERO = Poly()


def decide(left: Poly, op: str, right: Poly, facts: Facts, ranges: Ranges) -> bool | None:
    """`prove`, but it distinguishes the batch index from the batch extent of the same name."""

    def change(atom: Atom) -> Poly | None:
        return index("batch~") if atom == Idx(BATCH) else None

    if op == ">=" and any(
        left - right in (index(name) - lo, hi - 1 - index(name))
        for name, (lo, hi) in ranges.items()
    ):
        return True
    ranges = {"batch~" if name == BATCH else name: r for name, r in ranges.items()}
    left, right = (substitute_atoms(p, change) for p in (left, right))
    return prove(left, op, right, facts, ranges)


@dataclass(frozen=True, slots=True)
class Target:
    """The tensor whose gradient is gathered: an index (or 0) and an extent per dim."""

    name: str
    box: tuple[Binder, ...]
    coords: tuple[Poly, ...]
    dims: tuple[Poly, ...]


@dataclass(slots=True)
class System:
    """The equations `coords == target` in the unknowns left; `guards` is what they ask besides."""

    facts: Facts
    target: Target
    unknown: dict[str, tuple[Poly, Poly]]
    outer: frozenset[str]  # the unknowns that come from the box rather than from a reducer
    coords: list[Poly]
    guards: list[Guard]
    weight: Expr
    wanted: Wanted = ALWAYS
    only: tuple[Expr, ...] = ()  # conditions that the weight is to be inside of
    bounds: list[Guard] = field(default_factory=list)  # of the guards, those of the line's reducers

    @property
    def ranges(self) -> dict[str, tuple[Poly, Poly]]:
        return {b.index: (b.lo, b.hi) for b in self.target.box} | self.unknown

    def proves(self, left: Poly, op: str, right: Poly) -> bool:
        return decide(left, op, right, self.facts, self.ranges) is True

    def divides(self, p: Poly, what: Poly) -> bool:
        """Whether p is not 0 wherever `what` has a value: what may be 0 becomes no divisor of a gradient."""
        p = numerator(p)
        if p.constant is not None:
            return p.constant != 0
        ranges = {b.index: (b.lo, b.hi) for b in self.target.box if b.index in indices(what)}
        return decide(p, "!=", ZERO, self.facts, ranges) is True

    def same(self, left: Poly, right: Poly) -> bool:
        return left == right or self.proves(left, "==", right)

    def replace(self, change: exprs.Change) -> None:
        self.coords = [substitute_atoms(c, change) for c in self.coords]
        self.guards = [Guard(substitute_atoms(g.poly, change), g.op) for g in self.guards]
        self.weight = exprs.substitute(self.weight, change)
        self.wanted = changed(self.wanted, change)
        self.only = tuple(exprs.substitute(e, change) for e in self.only)
        self.bounds = [Guard(substitute_atoms(g.poly, change), g.op) for g in self.bounds]

    def solve(self, name: str, solution: Poly) -> None:
        """Put `solution` for an unknown everywhere and keep its range as guards."""
        lo, hi = self.unknown.pop(name)
        self.replace(exprs.by_name({name: solution}))
        self.guards += [Guard(solution - lo, ">="), Guard(hi - 1 - solution, ">=")]


def invert(use: Use, box: tuple[Binder, ...], target: Target, facts: Facts) -> System:
    """The system with every coordinate of the read used up."""
    system = _system(use, box, target, facts)
    _split_digits(system)
    _name_quotients(system)
    for position in _order(system):
        _equate(system, position)
    _use_equalities(system)
    return system


def _system(use: Use, box: tuple[Binder, ...], target: Target, facts: Facts) -> System:
    fresh = {b.index: exprs.unique(b.index) for b in (*box, *use.binders)}
    change = exprs.by_name({old: index(new) for old, new in fresh.items()})
    coords = use.node.coords if isinstance(use.node, Read) else ()
    return System(
        facts,
        target,
        {fresh[b.index]: (b.lo, b.hi) for b in (*box, *use.binders)},
        frozenset(fresh[b.index] for b in box),
        [substitute_atoms(c, change) for c in coords],
        [Guard(substitute_atoms(g.poly, change), g.op) for g in use.guards],
        exprs.substitute(exprs.with_own_binders(use.weight), change),
        changed(use.wanted, change),
        tuple(exprs.substitute(e, change) for e in use.only),
        [Guard(substitute_atoms(g.poly, change), g.op) for g in use.bounds],
    )


# ---- digits -------------------------------------------------------------------------------------
def _floors(system: System) -> list[Floor]:
    """Floors over unknowns in the coordinates, innermost first, by what is not negative: a remainder is not, then."""
    found = [a for c in system.coords for a in walk(c) if isinstance(a, Floor)]
    found = [a for a in dict.fromkeys(found) if indices(a.num) & set(system.unknown)]
    found = [a for a in found if system.proves(a.den, ">=", ZERO)]
    return sorted(found, key=lambda a: sum(isinstance(b, Floor) for b in walk(a.num)))


def _split_digits(system: System) -> None:
    """`k // q` of a plain unknown: k becomes k1 * q + k0, and `k % q` then is k0."""
    while plain := next((f for f in _floors(system) if _splits(system, f)), None):
        name, q = _plain(system, plain.num), plain.den
        hi = system.unknown[name][1]
        count, exact = _quotient(system.facts, hi, q)
        high, low = exprs.unique(name), exprs.unique(name)
        del system.unknown[name]
        system.unknown |= {high: (ZERO, count), low: (ZERO, q)}
        if name in system.outer:
            system.outer |= {high, low}
        number = index(high) * q + index(low)
        system.replace(_digits_of(name, plain, index(high), number))
        if not exact:
            system.guards.append(Guard(hi - 1 - number, ">="))


def _splits(system: System, floor: Floor) -> bool:
    """Whether it is of an unknown that counts from 0, to an end that may be divided."""
    if not _counts(system, floor.num):
        return False
    _, hi = system.unknown[_plain(system, floor.num)]
    return _quotient(system.facts, hi, floor.den)[1] or system.divides(floor.den, hi)


def _digits_of(name: str, floor: Floor, high: Poly, number: Poly) -> exprs.Change:
    def change(atom: Atom) -> Poly | None:
        if atom == floor:
            return high
        return number if atom == Idx(name) else None

    return change


def _plain(system: System, p: Poly) -> str:
    """The unknown that p is, if it is nothing else."""
    name = next((a.name for a in atoms(p) if isinstance(a, Idx)), "")
    return name if name in system.unknown and p == index(name) else ""


def _counts(system: System, p: Poly) -> bool:
    """Whether p is an unknown that counts from 0."""
    name = _plain(system, p)
    return bool(name) and system.unknown[name][0] == ZERO


def _quotient(facts: Facts, size: Poly, by: Poly) -> tuple[Poly, bool]:
    """ceil(size / by), and whether the division is known to be exact."""
    ratio = simplify(size, facts) * reciprocal(simplify(by, facts))
    if not is_fractional(ratio):
        return substitute(ratio, facts.quotients), True
    return -((-size) // by), False


def _name_quotients(system: System) -> None:
    """`e // q` of a sum, where it is no rotation, is an unknown t: 0 <= e - q * t < q."""
    for floor in _floors(system):
        pairs = zip(system.coords, system.target.coords, strict=True)
        if any(_rotated(system, c, at) is not None for c, at in pairs if floor in walk(c)):
            continue
        facts = within(system.facts, system.ranges)
        low, high = corners(floor.num, facts), peaks(floor.num, facts)
        if low is None or high is None or floor not in _floors(system):
            continue
        if not all(system.divides(floor.den, end) for end in (*low, *high)):
            continue
        t = exprs.unique("t")
        rest = floor.num - index(t) * floor.den
        system.unknown[t] = (
            extreme("min", low) // floor.den,
            extreme("max", high) // floor.den + 1,
        )
        system.replace(_instead(floor, index(t)))
        system.guards += [Guard(rest, ">="), Guard(floor.den - 1 - rest, ">=")]


def _instead(old: Atom, new: Poly) -> exprs.Change:
    return lambda atom: new if atom == old else None


# ---- one coordinate -----------------------------------------------------------------------------
def _order(system: System) -> list[int]:
    """Coordinates that are an index first: they decide most."""
    return sorted(range(len(system.coords)), key=lambda i: not _plain(system, system.coords[i]))


def _equate(system: System, position: int) -> None:
    """Use up one coordinate: `coordinate == target`."""
    c, target = system.coords[position], system.target.coords[position]
    dim = system.target.dims[position]
    if name := _plain(system, c):
        system.solve(name, target)
    elif rotation := _rotated(system, c, target):
        _turn_back(system, rotation, target, dim)
    elif chain := _radix(system, c, target):
        _read_digits(system, chain, target)
    elif name := _longest(system, c - target):
        _solve(system, name, c - target)
    else:
        system.guards.append(Guard(c - target, "=="))


def _solve(system: System, name: str, gap: Poly) -> None:
    """With gap == 0, for one of its candidates."""
    factor = _candidates(system, gap)[name]
    system.solve(name, (factor * index(name) - gap) / factor)


def _use_equalities(system: System) -> None:
    """A guard `e == 0` in an unknown is an equation too: a scatter's gradient is a gather."""
    while found := next(
        (g for g in system.guards if g.op == "==" and _candidates(system, g.poly)), None
    ):
        system.guards.remove(found)
        _solve(system, _longest(system, found.poly), found.poly)


def _candidates(system: System, gap: Poly) -> dict[str, Poly]:
    """The unknowns that stand in gap outside of floors and reads, with their factors, which may divide the rest."""
    factors, _ = affine(gap) or ({}, gap)
    hidden = {name for a in factors if not isinstance(a, Idx) for name in indices(poly(a))}
    return {
        a.name: factor
        for a, factor in factors.items()
        if isinstance(a, Idx) and a.name in system.unknown and a.name not in hidden
        if system.divides(factor, gap)
    }


def _radix(system: System, c: Poly, target: Poly) -> list[tuple[str, Poly, Poly]]:
    """c as digits, lowest first: (index, factor, extent), a factor being the extents below."""
    split = affine(c)
    left = _candidates(system, c - target)
    if split is None or split[1].terms or len(left) != len(split[0]):
        return []
    chain, step = [], poly(1)
    while left:
        name = next((n for n, f in left.items() if _equal(system, f, step)), None)
        if name is None or system.unknown[name][0] != ZERO:
            return []
        extent = system.unknown[name][1]
        chain.append((name, left.pop(name), extent))
        step = step * extent
    return chain


def _equal(system: System, a: Poly, b: Poly) -> bool:
    return not simplify(a - b, system.facts).terms


def _read_digits(system: System, chain: list[tuple[str, Poly, Poly]], target: Poly) -> None:
    for (name, step, _), (_, next_step, _) in zip(chain, chain[1:], strict=False):
        digit = target // step - (target // next_step) * (next_step / step)
        del system.unknown[name]
        system.replace(exprs.by_name({name: digit}))
    name, step, _ = chain[-1]
    system.solve(name, target // step)


# ---- rotations ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Rotation:
    """`(sign * name + rest) % den`, the unknown ranging over at most den."""

    name: str
    sign: Poly
    rest: Poly
    den: Poly


def _rotated(system: System, c: Poly, target: Poly) -> Rotation | None:
    for floor in atoms(c):
        if not isinstance(floor, Floor) or c != floor.num - floor.den * poly(floor):
            continue
        if not system.divides(floor.den, target):
            continue
        for name, sign in _candidates(system, floor.num).items():
            lo, hi = system.unknown[name]
            if lo == ZERO and sign.constant in (1, -1) and system.proves(hi, "<=", floor.den):
                return Rotation(name, sign, floor.num - sign * index(name), floor.den)
    return None


def _turn_back(system: System, r: Rotation, target: Poly, dim: Poly) -> None:
    _, hi = system.unknown.pop(r.name)
    solution = (r.sign * (target - r.rest)) % r.den
    system.replace(exprs.by_name({r.name: solution}))
    if not system.same(hi, r.den):
        system.guards.append(Guard(hi - 1 - solution, ">="))
    if not system.proves(dim, "<=", r.den):
        system.guards.append(Guard(r.den - 1 - target, ">="))


# ---- the index that goes ------------------------------------------------------------------------
def _longest(system: System, gap: Poly) -> str:
    """The unknown whose solving saves most points: the longest, else one of the box."""
    best = ""
    candidates = _candidates(system, gap)
    for name in candidates:
        if not best or _better(system, candidates, name, best):
            best = name
    return best


def _better(system: System, factors: Mapping[str, Poly], a: str, b: str) -> bool:
    lengths = [hi - lo for lo, hi in (system.unknown[a], system.unknown[b])]
    if system.proves(lengths[0], ">", lengths[1]):
        return True
    if system.proves(lengths[0], "<", lengths[1]):
        return False
    if (a in system.outer) != (b in system.outer):
        return a in system.outer
    return factors[a].constant in (1, -1) and factors[b].constant not in (1, -1)
