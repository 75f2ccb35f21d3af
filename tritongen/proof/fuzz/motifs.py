"""Motifs: each adds a line or a few to a sketch, of the kind that some class of kernels takes.

    MOTIFS["contraction"](s)

Here: pointwise lines, reducers, scans, arguments of maxima, rows. Products are in `motifs_products`,
windows, gathers and scatters in `motifs_places`, `...` and calls in `motifs_whole`.
"""

from __future__ import annotations

from tritongen.proof.fuzz.expressions import condition, integer, number, par, read, term
from tritongen.proof.fuzz.sketch import Known, Left, Sketch

FOLDS = {"sum": 6, "mean": 3, "max": 3, "min": 2, "prod": 1}


def space(s: Sketch, count: int, batch: float = 0.0) -> dict[str, str]:
    """Indices over sizes of their own."""
    env = dict(zip(s.indices(count), s.sizes_apart(count), strict=True))
    return {"...": "...", **env} if s.maybe(batch) else env


def some(s: Sketch, batch: float = 0.0) -> dict[str, str]:
    """The space of an existing tensor, or a new one."""
    waiting = [t for t in s.tensors if t.made and t.dims and "1" not in t.dims]
    if waiting and s.maybe(0.6):
        found = s.random.choice(waiting)
        if len(set(found.dims)) == len(found.dims):
            plain = iter(s.indices(len(found.dims)))
            return {"..." if d == "..." else next(plain): d for d in found.dims}
    return space(s, s.weighted({1: 2, 2: 5, 3: 2}), batch)


def lefts(env: dict[str, str]) -> list[Left]:
    return [Left(i, d) for i, d in env.items()]


def values(s: Sketch, env: dict[str, str], kind: str, depth: int = 2, odd: float = 0.12) -> str:
    """An expression of the kind that reads all of the space at once somewhere."""
    if kind == "int":
        return integer(s, env, depth)
    if kind == "bool":
        return condition(s, env)
    first = read(s, env, "float", odd / 2, 1.0)
    rest = number(s, env, depth, odd)
    return s.weighted(
        {
            f"{first}": 2,
            f"{par(rest)} * {first}": 3,
            f"{first} + {par(rest)}": 3,
            f"where({condition(s, env)}, {first}, {rest})": 1,
            f"{first} - {par(rest)}": 1,
        }
    )


# ---- lines --------------------------------------------------------------------------------------
def pointwise(s: Sketch) -> None:
    env = some(s, 0.2)
    kind = s.weighted({"float": 8, "int": 1.5, "bool": 0.7})
    s.add("pointwise", lefts(env), values(s, env, kind, 3, 0.3), kind)


def between(s: Sketch, k: str, size: str, kept: dict[str, str]) -> dict[str, float]:
    """Bounds by indices of any dims, shorter or longer than that of k: windows, and ends by min and max."""
    named = [(i, d) for i, d in kept.items() if i not in ("...", "0")]
    if not named or not s.maybe(0.3):
        return {}
    (i, d), (j, _) = s.random.choice(named), s.random.choice(named)
    w = s.one("1", "2", "3", "9")
    forms: dict[str, float] = {
        f"{i} - {w} < {k} <= {i}": 4,
        f"{i} <= {k} < {i} + {w}": 3,
        f"{i} - {w} < {k} <= {j}": 2,
        f"{k} <= {i}": 1,
        f"{k} > {i}": 1,
        f"max({i} - {w}, 0) <= {k} < min({i} + {w}, {size})": 3,
        f"min({i}, {j} + {w}) <= {k} <= max({i}, {j})": 2,
        f"{k} < max({i}, {w})": 1,
    }
    if s.maybe(0.4):
        count = f"{s.tensor((d,), 'int').name}[{i}]"
        forms |= {
            f"{i} - {w} < {k} < min({i} + {w}, {count})": 4,
            f"min({i}, {count}) <= {k} < max({count} + 1, {i})": 3,
        }
    return forms


def bounds(s: Sketch, index: str, size: str, kept: dict[str, str]) -> str:
    """A binder, with a bound or without."""
    forms = {index: 10.0} | between(s, index, size, kept)
    alike = [i for i, d in kept.items() if d == size]
    plain = [(i, d) for i, d in kept.items() if i not in ("...", "0")]
    if alike:
        i = s.random.choice(alike)
        forms |= {
            f"{index} <= {i}": 4,
            f"{index} > {i}": 4,
            f"{index} < {i}": 2,
            f"{index} >= {i}": 2,
        }
        forms |= {f"{i} - 2 <= {index} <= {i}": 2}
    if plain and s.maybe(0.3):
        i, d = s.random.choice(plain)
        count = s.tensor((d,), "int").name
        forms |= {f"{index} < {count}[{i}]": 4, f"{index} >= {count}[{i}]": 1}
        forms |= {
            f"1 <= {index} < {count}[{i}]": 2,
            f"{count}[{i}] <= {index} < {count}[{i}] + 2": 1,
        }
    if s.maybe(0.3):
        forms |= {
            f"{index} < {size} - 1": 0.5,
            f"1 <= {index} < {size}": 1,
            f"{index} >= {term(s, [size])}": 1,
        }
    return s.weighted(forms)


def reduced(s: Sketch, kept: dict[str, str], count: int = 1, op: str = "") -> str:
    """A reducer over new indices beside those in force."""
    others = s.indices(count, besides=kept)
    pool = [z for z in s.sizes if z not in kept.values()]
    inner = {}
    for i in others:
        alike = [d for d in kept.values() if d in s.sizes]
        if alike and s.maybe(0.25):
            inner[i] = s.random.choice(alike)
        else:
            free = [z for z in pool if z not in inner.values()]
            inner[i] = s.random.choice(free) if free and s.maybe(0.7) else s.size(1.0)
    op = op or s.weighted(FOLDS)
    env = {**kept, **inner}
    kind = {"any": "bool", "all": "bool"}.get(op, "float")
    if op in ("sum", "max", "prod", "argmax", "argmin") and s.maybe(0.15):
        kind = "int"
    body = values(s, env, kind, s.weighted({0: 3, 1: 3, 2: 2}), 0.12)
    # every bound index is read somewhere without `else`
    ensure = read(s, dict(inner), kind if kind != "bool" else "float", 0.0, 1.0)
    binders = ", ".join(bounds(s, i, d, kept) for i, d in inner.items())
    if not all(f"[{i}" in body or f" {i}]" in body or f" {i}," in body for i in inner):
        body = f"({body}) and {ensure} > 0" if kind == "bool" else f"{par(body)} + {ensure}"
    return f"{op}[{binders}]({body})"


def reduction(s: Sketch) -> None:
    whole = some(s, 0.2)
    kept = dict(list(whole.items())[: s.weighted({0: 1, 1: 4, 2: 3, 3: 1})])
    text = reduced(s, kept, s.weighted({1: 6, 2: 2}))
    if s.maybe(0.35):
        text = f"{par(number(s, kept, 1))} {s.one('*', '+', '-')} {text}" if kept else f"2 * {text}"
    s.add("reduce", lefts(kept), text, "float")


def logical(s: Sketch) -> None:
    kept = space(s, s.one(1, 2))
    s.add("logical", lefts(kept), reduced(s, kept, 1, s.one("any", "all")), "bool")


def arg(s: Sketch) -> None:
    kept = space(s, s.one(0, 1, 1, 2), 0.1)
    text = reduced(s, kept, s.weighted({1: 6, 2: 1}), s.one("argmax", "argmin"))
    if kept and s.maybe(0.35):
        i, d = s.random.choice([(i, d) for i, d in kept.items() if i != "..."] or [("", "")])
        if i:
            text = f"where({i} {s.one('<', '>=')} {term(s, [d])}, {text}, 0)"
    s.add("arg", lefts(kept), text, "int")


def counted(s: Sketch, k: str, axis: str, env: dict[str, str]) -> dict[str, float]:
    """Bounds of a scan by a count of each row, beside the scanned index."""
    rows = [(i, d) for i, d in env.items() if i not in ("...", axis)]
    if not rows or not s.maybe(0.3):
        return {}
    i, d = s.random.choice(rows)
    count = f"{s.tensor((d,), 'int').name}[{i}]"
    return {f"{count} <= {k} <= {axis}": 6, f"{axis} <= {k} < {count}": 6}


def scan(s: Sketch) -> None:
    env = some(s, 0.15)
    axis = s.random.choice([i for i in env if i != "..."] or s.indices(1))
    env.setdefault(axis, s.size())
    size = env[axis]
    k = s.indices(1, besides=env)[0]
    inner = {(k if i == axis else i): d for i, d in env.items()}
    op = s.weighted({**FOLDS, "argmax": 1, "any": 0.7, "all": 0.5, "argmin": 0.5})
    kind = "bool" if op in ("any", "all") else "float"
    body = (
        condition(s, inner)
        if kind == "bool"
        else values(s, inner, "float", s.one(0, 0, 1, 2), 0.05)
    )
    relation = s.weighted(
        {f"{k} <= {axis}": 5, f"{k} < {axis}": 3, f"{k} >= {axis}": 3, f"{k} > {axis}": 3}
        | between(s, k, size, env)
        | counted(s, k, axis, env)
    )
    if kind == "bool":
        body = f"({body}) and {read(s, inner, 'float', 0.0, 1.0)} > 0"
    text = f"{op}[{relation}]({body})"
    out = {"argmax": "int", "argmin": "int"}.get(op, kind)
    if out == "int" and s.maybe(0.4):
        text = f"where({axis} {s.one('<', '>')} {term(s, [size])}, {text}, 0)"
    elif out == "float" and s.maybe(0.35):
        text = f"{par(number(s, env, 1))} {s.one('*', '+')} {text}"
    s.add("scan", lefts(env), text, out)


# ---- rows ---------------------------------------------------------------------------------------
def rows(s: Sketch) -> None:
    """A norm or a softmax written out, over an existing tensor."""
    env = some(s, 0.35)
    plain = [i for i in env if i != "..."]
    if not plain:
        return
    axis = s.random.choice(plain[-1:] * 3 + plain)
    size, kept = env[axis], {i: d for i, d in env.items() if i != axis}
    x = s.tensor(tuple(env.values()))
    at = f"{x.name}[{', '.join(env)}]"
    line = s.add(
        "rows",
        lefts(kept),
        f"{s.weighted({'mean': 3, 'max': 3, 'sum': 2, 'min': 1})}[{axis}]({at})",
    )
    s.read.add(line.name)
    mu = f"{line.name}[{', '.join(kept)}]" if kept else line.name
    choice = s.one("variance", "exp", "centre", "scale")
    if choice == "variance":
        var = s.add("rows", lefts(kept), f"mean[{axis}](({at} - {mu}) ** 2)")
        s.read.add(var.name)
        v = f"{var.name}[{', '.join(kept)}]" if kept else var.name
        body = f"({at} - {mu}) * rsqrt({v} + {s.one('1e-5', s.scalar())})"
        if s.maybe(0.6):
            body += f" * {read(s, {axis: size}, 'float', 0.0, 1.0)}"
        if s.maybe(0.4):
            body += f" + {read(s, {axis: size}, 'float', 0.0, 1.0)}"
    elif choice == "exp":
        e = s.add("rows", lefts(env), f"exp({at} - {mu})")
        s.read.add(e.name)
        k = s.indices(1, besides=env)[0]
        inner = ", ".join(k if i == axis else i for i in env)
        body = f"{e.name}[{', '.join(env)}] / sum[{k}]({e.name}[{inner}])"
    elif choice == "scale":
        body = f"{par(number(s, env, 1))} * {mu} + {at}"
    else:
        body = f"{at} - {mu}"
    if s.maybe(0.3):
        body = s.one("relu({})", "silu({})", "tanh({})", "square({})").format(body)
    s.add("rows", lefts(env), body)


def two_ways(s: Sketch) -> None:
    """Reducers of one tensor along different axes, and its own lines."""
    sizes = s.sizes_apart(2)
    i, j = s.indices(2)
    x = s.tensor(sizes)
    at = f"{x.name}[{i}, {j}]"
    s.add("two_ways", [Left(i, sizes[0])], f"{s.weighted(FOLDS)}[{j}]({at})")
    s.add("two_ways", [Left(j, sizes[1])], f"{s.weighted(FOLDS)}[{i}]({at})")


def earlier(s: Sketch) -> None:
    """A line that reads an earlier one at another place."""
    made = [t for t in s.tensors if t.made and t.kind == "float" and t.dims and "1" not in t.dims]
    if not made:
        return pointwise(s)
    t: Known = s.random.choice(made)
    plain = iter(s.indices(len(t.dims)))
    env = [("..." if d == "..." else next(plain), d) for d in t.dims]
    coords = [i for i, _ in env]
    free = [k for k, (i, d) in enumerate(env) if i != "..."]
    if not free:
        return pointwise(s)
    k = s.random.choice(free)
    i, d = env[k]
    moved = s.one(f"{d} - 1 - {i}", f"({i} + 1) % {d}", f"{i} // 2")
    back = ", ".join(moved if n == k else c for n, c in enumerate(coords))
    s.read.add(t.name)
    own = f"{t.name}[{', '.join(coords)}]"
    body = f"{own} {s.one('+', '-', '*')} {t.name}[{back}]"
    s.add("earlier", [Left(*pair) for pair in env], body)
