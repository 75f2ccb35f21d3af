"""Gradients that batch dims which broadcast would make wrong: they are refused.

Input: an op and what is derived of it. Output: why its gradient would be wrong for some shapes, or "".

A gradient has the batch dims of the whole op, and whoever calls sums it over those where its operand
broadcast. A sum over `...` of fewer operands, as in `s = sum[...](x[...]); y[...] = t[...] + s`, has
fewer terms than that, and the language has no word for how many fewer. A mean is right over either.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.autodiff.assemble import cotangent
from tritongen.ir.batches import batched, mean_of, narrow
from tritongen.ir.nodes import BATCH_SIZE, Expr, Nest, Op, parts


def over_fewer(op: Op, nest: Nest) -> str:
    """For a line that the gradient passes through."""
    own = _fewer(op, nest.body)
    read = " and ".join(f"`{tensor}`" for tensor in sorted(own))
    reason = f"`{nest.name}` reduces over the `...` of {read} alone, which may be fewer batch dims"
    return reason if own else ""


def sums_over_fewer(op: Op, back: Op, values: set[str]) -> str:
    """For the lines of a gradient but `values`; what comes in has all batch dims, as the outputs have."""
    whole = (*op.outputs, *map(cotangent, op.outputs))
    seen = replace(op, outputs=whole, nests=back.nests)
    own = (nest for nest in back.nests if nest.name not in values)
    return next(filter(None, (over_fewer(seen, nest) for nest in own)), "")


def unbound(op: Op, back: Op) -> str:
    """For a gradient whose operands do not give all batch dims."""
    outputs = {p.name for o in op.outputs for p in (o, cotangent(o))}
    given = {t.name for t in batched(back)}
    lost = [t.name for t in batched(op) if t.name not in given]
    if not lost or given & outputs or not any(BATCH_SIZE in o.dims for o in back.outputs):
        return ""
    return f"no operand of it gives the `...` of `{lost[0]}`, which it does not read"


def _fewer(op: Op, expr: Expr) -> frozenset[str]:
    """The operands over whose batch dims alone a part reduces, other than to a mean."""
    mean = mean_of(expr)
    if mean is not None:
        return _fewer(op, mean.body)
    return narrow(op, expr) or frozenset[str]().union(*(_fewer(op, part) for part in parts(expr)))
