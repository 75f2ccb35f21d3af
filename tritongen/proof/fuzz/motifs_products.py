"""Motifs of products: matrices, batches, computed factors, group scales, triangles, counts, convolutions."""

from __future__ import annotations

from tritongen.proof.fuzz.expressions import number, par, read
from tritongen.proof.fuzz.motifs import between, lefts
from tritongen.proof.fuzz.sketch import Sketch


def factor(s: Sketch, env: dict[str, str], plain: float = 0.6) -> str:
    """One factor: an operand in some order of its dims, perhaps computed."""
    if s.maybe(0.1):  # a mask, or whole numbers that may wrap outside of a sum
        mask, whole = read(s, env, "bool", 0.12), read(s, env, "int", 0.12)
        return s.one(mask, f"({whole} - {s.one(3, 8)})", f"({whole} * {whole})")
    text = read(s, env, "float", 0.12, 1.0)
    if s.maybe(plain):
        return text
    return s.weighted(
        {
            f"relu({text})": 2,
            f"exp({text})": 1,
            f"({text} + 1)": 2,
            f"({text} * {s.scalar()})": 1,
            f"tanh({text})": 1,
            f"({text} - {read(s, dict(list(env.items())[-1:]))})": 2,
            f"silu({text})": 1,
            f"T({text})": 1,
        }
    )


def contraction(s: Sketch) -> None:
    batch = {"...": "..."} if s.maybe(0.15) else {}
    i, j, k, b = s.indices(4)
    m, n, c, d = s.sizes_apart(4)
    if s.maybe(0.12):  # square, as gram matrices are
        n = m
    if s.maybe(0.15):
        c = n
    if s.maybe(0.25):
        batch |= {b: d}
    left, right = {**batch, i: m, k: c}, {**batch, k: c, j: n}
    if batch and s.maybe(0.3):
        right = {k: c, j: n}
    kept = {**batch, i: m, j: n}
    binder = _binder(s, k, c, kept)
    a, w = factor(s, left), factor(s, right)
    product = f"{a} * {w}" if s.maybe(0.7) else f"{w} * {a}"
    if s.maybe(0.12):  # a scale of each group along the reduced index
        g = s.tensor((s.define(f"{c} // 2 + 1"),)) if s.maybe(0.3) else None
        product += f" * {g.name}[{k} // 2]" if g else f" * {read(s, {k: c}, 'float', 0.0, 1.0)}"
    if s.maybe(0.2):  # of single terms, of a whole row or column, or of both
        terms = f"{k} {s.one('<=', '>=', '!=')} {s.one(i, j)}"
        own, size = s.one((i, m), (j, n))
        whole = s.one(f"{own} >= 2", f"{s.tensor((size,), 'int').name}[{own}] > 0")
        which = s.weighted({terms: 2, whole: 3, f"{terms} and {whole}": 1})
        product = f"where({which}, {product}, 0)"
    text = f"sum[{binder}]({product})"
    s.add("contraction", lefts(kept), _behind(s, text, kept))


def _binder(s: Sketch, k: str, size: str, kept: dict[str, str]) -> str:
    forms = {k: 6.0} | between(s, k, size, kept)
    alike = [i for i, d in kept.items() if d == size and i != "..."]
    if alike:
        forms |= {f"{k} <= {alike[0]}": 4, f"{k} < {alike[0]}": 1, f"{k} >= {alike[-1]}": 2}
    if s.maybe(0.25):
        i, d = s.random.choice([(i, d) for i, d in kept.items() if i != "..."])
        forms[f"{k} < {s.tensor((d,), 'int').name}[{i}]"] = 12
    return s.weighted(forms)


def _behind(s: Sketch, text: str, kept: dict[str, str]) -> str:
    """The lines behind a product."""
    if s.maybe(0.45):
        return text
    return s.weighted(
        {
            f"{text} + {read(s, dict(list(kept.items())[-1:]), 'float', 0.0)}": 3,
            f"relu({text})": 2,
            f"gelu({text} + {read(s, dict(list(kept.items())[-1:]), 'float', 0.0)})": 2,
            f"{par(number(s, kept, 1))} * {text}": 2,
            f"{text} + {read(s, kept)}": 2,
            f"{s.scalar()} * {text}": 1,
        }
    )


def ragged(s: Sketch) -> None:
    """Rows in segments, each with its own factor. Segments begin at any number, in any order."""
    i, j, k, e = s.indices(4)
    m, n, c, d = s.sizes_apart(4)
    kept = {i: m, j: n}
    if s.maybe(0.6):
        off = s.operand((f"{d} + 1",), "int", s.one("i64", "i32"))
        begin, end = f"{off.name}[{e}]", f"{off.name}[{e} + 1]"
        bounds = {f"{begin} <= {i} and {i} < {end}": 6, f"{i} < {end}": 1, f"{begin} < {i}": 1}
    else:
        own = f"{s.tensor((m,), 'int').name}[{i}]"
        bounds = {f"{own} == {e}": 6, f"{e} <= {own}": 1, f"{own} < {e} and {e} < {own} + 3": 1}
    left = factor(s, {e: d, i: m, k: c} if s.maybe(0.15) else {i: m, k: c})
    product = f"{left} * {factor(s, {e: d, k: c, j: n})}"
    text = f"sum[{e} < {d}, {k}](where({s.weighted(bounds)}, {product}, 0))"
    s.add("ragged", lefts(kept), _behind(s, text, kept))


def integers(s: Sketch) -> None:
    """Small integers multiplied, wide sums."""
    i, j, k = s.indices(3)
    m, n, c = s.sizes_apart(3)
    if s.maybe(0.2):
        i = m = "..."
    kinds = s.one(("i8", "i8"), ("i8", "i8"), ("u8", "i8"), ("i32", "i32"), ("i16", "i8"))
    a, b = s.operand((m, c), "int", kinds[0]), s.operand((n, c), "int", kinds[1])
    text = f"sum[{k}]({a.name}[{i}, {k}] * {b.name}[{j}, {k}])"
    if s.maybe(0.5):
        s.add("integers", lefts({i: m, j: n}), text, "int")
        return
    if s.maybe(0.4):  # zero points: whole numbers that are not 0 where there is no term
        one, other = f"f32({a.name}[{i}, {k}])", f"f32({b.name}[{j}, {k}])"
        text = f"sum[{k}](({one} - {s.one(8, 3)}) * {s.one(other, f'({other} + 5)')})"
    scales = f" * {read(s, {i: m}, 'float', 0.0, 1.0)} * {read(s, {j: n}, 'float', 0.0, 1.0)}"
    s.add("integers", lefts({i: m, j: n}), text + scales)


def quantised(s: Sketch) -> None:
    """Weights whose scale a group of terms shares, of 4 bits, 8 bits or floats; rows that are gathered."""
    i, j, k = s.indices(3)
    m, n, groups = s.sizes_apart(3)
    terms = s.one(16, 16, 32, 6)
    width = s.define(f"{groups} * {terms}")
    kind = s.one("nibbles", "nibbles", "i8", "u8", "float")
    scales = s.operand((n, groups), "float")
    if s.maybe(0.3):
        rows = s.operand((m,), "int").name
        x = f"({s.operand((s.size(0.5), width)).name}[{rows}[{i}], {k}] else 0)"
    else:
        x = factor(s, {i: m, k: width}, 0.8)
    if kind == "nibbles":
        w = s.operand((n, s.define(f"{groups} * {terms // 2}")), "int", "u8").name
        w = f"(f32(bit_and(shift_right({w}[{j}, {k} // 2], 4 * ({k} % 2)), 15)) - {s.one(8, 7)})"
    else:
        w = f"{s.operand((n, width), *(('float',) if kind == 'float' else ('int', kind))).name}[{j}, {k}]"
    if kind in ("i8", "u8") and s.maybe(0.4):  # a weight is a number behind the product, too
        number = w.replace(f", {k}]", ", 0]") + " else 5"
        behind = s.one(f"f32(({number}) // 2)", f"f32(({number}) * ({number}))")
        text = f"sum[{k}]({x} * {w}) * ({scales.name}[{j}, 0] else 1) + {behind}"
        s.add("quantised", lefts({i: m, j: n}), text)
        return
    factors = [x, w, f"{scales.name}[{j}, {k} // {terms}]"]
    s.random.shuffle(factors)
    s.add("quantised", lefts({i: m, j: n}), f"sum[{k}]({' * '.join(factors)})")


def widened(s: Sketch) -> None:
    """Arithmetic of small integers under a sum, where it must not wrap."""
    i, k = s.indices(2)
    n, d = s.sizes_apart(2)
    a = s.operand((n, d), "int", s.one("i8", "i8", "u8", "i16", "i32"))
    at = f"{a.name}[{i}, {k}]"
    body = s.one(
        f"{at} ** 2",
        f"{at} * {at}",
        f"{at} ** 3",
        f"{at} * 3 - 100",
        f"-{at}",
        f"abs({at}) * 2",
        f"square({at})",
    )
    op = s.weighted({"sum": 4, "prod": 1, "mean": 1})
    kind = "float" if op == "mean" else s.one("int", "float")
    s.add("widened", lefts({i: n}), f"{op}[{k}]({body})", kind)


def table(s: Sketch, i: str, j: str, rows: str, cols: str) -> str:
    """A table at a place that two indices name together, or that an operand names."""
    length = s.size(0.6)
    place = s.one("difference", "shifted", "wrapped", "of row", "of both")
    if place == "of both":
        at = f"{s.tensor((rows, cols), 'int').name}[{i}, {j}]"
    elif place == "of row":
        at = f"{s.tensor((cols,), 'int').name}[{j}]"
    else:
        at = {
            "difference": f"{i} - {j}",
            "shifted": f"{i} - {j} + {cols}",
            "wrapped": f"({i} + {j}) % {length}",
        }[place]
    return f"({s.tensor((length,), reuse=0.2).name}[{at}] else 0)"


def attention(s: Sketch) -> None:
    """Two products, mostly with a row of exponentials between them; keys in pages, a table of places."""
    b, i, j, e = s.indices(4)
    head, rows, cols, width = s.sizes_apart(4)
    if s.maybe(0.3):
        b = head = "..."
    batch, lead = ({b: head}, f"{b}, ") if s.maybe(0.5) else ({}, "")
    dims = tuple(batch.values())
    q = s.tensor((*dims, rows, width), reuse=0.2)
    if s.maybe(0.15):
        page, pages = s.tensor((*dims, cols), "int"), s.size(0.7)
        k, v = (s.tensor((pages, width), reuse=0.2) for _ in "kv")
        key, value = (f"({t.name}[{page.name}[{lead}{j}], {e}] else 0)" for t in (k, v))
    else:
        k, v = (s.tensor((*dims, cols, width), reuse=0.2) for _ in "kv")
        key, value = (f"{t.name}[{lead}{j}, {e}]" for t in (k, v))
    score = f"sum[{e}]({q.name}[{lead}{i}, {e}] * {key})"
    if s.maybe(0.25):
        score = f"{score} {s.one('+', '*')} {table(s, i, j, rows, cols)}"
    count = s.tensor((rows,), "int") if s.maybe(0.3) else None
    bound = f"{j} < {count.name}[{i}]" if count else j
    if s.maybe(0.3) and not count:
        score = f"where({j} <= {i}, {score}, -inf)"
    t = s.add(
        "attention",
        lefts({**batch, i: rows, j: cols}),
        f"{s.scalar()} * {score}" if s.maybe(0.4) else score,
    )
    s.read.add(t.name)
    if s.maybe(0.2):
        bound = s.one(bound, f"{j} <= {i}")
        weight = f"{t.name}[{lead}{i}, {j}] * {table(s, i, j, rows, cols)}"
        if s.maybe(0.5):
            s.add("attention", lefts({**batch, i: rows}), f"sum[{bound}]({weight})")
        else:
            left = lefts({**batch, i: rows, e: width})
            s.add("attention", left, f"sum[{bound}]({weight} * {value})")
        return
    m = s.add("attention", lefts({**batch, i: rows}), f"max[{bound}]({t.name}[{lead}{i}, {j}])")
    s.read.add(m.name)
    p = s.add(
        "attention",
        lefts({**batch, i: rows, j: cols}),
        f"exp({t.name}[{lead}{i}, {j}] - {m.name}[{lead}{i}])",
    )
    s.read.add(p.name)
    at = f"{p.name}[{lead}{i}, {j}]"
    s.add(
        "attention",
        lefts({**batch, i: rows, e: width}),
        f"sum[{bound}]({at} * {value}) / sum[{bound}]({at})",
    )


def convolution(s: Sketch) -> None:
    """One or two places, channels summed over or kept; transposed ones; taps with bounds."""
    places = s.weighted({1: 3, 2: 2})
    n, f, c, g = s.indices(4)
    images, filters, channels, groups = s.sizes_apart(4)
    if s.maybe(0.2):
        n = images = "..."
    taken = {n, f, c, g, *s.used}
    p = [i for i in ("p", "q", "p2", "q2", "o2") if i not in taken][:places]
    r = [i for i in ("r", "s", "r2", "s2", "t2") if i not in taken][:places]
    lengths = s.sizes_apart(places) if s.maybe(0.4) else tuple(s.size(1.0) for _ in range(places))
    taps = tuple(s.size(0.7) for _ in range(places))
    if s.maybe(0.1):
        taps = lengths
    if s.maybe(0.1):
        channels = lengths[0]
    step = s.weighted({"": 5, "2 * ": 2, "c": 2})
    stride = f"{s.const(1)} * " if step == "c" else step
    pad = s.weighted({"": 3, " - 1": 3, "c": 2})
    shift = f" - {s.const()}" if pad == "c" else pad
    filled = bool(shift) or s.maybe(0.2)
    room = {"": "", " - 1": " + 2"}.get(shift, f" + 2 * {shift[3:]}")
    outs = []
    turned = s.one("2", "3", s.const(1)) if s.maybe(0.15) else ""
    for size, tap in zip(lengths, taps, strict=True):
        if turned:
            outs.append(s.define(f"({size} - 1) * {turned} + {tap}"))
            continue
        span = f"{size}{room} - {tap}"
        outs.append(s.define(f"({span}) // {stride[:-3]} + 1" if stride else f"{span} + 1"))
    depth = s.maybe(0.2)
    group = {g: groups} if not depth and s.maybe(0.2) else {}
    image, every = n, images
    if n != "..." and s.maybe(0.1):  # images that an operand names
        image, every = f"{s.tensor((images,), 'int').name}[{n}]", s.size(0.7)
        filled = True
    x = s.tensor((every, *group.values(), channels, *lengths), reuse=0.3)
    whose = (channels,) if depth else (*group.values(), filters, channels)
    w = s.tensor((*whose, *taps), reuse=0.1)
    at = ", ".join(f"{stride}{a} + {b}{shift}" for a, b in zip(p, r, strict=True))
    if turned:
        at = ", ".join(
            f"({a}{s.one('', ' + 1')} - {b}) / {turned}" for a, b in zip(p, r, strict=True)
        )
        filled = True
    elif s.maybe(0.1):
        at = ", ".join(f"{a} - {b}" for a, b in zip(p, r, strict=True))
        filled = True
    read_x = f"{x.name}[{', '.join([image, *group, c, at])}]"
    read_x = f"({read_x} else 0)" if filled else read_x
    own = [c] if depth else [*group, f, c]
    kept = {
        n: images,
        **group,
        (c if depth else f): channels if depth else filters,
        **dict(zip(p, outs, strict=True)),
    }
    told = [
        _binder(s, b, tap, kept) if s.maybe(0.15) else b for b, tap in zip(r, taps, strict=True)
    ]
    if s.maybe(0.1):
        told[0] = s.one(f"{r[0]} <= {p[0]}", f"{r[0]} < {p[0]} - 1", f"{r[0]} > 1 - {p[0]}")
    binders = ", ".join(told if depth else [c, *told])
    read_w = f"{w.name}[{', '.join([*own, *r])}]"
    if filled and s.maybe(0.1):
        read_x = read_x.replace("else 0", "else 1")
    if s.maybe(0.15):  # computed factors, which may be other than 0 where their operands are
        read_x = f"{s.one('cos', 'exp', 'silu', '1 - ')}({read_x})"
        read_w = f"{s.one('', 'cos', '1 + ')}({read_w})"
    text = f"sum[{binders}]({read_x} * {read_w})"
    if s.maybe(0.4):
        text = (
            f"{s.one('relu', 'silu', 'tanh')}({text})"
            if s.maybe(0.5)
            else f"{text} + {read(s, {i: kept[i] for i in own if i in kept}, 'float', 0.0, 1.0)}"
        )
    if not depth and s.maybe(0.15):  # the sliding operand is also read behind its windows
        shift = s.one("", " + 1", " - 1")
        behind = ", ".join([n, *group, f"{f}{shift}", *p])
        text = f"{text} + ({x.name}[{behind}] else {s.one('0', '1')})"
    s.add("convolution", lefts(kept), text)
