"""The emitted references: what the oracle says, without the room that all terms at once would take."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tritongen import lib, pipeline
from tritongen.proof.judge import judge
from tritongen.proof.oracle import expect
from tritongen.reference import reference_lines

INF, NAN = float("inf"), float("nan")


def reference(text: str):
    """The op, its reference and the text of that."""
    ((op,),) = pipeline.build(text, "<text>").ops.values()
    source = "\n".join(reference_lines(op))
    namespace = {"torch": torch, "lib": lib, "math": math}
    exec(source, namespace)
    return op, namespace[f"{op.name}_reference"], source


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def with_holes(x: torch.Tensor, *holes: tuple) -> torch.Tensor:
    for at, value in holes:
        x[at] = value
    return x


SPECS = {
    # Two operands, whatever else there is to multiply.
    "scaled": (
        "op f<T: float>(x: T[N, D], w: T[D], s: f32) -> y: T[N] {"
        "y[n] = sum[d](x[n, d] * w[d] * s * 2) }",
        lambda: {"x": normal(5, 7), "w": normal(7), "s": 1.5},
    ),
    "prologue": (
        "op f<T: float>(x: T[..., K], s: T[K], w: T[N, K]) -> y: T[..., N] {"
        "y[..., n] = sum[k](relu(x[..., k] * s[k]) * w[n, k]) }",
        lambda: {"x": normal(2, 3, 7), "s": normal(7), "w": normal(5, 7)},
    ),
    "bytes": (
        "op f(x: i8[N, D], w: i8[M, D]) -> y: i64[N, M] { y[n, m] = sum[d](x[n, d] * w[m, d]) }",
        lambda: {k: (100 * normal(n, 7)).to(torch.int8) for k, n in (("x", 5), ("w", 3))},
    ),
    # What every output leaves out is not there; what some leave out is 0 in one factor.
    "tails": (
        "op f<T: float>(p: T[B, I, J], v: T[B, J, E], n: i64[B]) -> y: T[B, I, E] {"
        "y[b, i, e] = sum[j < n[b]](p[b, i, j] * v[b, j, e]) }",
        lambda: {
            "p": normal(3, 4, 5),
            "v": with_holes(normal(3, 5, 2), ((0, slice(3, None)), NAN), ((1,), INF)),
            "n": torch.tensor([3, 0, 5]),
        },
    ),
    "one tail": (
        "op f<T: float>(p: T[I, J], v: T[J, E], n: i64[I]) -> y: T[I, E] {"
        "y[i, e] = sum[j < n[i]](p[i, j] * v[j, e]) }",
        lambda: {
            "p": with_holes(normal(3, 5), ((0, 4), NAN)),
            "v": with_holes(normal(5, 2), ((slice(3, None),), NAN)),
            "n": torch.tensor([3, 2, 3]),
        },
    ),
    "no tail of either": (
        "op f<T: float>(a: T[K], b: T[L]) -> y: T { y = sum[k, l < k](a[k] * b[l]) }",
        lambda: {"a": normal(4), "b": with_holes(normal(4), ((3,), NAN))},
    ),
    # Not c * sum(a): the sum of infinities of both signs is no number.
    "infinite": (
        "op f<T: float>(a: T[K], c: T[N]) -> y: T[N] { y[n] = sum[k](a[k] * c[n]) }",
        lambda: {"a": torch.tensor([1.0, -1.0, 2.0]), "c": torch.tensor([INF, 1.0])},
    ),
    "chain": (
        "op f<T: float>(a: T[M, K], b: T[K, L], c: T[L, N]) -> y: T[M, N] {"
        "y[m, n] = sum[k, l](a[m, k] * b[k, l] * c[l, n]) }",
        lambda: {
            "a": normal(4, 5),
            "b": normal(5, 6),
            "c": with_holes(normal(6, 3), ((2, 1), INF)),
        },
    ),
    # What a function is called with may be a number.
    "extremes of numbers": (
        "fn near(a) = max(a, 0) + min(a, 2)"
        " op f<T: float>(x: T[D]) -> y: T[D] { y[d] = near(0.5) * x[d] }",
        lambda: {"x": normal(7)},
    ),
    # Only one of the branches has the dim.
    "by a size": (
        "op f<T: float>(x: T[N, D], w: T[D]) -> y: T[N, D] {"
        "y[n, d] = x[n, d] / sum[k](where(D > 9, x[n, k] * w[k], 1)) }",
        lambda: {"x": normal(5, 7), "w": normal(7)},
    ),
    # Digits of an index, names that are taken, a dim of size 1.
    "groups": (
        "op f<T: float>(x: T[N, C, L], w: T[F, Cg, R], f1: T[F], n_2: T[N], p_block: T[N],"
        " const groups: int = 2) -> y: T[N, F, P]"
        " with C == groups * Cg, F % groups == 0, P = L - R + 1 {"
        "y[n, f, p] = n_2[n] + p_block[n] + f1[f]"
        " + sum[c, r](x[n, f // (F // groups) * Cg + c, p + r] * w[f, c, r]) }",
        lambda: {
            "x": normal(2, 6, 9),
            "w": normal(4, 3, 2),
            "f1": normal(4),
            "n_2": normal(2),
            "p_block": normal(2),
        },
    ),
    "window in a column": (
        "op f<T: float>(x: T[N, L], w: T[R]) -> y: T[N, 1] with L >= R {"
        "y[n, 0] = max[l < L - R + 1](sum[r](x[n, l + r] * w[r])) }",
        lambda: {"x": normal(2, 9), "w": normal(3)},
    ),
    "two of many terms": (
        "op f<T: float>(x: T[N, D], y: T[M, D]) -> z: T[N, M] {"
        "z[n, m] = sum[d](abs(x[n, d] - y[m, d])) / sum[e](abs(x[n, e]) * abs(y[m, e])) }",
        lambda: {"x": normal(9, 7), "y": normal(11, 7)},
    ),
    "prefix": (
        "op f<T: float>(x: T[N, D], w: T[D]) -> y: T[D, N] {"
        "y[d, n] = w[d] * sum[k <= d](x[n, k] * w[k]) + max[j < d](relu(x[n, j])) }",
        lambda: {"x": with_holes(normal(3, 5), ((1, 3), NAN), ((2, 2), INF)), "w": normal(5)},
    ),
    "suffix": (
        "op f(x: i32[N]) -> y: i64[N] {"
        "y[i] = sum[k >= i](x[k] * x[k]) + 2 * prod[k > i](x[k]) + min[k > i](x[k]) }",
        lambda: {"x": torch.tensor([3, -1, 4, 2], dtype=torch.int32)},
    ),
    # No term, no factor, where no kernel has one of another row: NaN * 0 is none either.
    "a factor of no term": (
        "op f<T: float>(s: T[M], x: T[K, N]) -> y: T[M, N] {"
        "y[m, n] = sum[n <= k <= m](s[m] * x[k, n]) }",
        lambda: {"s": with_holes(normal(5), ((2,), NAN)), "x": normal(5, 5)},
    ),
    "a vector beyond its bound": (
        "op f<T: float>(a: T[M, K], x: T[K]) -> y: T[M] { y[m] = sum[k <= m](a[m, k] * x[k]) }",
        lambda: {"a": normal(4, 5), "x": with_holes(normal(5), ((2,), INF))},
    ),
    "nothing below the first": (
        "op f<T: float>(x: T[N]) -> y: T[N] { y[i] = sum[k < i](x[k]) }",
        lambda: {"x": normal(6)},
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_says_what_the_oracle_says(name):
    text, draw = SPECS[name]
    op, function, source = reference(text)
    args = draw()
    calls = [args]
    for t in op.tensors:
        calls.append({k: v[:0] if k == t.name else v for k, v in args.items()})
    for call in calls:
        try:
            wanted = expect(op, call)
        except (ValueError, IndexError):
            continue  # no call: the sizes disagree
        (verdict,) = [judge(function(**call), e) for e in wanted.values()]
        assert verdict.ok, f"{verdict.detail}\n{source}"


class _Largest(TorchDispatchMode):
    """How many elements the largest result has that has storage of its own."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for t in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(t, torch.Tensor) and not t._is_view():
                self.elements = max(self.elements, t.untyped_storage().nbytes() // t.itemsize)
        return result


@pytest.mark.parametrize(
    "text, shapes, theirs",
    [
        (
            "op f<T: float>(x: T[N, D], c: T[K, D]) -> y: i64[N] {"
            "y[n] = argmin[k](sum[d]((x[n, d] - c[k, d]) ** 2)) }",
            {"x": (300, 64), "c": (100, 64)},
            lambda x, c: torch.cdist(x, c).argmin(1),
        ),
        (
            "op f<T: float>(x: T[N, C, L], w: T[F, C, R]) -> y: T[N, F, P] with P = L - R + 1 {"
            "y[n, f, p] = sum[c, r](x[n, c, p + r] * w[f, c, r]) }",
            {"x": (4, 32, 600), "w": (16, 32, 9)},
            lambda x, w: torch.nn.functional.conv1d(x, w),
        ),
        (
            "op f<T: float>(x: T[M, K], s: T[K], w: T[K, N]) -> y: T[M, N] {"
            "y[m, n] = sum[k](relu(x[m, k] * s[k]) * w[k, n]) }",
            {"x": (300, 200), "s": (200,), "w": (200, 300)},
            lambda x, s, w: (x * s).relu() @ w,
        ),
    ],
    ids=["distances", "window", "product"],
)
def test_has_no_room_for_all_terms_at_once(text, shapes, theirs):
    _, function, _ = reference(text)
    args = {name: normal(*shape) for name, shape in shapes.items()}
    with _Largest() as seen:
        got = function(**args)
    assert seen.elements <= 2**19
    torch.testing.assert_close(got, theirs(**args), rtol=1e-4, atol=1e-4)


def test_a_prefix_without_its_own_term_reads_no_further():
    """No sum has the last place's term, whose read of x[i + 1], or of x[N] in N + 1 sums, is outside."""
    x = torch.arange(1.0, 5)
    for body, size, wanted in (
        ("x[k] + (x[k + 1] else 0)", "N", [0, 3, 8, 15]),
        ("x[k]", "N + 1", [0, 1, 3, 6, 10]),
        ("x[k]", "N", [0, 1, 3, 6]),
    ):
        _, f, _ = reference(f"op f(x: f32[N]) -> y: f32[{size}] {{ y[i] = sum[k < i]({body}) }}")
        assert f(x).tolist() == wanted
        assert f(x[:1]).tolist() == [0, 1.0][: len(wanted) - 3]
        assert f(x[:0]).tolist() == [0.0][: len(wanted) - 4]


def test_a_result_is_no_view():
    for body in ("y[n, m] = x[n, m]", "y[m, n] = x[n, m]", "t[n, m] = x[n, m]\n y[n, m] = t[0, m]"):
        shape = "M, N" if body.startswith("y[m") else "N, M"
        head = f"op f<T: float>(x: T[N, M]) -> y: T[{shape}] with N >= 1"
        _, function, _ = reference(f"{head} {{ {body} }}")
        x = normal(2, 3)
        y = function(x)
        assert (
            y.is_contiguous() and y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        )


def test_a_fixed_place_of_a_dim_without_elements():
    _, run, _ = reference(
        "op f<T: float>(w: T[M], z: T[M, M]) -> g: T[M] { g[i] = w[i] * (z[0, i] else 0) }"
    )
    assert run(torch.empty(0), torch.empty(0, 0)).shape == (0,)


def test_a_bound_at_the_end_of_64_bits():
    op, run, _ = reference(
        "op f<T: float>(x: T[N], lo: i64[M]) -> y: T[M] { y[m] = sum[lo[m] <= k < N](x[k]) }"
    )
    args = {"x": torch.ones(3), "lo": torch.tensor([-(2**63), 2**63 - 1])}
    assert run(**args).tolist() == [3.0, 0.0]
    assert judge(run(**args), expect(op, args)["y"]).ok
