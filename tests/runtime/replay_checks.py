"""Replay, on a GPU that is not there (`fake_gpu.py`): run by `test_replay.py`, with TRITON_INTERPRET=1.

Every result is held to that of the generated function itself, on fresh data at another place, in memory
that was poisoned: a replay that launches nothing, or for other operands, cannot pass.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import fake_gpu
import pytest
import test_specs
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tritongen.pipeline import build
from tritongen.proof.guarded import guarded
from tritongen.proof.variants import forced, ways
from tritongen.runtime import held, kinds, replay, tape
from tritongen.runtime.load import load_text
from tritongen.runtime.precision import precision

SPECS = test_specs.ROOT / "specs"


@pytest.fixture(autouse=True, scope="session")
def gpu():
    fake_gpu.install()


def load(name: str) -> SimpleNamespace:
    """A fresh copy of a spec's module: nothing is remembered of any call."""
    built = build((SPECS / f"{name}.op").read_text(), f"{name}.op", gradients=True)
    load.count = getattr(load, "count", 0) + 1
    module = load_text(name, f"{built.raw}\n# {load.count}\n")
    return SimpleNamespace(
        op=getattr(module, name), module=module, plan=built.plans[name][0], ir=built.ops[name][0]
    )


def operands(loaded: SimpleNamespace) -> dict:
    case = test_specs.CASES.get(loaded.ir.name, ({},))[0]
    args = test_specs.arguments(loaded.ir, case, (2, 3))
    named = {"f32": torch.float32, "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32}
    for p in loaded.ir.typarams:
        named[p.name] = torch.float32 if "f32" in p.dtypes else torch.float16
    for t in loaded.ir.tensors:
        if args[t.name].is_floating_point():
            args[t.name] = torch.randn(args[t.name].shape)
        args[t.name] = args[t.name].to(named.get(t.dtype, args[t.name].dtype))
    return args | {p.name: named[p.name] for p in loaded.ir.free_typarams}


def same(f, *args, **kwargs) -> None:
    want, got = f.__wrapped__(*args, **kwargs), f(*args, **kwargs)
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
    for w, g in pairs:
        assert (w.shape, w.stride(), w.dtype) == (g.shape, g.stride(), g.dtype)
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)


def ways_of(f) -> int:
    return sum(map(len, f.replay.entries.values()))


def replays(f, *args, **kwargs) -> list[str]:
    """What the replay of a call launched; none where it took the ordinary path."""
    del fake_gpu.launches[:]
    same(f, *args, **kwargs)
    return fake_gpu.launches[:]


@pytest.mark.parametrize(
    "name",
    ["relu", "layer_norm", "max_with_index", "index_add", "conv3d", "group_norm", "embedding"],
)
def test_third_call_is_a_replay(name):
    it = load(name)
    assert not replays(it.op, **operands(it)) and not replays(it.op, **operands(it))
    for _ in range(2):
        assert replays(it.op, **operands(it))


def test_copies_of_operands_are_replayed():
    """One kernel makes all: of x, whose dims make no rows, and of both factors, whose rows are not aligned."""
    it = load("linear")

    def drawn():
        x, w, b = torch.randn(3, 77, 37).mT, torch.randn(130, 77), torch.randn(130)
        return {"x": x.half(), "w": w.half(), "b": b.half()}

    with forced(it.module, it.plan, by_descriptors(it.plan), small=False):
        for _ in range(2):
            assert not replays(it.op, **drawn())
        assert replays(it.op, **drawn()).count("_copy") == 3


def by_descriptors(plan):
    return next(w for w in ways(plan) if dict(w.variants)[plan.op.name] == "persistent")


def test_a_dtype_that_is_an_argument_is_part_of_the_kind():
    it = load("int8_linear")
    args = operands(it)
    for dtype in (torch.float16, torch.bfloat16):
        call = args | {"T": dtype}
        assert not replays(it.op, **call) and not replays(it.op, **call)
        assert replays(it.op, **call) and it.op(**call).dtype == dtype
    assert replays(it.op, **args | {"T": torch.float16})


@pytest.mark.parametrize(
    ("name", "version"),
    [("matmul", "3.6"), ("softmax", "3.6"), ("matmul", "3.7"), ("full_sum", "3.7")],
)
def test_every_way_is_replayed_and_not_beyond_it(name, version, monkeypatch):
    monkeypatch.setattr(held, "VERSION", version)
    it = load(name)
    for way in ways(it.plan):
        with forced(it.module, it.plan, way, small=True):
            for _ in range(3):
                launched = replays(it.op, **operands(it))
            assert launched, (way.name, [e[0].text for e in it.op.replay.entries.values()])
    assert not replays(it.op, **operands(it)), "recorded for other choices than these"
    assert replays(it.op, **operands(it))
    assert all(len(e) <= replay.MOST_WAYS for e in it.op.replay.entries.values())


def test_choices_that_take_turns_are_each_replayed():
    it, x = load("softmax"), torch.randn(6, 40)
    choosers = {}
    for way in ways(it.plan):
        with forced(it.module, it.plan, way, small=True):
            choosers[way.name] = it.module.choose_softmax
    for k in range(4):
        for name in ("rows", "loop"):
            it.module.choose_softmax = choosers[name]
            launched = replays(it.op, x)
            assert k < 2 or launched == [f"softmax_{name}"]


def test_a_guarded_module_is_itself_and_forgotten_behind():
    f = load("relu").op
    module = sys.modules[f.__module__]
    for _ in range(2):
        for _ in range(3):
            launched = replays(f, torch.randn(30))
        assert launched
        with guarded(module) as fences:
            for k in range(3):
                f(torch.randn(30))
                assert len(fences.buffers) == k + 1 and fences.intact()
        assert len(f.replay.entries) == 1


def test_calls_of_every_kind_in_any_order():
    """Dtypes, shapes, strides, alignments, places and numbers, mixed: the last third is replayed."""
    f, count = load("layer_norm").op, 0
    random = torch.Generator().manual_seed(0)

    def pick(*these):
        return these[int(torch.randint(len(these), (), generator=random))]

    del fake_gpu.launches[:]
    for _ in range(240):
        rows, width, dtype = 3, pick(16, 20), pick(torch.float32, torch.float64)
        size, offset = rows * width * 2, pick(0, 0, 1)
        x = torch.randn(size + offset)[offset:].to(dtype)
        x = x[: rows * width].view(rows, width) if pick(0, 1) else x.view(rows, -1)[:, ::2]
        if offset:
            x = torch.empty(x.numel() + 1, dtype=dtype)[1:].view(x.shape).copy_(x)
        w, b = torch.randn(width), torch.randn(width)
        eps = pick((), (0.1,), (1e-5,), (torch.tensor(0.5),))
        before = len(fake_gpu.launches)
        same(f, x, w, b, *eps) if pick(0, 1) or not eps else same(f, x, w, b, eps=eps[0])
        count += len(fake_gpu.launches) > before
    assert count > 40


def test_numbers_that_decide_are_of_the_kind_and_those_that_do_not_are_passed():
    f = load("leaky_relu").op
    x = torch.randn(100)
    for slope in (0.1, 0.2, 0.3, -0.0, 0.0, float("inf"), -1.5):
        launched = replays(f, x, slope)
    assert launched and ways_of(f) == 1
    pool, y = load("max_pool2d").op, torch.randn(1, 2, 8, 8)
    for win in (2, 3, 2, 3, 2, 3):
        launched = replays(pool, y, win, 2)
    assert launched and ways_of(pool) == 2


def test_one_tensor_twice_is_a_kind_of_its_own():
    f, other = load("matmul").op, torch.randn(16, 16)
    for _ in range(3):
        x = torch.randn(16, 16)
        launched = replays(f, x, x)
    assert launched and not replays(f, x, other) and not replays(f, other, x)
    assert replays(f, x, other) and replays(f, other, other)
    assert ways_of(f) == 2


def test_parts_of_one_tensor_that_begin_together_are_each_as_long_as_they_are():
    f, w, b = load("linear").op, torch.randn(16, 32), torch.randn(16)
    for k in range(6):
        x = torch.randn(16, 32)
        short, row = (x[:4], x[0, :16]) if k % 2 else (x[:9], b)
        launched = replays(f, short, x, row)
        assert bool(launched) == (k > 3)
    assert replays(f, x[:4], w, b) == []


def test_a_replay_is_as_precise_as_it_is_asked_now(monkeypatch):
    """By torch's switch, and by `with`; what was noted in one precision is not launched in another."""
    f, passed, interpret = load("linear").op, [], fake_gpu._interpret
    x = torch.randn(20, 32), torch.randn(16, 32), torch.randn(16)

    def watched(kernel, *args, **how):
        passed.append([a for a in args if isinstance(a, str)])
        interpret(kernel, *args, **how)

    monkeypatch.setattr(fake_gpu, "_interpret", watched)
    try:
        for allowed, asked in [(False, ""), (True, ""), (False, "ieee"), (False, ""), (True, "")]:
            torch.backends.cuda.matmul.allow_tf32 = allowed
            with precision(asked) if asked else nullcontext():
                for _ in range(3):
                    launched = replays(f, *x)
            assert launched and passed[-1] == [asked or ("tf32" if allowed else "tf32x3")]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert len(f.replay.entries) == 3


class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Asked(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


ASK_MORE = {
    "dispatch": lambda f, x: within(Seen(), f, x),
    "function": lambda f, x: within(Asked(), f, x),
    "deterministic": lambda f, x: within(deterministic(), f, x),
    "dual": lambda f, x: within(forward_ad.dual_level(), f, x),
    "vmap": lambda f, x: torch.vmap(f)(x[None]),
    "tracing": lambda f, x: torch.jit.trace(f, (x,), check_trace=False),
}


def within(state, f, x):
    with state:
        f(x)


@pytest.mark.parametrize("what", ["hook", *ASK_MORE])
def test_what_asks_for_more_takes_the_ordinary_path(what, monkeypatch):
    f, x = load("relu").op, torch.randn(64)
    for _ in range(3):
        launched = replays(f, x)
    assert launched
    del fake_gpu.launches[:]
    if what == "hook":
        monkeypatch.setattr(kinds._enter, "calls", [print])
        f(x)
    else:
        ASK_MORE[what](f, x)
    assert not fake_gpu.launches
    monkeypatch.undo()
    assert replays(f, x)


def test_an_operand_that_wants_a_gradient_is_replayed_without_one_too():
    f, x = load("relu").op, torch.randn(64, requires_grad=True)
    for _ in range(3):
        with torch.no_grad():
            assert not f(x).requires_grad
    del fake_gpu.launches[:]
    y = f(x)
    assert y.requires_grad and f(x.detach()).requires_grad is False
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert fake_gpu.launches == ["relu_flat"] and torch.equal(dx, (x > 0).float())


@pytest.mark.parametrize(
    "name, launched",
    [
        ("relu", ["relu_flat", "relu_backward_flat"]),
        # Nobody asks for the gradient of eps.
        (
            "layer_norm",
            ["layer_norm_rows", "layer_norm_backward_rows", "layer_norm_backward_merge"],
        ),
    ],
)
def test_forward_and_backward_of_what_wants_a_gradient_are_replayed(name, launched):
    it = load(name)
    for _ in range(4):
        del fake_gpu.launches[:]
        args = {k: v.requires_grad_() for k, v in operands(it).items() if torch.is_tensor(v)}
        y = it.op(**args)
        y.backward(torch.ones_like(y))
    assert fake_gpu.launches == launched
    assert all(v.grad.shape == v.shape for v in args.values())


def test_no_tensor_is_kept():
    f = load("softmax").op
    for _ in range(4):
        x = torch.randn(4, 32)
        y = f(x)
        known = [weakref.ref(t) for t in (x, y)]
        del x, y
        gc.collect()
        assert [r() for r in known] == [None, None]


def test_tables_are_bounded_and_slow_to_change(monkeypatch):
    monkeypatch.setattr(replay, "MOST_ENTRIES", 3)
    monkeypatch.setattr(replay, "MOST_SEEN", 5)
    f = load("relu").op
    for n in [*range(8, 14), *range(8, 14)]:
        calls = [bool(replays(f, torch.randn(n))) for _ in range(replay.PATIENCE + 3)]
        assert calls[-1] and (n < 11 or not any(calls[: replay.PATIENCE]))
        assert len(f.replay.entries) <= 3 and len(f.replay.seen) <= 5


def test_many_kinds_of_one_shape_do_not_take_turns(monkeypatch):
    monkeypatch.setattr(replay, "MOST_WAYS", 2)
    f = load("relu").op
    for dtype in (torch.float32, torch.float64, torch.float16):
        calls = [bool(replays(f, torch.randn(8).to(dtype))) for _ in range(replay.PATIENCE + 3)]
        assert calls[-1] and (dtype != torch.float16 or not any(calls[: replay.PATIENCE]))
    assert ways_of(f) == 2


def test_threads_share_what_is_known():
    f, wrong = load("relu").op, []

    def work(seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        for n in torch.randint(8, 14, (60,), generator=random).tolist():
            x = torch.randn(n, generator=random)
            if not torch.equal(f(x), x.relu()):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    del fake_gpu.launches[:]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(fake_gpu.launches) > 100
    kernels = [v for v in f.__globals__.values() if hasattr(v, "arg_names")]
    assert not any("run" in vars(k) for k in kernels)


HEADER = """
import torch, triton, triton.language as tl
from tritongen import runtime

@triton.jit
def copy(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)

def allocate(x, factor=2.0):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)

@runtime.op("specs/odd.op", allocate=allocate, reference=allocate)
def odd(x: torch.Tensor, factor: float | torch.Tensor = 2.0) -> torch.Tensor:
    y = allocate(x)
"""
ODD = {
    "nothing is launched": ("y.data_ptr()", "nothing writes"),
    "a torch op computes": ("copy[(1,)](x + 1, y, y.numel(), factor, BLOCK=64)", "aten.add"),
    "a number is computed": ("copy[(1,)](x, y, y.numel(), factor * 2, BLOCK=64)", "computed"),
    "a value is read": ("copy[(1,)](x, y, int(x[0]) + 9, factor, BLOCK=64)", "_local_scalar"),
}


@pytest.mark.parametrize("what", ODD)
def test_what_cannot_be_repeated_is_refused(what):
    line, reason = ODD[what]
    f = load_text("odd", f"{HEADER}    {line}\n    return y\n").odd
    for factor in (1.5, 2.5, 3.5, 4.5):
        f(torch.arange(40.0) + 1, factor)
    ((entry,),) = f.replay.entries.values()
    assert reason in entry.refused


IN_PARTS = """
    for first in range(0, 40, 16):
        half = torch.empty((16,), dtype=x.dtype, device=x.device)
        copy[(1,)](x[first:], half, min(16, 40 - first), factor, BLOCK=64)
        copy[(1,)](half, y[first:], min(16, 40 - first), factor, BLOCK=64)
        copy[(1,)](half[2:], y[first:], 0, factor, BLOCK=64)
    return y
"""


def test_parts_of_operands_are_replayed_and_scratch_is_let_go(monkeypatch):
    """As gradients in chunks do it: a call takes no more memory while it is recorded than before."""
    f = load_text("parts", HEADER + IN_PARTS).odd
    together, made = [], []
    allocated = tape.Tape._allocated

    def counted(self, t):
        made.append(weakref.ref(t))
        together.append(sum(ref() is not None for ref in made[-4:]))  # the result and three pieces
        allocated(self, t)

    monkeypatch.setattr(tape.Tape, "_allocated", counted)
    buffer = torch.randn(100)
    for begin in (0, 4, 8, 16, 24):
        launched = replays(f, buffer[begin : begin + 40])
    assert max(together) <= 3  # no piece but the last one and the next
    assert len(launched) == 9


def test_a_version_that_is_not_known_takes_the_ordinary_path(monkeypatch):
    monkeypatch.setattr(held, "VERSION", "3.9")
    f = load("relu").op
    for _ in range(4):
        assert not replays(f, torch.randn(50))
    assert "3.9" in next(iter(f.replay.entries.values()))[0].refused


def test_copies_of_unaligned_operands_are_repeated():
    """A descriptor needs rows at multiples of 16 bytes: a launch copies where they are not."""
    it = load("matmul")
    way = next(w for w in ways(it.plan) if "persistent" in w.name)
    with forced(it.module, it.plan, way, small=True):
        for _ in range(3):
            launched = replays(it.op, torch.randn(20, 33), torch.randn(33, 18))
    assert launched


def test_copies_with_zeros_behind_their_channels_are_repeated():
    it = load("conv3d")
    way = next(w for w in ways(it.plan) if "taps" in w.name)
    x, w, b = torch.randn(1, 5, 3, 3, 3), torch.randn(2, 5, 1, 2, 2), torch.randn(2)
    with forced(it.module, it.plan, way, small=True):
        for _ in range(3):
            launched = replays(it.op, x, w, b, stride=1, pad=0)
    assert launched[:2] == ["_copy", "_copy"]


def test_positional_arguments_beyond_the_last_are_an_error():
    f = load("relu").op
    for _ in range(3):
        f(torch.ones(8))
    with pytest.raises(TypeError):
        f(torch.ones(8), 1)


@pytest.mark.parametrize("name", [p.stem for p in test_specs.FILES])
def test_every_spec_is_replayed(name):
    """No op takes the ordinary path for ever because its launch does what a tape does not know."""
    it = load(name)
    for _ in range(3):
        launched = replays(it.op, **operands(it))
    assert launched, [e[0].text for e in it.op.replay.entries.values()]


def test_a_gradient_that_is_not_asked_for_does_not_end_replay():
    """The launch has a tensor without memory in its place."""
    module = load("mse").module
    for _ in range(4):
        x, t = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)
        module.mse(x, t).backward()
        torch.testing.assert_close(x.grad, (x - t).detach() * 2 / 15)
    found = [e for ways in module.mse_backward.replay.entries.values() for e in ways]
    assert found and not any(e.refused for e in found)
