"""What torch does with generated ops on a GPU: compile, graphs, opcheck, transforms, autocast, AOTInductor.

Beside `test_torch.py` and `test_transforms.py`, where references stand for the kernels.
"""

from __future__ import annotations

import copy
import functools
import gc
import subprocess
import sys

import pytest
import torch
from test_backward import AS_TORCH, ops_of, spec
from test_torch import CHECKED, LOW, opcheck
from torch.func import grad, jvp, vmap
from torch.utils.checkpoint import checkpoint

import tritongen
from tritongen import nn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(
        "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
    ),
]
F = torch.nn.functional
NAMES = ["relu", "softmax", "layer_norm", "matmul", "max_with_index", "cross_entropy", "conv1d"]
close = functools.partial(torch.testing.assert_close, rtol=2e-4, atol=2e-5)


@pytest.fixture(autouse=True)
def in_full():
    """Products and convolutions in f32 throughout, torch's and ours."""
    with tritongen.precision("ieee"), torch.backends.cudnn.flags(allow_tf32=False):
        yield
    torch.compiler.reset()


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def case(name: str):
    """Ours, torch's, and fresh operands of the shapes that `test_backward.py` has, a factor larger in front."""
    theirs, operands, constants = AS_TORCH[name]

    def operands_of(times: int = 1) -> list[torch.Tensor]:
        drawn = []
        for k, x in enumerate(operands):
            rows = k == 0 or not x.is_floating_point()
            x = torch.cat([x] * times) if rows else x
            drawn.append(randn(*x.shape) if x.is_floating_point() else x.cuda())
        return drawn

    return (
        functools.partial(spec(name), **constants),
        functools.partial(theirs, **constants),
        operands_of,
    )


def with_gradients(function, operands, dys) -> list[torch.Tensor]:
    """Outputs, and gradients of all floats."""
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in operands]
    given = function(*leaves)
    given = given if isinstance(given, tuple) else (given,)
    ys = [y for y in given if y.requires_grad]
    wanted = [x for x in leaves if x.requires_grad]
    found = torch.autograd.grad(
        ys, wanted, [d[: y.numel()].view(y.shape) for y, d in zip(ys, dys, strict=True)]
    )
    return [*(y.detach().clone() for y in given), *(x.clone() for x in found)]


def same(ours, theirs, operands) -> None:
    dys = [torch.linspace(-1, 2, 4096, device="cuda")]
    close(with_gradients(ours, operands, dys), with_gradients(theirs, operands, dys))


# ---- torch.compile --------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["static", "dynamic", "reduce-overhead"])
@pytest.mark.parametrize("name", NAMES)
def test_compiled_without_a_break(name, how):
    """Twice what it was compiled for, so that graphs are replayed; then, if dynamic, other rows."""
    ours, theirs, operands_of = case(name)
    options = (
        {"mode": "reduce-overhead"} if how == "reduce-overhead" else {"dynamic": how == "dynamic"}
    )
    compiled = torch.compile(ours, fullgraph=True, **options)
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        same(compiled, theirs, operands_of(3))
    if how == "dynamic":
        with torch.compiler.set_stance("fail_on_recompile"):
            same(compiled, theirs, operands_of(5))


# ---- CUDA graphs ----------------------------------------------------------------------------------
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("name", NAMES)
def test_a_graph_of_forward_and_backward(name, warm):
    """Cold: the first call of the process is the captured one."""
    ours, theirs, operands_of = case(name)
    held, dys = operands_of(2), [torch.linspace(-1, 2, 4096, device="cuda")]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(4 if warm else 0):
            with_gradients(ours, held, dys)
    torch.cuda.synchronize()
    gc.collect()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = with_gradients(ours, held, dys)
    for _ in range(2):
        for x, fresh in zip(held, operands_of(2), strict=True):
            x.copy_(fresh)
        graph.replay()
        torch.cuda.synchronize()
        close(found, with_gradients(theirs, held, dys))


# ---- torch's own checks ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", CHECKED)
def test_opcheck(name):
    _, _, operands_of = case(name)
    opcheck(name, operands_of())


# ---- transforms -----------------------------------------------------------------------------------
def test_vmap_over_grad_and_the_tangent_of_what_is_linear():
    softmax, linear = spec("softmax"), spec("linear")
    x, weight, w, b = randn(3, 4, 17), randn(4, 17), randn(5, 17), randn(5)
    loss = lambda f: lambda x: (f(x) * weight).sum()  # noqa: E731
    torchs = functools.partial(torch.softmax, dim=-1)
    close(vmap(grad(loss(softmax)))(x), vmap(grad(loss(torchs)))(x))
    close(
        grad(lambda x: vmap(loss(softmax))(x).sum())(x),
        grad(lambda x: vmap(loss(torchs))(x).sum())(x),
    )
    primals, tangents = (x, w, b), (randn(3, 4, 17), randn(5, 17), randn(5))
    close(jvp(linear, primals, tangents), jvp(F.linear, primals, tangents))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_under_autocast(reentrant):
    """The gradients of a half product are the operands' own dtype, in a thread of autograd's."""
    low, found = ops_of(LOW).low_linear, []
    x, w = randn(64, 48), randn(32, 48)
    for f in (low, F.linear):
        leaves = [v.clone().requires_grad_() for v in (x, w)]
        with torch.autocast("cuda", torch.bfloat16):
            y = checkpoint(f, *leaves, use_reentrant=reentrant)
        assert y.dtype == torch.bfloat16
        y.float().pow(2).sum().backward()
        assert all(v.grad.dtype == torch.float32 for v in leaves)
        found.append([v.grad for v in leaves])
    torch.testing.assert_close(*found, rtol=2e-2, atol=5e-2)


def test_second_derivatives():
    """Of what is compiled in a process: its gradient's own gradient, kernels of both."""
    f = tritongen.compile_expr("x ** 4 * w")
    x, w = randn(1000).requires_grad_(), randn(1000)
    (first,) = torch.autograd.grad(f(x, w).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    close(second, 12 * x.detach() ** 2 * w)


# ---- whole models ---------------------------------------------------------------------------------
PLAIN = """
import sys, torch
class Twice(torch.nn.Module):
    def forward(self, x):
        return x * 2
program = torch.export.export(Twice(), (torch.ones(4, device="cuda"),))
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1])
torch._inductor.aoti_load_package(sys.argv[1])
"""


def test_a_model_compiled_ahead_of_time(tmp_path):
    plain = [sys.executable, "-c", PLAIN, str(tmp_path / "plain.pt2")]
    if subprocess.run(plain, capture_output=True).returncode:
        pytest.skip("AOTInductor loads no package here, not of `x * 2` either")
    layer_norm = spec("layer_norm")

    class Model(torch.nn.Module):
        def forward(self, x, w, b):
            return layer_norm(torch.relu(x), w, b) * 2

    w, b = randn(9), randn(9)
    rows = {"x": {0: torch.export.Dim("rows", min=2)}, "w": None, "b": None}
    program = torch.export.export(Model(), (randn(4, 9), w, b), dynamic_shapes=rows)
    path = str(tmp_path / "model.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    loaded = torch._inductor.aoti_load_package(path)
    for count in (4, 7):
        x = randn(count, 9)
        close(loaded(x, w, b), F.layer_norm(torch.relu(x), (9,), w, b) * 2)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_layers_train_as_torchs(compiled):
    """Ten steps of the same weights and data, the losses of each."""
    losses = {}
    for made in (torch.nn, nn):
        torch.manual_seed(0)
        layers = [made.Conv2d(3, 8, 3, padding=1), made.GroupNorm(2, 8), torch.nn.Flatten()]
        model = torch.nn.Sequential(*layers, made.Linear(8 * 36, 10)).cuda()
        step = torch.compile(model, fullgraph=True) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        generator = torch.Generator("cuda").manual_seed(1)
        x = torch.randn(16, 3, 6, 6, device="cuda", generator=generator)
        target = torch.randint(10, (16,), device="cuda", generator=generator)
        for _ in range(10):
            loss = made.CrossEntropyLoss()(step(x), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.setdefault(made, []).append(loss.item())
    ours, theirs = losses[nn], losses[torch.nn]
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    assert ours[-1] < ours[0] / 2


def test_a_model_of_our_layers_is_a_graph_with_its_gradient():
    """torch.cuda.make_graphed_callables captures a forward and its backward, and replays them on other batches."""
    model = torch.nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        torch.nn.Flatten(),
        nn.Linear(16 * 64, 32, activation="gelu"),
        nn.LayerNorm(32),
        nn.Linear(32, 8),
    ).cuda()
    plain = copy.deepcopy(model)
    graphed = torch.cuda.make_graphed_callables(model, (randn(4, 3, 8, 8),))
    for _ in range(3):
        x, found = randn(4, 3, 8, 8), []
        for each in (graphed, plain):
            each.zero_grad(set_to_none=True)
            y = each(x)
            y.square().sum().backward()
            found.append([y.detach().clone(), *(p.grad.clone() for p in each.parameters())])
        for ours, wanted in zip(*found, strict=True):
            close(ours, wanted)
