"""torch.func over generated ops: a mapped dim is one more batch dim, the tangent of what is linear the op itself."""

from __future__ import annotations

import pytest
import torch
from test_backward import AS_TORCH, ROOT, ops_of, randn, spec
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from tritongen import lib
from tritongen.autodiff import NotDifferentiable, gradient
from tritongen.check import check
from tritongen.ir.batches import by_itself
from tritongen.ir.linear import linear_in
from tritongen.syntax.parse import parse

pytestmark = [
    pytest.mark.filterwarnings("error"),  # torch warns where it loops for want of a rule
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # torch's own use
]


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def op_of(text: str):
    return check(parse(text))[-1].typings[0]


@pytest.fixture
def counted(monkeypatch):
    """How often the reference of layer_norm ran."""
    layer_norm, ran = spec("layer_norm"), []
    monkeypatch.setattr(lib, "runs_kernels", lambda x: ran.append(tuple(x.shape)) or x.is_cuda)
    return layer_norm, ran


@pytest.mark.parametrize(
    "in_dims, calls",
    [((0, None, None), 1), ((1, None, None), 1), ((None, 0, 0), 4), ((0, 0, None), 4)],
)
def test_a_mapped_dim_is_one_more_batch_dim(counted, in_dims, calls):
    layer_norm, ran = counted
    theirs, plain, _ = AS_TORCH["layer_norm"]
    operands = [
        x if d is None else torch.stack([x * k for k in (1, -1, 2, 3)], d)
        for x, d in zip(plain, in_dims, strict=True)
    ]
    close(vmap(layer_norm, in_dims)(*operands), vmap(theirs, in_dims)(*operands))
    assert len(ran) == calls


MIXED = """
op mixed<T: float>(x: T[N, ...], t: T[...], s: f32 = 2) -> (y: T[N, ...], total: T[..., N]) {
  y[n, ...] = x[n, ...] * t[...] * s
  total[..., n] = x[n, ...] + t[...]
}
"""


@pytest.mark.parametrize("in_dims", [(2, 1, None), (1, None, None), (None, 0, None), (2, 0, 0)])
def test_dims_before_the_batch_dims_and_fewer_of_them(in_dims):
    def theirs(x, t, s):
        return x * t * s, (x + t).movedim(0, -1)

    shapes = [[2, 3, 4], [4], []]
    for shape, dim in zip(shapes, in_dims, strict=True):
        if dim is not None:
            shape.insert(dim, 5)
    operands = [randn(*shape) for shape in shapes]
    found = vmap(ops_of(MIXED).mixed, in_dims)(*operands)
    close(found, vmap(theirs, in_dims)(*operands))


@pytest.mark.parametrize("in_dims", [(0, None, None), (0, 0, 0)])
def test_vmap_over_grad_and_grad_over_vmap(in_dims):
    theirs, (x, w, b), _ = AS_TORCH["layer_norm"]
    ours = spec("layer_norm")
    pairs = zip((x, w, b), in_dims, strict=True)
    operands = [v if d is None else torch.stack([v, -v]) for v, d in pairs]
    weight = torch.arange(9.0)

    def both(f):
        loss = lambda *given: (f(*given) * weight).sum()  # noqa: E731
        each = vmap(grad(loss, (0, 1, 2)), in_dims)(*operands)
        return each, grad(lambda *given: vmap(loss, in_dims)(*given).sum(), (0, 1, 2))(*operands)

    close(both(ours), both(theirs))
    leaves = [v.clone().requires_grad_() for v in operands]
    found = torch.autograd.grad((vmap(ours, in_dims)(*leaves) * weight).sum(), leaves)
    wanted = torch.autograd.grad((vmap(theirs, in_dims)(*leaves) * weight).sum(), leaves)
    close(found, wanted)


def test_an_op_that_keeps_values_for_its_gradient_does_so_below_vmap():
    gelu, x, w, b = torch.nn.functional.gelu, randn(2, 4, 5), randn(3, 5), randn(3)
    linear_gelu = spec("linear_gelu")
    theirs = lambda x: gelu(x @ w.T + b)  # noqa: E731
    ours = lambda x: linear_gelu(x, w, b)  # noqa: E731
    for f in (vmap, lambda g: torch.compile(vmap(g), backend="aot_eager", fullgraph=True)):
        leaf = x.clone().requires_grad_()
        found = torch.autograd.grad(f(ours)(leaf).pow(2).sum(), leaf)
        close(found, torch.autograd.grad(vmap(theirs)(leaf).pow(2).sum(), leaf))
    loss = lambda f: grad(lambda x: vmap(f)(x).pow(2).sum())  # noqa: E731
    close(loss(ours)(x), loss(theirs)(x))


def test_jacobians_and_what_is_mapped_twice():
    softmax, x = spec("softmax"), randn(2, 3, 4, 5)
    torch_softmax = lambda x: torch.softmax(x, -1)  # noqa: E731
    close(vmap(vmap(softmax, 1), 1)(x), vmap(vmap(torch_softmax, 1), 1)(x))
    close(jacrev(softmax)(x[0, 0, 0]), jacrev(torch_softmax)(x[0, 0, 0]))
    assert vmap(softmax)(x[:0]).shape == (0, 3, 4, 5)
    with pytest.raises(RuntimeError, match="matmul: vmap over a dim of size 0"):
        vmap(spec("matmul"), (0, None))(randn(0, 5, 8), randn(8, 3))


@pytest.mark.parametrize(
    "body, known",
    [
        ("y[..., n] = x[..., n] - max[k](x[..., k])", True),
        ("m[n] = mean[...](x[..., n])\n  y[..., n] = x[..., n] - m[n]", False),
    ],
)
def test_what_knows_of_other_batches_runs_entry_by_entry(body, known):
    op = f"op f<T: float>(x: T[..., N]) -> y: T[..., N] {{\n  {body}\n}}"
    assert by_itself(op_of(op)) is known


# ---- forward mode ---------------------------------------------------------------------------------
def test_the_tangent_of_what_is_linear_is_the_op_of_it():
    theirs, primals = torch.nn.functional.linear, (randn(4, 5), randn(3, 5), randn(3))
    ours, tangents = spec("linear"), tuple(randn(*p.shape, seed=7) for p in primals)
    close(jvp(ours, primals, tangents), jvp(theirs, primals, tangents))
    for k in range(3):
        one = lambda f, k=k: lambda v: f(*primals[:k], v, *primals[k + 1 :])  # noqa: E731
        given = (primals[k],), (tangents[k],)
        close(jvp(one(ours), *given), jvp(one(theirs), *given))
        close(jacfwd(one(ours))(primals[k]), jacfwd(one(theirs))(primals[k]))
    dual = torch.autograd.forward_ad
    with dual.dual_level():
        y = ours(dual.make_dual(primals[0], tangents[0]), *primals[1:])
        close(dual.unpack_dual(y).tangent, theirs(tangents[0], primals[1]))


def test_gradients_of_many_results_at_once(monkeypatch):
    """`torch.autograd.grad(is_grads_batched=True)` maps by a vmap of its own, whose tensors no kernel can read."""
    x, dy, runs, ran = randn(3, 6).requires_grad_(), randn(4, 3, 6), lib.runs_kernels, []
    y = spec("softmax")(x)
    monkeypatch.setattr(lib, "runs_kernels", lambda t: ran.append(t) or runs(t))
    (found,) = torch.autograd.grad(y, x, dy, is_grads_batched=True)
    assert len(ran) == 4  # torch asks for each entry by itself
    close(found, torch.autograd.grad(torch.softmax(x, -1), x, dy, is_grads_batched=True)[0])


def test_second_derivatives_of_what_is_linear():
    both = ops_of(
        "op f<T: float>(x: T[N]) -> (y: T[N], z: T[N]) {\n  y[n] = 3 * x[n]\n  z[n] = 5 * x[n]\n}"
    ).f
    found = hessian(lambda x: both(x)[0].pow(3).sum())(randn(4))
    close(found, hessian(lambda x: (3 * x).pow(3).sum())(randn(4)))


def test_a_scalar_has_a_tangent_and_an_integer_none():
    scaled = ops_of(
        "op f<T: float>(x: T[...], s: f32 = 2) -> (y: T[...], i: i64[...]) {\n"
        "  y[...] = x[...] * s\n  i[...] = 3\n}"
    ).f
    x, s = randn(3), torch.tensor(5.0)
    close(jvp(lambda x, s: scaled(x, s)[0], (x, s), (x, s))[1], 2 * x * s)
    close(jvp(lambda x: scaled(x)[0], (x,), (x,))[1], 2 * x)
    assert not jvp(spec("row_argmax"), (randn(2, 3),), (randn(2, 3),))[1].any()


def test_what_is_not_linear_says_so():
    x = randn(3, 9)
    with pytest.raises(RuntimeError, match="softmax: no forward-mode .* not linear in x. Use rev"):
        jvp(spec("softmax"), (x,), (x,))
    w, b = randn(9), randn(9, seed=1)
    layer_norm = lambda b: spec("layer_norm")(x, w, b)  # noqa: E731
    close(jvp(layer_norm, (b,), (w,))[1], w.expand(3, 9))
    scaled = lambda w: spec("swiglu_linear")(x, randn(5, 9), w)  # noqa: E731
    close(jvp(scaled, (randn(5, 9),), (randn(5, 9, seed=1),))[1], scaled(randn(5, 9, seed=1)))


def test_forward_mode_inside_torch_compile_is_refused():
    linear, x = spec("linear"), randn(4, 5)

    @torch.compile(backend="eager", fullgraph=True)
    def tangent(x, t):
        return jvp(lambda x: linear(x, torch.ones(3, 5), torch.ones(3)), (x,), (t,))[1]

    with pytest.raises(Exception, match="linear: forward mode does not work inside torch.compile"):
        tangent(x, x)


@pytest.mark.parametrize(
    "text, groups",
    [
        ("(x: T[N], w: T[N], b: T[N]) -> y: T[N] {\n  y[n] = x[n] * w[n] + b[n]\n}", "xb wb"),
        ("(x: T[N], w: T[N], b: T[N]) -> y: T[N] {\n  y[n] = x[n] / w[n] - b[n]\n}", "xb"),
        ("(x: T[N], b: T[N]) -> y: T[N] {\n  y[n] = where(x[n] > 0, b[n], 0)\n}", "b"),
        ("(x: T[N], b: T[N]) -> y: T[N] {\n  y[n] = where(x[n] > 0, b[n], 1)\n}", ""),
        ("(x: T[N], s: f32) -> y: T[N] {\n  t[n] = x[n] * s\n  y[n] = t[n] * s\n}", "x"),
        ("(x: T[N]) -> y: T[N] {\n  y[n] = sum[k < 2](x[n + k] else 0)\n}", "x"),
        ("(x: T[N]) -> y: T[N] {\n  y[n] = sum[k < 2](x[n + k] else 1)\n}", ""),
        ("(x: T[N]) -> y: T[N] {\n  y[n] = detach(x[n])\n}", ""),
        ("(x: T[N], z: T[N]) -> (y: T[N], w: T[N]) {\n  y[n] = x[n]\n  w[n] = z[n]\n}", "xz"),
        ("(x: T[N], z: T[N]) -> y: T {\n  i = argmax[n](x[n])\n  y = z[i] else 0\n}", "z"),
        ("(x: T[N], z: T[N]) -> y: T {\n  i = argmax[n](x[n])\n  y = sum[n < i](z[n])\n}", "z"),
        ("(x: T[N]) -> y: T {\n  i = argmax[n](x[n])\n  y = x[i] else 0\n}", ""),
    ],
)
def test_the_operands_in_which_an_op_is_linear(text, groups):
    assert ["".join(g) for g in linear_in(op_of(f"op f<T: float>{text}"))] == groups.split()


def test_every_gradient_is_linear_in_what_comes_in():
    for path in sorted((ROOT / "specs").glob("*.op"))[::6]:
        op = op_of(path.read_text())
        try:
            back = gradient(op)
        except NotDifferentiable:
            continue
        incoming = {t.name for t in back.tensors} & {f"d{o.name}" for o in op.outputs}
        assert any(incoming <= set(group) for group in linear_in(back)), path.name
