"""Training with generated ops by torch's own means: autocast, checkpoints, compile, DDP, AOTInductor."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from functorch.compile import make_boxed_func
from test_backward import AS_TORCH, ROOT, gradients, ops_of, randn, spec
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

import tritongen
from tritongen.runtime import torch_op as torch_ops
from tritongen.runtime.schema import binder, params_of, splitter

F = torch.nn.functional


# ---- autocast -------------------------------------------------------------------------------------
LOW = """
op low_linear<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N] {
  y[m, n] = sum[k](x[m, k] * w[n, k])
  autocast low
}
"""
WIDE = """
op wide_softmax<T: float>(x: T[..., D]) -> y: T[..., D] {
  e[..., d] = exp(x[..., d])
  y[..., d] = e[..., d] / sum[k](e[..., k])
  autocast f32
}
"""


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
@pytest.mark.parametrize(
    "ours, theirs, operands, dtype",
    [
        (lambda: ops_of(LOW).low_linear, F.linear, [randn(4, 5), randn(3, 5)], torch.bfloat16),
        (
            lambda: ops_of(WIDE).wide_softmax,
            lambda x: torch.softmax(x.float(), -1),
            [randn(4, 5).bfloat16()],
            torch.float32,
        ),
        (
            lambda: spec("swiglu"),
            lambda a, b: F.silu(a) * b,
            [randn(4, 5), randn(4, 5)],
            torch.float32,
        ),
    ],
    ids=["low", "f32", "nothing"],
)
def test_autocast_casts_and_its_gradients_are_the_operands(ours, theirs, operands, dtype, inside):
    found = {}
    for f in (ours(), theirs):
        leaves = [x.clone().requires_grad_() for x in operands]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = f(*leaves)
            loss = (y * y).sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        assert y.dtype == dtype and [x.grad.dtype for x in leaves] == [x.dtype for x in leaves]
        found[f] = [y, *(x.grad for x in leaves)]
    for got, right in zip(*found.values(), strict=True):
        torch.testing.assert_close(got, right)


# ---- checkpoints ----------------------------------------------------------------------------------
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_runs_the_forward_again(reentrant):
    f = tritongen.compile_expr("max(x, 0) * w + b")
    theirs = lambda x, w, b: torch.relu(x) * w + b  # noqa: E731
    found, calls = [], []

    def watched(*operands):
        calls.append(operands)
        return f(*operands)

    for function in (watched, theirs):
        leaves = [
            randn(3, 4).requires_grad_(),
            randn(4).requires_grad_(),
            randn(1).requires_grad_(),
        ]
        checkpoint(function, *leaves, use_reentrant=reentrant).pow(2).sum().backward()
        found.append([x.grad for x in leaves])
    torch.testing.assert_close(*found)
    assert len(calls) == 2


# ---- torch.compile --------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_sees_through(dynamic):
    theirs, operands, _ = AS_TORCH["layer_norm"]
    ours = torch.compile(spec("layer_norm"), backend="aot_eager", fullgraph=True, dynamic=dynamic)

    def same(operands, asked):
        found, wanted = gradients(ours, operands, asked), gradients(theirs, operands, asked)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)

    same(operands, [0, 1, 2])
    same(operands, [2])
    if dynamic:
        with torch.compiler.set_stance("fail_on_recompile"):
            same([randn(7, 5, 9), *operands[1:]], [0, 1, 2])


def test_compiled_graphs_call_what_launches():
    """The op with a gradient is not in them: the dispatcher would go through Python twice for each call."""
    called: list[str] = []

    def noted(graph, example_inputs):
        called.extend(str(n.target) for n in graph.graph.nodes if "tritongen" in str(n.target))
        return make_boxed_func(graph.forward)

    noting = aot_autograd(fw_compiler=noted, bw_compiler=noted)
    theirs, operands, _ = AS_TORCH["layer_norm"]
    ours = torch.compile(spec("layer_norm"), backend=noting, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(ours(*operands), theirs(*operands), rtol=1e-4, atol=1e-5)
    assert len(called) == 1
    found = gradients(ours, operands, [0, 1, 2])
    torch.testing.assert_close(found, gradients(theirs, operands, [0, 1, 2]), rtol=1e-4, atol=1e-5)
    assert len(called) == 3 and all(name.endswith("_launch.default") for name in called)


@pytest.mark.slow
def test_inductor_is_told_of_each_op(monkeypatch):
    """torch 2.11 prints an op that it was not told of with all that its operands come from: in a chain, without end."""
    from torch._inductor import config, graph

    missing: list[str] = []
    make_fallback = graph.make_fallback

    def noted(target, **options):
        missing.append(str(target))
        return make_fallback(target, **options)

    monkeypatch.setattr(graph, "make_fallback", noted)
    source = "op shifted<T: float>(x: T[...]) -> y: T[...] { y[...] = x[...] * 3 + x[...] ** 2 }"
    op = ops_of(source).shifted
    ours = torch.compile(lambda x: op(op(x)), fullgraph=True)
    x = randn(3, 5)
    with config.patch(force_disable_caches=True):
        found = gradients(ours, [x], [0])
    torch.testing.assert_close(found, gradients(lambda x: op(op(x)), [x], [0]))
    assert not missing


@pytest.mark.slow
def test_torch_compile_takes_a_changing_number_without_compiling_again():
    """As torch's own ops do: once for the first number, once for any other."""
    model = torch.compile(spec("leaky_relu"), backend="aot_eager", fullgraph=True)
    torch._dynamo.utils.counters.clear()
    for slope in (0.5, 0.25, 0.75, 1, 2.5):
        x = randn(5, 7).requires_grad_()
        y = model(x, slope)
        torch.testing.assert_close(y, torch.nn.functional.leaky_relu(x, slope))
        (dx,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(dx, torch.where(x > 0, 1.0, float(slope)))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3  # one of them for the int


def values_of(function, **known):
    """What the torch op of a function takes for these arguments."""
    params = params_of(function.__wrapped__)
    values = splitter(params)(*binder(function.__name__, params)([], known))
    return [*values, *(torch_ops.f32_precision(asked) for asked in function.replay.precision)]


def torch_op(function):
    names = [n for n in torch_ops.REGISTERED if n.rpartition("_")[0] == function.__name__]
    digests = [torch_ops._digest(function.__wrapped__, function.source)]
    (name,) = [n for n in names if n.rpartition("_")[2] in digests]
    return getattr(torch.ops.tritongen, name).default


CHECKED = ["layer_norm", "matmul", "max_with_index", "cross_entropy"]


def opcheck(name: str, operands: list[torch.Tensor]) -> None:
    """torch's own checks of an op and of its gradient, asked for all and for the first alone."""
    op = spec(name)
    module = op.__wrapped__.__globals__
    op, back = module.get(f"{name}_forward", op), module[f"{name}_backward"]  # as they run
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in operands]
    params = [p.name for p in params_of(op.__wrapped__)]
    known = dict(zip(params, leaves, strict=False))
    torch.library.opcheck(torch_op(op), tuple(values_of(op, **known)))

    given = op(*operands)
    given = given if isinstance(given, tuple) else (given,)
    pull = [p.name for p in params_of(back.__wrapped__)]
    kept = [p for p in pull if p.endswith("_kept")]
    outputs = {"max_with_index": ("v", "i"), "cross_entropy": ("loss", *kept)}.get(name, ("y",))
    for y, value in zip(outputs, given, strict=True):
        known |= {
            y: value,
            f"d{y}": torch.randn_like(value) if value.is_floating_point() else value,
        }
    known = {k: v.detach() for k, v in known.items() if k in pull}
    flags = [p for p in pull if p.startswith("need_")]
    for asked in ({}, dict.fromkeys(flags[1:], False)):
        torch.library.opcheck(torch_op(back), tuple(values_of(back, **known, **asked)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKED)
def test_torchs_own_checks(name):
    opcheck(name, AS_TORCH[name][1])


# ---- several processes ----------------------------------------------------------------------------
# A thread of gloo's that asks for the interpreter while it is taken down ends the process (seen in CI, one run in many):
# the group goes with the model that holds it, and nothing is taken down.
RANK = """
import os
import sys
import torch
import torch.distributed as dist
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel
import tritongen

rank, meeting, backend, root = int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
device = f"cuda:{rank}" if backend == "nccl" else "cpu"
layer_norm = tritongen.compile_op((root / "specs/layer_norm.op").read_text())

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(5, 9)
        self.w, self.b = torch.nn.Parameter(torch.ones(9)), torch.nn.Parameter(torch.zeros(9))

    def forward(self, x, norm):
        return norm(self.linear(x), self.w, self.b)

dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=2)
torch.manual_seed(0)
plain = Model().to(device)
data = torch.randn(2, 4, 5, device=device)
model = DistributedDataParallel(Model().to(device), device_ids=[rank] if backend == "nccl" else None)
model.module.load_state_dict(plain.state_dict())
model(data[rank], layer_norm).pow(3).sum().backward()
theirs = lambda x, w, b: torch.nn.functional.layer_norm(x, (9,), w, b)
(sum(plain(x, theirs).pow(3).sum() for x in data) / 2).backward()
for ours, right in zip(model.module.parameters(), plain.parameters(), strict=True):
    torch.testing.assert_close(ours.grad, right.grad, rtol=1e-4, atol=1e-4)
dist.barrier()
del model
dist.destroy_process_group()
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", pytest.param("nccl", marks=pytest.mark.gpu)])
def test_two_processes_share_their_gradients(tmp_path, backend):
    if backend == "nccl" and torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    command = [sys.executable, "-c", RANK]
    rest = [str(tmp_path / "meeting"), backend, str(ROOT)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([*command, str(rank), *rest], env=env, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)


# ---- AOTInductor ----------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)
def test_a_module_compiled_ahead_of_time_calls_the_op(tmp_path):
    """In a process that has the op, as after an import of its module: its kernels are not in the package."""
    layer_norm = spec("layer_norm")
    theirs, (_, w, b), _ = AS_TORCH["layer_norm"]

    class Model(torch.nn.Module):
        def forward(self, x, w, b):
            return layer_norm(torch.relu(x), w, b) * 2

    rows = {"x": {0: torch.export.Dim("rows", min=2)}, "w": None, "b": None}
    program = torch.export.export(Model(), (randn(4, 9), w, b), dynamic_shapes=rows)
    path = str(tmp_path / "model.pt2")
    loaded = torch._inductor.aoti_load_package(
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    )
    for count in (4, 7):
        x = randn(count, 9)
        torch.testing.assert_close(loaded(x, w, b), theirs(torch.relu(x), w, b) * 2)
