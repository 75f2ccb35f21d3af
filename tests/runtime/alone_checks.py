"""Calls of modules that stand alone, on a GPU that is not there (`fake_gpu.py`): run by `test_alone.py`.

Every result is held to that of the op as it is written, on fresh data at another place, in memory that was poisoned: what
another call's steps are done for cannot pass.
"""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import fake_gpu
import pytest
import replay_checks
import test_specs
import torch
import triton
from torch.autograd import forward_ad
from triton import knobs
from triton.runtime import driver
from triton.runtime.interpreter import InterpretedFunction

from tritongen.pipeline import build
from tritongen.runtime.load import load_text

SPECS = test_specs.ROOT / "specs"


@pytest.fixture(autouse=True, scope="session")
def gpu():
    fake_gpu.install()
    triton.JITFunction = InterpretedFunction
    torch.cuda.current_device = lambda: 0
    driver._active = SimpleNamespace(get_current_stream=lambda device: 7)
    empty = torch.empty_strided

    def poisoned(*args, **kwargs):
        new = empty(*args, **kwargs)
        new.untyped_storage().fill_(0xFF)
        return new

    torch.empty_strided = poisoned


def load(name: str, most: int = 512):
    load.count = getattr(load, "count", 0) + 1
    raw = build((SPECS / f"{name}.op").read_text(), f"{name}.op", True, gradients=True).raw
    raw = raw.replace("most: int = 512", f"most: int = {most}")
    return getattr(load_text(name, f"{raw}\n# {load.count}\n"), name)


def known(f) -> dict:
    while "known" not in f.__code__.co_freevars:
        f = f.__wrapped__
    return dict(zip(f.__code__.co_freevars, f.__closure__, strict=True))["known"].cell_contents


def replays(f, *args, **kwargs) -> list[str]:
    """What the replay of a call launched; none where it ran as it is written. It is right either way."""
    written = f
    while hasattr(written, "__wrapped__"):
        written = written.__wrapped__
    want = written(*args, **kwargs)
    del fake_gpu.launches[:]
    got = f(*args, **kwargs)
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
    for w, g in pairs:
        assert (w.shape, w.stride(), w.dtype) == (g.shape, g.stride(), g.dtype)
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
    return fake_gpu.launches[:]


def unaligned(*shape: int) -> torch.Tensor:
    return torch.randn(torch.Size(shape).numel() + 1)[1:].view(shape)


def test_the_third_call_of_a_kind_is_a_replay_and_no_other_kind_is_taken_for_it():
    """Shapes, strides, alignment, dtypes, numbers and which operands are one, by turns."""
    f, g = load("layer_norm"), load("vector_add")
    same = torch.randn(64)
    calls = [
        lambda: (f, torch.randn(4, 32), torch.randn(32), torch.randn(32)),
        lambda: (f, torch.randn(8, 16), torch.randn(16), torch.randn(16)),
        lambda: (f, torch.randn(32, 4).mT, torch.randn(32), torch.randn(32)),
        lambda: (f, unaligned(4, 32), torch.randn(32), torch.randn(32)),
        lambda: (f, torch.randn(4, 32).half(), torch.randn(32).half(), torch.randn(32).half()),
        lambda: (f, torch.randn(4, 32), torch.randn(32), torch.randn(32), 0.5),
        lambda: (f, torch.randn(4, 32), torch.randn(32), torch.randn(32), 4.0),
        lambda: (g, torch.randn(64), torch.randn(64)),
        lambda: (g, same, same),
        lambda: (g, *torch.randn(65).as_strided((2, 64), (1, 1))),
    ]
    for turn in range(4):
        for call in calls:
            assert bool(replays(*call())) == (turn > 1)
    assert len(known(f)) == 7 and len(known(g)) == 3
    assert replays(g, *torch.randn(68).as_strided((2, 64), (4, 1))), "they overlap, and are two"
    assert replays(f, torch.randn(4, 32), torch.randn(32), b=torch.randn(32)) == []


@pytest.mark.parametrize(
    "name", ["index_add", "max_with_index", "group_norm", "int8_linear", "conv3d"]
)
def test_workspaces_several_results_and_constants(name):
    f, it = load(name), replay_checks.load(name)
    for k in range(4):
        assert bool(replays(f, **replay_checks.operands(it))) == (k > 1)


def test_a_call_is_as_precise_as_it_is_asked_now(monkeypatch):
    f, asked = load("linear"), []
    interpret = fake_gpu._interpret

    def watched(kernel, *args, **how):
        asked.append([a for a in (*args, *how.values()) if isinstance(a, str)])
        interpret(kernel, *args, **how)

    monkeypatch.setattr(fake_gpu, "_interpret", watched)
    x = torch.randn(20, 32), torch.randn(16, 32), torch.randn(16)
    try:
        for allowed in (False, True, False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            for _ in range(3):
                launched = replays(f, *x)
            assert launched and asked[-1] == ["tf32" if allowed else "tf32x3"]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_of_a_call_no_tensor_is_kept():
    f = load("softmax")
    gc.disable()
    try:
        for _ in range(4):
            x = torch.randn(4, 32)
            y = f(x)
            alive = [weakref.ref(t) for t in (x, y)]
            del x, y
            assert [r() for r in alive] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("autotune", [False, True])
def test_a_view_whose_memory_holds_the_opposite(autotune):
    text = build((SPECS / "add2d.op").read_text(), "add2d.op", True, autotune=autotune).raw
    f = load_text("add2d", text).add2d
    z, other = torch.randn(5, 8, dtype=torch.complex64).conj().imag, torch.randn(5, 8)
    assert z.is_neg()
    for _ in range(3):
        torch.testing.assert_close(f(z, y=other), z + other)
        torch.testing.assert_close(f(other, y=z), z + other)


def test_what_is_known_is_bounded():
    f = load("relu", most=3)
    for n in [*range(8, 14), *range(8, 14)]:
        assert replays(f, torch.randn(n)) == [] == replays(f, torch.randn(n))
        assert replays(f, torch.randn(n)) and len(known(f)) <= 3


def test_gradients_are_replayed_too():
    f = load("layer_norm")
    for _ in range(3):
        del fake_gpu.launches[:]
        x, w, b = (torch.randn(*s).requires_grad_() for s in ((4, 32), (32,), (32,)))
        y = f(x, w, b)
        y.backward(torch.ones_like(y))
        want = torch.nn.functional.layer_norm(x, (32,), w, b)
        grads = torch.autograd.grad(want.sum(), (x, w, b))
        torch.testing.assert_close([x.grad, w.grad, b.grad], [*grads], rtol=1e-4, atol=1e-5)
    assert len(fake_gpu.launches) == 3


def test_what_asks_for_more_runs_as_it_is_written(monkeypatch):
    f, x = load("relu"), torch.randn(64)
    for _ in range(3):
        launched = replays(f, x)
    assert launched
    with monkeypatch.context() as m:
        m.setattr(knobs.runtime.launch_enter_hook, "calls", [print])
        assert not replays(f, x)
    with monkeypatch.context() as m:
        m.setattr(torch.cuda, "current_device", lambda: 1)  # another GPU than the operand's
        assert not replays(f, x) and not replays(f, x) and not replays(f, x)
    torch.use_deterministic_algorithms(True)
    assert not replays(f, x)
    torch.use_deterministic_algorithms(False)
    del fake_gpu.launches[:]
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward"):
        f(forward_ad.make_dual(x, x))
    with pytest.raises(RuntimeError):
        torch.vmap(f)(x[None])
    assert replays(f, torch.randn(0)) == [] and replays(f, x)


def test_threads_share_what_is_known():
    f, wrong = load("relu"), []

    def work(seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        for n in torch.randint(8, 14, (40,), generator=random).tolist():
            x = torch.randn(n, generator=random)
            if not torch.equal(f(x), x.relu()):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
