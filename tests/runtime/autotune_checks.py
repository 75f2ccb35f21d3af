"""Modules of `build --autotune`, in Triton's interpreter: run by `test_tables.py`, with TRITON_INTERPRET=1.

Where a check says so, the autotuner runs too, on a GPU that is not there (`fake_gpu.py`) and with times that are made up.
"""

from __future__ import annotations

from pathlib import Path

import fake_gpu
import pytest
import torch
from triton.runtime.autotuner import Autotuner

from tritongen import lib, pipeline
from tritongen.lib import tuning
from tritongen.proof.variants import Way, forced, ways
from tritongen.runtime.load import load_text

ROOT = Path(__file__).parents[2]
randn = torch.randn
# Sizes that are no multiples of a tile, and some that descriptors take; constants behind the operands.
CALLS = {
    "relu": [lambda: (randn(7, 300),), lambda: (randn(40, 30).t(),)],
    "softmax": [lambda: (randn(5, 37),), lambda: (randn(300, 6).t(),)],
    "matmul": [
        lambda: (randn(37, 48), randn(48, 24)),
        lambda: (randn(40, 72).half(), randn(32, 72).half().t()),
    ],
    "conv2d": [lambda: (randn(2, 16, 4, 8), randn(24, 16, 3, 3), randn(24), 1, 1, 1, 1)],
    "conv_transpose2d": [lambda: (randn(2, 16, 4, 8), randn(16, 24, 3, 3), 2, 1)],
    "index_add": [lambda: (randn(9, 20), torch.randint(0, 9, (150,)), randn(150, 20))],
}


def load(name: str, fresh: str = ""):
    text = (ROOT / "specs" / f"{name}.op").read_text()
    built = pipeline.build(text, f"{name}.op", autotune=True)
    return load_text(name, f"{built.raw}\n# {fresh}\n"), built.plans[name][0]


def tables(module) -> dict[str, Autotuner]:
    return {name: v for name, v in vars(module).items() if isinstance(v, Autotuner)}


def holds(module, name: str, args) -> None:
    wide = [
        a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args
    ]
    want, got = getattr(module, f"{name}_reference")(*wide), getattr(module, name)(*args)
    near = 2e-2 if got.dtype == torch.float16 else 2e-4
    torch.testing.assert_close(got.double(), want, rtol=near, atol=near)


@pytest.mark.parametrize("name", CALLS)
def test_any_config_of_a_table_gives_the_same(name, monkeypatch):
    """That is what makes an entry free: whatever variant a call takes, and whatever stands beside it in its config."""
    module, plan = load(name)

    def call() -> None:
        for operands in CALLS[name]:
            holds(module, name, operands())

    with_each_config(module, plan, call, monkeypatch)


def test_any_config_gives_the_same_gradient(monkeypatch):
    """Of what the host tells kernels, descriptors' tiles and whether a loop has whole blocks follow from a config, too."""
    text = (ROOT / "specs" / "attention.op").read_text()
    built = pipeline.build(text, "attention.op", autotune=True, gradients=True)
    module, (item,) = load_text("attention", built.raw), built.items
    operands = [randn(1, 1, n, 16).half().requires_grad_() for n in (48, 80, 80)]
    wide = [x.detach().double().requires_grad_() for x in operands]
    want = module.attention_reference(*wide, 0.25)
    wanted = torch.autograd.grad(want, wide, torch.ones_like(want))

    def call() -> None:
        got = module.attention(*operands, 0.25)
        gradients = torch.autograd.grad(got, operands, torch.ones_like(got))
        for one, other in zip((got, *gradients), (want, *wanted), strict=True):
            torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-2)

    for behind in (item.forward, item.forward.backward):
        with_each_config(module, behind.plans[0], call, monkeypatch)


def with_each_config(module, plan, call, monkeypatch) -> None:
    """Each variant, with each config of the tables that its kernels have."""
    launched: dict[Autotuner, set[int]] = {}

    def by(k: int, met: set[Autotuner]):
        def tuned(kernel, grid, config):
            which = k % len(kernel.configs)
            chosen = kernel.configs[which]

            def launch(*args, **given):
                entries = given | chosen.kwargs | {"num_warps": chosen.num_warps}
                if chosen.pre_hook is not None:
                    chosen.pre_hook(dict(zip(kernel.arg_names, args, strict=False)) | entries)
                met.add(kernel)
                launched.setdefault(kernel, set()).add(which)
                kernel.fn[grid](*args, **entries)

            return launch

        return tuned

    for way in ways(plan):
        k, met = 0, set[Autotuner]()
        while k <= max((len(kernel.configs) - 1 for kernel in met), default=0):
            monkeypatch.setattr(lib, "tuned", by(k, met))
            with forced(module, plan, way, small=False):
                call()
            k += 1
    assert launched
    for kernel, which in launched.items():
        assert which == {*range(len(kernel.configs))}


@pytest.mark.parametrize("name", CALLS)
def test_the_interpreter_takes_the_config_of_choose(name):
    module, plan = load(name)
    for way in ways(plan):
        with forced(module, plan, way, small=True):
            for operands in CALLS[name]:
                holds(module, name, operands())
    assert not any(kernel.cache for kernel in tables(module).values())


# ---- the autotuner itself -----------------------------------------------------------------------
@pytest.fixture
def gpu(monkeypatch):
    """Kernels count as compiled; the config that takes least is the last one that was timed."""
    fake_gpu.install()
    monkeypatch.setattr(tuning, "InterpretedFunction", type("Other", (), {}))
    timed: list[int] = []

    def time(call, quantiles):
        call()
        call()
        timed.append(1)
        return [1 / len(timed)] * 3

    monkeypatch.setattr(Autotuner, "do_bench", staticmethod(time))
    return timed


def of(plan, variant: str) -> Way:
    return next(w for w in ways(plan) if variant in dict(w.variants).values())


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("relu", "flat"),
        ("softmax", "loop"),
        ("softmax", "rows"),
        ("matmul", "small"),
        ("matmul", "persistent"),
        ("matmul", "presplit_lhs"),
        ("index_add", "copies"),
    ],
)
def test_a_call_measures_once_and_is_replayed(name, variant, gpu):
    """index_add adds: what every launch that is timed leaves has to go again."""
    module, plan = load(name, f"measured {variant}")
    op, operands = getattr(module, name), CALLS[name][0]
    with forced(module, plan, of(plan, variant), small=False):
        holds(module, name, operands())
        measured = len(gpu)
        assert measured > 1
        for replayed in (False, True, True):
            del fake_gpu.launches[:]
            holds(module, name, operands())
            assert bool(fake_gpu.launches) == replayed
        (entry,) = [e for found in op.replay.entries.values() for e in found]
        assert not entry.refused, entry.refused
    assert len(gpu) == measured


def test_what_chunks_add_up_is_measured_without_a_trace(gpu):
    """Each launch adds to what the chunks before it left, and so would each launch that is timed."""
    text = (ROOT / "specs" / "linear_cross_entropy.op").read_text()
    built = pipeline.build(text, "linear_cross_entropy.op", autotune=True, gradients=True)
    module, (item,) = load_text("measured_chunks", built.raw), built.items
    body = item.forward.backward.plans[0].chunks.body
    operands = [randn(n, 24).half().requires_grad_() for n in (20, 40)]
    wide, target = [x.detach().double().requires_grad_() for x in operands], torch.arange(20)
    dy = torch.ones(20)
    want = module.linear_cross_entropy_reference(*wide, target)
    wanted = torch.autograd.grad(want, wide, dy.double())
    with forced(module, body, of(body, "small"), small=True):
        got = torch.autograd.grad(module.linear_cross_entropy(*operands, target), operands, dy)
    assert gpu
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-2)


def test_a_capture_takes_what_there_is(gpu, monkeypatch):
    """And is not noted; nor is the call behind it, which measures: the one behind that is."""
    module, plan = load("softmax", "captured")
    op, kernel = module.softmax, module.softmax_loop
    with forced(module, plan, of(plan, "loop"), small=False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        holds(module, "softmax", CALLS["softmax"][0]())
        assert not gpu and not kernel.cache
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        holds(module, "softmax", CALLS["softmax"][0]())
        assert gpu and len(kernel.cache) == 1 and not op.replay.entries
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        seen = []
        monkeypatch.setattr(kernel, "run", noting(seen, kernel.run))
        holds(module, "softmax", CALLS["softmax"][0]())
        assert len(seen) == 1
        monkeypatch.undo()
        assert not op.replay.entries


def noting(seen: list, run):
    def noted(*args, **how):
        seen.append(how)
        return run(*args, **how)

    return noted
