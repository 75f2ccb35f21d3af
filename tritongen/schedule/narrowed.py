"""An op of any float type, as an op of half types and one of the others, where the first has better kernels.

    op f<T: float>(...)    as    f<T: f16 | bf16>(...) and f<T: f64 | f32>(...)

Products whose values are never stored (`classes/chains.py`) are those of half types: tensor cores add them up in f32.
The halves come first; a call takes the first plan that has its dtypes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from tritongen.ir import nodes as ir
from tritongen.ir.batches import own_batches
from tritongen.ir.bounds import facts_of
from tritongen.ir.dtypes import HALVES
from tritongen.ir.free import folds_of, free_indices
from tritongen.schedule import passed
from tritongen.schedule.aside import names_of
from tritongen.schedule.canonical import canonical
from tritongen.schedule.classes.chains import pairs, with_copies
from tritongen.schedule.classes.picked import with_picked
from tritongen.schedule.classes.weighted import with_weighted
from tritongen.schedule.digits import split_all
from tritongen.schedule.factored import factors_of


def narrowed(op: ir.Op) -> tuple[ir.Op, ...]:
    """The op, or in its place the op of half types and that of the other dtypes of one type parameter."""
    sums = [e for n in op.nests for e in folds_of(n.body)]
    if sum(len(e.binders) for e in sums) < 2 or not any(map(_multiplies, sums)):
        return (op,)
    for p in op.typarams:
        halves = tuple(d for d in p.dtypes if d in HALVES)
        rest = tuple(d for d in p.dtypes if d not in HALVES)
        if p.kind == "float" and halves and rest and _has_pairs(half := _with(op, p, halves)):
            return half, _with(op, p, rest)
    return (op,)


def _multiplies(e: ir.Reduce) -> bool:
    """Whether it may have a product of matrices: a sum of factors, two of which have an index each that the other has not."""
    used = [free_indices(f) for f in factors_of(e.body)] if e.op == "sum" else []
    return any(a - b and b - a for a, b in combinations(used, 2))


def kind_of(p: ir.TypeParam) -> str:
    """What a type parameter is called in names of functions."""
    return "half" if set(p.dtypes) <= set(HALVES) else p.kind


def _with(op: ir.Op, p: ir.TypeParam, dtypes: tuple[str, ...]) -> ir.Op:
    own = replace(p, dtypes=dtypes, default=p.default if p.default in dtypes else None)
    return replace(op, typarams=tuple(own if q is p else q for q in op.typarams))


def _has_pairs(op: ir.Op) -> bool:
    inner = passed(own_batches(op)[0])
    facts = facts_of(inner)
    nests = canonical(inner, facts)
    digits = split_all(nests, facts, names_of(inner))
    changed = (change(inner, nests, facts) for change in (with_picked, with_weighted, with_copies))
    return any(pairs(inner, form, facts) for form in (nests, digits, *changed))
