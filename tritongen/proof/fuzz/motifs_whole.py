"""Motifs of whole tensors: lines without indices, `...` between named dims, calls of ops and chains."""

from __future__ import annotations

from tritongen.proof.fuzz.expressions import macro, par
from tritongen.proof.fuzz.motifs import FOLDS
from tritongen.proof.fuzz.sketch import Known, Left, Sketch


def flat(s: Sketch) -> None:
    """A line without indices: operands broadcast from the right."""
    dims = s.one((), ("...",), s.sizes_apart(1), s.sizes_apart(2), s.sizes_apart(3))
    x = s.tensor(dims) if dims else s.tensor(s.sizes_apart(1))
    dims = x.dims
    text = x.name
    for _ in range(s.weighted({1: 3, 2: 4, 3: 2})):
        text = _step(s, text, dims)
    s.add("flat", None, text, dims=dims)


def _step(s: Sketch, text: str, dims: tuple[str, ...]) -> str:
    choice = s.weighted({"unary": 4, "binary": 5, "scalar": 2, "where": 1, "macro": 1})
    if choice == "unary":
        return (
            s.one("relu", "tanh", "sigmoid", "exp", "square", "silu", "gelu", "abs", "sin")
            + f"({text})"
        )
    if choice == "macro":
        return f"{macro(s)}({text})"
    if choice == "scalar":
        return f"{par(text)} {s.one('*', '+', '-')} {s.one(s.scalar(), '2', '0.5')}"
    other = s.tensor(dims[s.random.randrange(len(dims)) :] if dims and s.maybe(0.4) else dims).name
    if choice == "where":
        return f"where({other} > 0, {text}, {other})"
    return f"{par(text)} {s.one('*', '+', '-')} {other}"


# ---- dots ---------------------------------------------------------------------------------------
def dots(s: Sketch) -> None:
    """`...` anywhere: behind a named dim, before one, between two; operands of different ranks."""
    a, b = s.sizes_apart(2)
    shapes = {
        (a, "..."): 4,
        ("...", a): 2,
        (a, "...", b): 2,
        (a, b, "..."): 2,
        ("...",): 1,
    }
    dims = s.weighted(shapes)
    first, second = Sketch.operand(s, dims), s.operand(dims)
    i, j = s.indices(2)
    by_size = {a: i, b: j, "...": "..."}
    at = [by_size[d] for d in dims]
    if s.maybe(0.25) and dims == (a, "..."):  # the other one batches on the other side
        second = s.operand(("...", b))
        body = f"{first.name}[{i}, ...] * {second.name}[..., {j}]"
        s.add("dots", [Left(i, a), Left("...", "..."), Left(j, b)], body)
        return
    if s.maybe(0.4):
        s.add("dots", None, f"{first.name} {s.one('+', '*', '-')} {second.name}", dims=dims)
        return
    where = ", ".join(at)
    if len(dims) > 1 and s.maybe(0.45):
        op = s.weighted(FOLDS)
        gone = s.random.choice(at)
        kept = [(i, d) for i, d in zip(at, dims, strict=True) if i != gone]
        mu = s.add("dots", [Left(*p) for p in kept], f"{op}[{gone}]({first.name}[{where}])")
        if s.maybe(0.6):
            s.read.add(mu.name)
            inner = ", ".join(i for i, _ in kept)
            body = f"({first.name}[{where}] - {mu.name}[{inner}]) * {second.name}[{where}]"
            s.add("dots", [Left(*p) for p in zip(at, dims, strict=True)], body)
        else:
            s.read.discard(second.name)
            s.tensors.remove(second)
        return
    body = f"{first.name}[{where}] {s.one('+', '*', '-')} {second.name}[{where}]"
    s.add("dots", [Left(*p) for p in zip(at, dims, strict=True)], body)


# ---- calls --------------------------------------------------------------------------------------
def chain(s: Sketch) -> None:
    """Ops of the prelude over rows, multiplied, added, one inside the other."""
    dims = s.one(("...", s.size()), s.sizes_apart(2))
    x = s.tensor(dims, dtype="T")
    parts = [_rows(s, x.name, dims[-1])]
    if s.maybe(0.3):
        parts[0] = _rows(s, parts[0], dims[-1])
    if s.maybe(0.5):
        parts.append(_rows(s, s.tensor(dims, dtype="T", reuse=0.3).name, dims[-1]))
    if s.maybe(0.4):
        parts[0] = f"{s.one('square', 'silu', 'tanh', 'exp')}({parts[0]})"
    text = f" {s.one('*', '+', '-')} ".join(parts)
    s.add("chain", None, text, dims=dims)


def _rows(s: Sketch, x: str, size: str) -> str:
    form = s.one("softmax", "log_softmax", "rms_norm", "rms_norm", "layer_norm")
    gain = s.tensor((size,), dtype="T").name if "norm" in form else ""
    if form == "rms_norm":
        return f"rms_norm({x}, {gain})"
    if form == "layer_norm":
        return f"layer_norm({x}, {gain}, {s.tensor((size,), dtype='T').name})"
    return f"{form}({x})"


def call(s: Sketch) -> None:
    """Products, convolutions and norms of the prelude, with what is around them."""
    m, n, k = s.sizes_apart(3)
    form = s.one("linear", "matmul", "bmm", "own", "own", "group_norm", "conv", "pool")
    before = s.one("{}", "{}", "relu({})", "silu({})")
    after = s.one("{}", "{}", "gelu({})", "relu({})", "tanh({})")
    dims: tuple[str, ...]
    if form == "linear":
        lead: tuple[str, ...] = s.one(("...",), (m,))
        x, w, b = (
            s.tensor((*lead, k), dtype="T"),
            s.tensor((n, k), dtype="T", reuse=0.2),
            s.tensor((n,), dtype="T"),
        )
        text, dims = f"linear({before.format(x.name)}, {w.name}, {b.name})", (*lead, n)
    elif form == "matmul":
        x, w = s.tensor((m, k), dtype="T"), s.tensor((k, n), dtype="T", reuse=0.2)
        text, dims = f"matmul({before.format(x.name)}, {w.name})", (m, n)
    elif form == "bmm":
        b_ = s.size(0.8)
        x, w = s.tensor((b_, m, k), dtype="T", reuse=0.2), s.tensor(
            (b_, k, n), dtype="T", reuse=0.2
        )
        text, dims = f"bmm({x.name}, {w.name})", (b_, m, n)
    elif form == "own":
        text, dims = own(s, s.tensor((m, n), dtype="T"))
    elif form == "group_norm":
        x, g, b = (
            s.tensor((m, n, "..."), dtype="T", reuse=0.2),
            s.tensor((n,), dtype="T"),
            s.tensor((n,), dtype="T"),
        )
        text, dims = f"group_norm({x.name}, {g.name}, {b.name}, groups = 2)", (m, n, "...")
        s.require(f"{n} % 2 == 0")
    elif form == "conv":
        x, w, b = (
            s.tensor((m, n, s.size(1.0)), dtype="T", reuse=0.1),
            s.tensor((k, n, s.size(1.0)), dtype="T", reuse=0.1),
            s.tensor((k,), dtype="T"),
        )
        span = f"{x.dims[2]} + 2 - ({w.dims[2]} - 1) - 1"
        out = s.define(f"({span}) // 1 + 1")
        text, dims = f"conv1d({x.name}, {w.name}, {b.name}, pad = 1)", (m, k, out)
    else:
        x = s.tensor((m, n, s.size(1.0)), dtype="T", reuse=0.1)
        out = s.define(f"({x.dims[2]} - 2) // 2 + 1")
        text, dims = f"{s.one('max', 'avg')}_pool1d({x.name})", (m, n, out)
    s.add("call", None, after.format(text), dims=dims)


def own(s: Sketch, x: Known) -> tuple[str, tuple[str, ...]]:
    """An op of the file."""
    name = f"own{len(s.ops)}"
    body = s.one(
        "y[n, d] = x[n, d] / (1 + sum[k](abs(x[n, k])))",
        "y[n, d] = sum[k <= d](x[n, k])",
        "y = tanh(x) * x",
        "y[n, d] = x[n, d] - mean[k](x[k, d])",
        "y[n, d] = x[n, D - 1 - d]",
    )
    s.ops.append(f"op {name}<T: float>(x: T[N, D]) -> y: T[N, D] {{\n  {body}\n}}")
    inside = f"{name}({x.name})"
    return (f"{name}({inside})" if s.maybe(0.2) else inside), x.dims
