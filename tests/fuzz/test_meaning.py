"""What specs mean, said twice: a line of the language beside the torch or Python that a reader would write.

Kernels, reference and oracle all follow the same IR: where the front end misreads a line, they agree on what is
wrong. So here sizes are drawn, the line is built around them, and the other side knows nothing of ours.
"""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tritongen.check import check
from tritongen.ir.interp import run
from tritongen.syntax.parse import parse

SIZES = (1, 2, 3, 4, 5, 7, 8)
TERMS = (
    "-A // 2", "A // 2", "(A - B) // 2", "(B - A) // 2", "-(-A // 4)", "A // -2", "(A - B) % 3", "-A % 3",
    "A % -2", "(A - B) // 3 * 2", "-(A // 2)", "A - B", "2 * (-B // 3)",
)  # fmt: skip


def randoms():
    return st.randoms(use_true_random=False)


def meant(text: str, **args) -> torch.Tensor:
    """What the body of the only op says."""
    op = check(parse(text))[0].typings[0]
    return run(op, args)[op.outputs[0].name]


def normal(random: Random, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(random.randrange(1 << 16))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def padded(x: torch.Tensor, i: int) -> float:
    return float(x[i]) if 0 <= i < len(x) else 0.0


# ---- floors -------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(randoms())
def test_size_arithmetic_floors_as_python_does(random):
    a, b = random.choice(SIZES), random.choice(SIZES)
    term = random.choice(TERMS)
    x, z = normal(random, a), normal(random, b)
    n = eval(term, {"A": a, "B": b})
    shifted = meant(
        f"op f<T: float>(x: T[A], z: T[B]) -> y: T[B] {{ y[i] = (x[i + {term}] else 0) * z[i] }}",
        x=x,
        z=z,
    )
    assert shifted.tolist() == [padded(x, i + n) * float(z[i]) for i in range(b)]
    times = meant(
        f"op f<T: float>(x: T[A], z: T[B]) -> y: T[B] {{ y[i] = (x[i] else 0) + z[i] * ({term}) }}",
        x=x,
        z=z,
    )
    assert times.tolist() == pytest.approx([padded(x, i) + float(z[i]) * n for i in range(b)])
    below = meant(
        f"op f<T: float>(x: T[A], z: T[B]) -> y: T[B] {{ y[i] = where(i < {term}, z[i], x[0] else 0) }}",
        x=x,
        z=z,
    )
    assert below.tolist() == [float(z[i]) if i < n else float(x[0]) for i in range(b)]


@settings(max_examples=25, deadline=None)
@given(randoms())
def test_divided_indices_floor_as_python_does(random):
    a, b = random.choice(SIZES), random.choice(SIZES)
    x, z = normal(random, a), normal(random, b)
    d = random.choice((2, 3, -2, -3))
    o = random.randrange(-4, 5)
    for form, place in (("//", lambda i: (i + o) // d + 2), ("%", lambda i: (i + o) % d)):
        where = f"(i + {o}) // {d} + 2" if form == "//" else f"(i + {o}) % {d}"
        where = where.replace("+ -", "- ")
        text = (
            f"op f<T: float>(x: T[A], z: T[B]) -> y: T[B] {{ y[i] = (x[{where}] else 0) * z[i] }}"
        )
        assert meant(text, x=x, z=z).tolist() == [
            padded(x, place(i)) * float(z[i]) for i in range(b)
        ]


# ---- bounds -------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(randoms())
def test_bounds_are_those_of_python_slices(random):
    n, d = random.choice(SIZES), random.choice(SIZES[2:])
    low, high = sorted(random.sample(range(d + 1), 2))
    x = normal(random, n, d)
    text = "op f<T: float>(x: T[N, D], const lo: int, const hi: int) -> y: {} {{ y[n] = {}[lo <= k < hi](x[n, k]) }}"
    call = dict(x=x, lo=low, hi=high)
    part = x[:, low:high]
    assert torch.equal(meant(text.format("i64[N]", "argmax"), **call), part.argmax(1) + low)
    assert torch.equal(meant(text.format("i64[N]", "argmin"), **call), part.argmin(1) + low)
    torch.testing.assert_close(meant(text.format("T[N]", "sum"), **call), part.sum(1))
    torch.testing.assert_close(meant(text.format("T[N]", "mean"), **call), part.mean(1))
    torch.testing.assert_close(meant(text.format("T[N]", "prod"), **call), part.prod(1))


@settings(max_examples=25, deadline=None)
@given(randoms())
def test_what_a_bound_excludes_is_not_there(random):
    b, j, e = (random.choice(SIZES) for _ in range(3))
    p, v = normal(random, b, j), normal(random, b, j, e)
    count = torch.tensor([random.randrange(0, j + 1) for _ in range(b)])
    hidden = v.clone()
    for k in range(b):
        hidden[k, int(count[k]) :] = float("nan")
    text = "op f<T: float>(p: T[B, J], v: T[B, J, E], n: i64[B]) -> y: T[B, E] { y[b, e] = sum[j < n[b]](p[b, j] * v[b, j, e]) }"
    mask = torch.arange(j) < count[:, None]
    expected = torch.einsum("bj,bje->be", p * mask, v)
    torch.testing.assert_close(meant(text, p=p, v=hidden, n=count), expected)


# ---- dots ---------------------------------------------------------------------------------------
def batches(random: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast."""
    whole = tuple(random.choice((1, 2, 3)) for _ in range(random.randrange(0, 3)))
    pair = [tuple(1 if random.random() < 0.3 else n for n in whole) for _ in range(2)]
    pair[random.randrange(2)] = pair[0][random.randrange(len(whole) + 1) :]
    return pair[0], pair[1]


def lined_up(x: torch.Tensor, before: int, rank: int) -> torch.Tensor:
    """With as many dims of `...` as the other one, behind the first `before` dims."""
    return x.reshape(*x.shape[:before], *[1] * (rank - x.dim()), *x.shape[before:])


@settings(max_examples=25, deadline=None)
@given(randoms())
def test_dots_behind_a_named_dim_broadcast_among_themselves(random):
    n = random.choice(SIZES)
    one, two = batches(random)
    x, z = normal(random, n, *one), normal(random, n, *two)
    rank = 1 + max(len(one), len(two))
    expected = lined_up(x, 1, rank) - lined_up(z, 1, rank)
    for body in ("y = x - z", "y[n, ...] = x[n, ...] - z[n, ...]"):
        text = f"op f<T: float>(x: T[N, ...], z: T[N, ...]) -> y: T[N, ...] {{ {body} }}"
        torch.testing.assert_close(meant(text, x=x, z=z), expected)


@settings(max_examples=25, deadline=None)
@given(randoms())
def test_dots_on_either_side_of_named_dims(random):
    a, b = random.choice(SIZES), random.choice(SIZES)
    one, two = batches(random)
    x, z = normal(random, a, *one), normal(random, *two, b)
    rank = max(len(one), len(two))
    expected = lined_up(x, 1, 1 + rank)[..., None] * lined_up(z, 0, rank + 1)[None]
    text = "op f<T: float>(x: T[A, ...], z: T[..., B]) -> y: T[A, ..., B] { y[a, ..., b] = x[a, ...] * z[..., b] }"
    torch.testing.assert_close(meant(text, x=x, z=z), expected)


@settings(max_examples=25, deadline=None)
@given(randoms())
def test_a_reducer_over_dots_is_over_what_its_body_reads(random):
    n = random.choice(SIZES)
    one, two = batches(random)
    x, z = normal(random, n, *one), normal(random, n, *two)
    rank = 1 + max(len(one), len(two))
    wide_x, wide_z = lined_up(x, 1, rank), lined_up(z, 1, rank)
    dots = "op f<T: float>(x: T[N, ...], z: T[N, ...]) -> "
    text = dots + "y: T[N] { y[n] = sum[...](x[n, ...] * z[n, ...]) }"
    product = (wide_x * wide_z).reshape(n, -1)
    torch.testing.assert_close(meant(text, x=x, z=z), product.sum(1))
    text = dots + "y: T[N, ...] { m[n] = mean[...](x[n, ...]) y[n, ...] = z[n, ...] - m[n] }"
    centre = x.reshape(n, -1).mean(1).reshape(n, *[1] * (rank - 1))
    expected = (wide_z - centre).expand(n, *torch.broadcast_shapes(one, two))
    torch.testing.assert_close(meant(text, x=x, z=z), expected)
