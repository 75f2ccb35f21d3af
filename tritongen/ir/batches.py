"""A reducer over `...` ranges over the broadcast of what its body reads, not over that of the whole op.

Input: an op. Output: the op, with such reducers over a flat dim of their own, and what that dim holds.

    m = mean[...](x[...]); y[...] = x[...] * z[...]
    m = sum[own < OWN](x_own[own]) / OWN             Own("x_own", "own", "OWN", x, (x,))

An operand that such a reducer reads is one more operand: the same memory, seen another way. So the planner, printers and
evaluators need no special case. The `...` of a temporary is the broadcast of what it reads in turn; that of an output is the
op's. Earlier stages (`check`, `autodiff`) keep `...`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tritongen.ir.algebra import Poly, index, indices, poly, size, symbols
from tritongen.ir.free import all_indices, needed
from tritongen.ir.names import unlike
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Call,
    Cast,
    Const,
    Define,
    Expr,
    Fact,
    IndexValue,
    Nest,
    Op,
    Reduce,
    Tensor,
    walk,
    with_parts,
)
from tritongen.ir.reads import reads_of
from tritongen.ir.rename import renamed


@dataclass(frozen=True, slots=True)
class Own:
    """An operand whose batch dims, broadcast with those of `operands`, are one dim of `size` elements."""

    name: str
    index: str
    size: str
    tensor: Tensor
    operands: tuple[Tensor, ...]


def batched(op: Op) -> tuple[Tensor, ...]:
    return tuple(t for t in op.tensors if BATCH_SIZE in t.dims)


def spanning(op: Op) -> tuple[Tensor, ...]:
    """The operands whose batch dims, broadcast, are those of the call."""
    operands = batched(op)
    return next(((t,) for t in operands if t.whole), operands)


def broadcasting(op: Op) -> tuple[Tensor, ...]:
    """The operands whose batch dims may be fewer than those of the call."""
    operands = batched(op)
    return tuple(t for t in operands if not t.whole) if len(operands) > 1 else ()


def by_itself(op: Op) -> bool:
    """Whether all outputs have batch dims whose elements know nothing of each other, nor of how many they are."""

    def counts(expr: Expr) -> bool:
        match expr:
            case Reduce(binders=binders):
                return any(b.index == BATCH for b in binders)
            case IndexValue(p):
                return BATCH in symbols(p) | indices(p)
        return False

    apart = not any(counts(e) for n in op.nests for e in walk(n.body))
    return apart and all(BATCH_SIZE in o.dims for o in op.outputs) and bool(batched(op))


def own_batches(op: Op) -> tuple[Op, tuple[Own, ...]]:
    """The op as it is evaluated, nearly always the same op, and its additional operands."""
    if len(batched(op)) < 2 or not any(narrow(op, e) for n in op.nests for e in walk(n.body)):
        return op, ()
    split = _Split(op)
    nests = [nest for own in op.nests for nest in split.apart(own)]
    views = tuple(Tensor(v.name, v.tensor.dtype, _flat(v)) for v in split.views.values())
    # A temporary that only such reducers read is left out.
    used = needed(nests, (o.name for o in op.outputs))
    params = (*op.params, *views)
    facts = tuple(map(split.fact, op.facts))
    return replace(op, params=params, facts=facts, nests=used), tuple(split.views.values())


def read_by(op: Op, expr: Expr) -> frozenset[str]:
    """The operands whose batch dims a value has: those that it reads, by way of temporaries too."""
    every = {t.name for t in batched(op)}
    outputs = {o.name for o in op.outputs}
    nests = {n.name: n for n in op.nests}
    found: set[str] = set()
    waiting, seen = [expr], set[str]()  # a temporary that many lines read is looked at once
    while waiting:
        for tensor, coords, _ in reads_of(waiting.pop()):
            if index(BATCH) not in coords or tensor in seen:
                continue
            seen.add(tensor)
            if tensor in outputs:
                found |= every
            elif tensor in nests:
                waiting.append(nests[tensor].body)
            else:
                found.add(tensor)
    return frozenset(found)


def narrow(op: Op, expr: Expr) -> frozenset[str]:
    """The operands that a reducer over `...` reads, if not all operands with batch dims."""
    if not isinstance(expr, Reduce) or all(b.index != BATCH for b in expr.binders):
        return frozenset()
    found = read_by(op, expr)  # nothing: then only the op says how many there are
    every = batched(op)
    return (
        found
        if len(found) < len(every) and not any(t.whole for t in every if t.name in found)
        else frozenset()
    )


def reduced_alone(op: Op) -> frozenset[str]:
    """The operands over whose batch dims alone a reducer ranges, behind an output that has elements where the batch has none."""
    outputs = {o.name for o in op.outputs if BATCH_SIZE not in o.dims}
    lines = needed(op.nests, outputs - set(op.kept))
    return frozenset[str]().union(*(narrow(op, e) for n in lines for e in walk(n.body)))


def _flat(own: Own) -> tuple[Poly, ...]:
    return tuple(size(own.size) if d == BATCH_SIZE else d for d in own.tensor.dims)


def mean_of(expr: Expr) -> Reduce | None:
    """The sum that the expression divides by its number of terms."""
    match expr:
        case Call("div", (Reduce("sum", binders) as total, count)) if binders:
            pass
        case Call("div", (Cast(Reduce("sum", binders) as total, "compute"), count)) if binders:
            pass
        case _:
            return None
    terms = poly(1)
    for b in binders:
        terms = terms * (b.hi - b.lo)
    match count.arg if isinstance(count, Cast) else count:
        case IndexValue(p) if not total.guards:
            return total if p == terms else None
        case Const(value) if not total.guards:
            return total if value == terms.constant else None
        case Reduce("sum", counted, guards, Const(1)) if counted == binders and guards:
            return total if guards == total.guards[: len(guards)] else None
    return None


class _Split:
    """The pass over one op, and what it adds to the op."""

    def __init__(self, op: Op):
        self.op = op
        self.nests = {n.name: n for n in op.nests}
        self.operands = {t.name: t for t in batched(op)}
        self.taken = {p.name for p in (*op.params, *op.outputs, *op.nests, *op.defines)}
        self.taken |= {p.name for p in op.typarams}
        for dims in (t.dims for ts in (op.tensors, op.outputs, op.nests) for t in ts):
            self.taken |= set().union(*map(symbols, dims))
        self.taken |= all_indices(op.nests)
        self.views: dict[tuple[str, frozenset[str]], Own] = {}
        self.spaces: dict[frozenset[str], tuple[str, str]] = {}  # index and size
        self.copies: dict[tuple[str, frozenset[str]], str] = {}
        self.made: list[Nest] = []

    def apart(self, nest: Nest) -> list[Nest]:
        """The nest, behind the temporaries that its reducers want once more."""
        self.made = []
        body = self.expr(nest.body)
        return [*self.made, replace(nest, body=body)]

    def expr(self, expr: Expr) -> Expr:
        """The expression, with such reducers over the dims of what they read."""
        mean = mean_of(expr)
        if own := narrow(self.op, expr if mean is None else mean):
            return self.over(expr, own)
        return with_parts(expr, self.expr)

    def over(self, piece: Any, own: frozenset[str]) -> Any:
        """An expression or a temporary over the batch dims that `own` broadcast to."""
        if own not in self.spaces:
            self.spaces[own] = self.fresh("own"), self.fresh("OWN")
        name, extent = self.spaces[own]
        body = piece.body if isinstance(piece, Nest) else piece
        names = {BATCH: extent}
        for tensor, coords, _ in reads_of(body):
            if index(BATCH) in coords:
                names[tensor] = self.seen(tensor, own)
        return renamed(piece, names, {BATCH: name})

    def fact(self, fact: Fact) -> Fact:
        """The requirement for the batch dims of some operands, flattened to one dim."""
        if isinstance(fact, Define) or frozenset(fact.batch) not in self.spaces:
            return fact
        _, extent = self.spaces[frozenset(fact.batch)]
        return replace(fact, left=size(extent), batch=())

    def seen(self, tensor: str, own: frozenset[str]) -> str:
        """The name of a tensor that is read over the batch dims of `own`."""
        if tensor in self.operands:
            key = tensor, own
            if key not in self.views:
                operands = tuple(t for t in self.op.tensors if t.name in own)
                name = self.fresh(f"{tensor}_own")
                self.views[key] = Own(name, *self.spaces[own], self.operands[tensor], operands)
            return self.views[key].name
        if (tensor, own) not in self.copies:
            self.copies[tensor, own] = self.fresh(f"{tensor}_own")
            copy = self.over(self.nests[tensor], own)
            self.made.append(replace(copy, name=self.copies[tensor, own]))
        return self.copies[tensor, own]

    def fresh(self, name: str) -> str:
        self.taken.add(name := unlike(name, self.taken))
        return name
