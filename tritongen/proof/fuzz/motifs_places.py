"""Motifs that move: windows, crops, pads, gathers, scatters, segments, exact division, digits."""

from __future__ import annotations

from tritongen.proof.fuzz.expressions import number, par, read, term
from tritongen.proof.fuzz.motifs import FOLDS, lefts, space
from tritongen.proof.fuzz.sketch import Sketch


def window(s: Sketch) -> None:
    """A pool: strided, dilated, padded."""
    kept = space(s, s.one(1, 2), 0.15)
    p, r = s.indices(2, besides=kept)
    length = s.size(0.6)
    op = s.weighted({**FOLDS, "argmax": 0.5})
    win = s.weighted({"const": 4, "size": 2, "3": 2})
    count = s.const(1) if win == "const" else win
    if win == "size":
        w = s.tensor((s.size(0.5),), reuse=0.3)
        count = w.dims[0]
    stride = s.weighted({"": 3, "2 * ": 2, "c": 2})
    stride = f"{s.const(1)} * " if stride == "c" else stride
    pad = s.weighted({"": 2, " - 1": 2, "c": 2})
    pad = f" - {s.const()}" if pad == "c" else pad
    span = f"{length}{ {'': '', ' - 1': ' + 2'}.get(pad, f' + 2 * {pad[3:]}') } - {count}"
    out = s.define(f"({span}) // {stride[:-3]} + 1" if stride else f"{span} + 1")
    x = s.tensor((*kept.values(), length), reuse=0.4)
    fill = "" if not pad else f" else {s.one('0', '-inf') if op == 'max' else '0'}"
    at = f"{x.name}[{', '.join([*kept, f'{stride}{p} + {r}{pad}'])}]{fill}"
    body = f"({at}) * {w.name}[{r}]" if win == "size" else at
    if op == "max" and win == "size":
        body = f"({at.replace('-inf', '0')}) * {w.name}[{r}]"
    binder = r if win == "size" else f"{r} < {count}"
    env = {**kept, p: out}
    text = f"{op}[{binder}]({body})"
    if op != "argmax" and s.maybe(0.3):
        text = f"{s.one('relu', 'tanh', 'square')}({text})"
    s.add("window", lefts(env), text, "int" if op == "argmax" else "float")


def moving(s: Sketch) -> None:
    """A window that looks back, as long as its tensor: `x[n, i - k] else 0`."""
    env = space(s, s.one(1, 2, 2, 3), 0.15)
    *_, axis = env
    k = s.indices(1, besides=env)[0]
    x = s.tensor(tuple(env.values()), reuse=0.4)
    win = s.const(1) if s.maybe(0.6) else s.one("2", "3", "4")
    op = s.weighted(FOLDS)
    move = s.weighted(
        {f"{axis} - {k}": 5, f"{axis} + {k}": 2, f"{axis} + {k} - 1": 2, f"{axis} - 2 * {k}": 1}
    )
    if s.maybe(0.2):  # by what an operand says
        at = s.random.choice([i for i in env if i != "..."])
        move += f" - {s.tensor((env[at],), 'int').name}[{at}]"
    at = f"{x.name}[{', '.join([*list(env)[:-1], move])}] else 0"
    text = f"{op}[{k} < {win}]({at})"
    if s.maybe(0.25):
        text = f"{text} {s.one('+', '*')} {read(s, env)}"
    s.add("moving", lefts(env), text)


def shared(s: Sketch) -> None:
    """Rows of which several take one: how many, a constant, a fact of two sizes or their quotient says."""
    h, j, k = s.indices(3)
    groups, width, cols = s.sizes_apart(3)
    heads = s.size(1.0)
    form = s.weighted({"const": 3, "size": 2, "quotient": 3, "2": 2, "defined": 1})
    if form == "const":
        each = s.const(1)
        s.require(f"{heads} == {groups} * {each}")
    elif form == "size":
        each = s.tensor((s.size(1.0),)).dims[0]
        s.require(f"{heads} == {groups} * {each}")
    elif form == "quotient":
        each = f"({heads} // {groups})"
        s.require(f"{heads} % {groups} == 0")
    elif form == "2":
        each = "2"
        s.require(f"{heads} == 2 * {groups}")
    else:
        each = s.define(f"{heads} // {groups}")
        s.require(f"{heads} == {groups} * {each}")
    z = s.tensor((heads, width))
    row = f"{h} // {each}"
    if s.maybe(0.6):
        x = s.tensor((groups, cols, width))
        body = f"sum[{k}]({z.name}[{h}, {k}] * {x.name}[{row}, {j}, {k}])"
        s.add("shared", lefts({h: heads, j: cols}), body)
        return
    x = s.tensor((groups, width))
    body = f"{z.name}[{h}, {j}] {s.one('*', '+')} {x.name}[{row}, {j}]"
    s.add("shared", lefts({h: heads, j: width}), body)


def crop(s: Sketch) -> None:
    """Another length than the operand's: a centre crop, a pad, a slice, with offsets of either sign."""
    kept = space(s, s.one(0, 1, 1, 2), 0.15)
    i = s.indices(1, besides=kept)[0]
    inner = s.size(0.5)
    like = s.tensor((s.size(0.5),))
    outer = like.dims[0]
    x = s.tensor((*kept.values(), inner), reuse=0.4)
    away = s.weighted(
        {
            f"({inner} - {outer}) // 2": 5,
            f"-{inner} // 2": 3,
            f"({outer} - {inner}) // 2": 2,
            par(term(s, [inner, outer])): 4,
        }
    )
    move = s.weighted({f"{i} + {away}": 6, f"{i} // -2 + {par(away)}": 1, f"{i} - {par(away)}": 2})
    at = f"({x.name}[{', '.join([*kept, move])}] else 0)"
    factor = s.weighted({"": 3, f" * {like.name}[{i}]": 4, f" * ({away})": 2})
    if not factor:
        s.read.add(like.name)
        factor = f" + {like.name}[{i}]"
    s.add("crop", lefts({**kept, i: outer}), at + factor)


def part(s: Sketch) -> None:
    """Conditions on an index and arithmetic of sizes."""
    env = space(s, s.one(1, 2))
    i = s.random.choice(list(env))
    bound = term(s, [env[i], *s.sizes])
    body = f"where({i} {s.one('<', '>=', '<=')} {bound}, {read(s, env, whole=1.0)}, {number(s, env, 1)})"
    if s.maybe(0.4):
        body = f"{read(s, env, whole=1.0)} * ({bound}) + {read(s, env)}"
    s.add("part", lefts(env), body)


def concat(s: Sketch) -> None:
    kept = space(s, s.one(0, 1), 0.15)
    i = s.indices(1, besides=kept)[0]
    x, z = (s.tensor((*kept.values(), s.size(0.6)), reuse=0.3) for _ in range(2))
    a, b = x.dims[-1], z.dims[-1]
    lead = "".join(f"{k}, " for k in kept)
    body = f"where({i} < {a}, {x.name}[{lead}{i}] else 0, {z.name}[{lead}{i} - {a}] else 0)"
    s.add("concat", lefts({**kept, i: s.define(f"{a} + {b}")}), body)


def gather(s: Sketch) -> None:
    kept = space(s, s.one(1, 1, 2), 0.15)
    d = s.indices(1, besides=kept)[0]
    first = s.random.choice(list(kept))
    table, width = s.size(0.5), s.size(0.4)
    wide = s.maybe(0.6)
    w = s.tensor((table, width) if wide else (table,), reuse=0.3)
    where = (
        s.tensor((kept[first],), "int") if s.maybe(0.5) else s.tensor(tuple(kept.values()), "int")
    )
    at = f"{where.name}[{first if len(where.dims) == 1 else ', '.join(kept)}]"
    text = f"({w.name}[{at}{f', {d}' if wide else ''}] else 0)"
    env = {**kept, d: width} if wide else kept
    if s.maybe(0.5):
        text = f"{text} * {read(s, env, 'float', 0.0, 1.0)}"
    else:
        text = f"{text} + {read(s, env)}"
    if wide and s.maybe(0.25):
        text, env = f"{s.weighted(FOLDS)}[{d}]({text})", kept
    s.add("gather", lefts(env), text)


def scatter(s: Sketch) -> None:
    """Sums whose terms name where they go, and sums of the same terms another way."""
    n, v, d = s.indices(3)
    rows, width = s.sizes_apart(2)
    like = s.tensor((s.size(0.6),))
    count = like.dims[0]
    ix = s.tensor((rows,), "int")
    wide = s.maybe(0.65)
    x = s.tensor((rows, width) if wide else (rows,))
    at = f"{x.name}[{n}{f', {d}' if wide else ''}]"
    tie = f"{ix.name}[{n}] == {v}" if s.maybe(0.8) else f"{ix.name}[{n}] - 1 == {v}"
    walk = s.weighted({n: 6, f"{n} >= 1": 1, f"1 <= {n} < {rows}": 1, f"{n} < {rows} - 1": 1})
    body = f"sum[{walk}](where({tie}, {s.one(at, at, f'exp({at})', f'{at} * 2')}, 0))"
    kept = {v: count, d: width} if wide and s.maybe(0.8) else {v: count}
    if wide and len(kept) == 1:
        body = f"sum[{walk}, {d}](where({tie}, {at}, 0))"
    s.read.add(like.name)
    s.add("scatter", lefts(kept), f"{body} + {like.name}[{v}]" if s.maybe(0.5) else body)
    if s.maybe(0.5):
        s.add("scatter", lefts({v: count}), f"{like.name}[{v}] * {s.one('2', '0.5')}")
    if wide and s.maybe(0.4):
        s.add("scatter", lefts({n: rows}), f"sum[{d}]({at})")
        if s.maybe(0.6):
            s.add("scatter", lefts({d: width}), f"sum[{n}]({at})")


def segments(s: Sketch) -> None:
    """Rows between offsets that an operand holds: as they are, or gathered, with weights."""
    i, k, d = s.indices(3)
    ends, rows, width = s.size(1.0), s.size(0.5), s.size(0.4)
    off = s.operand((ends,), "int", s.one("i64", "i32", "I"))
    x = s.tensor((rows, width), reuse=0.4)
    op = s.weighted({**FOLDS, "argmax": 1})
    body = f"{x.name}[{k}, {d}]"
    if s.maybe(0.4):
        terms = s.size(0.5)
        at = s.operand((terms,), "int", s.one("i64", "i32", "I"))
        body = f"({x.name}[{at.name}[{k}], {d}] else 0)"
        rows = terms
    if s.maybe(0.4):
        body = f"{s.tensor((rows,), reuse=0.2).name}[{k}] * {body}"
    text = f"{op}[{off.name}[{i}] <= {k} < {off.name}[{i} + 1]]({body})"
    out = s.define(f"{ends} - 1")
    s.add("segments", lefts({i: out, d: width}), text, "int" if op == "argmax" else "float")


def digits(s: Sketch) -> None:
    """Repeats, interleaves, transposed windows: `//`, `%` and exact `/` in coordinates."""
    kept = space(s, s.one(0, 1, 2), 0.15)
    i = s.indices(1, besides=kept)[0]
    inner = s.size(0.4)
    x = s.tensor((*kept.values(), inner), reuse=0.4)
    c = s.one(s.const(1), "2", "3")
    lead = "".join(f"{k}, " for k in kept)
    form = s.weighted({"repeat": 3, "tile": 2, "spread": 3, "taps": 2, "turned": 2})
    out = s.define(f"{inner} * {c}")
    if form == "repeat":
        text = f"{x.name}[{lead}{i} // {c}]"
    elif form == "tile":
        text = f"{x.name}[{lead}{i} % {inner}]"
    elif form == "turned":  # neighbours in pairs, each pair by factors of its own
        c, out = "2", s.define(f"{inner} * 2")
        z = s.tensor((*kept.values(), out), reuse=0.4)
        here, half = f"{z.name}[{lead}{i}]", f"{x.name}[{lead}{i} // 2]"
        last, first = (f"({z.name}[{lead}{i} {k} 1] else 0) * {half}" for k in "+-")
        text = f"where({i} % 2 == 0, {here} * {half} - {last}, {here} * {half} + {first})"
    elif form == "spread":
        text = f"({x.name}[{lead}{s.one('', '1 + ')}{i} / {c}] else 0)"
        text = text.replace(f"1 + {i} /", f"({i} + 1) /")
    else:
        k = s.indices(1, besides=(*kept, i))[0]
        w = s.tensor((s.size(0.6),), reuse=0.2)
        text = f"sum[{k}](({x.name}[{lead}({i} + 1 - {k}) / {c}] else 0) * {w.name}[{k}])"
    if s.maybe(0.3):
        text = f"{text} * {par(term(s, [inner, out]))}"
    s.add("digits", lefts({**kept, i: out}), text)
