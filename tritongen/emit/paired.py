"""Paired folds in Triton text: a state a row, how a block of the row enters it, how parts merge, what it says.

One row a kind of `schedule/paired.py`. Input: a `Pair` and the `Body` it is printed in.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.emit.body import Body
from tritongen.emit.fold_lines import term
from tritongen.emit.tiles import needs, tile_values
from tritongen.ir import nodes as ir
from tritongen.ir.functions import ATOM
from tritongen.schedule.canonical import tensors_read
from tritongen.schedule.paired import state_of
from tritongen.schedule.plan import Pair


@dataclass(frozen=True, slots=True)
class PairText:
    """starts: of each variable of the state; `end` turns the second fold's state into its value."""

    starts: tuple[str, ...]
    take: str
    merge: str
    end: str


PAIRS = {
    "max_sumexp": PairText(
        ('float("-inf")', "0.0"),
        "lib.take_sumexp({state}, {x}{half})",
        "lib.merge_sumexp({parts})",
        "lib.shift_sumexp({state}, {shift}, {cols})",
    ),
    "moments": PairText(
        ("0.0", "0.0", "0.0"),
        "lib.take_moments({state}, {x}, {inside}, {count})",
        "lib.merge_moments({parts})",
        "",
    ),
}


def start(body: Body, pair: Pair, shape: str = "(ROWS, 1)") -> tuple[tuple[str, ...], list[str]]:
    """The variables of the state, and the lines that start them."""
    text = PAIRS[pair.kind]
    wishes = (pair.first, pair.second, f"{pair.second}_count")[: len(text.starts)]
    names = tuple(
        body.fresh(w) if w in body.assigned or w not in (pair.first, pair.second) else w
        for w in wishes
    )
    body.assigned |= set(names)
    dtype = body.dtype("compute")
    lines = [
        f"{name} = tl.full({shape}, {value}, {dtype})"
        for name, value in zip(names, text.starts, strict=False)
    ]
    return names, lines


def next_term(body: Body, pair: Pair, var: dict[str, str], served: bool) -> str:
    """The name of a block of the row, as the first fold takes it."""
    first = next(n for n in body.kernel.nests if n.name == pair.first)
    tile_values(body, needs(body, first.fold.body) - set(body.values))
    x = term(body, first, var, served)[0]
    return x if x.isidentifier() else body.assign(body.fresh("t"), x)


def take(body: Body, pair: Pair, names: tuple[str, ...], var: dict[str, str], served: bool) -> None:
    """One more block of the row taken into the state."""
    x = next_term(body, pair, var, served)
    count = f"tl.minimum({var['end']} - {var['start']}, BLOCK)"
    given = {"x": x, "inside": var["inside"], "count": count, "state": ", ".join(names)}
    given["half"] = f", {body.half(pair.stored)}" if pair.stored else ""
    body.line(f"{', '.join(names)} = {PAIRS[pair.kind].take.format(**given)}")


def merge(body: Body, pair: Pair, parts: list[str]) -> tuple[str, ...]:
    """What the parts of a row left, as its two folds."""
    names = pair.first, pair.second
    out = PAIRS[pair.kind].merge.format(parts=", ".join(parts))
    body.line(f"{', '.join(names)} = {out}")
    body.assigned |= set(names)
    return names


def end(body: Body, pair: Pair, names: tuple[str, ...], var: dict[str, str]) -> None:
    """The state as the values of the two folds."""
    body.values[pair.first] = (names[0], ATOM)
    text = PAIRS[pair.kind].end
    if text and pair.shift is not None:
        for nest in body.kernel.nests:  # what the shift is computed from
            if nest.name in row_needs(body, pair.shift) - set(body.values):
                body.value(nest)
        shift = body.expr(pair.shift)[0]
        count = f"{var['col_turns']} * {var['cols']}" if var["col_outer"] else var["cols"]
        given = {"state": ", ".join(names[:2]), "shift": shift, "cols": count}
        body.line(f"{names[1]} = {text.format(**given)}")
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
    return tuple(zip(state_of(pair), PAIRS[pair.kind].starts, strict=False))
