"""Modules of `build --autotune` on a GPU: right as configs are measured, behind that, in graphs and under torch.compile.

Of each table only a few configs are tried, so that a test takes seconds. What is compared with is torch in f64.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from triton.runtime.autotuner import Autotuner

from tritongen import lib, pipeline
from tritongen.runtime.load import load_text

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::UserWarning")]
ROOT = Path(__file__).parents[2]
TRIED = 3
fresh = itertools.count()


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


half = torch.float16
CALLS = {  # rows whole and in blocks; by descriptors as operands lie and turned, of parts of f32, split, through pointers
    "softmax": [lambda: (randn(300, 1000),), lambda: (randn(600, 40000, dtype=half),)],
    "matmul": [
        lambda: (randn(2048, 1024, dtype=half), randn(1024, 2048, dtype=half)),
        lambda: (randn(1024, 2048, dtype=half).t(), randn(2048, 1024, dtype=half).t()),
        lambda: (randn(256, 2048), randn(2048, 4096)),
        lambda: (randn(300, 512), randn(512, 200)),
        lambda: (randn(37, 65, dtype=half), randn(65, 43, dtype=half)),
    ],
    "index_add": [
        lambda: (randn(50, 64), torch.randint(50, (20000,), device="cuda"), randn(20000, 64))
    ],
}
EVERY = [(name, k) for name, calls in CALLS.items() for k in range(len(calls))]
THEIRS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "matmul": torch.matmul,
    "index_add": lambda y, index, x: torch.index_add(y, 0, index, x),
}


def load(name: str):
    """A fresh copy of a spec's module, of which nothing is measured; its kernels with tables."""
    text = (ROOT / "specs" / f"{name}.op").read_text()
    built = pipeline.build(text, f"{name}.op", gradients=True, autotune=True)
    module = load_text(name, f"{built.raw}\n# {next(fresh)}\n")
    tables = [v for v in vars(module).values() if isinstance(v, Autotuner)]
    for kernel in tables:
        kernel.configs = kernel.configs[:: max(1, len(kernel.configs) // TRIED)]
    return getattr(module, name), tables


def measured(tables: list[Autotuner]) -> int:
    return sum(len(kernel.cache) for kernel in tables)


def holds(name: str, got: torch.Tensor, operands) -> None:
    wide = [x.double() if x.is_floating_point() else x for x in operands]
    want = THEIRS[name](*wide)
    near = 2e-3 if got.dtype == half else 1e-4
    torch.testing.assert_close(got.double(), want, rtol=near, atol=near * want.abs().max().item())


@pytest.mark.parametrize(("name", "k"), EVERY)
def test_a_shape_is_measured_once_and_replayed_from_the_third_call(name, k, monkeypatch):
    op, tables = load(name)
    for call in range(4):
        operands = CALLS[name][k]()
        holds(name, op(*operands), operands)
        if call == 0:
            found = measured(tables)
            assert found
        assert measured(tables) == found
        if call == 1:
            (entry,) = [e for ways in op.replay.entries.values() for e in ways]
            assert not entry.refused, entry.refused
            monkeypatch.setattr(lib, "tuned", None)  # a replay launches compiled kernels


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize(("name", "k"), [("softmax", 0), ("matmul", 0), ("matmul", 4)])
def test_a_graph_of_what_was_measured_before_and_of_what_was_not(name, k, warm):
    op, tables = load(name)
    held = CALLS[name][k]()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        if warm:
            holds(name, op(*held), held)
    found = measured(tables)
    assert bool(found) == warm
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        y = op(*held)
    for _ in range(2):
        for x, new in zip(held, CALLS[name][k](), strict=True):
            x.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        holds(name, y, held)
    assert measured(tables) == found
    for _ in range(4):  # out of the graph: measured where it was not, noted, replayed
        operands = CALLS[name][k]()
        holds(name, op(*operands), operands)
    assert measured(tables)


@pytest.mark.parametrize(("name", "mode"), [("softmax", None), ("matmul", "reduce-overhead")])
def test_compiled_in_one_graph(name, mode):
    op, tables = load(name)
    compiled = torch.compile(lambda *operands: op(*operands) * 2, fullgraph=True, mode=mode)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        operands = CALLS[name][0]()
        holds(name, compiled(*operands) / 2, operands)
    assert measured(tables)
    torch.compiler.reset()


def test_configs_that_do_not_fit_give_way():
    """No program has the shared memory for so many stages: the call runs as it was chosen, its descriptors too."""
    op, tables = load("matmul")
    for config in (config for kernel in tables for config in kernel.configs):
        config.num_stages = 24
    for _ in range(2):
        operands = CALLS["matmul"][0]()
        holds("matmul", op(*operands), operands)


def test_gradients():
    op, tables = load("softmax")
    for _ in range(4):
        x, dy = randn(300, 1000).requires_grad_(), randn(300, 1000)
        (dx,) = torch.autograd.grad(op(x), x, dy)
        wide = x.detach().double().requires_grad_()
        (want,) = torch.autograd.grad(torch.softmax(wide, -1), wide, dy.double())
        torch.testing.assert_close(dx.double(), want, rtol=1e-4, atol=1e-6)
    assert measured(tables) == 2
