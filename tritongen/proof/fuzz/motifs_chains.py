"""Motifs of chains: a product, folds over its columns, and what reads them: attention, nearest centres, loss heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritongen.proof.fuzz.motifs import lefts
from tritongen.proof.fuzz.sketch import Known, Sketch


@dataclass(frozen=True, slots=True)
class Scores:
    """s[rows, columns] as a line: its batch dims, and how it is read."""

    name: str
    batch: Mapping[str, str]
    row: tuple[str, str]  # an index and its size
    column: tuple[str, str]

    @property
    def kept(self) -> dict[str, str]:
        return {**self.batch, self.row[0]: self.row[1]}

    @property
    def whole(self) -> dict[str, str]:
        return {**self.kept, self.column[0]: self.column[1]}


def _at(name: str, *indices: str) -> str:
    return f"{name}[{', '.join(indices)}]"


def _line(s: Sketch, motif: str, env: Mapping[str, str], body: str) -> str:
    """A line that others read, mostly no output: of a chain that is one kernel, what lies between is not stored."""
    name = s.add(motif, lefts(dict(env)), body).name
    s.read.add(name)
    if s.maybe(0.9):
        s.inside.add(name)
    return name


def _halves(s: Sketch) -> None:
    """Tensor cores take factors of half types: chains of others are cut."""
    if s.maybe(0.8):
        s.typarams["T"] = s.one("f16 | bf16", "f16 | bf16", "f16")


def chain(s: Sketch) -> None:
    """Two products, and between them a row of exponentials, or of any other function."""
    _halves(s)
    b, i, j, e, f, r = s.indices(6)
    heads, rows, columns, width, values, turned = s.sizes_apart(6)
    if s.maybe(0.15):
        columns = rows
    if s.maybe(0.4):
        values = width
    batch = s.weighted({(): 3, ((b, heads),): 4, (("...", "..."),): 3})
    lead, dims = [c for c, _ in batch], [d for _, d in batch]
    kv_lead, kv_dims = lead, dims
    if b in lead and s.maybe(0.6):  # heads in groups, in either notation
        few = s.size(1.0)
        group = s.const(1) if s.maybe(0.5) else f"({heads} // {few})"
        s.require(f"{heads} == {few} * {group}" if group[0] != "(" else f"{heads} % {few} == 0")
        kv_lead, kv_dims = [f"{b} // {group}"], [few]
    elif lead and s.maybe(0.15):
        kv_lead, kv_dims = [], []
    v_lead, v_dims = kv_lead, kv_dims
    if lead and s.maybe(0.2):  # one of keys and values is shared by heads, the other one is not
        v_lead, v_dims = s.random.choice([(lead, dims), ([], [])])
    if (kv_lead, v_lead) == (lead, lead) and s.maybe(0.15):
        columns = rows
        width = values = s.size(0.5)
        q_at, k_at, v_at = _packed(s, dict(batch), (i, j, rows), ((e, e, f), width))
    else:
        q = s.tensor((*dims, rows, width), reuse=0.1, dtype="T")
        k = s.tensor((*kv_dims, columns, width), reuse=0.1, dtype="T")
        v = s.tensor((*v_dims, columns, values), reuse=0.1, dtype="T")
        q_at, k_at = _at(q.name, *lead, i, e), _at(k.name, *kv_lead, j, e)
        v_at = _at(v.name, *v_lead, j, f)
        if s.maybe(0.2):
            q_at = _turned(s, q_at, dict(batch), (i, rows), (e, width))
        if kv_lead in (lead, []) and s.maybe(0.2):
            k_at = _turned(s, k_at, dict(batch) if kv_lead else {}, (j, columns), (e, width))
    within = e
    if s.maybe(0.15):  # as much of the width as a head or a row has
        index, size = s.random.choice(
            [c for c in {**dict(batch), i: rows}.items() if c[0] != "..."]
        )
        within = f"{e} < {_at(s.tensor((size,), 'int', 0.3, s.one('i32', 'i64')).name, index)}"
        within = s.one(within, f"{e} < {width} - 1")
    product = f"sum[{within}]({q_at} * {k_at})"
    if s.maybe(0.1):  # a part of the keys that all heads share
        own = s.tensor((*dims, rows, turned), reuse=0.1, dtype="T")
        shared = s.tensor((columns, turned), reuse=0.1, dtype="T")
        more = f"{_at(own.name, *lead, i, r)} * {_at(shared.name, j, r)}"
        product = f"({product} + sum[{r}]({more}))"
    body = _scored(s, product, (i, rows), (j, columns))
    scores = Scores("", dict(batch), (i, rows), (j, columns))
    bound, condition = _masked(s, scores)
    if condition:
        body = f"where({condition}, {body}, -inf)"
    score = _at(_line(s, "chain", scores.whole, body), *lead, i, j)
    _weighed(s, scores, score, bound, v_at, (f, values), condition)


def _packed(
    s: Sketch,
    batch: Mapping[str, str],
    along: tuple[str, str, str],
    across: tuple[tuple[str, str, str], str],
) -> list[str]:
    """Reads of three factors in one tensor: an operand, or the result of one product."""
    i, j, rows = along
    places, width = across
    lead = list(batch)
    if s.maybe(0.5):
        name = s.tensor((*batch.values(), rows, "3", width), reuse=0.1, dtype="T").name
    else:
        (c, d), inner = s.indices(2, (*lead, i, j, *places)), s.size(0.5)
        x = s.tensor((*batch.values(), rows, inner), reuse=0.2, dtype="T").name
        w = s.tensor(("3", width, inner), reuse=0.1, dtype="T").name
        body = f"T(sum[{d}]({_at(x, *lead, i, d)} * {_at(w, c, places[0], d)}))"
        name = _line(s, "packed", {**batch, i: rows, c: "3", places[0]: width}, body)
    return [
        _at(name, *lead, row, str(k), column)
        for k, (row, column) in enumerate(zip((i, j, j), places, strict=True))
    ]


def _turned(
    s: Sketch, x: str, batch: Mapping[str, str], row: tuple[str, str], column: tuple[str, str]
) -> str:
    """A factor that is rotated or normed first, and rounded."""
    (i, rows), (e, width) = row, column
    table = _at(s.tensor((rows, width), reuse=0.3).name, i, e)
    (d,) = s.indices(1, (*batch, i, e))
    moved = f"({x.replace(f'{e}]', f'{e} - 1]')} else 0)"
    squares = f"mean[{d}](square({x.replace(f'{e}]', f'{d}]')}))"
    body = s.weighted(
        {
            f"{x} * {table}": 2,
            f"{x} * {table} - {moved} * ({table} + 1)": 3,
            f"{x} / sqrt({squares} + 1)": 3,
        }
    )
    return _at(_line(s, "turned", {**batch, i: rows, e: width}, f"T({body})"), *batch, i, e)


def _scored(s: Sketch, product: str, row: tuple[str, str], column: tuple[str, str]) -> str:
    """What follows the first product."""
    (i, rows), (j, columns) = row, column
    table = s.tensor((s.size(1.0),), reuse=0.2).name
    bucket = _at(s.tensor((rows, columns), "int", 0.2, s.one("i64", "i32")).name, i, j)
    return s.weighted(
        {
            product: 4,
            f"{product} + ({_at(table, f'{j} - {i} + 2')} else 0)": 1,  # relative positions
            f"{product} + ({_at(table, bucket)} else 0)": 1,
            f"{product} / 4": 3,
            f"{s.scalar()} * {product}": 3,
            f"2 * tanh({product} / 2)": 1,
            f"{product} - abs({i} - {j}) / 2": 1,
            f"{product} / 2 + {_at(s.tensor((rows, columns), reuse=0.2).name, i, j)}": 2,
            f"{product} + {_at(s.tensor((columns,), reuse=0.2).name, j)}": 1,
        }
    )


def _masked(s: Sketch, scores: Scores) -> tuple[str, str]:
    """A binder of the columns, and a condition; one of the two says which of them a row has."""
    (i, rows), (j, columns) = scores.row, scores.column
    name = s.weighted({"": 5, "bound": 8, "counts": 4, "where": 4})
    w = s.weighted({"1": 1, "2": 2, "3": 2, "c": 1})
    w = s.const(1) if w == "c" else w
    if name == "bound":
        return (
            s.weighted(
                {
                    f"{j} <= {i}": 6,
                    f"{j} <= {i} + {columns} - {rows}": 3,  # aligned at the last row
                    f"{i} - {w} < {j} <= {i}": 4,
                    f"{i} - {w} < {j} < {i} + {w}": 1,
                    f"{j} < max({i} + 1, {w})": 2,
                    f"{j} >= {i}": 1,
                    f"{j} < {i}": 1,
                    f"{j} < {columns} - 1": 1,
                }
            ),
            "",
        )
    if name == "counts":
        index, size = s.random.choice([c for c in scores.kept.items() if c[0] != "..."])
        n = _at(s.tensor((size,), "int", 0.3, s.one("i32", "i64")).name, index)
        return (
            s.weighted(
                {
                    f"{j} < {n}": 6,
                    f"{j} < min({n}, {i} + 1)": 2,
                    f"{n} <= {j} <= {i}": 1,
                    f"{n} <= {j} < {n} + {w}": 1,
                }
            ),
            "",
        )
    if name == "where":
        a, c = (s.operand((size,), "int", "i32").name for size in (rows, columns))
        return j, s.weighted(
            {
                f"{j} <= {i}": 2,
                f"{_at(a, i)} == {_at(c, j)}": 3,
                f"{_at(a, i)} == {_at(c, j)} and {j} <= {i}": 2,
                f"{_at(s.tensor((rows, columns), 'bool').name, i, j)}": 2,
            }
        )
    return j, ""


def _weighed(
    s: Sketch,
    scores: Scores,
    score: str,
    bound: str,
    factor: str,
    column: tuple[str, str],
    condition: str = "",
) -> None:
    """Sums of columns of the second factor, by what becomes of the scores; `condition`: they are -inf without it."""
    (j, columns), kept, lead = scores.column, scores.kept, list(scores.kept)
    out = {**kept, column[0]: column[1]}

    def rounded(text: str) -> str:
        return f"T({text})" if s.maybe(0.85) else text

    if s.maybe(0.2):
        weight = s.one(f"relu({score})", f"tanh({score})", f"exp({score})", score)
        bounds = [bound]
        if s.maybe(0.4):  # two sums of one weight, each under bounds of its own
            weight = _at(_line(s, "chain", scores.whole, weight), *lead, j)
            bounds.append(_masked(s, scores)[0])
        single = [
            (x, n) for x, n in kept.items() if x in factor and x not in ("...", scores.row[0])
        ]
        if single and s.maybe(0.4):  # over heads, too, as the gradient of what they share
            ((x, n),) = single
            out = {y: size for y, size in out.items() if y != x}
            bounds = [f"{x}, {own}" for own in bounds]
        for own in bounds:
            s.add("chain", lefts(out), f"sum[{own}]({rounded(weight)} * {factor})")
        return
    sink, most = "1", f"max[{bound}]({score})"
    if s.maybe(0.25):  # a term that each row has beside its own
        index = s.random.choice([c for c in kept.items() if c[0] != "..."])
        sink = s.one("1", s.scalar(), _at(s.tensor((index[1],), reuse=0.2).name, index[0]))
        most = f"max({most}, {sink})"
    m = _at(_line(s, "chain", kept, most), *lead)
    exponent = score
    if s.maybe(0.1):  # which the maximum is not of
        exponent = f"{score} + {_at(s.tensor((columns,), reuse=0.2).name, j)}"
    weight = f"{s.weighted({'exp': 9, 'exp2': 1})}({exponent} - {m})"
    if s.maybe(0.5 if condition else 0.1):  # 0 where it is left out, also in a row of nothing else
        weight = f"where({condition or f'{j} > {scores.row[0]}'}, {weight}, 0)"
    dropped = s.maybe(0.15)
    if s.maybe(0.7):
        weight = _at(_line(s, "chain", scores.whole, weight), *lead, j)
    total = f"sum[{bound}]({weight})"
    apart = s.maybe(0.4)
    if apart:
        total = _at(_line(s, "chain", kept, total), *lead)
    if dropped:  # by a factor that may be any number where there is no term
        weight = f"{weight} * {_at(s.tensor((scores.row[1], columns), reuse=0.2).name, scores.row[0], j)}"
    products = f"sum[{bound}]({rounded(weight)} * {factor})"
    forms = {
        f"{products} / {total}": 6,
        f"where({total} > 0, {products} / {total}, 0)": 2,  # rows without a term
        f"{products} / ({total} + exp({sink} - {m}))": 6 if most.startswith("max(") else 1,
        products: 1,
    }
    if apart:
        forms[f"sum[{bound}]({rounded(f'{weight} / {total}')} * {factor})"] = 2
    text = s.weighted(forms)
    s.add("chain", lefts(out), text)
    if s.maybe(0.2):
        s.add("chain", lefts(kept), f"{m} + log({total})")


def nearest(s: Sketch) -> None:
    """Which column is the nearest or the largest, of distances that products make."""
    _halves(s)
    i, j, e = s.indices(3)
    rows, columns, width = s.sizes_apart(3)
    x, c = (s.tensor((n, width), reuse=0.2, dtype="T") for n in (rows, columns))
    product = f"sum[{e}]({_at(x.name, i, e)} * {_at(c.name, j, e)})"
    norms = f"sum[{e}]({_at(c.name, j, e)} * {_at(c.name, j, e)})"
    if s.maybe(0.6):
        norms = _at(_line(s, "nearest", {j: columns}, norms), j)
    distance = s.weighted(
        {f"{norms} - 2 * {product}": 5, product: 2, f"{product} / (1 + {norms})": 1}
    )
    at = _at(_line(s, "nearest", {i: rows, j: columns}, distance), i, j)
    bound = s.weighted({j: 5, f"{j} <= {i}": 1, f"{j} < {columns} - 1": 1})
    place = s.add(
        "nearest", lefts({i: rows}), f"{s.one('argmin', 'argmin', 'argmax')}[{bound}]({at})", "int"
    )
    if s.maybe(0.5):
        s.add("nearest", lefts({i: rows}), f"{s.one('min', 'max')}[{bound}]({at})")
    if s.maybe(0.3):
        s.read.add(place.name)
        s.add(
            "nearest", lefts({i: rows, e: width}), f"({_at(c.name, _at(place.name, i), e)} else 0)"
        )


def loss_head(s: Sketch) -> None:
    """A product's logsumexp over its columns, and the column that a target names."""
    _halves(s)
    i, j, e = s.indices(3)
    rows, columns, width = s.sizes_apart(3)
    paired = s.maybe(0.2)  # each row has a column of its own
    columns = rows if paired else columns
    x, w = (s.tensor((n, width), reuse=0.2, dtype="T") for n in (rows, columns))
    product = f"sum[{e}]({_at(x.name, i, e)} * {_at(w.name, j, e)})"
    body = _scored(s, product, (i, rows), (j, columns))
    score = _line(s, "loss_head", {i: rows, j: columns}, body)
    at = _at(score, i, j)
    m = _at(_line(s, "loss_head", {i: rows}, f"max[{j}]({at})"), i)
    lse = f"{m} + log(sum[{j}](exp({at} - {m})))"
    target = _at(_target(s, rows).name, i)
    hit = _at(score, i, i) if paired else f"({_at(score, i, target)} else 0)"
    if s.maybe(0.3):  # smoothed
        hit = f"(0.9 * {hit} + 0.1 * mean[{j}]({at}))"
    loss = f"{lse} - {hit}"
    if s.maybe(0.4):
        loss = f"where({target} < 0, 0, {loss})"
    if s.maybe(0.3):
        lse_at = _at(_line(s, "loss_head", {i: rows}, lse), i)
        loss = loss.replace(lse, lse_at) + f" + 0.01 * square({lse_at})"
    if s.maybe(0.2):
        s.add("loss_head", lefts({}), f"mean[{i}]({loss})", dims=())
        return
    found = s.add("loss_head", lefts({i: rows}), loss)
    if s.maybe(0.3):
        s.read.add(found.name)
        s.add("loss_head", lefts({}), f"{s.one('mean', 'sum')}[{i}]({_at(found.name, i)})", dims=())


def _target(s: Sketch, rows: str) -> Known:
    return s.tensor((rows,), "int", 0.2, s.one("i64", "i32"))
