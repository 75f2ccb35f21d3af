"""What language.md says, one small spec a sentence, with the answer written in torch by hand.

    python -m tests.check.language_cases            # the kernels, in Triton's interpreter; a line for each that is wrong

Nothing here asks the compiler what a spec means: oracle, reference and kernels come from one IR, so what the checker
misreads they all agree on. `test_language.py` runs these cases.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True, slots=True)
class Case:
    """One op, a call of it, and what it gives; `spec` may hold macros and further ops before it."""

    name: str
    spec: str
    args: Callable[[], tuple]
    wanted: Callable[..., Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    tol: float = 1e-5


CASES: list[Case] = []


def case(
    name: str,
    spec: str,
    args: Callable[[], tuple],
    wanted: Callable[..., Any],
    tol: float = 1e-5,
    **kwargs: Any,
) -> None:
    CASES.append(Case(name, spec, args, wanted, kwargs, tol))


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Fresh numbers, the same in each process."""
    generator = torch.Generator().manual_seed(sum(shape) * 7919 + len(shape))
    if dtype.is_floating_point:
        return torch.randn(*shape, generator=generator).to(dtype)
    return torch.randint(-9, 10, shape, generator=generator).to(dtype)


def one(shape: tuple[int, ...], *more: tuple[int, ...]) -> Callable[[], tuple]:
    return lambda: tuple(draw(*s) for s in (shape, *more))


# ---- floor division -------------------------------------------------------------------------------
case(
    "minus a size halved, odd",
    "op f<T: float>(x: T[A]) -> y: T[A] { y[i] = x[i + -A // 2] else 0 }",
    one((7,)),
    lambda x: F.pad(x, (4, 0))[:7],
)
case(
    "centre crop of the larger",
    "op f<T: float>(x: T[A], z: T[B]) -> y: T[B] { y[i] = (x[i + (A - B) // 2] else 0) + z[i] }",
    one((4,), (9,)),
    lambda x, z: F.pad(x, (3, 2)) + z,
)
case(
    "a size as a value, floored",
    "op f<T: float>(x: T[A]) -> y: T[A] { y[i] = x[i] * (-A // 2) }",
    one((5,)),
    lambda x: x * -3,
)
case(
    "a ceiling as a bound",
    "op f<T: float>(x: T[N]) -> y: T[P] with P = -(-N // 4) { y[p] = sum[r < 4](x[4 * p + r] else 0) }",
    one((9,)),
    lambda x: F.pad(x, (0, 3)).view(3, 4).sum(1),
)
case(
    "a condition on a ceiling",
    "op f<T: float>(x: T[N]) -> y: T[N] { y[n] = where(n < -(-N // 4), x[n], 0) }",
    one((9,)),
    lambda x: torch.cat([x[:3], torch.zeros(6)]),
)
case(
    "a negative divisor of an index",
    "op f<T: float>(x: T[A]) -> y: T[A] { y[i] = x[i // -2 + 4] else 0 }",
    one((9,)),
    lambda x: x[torch.arange(9) // -2 + 4],
)
case(
    "a negative divisor of values",
    "op f<T: int>(a: T[N], b: T[N]) -> (q: T[N], r: T[N]) { q[n] = a[n] // b[n] r[n] = a[n] % b[n] }",
    lambda: (torch.tensor([7, -7, 7, -7]), torch.tensor([2, 2, -2, -2])),
    lambda a, b: (a // b, a % b),
)
case(
    "modulo of a negative sum",
    "op f<T: float>(x: T[D], const s: int = 3) -> y: T[D] { y[i] = x[(i - s) % D] }",
    one((5,)),
    lambda x: torch.roll(x, 3),
)
case(
    "a mean's window before the start",
    "op f<T: float>(x: T[N, L], const win: int = 2) -> y: T[N, L] { y[n, i] = mean[k < win](x[n, i - k] else 0) }",
    one((1, 4)),
    lambda x: (x + F.pad(x, (1, 0))[:, :-1]) / 2,
)

# ---- `...` ----------------------------------------------------------------------------------------
case(
    "... behind a named dim",
    "op f<T: float>(x: T[N, ...], t: T[N, ...]) -> y: T[N, ...] { y[n, ...] = x[n, ...] + t[n, ...] }",
    one((5, 3), (5, 2, 3)),
    lambda x, t: x[:, None] + t,
)
case(
    "... behind a named dim, without indices",
    "op f<T: float>(x: T[N, ...], t: T[N, ...]) -> y: T[N, ...] { y = x + t }",
    one((5, 3), (5, 2, 3)),
    lambda x, t: x[:, None] + t,
)
case(
    "... on both sides of a name",
    "op f<T: float>(x: T[A, ...], t: T[..., A]) -> y: T[A, ...] { y[a, ...] = x[a, ...] * t[..., a] }",
    one((4, 3), (2, 3, 4)),
    lambda x, t: x[:, None] * t.permute(2, 0, 1),
)
case(
    "... between names",
    "op f<T: float>(x: T[N, ..., D], w: T[D]) -> y: T[N, ..., D] { y[n, ..., d] = x[n, ..., d] * w[d] }",
    one((2, 3, 4, 5), (5,)),
    lambda x, w: x * w,
)
case(
    "a reducer's ... is that of what it reads",
    "op f<T: float>(x: T[...], t: T[...]) -> y: T[...] { s = sum[...](x[...])  y[...] = t[...] + s }",
    one((3,), (2, 3)),
    lambda x, t: t + x.sum(),
)
case(
    "... of rank 0",
    "op f<T: float>(x: T[..., D]) -> y: T[...] { y[...] = max[d](x[..., d]) }",
    one((4,)),
    lambda x: x.max(),
)
case(
    "batch dims of size 1 and missing",
    "op f<T: float>(x: T[..., D], t: T[..., D]) -> y: T[..., D] { y[..., d] = x[..., d] - t[..., d] }",
    one((2, 1, 4), (3, 4)),
    lambda x, t: x - t,
)
case(
    "mean over ... between names",
    "op f<T: float>(x: T[N, ..., C]) -> y: T[N, C] { y[n, c] = mean[...](x[n, ..., c]) }",
    one((2, 3, 4, 5)),
    lambda x: x.mean((1, 2)),
)
case(
    "... in a centred line",
    "op f<T: float>(x: T[...]) -> y: T[...] { m = mean[...](x[...])  y[...] = x[...] - m }",
    one((2, 3)),
    lambda x: x - x.mean(),
)

# ---- ranges ---------------------------------------------------------------------------------------
case(
    "a range from a read without else",
    "op f<T: float>(x: T[N, L], w: T[N]) -> y: T[N] { h[n, l] = x[n, l] * 2  y[n] = sum[l](h[n, l]) * w[n] }",
    one((3, 4), (3,)),
    lambda x, w: x.sum(1) * 2 * w,
)
case(
    "a range from padded reads that agree",
    "op f<T: float>(x: T[N]) -> y: T { h[n] = (x[n] else 0) * 2  y = sum[n](h[n]) }",
    one((5,)),
    lambda x: 2 * x.sum(),
)
case(
    "a convolution's channels need no bound",
    "op f<T: float>(x: T[N, C, H, W], w: T[F, C, R, S]) -> y: T[N, F]"
    " with P = H - R + 1, Q = W - S + 1 {"
    " a[n, f, p < P, q < Q] = sum[c, r, s]((x[n, c, p + r, q + s] else 0) * w[f, c, r, s])  y[n, f] = max[p, q](a[n, f, p, q]) }",
    one((2, 3, 5, 5), (4, 3, 2, 2)),
    lambda x, w: F.conv2d(x, w).amax((2, 3)),
    tol=1e-4,
)
case(
    "an output slices",
    "op f<T: float>(x: T[N], z: T[M]) -> y: T[M] with M <= N { y[i] = x[i] + z[i] }",
    one((5,), (3,)),
    lambda x, z: x[:3] + z,
)
case(
    "an output pads on the right",
    "op f<T: float>(x: T[N, D]) -> y: T[N, P] with P = D + 2 { y[n, i] = x[n, i] else 0 }",
    one((2, 3)),
    lambda x: F.pad(x, (0, 2)),
)
case(
    "two reads concatenated",
    "op f<T: float>(x: T[N, A], z: T[N, B]) -> y: T[N, P] with P = A + B { y[n, i] = where(i < A, x[n, i] else 0, z[n, i - A] else 0) }",
    one((2, 3), (2, 2)),
    lambda x, z: torch.cat([x, z], 1),
)
case(
    "a dim of 1 is written 0",
    "op f<T: float>(x: T[M, N]) -> y: T[M, 1] { y[m, 0] = sum[n](x[m, n]) }",
    one((3, 4)),
    lambda x: x.sum(1, keepdim=True),
)
case(
    "a range from a read in a condition",
    "op f<T: float>(x: T[N], keep: bool[M], w: T[M]) -> y: T { y = sum[m](where(keep[m], w[m], 0)) + sum[n](x[n]) }",
    lambda: (draw(3), torch.tensor([True, False]), draw(2)),
    lambda x, keep, w: (w * keep).sum() + x.sum(),
)
case(
    "a size by the index's name is no range",
    "op f<T: float>(x: T[N, P], const win: int = 2) -> y: T[N] { h[n, p < P // win] = x[n, p * win]  y[n] = sum[p](h[n, p]) }",
    one((2, 7)),
    lambda x: x[:, :6:2].sum(1),
)

# ---- reducers -------------------------------------------------------------------------------------
case(
    "argmax gives the index itself",
    "op f<T: float>(x: T[N, D]) -> i: i64[N] { i[n] = argmax[2 <= k < 6](x[n, k]) }",
    one((4, 8)),
    lambda x: x[:, 2:6].argmax(1) + 2,
)
case(
    "argmin from an outer index on",
    "op f<T: float>(x: T[D]) -> i: i64[D] { i[d] = argmin[k >= d](x[k]) }",
    one((6,)),
    lambda x: torch.stack([x[d:].argmin() + d for d in range(6)]),
)
case(
    "argmax over nothing is -1",
    "op f<T: float>(x: T[D]) -> i: i64[D] { i[d] = argmax[k < d](x[k]) }",
    one((5,)),
    lambda x: torch.tensor([-1, *(int(x[:d].argmax()) for d in range(1, 5))]),
)
case(
    "argmax of a bound read from an operand",
    "op f<T: float>(x: T[N, D], lo: i64[N]) -> i: i64[N] { i[n] = argmax[k >= lo[n]](x[n, k]) }",
    lambda: (draw(3, 5), torch.tensor([0, 2, 9])),
    lambda x, lo: torch.tensor([int(x[0].argmax()), int(x[1, 2:].argmax()) + 2, -1]),
)
case(
    "argmax of two indices, row-major",
    "op f<T: float>(x: T[A, B]) -> i: i64 { i = argmax[a, b](x[a, b]) }",
    one((3, 4)),
    lambda x: x.argmax(),
)
case(
    "argmax takes the first NaN",
    "op f<T: float>(x: T[D]) -> i: i64 { i = argmax[d](x[d]) }",
    lambda: (torch.tensor([1.0, NAN, 5.0, NAN]),),
    lambda x: torch.tensor(1),
)
case(
    "argmax is ready to subscript with",
    "op f<T: float>(x: T[N, D]) -> y: T[N] { i[n] = argmax[1 <= d < 4](x[n, d])  y[n] = x[n, i[n]] else 0 }",
    one((3, 6)),
    lambda x: x[:, 1:4].amax(1),
)
case(
    "argmax in a where, in the general nest",
    "op f<T: float>(x: T[A]) -> y: i64[A] { y[i] = where(i < A - 1, argmax[k > i](x[k]), 0) }",
    one((5,)),
    lambda x: torch.tensor([*(int(x[i + 1 :].argmax()) + i + 1 for i in range(4)), 0]),
)
case(
    "over nothing",
    "op f<T: float>(x: T[D]) -> (s: T[D], p: T[D], hi: T[D], lo: T[D], m: T[D]) {"
    " s[d] = sum[k < d](x[k]) p[d] = prod[k < d](x[k]) hi[d] = max[k < d](x[k]) lo[d] = min[k < d](x[k]) m[d] = mean[k < d](x[k]) }",
    lambda: (torch.tensor([2.0, 3.0]),),
    lambda x: tuple(torch.tensor(v) for v in ([0.0, 2], [1.0, 2], [-INF, 2], [INF, 2], [NAN, 2])),
)
case(
    "any and all over nothing",
    "op f(x: bool[D]) -> (a: bool[D], b: bool[D]) { a[d] = any[k < d](x[k])  b[d] = all[k < d](x[k]) }",
    lambda: (torch.tensor([True, False]),),
    lambda x: (torch.tensor([False, True]), torch.tensor([True, True])),
)
case(
    "max of ints over nothing",
    "op f(x: i32[D]) -> y: i32[D] { y[d] = max[k < d](x[k]) }",
    lambda: (torch.tensor([5, 6], dtype=torch.int32),),
    lambda x: torch.tensor([-(2**31), 5], dtype=torch.int32),
)
case(
    "a segment",
    "op f<T: float>(x: T[K], lo: i64[S], hi: i64[S]) -> y: T[S] { y[s] = sum[lo[s] <= k < hi[s]](x[k]) }",
    lambda: (draw(6), torch.tensor([0, 4, -3]), torch.tensor([2, 99, 1])),
    lambda x, lo, hi: torch.stack([x[:2].sum(), x[4:].sum(), x[:1].sum()]),
)
case(
    "a tail that is not there",
    "op f<T: float>(p: T[B, I, J], v: T[B, J, E], n: i64[B]) -> o: T[B, I, E] { o[b, i, e] = sum[j < n[b]](p[b, i, j] * v[b, j, e]) }",
    lambda: (
        torch.cat([draw(2, 3, 4), torch.full((2, 3, 2), NAN)], 2),
        torch.cat([draw(2, 4, 5), torch.full((2, 2, 5), NAN)], 1),
        torch.tensor([4, 2]),
    ),
    lambda p, v, n: torch.stack([p[0, :, :4] @ v[0, :4], p[1, :, :2] @ v[1, :2]]),
    tol=1e-4,
)
case(
    "rows past a bound hold NaN",
    "op f<T: float>(x: T[N, D], n: i64[N]) -> y: T[N] { y[i] = sum[d < n[i]](x[i, d]) / max[d < n[i]](x[i, d]) }",
    lambda: (torch.tensor([[1.0, 2, NAN], [4, NAN, NAN]]), torch.tensor([2, 1])),
    lambda x, n: torch.tensor([1.5, 1.0]),
)
case(
    "a shared tail of one factor",
    "op f<T: float>(a: T[M, K], b: T[K, N], const stop: int = 2) -> y: T[M, N] { y[m, n] = sum[k < stop](a[m, k] * b[k, n]) }",
    lambda: (torch.tensor([[1.0, 2, NAN]]), torch.tensor([[3.0], [4], [INF]])),
    lambda a, b: torch.tensor([[11.0]]),
)
case(
    "mean divides by the terms inside",
    "op f<T: float>(x: T[N]) -> y: T[N] { y[i] = mean[i <= k < i + 2](x[k] else 0) }",
    one((4,)),
    lambda x: (x + F.pad(x, (0, 1))[1:]) / 2,
)
case(
    "several binders, bounds that name each other",
    "op f<T: float>(x: T[N, N]) -> y: T { y = sum[i, j < i](x[i, j]) }",
    one((4, 4)),
    lambda x: x.tril(-1).sum(),
)

# ---- types ----------------------------------------------------------------------------------------
I8 = torch.int8
case(
    "a square widens under a sum",
    "op f(a: i8[N, D]) -> y: i64[N] { y[n] = sum[d](a[n, d] ** 2) }",
    lambda: (torch.tensor([[100, -100, 7]], dtype=I8),),
    lambda a: torch.tensor([20049]),
)
case(
    "a product widens under a sum",
    "op f(a: i8[N, D]) -> y: i64[N] { y[n] = sum[d](a[n, d] * a[n, d]) }",
    lambda: (torch.tensor([[100, -100, 7]], dtype=I8),),
    lambda a: torch.tensor([20049]),
)
case(
    "a temporary keeps its wrap",
    "op f(a: i8[N]) -> y: i64 { t[n] = a[n] * a[n]  y = sum[n](t[n]) }",
    lambda: (torch.tensor([100, 3], dtype=I8),),
    lambda a: (a * a).sum(),
)
case(
    "a sum of differences of u8 widens",
    "op f(q: u8[N]) -> y: i64 { y = sum[n](q[n] - 8) }",
    lambda: (torch.tensor([0, 9], dtype=torch.uint8),),
    lambda q: torch.tensor(-7),
)
case(
    "elsewhere integers wrap",
    "op f(q: u8[N]) -> y: u8[N] { y[n] = q[n] - 8 }",
    lambda: (torch.tensor([0, 9], dtype=torch.uint8),),
    lambda q: q - 8,
)
case(
    "i32 sums are i64",
    "op f(a: i32[N]) -> y: i64 { y = sum[n](a[n]) }",
    lambda: (torch.tensor([2**31 - 1, 2**31 - 1], dtype=torch.int32),),
    lambda a: a.sum(),
)
case(
    "a type parameter's default",
    "op f<U: f16 | f32 = f16>(x: f32[N]) -> y: U[N] { y[n] = x[n] }",
    one((3,)),
    lambda x: x.half(),
)
case(
    "a type parameter by keyword",
    "op f<U: f16 | f32>(x: f32[N]) -> y: U[N] { y[n] = x[n] }",
    one((3,)),
    lambda x: x.half(),
    U=torch.float16,
)
case(
    "a type parameter in a cast",
    "op f<T: float, U: i32 | i64 = i32>(x: T[N]) -> y: U[N] { y[n] = U(round(x[n])) }",
    one((5,)),
    lambda x: x.round().to(torch.int32),
)
case(
    "comparisons give bool",
    "op f<T: float>(x: T[N]) -> y: bool[N] { y[n] = x[n] > 0 and not isnan(x[n]) }",
    one((4,)),
    lambda x: x > 0,
)
case(
    "division gives floats",
    "op f(a: i64[N], b: i64[N]) -> y: f32[N] { y[n] = a[n] / b[n] }",
    lambda: (torch.tensor([7, -7]), torch.tensor([2, 2])),
    lambda a, b: a / b,
)
case(
    "NaN goes through max",
    "op f<T: float>(x: T[N, D]) -> y: T[N] { y[n] = max(max[d](x[n, d]), 0) }",
    lambda: (torch.tensor([[1.0, NAN], [-1, -2]]),),
    lambda x: torch.tensor([NAN, 0.0]),
)
case(
    "half types round once",
    "op f(x: f16[N], w: f16[N]) -> y: f16[N] { y[n] = x[n] * w[n] + x[n] * 3 }",
    lambda: (draw(9, dtype=torch.float16), draw(9, dtype=torch.float16) + 1),
    lambda x, w: (x.float() * w.float() + x.float() * 3).half(),
)
case(
    "an output is read rounded",
    "op f(x: f32[N]) -> (h: f16[N], y: f32[N]) { h[n] = x[n] * 0.1  y[n] = h[n] * 10 }",
    one((5,)),
    lambda x: ((x * 0.1).half(), (x * 0.1).half().float() * 10),
)
case(
    "a scalar keeps its digits in f64",
    "op f<T: float>(x: T[N], s: f32) -> y: T[N] { y[n] = x[n] * s }",
    lambda: (draw(3, dtype=torch.float64), 1 / 3),
    lambda x, s: x * s,
    tol=1e-15,
)

# ---- reads ----------------------------------------------------------------------------------------
case(
    "coordinates and bounds count beyond what a u8 holds",
    """op f<T: float>(x: T[N, M], g: u8[N]) -> y: T[N] {
      y[n] = sum[k <= g[n] + 3](x[n, k]) + (x[n, g[n] - 3] else 0) + (x[n, 2 * g[n]] else 0)
    }""",
    lambda: (draw(3, 300), torch.tensor([0, 129, 254], dtype=torch.uint8)),
    lambda x, g: torch.stack(
        [
            x[0, :4].sum() + x[0, 0],
            x[1, :133].sum() + x[1, 126] + x[1, 258],
            x[2, :258].sum() + x[2, 251],
        ]
    ),
)
case(
    "a gather outside reads its else",
    "op f<T: float>(t: T[V, D], i: i64[N]) -> y: T[N, D] { y[n, d] = t[i[n], d] else -1 }",
    lambda: (draw(3, 2), torch.tensor([2, -1, 3])),
    lambda t, i: torch.stack([t[2], -torch.ones(2), -torch.ones(2)]),
)
case(
    "exact division",
    "op f<T: float>(x: T[L], w: T[R], const s: int = 2) -> y: T[P] with P = (L - 1) * s + R { y[p] = sum[r]((x[(p - r) / s] else 0) * w[r]) }",
    one((4,), (3,)),
    lambda x, w: F.conv_transpose1d(x[None, None], w[None, None], stride=2)[0, 0],
    tol=1e-4,
)
case(
    "max_pool with -inf outside",
    "op f<T: float>(x: T[N, L]) -> y: T[N, P] with P = L // 2 + 1 { y[n, p] = max[r < 2](x[n, 2 * p + r - 1] else -inf) }",
    one((2, 6)),
    lambda x: F.max_pool1d(x, 2, 2, 1),
)
case(
    "a flip",
    "op f<T: float>(x: T[N]) -> y: T[N] { y[n] = x[N - 1 - n] }",
    one((5,)),
    lambda x: x.flip(0),
)
case(
    "the diagonal",
    "op f<T: float>(x: T[N, N]) -> y: T[N] { y[n] = x[n, n] }",
    one((4, 4)),
    lambda x: x.diagonal(),
)

# ---- names ----------------------------------------------------------------------------------------
case(
    "functions and clauses as operands",
    "op f<T: float>(cos: T[N], sin: T[N], tol: f32, ref: T[N]) -> y: T[N] { y[n] = cos[n] * tol + sin[n] * exp(ref[n]) }",
    lambda: (draw(3), draw(3) + 1, 2.0, draw(3) * 0.5),
    lambda c, s, tol, r: c * tol + s * r.exp(),
)
for _size in (
    "PARTS_POW2",
    "LAG",
    "PER_THREAD",
    "MERGE",
    "STAGES",
    "RUN",
    "BLOCK",
    "BLOCK_M",
    "PRECISION",
    "COMPUTE",
):
    case(
        f"a size called {_size}",
        f"op f<T: float>(x: T[N, {_size}], w: T[{_size}]) -> y: T[N, {_size}] {{ y[n, d] = x[n, d] * w[d] - max[k](x[n, k]) / {_size} }}",
        one((3, 5), (5,)),
        lambda x, w: x * w - x.amax(1, keepdim=True) / 5,
    )
case(
    "operands called as Python's functions",
    "op f<T: float>(print: T[N], len: T[N], range: T[N], math: T[N]) -> y: T[N] { y[n] = print[n] + len[n] * range[n] - math[n] }",
    one((3,), (3,), (3,), (3,)),
    lambda a, b, c, d: a + b * c - d,
)
case(
    "an op beside another's two passes",
    "op a<T: float>(x: T[..., D]) -> y: T[..., D] { y = softmax(x) }\nop a_two_pass<T: float>(x: T[..., D]) -> y: T[..., D] { y = log_softmax(x) }",
    one((3, 5)),
    lambda x: x.log_softmax(-1),
)

# ---- ops people need ------------------------------------------------------------------------------
case(
    "rope",
    "op f<T: float>(x: T[B, S, H, E], cos: T[S, K], sin: T[S, K]) -> y: T[B, S, H, E] with E == 2 * K {"
    " y[b, s, h, e] = x[b, s, h, e] * cos[s, e % K] + where(e < K, -1, 1) * x[b, s, h, (e + K) % E] * sin[s, e % K] }",
    one((2, 3, 2, 4), (3, 2), (3, 2)),
    lambda x, c, s: x * torch.cat([c, c], -1)[None, :, None]
    + torch.cat([-x[..., 2:], x[..., :2]], -1) * torch.cat([s, s], -1)[None, :, None],
)
case(
    "grouped queries",
    "op f<T: float>(q: T[B, H, S, E], k: T[B, G, L, E]) -> y: T[B, H, S, L] with H % G == 0 { y[b, h, i, j] = sum[e](q[b, h, i, e] * k[b, h // (H // G), j, e]) }",
    one((1, 4, 3, 8), (1, 2, 5, 8)),
    lambda q, k: q @ k.repeat_interleave(2, 1).mT,
    tol=1e-4,
)
case(
    "paged decode",
    "op f<T: float>(q: T[B, E], cache: T[P, S, E], table: i64[B, G], n: i64[B]) -> y: T[B, L] with L = G * S {"
    " y[b, l] = where(l < n[b], sum[e](q[b, e] * (cache[table[b, l // S], l % S, e] else 0)), 0) }",
    lambda: (draw(2, 4), draw(3, 2, 4), torch.tensor([[2, 0], [1, 1]]), torch.tensor([3, 4])),
    lambda q, c, t, n: torch.stack(
        [torch.where(torch.arange(4) < n[b], c[t[b]].reshape(4, 4) @ q[b], 0) for b in range(2)]
    ),
    tol=1e-4,
)
case(
    "int4 weights with group scales",
    "op f(x: f32[M, K], w: u8[N, H], s: f32[N, G], const group: int = 4) -> y: f32[M, N] with K == 2 * H, K == group * G {"
    " y[m, n] = sum[k](x[m, k] * (f32(bit_and(shift_right(w[n, k // 2], 4 * (k % 2)), 15)) - 8) * s[n, k // group]) }",
    lambda: (
        draw(2, 8),
        torch.tensor([[0x12, 0x34, 0x56, 0x78], [0x9A, 0xBC, 0xDE, 0xF0]], dtype=torch.uint8),
        draw(2, 2),
    ),
    lambda x, w, s: x
    @ ((torch.stack([w & 15, w >> 4], -1).view(2, 8).float() - 8) * s.repeat_interleave(4, 1)).mT,
    tol=1e-4,
)
case(
    "experts by a gather",
    "op f<T: float>(x: T[N, D], w: T[X, F, D], e: i64[N]) -> y: T[N, F] { y[n, f] = sum[d](x[n, d] * (w[e[n], f, d] else 0)) }",
    lambda: (draw(3, 4), draw(2, 5, 4), torch.tensor([1, 0, 1])),
    lambda x, w, e: torch.einsum("nd,nfd->nf", x, w[e]),
    tol=1e-4,
)
case(
    "adamw",
    "op f(p: f32[...], g: f32[...], m: f32[...], v: f32[...], lr: f32, b1: f32 = 0.9, b2: f32 = 0.99, eps: f32 = 1e-8, wd: f32 = 0.1) -> (q: f32[...], m1: f32[...], v1: f32[...]) {"
    " m1 = b1 * m + (1 - b1) * g  v1 = b2 * v + (1 - b2) * g * g  q = p * (1 - lr * wd) - lr * m1 / (sqrt(v1) + eps) }",
    lambda: (draw(5), draw(5) + 1, draw(5), draw(5).abs(), 0.1),
    lambda p, g, m, v, lr: (
        (p * (1 - lr * 0.1) - lr * (0.9 * m + 0.1 * g) / ((0.99 * v + 0.01 * g * g).sqrt() + 1e-8)),
        0.9 * m + 0.1 * g,
        0.99 * v + 0.01 * g * g,
    ),
    tol=1e-4,
)
case(
    "focal loss",
    "op f<T: float>(x: T[N], t: T[N], gamma: f32 = 2.0) -> y: T { p[n] = sigmoid(x[n])  q[n] = where(t[n] > 0.5, p[n], 1 - p[n])  y = mean[n](-((1 - q[n]) ** gamma) * log(q[n])) }",
    lambda: (draw(6), (draw(6) > 0).float()),
    lambda x, t: (lambda q: (-((1 - q) ** 2) * q.log()).mean())(
        torch.where(t > 0.5, x.sigmoid(), 1 - x.sigmoid())
    ),
)
case(
    "a sum into bins",
    "op f<T: float>(x: T[N, D], b: i64[N], like: T[B, D]) -> y: T[B, D] { y[v, d] = like[v, d] + sum[n](where(b[n] == v, x[n, d], 0)) }",
    lambda: (draw(4, 2), torch.tensor([0, 2, 0, 7]), torch.zeros(3, 2)),
    lambda x, b, like: torch.stack([x[0] + x[2], torch.zeros(2), x[1]]),
)
case(
    "nearest centres",
    "op f<T: float>(x: T[N, D], c: T[K, D]) -> i: i64[N] { d[n, k] = sum[e]((x[n, e] - c[k, e]) ** 2)  i[n] = argmin[k](d[n, k]) }",
    one((6, 3), (4, 3)),
    lambda x, c: torch.cdist(x, c).argmin(1),
)
case(
    "a causal softmax",
    "op f<T: float>(s: T[B, I, J]) -> y: T[B, I, J] { m[b, i] = max[j <= i](s[b, i, j])  y[b, i, j] = where(j <= i, exp(s[b, i, j] - m[b, i]) / sum[k <= i](exp(s[b, i, k] - m[b, i])), 0) }",
    one((2, 4, 4)),
    lambda s: s.masked_fill(torch.ones(4, 4).triu(1).bool(), -INF).softmax(-1),
)
case(
    "a chain of ops",
    "op f<T: float>(x: T[N, C, H, W], w: T[F, C, R, S], b: T[F], g: T[F], h: T[F]) -> y: T[N, F, H, W] { y = silu(group_norm(conv2d(x, w, b, pad = 1), g, h, groups = 2)) }",
    one((1, 2, 4, 4), (4, 2, 3, 3), (4,), (4,), (4,)),
    lambda x, w, b, g, h: F.silu(F.group_norm(F.conv2d(x, w, b, padding=1), 2, g, h)),
    tol=1e-3,
)
case(
    "block scales",
    "op f<T: float>(a: T[M, K], b: T[K, N], s: f32[G, N], const block: int = 4) -> y: T[M, N] with G == -(-K // block) { y[m, n] = sum[k](a[m, k] * b[k, n] * s[k // block, n]) }",
    one((3, 6), (6, 2), (2, 2)),
    lambda a, b, s: a @ (b * s.repeat_interleave(4, 0)[:6]),
    tol=1e-4,
)


# ---- casts, promotion, empty dims, words of one line ------------------------------------------------
def ints(*values: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


case(
    "a cast to a half type rounds",
    "op f(x: f32[N]) -> (y: f32[N], z: bf16[N]) { y[n] = f32(f16(x[n]))  z[n] = bf16(f16(x[n])) }",
    lambda: (torch.tensor([1.003, 70000.0, 1e-8]),),
    lambda x: (x.half().float(), x.half().bfloat16()),
)
case(
    "a cast to a narrower integer wraps",
    "op f(x: i64[N]) -> (y: i32[N], z: i64[N]) { y[n] = i32(i8(i32(x[n])))  z[n] = i64(u8(x[n])) + i64(bool(x[n])) }",
    lambda: (ints(300, -1, 0),),
    lambda x: (x.to(torch.int8).int(), x.to(torch.uint8).long() + x.bool()),
)
case(
    "a called op's last cast rounds",
    "op narrow<U: float>(x: f32[N]) -> y: U[N] { y[n] = U(x[n]) }\n"
    "op f(x: f32[N]) -> y: f32[N] { y = 2 * narrow(x, U = f16) }",
    lambda: (torch.tensor([1.003, 3e-5]),),
    lambda x: 2 * x.half().float(),
)
case(
    "nothing is rounded between ops",
    "op square2<T: float>(x: T[N]) -> y: T[N] { y[n] = x[n] * x[n] }\n"
    "op f<T: float>(x: T[N]) -> y: T[N] { y = 3 * square2(x) }",
    lambda: (torch.tensor([1.003, 7.77]).half(),),
    lambda x: (3 * x.float() * x.float()).half(),
    tol=0,
)
case(
    "sizes are weak, indices are i64",
    "op f(a: i8[N]) -> (y: i8[N], z: i64[N]) { y[n] = a[n] + N  z[n] = a[n] + n + 100 }",
    lambda: (ints(126, 127, -128, dtype=torch.int8),),
    lambda a: (a + 3, a.long() + torch.arange(3) + 100),
)
case(
    "i8 and u8 meet in i16",
    "op f(a: i8[N], b: u8[N]) -> y: i16[N] { y[n] = a[n] * b[n] }",
    lambda: (ints(-128, 127, dtype=torch.int8), ints(255, 200, dtype=torch.uint8)),
    lambda a, b: a * b,
)
case(
    "products of integers widen under prod",
    "op f(a: i8[N]) -> y: i64 { y = prod[n](a[n]) }",
    lambda: (ints(100, 100, -3, dtype=torch.int8),),
    lambda a: a.long().prod(),
)
case(
    "a mean of integers, and of bools",
    "op f(a: u8[N], b: bool[N]) -> (y: f32, z: f32) { y = mean[n](a[n])  z = mean[n](b[n]) }",
    lambda: (ints(255, 255, 3, dtype=torch.uint8), torch.tensor([True, False, True])),
    lambda a, b: (a.float().mean(), b.float().mean()),
)
case(
    "any and all of numbers",
    "op f<T: float>(x: T[N, D]) -> (a: bool[N], b: bool[N]) { a[n] = any[d](x[n, d])  b[n] = all[d](x[n, d]) }",
    lambda: (torch.tensor([[0.0, NAN], [0.0, -0.0], [1.0, 2.0]]),),
    lambda x: (x.bool().any(1), x.bool().all(1)),
)
case(
    "a sum of halves is added up in f32",
    "op f(x: f16[N]) -> y: f16 { y = sum[n](x[n]) / 4 }",
    lambda: (torch.full((5000,), 1.0).half(),),
    lambda x: torch.tensor(1250.0).half(),
)
case(
    "bounds from operands are clipped, in means too",
    "op f<T: float>(x: T[N, D], lo: i64[N], hi: i64[N]) -> (m: T[N], i: i64[N]) {"
    " m[n] = mean[lo[n] <= k < hi[n]](x[n, k])  i[n] = argmin[lo[n] < k <= hi[n]](x[n, k]) }",
    lambda: (draw(3, 4), ints(-5, 1, 3), ints(99, 3, 2)),
    lambda x, lo, hi: (
        torch.stack([x[0].mean(), x[1, 1:3].mean(), torch.tensor(NAN)]),
        torch.stack([x[0].argmin(), x[1, 2:4].argmin() + 2, torch.tensor(-1)]),
    ),
)
case(
    "sums over an empty dim",
    "op f<T: float>(x: T[N, D]) -> (s: T[N], p: T[N], m: T[N], h: T[N]) {"
    " s[n] = sum[d](x[n, d])  p[n] = prod[d](x[n, d])  m[n] = mean[d](x[n, d])  h[n] = max[d < D](x[n, d]) }",
    one((2, 0)),
    lambda x: (x.sum(1), x.prod(1), x.mean(1), torch.full((2,), -INF)),
)
case(
    "an empty batch",
    "op f<T: float>(x: T[..., D]) -> (y: T[..., D], i: i64[...]) { y[..., d] = x[..., d] * 2  i[...] = argmax[d](x[..., d]) }",
    one((0, 3)),
    lambda x: (x * 2, x.argmax(1)),
)
case(
    "... of no dims at all",
    "op f<T: float>(x: T[...], w: T[D]) -> (s: T, y: T[..., D]) { s = sum[...](x[...])  y[..., d] = x[...] * w[d] }",
    lambda: (torch.tensor(3.0), draw(3)),
    lambda x, w: (x, x * w),
)
case(
    "lines without indices broadcast from the right",
    "op f<T: float>(x: T[M, N], b: T[N]) -> y: T[M, N] { c = max(b, 0)  r[m] = sum[n](x[m, n])  z[m, 0] = r[m]  y = x * c + z }",
    one((2, 3), (3,)),
    lambda x, b: x * b.relu() + x.sum(1, keepdim=True),
)
case(
    "lines in any order",
    "op f<T: float>(x: T[N]) -> y: T[N] { y[n] = t[n] + 1  t[n] = x[n] * 2 }",
    one((3,)),
    lambda x: x * 2 + 1,
)
case(
    "a reverse sum, an exclusive one",
    "op f<T: float>(x: T[N]) -> (a: T[N], b: T[N], c: T[N]) {"
    " a[i] = sum[k >= i](x[k])  b[i] = sum[k < i](x[k])  c[i] = sum[k > i](x[k]) }",
    one((5,)),
    lambda x: (x.flip(0).cumsum(0).flip(0), x.cumsum(0) - x, x.sum() - x.cumsum(0)),
)
case(
    "facts by earlier facts, min and max",
    "op f<T: float>(x: T[N]) -> y: T[Q] with P = max(N - 2, 1), Q = min(2 * P, N) { y[q] = x[q] }",
    one((5,)),
    lambda x: x[:5],
)
case(
    "a size that only an expression has",
    "op f<T: float>(x: T[C], w: T[C, Fg], const groups: int = 2) -> y: T[F] with F = groups * Fg, C % groups == 0 {"
    " y[f] = sum[c](x[c] * w[c, f // groups]) }",
    one((4,), (4, 3)),
    lambda x, w: (x @ w).repeat_interleave(2),
)
case(
    "a bool constant, an integer scalar",
    "op f(a: i64[N], k: i64 = 3, const causal: bool = true) -> y: i64[N] { y[n] = where(causal, a[n] + k, 0) }",
    lambda: (ints(1, 2), 2**40),
    lambda a, k: a + k,
)
case(
    "a 0-dim tensor as a scalar",
    "op f<T: float>(x: T[N], s: f32 = 1.0) -> y: T[N] { y[n] = x[n] * s }",
    lambda: (draw(3), torch.tensor(2.5)),
    lambda x, s: x * s,
)
case(
    "% floors and fmod truncates",
    "op f<T: float>(x: T[N], y: T[N]) -> (a: T[N], b: T[N], c: T[N]) {"
    " a[n] = x[n] % y[n]  b[n] = fmod(x[n], y[n])  c[n] = x[n] // y[n] }",
    lambda: (torch.tensor([5.5, -5.5, 5.5, -1.0]), torch.tensor([3.0, 3.0, -3.0, 3.0])),
    lambda x, y: (x % y, torch.fmod(x, y), x // y),
)
case(
    "round to even, shifts beyond the width",
    "op f(x: f32[N], a: i32[N]) -> (r: f32[N], l: i32[N], s: i32[N]) {"
    " r[n] = round(x[n])  l[n] = shift_left(a[n], 31 + n)  s[n] = shift_right(a[n], 31 + n) }",
    lambda: (torch.tensor([0.5, 1.5, -2.5]), ints(1, -3, 5, dtype=torch.int32)),
    lambda x, a: (
        x.round(),
        ints(-(2**31), 0, 0, dtype=torch.int32),
        ints(0, -1, 0, dtype=torch.int32),
    ),
)
case(
    "xlogy of 0, sign and relu of NaN",
    "op f<T: float>(x: T[N], z: T[N]) -> (a: T[N], b: T[N], c: T[N]) {"
    " a[n] = xlogy(x[n], z[n])  b[n] = sign(z[n])  c[n] = relu(z[n]) }",
    lambda: (torch.tensor([0.0, 0.0, 2.0]), torch.tensor([0.0, NAN, 3.0])),
    lambda x, z: (torch.xlogy(x, z), z.sign(), z.relu()),
)
case(
    "argmin takes the first NaN, and the first of equals",
    "op f<T: float>(x: T[N, D]) -> i: i64[N] { i[n] = argmin[d](x[n, d]) }",
    lambda: (torch.tensor([[3.0, NAN, NAN], [2.0, 1.0, 1.0], [INF, INF, INF]]),),
    lambda x: ints(1, 1, 0),
)
case(
    "argmax of integers at their lowest",
    "op f(x: i64[N, D]) -> i: i64[N] { i[n] = argmax[d >= 1](x[n, d]) }",
    lambda: (torch.full((2, 3), -(2**63)),),
    lambda x: ints(1, 1),
)
case(
    "else belongs to its read alone",
    "op f<T: float>(x: T[N], w: T[N]) -> y: T[N] { y[p] = (x[p - 1] else 2) * w[p] + (x[p + 1] else -1) }",
    one((3,), (3,)),
    lambda x, w: torch.cat([torch.tensor([2.0]), x[:2]]) * w
    + torch.cat([x[1:], torch.tensor([-1.0])]),
)
case(
    "a macro's default",
    "fn lift(x, by = 2, up = 1) = x * by + up\nop f<T: float>(x: T[N]) -> y: T[N] { y = lift(x) + lift(x, up = 3) }",
    one((3,)),
    lambda x: 4 * x + 4,
)
case(
    "an op called by name, with constants",
    "op f<T: float>(x: T[N, C, L], w: T[F, C, R], b: T[F]) -> y: T[N, F, P] with P = (L + 2 - R) // 2 + 1 {"
    " y = relu(conv1d(x, b = b, w = w, pad = 1, stride = 2)) }",
    one((2, 2, 7), (3, 2, 3), (3,)),
    lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1).relu(),
)


# ---- running --------------------------------------------------------------------------------------
def problem(case: Case) -> str:
    """What is wrong with the case on this process's path, empty where nothing is."""
    import tritongen
    from tritongen import pipeline

    names = list(pipeline.build(case.spec, "<text>").plans)  # as `compile_op` builds it
    op = tritongen.compile_op(case.spec, names[-1])
    args = case.args()
    got, wanted = op(*args, **case.kwargs), case.wanted(*args)
    pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else ((got, wanted),)
    for ours, theirs in pairs:
        try:
            torch.testing.assert_close(ours, theirs, rtol=case.tol, atol=case.tol, equal_nan=True)
        except AssertionError as error:
            return f"{error}\ngot {ours}\nwanted {theirs}"
    return ""


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    from tritongen import pipeline

    for k, each in enumerate(CASES):
        try:
            wrong = problem(each)
            pipeline.build(each.spec, "<text>", gradients=True)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            print(f"{k}: {each.name}: {wrong}")


if __name__ == "__main__":
    main()
