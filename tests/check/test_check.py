"""What the checker makes of the language, held against torch through the oracle, and its types."""

from time import process_time

import pytest
import torch

from tritongen import pipeline
from tritongen.check import check
from tritongen.errors import SpecError
from tritongen.ir.interp import run, run_rounded
from tritongen.ir.nodes import Call, Cast, Guard, IndexValue, Nest, Op, Read, Reduce, Require, walk
from tritongen.ir.print import print_op
from tritongen.runtime.load import load_text
from tritongen.syntax.parse import parse
from tritongen.syntax.ref import parse_ref, ref_python


def typed(text: str, number: int = 0) -> Op:
    return check(parse(text, "test.op"))[-1].typings[number]


def codes(text: str) -> list[str]:
    with pytest.raises(SpecError) as raised:
        check(parse(text, "test.op"))
    return [d.code for d in raised.value.diagnostics]


def body(op: Op, name: str = "y"):
    return next(n for n in op.nests if n.name == name).body


def nodes(op: Op, kind: type) -> list:
    return [e for nest in op.nests for e in walk(nest.body) if isinstance(e, kind)]


torch.manual_seed(0)
X = torch.randn(4, 5, dtype=torch.float64)
V = torch.randn(7, dtype=torch.float64)
IX = torch.tensor([2, 0, 6, -1, 9])
OFF = torch.tensor([0, 2, 2, 7])
F64 = "op f<T: float>"

LANGUAGE = {
    "slice": (
        F64 + "(x: T[N], w: T[M]) -> y: T[M] { y[i] = x[i] * w[i] }",
        {"x": V, "w": V[:3]},
        V[:3] ** 2,
    ),
    "pad": (
        F64 + "(x: T[N]) -> y: T[M] with M = N + 2 { y[i] = x[i - 1] else 0 }",
        {"x": V},
        torch.nn.functional.pad(V, (1, 1)),
    ),
    "concatenate": (
        F64 + "(x: T[A], z: T[B]) -> y: T[C] with C = A + B "
        "{ y[i] = where(i < A, x[i] else 0, z[i - A] else 0) }",
        {"x": V, "z": V[:2]},
        torch.cat([V, V[:2]]),
    ),
    "flip": (F64 + "(x: T[N]) -> y: T[N] { y[n] = x[N - 1 - n] }", {"x": V}, V.flip(0)),
    "roll": (
        F64 + "(x: T[N], const shift: int = 3) -> y: T[N] { y[n] = x[(n + shift) % N] }",
        {"x": V},
        torch.roll(V, -3),
    ),
    "gather": (
        F64 + "(x: T[N], ix: i64[M]) -> y: T[M] { y[m] = x[ix[m]] else 0 }",
        {"x": V, "ix": IX},
        torch.stack([V[2], V[0], V[6], torch.tensor(0.0), torch.tensor(0.0)]),
    ),
    "gather of rank 0": (
        F64 + "(x: T[N], z: T[N, D]) -> y: T[D] { at = argmax[n](x[n])  y[d] = z[at, d] else 0 }",
        {"x": V, "z": V[:, None] * V[:3]},
        (V[:, None] * V[:3])[V.argmax()],
    ),
    "scatter": (
        F64 + "(x: T[M], ix: i64[M], like: T[N]) -> y: T[N] "
        "{ y[n] = sum[m](where(ix[m] == n, x[m], 0)) + like[n] * 0 }",
        {"x": X[0], "ix": IX, "like": V},
        torch.stack([X[0, 1], V[0] * 0, X[0, 0], *[V[0] * 0] * 3, X[0, 2]]),
    ),
    "upsample": (
        F64 + "(x: T[N]) -> y: T[M] with M = 2 * N { y[m] = x[m / 2] else 0 }",
        {"x": V},
        torch.stack([V, torch.zeros_like(V)], 1).reshape(-1),
    ),
    "repeat": (
        F64 + "(x: T[N]) -> y: T[M] with M = 2 * N { y[m] = x[m // 2] }",
        {"x": V},
        V.repeat_interleave(2),
    ),
    "exclusive": (
        F64 + "(x: T[N]) -> y: T[N] { y[n] = sum[k < n](x[k]) }",
        {"x": V},
        torch.cumsum(V, 0) - V,
    ),
    "reverse": (
        F64 + "(x: T[N]) -> y: T[N] { y[n] = sum[k >= n](x[k]) }",
        {"x": V},
        torch.cumsum(V.flip(0), 0).flip(0),
    ),
    "running mean": (
        F64 + "(x: T[N]) -> y: T[N] { y[n] = mean[k <= n](x[k]) }",
        {"x": V},
        torch.cumsum(V, 0) / torch.arange(1, 8),
    ),
    "window": (
        F64 + "(x: T[N], const w: int = 3) -> y: T[N] { y[n] = sum[n - w < k <= n](x[k] else 0) }",
        {"x": V},
        torch.stack([V[max(0, i - 2) : i + 1].sum() for i in range(7)]),
    ),
    "causal convolution": (
        F64 + "(x: T[N], w: T[N]) -> y: T[N] { y[n] = sum[k <= n](x[n - k] * w[k]) }",
        {"x": V, "w": V},
        torch.stack([sum(V[i - k] * V[k] for k in range(i + 1)) for i in range(7)]),
    ),
    "segments": (
        F64 + "(x: T[N], off: i64[M]) -> y: T[S] with S = M - 1 "
        "{ y[s] = sum[off[s] <= k < off[s + 1]](x[k]) }",
        {"x": V, "off": OFF},
        torch.stack([V[a:b].sum() for a, b in zip(OFF, OFF[1:], strict=False)]),
    ),
    "segment means": (
        F64 + "(x: T[N], off: i64[M]) -> y: T[S] with S = M - 1 "
        "{ y[s] = mean[off[s] <= k < off[s + 1]](x[k]) }",
        {"x": V, "off": OFF},
        torch.stack([V[a:b].mean() for a, b in zip(OFF, OFF[1:], strict=False)]),
    ),
    "batch reduced": (
        F64 + "(x: T[N, ...], w: T[N]) -> y: T[N] { y[n] = mean[...](x[n, ...]) * w[n] }",
        {"x": X.reshape(4, 5, 1), "w": V[:4]},
        X.mean(1) * V[:4],
    ),
    "pointwise": (
        F64 + "(x: T[..., D], b: T[D], s: f32 = 2) -> y: T[..., D] "
        "{ t = x * s\n y = max(t + b, 0) }",
        {"x": X, "b": X[0]},
        torch.relu(2 * X + X[0]),
    ),
    "pointwise, dims of size 1": (
        F64 + "(x: T[M, N], b: T[M, 1]) -> y: T[M, N] { y = x * b }",
        {"x": X, "b": X[:, :1]},
        X * X[:, :1],
    ),
    "keepdim": (
        F64 + "(x: T[M, N]) -> y: T[M, 1] { y[m, 0] = sum[n](x[m, n]) }",
        {"x": X},
        X.sum(1, keepdim=True),
    ),
    "rank 0": (
        F64
        + "(x: T[M, N]) -> y: T { m = mean[i, j](x[i, j])\n y = sum[i, j]((x[i, j] - m) ** 2) }",
        {"x": X},
        ((X - X.mean()) ** 2).sum(),
    ),
    "argmax, two binders": (
        "op f<T: float>(x: T[M, N]) -> y: i64 { y = argmax[m, n](x[m, n]) }",
        {"x": X},
        X.argmax(),
    ),
    "argmax, its index's own value": (
        "op f<T: float>(x: T[M, N]) -> y: i64[M] { y[m] = argmax[2 <= n < 5](x[m, n]) }",
        {"x": X},
        X[:, 2:].argmax(1) + 2,
    ),
    "argmax over nothing": (
        "op f<T: float>(x: T[N], off: i64[S]) -> y: i64[S] "
        "{ y[s] = argmax[off[s] <= n < off[s] + 2](x[n]) }",
        {"x": V - torch.inf, "off": OFF},
        torch.tensor([0, 2, 2, -1]),
    ),
    "order of lines": (
        F64 + "(x: T[N]) -> y: T[N] { y[n] = t[n] + 1\n t[n] = x[n] * 2 }",
        {"x": V},
        2 * V + 1,
    ),
    "macro": (
        "fn scale(x, by = 2, plus = 0) = x * by + plus\n"
        + F64
        + "(x: T[N]) -> y: T[N] { y[by] = scale(scale(x[by]), plus = 1) }",
        {"x": V},
        8 * V + 1 + 0 * V - 4 * V,
    ),
    "ops call ops": (
        "op twice<U: float>(x: U[..., D], const by: int = 2) -> y: U[..., D] "
        "{ t[..., d] = x[..., d] * by\n y[..., d] = t[..., d] }\n"
        + F64
        + "(x: T[M, N], t: T[N]) -> y: T[M, N] { y = twice(softmax(x * t), by = 3) + t }",
        {"x": X, "t": X[0]},
        3 * torch.softmax(X * X[0], -1) + X[0],
    ),
    "an op called on broadcast batches": (
        "op dot<U: float>(a: U[..., K], b: U[..., K]) -> y: U[...] "
        "{ y[...] = sum[k](a[..., k] * b[..., k]) }\n"
        + F64
        + "(x: T[L, M, N], w: T[M, N]) -> y: T[L, M] { y = dot(x, w) }",
        {"x": torch.stack([X, X + 1]), "w": X},
        (torch.stack([X, X + 1]) * X).sum(-1),
    ),
    "hand-written order of and, not": (
        "op f(x: f64[N], b: bool[N]) -> y: bool[N] { y[n] = not b[n] and x[n] > 0 or n == 0 }",
        {"x": V, "b": V > 1},
        ~(V > 1) & (V > 0) | (torch.arange(7) == 0),
    ),
}


@pytest.mark.parametrize("name", LANGUAGE)
def test_the_language_means_what_torch_means(name):
    text, args, expected = LANGUAGE[name]
    op = typed(text)
    torch.testing.assert_close(
        run(op, args)["y"], expected, rtol=1e-6, atol=1e-9, equal_nan=True, check_dtype=False
    )


I8 = torch.tensor([100, -128, 127, 5], dtype=torch.int8)
U8 = torch.tensor([200, 1, 255, 5], dtype=torch.uint8)
I32 = torch.tensor([7, -7, 2, 0], dtype=torch.int32)
B = torch.tensor([True, False, True, True])
ARGS = {"a": I8, "u": U8, "i": I32, "b": B, "x": torch.tensor([1.5, -2.0, 0.25, 3.0])}
SIGNATURE = "(a: i8[N], u: u8[N], i: i32[N], b: bool[N], x: f32[N], like: f64[N])"


@pytest.mark.parametrize(
    "expression, expected, dtype",
    [
        ("a[n] + 1", lambda a, **_: a + 1, "i8"),
        ("a[n] + 1.5", lambda a, **_: a + 1.5, "f64"),
        ("a[n] + u[n]", lambda a, u, **_: a + u, "i16"),
        ("a[n] * i[n]", lambda a, i, **_: a * i, "i32"),
        ("i[n] // 2 + i[n] % 3", lambda i, **_: i // 2 + i % 3, "i32"),
        ("i[n] / 2", lambda i, **_: i / 2, "f64"),
        ("i[n] + n", lambda i, **_: i + torch.arange(4), "i64"),
        ("b[n] + b[n]", lambda b, **_: b + b, "bool"),
        ("b[n] + 1", lambda b, **_: b + 1, "i64"),
        ("b[n] * x[n]", lambda b, x, **_: b * x, "f64"),
        ("i[n] > 0.5", lambda i, **_: i > 0.5, "bool"),
        ("where(b[n], i[n], 0)", lambda b, i, **_: torch.where(b, i, 0), "i32"),
        ("sum[k](i[k]) + 0 * n", lambda i, **_: i.sum() + 0 * i.long(), "i64"),
        ("any[k](i[k] > 5) and b[n]", lambda i, b, **_: (i > 5).any() & b, "bool"),
        ("exp(i[n])", lambda i, **_: torch.exp(i), "f64"),
        ("x[n] ** 2 - 2 ** 3", lambda x, **_: x**2 - 8, "f64"),
        ("i8(i[n])", lambda i, **_: i.to(torch.int8), "i8"),
        ("N - n", lambda i, **_: 4 - torch.arange(4), "i64"),
    ],
)
def test_dtypes_are_those_of_torch(expression, expected, dtype):
    """`y` has the dtype that torch gives, so the store casts nothing, or is refused."""
    used = [p for p in ("a", "u", "i", "b", "x") if f"{p}[" in expression]
    params = ", ".join(
        f"{p}: {d}[N]"
        for p, d in zip("auibx", ("i8", "u8", "i32", "bool", "f64"), strict=True)
        if p in used
    )
    op = typed(f"op f({params or 'i: i32[N]'}) -> y: {dtype}[N] {{ y[n] = {expression} }}")
    args = {p.name: ARGS[p.name] for p in op.tensors}
    args = {name: v.double() if name == "x" else v for name, v in args.items()}
    want = expected(**args)
    got = run_rounded(op, args)["y"]
    torch.testing.assert_close(got, want, check_dtype=dtype != "f64", rtol=1e-6, atol=1e-6)


def test_reading_an_output_reads_its_rounded_value():
    op = typed(
        "op f<T: float>(x: T[N]) -> (y: T[N], z: T[N]) { y[n] = x[n] / 3\n z[n] = y[n] * 3 }"
    )
    assert [r.dtype for r in nodes(op, Read)] == ["T", "T"]
    y = body(op, "z")
    assert isinstance(y, Cast) and isinstance(y.arg, Call) and isinstance(y.arg.args[0], Cast)
    # a temporary keeps its compute type
    op = typed("op f<T: float>(x: T[N]) -> y: T[N] { t[n] = x[n] / 3\n y[n] = t[n] * T(t[n]) }")
    assert op.nests[0].dtype == "compute" and nodes(op, Read)[1].dtype == "compute"
    assert Cast(Cast(nodes(op, Read)[1], "T"), "compute") in nodes(op, Cast)


def test_one_op_for_each_kind():
    (found,) = check(parse("op f<T: float | i8>(x: T[N]) -> y: T[N] { y[n] = x[n] + 1 }", "t.op"))
    assert [op.typarams[0].kind for op in found.typings] == ["float", "int"]
    assert found.typings[1].typarams[0].dtypes == ("i8",)
    assert body(found.typings[1]).dtype == "T"


# ---- bounds and guards --------------------------------------------------------------------------
def requirements(text: str) -> list[tuple[str, str]]:
    return [(r.text.split(" (")[0], r.origin) for r in typed(text).requires]


def test_what_sizes_decide_is_left_to_the_wrapper():
    assert requirements(F64 + "(x: T[N, D]) -> y: T[N] { y[n] = mean[k < 5](x[n, k]) }") == [
        ("D >= 5", "bounds")
    ]
    assert requirements(F64 + "(x: T[N], w: T[M]) -> y: T { y = sum[k](x[k] * w[k]) }") == [
        ("N == M", "agree")
    ]
    assert requirements(F64 + "(x: T[N], w: T[M]) -> y: T[M] { y[m] = x[m] * w[m] }") == [
        ("N >= M", "bounds")
    ]


def test_a_requirement_is_never_stricter_than_the_read():
    # p and p % 2 stand in one coordinate: no end of the box decides, so `else` is asked for
    text = F64 + "(x: T[N]) -> y: T[M] with M = N { y[p] = x[p + p % 2] }"
    assert codes(text) == ["E401"]


def test_a_fill_that_nothing_needs_is_dropped():
    op = typed(F64 + "(x: T[N]) -> y: T[N] { y[n] = (x[n] else 0) + (x[N - 1 - n] else 7) }")
    assert [r.fill for r in nodes(op, Read)] == [None, None]
    op = typed(F64 + "(x: T[N]) -> y: T[N] { y[n] = x[n + 1] else -inf }")
    assert nodes(op, Read)[0].fill == float("-inf")


def test_a_where_around_a_term_is_a_guard():
    head = "op f<T: float>(x: T[N], ix: i64[N]) -> y: T[N] "
    op = typed(head + "{ y[v] = sum[n](where(ix[n] == v and n > v, x[n], 0)) }")
    (total,) = nodes(op, Reduce)
    assert [g.op for g in total.guards] == ["==", ">="] and isinstance(total.body, Cast)
    op = typed(head + "{ y[v] = sum[n](where(ix[n] != v, x[n], 0)) }")
    assert nodes(op, Reduce)[0].guards == () and nodes(op, Call)[0].fn == "where"


def test_the_count_of_a_mean_has_a_closed_form_where_it_can():
    op = typed(F64 + "(x: T[N]) -> y: T[N] { y[n] = mean[k <= n](x[k]) }")
    assert [str(v.poly) for v in nodes(op, IndexValue)] == ["n + 1"]
    (total,) = nodes(op, Reduce)
    assert isinstance(total.guards[0], Guard) and str(total.guards[0].poly) == "n - k"


def test_a_called_op_without_padding_needs_no_else():
    op = typed(
        F64 + "(x: T[N, C, H, W], w: T[F, C, R, S], b: T[F]) -> y: T[N, F, P, Q]"
        " with P = H - R + 1, Q = W - S + 1 { y = relu(conv2d(x, w, b)) }"
    )
    read = next(r for r in nodes(op, Read) if r.tensor == "x")
    assert read.fill is None and [str(c) for c in read.coords] == ["n", "c", "p + r", "q + s"]
    assert op.requires == () and [n.name for n in op.nests] == ["conv2d", "y"]
    assert op.precision == ""  # of convolutions torch's switch decides


@pytest.mark.parametrize(
    "value, precision",
    [
        ("group_norm(mix(x, w), b, b)", "ieee"),  # the sums of a norm are no products
        ("channel_softmax(mix(x, w))", "ieee"),
        ("mix(linear(x, v, c), w)", ""),  # the two disagree: each as torch's switch says
    ],
)
def test_precision_is_that_of_the_products_called(value, precision):
    mix = (
        "op mix<T: float>(x: T[N, C, L], w: T[F, C]) -> y: T[N, F, L] {\n"
        "  y[n, f, l] = sum[c](x[n, c, l] * w[f, c])\n  precision ieee\n}\n"
    )
    more = {"group": ", b: T[F]", "linear": ", v: T[L, L], c: T[L]"}
    given = "".join(text for name, text in more.items() if name in value)
    head = f"(x: T[N, C, L], w: T[F, C]{given}) -> y: T[N, F, L]"
    called, op = check(parse(f"{mix}{F64}{head} {{ y = {value} }}", "f.op"))
    assert called.typings[0].precision == "ieee" and op.typings[0].precision == precision


def test_a_called_op_names_its_derived_sizes():
    text = (
        F64 + "(x: T[N, C, H, W]) -> y: T[N, C] { t = max_pool2d(x, win = 3)\n"
        " y[n, c] = mean[p, q](t[n, c, p, q]) }"
    )
    assert [d.name for d in typed(text).defines] == ["P", "Q"]


def test_a_chain_has_the_composition_of_its_refs():
    op = typed(
        F64 + "(x: T[M, K], w: T[N, K], b: T[N], gain: T[N]) -> y: T[M, N]"
        " { h = group_norm(linear(relu(x), w, b), gain, b, groups = 2)\n"
        " y = mish(softmax(h) * 2) + K }"
    )
    args = {"x": X, "w": X[:4] + 1, "b": X[:, 0], "gain": X[:, 1]}
    *steps, last = ref_python(parse_ref(op.ref)).split("\n")
    names = {"torch": torch, **args}
    exec("\n".join(steps), names)
    torch.testing.assert_close(run(op, args)["y"], eval(last, names), rtol=1e-6, atol=1e-9)


def test_a_macro_computes_a_reducer_once():
    op = typed(
        F64 + "(x: T[M, K], w: T[N, K]) -> y: T[M, N] { y[m, n] = gelu(sum[k](x[m, k] * w[n, k])) }"
    )
    assert [n.name for n in op.nests] == ["gelu_x", "y"] and len(nodes(op, Reduce)) == 1


def test_a_hand_written_gradient_is_for_floats():
    text = "op f<T: float | int>(x: T[N]) -> y: T[N] { y[n] = x[n] + 1 grad { dx[n] = dy[n] } }"
    (found,) = check(parse(text, "t.op"))
    assert isinstance(found.typings[0].gradient, tuple) and found.typings[1].gradient == "none"


@pytest.mark.parametrize(
    "body",
    [
        " + ".join(["mish(x[n])"] * 100),
        "mish(" * 30 + "x[n]" + ")" * 30,
        "x[(" + " + ".join(f"n // {k}" for k in range(2, 60)) + ") % N]",
        "sum[i < N, j < N, k < N](x[n * N * N + i * N + j * k // N] else 0)",
    ],
)
def test_a_hostile_line_is_answered_at_once(body):
    start = process_time()
    try:
        check(parse(F64 + f"(x: T[N]) -> y: T[N] {{ y[n] = {body} }}", "t.op"))
    except SpecError:
        pass
    assert process_time() - start < 2


def test_gradients_by_hand_see_everything_above():
    op = typed(
        F64 + "(x: T[N], s: f32) -> y: T[N] { t[n] = exp(x[n])\n y[n] = t[n] * s\n"
        " grad { dx[n] = dy[n] * t[n] * s\n ds = sum[n](dy[n] * t[n]) } }"
    )
    assert [n.name for n in op.gradient] == ["dx", "ds"]
    assert all(isinstance(n, Nest) for n in op.gradient)


def test_independent_errors_come_together():
    text = (
        F64 + "(x: T[N], unused: T[N]) -> y: T[N] { a[n] = x[n] * x[n + 1]\n b[n] = foo(x[n])\n"
        " y[n] = a[n] + b[n] + x[n, n] }"
    )
    assert sorted(codes(text)) == ["E113", "E201", "E401"]


def test_requirements_are_facts_for_what_follows():
    op = typed(
        F64 + "(x: T[N, D]) -> (y: T[N], z: T[N])"
        " { y[n] = sum[k < 4](x[n, k])\n z[n] = x[n, 3] }"
    )
    assert len([f for f in op.facts if isinstance(f, Require)]) == 1


def test_an_argmax_without_a_bound_asks_for_a_term():
    """Over an empty dim torch raises; over an empty bound argmax is -1."""
    text = "op f<T: float>(x: T[N]) -> y: i64 { y = argmax[n%s](x[n]) }"
    whole, bounded = (typed(text % bound) for bound in ("", " < N"))
    assert run(bounded, {"x": V[:0]})["y"] == -1
    with pytest.raises(ValueError, match="requires N > 0 .argmax over `n`.: 0 <= 0"):
        run(whole, {"x": V[:0]})
    for op in (whole, bounded):
        assert print_op(typed(print_op(op))) == print_op(op)


@pytest.mark.parametrize("op", ["sum", "prod", "mean", "max", "min"])
def test_a_range_of_constants_that_ends_before_it_starts_is_refused_at_the_call(op):
    """A mean was refused, and the others were what they are of no terms, or failed in `torch.arange`."""
    text = "op f(x: f32[D], const a: int, const b: int) -> y: f32 { y = %s[a <= k < b](x[k]) }"
    with pytest.raises(ValueError, match="requires b - a >= 0: -1 < 0"):
        run(typed(text % op), {"x": torch.ones(4), "a": 2, "b": 1})


def test_an_argmax_over_a_part_of_a_dim_refuses_places_beyond_32_bits():
    op = typed("op f(x: i8[D]) -> i: i64 { i = argmax[d >= 1](x[d]) }")
    x = torch.zeros(1, dtype=torch.int8).expand(2**31)
    with pytest.raises(ValueError, match=r"requires D < 2\*\*31 .argmax over a part of `d`."):
        run(op, {"x": x})


def test_a_where_says_no_more_than_the_range_of_its_index():
    """As a bound does, so that the op prints the same once it is read back."""
    asked = "where(k >= -N // 2 and k >= i - 3, x[k], 0)"
    op = typed(f"op f(x: f32[N]) -> y: f32[N] {{ y[i] = sum[k]({asked}) }}")
    assert "sum[k >= i - 3](x[k])" in print_op(op)


def test_an_argmax_over_batch_dims_asks_those_that_it_reads_for_a_term():
    """What is empty in the op, and not where it is taken, is nothing to refuse."""
    text = "op f<T: float>(x: T[..., D], z: T[..., D]) -> y: T[..., D] { p[d] = argmin[...](x[..., d])\n y[..., d] = z[..., d] * x[..., d] * p[d] }"
    built = pipeline.build(text, "f.op")
    module = load_text(built.name, built.raw)
    empty, one = torch.ones(0, 3), torch.ones(1, 3)
    op = typed(text)
    assert module.f(one, empty).shape == run(op, {"x": one, "z": empty})["y"].shape == (0, 3)
    says = "f: requires ... > 0 .argmin over `...` of `x`.: 0 <= 0"
    for call in (lambda: module.f(empty, one), lambda: run(op, {"x": empty, "z": one})):
        with pytest.raises(ValueError, match=says):
            call()
    # An op that calls it asks what its own dims are.
    caller = "op g<T: float>(x: T[...]) -> y: i64 { y = argmax[...](x[...]) } op f<T: float>(x: T[N]) -> y: i64 { y = g(x) }"
    with pytest.raises(ValueError, match="requires N > 0: 0 <= 0"):
        run(typed(caller), {"x": V[:0]})


def test_a_division_in_the_end_of_a_range_is_exact():
    """A count of 2.5 terms is none: the call is refused, as for a size; of an index, where it divides."""
    text = (
        F64
        + "(x: T[N]) -> (y: T, z: T[N], w: T[M]) with M = N / 2 { y = sum[k < N / 2](x[k])\n z[n] = sum[k < n / 2](x[k])\n h[n < N / 2] = x[2 * n]\n w[n] = h[n] }"
    )
    built = pipeline.build(text, "f.op")
    for call in (load_text(built.name, built.raw).f, lambda x: run(typed(text), {"x": x}).values()):
        y, z, w = call(V[:6])
        assert y == V[:3].sum() and torch.equal(w, V[:6:2])
        assert torch.equal(z[::2], torch.stack([0 * V[0], V[0], V[:2].sum()])) and not z[1::2].any()
        with pytest.raises(ValueError, match="f: size M = N / 2 is not a whole number"):
            call(V[:5])
    with pytest.raises(ValueError, match="requires N % 2 == 0 .for `N / 2`.: 1 != 0"):
        run(typed(F64 + "(x: T[N]) -> y: T { y = sum[N / 2 <= k < N](x[k]) }"), {"x": V})


def test_a_literal_fits_the_one_dtype_of_a_type_parameter():
    text = "op f<I: u8>(x: I[N]) -> y: I[N] {{ y[i] = max(x[i], {0}) + (x[i - 1] else {0}) }}"
    x = torch.tensor([3, 255], dtype=torch.uint8)
    assert run(typed(text.format(200)), {"x": x})["y"].tolist() == [144, 2]
    assert codes(text.format(-1)) == ["E302", "E403"]
