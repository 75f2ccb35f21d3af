"""Examples of calls, drawn from an op alone: sizes, constants, dtypes, layouts, values, batch shapes.

    case = draw_case(op, random.Random(0), dtypes={"T": "f32"})
    args = arguments(op, case, "cpu")     # tensors and numbers by parameter

A `Case` is data. You can print it, send it to another process, and shrink it (`simpler`). Every draw comes from one
`random.Random`, so Hypothesis can drive it too (`strategy`). Sizes must satisfy the facts of the op: an equation settles a
size, and other sizes are drawn again until they fit.

Not here: the right answer (`oracle.py`), filling tensors with numbers (`values.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch

from tritongen.ir.algebra import Fetch, Poly, Sym, evaluate, symbols
from tritongen.ir.algebra import walk as walk_poly
from tritongen.ir.binding import operand_dtype, type_arguments
from tritongen.ir.free import binders_of
from tritongen.ir.interp import count_points
from tritongen.ir.known import facts_of
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Constant,
    Define,
    IndexValue,
    Op,
    Read,
    Reduce,
    Require,
    Scalar,
    Tensor,
    walk,
)
from tritongen.proof.values import LAYOUTS, MODES, Filling, fill_tensor
from tritongen.runtime.precision import PRECISIONS

# 0, 1, primes, powers of two and their neighbours; small ones more often.
SIZES = (0, 1, 1, 2, 3, 3, 4, 5, 7, 8, 9, 13, 16, 17, 23, 31, 32, 33, 61, 64, 65, 127, 128, 130)
# Multiples of 8 and dense operands: what kernels that load whole vectors or tiles ask for.
ALIGNED = (8, 8, 16, 16, 24, 32, 40, 72)
FEW_ALIGNED = (2, 8, 8, 8, 16)  # for operands of many dims
LONG, SHORT = (17, 32, 33, 40, 48), (1, 2, 3, 8)  # where some sizes are to be long
# On a GPU, where kernels have configs of their own: several steps of a loop, and a part of one.
WIDE = (40, 48, 72, 80, 96, 112, 200)
FAR = (2**31 - 1, 2**31 - 9, 2**31, 2**33)  # what a constant may say for no end
FULL_BATCHES = ((), (1,), (3,), (2, 3), (7,), (2, 1, 3), (17,), (33,))
BATCHES = (*FULL_BATCHES, (0,), (2, 0, 3))
# The interpreter runs a program in milliseconds: few programs (elements), and few turns of loops.
MOST_POINTS = {"cpu": 8_000, "cuda": 400_000}
MOST_ELEMENTS = {"cpu": 400, "cuda": 60_000}
_HOLDS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass(frozen=True, slots=True)
class Case:
    """One call: `sizes` are the free ones and the integer constants, `numbers` what is passed beside tensors."""

    dtypes: dict[str, str]
    sizes: dict[str, int]
    numbers: dict[str, Any]
    batches: dict[str, tuple[int, ...]] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    values: str = "normal"
    seed: int = 0
    precision: str = "tf32x3"  # precision of f32 products, whatever spec and switches say


class NoCase(Exception):
    """No sizes were found that satisfy the facts."""


def draw_case(
    op: Op,
    random: Random,
    dtypes: Mapping[str, str] | None = None,
    device: str = "cpu",
    share: float = 1.0,
    long: Collection[str] = (),
) -> Case:
    """A call that the op's facts allow, of at most this share of the work; NoCase where none was found.

    `long`: sizes of several blocks; all others are then short.
    """
    aligned = random.random() < 0.25
    for _ in range(1000):
        sizes = _satisfy(op, _draw_sizes(op, random, aligned, long, device), random)
        if sizes is None:
            continue
        batches = _draw_batches(op, random)
        if _fits(op, sizes, batches, device, share):
            break
    else:
        raise NoCase(f"{op.name}: no sizes found that satisfy its facts")
    return Case(
        dtypes=dict(dtypes) if dtypes else _draw_dtypes(op, random, device),
        sizes=sizes,
        numbers=_draw_numbers(op, sizes, random),
        batches=batches,
        layouts={t.name: random.choice(LAYOUTS[1:3] if aligned else LAYOUTS) for t in op.tensors},
        values=random.choice(MODES),
        seed=random.randrange(1 << 16),
        precision=random.choice(PRECISIONS),
    )


def strategy(op: Op):
    """The cases of an op, as a Hypothesis strategy; it shrinks."""
    from hypothesis import assume
    from hypothesis import strategies as st

    def drawn(random: Random) -> Case:
        try:
            return draw_case(op, random)
        except NoCase:
            assume(False)
            raise

    return st.randoms(use_true_random=False).map(drawn)


def dtype_choices(op: Op, device: str) -> tuple[dict[str, str], ...]:
    """Type parameters alike where they can be, one choice per dtype; then mixed."""
    skipped = {"bf16"} if device == "cpu" else set()  # the interpreter computes bf16 on raw bits
    accepted = {p.name: [d for d in p.dtypes if d not in skipped] for p in op.typarams}
    if any(not choices for choices in accepted.values()):
        return ()
    widest = sorted({d for ds in accepted.values() for d in ds}, key=_PREFERENCE.index)
    alike = [
        {name: d if d in ds else ds[k % len(ds)] for name, ds in accepted.items()}
        for k, d in enumerate(widest)
    ] or [{}]
    mixed = [
        {name: ds[(k + turn) % len(ds)] for turn, (name, ds) in enumerate(accepted.items())}
        for k in range(len(widest))
        if len(accepted) > 1
    ]
    return tuple(alike + mixed)


_PREFERENCE = (
    "f32",
    "bf16",
    "f16",
    "f64",
    "i64",
    "i32",
    "i16",
    "i8",
    "u8",
    "bool",
    "f8e4m3",
    "f8e5m2",
)


# ---- sizes --------------------------------------------------------------------------------------
def free_sizes(op: Op) -> tuple[str, ...]:
    """The sizes that operands bind."""
    settled = {d.name for d in op.defines} | {c.name for c in op.constants} | {BATCH}
    found = {name: None for t in op.tensors for d in t.dims for name in sorted(symbols(d))}
    return tuple(n for n in found if n not in settled)


def only_ends(op: Op) -> set[str]:
    """The constants that say which terms a reducer has and nothing else, as `i - w < j`: they may be any number."""
    reducers = [e for n in op.nests for e in walk(n.body) if isinstance(e, Reduce)]
    ends = {s for e in reducers for g in e.guards for s in symbols(g.poly)}
    own = (*(t.dims for t in (*op.tensors, *op.outputs)), *(n.dims for n in op.nests))
    others = {s for dims in own for d in dims for s in symbols(d)}
    others |= {s for n in op.nests for b in (*n.box, *binders_of(n)) for s in symbols(b.hi)}
    for f in op.facts:
        others |= set().union(
            *map(symbols, (f.value,) if isinstance(f, Define) else (f.left, f.right))
        )
    for n in op.nests:
        for e in walk(n.body):
            if isinstance(e, (IndexValue, Read)):
                polys = (e.poly,) if isinstance(e, IndexValue) else e.coords
                others |= {s for p in polys for s in symbols(p)}
    return ends & {c.name for c in op.constants if c.dtype == "int"} - others


def _draw_sizes(
    op: Op, random: Random, aligned: bool, long: Collection[str] = (), device: str = "cpu"
) -> dict[str, int]:
    names = free_sizes(op)
    pool: tuple[int, ...] = SIZES if len(names) <= 3 else SIZES[:14]
    if aligned:
        pool = ALIGNED if len(names) <= 3 else FEW_ALIGNED
    if random.random() < 0.85:  # an empty operand leaves little to see
        pool = tuple(n for n in pool if n)
    sizes = {n: random.choice(pool) for n in names}
    if long:
        sizes = {n: random.choice(LONG if n in long else SHORT) for n in names}
    elif device == "cuda" and names and random.random() < 0.2:
        sizes[random.choice(names)] = random.choice(WIDE)
    for c in op.constants:
        if c.dtype == "int":
            small = random.choice((1, 1, 2, 2, 3, 0))
            plain = c.default is not None and random.random() < 0.5
            sizes[c.name] = int(c.default) if plain and c.default is not None else small
            if c.name in only_ends(op) and copy(random).random() < 0.15:
                sizes[c.name] = random.choice(FAR)
    return _equated(op, sizes)


def _equated(op: Op, sizes: dict[str, int]) -> dict[str, int]:
    """With the sizes that others are equal to by the facts, which random ones would hardly meet: K == 128 * G."""
    found = dict(sizes)
    for name, value in facts_of(op).equal.items():
        if name in sizes and symbols(value) <= sizes.keys():
            try:
                number = evaluate(value, sizes)
            except ZeroDivisionError:
                continue
            if number >= 0 and number == int(number):
                found[name] = int(number)
    return found


def satisfying(op: Op, size: int, random: Random) -> dict[str, int]:
    """Every size at one value, and constants at their defaults, as far as the facts allow."""
    sizes = dict.fromkeys(free_sizes(op), size)
    sizes |= {
        c.name: 1 if c.default is None else int(c.default) for c in op.constants if c.dtype == "int"
    }
    sizes = _equated(op, sizes)
    for _ in range(20):
        found = _satisfy(op, sizes, random)
        if found is not None:
            return found
    raise NoCase(f"{op.name}: no sizes found that satisfy its facts")


def _satisfy(op: Op, sizes: dict[str, int], random: Random) -> dict[str, int] | None:
    """The sizes changed until every fact holds; None where that did not work out."""
    for _ in range(60):
        broken = _first_broken(op, sizes)
        if broken is None:
            return sizes
        name = random.choice(sorted(broken))
        sizes = {**sizes, name: solved(op, sizes, name) or random.choice((1, 2, 3, 4, 6, 8))}
    return None


def solved(op: Op, sizes: dict[str, int], name: str) -> int | None:
    """The size that an equation `name == ...` asks for."""
    for fact in op.requires:
        for alone, other in ((fact.left, fact.right), (fact.right, fact.left)):
            if fact.op == "==" and _is_symbol(alone, name) and name not in symbols(other):
                try:
                    return int(evaluate(other, sizes))
                except KeyError:  # it uses a size that the op defines
                    pass
                try:
                    return int(evaluate(other, all_sizes(op, sizes)))
                except (KeyError, ZeroDivisionError):
                    return None
    return None


def _is_symbol(p: Poly, name: str) -> bool:
    return len(p.terms) == 1 and p.terms[0] == (((Sym(name), 1),), 1)


def _first_broken(op: Op, sizes: dict[str, int]) -> set[str] | None:
    """The free sizes and constants in the first fact that does not hold."""
    known = dict(sizes)
    origins = {n: {n} for n in sizes}

    def free(p: Poly) -> set[str]:
        return set().union(*(origins.get(n, set()) for n in symbols(p)))

    for fact in op.facts:
        try:
            match fact:
                case Define(name, value):
                    number = evaluate(value, known)
                    known[name] = int(number)
                    origins[name] = free(value)
                    if number < 0 or number.denominator != 1:
                        return free(value)
                case Require(left, relation, right):
                    if BATCH in symbols(left) | symbols(right):
                        continue
                    if not _HOLDS[relation](evaluate(left, known), evaluate(right, known)):
                        return free(left) | free(right)
        except ZeroDivisionError:
            polys = (fact.value,) if isinstance(fact, Define) else (fact.left, fact.right)
            return set().union(*map(free, polys))
    for t in (*op.tensors, *op.outputs):
        for d in t.dims:
            if d != BATCH_SIZE and (n := evaluate(d, known)) != int(n) or d != BATCH_SIZE and n < 0:
                return free(d)
    return None


def all_sizes(op: Op, sizes: Mapping[str, int]) -> dict[str, int]:
    """The free sizes with those that the op defines."""
    known = dict(sizes)
    for d in op.defines:
        known[d.name] = int(evaluate(d.value, known))
    return known


def _fits(
    op: Op,
    sizes: dict[str, int],
    batches: Mapping[str, tuple[int, ...]],
    device: str,
    share: float,
) -> bool:
    filled = {t for f in op.facts if isinstance(f, Require) for t in f.batch}
    if any(0 in batches[t] for t in filled):
        return False
    known = known_sizes(op, sizes, batches)
    kept = max(math.prod(int(evaluate(b.hi - b.lo, known)) for b in n.box) for n in op.nests)
    if kept > share * MOST_ELEMENTS[device]:
        return False
    return has_few_points(op, known, device, share)


def known_sizes(
    op: Op, sizes: Mapping[str, int], batches: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """Every size of a call, that of the batch dims among them."""
    batch = math.prod(torch.broadcast_shapes(*batches.values())) if batches else 1
    return {**all_sizes(op, dict(sizes)), BATCH: batch}


def has_few_points(op: Op, known: Mapping[str, int], device: str, share: float) -> bool:
    """Whether a call is within this share of the points that a proof gives to one."""
    return count_points(op, dict(known)) <= share * MOST_POINTS[device]


# ---- numbers, batch shapes, dtypes --------------------------------------------------------------
def _draw_numbers(op: Op, sizes: dict[str, int], random: Random) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    params: tuple[Constant | Scalar, ...] = (*op.constants, *op.scalars)
    for p in params:
        if isinstance(p, Constant) and p.dtype == "int":
            numbers[p.name] = sizes[p.name]
        elif "bool" in p.dtype:
            numbers[p.name] = random.random() < 0.5
        elif p.dtype[0] in "iu":
            numbers[p.name] = random.choice((0, 1, 2, 3, 7))
        else:
            drawn = (0.5, 1.0, 0.125, 2.0)
            plain = p.default if p.default is not None else random.choice(drawn)
            chosen = plain if random.random() < 0.7 else random.choice(drawn)
            # Held to what the declared dtype keeps: how a number travels is not under test.
            numbers[p.name] = float(torch.tensor(chosen, dtype=torch.float32))
    return numbers


def _draw_batches(op: Op, random: Random) -> dict[str, tuple[int, ...]]:
    """The batch dims of each operand: some shape, with dims left out or 1 where others have them."""
    whole: tuple[int, ...] = random.choice(BATCHES if random.random() < 0.2 else FULL_BATCHES)
    batches: dict[str, tuple[int, ...]] = {}
    several = sum(BATCH_SIZE in t.dims for t in op.tensors) > 1
    for t in op.tensors:
        if BATCH_SIZE not in t.dims:
            continue
        shape: tuple[int, ...] = whole
        if several and random.random() < 0.4:
            shape = tuple(1 if random.random() < 0.4 else n for n in shape)
            shape = shape[random.randrange(len(shape) + 1) :]
        batches[t.name] = shape
    return batches


def _draw_dtypes(op: Op, random: Random, device: str) -> dict[str, str]:
    choices = dtype_choices(op, device)
    if not choices:
        raise NoCase(f"{op.name}: none of its dtypes runs on {device}")
    return random.choice(choices)


# ---- arguments ----------------------------------------------------------------------------------
def arguments(op: Op, case: Case, device: str) -> dict[str, Any]:
    """The call itself: tensors filled and laid out as the case says."""
    known = all_sizes(op, case.sizes)
    coordinates = coordinate_operands(op)
    args: dict[str, Any] = {}
    for k, t in enumerate(op.tensors):
        filling = Filling(case.values, case.seed * 31 + k, t.name in coordinates, _extents(known))
        dtype = operand_dtype(t.dtype, case.dtypes)
        shape = shape_of(t, known, case.batches)
        args[t.name] = fill_tensor(shape, dtype, case.layouts[t.name], filling, device)
    return args | case.numbers | type_arguments(op, case.dtypes)


def shape_of(
    t: Tensor, known: Mapping[str, int], batches: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    parts = [batches[t.name] if d == BATCH_SIZE else (int(evaluate(d, known)),) for d in t.dims]
    return tuple(n for part in parts for n in part)


def _extents(known: Mapping[str, int]) -> int:
    return min((n for n in known.values() if n > 0), default=1)


def coordinate_operands(op: Op) -> set[str]:
    """Integer operands whose values are used as coordinates."""
    return {a.tensor for p in _polys(op) for a in walk_poly(p) if isinstance(a, Fetch)}


def _polys(op: Op) -> Iterator[Poly]:
    for nest in op.nests:
        yield from nest.coords
        for node in walk(nest.body):
            match node:
                case Read(coords=coords):
                    yield from coords
                case IndexValue(p):
                    yield p
                case Reduce(guards=guards):
                    yield from (g.poly for g in guards)


# ---- shrinking ----------------------------------------------------------------------------------
def simpler(op: Op, case: Case) -> Iterator[Case]:
    """Calls that differ from this one in one respect and are easier to read; most telling first."""
    for name, layout in case.layouts.items():
        if layout != "contiguous":
            yield replace(case, layouts={**case.layouts, name: "contiguous"})
    if case.values not in ("normal", "integers"):
        yield replace(case, values="normal")
    if case.values == "normal":
        yield replace(case, values="integers")
    for name, n in case.sizes.items():
        for smaller in sorted({0, 1, 2, n // 2, n - 1}):
            if smaller < n:
                sizes = {**case.sizes, name: smaller}
                if _holds(op, sizes):
                    numbers = {k: sizes.get(k, v) for k, v in case.numbers.items()}
                    yield replace(case, sizes=sizes, numbers=numbers)
    if any(len(b) > 1 for b in case.batches.values()):
        yield replace(case, batches={k: b[-1:] for k, b in case.batches.items()})
    if any(math.prod(b) > 2 for b in case.batches.values()):
        yield replace(case, batches={k: (2,) * bool(b) for k, b in case.batches.items()})


def _holds(op: Op, sizes: dict[str, int]) -> bool:
    return _first_broken(op, sizes) is None


__all__ = [
    "Case",
    "NoCase",
    "all_sizes",
    "arguments",
    "draw_case",
    "dtype_choices",
    "free_sizes",
    "simpler",
    "strategy",
]
