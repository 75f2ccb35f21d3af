"""Expressions at a point: reads of tensors over the indices in scope, functions, conditions, casts.

    number(s, {"i": "N", "k": "D"}, depth=2)      # "(x[i, k] * w[k] + 0.5)"

`env` holds each index in scope and the size that it runs to, from 0. Nothing drawn here is out of bounds: a read that moves
has an `else`, or a form that the language page calls provable.
"""

from __future__ import annotations

import re

from tritongen.proof.fuzz.sketch import Known, Sketch

Env = dict[str, str]
UNARY = {
    "tanh({})": 4,
    "sigmoid({})": 3,
    "relu({})": 3,
    "exp({})": 2,
    "abs({})": 2,
    "-{}": 2,
    "sin({})": 1,
    "square({})": 2,
    "{} ** 2": 3,
    "{} ** 3": 1,
    "sqrt(abs({}))": 1,
    "log1p(abs({}))": 1,
    "silu({})": 2,
    "gelu({})": 2,
    "leaky_relu({})": 1,
    "softplus({})": 1,
    "erf({})": 1,
    "cos({})": 1,
    "floor({})": 1,
    "sign({})": 1,
    "clamp({}, -1, 2)": 1,
    "f32({})": 1,
    "detach({})": 0.5,
    "rsqrt(1 + square({}))": 1,
    "hardtanh({})": 0.5,
    "elu({})": 0.5,
    "expm1({})": 0.5,
    "fmod({}, 2.5)": 0.4,
    "abs({}) ** 1.5": 0.4,
    "1.5 ** tanh({})": 0.4,
    "round({})": 0.5,
}
NAN = ("inf - inf", "0 * inf")  # of constants alone
INT_UNARY = {"abs({})": 2, "-{}": 2, "{} ** 2": 3, "i32({})": 2, "i64({})": 2, "sign({})": 1}
WHOLE = re.compile(r"[A-Za-z0-9_.]+$")


def par(text: str) -> str:
    """Puts text in parentheses if an operator or `else` could split it."""
    if WHOLE.match(text):
        return text
    depth = 0
    for k, c in enumerate(text):
        depth += c in "([" and 1 or c in ")]" and -1 or 0
        if depth == 0 and c in " -" or (depth == 0 and c in ")]" and k < len(text) - 1):
            return f"({text})"
    return text


# ---- index-free terms ---------------------------------------------------------------------------
def term(s: Sketch, sizes: list[str]) -> str:
    """Size arithmetic, of either sign."""
    a = s.random.choice(sizes)
    b = s.random.choice(sizes)
    forms = {
        "1": 3,
        "2": 1,
        f"{a} // 2": 2,
        f"(-{a} // 2)": 2,
        f"-(-{a} // 4)": 2,
        f"({a} - {b}) // 2": 3 if a != b else 0.1,
        f"({a} - {b}) % 3": 1,
        f"{a} - {b}": 2,
        f"{a} // -2": 2,
        f"(-{a}) // 3": 1,
        f"min({a}, {b})": 0,
        f"{a} % 2": 1,
        a: 1,
    }
    if s.consts and s.maybe(0.4):
        return s.random.choice(sorted(s.consts))
    return s.weighted(forms)


# ---- coordinates --------------------------------------------------------------------------------
def coordinate(s: Sketch, index: str, size: str, env: Env) -> tuple[str, bool]:
    """A coordinate of a dim of `size` by an index over it; whether the read needs an `else`."""
    off = term(s, s.sizes)
    forms: dict[tuple[str, bool], float] = {
        (f"{size} - 1 - {index}", False): 2,
        (f"{index} // 2", False): 1,
        (f"({index} + {par(off)}) % {size}", False): 2,
        (f"{index} + {par(off)}", True): 4,
        (f"{index} - {par(off)}", True): 3,
        (f"2 * {index} + {par(off)}", True): 1,
        (f"{index} // -2 + {par(off)}", True): 2,
        (f"({index} - {par(off)}) // 2", True): 1,
        (f"({index} + {par(off)}) / 2", True): 1,
        (f"{index} * {par(off)}", True): 1,
        (f"({index} - {par(off)}) % 3", True): 1,
    }
    others = [i for i in env if i not in (index, "...")]
    if others:
        other = s.random.choice(others)
        forms |= {
            (f"{index} + {other}", True): 2,
            (f"{index} - {other}", True): 2,
            (f"{index} - {other} + {par(off)}", True): 1,
        }
    if index != "...":
        where = s.tensor((size,), "int") if s.maybe(0.15) else None
        if where is not None:
            forms[f"{where.name}[{index}]", True] = 8
    return s.weighted(forms)


def read(s: Sketch, env: Env, kind: str = "float", odd: float = 0.12, whole: float = 0.6) -> str:
    """A read over some of the indices in force, or all."""
    chosen = list(env)
    if not s.maybe(whole) and len(chosen) > 1:
        chosen = [i for i in chosen if s.maybe(0.6)] or chosen[:1]
    if s.maybe(0.25):
        s.random.shuffle(chosen)
    if "..." in chosen:  # leading, as most are
        chosen.remove("...")
        chosen.insert(0, "...")
    alike = [t for t in s.tensors if t.kind == kind and set(t.dims) <= set(env.values())]
    # One with two dims of a size is read on its diagonal.
    whole_ones = [t for t in alike if t.dims and (len(set(t.dims)) == len(t.dims) or s.maybe(odd))]
    waiting = [t for t in whole_ones if t.made and t.name not in s.read]
    if whole_ones and s.maybe(0.9 if waiting else 0.4):
        found = s.random.choice(waiting or whole_ones)
        by_size = {n: i for i, n in reversed(env.items())}
        s.read.add(found.name)
        return place(s, found, [by_size[d] for d in found.dims], env, odd)
    again = s.maybe(odd / 2)
    if again:
        chosen = once_more(s, chosen)
    dims = [env[i] for i in chosen]
    at = None
    if s.maybe(odd / 2):  # one place of a dim that no index walks
        at = s.random.randrange("..." in chosen, len(chosen) + 1)
        dims.insert(at, s.size(0.5))
    found = s.tensor(tuple(dims), kind, 0.3 if again else 0.45)
    if at is None:
        return place(s, found, chosen, env, odd)
    chosen.insert(at, s.one("0", "1", f"{dims[at]} - 1"))
    return f"({found.name}[{', '.join(chosen)}]{outside(s, kind)})"


def once_more(s: Sketch, chosen: list[str]) -> list[str]:
    """A read with one index twice, at any place: `x[i, j, i]`."""
    plain = [i for i in chosen if i not in ("...", "0")]
    if not plain:
        return chosen
    at = s.random.randrange("..." in chosen, len(chosen) + 1)
    return [*chosen[:at], s.random.choice(plain), *chosen[at:]]


def place(s: Sketch, tensor: Known, chosen: list[str], env: Env, odd: float) -> str:
    """A read of the tensor by these indices, one of them perhaps moved."""
    if not chosen:
        return tensor.name
    coords, fill = list(chosen), ""
    free = [k for k, i in enumerate(chosen) if i not in ("...", "0")]
    if free and s.maybe(odd):
        k = s.random.choice(free)
        coords[k], leaves = coordinate(s, chosen[k], tensor.dims[k], env)
        fill = outside(s, tensor.kind) if leaves else ""
    text = f"{tensor.name}[{', '.join(coords)}]"
    return f"({text}{fill})" if fill else text


def outside(s: Sketch, kind: str) -> str:
    """The `else` value of a read."""
    if kind == "bool":
        return " else false"
    return f" else {s.one(1, -2, 0.1, 1e5)}" if kind == "float" and s.maybe(0.3) else " else 0"


# ---- values -------------------------------------------------------------------------------------
def number(s: Sketch, env: Env, depth: int = 2, odd: float = 0.12) -> str:
    """A float over the indices in use. The first read mostly has all of them."""
    if depth <= 0 or s.maybe(0.2):
        return leaf(s, env, odd)
    a = number(s, env, depth - 1, odd)
    choice = s.weighted({"unary": 4, "binary": 6, "where": 1.2, "macro": 0.5, "cast": 0.3})
    if choice == "unary":
        return s.weighted(UNARY).format(par(a))
    if choice == "macro":
        return f"{macro(s)}({a})"
    if choice == "cast":
        return f"{s.one('f32', 'T', 'f64')}({a})" if s.maybe(0.5) else f"f32({a})"
    if choice == "where":
        b = number(s, env, depth - 2, odd)
        return (
            f"where({condition(s, env)}, {s.one(a, a, a, '1.5')}, {s.one(b, b, '0', '-1', *NAN)})"
        )
    b = number(s, env, depth - 2, odd)
    form = s.weighted({"{} * {}": 6, "{} + {}": 5, "{} - {}": 3, "max": 1, "min": 1, "/": 1})
    if form in ("max", "min"):
        return f"{form}({a}, {b})"
    if form == "/":
        return f"{par(a)} / (1 + square({b}))"
    return form.format(par(a), par(b))


def leaf(s: Sketch, env: Env, odd: float) -> str:
    choice = s.weighted(
        {"read": 14, "literal": 1.2, "scalar": 0.8, "index": 0.8, "term": 0.8, "int": 0.8}
    )
    if choice == "literal":
        if s.maybe(0.1):
            return f"{s.one('T', 'bf16', 'f8e4m3')}({s.one('0.1', '-300.7', '1e5')})"
        return s.one("0.5", "2", "1.5", "-1", "3")
    if choice == "scalar":
        return s.scalar()
    if choice == "int" and env:
        return integer(s, env, 1)
    plain = [i for i in env if i not in ("...", "0")]
    if choice == "index" and plain:
        return s.random.choice(plain)
    if choice == "term" and s.sizes:
        return term(s, s.sizes)
    return read(s, env, "float", odd)


def integer(s: Sketch, env: Env, depth: int = 1) -> str:
    if depth <= 0:
        return read(s, env, "int", 0.08)
    a = integer(s, env, depth - 1)
    choice = s.weighted({"leaf": 3, "unary": 3, "binary": 4, "index": 1, "numbers": 0.5})
    plain = [i for i in env if i not in ("...", "0")]
    if choice == "unary":
        return s.weighted(INT_UNARY).format(par(a))
    if choice == "binary":
        b = s.one(integer(s, env, 0), "2", "-3", "7")
        return s.one(
            "{} * {}", "{} + {}", "{} - {}", "{} // -3", "{} % 5", "{} // 2", "{} % -4"
        ).format(par(a), par(b))
    if choice == "index" and plain:
        return f"{par(a)} + {s.random.choice(plain)}"
    if choice == "numbers":  # of which 32 bits hold no product
        one, other = (f"where({condition(s, env, 0)}, 100000, {n})" for n in (s.one(0, 3), -7))
        return f"{par(a)} + {one} * {other}"
    return a


def condition(s: Sketch, env: Env, depth: int = 1) -> str:
    plain = [i for i in env if i not in ("...", "0")]
    forms = {"compare": 4, "int": 1.5, "bool": 1.5}
    if plain:
        forms["index"] = 4
    if len(plain) > 1:
        forms["two"] = 3
    if depth:
        forms["both"] = 1
    choice = s.weighted(forms)
    if choice == "index":
        i = s.random.choice(plain)
        bound = term(s, s.sizes) if s.sizes else "2"
        return f"{i} {s.one('<', '>=', '<=', '>', '==')} {bound}"
    if choice == "two":
        i, j = s.random.sample(plain, 2)
        return f"{i} {s.one('<', '>=', '<=', '>', '==')} {j}{s.one('', '', ' + 1', ' - 1')}"
    if choice == "both":
        both = s.one("and", "or")
        return f"({condition(s, env, 0)}) {both} ({condition(s, env, 0)})"
    if choice == "bool":
        return s.one("", "", "not ") + read(s, env, "bool", 0.05)
    if choice == "int":
        return f"{read(s, env, 'int', 0.05)} {s.one('<', '==', '>=')} {s.one('1', '0', '2')}"
    return f"{read(s, env, 'float', 0.05)} {s.one('<', '>', '<=')} {s.one('0', '0.5', '1')}"


def macro(s: Sketch) -> str:
    """A macro of the file's own, or of the prelude."""
    if s.maybe(0.5):
        return s.one("mish", "softsign", "gelu_tanh", "hardswish", "selu", "tanhshrink")
    name = f"m{len(s.macros)}"
    body = s.one("a * sigmoid(a)", "max(a, 0) + 0.5 * a", "where(a > 0, a, a * 0.25)", "a * a - a")
    s.macros.append(f"fn {name}(a) = {body}")
    return name
