"""Reducers over the `...` of some operands, which may have fewer batch dims than the op, in gradients.

A gradient has the batch dims of the whole op, and the caller sums it over those where its operand broadcast. A sum over `...`
of fewer operands, as in `s = sum[...](x[...]); y[...] = t[...] + s`, has fewer terms than that. Each term stands at as many
places of the op as there are places for one term:

    batch = sum[...](1)
    terms = sum[...](x[...] == x[...] or true)
    dx[...] = ds / (batch / terms)

A mean is right over either. A sum of gradients in turn is over all batch dims of the op. Other reducers are refused: this module
returns the reason, or "".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace

from tritongen.autodiff import exprs
from tritongen.autodiff.assemble import cotangent
from tritongen.ir.algebra import Poly, index
from tritongen.ir.batches import batched, mean_of, narrow
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Binder,
    Call,
    Cast,
    Const,
    Expr,
    IndexValue,
    Nest,
    Op,
    Read,
    Reduce,
    Tensor,
    kind_of,
    parts,
    rebuild,
    walk,
    with_parts,
)


def terms_line(op: Op, own: frozenset[str], name: str) -> Nest:
    """How many terms a sum over the `...` of these operands has."""
    counted = _true_over(op, (t for t in batched(op) if t.name in own))
    binders = (Binder(BATCH, Poly(), BATCH_SIZE),)
    total = Reduce("sum", binders, (), Cast(counted, "i64"), "i64")
    return Nest(name, (), (), (), total, "i64")


def _true_over(op: Op, tensors: Iterable[Tensor]) -> Expr:
    """A condition that is always true. It reads these operands only to get their batch dims."""
    found: Expr = Const(True, "bool")
    for t in tensors:
        kind = kind_of(t.dtype, op)
        fill = {"float": 0.0, "int": 0, "bool": False}[kind] if len(t.dims) > 1 else None
        coords = tuple(index(BATCH) if d == BATCH_SIZE else Poly() for d in t.dims)
        read: Expr = Read(t.name, coords, fill, t.dtype)
        read = exprs.cast(read, exprs.COMPUTE) if kind == "float" else read
        found = exprs.call("or", exprs.call("eq", read, read, dtype="bool"), found)
    return found


def as_shares(
    op: Op, expr: Expr, terms: Callable[[frozenset[str]], Expr], varies: Callable[[Expr], bool]
) -> Expr:
    """Each sum over fewer dims that varies, divided by the number of places of the op at which a term of it stands.

    `terms`: the number of terms.
    """
    if mean_of(expr) is not None:
        return expr
    match expr:
        case Reduce("sum") if varies(expr) and (own := narrow(op, expr)):
            places = IndexValue(BATCH_SIZE, expr.dtype)
            return exprs.div(expr, exprs.div(places, exprs.cast(terms(own), expr.dtype)))
    return with_parts(expr, lambda e: as_shares(op, e, terms, varies))


def over_fewer(op: Op, nest: Nest, forward: Set[Expr] | None = None) -> str:
    """For a line that the gradient passes through; `forward`: for one of the gradient, where a sum is wrong, too, but for these."""
    own = _fewer(op, nest.body, forward)
    read = " and ".join(f"`{tensor}`" for tensor in sorted(own))
    reason = f"`{nest.name}` reduces over the `...` of {read} alone, which may be fewer batch dims"
    return reason if own else ""


def sums_over_all(op: Op, back: Op, values: Sequence[Nest]) -> tuple[Nest, ...]:
    """The lines of a gradient. `values` are those of the op.

    A sum of a gradient has terms at all places of the op. If it reads the batch dims of some operands only, its terms read what
    gives all batch dims, too.
    """
    seen, forward = _with_gradients(op, back), _reducers(values)
    own = {nest.name for nest in back.nests} - {value.name for value in values}

    def whole(body: Expr) -> Expr:
        kept = forward | {mean_of(e) for e in walk(body)}

        def change(e: Expr) -> Expr:
            if isinstance(e, Reduce) and e.op == "sum" and e not in kept and narrow(seen, e):
                return replace(e, body=_read_over_all(op, e.body))
            return e

        return rebuild(body, change)

    return tuple(replace(n, body=whole(n.body)) if n.name in own else n for n in back.nests)


def reduces_over_fewer(op: Op, back: Op, values: Sequence[Nest]) -> str:
    """For the lines of a gradient but `values`, and what these reduce; what comes in has all batch dims, as the outputs have."""
    seen, forward = _with_gradients(op, back), _reducers(values)
    own = (nest for nest in back.nests if nest.name not in {value.name for value in values})
    return next(filter(None, (over_fewer(seen, nest, forward) for nest in own)), "")


def _with_gradients(op: Op, back: Op) -> Op:
    """The op with the lines of its gradient: what comes in is an output of it, too."""
    return replace(op, outputs=(*op.outputs, *map(cotangent, op.outputs)), nests=back.nests)


def _reducers(values: Iterable[Nest]) -> set[Expr]:
    return {e for nest in values for e in walk(nest.body) if isinstance(e, Reduce)}


def with_batches_read(op: Op, back: Op) -> tuple[Nest, ...]:
    """The lines of a gradient. One reads what gives all batch dims if no operand of the gradient does."""
    given = {t.name for t in batched(back)}
    every = {t.name for t in batched(op)}
    first = next((o.name for o in back.outputs if BATCH_SIZE in o.dims), "")
    if every <= given or not first or given & {t.name for t in _with_all(op)}:
        return back.nests

    def read(body: Expr) -> Expr:
        if isinstance(body, Cast):
            return replace(body, arg=read(body.arg))
        return _read_over_all(op, body)

    return tuple(replace(n, body=read(n.body)) if n.name == first else n for n in back.nests)


def _with_all(op: Op) -> list[Tensor]:
    """The tensors of a gradient that have all batch dims."""
    incoming = tuple(cotangent(o) for o in op.outputs if kind_of(o.dtype, op) == "float")
    return [t for t in (*incoming, *op.outputs) if BATCH_SIZE in t.dims]


def _read_over_all(op: Op, body: Expr) -> Expr:
    """The value, which also reads what gives all batch dims."""
    there = _true_over(op, _with_all(op)[:1] or batched(op))
    return Call("where", (there, body, exprs.number(0, body.dtype)), body.dtype)


def _fewer(op: Op, expr: Expr, forward: Set[Expr] | None) -> frozenset[str]:
    """The operands over whose batch dims alone a part reduces, other than to a mean."""
    if forward and expr in forward:
        return frozenset()
    mean = mean_of(expr)
    if mean is not None:
        return _fewer(op, mean.body, forward)
    own = narrow(op, expr)
    if own and (forward is not None or not (isinstance(expr, Reduce) and expr.op == "sum")):
        return own
    return frozenset[str]().union(*(_fewer(op, part, forward) for part in parts(expr)))
