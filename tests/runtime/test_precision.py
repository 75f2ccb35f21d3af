"""How products of f32 are computed: by the spec's word, torch's switches, or `with tritongen.precision`."""

import functools
import warnings
from pathlib import Path
from random import Random

import pytest
import torch

import tritongen
from tritongen.cost import H200
from tritongen.explain import explain_call, text
from tritongen.pipeline import build
from tritongen.proof import cases
from tritongen.proof.oracle import expect
from tritongen.runtime.load import load_text
from tritongen.runtime.precision import PRECISIONS, f32_precision
from tritongen.trace import trace

ROOT = Path(__file__).parents[2]
HEAD = "op f<T: float>(a: T[M, K], b: T[K, N]) -> y: T[M, N] {\n"
PRODUCT = HEAD + "  y[m, n] = sum[k](a[m, k] * b[k, n])\n"
LARGE = {n: torch.empty(4096, 4096, device="meta") for n in "ab"}


@pytest.fixture
def switches():
    """Torch's own, which a test may turn."""
    yield torch.backends
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def launched(module, name="f", args=LARGE):
    """The kernels of a call but for copies, and what they are told of products of f32."""
    found = trace(module, name, args).launches
    kernels = {run.kernel.fn.__name__: run.config.get("PRECISION") for run in found}
    return {kernel: word for kernel, word in kernels.items() if kernel != "_copy"}


def module_of(spec: str, standalone: bool = False):
    return load_text("f", build(spec, standalone=standalone).raw)


# ---- what decides ---------------------------------------------------------------------------------
def test_torchs_switches_old_and_new_decide(switches):
    assert (f32_precision("matmul"), f32_precision("conv")) == ("tf32x3", "tf32")
    turns = [
        (lambda: setattr(switches.cudnn, "allow_tf32", False), "tf32x3", "tf32x3"),
        (lambda: setattr(switches.cuda.matmul, "allow_tf32", True), "tf32", "tf32x3"),
        (lambda: torch.set_float32_matmul_precision("highest"), "tf32x3", "tf32x3"),
        (lambda: torch.set_float32_matmul_precision("high"), "tf32", "tf32x3"),
        (lambda: setattr(switches.cudnn.conv, "fp32_precision", "tf32"), "tf32", "tf32"),
        (lambda: setattr(switches.cuda.matmul, "fp32_precision", "ieee"), "tf32x3", "tf32"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for turn, matmul, conv in turns:
            turn()
            assert (f32_precision("matmul"), f32_precision("conv")) == (matmul, conv)


def test_a_spec_comes_before_the_switches_and_with_before_both():
    with tritongen.precision("tf32"):
        assert f32_precision("ieee") == f32_precision("matmul") == "tf32"
        with tritongen.precision("ieee"):
            assert f32_precision("conv") == f32_precision("tf32") == "ieee"
        assert f32_precision("matmul") == "tf32"
    assert f32_precision("ieee") == "ieee" and f32_precision("matmul") == "tf32x3"
    with pytest.raises(ValueError, match="one of ieee, tf32x3, tf32, given 'half'"):
        tritongen.precision("half")


@pytest.mark.parametrize(
    "name, asked",
    [("linear", "matmul"), ("conv2d", "conv"), ("attention", ""), ("int8_linear", "")],
)
def test_products_with_a_window_ask_the_switch_of_convolutions(name, asked):
    (plan,) = build((ROOT / "specs" / f"{name}.op").read_text(), f"{name}.op").plans[name]
    assert {s.precision for s in plan.steps} == {asked}


@pytest.mark.parametrize(
    "line, asked",
    [
        ("y[m, n] = sum[k](a[m, k] * b[k, n])", "matmul"),
        ("y[m, n] = sum[k <= m](a[m, k] * b[k, n])", "matmul"),  # a bound is no coordinate
        ("y[m, n] = sum[k < 1]((a[m, n + k] else 0) * b[k, m])", ""),  # no product of tiles
        ("y[m, n] = sum[k]((a[m - k, 0] else 0) * b[k, n])", "conv"),  # whatever the extents
    ],
)
def test_a_window_is_a_coordinate_of_a_kept_and_a_reduced_index(line, asked):
    (plan,) = build(HEAD + f"  {line}\n}}").plans["f"]
    assert [s.precision for s in plan.steps] == [asked]


# ---- what runs ------------------------------------------------------------------------------------
@pytest.mark.parametrize("clause", ["", "  precision tf32x3\n"])
def test_operands_are_presplit_only_for_three_products(clause):
    module = module_of(PRODUCT + clause + "}")
    with tritongen.precision("tf32x3"):
        assert "f_tf32x3" in launched(module)
    for word in ("tf32", "ieee"):
        with tritongen.precision(word):
            assert launched(module) == {"f_persistent": word}


def test_a_standalone_module_asks_torch_itself(switches):
    module = module_of(PRODUCT + "}", standalone=True)
    assert "tritongen" not in {n.partition(".")[0] for n in vars(module)}
    assert "f_tf32x3" in launched(module)
    switches.cuda.matmul.allow_tf32 = True
    assert launched(module) == {"f_persistent": "tf32"}
    conv = module_of((ROOT / "specs/conv2d.op").read_text(), standalone=True)
    args = {"x": (8, 16, 32, 32), "w": (32, 16, 3, 3), "b": (32,)}
    args = {k: torch.empty(s, device="meta") for k, s in args.items()}
    assert "tf32" in launched(conv, "conv2d", args).values()
    switches.cudnn.allow_tf32 = False
    assert "tf32x3" in launched(conv, "conv2d", args).values()


def test_compile_decides_when_it_traces():
    module = module_of(PRODUCT + "}")
    seen = []

    def backend(graph, inputs):
        seen.append([n.args[-1] for n in graph.graph.nodes if "tritongen" in str(n.target)])
        return graph

    @torch.compile(backend=backend, fullgraph=True)
    def both(a, b):
        y = module.f(a, b)
        with tritongen.precision("ieee"):
            return module.f(y, b)

    x = torch.randn(4, 4)
    torch.testing.assert_close(both(x, x), x @ x @ x)
    with tritongen.precision("tf32"):
        both(x, x)
    assert seen == [["tf32x3", "ieee"], ["tf32", "ieee"]]


NOTED = """
import torch
from tritongen import runtime

noted = []

def backward(x, dy):
    noted.append((runtime.f32_precision("matmul"), runtime.f32_precision("conv")))
    return dy

def forward(x):
    return x * 1

@runtime.op(
    "specs/noted.op", allocate=forward, reference=forward, precision=("matmul",),
    backward=runtime.Backward("backward", wrt=("x",), outputs=("y",)),
)
def noted_op(x: torch.Tensor) -> torch.Tensor:
    return forward(x)
"""


def test_a_backward_is_as_precise_as_its_forward():
    module = load_text("noted", NOTED)
    x = torch.randn(3, requires_grad=True)
    with tritongen.precision("ieee"):
        y = module.noted_op(x)
    y.sum().backward()
    with tritongen.precision("ieee"):
        z = module.noted_op(x)
        with tritongen.precision("tf32"):
            z.sum().backward()
    assert module.noted == [("ieee", "ieee")] * 2
    assert f32_precision("matmul") == "tf32x3"


def test_a_backward_whose_forward_has_no_products_of_f32_is_as_precise_as_was_asked_there():
    """On a GPU it runs in a thread of autograd's own, in which nothing is decided."""
    spec = """op f<T: f16 | bf16>(x: T[M, K], w: T[N, K]) -> y: T[M, N] {
      y[m, n] = sum[k](x[m, k] * w[n, k])
      grad {
        dx[m, k] = sum[n](relu(dy[m, n]) * w[n, k])
        dw[n, k] = sum[m](relu(dy[m, n]) * x[m, k])
      }
    }"""
    module = load_text("f", build(spec, gradients=True).raw)
    own, noted = module.f_backward, []

    @functools.wraps(own)
    def backward(*args):
        noted.append(f32_precision("matmul"))
        return own(*args)

    module.f_backward = backward
    x, w = (torch.randn(3, 4).half().requires_grad_() for _ in range(2))
    for word in ("tf32", "ieee"):
        with tritongen.precision(word):
            y = module.f(x, w)
        y.sum().backward()
    assert noted == ["tf32", "ieee"]


# ---- what is said of it -----------------------------------------------------------------------------
def test_explain_says_which_and_why(switches):
    module = module_of(PRODUCT + "}")
    (plan,) = build(PRODUCT + "}").plans["f"]

    def said(dtype=torch.float32):
        args = {k: v.to(dtype) for k, v in LARGE.items()}
        return text(explain_call(module, plan, args, ceilings=H200))

    matmul = "since torch.backends.cuda.matmul.fp32_precision is"
    assert f"products of f32 in tf32x3, {matmul} '" in said()
    exact = said()
    switches.cuda.matmul.allow_tf32 = True
    assert f"products of f32 in tf32, {matmul} 'tf32'" in said()
    assert said().splitlines()[-2] != exact.splitlines()[-2]  # the least time is another one
    with tritongen.precision("ieee"):
        assert "products of f32 in ieee, as `with tritongen.precision` says" in said()
    assert "products of f32" not in said(torch.bfloat16)


def test_check_draws_all_three_and_bounds_each_as_asked():
    (op,) = build(PRODUCT + "}").ops["f"]
    random = Random(0)
    assert {cases.draw_case(op, random).precision for _ in range(30)} == set(PRECISIONS)
    below = torch.full((1, 1), 1 + 2.0**-10 - 2.0**-23)
    slack = {}
    for word in PRECISIONS:
        with tritongen.precision(word):
            slack[word] = float(expect(op, {"a": below, "b": below})["y"].slack)
    assert slack["ieee"] == slack["tf32x3"] < 2.0**-19 and slack["tf32"] > 2.0**-10
