"""What a call keeps for its gradient: results of products, and nothing that costs more than it saves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tritongen
from tritongen import pipeline
from tritongen.autodiff import with_gradient
from tritongen.check import check
from tritongen.cli import main
from tritongen.ir.print import print_op
from tritongen.runtime.load import load_text
from tritongen.syntax.parse import parse

ROOT = Path(__file__).parents[2]
GELU = (ROOT / "specs/linear_gelu.op").read_text()
F = torch.nn.functional

FORWARD = """\
op linear_gelu_forward<T: float>(x: T[M, K], w: T[N, K], b: T[N]) -> (y: T[M, N], acc_kept: T[M, N]) {
  acc[m, n] = sum[k](x[m, k] * w[n, k])
  acc_kept[m, n] = acc[m, n]
  y[m, n] = (acc[m, n] + b[n]) * ndtr(acc[m, n] + b[n])
  doc "linear_gelu, which also returns acc for its gradient."
}
"""


def kept_by(text: str) -> tuple[str, ...]:
    typings = check(parse(text))[-1].typings
    return with_gradient(typings[0], typings)[0].kept


def test_a_product_is_kept_beside_the_results_and_read_back():
    (item,) = pipeline.build(GELU, gradients=True).items
    assert item.forward is not None and item.backward is None
    assert print_op(item.forward.plans[0].op) == FORWARD
    back = item.forward.backward.plans[0].op
    assert back.name == "linear_gelu_backward" and "acc_kept" in {t.name for t in back.tensors}
    assert "x[m, k] * w[n, k]" not in print_op(back)
    (again,) = check(parse(FORWARD))[0].typings
    assert print_op(again) == FORWARD


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ("swiglu_linear", ("gate_kept", "up_kept")),
        ("conv_group_norm_silu", ("conv2d_kept",)),
        ("linear", ()),  # reads no sum again
        ("layer_norm", ()),  # statistics: the gradient has the row in hand
        ("cross_entropy", ("m_kept", "lse_sum_kept")),  # of rows larger than each result
        ("instance_norm", ("mu_kept", "var_kept")),  # of several dims: it has not
        ("batch_norm_train", ("mu_kept", "var_kept")),
        ("softmax", ()),  # the result serves
        (
            "attention",
            ("m_kept", "o_sum2_kept"),
        ),  # of its weights, larger than any result, the statistics
        ("int8_linear", ()),  # an integer may not fit the result's type
        ("max_pool2d", ("y_at_kept",)),  # its gradient reads no x then
        ("row_norm_max", ()),  # its gradient reads x as it is
        ("max_with_index", ()),  # a result says it
    ],
)
def test_what_specs_keep(spec, kept):
    assert kept_by((ROOT / f"specs/{spec}.op").read_text()) == kept


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("y[m, n] = sin(sum[k](x[m, k] * w[k, n]) + 1)", ("y_sum_kept",)),
        ("y[m, n] = tanh(sum[k](x[m, k] * w[k, n]) + 1)", ()),  # the result serves
        ("y[m, n] = sin(sum[k](x[m, k] * x[m, k])) * w[m, n]", ()),  # one pass, and a large result
    ],
)
def test_what_lines_keep(line, kept):
    text = f"op f<T: float>(x: T[M, K], w: T[K, N]) -> y: T[M, N] {{\n  {line}\n}}"
    assert kept_by(text) == kept


def test_of_several_typings_the_floating_one_keeps():
    (item,) = pipeline.build((ROOT / "specs/row_max.op").read_text(), gradients=True).items
    assert len(item.plans) == 2 and item.forward is not None and len(item.forward.plans) == 1
    mixed = "op f<T: float | int>(x: T[N, D], w: f32[N]) -> y: T[N] {\n  y[n] = max[d](x[n, d]) * T(w[n])\n}"
    (item,) = pipeline.build(mixed, gradients=True).items
    assert item.forward is None  # w wants a gradient where x is of integers, too


@pytest.mark.parametrize(
    "head, lines, shapes",
    [
        ("x: T[N, D]) -> y: T[N]", "y[n] = max[d](x[n, d])", [(3, 4)]),
        # The gradient reads the place, and nothing of x.
        (
            "x: T[N, D]) -> y: T[N, D]",
            "m[n] = max[d](x[n, d])  y[n, d] = x[n, d] - m[n]",
            [(3, 4)],
        ),
        # The gradient of b is that of z, and no operand of the rest.
        (
            "x: T[N, D], b: T[N]) -> (y: T[N, D], z: T[N])",
            "y[n, d] = x[n, d] * x[n, d]  z[n] = b[n]",
            [(3, 4), (3,)],
        ),
        # The gradient reads the sum that was kept, and no b. Its own gradient computes the sum again.
        (
            "x: T[N, D], w: T[K, D], b: U[K]) -> y: T[N, K]",
            "y[n, k] = gelu(sum[d](x[n, d] * w[k, d]) + b[k])",
            [(3, 4), (2, 4), (2,)],
        ),
        # The language has no text for the gradient.
        ("x: T[N, ...]) -> y: T[N]", "y[n] = max[...](x[n, ...])", [(3, 4)]),
        # The text of the gradient does not say that dy has all batch dims.
        (
            "x: T[N, C, ...], w: T[C], b: T[C]) -> y: T[N, C, ...]",
            "y = instance_norm(x, w, b)",
            [(2, 3, 4), (3,), (3,)],
        ),
    ],
)
def test_second_derivatives_read_what_the_gradient_was_given(head, lines, shapes):
    """A place that was kept is one, so x need not be; and nothing asks for what is handed on."""
    types = "T: float, U: float" if "U" in head else "T: float"
    f = tritongen.compile_op(f"op f<{types}>({head} {{ {lines} }}")
    given = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]

    def cubes(*operands):
        found = f(*operands)
        return tuple(y**3 for y in (found if isinstance(found, tuple) else (found,)))

    assert torch.autograd.gradgradcheck(cubes, given)


@pytest.mark.parametrize("shapes", [[(3,), (2, 3)], [(5, 1, 3), (2, 3)]])
@pytest.mark.parametrize(
    "signature, line",
    [
        ("a: i64[..., N]) -> y: T[..., N]", "y[..., n] = sign(x[..., n]) * T(a[..., n])"),
        ("a: i64[..., N]) -> y: T[N]", "y[n] = sum[...](x[..., n] * T(a[..., n]))"),
        ("a: T[..., N]) -> y: T[N]", "y[n] = sum[...](x[..., n] + a[..., n])"),
    ],
)
def test_a_gradient_has_all_batch_dims_though_it_reads_no_operand_with_them(
    signature, line, shapes
):
    f = tritongen.compile_op(f"op f<T: float>(x: T[..., N], {signature} {{ {line} }}")
    x = torch.randn(shapes[0], dtype=torch.float64, requires_grad=True)
    a = torch.arange(6).reshape(shapes[1])
    a = a if "i64" in signature else a.double()
    found, wanted = (torch.autograd.grad(g(x, a).sum(), x)[0] for g in (f, f.reference))
    assert torch.equal(found, wanted)


def test_a_read_beside_its_edge_stays_one():
    text = """
    op f<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N] {
      a[m, n] = sum[k](x[m, k] * w[n, k])
      y[m, n] = a[m, n] * (a[m - 1, n] else 0)
    }"""
    (item,) = pipeline.build(text, gradients=True).items
    assert item.forward is not None and not item.forward.no_gradient
    assert "a_kept[m - 1, n] else 0.0)" in print_op(item.forward.backward.plans[0].op)


def operands() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*shape, requires_grad=True) for shape in ((5, 7), (6, 7), (6,))]


def gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


@pytest.mark.parametrize("standalone", [False, True])
def test_gradients_are_torchs(standalone):
    module = load_text("kept", pipeline.build(GELU, "f", standalone, gradients=True).raw)
    given = operands()
    y = module.linear_gelu(*given)
    assert torch.is_tensor(y) and y.shape == (5, 6)
    found = torch.autograd.grad(y, given, torch.ones_like(y))
    wanted = torch.autograd.grad(gelu(*given).sum(), given)
    for got, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, right)
    with torch.no_grad():
        assert module.linear_gelu(*given).grad_fn is None


def test_torch_compile_and_functorch_keep_it_too():
    module = load_text("kept", pipeline.build(GELU, gradients=True).raw)
    x, w, b = operands()
    (right,) = torch.autograd.grad(gelu(x, w, b).sum(), x)

    def loss(x):
        return module.linear_gelu(x, w, b).sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x)[0], right)
    torch.testing.assert_close(torch.func.grad(loss)(x.detach()), right)


def test_explain_says_what_it_costs_and_saves(monkeypatch, capsys):
    spec = str(ROOT / "specs/linear_gelu.op")
    monkeypatch.setattr(
        sys, "argv", ["tritongen", "explain", spec, "--shape", "M=4096,N=4096,K=4096"]
    )
    with pytest.raises(SystemExit, match="0"):
        main()
    *_, last = capsys.readouterr().out.strip().splitlines()
    assert last.startswith("for the gradient: keeps acc, 32.0 MiB: storing and loading it takes")
    assert "15.9 us, computing it again 183 us" in last


def test_nothing_is_made_for_what_is_only_kept():
    """Autograd would make zeros for the gradient of each output, of which the backward reads some."""
    made = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made.append(str(function))
            return function(*args, **(kwargs or {}))

    module = load_text("kept", pipeline.build(GELU, gradients=True).raw)
    y = module.linear_gelu(*(given := operands()))
    dy = torch.ones_like(y)
    with Watch():
        torch.autograd.grad(y, given, dy)
    assert made and not [name for name in made if "zero" in name]
