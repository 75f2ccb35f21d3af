"""Tests elements that no output depends on: whatever they hold, the gradient must be the same.

    problem(op, back, args, dys, random)    # "dq: another number where k[3, 0] is excluded and holds inf"

An element is excluded if NaN in it leaves the outputs the same, bit by bit. Examples are a branch that is not taken, and a
term outside of bounds. The test then puts 1000, 1e20, an infinity and NaN there. No gradient may change.

It runs in f64, by the interpreter of the IR. It skips calls in which a line or a sum has no element: there a window's gradient
multiplies what it reads outside of `dy`, which is 0, with everything else. It puts finite numbers only where a
gradient's product has a factor that is masked over rows and columns (`masks_rows_and_columns`). There a row that the whole mask
excludes is multiplied by zeros, as in autograd. To skip that row, each such product would have to read its mask once more.

Not here: gradients of included elements (`gradients.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, isfinite, nan
from random import Random
from typing import Any

import torch

from tritongen.ir.algebra import indices, is_size
from tritongen.ir.binding import bind
from tritongen.ir.free import all_binders, free_indices
from tritongen.ir.interp import run
from tritongen.ir.nodes import Call, Expr, Op, Read, Reduce, walk
from tritongen.schedule.factored import factors_of

TRIED = 6  # elements of an operand
HELD = (1000.0, -1000.0, 1e20, inf, -inf, nan)
FINITE = tuple(filter(isfinite, HELD))
LARGE = 2.0**40  # of f64's 53 bits, 13 are left for what lies between 1 and 2


def problem(
    op: Op, back: Op, args: Mapping[str, Any], dys: Mapping[str, Any], random: Random
) -> str:
    """How what is excluded shows in a gradient; empty where it does not. `dys`: by name, `dy`."""
    bound = bind(op, args)
    ranges = (b for b in all_binders(*op.nests) if is_size(b.lo) and is_size(b.hi))
    if not all(bound.size(b.lo) < bound.size(b.hi) for b in ranges):
        return ""
    outputs = run(op, args)
    params = [p.name for p in back.params]
    # A large output hides what is added to it, and an infinite one all of it: no gradient comes from there.
    floats = {name: y for name, y in outputs.items() if y.is_floating_point()}
    small = {f"d{name}": y.abs() < LARGE for name, y in floats.items()}
    dys = {name: dy.where(small[name], 0) if name in small else dy for name, dy in dys.items()}

    def gradients(given: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        known = {**given, **outputs, **dys}
        return run(back, {name: known[name] for name in params})

    held = FINITE if masks_rows_and_columns(back) else HELD
    right: dict[str, torch.Tensor] | None = None
    for name, x in args.items():
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.numel():
            continue
        for _ in range(min(TRIED, x.numel())):
            at = tuple(random.randrange(n) for n in x.shape)
            if not _same(run(op, {**args, name: _with(x, at, nan)}), outputs):
                continue
            for value in dict.fromkeys((held[-1], random.choice(held))):
                other = {**args, name: _with(x, at, value)}
                if not _same(run(op, other), outputs):
                    break
                right = gradients(args) if right is None else right
                for grad, found in gradients(other).items():
                    if not torch.allclose(found, right[grad], 1e-6, 1e-9, equal_nan=True):
                        return f"{grad}: another number where {name}{list(at)} is excluded and holds {value}"
    return ""


def masks_rows_and_columns(back: Op) -> bool:
    """Whether a sum of products has a factor that is masked by an index which another factor does not have.

    dv[j, e] = sum[i](where(mask[i, j], dp[i, j], 0) * p[i, e])
    """
    lines: dict[str, tuple[int, ...]] = {}
    for nest in back.nests:
        used = set[str]().union(*_masks(nest.body))
        lines[nest.name] = tuple(d for d, c in enumerate(nest.coords) if indices(c) & used)
    sums = (e for nest in back.nests for e in walk(nest.body) if isinstance(e, Reduce))
    return any(_crossed(e, lines) for e in sums if e.op == "sum")


def _masks(e: Expr) -> Iterator[frozenset[str]]:
    """The indices of each condition of a `where`."""
    for node in walk(e):
        if isinstance(node, Call) and node.fn == "where":
            yield frozenset(free_indices(node.args[0]))


def _crossed(total: Reduce, lines: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a mask over summed indices has an index that a factor lacks. `lines`: by line, the dims that its own mask depends on."""
    asked = list(_masks(total.body))
    for e in walk(total.body):
        if isinstance(e, Read):
            dims = lines.get(e.tensor, ())
            asked.append(frozenset[str]().union(*(indices(e.coords[d]) for d in dims)))
    summed = {b.index for b in total.binders}
    own = [free_indices(f) for f in factors_of(total.body)]
    return any(a & summed and used and not a <= used for a in asked for used in own)


def _with(x: torch.Tensor, at: tuple[int, ...], value: float) -> torch.Tensor:
    changed = x.clone()
    changed[at] = value
    return changed


def _same(found: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether outputs are the same, and numbers."""
    return all(torch.equal(found[name], y) for name, y in outputs.items())
