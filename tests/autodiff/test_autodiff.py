"""Derived gradients against torch autograd of each spec's `ref`, in f64; what they cost; how they read."""

from __future__ import annotations

import itertools
import re
from functools import cache
from pathlib import Path

import pytest
import torch

import tritongen
from tritongen import pipeline
from tritongen.autodiff import NotDifferentiable, gradient
from tritongen.check import check
from tritongen.ir.algebra import Sym, poly, walk
from tritongen.ir.binding import type_arguments
from tritongen.ir.interp import count_points, run
from tritongen.ir.nodes import BATCH_SIZE, Tensor, kind_of
from tritongen.ir.print import print_op
from tritongen.ir.verify import verify
from tritongen.runtime.load import load_text
from tritongen.schedule.rules import evaluate
from tritongen.show import CannotShow, gradient_text
from tritongen.syntax.parse import parse
from tritongen.syntax.ref import parse_ref, ref_python

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.op"))
BATCH_SHAPE = (2, 3)


def op_of(text: str):
    """The last op of a text, for floats; half-only ops take f64 here."""
    text = re.sub(r"<T: f16 \| bf16>", "<T: float>", text).replace("f32[", "f64[")
    return next(o for o in check(parse(text))[-1].typings)


def reference(op, args: dict) -> torch.Tensor:
    *steps, result = ref_python(parse_ref(op.ref)).split("\n")
    scope = dict(args, torch=torch)
    exec("\n".join(steps), scope)
    return eval(result, scope)


def arguments(op, sizes: dict[str, int], seed: int = 0, **given) -> dict:
    """Random operands; sizes not given are small and unlike each other."""
    generator = torch.Generator().manual_seed(seed)
    choices = itertools.cycle((3, 4, 2, 5))
    sizes, args = dict(sizes), {}
    for p in op.params:
        if not isinstance(p, Tensor):
            args[p.name] = given.get(p.name, p.default if p.default is not None else 0.7)
            continue
        for d in p.dims:
            for atom in walk(d):
                if isinstance(atom, Sym) and d == poly(atom) and d != BATCH_SIZE:
                    sizes.setdefault(atom.name, next(choices))
        shape = []
        for d in p.dims:
            shape += BATCH_SHAPE if d == BATCH_SIZE else [evaluate(str(d), sizes)]
        if p.name in given:
            args[p.name] = given[p.name](shape) if callable(given[p.name]) else given[p.name]
        elif kind_of(p.dtype, op) == "float":
            args[p.name] = torch.randn(shape, generator=generator, dtype=torch.float64)
        elif p.dtype == "bool":
            args[p.name] = torch.rand(shape, generator=generator) < 0.5
        else:
            args[p.name] = torch.randint(
                -3 * (p.dtype != "u8"), 3, shape, generator=generator, dtype=torch_int(p.dtype)
            )
        if kind_of(p.dtype, op) == "float" and p.dtype in ("f32", "f16", "bf16"):
            args[p.name] = args[p.name].float()
    return args | type_arguments(op, {p.name: p.dtypes[0] for p in op.typarams})


def torch_int(dtype: str) -> torch.dtype:
    return {"i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8}[dtype]


@cache
def backward(op):
    back = gradient(op)
    verify(back)
    return back


def pulled(op, args: dict, dys: dict | None = None, seed: int = 1):
    """(gradients by our backward op, the cotangents used, the forward outputs)"""
    back = backward(op)
    outputs = run(op, args)
    generator = torch.Generator().manual_seed(seed)
    dys = dys or {
        f"d{o.name}": torch.randn(outputs[o.name].shape, generator=generator, dtype=torch.float64)
        for o in op.outputs
        if kind_of(o.dtype, op) == "float"
    }
    names = {p.name for p in back.params}
    known = {**args, **outputs, **{k: v.to(torch.float64) for k, v in dys.items()}}
    return run(back, {k: v for k, v in known.items() if k in names}), dys, outputs


def assert_like_torch(op, args: dict, forward=None, seed: int = 1) -> None:
    forward = forward or (lambda **kw: reference(op, kw))
    leaves = {
        k: v.to(torch.float64).clone().requires_grad_()
        for k, v in args.items()
        if isinstance(v, torch.Tensor) and v.is_floating_point()
    }
    expected = forward(**{**args, **leaves})
    expected = expected if isinstance(expected, tuple) else (expected,)
    found, dys, outputs = pulled(op, args, seed=seed)
    floats = [y for y in expected if y.is_floating_point()]
    for y, exact in zip(floats, (outputs[o.name] for o in op.outputs), strict=False):
        torch.testing.assert_close(exact, y.detach().double(), rtol=1e-9, atol=1e-9)
    wanted = torch.autograd.grad(
        floats, list(leaves.values()), list(dys.values()), allow_unused=True
    )
    for (name, leaf), grad in zip(leaves.items(), wanted, strict=False):
        grad = torch.zeros_like(leaf) if grad is None else grad
        ours = found[f"d{name}"]
        torch.testing.assert_close(
            ours.sum_to_size(leaf.shape),
            grad,
            rtol=1e-8,
            atol=1e-9,
            msg=lambda text, name=name: f"{name}: {text}",
        )
    for name in set(found) - {f"d{k}" for k in leaves}:
        torch.testing.assert_close(
            float(found[name]), slope(op, args, name[1:], dys), rtol=1e-5, atol=1e-6, msg=name
        )


def slope(op, args: dict, scalar: str, dys: dict) -> float:
    """d(sum(y * dy)) / d(scalar), by a difference."""

    def total(step: float) -> float:
        outputs = run(op, {**args, scalar: args[scalar] + step})
        return sum(float((outputs[k[1:]] * v).sum()) for k, v in dys.items())

    h = 1e-6
    return (total(h) - total(-h)) / (2 * h)


# ---- every spec ---------------------------------------------------------------------------------
positive = lambda shape: torch.rand(shape, dtype=torch.float64) + 0.5  # noqa: E731
CASES = {
    "moe_linear": dict(sizes=dict(M=6, E=3), off=torch.tensor([0, 2, 2, 6], dtype=torch.int32)),
    "conv2d": dict(
        sizes=dict(C=4, Cg=2, F=6, H=7, W=6, R=3, S=2), groups=2, pad=1, stride=2, dil=2
    ),
    "conv1d": dict(sizes=dict(C=4, Cg=2, F=6, L=9, R=3), groups=2, pad=1, stride=2),
    "conv3d": dict(
        sizes=dict(N=2, C=2, Cg=1, F=2, D=4, H=5, W=3, K=2, R=2, S=2), groups=2, pad=1, stride=2
    ),
    "conv_group_norm_silu": dict(sizes=dict(N=2, C=3, F=4, H=4, W=3, R=3, S=3), groups=2),
    "conv_transpose1d": dict(sizes=dict(L=4, R=3, C=4, F=3), stride=2, pad=1, out_pad=1),
    "conv_transpose2d": dict(sizes=dict(N=2, C=2, F=3, H=3, W=4, R=3, S=2), stride=2, pad=1),
    "conv_transpose3d": dict(sizes=dict(N=1, C=2, F=2, D=2, H=3, W=2, K=2, R=2, S=3), stride=2),
    "depthwise_conv2d": dict(sizes=dict(H=6, W=5, R=3, S=2, C=3), pad=1),
    "group_norm": dict(sizes=dict(C=6), groups=3),
    "cross_entropy": dict(target=torch.tensor([1, -100, 0, 2]), sizes=dict(N=4, V=3)),
    "kl_div": dict(t=positive),
    "avg_pool2d": dict(sizes=dict(H=6, W=7), win=3, stride=2, pad=1),
    "max_pool1d": dict(sizes=dict(L=9), win=3, stride=2, pad=1),
    "max_pool2d": dict(sizes=dict(H=6, W=7), win=3, stride=2, pad=1),
    "max_pool3d": dict(sizes=dict(N=1, C=2, D=4, H=5, W=4), win=2, stride=1, pad=1),
    "max_with_index": dict(sizes=dict(N=3, D=5)),
    "bmm": dict(sizes=dict(B=2)),
    "int4_linear": dict(sizes=dict(M=2, N=3, K=128, H=64, G=1)),
    "causal_attention": dict(sizes=dict(H=4, G=2, S=5)),
    "decode_attention": dict(
        sizes=dict(B=2, H=4, G=2, S=3, L=5), len=torch.tensor([2, 5], dtype=torch.int32)
    ),
    "document_attention": dict(
        sizes=dict(B=1, S=5), begin=torch.tensor([[0, 0, 2, 2, 2]], dtype=torch.int32)
    ),
    "window_attention": dict(sizes=dict(S=5), width=2),
    "linear_cross_entropy": dict(target=torch.tensor([1, -100, 0, 2]), sizes=dict(M=4, V=3)),
}


def masked_attention(q, k, v, scale, mask):
    """mask(i, j): which rows of k a row of q meets."""
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    scores = scale * torch.einsum("bhse,bhle->bhsl", q, k)
    return torch.softmax(scores.masked_fill(~mask(i, j), -torch.inf), -1) @ v


FORWARD = {
    "causal_attention": lambda q, k, v, scale: masked_attention(
        q, k, v, scale, lambda i, j: j <= i
    ),
    "window_attention": lambda q, k, v, scale, width: masked_attention(
        q, k, v, scale, lambda i, j: (j <= i) & (j > i - width)
    ),
    "document_attention": lambda q, k, v, begin, scale: masked_attention(
        q, k, v, scale, lambda i, j: (j <= i) & (j >= begin[0][:, None])
    ),
    "decode_attention": lambda q, k, v, len, scale: masked_attention(
        q, k, v, scale, lambda i, j: j < len[:, None, None, None]
    ),
    "linear_cross_entropy": lambda x, w, target, ignore: torch.nn.functional.cross_entropy(
        x @ w.T, target, reduction="none", ignore_index=ignore
    ),
    "attention": lambda q, k, v, scale: (
        torch.softmax(scale * torch.einsum("bhse,bhle->bhsl", q, k), -1) @ v
    ),
    "nearest_centre": lambda x, c: torch.min(((x[:, None] - c) ** 2).sum(-1), 1),
    "int4_linear": lambda x, w, s: (
        x.double()
        @ ((torch.stack([w & 15, w >> 4], -1).flatten(1) - 8.0) * s.repeat_interleave(128, 1)).T
    ),
    "moe_linear": lambda x, w, off: torch.cat(
        [x[a:b] @ w[e] for e, (a, b) in enumerate(itertools.pairwise(off.tolist()))]
    ),
    "int8_linear": lambda x, w, sx, sw, T: (x.double() @ w.double().T) * sx[:, None] * sw,
}


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_spec_has_the_gradient_of_its_ref(path):
    op = spec(path.stem)
    case = dict(CASES.get(path.stem, {}))
    args = arguments(op, case.pop("sizes", {}), **case)
    if not any(kind_of(o.dtype, op) == "float" for o in op.outputs):
        with pytest.raises(NotDifferentiable):
            gradient(op)
        return
    assert_like_torch(op, args, FORWARD.get(path.stem))


# ---- the index algebra --------------------------------------------------------------------------
@pytest.mark.parametrize(
    "groups, stride, pad, dil", list(itertools.product((1, 2, 4), (1, 3), (0, 1), (1, 2)))
)
def test_conv2d(groups, stride, pad, dil):
    op = spec("conv2d")
    sizes = dict(N=2, C=4, H=9, W=8, F=8, R=3, S=3, Cg=4 // groups)
    assert_like_torch(op, arguments(op, sizes, groups=groups, stride=stride, pad=pad, dil=dil))


@pytest.mark.parametrize("win, stride, pad", ((2, 2, 0), (3, 2, 1), (3, 1, 1)))
def test_max_pool_gives_a_tie_to_the_first(win, stride, pad):
    op = spec("max_pool2d")
    args = arguments(op, dict(H=9, W=8), win=win, stride=stride, pad=pad)
    args["x"] = (args["x"] * 1.5).round().relu()
    assert_like_torch(op, args)


@pytest.mark.parametrize("stride, pad", ((1, 0), (2, 1), (3, 2)))
def test_exact_division(stride, pad):
    op = spec("conv_transpose1d")
    assert_like_torch(op, arguments(op, dict(C=3, F=4, L=5, R=4), stride=stride, pad=pad))


EMBEDDING = lambda t, ix: t[ix].sum(1)  # noqa: E731
LINES = {
    "pixel_shuffle": (
        "x: T[N, C, H, W], const up: int = 2) -> y: T[N, F, P, Q]"
        " with F = C // (up * up), C % (up * up) == 0, P = H * up, Q = W * up",
        "y[n, c, h, w] = x[n, c * up * up + h % up * up + w % up, h // up, w // up] else 0",
        lambda x, up: torch.nn.functional.pixel_shuffle(x, up),
        dict(C=8),
    ),
    "roll": (
        "x: T[N, D], const shift: int = 3) -> y: T[N, D]",
        "y[n, i] = x[n, (i + shift) % D]",
        lambda x, shift: torch.roll(x, -shift, 1),
        dict(D=7),
    ),
    "flip": ("x: T[N, D]) -> y: T[N, D]", "y[n, i] = x[n, D - 1 - i]", lambda x: x.flip(1), {}),
    "upsample": (
        "x: T[N, D], const up: int = 3) -> y: T[N, P] with P = D * up",
        "y[n, i] = x[n, i // up]",
        lambda x, up: x.repeat_interleave(up, 1),
        {},
    ),
    "chunk_mean": (
        "x: T[N, D], const win: int = 4) -> y: T[N, P] with P = D // win",
        "y[n, p] = sum[r < win](x[n, p * win + r])",
        lambda x, win: x[:, : x.shape[1] // win * win].unflatten(1, (-1, win)).sum(2),
        dict(D=10),
    ),
    "cumsum": (
        "x: T[N, D]) -> y: T[N, D]",
        "y[n, i] = sum[k <= i](x[n, k])",
        lambda x: x.cumsum(1),
        {},
    ),
    "embedding_bag": (
        "t: T[V, D], ix: i64[N, K]) -> y: T[N, D]",
        "y[n, d] = sum[k](t[ix[n, k], d] else 0)",
        EMBEDDING,
        dict(V=10, ix=torch.tensor([[1, 9, 1], [0, 3, 5]])),
    ),
    "tril_matmul": (
        "a: T[N, N], b: T[N, M]) -> y: T[N, M]",
        "y[i, j] = sum[k <= i](a[i, k] * b[k, j])",
        lambda a, b: torch.tril(a) @ b,
        {},
    ),
    "scatter": (
        "x: T[N, D], ix: i64[N]) -> y: T[V, D] with V = 6",
        "y[v, d] = sum[n](where(ix[n] == v, x[n, d], 0))",
        lambda x, ix: torch.zeros(6, x.shape[1]).double().index_add(0, ix, x),
        dict(ix=torch.tensor([0, 4, 4, 2])),
    ),
    "fold": (
        "x: T[N, P, R], const stride: int = 2) -> y: T[N, L] with L = (P - 1) * stride + R",
        "y[n, l] = sum[p, r](where(p * stride + r == l, x[n, p, r], 0))",
        lambda x, stride: torch.nn.functional.fold(
            x.transpose(1, 2), (1, 2 * stride + 2), (1, 2), stride=(1, stride)
        )[:, 0, 0],
        dict(N=2, P=3, R=2),
    ),
    "masked_softmax": (
        "x: T[N, N]) -> y: T[N, N]",
        """s[i, j] = where(j <= i, x[i, j], -inf)  m[i] = max[j](s[i, j])
           e[i, j] = exp(s[i, j] - m[i])  y[i, j] = e[i, j] / sum[k](e[i, k])""",
        lambda x: torch.softmax(x.masked_fill(torch.ones_like(x).triu(1) > 0, -torch.inf), 1),
        {},
    ),
    "swin_windows": (
        "x: T[N, H, W], const win: int = 2) -> y: T[M, win, win]"
        " with M = N * (H // win) * (W // win), H % win == 0, W % win == 0",
        """y[m, p, q] = x[m // (W // win) // (H // win), m // (W // win) % (H // win) * win + p,
                          m % (W // win) * win + q] else 0""",
        lambda x, win: x.unflatten(2, (-1, win))
        .unflatten(1, (-1, win))
        .permute(0, 1, 3, 2, 4)
        .reshape(-1, win, win),
        dict(H=4, W=6),
    ),
    "outer_diagonal": (
        "x: T[N, N]) -> y: T[N]",
        "y[i] = x[i, i] * x[i, 0]",
        lambda x: x.diagonal() * x[:, 0],
        {},
    ),
    "autocorrelation": (
        "x: T[N, D], const lag: int = 2) -> y: T[N]",
        "y[n] = sum[i, j < lag](x[n, i] * (x[n, i + j] else 0))",
        lambda x, lag: sum((x[:, : x.shape[1] - j] * x[:, j:]).sum(1) for j in range(lag)),
        dict(D=5),
    ),
    "concatenate": (
        "x: T[N, A], z: T[N, B]) -> y: T[N, D] with D = A + B",
        "y[n, i] = where(i < A, x[n, i] else 0, z[n, i - A] else 0)",
        lambda x, z: torch.cat((x, z), 1),
        {},
    ),
    "prod_with_zeros": (
        "x: T[N, D]) -> y: T[N]",
        "y[n] = prod[d](x[n, d])",
        lambda x: x.prod(1),
        dict(x=torch.tensor([[2.0, 0, 3], [0, 0, 5], [1, -2, 4]], dtype=torch.float64)),
    ),
    "prod_of_all": (
        "x: T[N, D]) -> y: T[N]",
        "y[n] = prod[d, m < N](x[m, d] * x[n, 0])",
        lambda x: torch.stack([(x * row[0]).prod() for row in x]),
        {},
    ),
    "min_and_max": (
        "x: T[N, D]) -> y: T[N]",
        "y[n] = max[d](x[n, d]) * exp(min[d](x[n, d]))",
        lambda x: x.max(1)[0] * x.min(1)[0].exp(),
        {},
    ),
    "late_max": (
        "x: T[N, D]) -> y: T[N]",
        "y[n] = max[2 <= d < D](x[n, d]) + min[k >= 1](x[n, k])",
        lambda x: x[:, 2:].max(1)[0] + x[:, 1:].min(1)[0],
        dict(D=6),
    ),
    "max_before": (
        "x: T[N, D]) -> y: T[N, D]",
        "y[n, d] = where(d > 0, max[k < d](x[n, k]), 0)",
        lambda x: torch.cat([0 * x[:, :1], x[:, :-1].cummax(1)[0]], 1),
        dict(D=5),
    ),
    "dilate": (
        "x: T[N, D]) -> y: T[N, D]",
        "y[n, d] = max[-1 <= r < 2, -1 <= s < 2](x[n + r, d + s] else -inf)",
        lambda x: torch.nn.functional.max_pool2d(x[None], 3, 1, 1)[0],
        dict(N=4, D=5),
    ),
    "max_of_rows_before": (
        "x: T[N, D]) -> y: T[N]",
        "y[n] = max[i <= n, d < D - 1](x[i, d])",
        lambda x: x[:, :-1].max(1)[0].cummax(0)[0],
        dict(N=4, D=5),
    ),
    "sum_behind": (
        "x: T[N, D]) -> y: T[N, D]",
        "y[n, d] = sum[k > d](tanh(x[n, k]))",
        lambda x: x.tanh().sum(1, keepdim=True) - x.tanh().cumsum(1),
        dict(D=5),
    ),
    "sum_of_shifts_from_below": (
        "x: T[N]) -> y: T[N]",
        "y[n] = sum[-2 <= k < 2](where(n < 3, exp(x[k + 2]), 0))",
        lambda x: torch.where(torch.arange(len(x)) < 3, x[:4].exp().sum(), 0),
        dict(N=6),
    ),
    "outputs_feed_on": (
        "x: T[N, D]) -> (s: T[N], y: T[N, D])",
        "s[n] = sum[d](x[n, d])  y[n, d] = x[n, d] * s[n]",
        lambda x: (x.sum(1), x * x.sum(1, keepdim=True)),
        {},
    ),
    "variance_unbiased": (
        "x: T[N, D]) -> y: T[N]",
        "mu[n] = mean[d](x[n, d])  y[n] = sum[d]((x[n, d] - mu[n]) ** 2) / (D - 1)",
        lambda x: x.var(1),
        {},
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_lines(name):
    signature, body, forward, given = LINES[name]
    op = op_of(f"op {name}_op<T: float>({signature} {{ {body} }}")
    sizes = {k: v for k, v in given.items() if k[0].isupper()}
    rest = {k: v for k, v in given.items() if not k[0].isupper()}
    for name, value in rest.items():
        tensor = next(p for p in op.params if p.name == name)
        sizes |= {str(d): n for d, n in zip(tensor.dims, value.shape, strict=False)}
    assert_like_torch(op, arguments(op, sizes, **rest), forward)


@cache
def spec(name: str):
    return op_of(next(p for p in SPECS if p.stem == name).read_text())


def grads(body: str, **args) -> dict:
    """Gradients of y[n] = body, under dy = 1."""
    operands = ", ".join(f"{name}: T[N]" for name in args)
    op = op_of(f"op f_op<T: float>({operands}) -> y: T[N] {{ y[n] = {body} }}")
    args = {k: torch.tensor(v, dtype=torch.float64) for k, v in args.items()}
    dys = {"dy": torch.ones(len(next(iter(args.values())))).double()}
    return {k: v.tolist() for k, v in pulled(op, args, dys)[0].items()}


# ---- what torch does at the edges ---------------------------------------------------------------
def test_a_branch_not_taken_gives_exactly_0():
    assert grads("where(x[n] > 0, log(x[n]), 0)", x=[0.0, 2.0, -1.0]) == {"dx": [0.0, 0.5, 0.0]}
    assert grads("where(x[n] > 0, 1 / x[n] * x[n], x[n])", x=[0.0]) == {"dx": [1.0]}


@pytest.mark.parametrize("divisor", ["n - 1", "k", "N - 2"])
def test_a_number_divides_nothing_where_its_branch_is_not_taken(divisor):
    """Which is where it is 0."""
    op = op_of(f"""op f<T: float>(x: T[N], const k: int = 0) -> y: T[N] {{
        t[n] = x[n] / ({divisor})
        y[n] = where({divisor} != 0, 2 * t[n], x[n]) + k }}""")
    found, _, _ = pulled(op, {"x": torch.ones(2).double(), "k": 0}, {"dy": torch.ones(2).double()})
    assert found["dx"].tolist() == ([-2.0, 1.0] if divisor == "n - 1" else [1.0, 1.0])


def test_two_argument_max_splits_a_tie():
    assert grads("max(a[n], b[n])", a=[1.0, 2.0, 3.0], b=[1.0, 3.0, 2.0]) == {
        "da": [0.5, 0.0, 1.0],
        "db": [0.5, 1.0, 0.0],
    }
    assert grads("max(x[n], 0)", x=[0.0, 1.0]) == {"dx": [0.5, 1.0]}
    assert grads("relu(x[n])", x=[0.0, 1.0, -1.0]) == {"dx": [0.0, 1.0, 0.0]}


def test_detach_and_steps_have_no_gradient():
    assert grads("detach(x[n]) * x[n] + floor(x[n])", x=[3.0]) == {"dx": [3.0]}


@pytest.mark.parametrize(
    "line, x, dx",
    [
        ("0.5 * t[n] * t[n] - t[n] * T(i32(t[n]))", [0.75, -1.0], [1.0, 0.0]),
        ("t[n] * (T(a[n] + a[n]) - 2 * T(a[n]))", [1.0, 1.0], [0.0, -512.0]),
        ("t[n] * (T(p[n] + p[n]) - 2 * T(p[n]))", [1.0, 1.0], [0.0, -2.0]),
        ("t[n] * (x[n] - f32(bf16(x[n])))", [0.5, 0.5 + 2**-9], [0.0, 2**-8]),
    ],
)
def test_what_a_cast_takes_or_a_sum_wraps_is_not_0(line, x, dx):
    op = op_of(f"""op f<T: float>(x: T[N], a: u8[N], p: bool[N]) -> y: T[N] {{
        t[n] = 2 * x[n]
        y[n] = {line} + where(p[n], 0, 0 * a[n]) }}""")
    args = {"a": torch.tensor([3, 200], dtype=torch.uint8), "p": torch.tensor([False, True])}
    args["x"] = torch.tensor(x, dtype=torch.float64)
    found, _, _ = pulled(op, args, {"dy": torch.ones(2).double()})
    assert found["dx"].tolist() == dx


def test_a_maximum_times_a_residual_has_a_gradient():
    """A softmax may round what is made of its maximum, but this is rounded by itself."""
    text = """op f<T: float>(x: T[N, D], w: T[D]) -> y: T[N, D] {
      m[n] = max[d](x[n, d])
      y[n, d] = m[n] * (w[d] - T(bf16(w[d]))) }"""
    assert "dx[n, d] = 0.0" not in print_op(gradient(op_of(text)))


@pytest.mark.parametrize(
    "types, line, x, dx",
    [
        ("y: f16", "y[n] = sqrt(x[n])", 2.0**-60, 2.0**29),
        ("y: f32", "y[n] = f32(f16(exp2(x[n])))", 20.0, 2.0**20 * 0.6931471805599453),
        ("y: bf16", "y[n] = tanh(x[n])", 8.0, 4.5014e-07),
        ("(t: f16[N], y: f32", "t[n] = 1 / x[n]  y[n] = 2 * t[n]", 2.0**30, -3 * 2.0**-60),
    ],
)
def test_a_slope_is_not_that_of_a_rounded_value(types, line, x, dx):
    """No operand has the half type, so autograd would have the value as it was computed."""
    end = ")" if types[0] == "(" else ""
    (op,) = check(parse(f"op f(x: f32[N]) -> {types}[N]{end} {{ {line} }}"))[0].typings
    back = gradient(op)
    given = {"x": torch.tensor([x])} | run(op, {"x": torch.tensor([x])})
    given |= {f"d{o.name}": torch.ones(1) for o in op.outputs}
    dtypes = {
        t.name: {"f16": torch.half, "bf16": torch.bfloat16}.get(t.dtype) for t in back.tensors
    }
    args = {n: given[n].to(dtype or torch.float32) for n, dtype in dtypes.items()}
    assert run(back, args)["dx"].item() == pytest.approx(dx, rel=1e-4)


def test_the_angle_of_no_point_has_no_gradient():
    """As torch has it."""
    assert grads("atan2(a[n], b[n])", a=[0.0, 0.0], b=[0.0, 2.0]) == {
        "da": [0.0, 0.5],
        "db": [0.0, 0.0],
    }


def test_ops_without_a_gradient_say_why():
    with pytest.raises(NotDifferentiable, match="no output of it is a float"):
        gradient(spec("row_argmax"))
    with pytest.raises(NotDifferentiable, match="grad none"):
        gradient(op_of("op f_op<T: float>(x: T[N]) -> y: T[N] { y[n] = x[n]  grad none }"))


def test_a_gradient_written_by_hand_is_used():
    op = op_of("op f_op<T: float>(x: T[N]) -> y: T[N] { y[n] = x[n]  grad { dx[n] = 7 * dy[n] } }")
    args = {"x": torch.ones(2, dtype=torch.float64)}
    assert pulled(op, args, {"dy": torch.tensor([1.0, 2.0])})[0]["dx"].tolist() == [7.0, 14.0]


# ---- what it costs, how it reads ----------------------------------------------------------------
@pytest.mark.parametrize("groups", (1, 4))
def test_a_grouped_convolution_visits_no_point_in_vain(groups):
    back = gradient(spec("conv2d"), wrt=["x"])
    sizes = dict(N=2, C=4, H=9, W=8, F=8, R=3, S=3, Cg=4 // groups)
    sizes |= dict(stride=1, pad=0, dil=1, groups=groups, P=7, Q=6)
    assert count_points(back, sizes) == 2 * 4 * 9 * 8 * (8 // groups) * 3 * 3


@pytest.mark.parametrize(
    "name", ("softmax", "logsumexp", "log_softmax", "attention", "cross_entropy")
)
def test_the_shift_of_an_exponential_has_no_gradient(name):
    back = backward(spec(name))
    assert not [n.name for n in back.nests if n.name.endswith("_at")]


def test_the_shift_of_a_masked_exponential_has_no_gradient():
    """The mask and its opposite, `t[n] < 0` and `t[n] >= 0`, were two conditions that nothing connected."""
    text = """op f<T: float>(x: T[N, V], t: i64[N]) -> loss: f32[N] {
      m[n] = max[v](x[n, v])
      lse[n] = m[n] + log(sum[v](exp(x[n, v] - m[n])))
      loss[n] = where(t[n] < 0, 0, lse[n] - (x[n, t[n]] else 0) + lse[n] ** 2)
    }"""
    assert not [n.name for n in backward(op_of(text)).nests if n.name.endswith("_at")]


def test_a_variance_has_no_gradient_through_its_mean():
    (dmu,) = (
        line for line in print_op(backward(spec("layer_norm"))).split("\n") if "  dmu" in line
    )
    assert "dvar" not in dmu


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_a_gradient_is_text_of_the_language(path):
    try:
        back = backward(spec(path.stem))
    except NotDifferentiable:
        return
    text = print_op(back)
    again = check(parse(text))[-1].typings[0]
    verify(again)
    assert print_op(again) == text


def test_what_a_gradient_never_reads_inside_is_its_fill():
    """The language has no read that is never inside: `a[2 * n + N] else 0`. Nor is `a` an operand then."""
    text = "op f(a: f32[N], h: f32[N]) -> w: f32[N] { w[s] = (a[2 * s] else 0) * (h[s - N / 2] else 0) }"
    back = gradient(op_of(text))
    assert [p.name for p in back.params] == ["h", "dw"]
    assert "(dw[N / 2 + n] else 0.0) * 0.0" in print_op(back)


def test_a_gradient_longer_than_a_spec_may_be_names_what_it_repeats():
    """A place that is solved for stands in each read of a value that is written out: 256 operations are soon said."""
    moved = " + ".join(f"(x[r, (s + N // {k}) // {k}] else 0)" for k in range(2, 9))
    text = "op f(x: f32[R, N], z: f32[R, N]) -> v: f32[R, N] { v[r, s] = min(MOVED, z[r, s]) }"
    lines = print_op(gradient(op_of(text.replace("MOVED", moved))))
    assert "v_add[r, s] =" in lines and "v_add[r, s] > z[r, s]" in lines


OWN_NAMES = """
op own_names<T: float>(x: T[N, L], w: T[R]) -> y: T[N, P] with P = L - R + 1 {
  dx[n, p < P] = sum[dw](x[n, p + dw] * w[dw])
  y[n, p] = dx[n, p] * dx[n, p]
}"""
TWO_READS = """
op two_reads<T: float>(x: T[E, D], off: i64[S1]) -> (y: T[S, D], m: T[S, D]) with S = S1 - 1 {
  y[s, d] = sum[off[s] <= k < off[s + 1]](x[k, d])
  m[s, d] = max[off[s] <= k < off[s + 1]](x[k, d])
}"""

CONSTANTS = """
op constants<T: float>(x: T[N], const a: int = 2, const e: float = 0.5, const win: int = 3) -> y: T[N] {
  y[n] = x[n] * (1 + e) + a + sum[k < win](x[n])
}"""


# Neither side of the fact on E is plainly positive: which name it replaces must leave A > 0 plain.
ROTATED = """
op rotated<T: float>(y: T[A, M], const groups: int = 1) -> z: T[A, E] with E = A + 2 * groups - M + 1 {
  o[k < A, q < E] = sum[s < M](y[k, s]) * (y[k, q] else 0)
  z[i, l] = o[(i + groups) % A, l]
}"""

POOLED = """
op pooled<T: float>(x: T[N, C, E]) -> y: T[N, C, F] with F = (E - 2) // 2 + 1 { y = avg_pool1d(x) }"""
FILLED = """
op filled<T: float>(w: T[A, C], const win: int = 2) -> y: T[A] { y[i] = prod[l < win](w[i, 2]) }"""
SHIFTED = """
op shifted<T: float>(x: T[N], w: T[N]) -> y: T[N] {
  y[n] = where(w[n] <= 1, x[n], tanh((x[n + N // 2] else 0) + w[n]) * x[n])
}"""
BEFORE = """op before<T: float>(x: T[N], w: T[N]) -> y: T[N] {
  y[n] = sum[k < n](exp(x[k]) * w[k])
}"""
LOWEST = """op lowest<T: float>(x: T[N, D], w: T[N]) -> y: T {
  y = min[n, d](tanh(w[n]) * x[n, d])
}"""
WIDER = """op wider<T: float>(a: T[N, K], c: T[K], h: T[K, N], eps: f32) -> y: T[N] {
  y[n] = f64(0.5) * sum[k](where(k != n and k > n - 2, a[n, k] - c[k] ** 3, eps) * h[k, n])
}"""
ENDS = """op ends<T: float>(g: T[H, N], b: T[N], x: i8[H]) -> y: T[H] {
  y[i] = mean[j < x[i]]((g[i, j + (-N // 2)] else 0) + b[j])
}"""
UNLUCKY = (OWN_NAMES, TWO_READS, CONSTANTS, ROTATED, POOLED, FILLED, SHIFTED)
UNLUCKY += (BEFORE, LOWEST, WIDER, ENDS)


@pytest.mark.parametrize("text", UNLUCKY, ids=lambda text: text.split("<")[0].split()[1])
def test_a_gradient_of_unlucky_names_is_text_of_the_language(text):
    """A temporary `dx`, an index `dw`; a guard over dims of two sizes; a constant that leads nowhere.

    Numbers among floats; an `else` of a guard alone, and one that the inverse of a read needs no more.
    A temporary that ends before its operand: only a guard keeps its reads inside. A place in a tensor of rank 0.
    Types and guards that derivation alone puts in another way than the language.
    """
    text = print_op(backward(op_of(text)))
    assert print_op(check(parse(text))[-1].typings[0]) == text


def test_a_bound_that_is_read_does_not_wrap_in_a_gradient():
    """`x[i] + -N // 2` of an i8 is what 8 bits hold of it; the bound of a reducer is not."""
    op = op_of(ENDS)
    assert "where(i64(x[i]) + -N // 2 > n and" in print_op(backward(op))
    x, g, dy = torch.tensor([2]).char(), torch.zeros(1, 400).double(), torch.ones(1).double()
    found = run(backward(op), {"x": x, "g": g, "dy": dy})
    assert found["dg"].count_nonzero() == 0


@pytest.mark.parametrize("reducer", ("prod", "max"))
def test_places_among_batch_dims_have_no_text(reducer):
    """The gradient is there, and right; the language has no name for where in `...` an element lies."""
    text = f"op f<T: float>(x: T[N, ...]) -> y: T[N] {{ y[n] = {reducer}[...](x[n, ...]) }}"
    op = op_of(text)
    x, dy = torch.rand(2, 3, 4, dtype=torch.float64), torch.rand(2, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    y = leaf.flatten(1).prod(1) if reducer == "prod" else leaf.flatten(1).amax(1)
    assert torch.allclose(
        run(backward(op), {"x": x, "dy": dy})["dx"], *torch.autograd.grad(y, leaf, dy)
    )
    with pytest.raises(CannotShow, match="name the dims"):
        gradient_text(text, "f")


def test_a_gradient_that_broadcast_batch_dims_would_make_wrong_is_refused():
    """A gradient has the batch dims of the op: with x [3] beside t [2, 3] a place of the maximum stands at two places of those."""
    line = "s = max[...](x[...])  y[...] = t[...] * s"
    with pytest.raises(NotDifferentiable, match=r"`\.\.\.` of"):
        backward(op_of(f"op f<T: float>(x: T[...], t: T[...]) -> y: T[...] {{ {line} }}"))


def test_a_sum_of_gradients_is_over_all_batch_dims():
    """The gradient of m sums that of c, which has fewer batch dims than the op."""
    lines = "m = sum[...](x[...])  c[...] = x[...] - m * x[...]  s = mean[...](sin(c[...]))  y[...] = t[...] * s"
    back = backward(op_of(f"op f<T: float>(x: T[...], t: T[...]) -> y: T[...] {{ {lines} }}"))
    x, t, dy = (torch.linspace(0.5, 2, n, dtype=torch.float64) for n in (3, 6, 6))
    t, dy = t.view(2, 3), dy.view(2, 3)
    known = {"x": x, "t": t, "dy": dy}
    found = run(back, {p.name: known[p.name] for p in back.params})
    leaf = x.clone().requires_grad_()
    y = t * (leaf - leaf.sum() * leaf).sin().mean()
    (wanted,) = torch.autograd.grad(y, [leaf], dy)
    assert torch.allclose(found["dx"].sum(0), wanted)


@pytest.mark.parametrize("reducer", ["mean", "sum"])
def test_a_reducer_over_fewer_batch_dims_has_a_gradient(reducer):
    """Each of the 3 terms of a sum stands at two places of the op, and whoever calls adds up what both get."""
    op = op_of(
        "op f<T: float>(x: T[...], t: T[...]) -> y: T[...] "
        f"{{ s = {reducer}[...](x[...] * x[...])  y[...] = t[...] * s }}"
    )
    x, t, dy = (torch.linspace(0.5, 2, n, dtype=torch.float64) for n in (3, 6, 6))
    t, dy = t.view(2, 3), dy.view(2, 3)
    back = backward(op)
    known = {"x": x, "t": t, "dy": dy}
    found = run(back, {p.name: known[p.name] for p in back.params})
    leaf = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(t * getattr(leaf * leaf, reducer)(), [leaf], dy)
    assert torch.allclose(found["dx"].sum(0), wanted)


@pytest.mark.parametrize("standalone", [False, True])
def test_a_gradient_over_an_empty_batch_is_refused_where_it_would_be_0(standalone):
    """The gradient has the batch dims of the call, which have no element to hold what `s` passes on to x."""
    takes, lines = (
        "<T: float>(x: T[N, ...], t: T[N, ...]) ->",
        "{ s[n] = sum[...](x[n, ...])  y[n, ...] = x[n, ...] * t[n, ...] * s[n] }",
    )
    text = f"op f{takes} (y: T[N, ...], s: T[N]) {lines} op g{takes} y: T[N, ...] {lines}"
    module = load_text("fg", pipeline.build(text, "fg", standalone, gradients=True).raw)
    one, none = torch.ones(2, 1), torch.ones(2, 0)
    with pytest.raises(ValueError, match="x: no gradient: the batch dims of the call are empty"):
        module.f(one.requires_grad_(), none)[1].sum().backward()
    for op, x, t in ((module.f, none, none), (module.f, one[:0], none[:0]), (module.g, one, none)):
        leaf = x.detach().requires_grad_()
        y = op(leaf, t)
        (y if op is module.g else y[0]).sum().backward()
        assert torch.equal(leaf.grad, torch.zeros_like(x))


@pytest.mark.parametrize(
    "signature, body, params",
    [
        ("z: f32[N, ...], x: T[N, ...]) -> y: T[N, ...]", "y = z - x", ["dy"]),
        (
            "h: i32[M], a: T[N]) -> (y: T[N], k: i32[N])",
            "y[n] = 2 * a[n]  k[n] = h[n] + 1",
            ["dy"],
        ),
        (
            "h: i32[M, ...], a: T[N]) -> (y: T[N], k: i32[M])",
            "b = sum[...](1)  y[n] = a[n] * b  k[m] = sum[...](h[m, ...])",
            ["h", "dy"],
        ),
    ],
    ids=["a dtype of its own", "a size of a read that is gone", "a number of batch elements"],
)
def test_a_gradient_takes_only_what_it_needs(signature, body, params):
    """A dtype that is no type parameter needs no operand; what only the lines of the forward asked of sizes goes."""
    back = backward(op_of(f"op f<T: float>({signature} {{ {body} }}"))
    assert [p.name for p in back.params] == params
    assert print_op(check(parse(print_op(back)))[-1].typings[0]) == print_op(back)


def test_a_name_of_its_own_beside_a_gradients_is_refused():
    op = op_of("op f<T: float>(x: T[N], dx: T[N]) -> y: T[N] { y = x * dx }")
    with pytest.raises(NotDifferentiable, match="`dx` is a name of its own"):
        backward(op)


@pytest.mark.parametrize("name", ["el", "oc"])
def test_an_operand_whose_gradient_no_line_can_be_is_refused(name):
    op = op_of(f"op f<T: float>({name}: T[N]) -> y: T[N] {{ y = sin({name}) }}")
    with pytest.raises(NotDifferentiable, match=f"`d{name}`, which is a reserved word; rename"):
        backward(op)


def lines(op) -> list[str]:
    return [line.strip() for line in print_op(backward(op)).split("\n")]


def test_softmax_reads_its_result_alone():
    assert [p.name for p in backward(spec("softmax")).params] == ["y", "dy"]
    assert "dx[..., d] = (dy[..., d] - dy_sum[...]) * y[..., d]" in lines(spec("softmax"))


@pytest.mark.parametrize(
    "name, inverse",
    {
        "roll": "dx[n, d] = dy[n, (d - shift) % D]",
        "scatter": "dx[n, d] = dy[ix[n], d] else 0.0",
        "fold": "dx[n, p, r] = dy[n, p * stride + r] else 0.0",
        "flip": "dx[n, d] = dy[n, D - d - 1]",
        "embedding_bag": "dt[v, d] = sum[n, k < K](where(ix[n, k] == v, dy[n, d], 0))",
    }.items(),
)
def test_an_inverse_reads_as_one_would_write_it(name, inverse):
    signature, body, _, _ = LINES[name]
    assert inverse in lines(op_of(f"op {name}_op<T: float>({signature} {{ {body} }}"))


def test_the_gradient_of_a_scalar_is_as_exact_as_the_call():
    op = tritongen.compile_op(
        "op f<T: float>(x: T[N], lam: f32) -> y: T[N] { y[n] = exp(lam * x[n]) }"
    )
    x = torch.linspace(-2, 2, 50, dtype=torch.float64)
    for dtype, least in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        lam = torch.tensor(0.3, dtype=dtype, requires_grad=True)
        (found,) = torch.autograd.grad(op(x, lam).sum(), lam)
        (right,) = torch.autograd.grad(torch.exp(lam * x).sum(), lam)
        assert found.dtype == dtype and (found - right).abs() < least
