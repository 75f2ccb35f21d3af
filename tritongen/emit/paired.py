"""Paired folds in Triton text: a state a row, how a block of the row enters it, how parts merge, what it says.

One row a kind of `schedule/paired.py`. Input: a `Pair` and the `Body` it is printed in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import term
from tritongen.emit.tiles import needs, tile_values
from tritongen.ir import nodes as ir
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import tensors_read
from tritongen.schedule.paired import state_of
from tritongen.schedule.plan import Pair

HELPERS = {
    "_rescale": '''
@triton.jit
def _rescale(m, new):
    """exp(m - new), and 1 where both are the same infinity."""
    return tl.where(m == new, 1.0, libdevice.exp(m - new))
''',
    "_take_sumexp": '''
@triton.jit
def _take_sumexp(m, s, x, HALF: tl.constexpr = False):
    """The maximum m of a row and the sum s of exp(x - m), with one more block x of it."""
    new = _nan_max(m, tl.reduce(x, 1, _nan_max, keep_dims=True))
    shift = tl.where(tl.abs(new) == float("inf"), 0.0, new)
    return new, s * _rescale(m, new) + tl.sum(_exp(x - shift, HALF), 1, keep_dims=True)
''',
    "_merge_sumexp": '''
@triton.jit
def _merge_sumexp(ms, ss):
    """The maximum and the sum of exp(x - maximum) of rows, from those of their parts."""
    m = tl.reduce(ms, 1, _nan_max, keep_dims=True)
    return m, tl.sum(ss * _rescale(ms, m), 1, keep_dims=True)
''',
    "_shift_sumexp": '''
@triton.jit
def _shift_sumexp(m, s, shift, count):
    """The sum of exp(x - shift), from that of exp(x - m): NaN where both are the same infinity, 0 of no x."""
    return tl.where(count > 0, s * libdevice.exp(m - shift), 0.0)
''',
    "_add_moments": '''
@triton.jit
def _add_moments(mean, squares, n, x, inside):
    """The mean of n values and the sum of (x - mean)**2, lane by lane, with one more x where inside (Welford)."""
    n += tl.where(inside, 1.0, 0.0)
    apart = tl.where(inside, x - mean, 0.0)
    mean += apart * (1.0 / tl.where(n > 0, n, 1.0))
    return mean, squares + apart * (x - mean), n
''',
    "_merge_moments": '''
@triton.jit
def _merge_moments(totals, squares, counts):
    """The sum, the sum of (x - mean)**2 and the count of rows, from those of their lanes or parts (Chan et al.)."""
    total = tl.sum(totals, 1, keep_dims=True)
    n = tl.sum(counts, 1, keep_dims=True)
    apart = totals / tl.where(counts > 0, counts, 1.0) - total / tl.where(n > 0, n, 1.0)
    return total, tl.sum(squares + apart * (apart * counts), 1, keep_dims=True), n
''',
}
HELPERS = {name: source.strip() + "\n" for name, source in HELPERS.items()}


@dataclass(frozen=True, slots=True)
class PairText:
    """A state in a walk: of which shape, how it starts, takes a block and is joined to one a row; how parts merge.

    `end` turns the second fold's state into its value.
    """

    starts: tuple[str, ...]
    shapes: tuple[str, ...]
    take: str
    join: str
    merge: str
    end: str


PAIRS = {
    "max_sumexp": PairText(
        ('float("-inf")', "0.0"),
        ("({rows}, 1)", "({rows}, 1)"),
        "_take_sumexp({state}, {x}{half})",
        "",
        "_merge_sumexp({parts})",
        "_shift_sumexp({state}, {shift}, {cols})",
    ),
    # Lane by lane: two reductions a block cost batch norm channels last 10 points of copy.
    "moments": PairText(
        ("0.0", "0.0", "0.0"),
        ("({rows}, BLOCK)", "({rows}, BLOCK)", "(1, BLOCK)"),
        "_add_moments({state}, {x}, {inside})",
        "_merge_moments({0} * {2}, {1}, {2})",
        "_merge_moments({parts})",
        "",
    ),
}


def call(body: Body, template: str, **given: str) -> str:
    """A call of a helper of the pair, which is then printed above the kernel."""
    own = template.split("(")[0]
    for helper in (*re.findall(r"_nan_max|_rescale|_exp\b", HELPERS[own]), own):
        body.helpers[helper] = None
    return template.format(**given)


def start(body: Body, pair: Pair, rows: str) -> tuple[tuple[str, ...], list[str]]:
    """The variables of the state, and the lines that start them."""
    text = PAIRS[pair.kind]
    wishes = (pair.first, pair.second, f"{pair.second}_count")[: len(text.starts)]
    if text.join:
        wishes = tuple(f"{name}_lanes" for name in wishes)
    names = tuple(
        body.fresh(w) if w in body.assigned or w not in (pair.first, pair.second) else w
        for w in wishes
    )
    body.assigned |= set(names)
    dtype = body.dtype("compute")
    lines = [
        f"{name} = tl.full({shape.format(rows=rows)}, {value}, {dtype})"
        for name, shape, value in zip(names, text.shapes, text.starts)
    ]
    return names, lines


def take(body: Body, pair: Pair, names: tuple[str, ...], var: dict[str, str], served: bool) -> None:
    """One more block of the row taken into the state."""
    first = next(n for n in body.kernel.nests if n.name == pair.first)
    tile_values(body, needs(body, first.body.body) - set(body.values))
    x = term(body, first, var, served)[0]
    if not x.isidentifier():
        x = body.assign(body.fresh("t"), x)
    given = {"x": x, "inside": var["col_mask"], "state": ", ".join(names)}
    given["half"] = f", {body.half(pair.stored)}" if pair.stored else ""
    body.line(f"{', '.join(names)} = {call(body, PAIRS[pair.kind].take, **given)}")


def join(body: Body, pair: Pair, names: tuple[str, ...]) -> tuple[str, ...]:
    """The state of a walk as one a row."""
    text = PAIRS[pair.kind]
    if not text.join:
        return names
    joined = (pair.first, pair.second, body.fresh(f"{pair.second}_count"))[: len(names)]
    helper = text.join.split("(")[0]
    body.helpers[helper] = None
    body.line(f"{', '.join(joined)} = {text.join.format(*names)}")
    body.assigned |= set(joined)
    return joined


def merge(body: Body, pair: Pair, parts: list[str]) -> tuple[str, ...]:
    """What the parts of a row left, as its two folds."""
    names = pair.first, pair.second
    out = call(body, PAIRS[pair.kind].merge, parts=", ".join(parts))
    unused = ", _" * (len(parts) - len(names))
    body.line(f"{', '.join(names)}{unused} = {out}")
    body.assigned |= set(names)
    return names


def end(body: Body, pair: Pair, names: tuple[str, ...], var: dict[str, str]) -> None:
    """The state as the values of the two folds."""
    body.values[pair.first] = (names[0], ATOM)
    text = PAIRS[pair.kind].end
    if text:
        for nest in body.kernel.nests:  # what the shift is computed from
            if nest.name in row_needs(body, pair.shift) - set(body.values):
                body.value(nest)
        shift = body.expr(pair.shift)[0]
        count = f"{var['col_turns']} * {var['cols']}" if var["col_outer"] else var["cols"]
        given = {"state": ", ".join(names[:2]), "shift": shift, "cols": count}
        body.line(f"{names[1]} = {call(body, text, **given)}")
    body.values[pair.second] = (names[1], ATOM)


def row_needs(body: Body, expr: ir.Expr) -> set[str]:
    """The row values that an expression depends on."""
    nests = {n.name: n for n in body.kernel.nests if not isinstance(n.body, ir.Reduce)}
    found: set[str] = set()
    waiting = [expr]
    while waiting:
        for tensor in tensors_read(waiting.pop()):
            if tensor in nests and tensor not in found:
                found.add(tensor)
                waiting.append(nests[tensor].body)
    return found


def states(pair: Pair) -> tuple[tuple[str, str], ...]:
    """(name in scratch, what an absent part left) of each variable of the state."""
    return tuple(zip(state_of(pair), PAIRS[pair.kind].starts))
