"""Motifs of two dims of one size that one index reads: `x[n, i, i]`, of operands and of lines, under every kind of line."""

from __future__ import annotations

from tritongen.proof.fuzz.expressions import read
from tritongen.proof.fuzz.motifs import FOLDS, lefts
from tritongen.proof.fuzz.sketch import Known, Sketch


def diagonal(s: Sketch) -> None:
    i, j, k, n = s.indices(4)
    size, other = s.sizes_apart(2)
    kept = s.weighted({(): 3, (("...", "..."),): 2, ((n, other),): 3})
    square = {**dict(kept), i: size, j: size}
    order = list(square)
    if "..." not in square and s.maybe(0.3):
        s.random.shuffle(order)
    x = s.tensor(tuple(square[c] for c in order), reuse=0.4)
    if s.maybe(0.5):
        text = _line(s, x, order, square, k)
        x = s.add("diagonal", lefts({c: square[c] for c in order}), text)
        s.read.add(x.name)
    row = {**dict(kept), i: size}
    at, term = (_at(x, order, {i: c, j: c}) for c in (i, k))
    # Windows along both dims.
    slid, turned = _at(x, order, {j: f"{j} + {k} - 1"}), _at(x, order, {i: f"{j} + {k} - 1", j: i})
    whole = {"row": row, "square": square, "column": {**dict(kept), j: size}, "kept": dict(kept)}
    form, env = s.weighted(
        {
            ("abs({at})", "row"): 3,
            ("{at} * {row}", "row"): 3,
            ("{at} * {one}", "square"): 2,
            ("{at} * {square}", "square"): 2,
            ("where({at} > 0, {square}, 0)", "square"): 2,
            ("{at} / (1 + sum[{k}](square({term})))", "row"): 2,
            ("sum[{k}]({term} * {column})", "column"): 2,
            ("{fold}[{k}]({term})", "kept"): 2,
            ("sum[{k} <= {i}]({term})", "row"): 2,
            ("{fold}[{k} < 3](({slid} else 0) * ({turned} else 0))", "square"): 2,
            ("{fold}[{k} < 2](({slid} else 0) - ({turned} else 0))", "square"): 1,
        }
    )
    others = {
        "row": row,
        "one": {i: size},
        "square": square,
        "column": {**dict(kept), k: size, j: size},
    }
    drawn = {name: read(s, own, whole=1.0) for name, own in others.items() if f"{{{name}}}" in form}
    own = {"at": at, "term": term, "slid": slid, "turned": turned}
    text = form.format(**own, i=i, k=k, fold=s.weighted(FOLDS), **drawn)
    s.add("diagonal", lefts(whole[env]), text)


def _line(s: Sketch, x: Known, order: list[str], square: dict[str, str], k: str) -> str:
    """A line over the whole square: pointwise, of rows, a product, a scan."""
    *_, i, j = square
    at, term, other = (_at(x, order, moved) for moved in ({}, {j: k}, {i: j, j: k}))
    form = s.weighted(
        {
            "{at} * {square}": 2,
            "exp({at}) - {one}": 1,
            "{at} / (1 + sum[{k}](square({term})))": 2,
            "sum[{k}]({term} * {other})": 2,
            "sum[{k} <= {j}]({term})": 1,
        }
    )
    over = {"square": square, "one": {i: square[i]}}
    drawn = {name: read(s, own, whole=1.0) for name, own in over.items() if f"{{{name}}}" in form}
    return form.format(at=at, term=term, other=other, j=j, k=k, **drawn)


def _at(x: Known, order: list[str], moved: dict[str, str]) -> str:
    return f"{x.name}[{', '.join(moved.get(c, c) for c in order)}]"
