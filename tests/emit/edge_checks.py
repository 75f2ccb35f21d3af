"""Kernels at sizes just below 2^31, a few programs and turns of each: run by `test_edges.py`, with TRITON_INTERPRET=1.

Memory that nobody touches costs nothing, so operands are as large as they say. Every address is held to its tensors,
and every loop to what its counter has room for: numbers have the types that Triton gives them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

from tritongen.pipeline import build
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text

N = 2**31 - 7
WAITING = {"two_pass"}  # its programs wait for each other
I8, F16 = torch.int8, torch.float16


def of(*shape: int, dtype: torch.dtype = I8) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


CASES = {
    "flat": ("x: i8[N]) -> y: i8[N] { y[i] = x[i] + x[i] }", lambda: [of(N)]),
    "reversed": ("x: i8[N]) -> y: i8[N] { y[i] = x[N - 1 - i] }", lambda: [of(N)]),
    "gathered": (
        "x: i8[N], t: i8[N]) -> y: i8[N] { y[i] = x[t[i]] else 0 }",
        lambda: [of(N), of(N)],
    ),
    "strided": (
        "x: i8[M, N], z: i8[M]) -> y: i8[M, N] { y[m, n] = x[m, n] + z[m] }",
        lambda: [of(N, 2).T, of(2)],
    ),
    "rows of a middle": (
        "x: i8[M, N], z: i8[N]) -> y: i8[M, N] { y[m, n] = x[m, n] + z[n] }",
        lambda: [of(N, 2)[:, 1:], of(1)],
    ),
    "row": ("x: i8[M, N]) -> y: i8[M] { y[m] = max[n](x[m, n]) }", lambda: [of(1, N)]),
    "rows": ("x: i8[M, N]) -> y: i8[M] { y[m] = max[n](x[m, n]) }", lambda: [of(N, 1)]),
    "columns": ("x: i8[M, N]) -> y: i8[N] { y[n] = max[m](x[m, n]) }", lambda: [of(1, N)]),
    "lines": ("x: i8[M, N]) -> y: i8[N] { y[n] = max[m](x[m, n]) }", lambda: [of(N, 1)]),
    "middle": (
        "x: i8[B, M, N]) -> y: i8[M] { y[m] = max[b, n](x[b, m, n]) }",
        lambda: [of(N, 1, 1)],
    ),
    "normed": (
        "x: f16[M, N]) -> y: f16[M, N] { y[m, n] = x[m, n] / sum[k](x[m, k]) }",
        lambda: [of(1, N, dtype=F16)],
    ),
    "scan": ("x: i8[N]) -> y: i8[N] { y[n] = max[k <= n](x[k]) }", lambda: [of(N)]),
    "scan back": ("x: i8[N]) -> y: i8[N] { y[n] = max[k >= n](x[k]) }", lambda: [of(N)]),
    "windows": (
        "x: i8[N]) -> y: i8[P] with P = N - 2 { y[p] = max[r < 3](x[p + r]) }",
        lambda: [of(N)],
    ),
    "scattered": (
        "x: f32[N], ix: i8[N], z: f32[V]) -> y: f32[V] { y[v] = z[v] + sum[n](where(ix[n] == v, x[n], 0)) }",
        lambda: [of(N, dtype=torch.float32), of(N), of(3, dtype=torch.float32)],
    ),
    "long product": (
        "a: i8[M, K], b: i8[K, N]) -> y: i64[M, N] { y[m, n] = sum[k](a[m, k] * b[k, n]) }",
        lambda: [of(1, N), of(N, 1)],
    ),
    "long product of floats": (
        "a: f16[M, K], b: f16[K, N]) -> y: f16[M, N] { y[m, n] = sum[k](a[m, k] * b[k, n]) }",
        lambda: [of(1, N, dtype=F16), of(N, 1, dtype=F16)],
    ),
    "tall product": (
        "a: f16[M, K], b: f16[K, N]) -> y: f16[M, N] { y[m, n] = sum[k](a[m, k] * b[k, n]) }",
        lambda: [of(N, 1, dtype=F16), of(1, 1, dtype=F16)],
    ),
    "wide product": (
        "a: f16[M, K], b: f16[K, N]) -> y: f16[M, N] { y[m, n] = sum[k](a[m, k] * b[k, n]) }",
        lambda: [of(1, 1, dtype=F16), of(1, N, dtype=F16)],
    ),
    "triangle": (
        "a: f16[M, K], b: f16[K, N]) -> y: f16[M, N] { y[m, n] = sum[k <= m](a[m, k] * b[k, n]) }",
        lambda: [of(1, 1, dtype=F16).expand(N, N), of(N, 1, dtype=F16)],
    ),
    "bounded product": (
        "a: f16[M, K], b: f16[K, N], to: i64[M]) -> y: f16[M, N] { y[m, n] = sum[k < to[m]](a[m, k] * b[k, n]) }",
        lambda: [of(1, N, dtype=F16), of(N, 1, dtype=F16), torch.tensor([N - 1])],
    ),
    "segments": (
        "x: f16[M, K], w: f16[E, K, N], own: i8[M]) -> y: f16[M, N]"
        " { y[m, n] = sum[e, k](where(own[m] == e, x[m, k] * w[e, k, n], 0)) }",
        lambda: [of(N, 1, dtype=F16), of(2, 1, 1, dtype=F16), of(N)],
    ),
    "long segments": (
        "x: f16[M, K], w: f16[E, K, N], own: i8[M]) -> y: f16[M, N]"
        " { y[m, n] = sum[e, k](where(own[m] == e, x[m, k] * w[e, k, n], 0)) }",
        lambda: [of(1, N, dtype=F16), of(1, N, 1, dtype=F16), of(1)],
    ),
}


# ---- what watches ---------------------------------------------------------------------------------
class Memory:
    """The interpreter's memory, which holds each access to the tensors of its launch."""

    def __init__(self, real):
        self.real, self.tensors, self.accesses = real, [], 0

    def __getattr__(self, name: str):
        return getattr(self.real, name)

    def hold(self, at: np.ndarray, mask: np.ndarray, size: int) -> None:
        at = np.broadcast_to(at, np.broadcast_shapes(at.shape, mask.shape))[
            np.broadcast_to(mask, np.broadcast_shapes(at.shape, mask.shape))
        ].astype(np.int64)
        inside = np.zeros(at.shape, bool)
        for first, length in self.tensors:
            inside |= (at >= first) & (at + size <= first + length)
        assert inside.all(), f"an access lies outside: {at[~inside][:3]} of {self.tensors}"
        self.accesses += at.size

    def load(self, at, mask, other, dtype):
        self.hold(at, mask, np.dtype(dtype).itemsize)
        return self.real.load(at, mask, other, dtype)

    def store(self, at, value, mask):
        self.hold(at, mask, value.dtype.itemsize)
        return self.real.store(at, value, mask)

    def atomic_rmw(self, op, at, value, mask, sem):
        self.hold(at, mask, value.dtype.itemsize)
        return self.real.atomic_rmw(op, at, value, mask, sem)


def turns(*args, **_) -> Iterator[object]:
    """The first and the last turn of a loop, whose counter has the type that Triton gives it."""
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    wide = any(isinstance(a, tl.tensor) and a.dtype.primitive_bitwidth == 64 for a in args)
    start, end, step = (
        int(a) if not isinstance(a, tl.constexpr) else a.value for a in (start, end, step)
    )
    count = max(0, -(-(end - start) // step))
    behind = start + count * step
    assert wide or behind < 2**31, f"a loop's counter wraps: {start}, {end}, {step}"
    kind, dtype = (tl.int64, np.int64) if wide else (tl.int32, np.int32)
    for k in sorted({0, count - 1}) if count else ():
        yield tl.tensor(interpreter.TensorHandle(np.array([start + k * step], dtype), kind), kind)


def some_programs(executor, *args, **kwargs) -> None:
    """The first and the last programs of a launch."""
    wanted = inspect.getfullargspec(executor.fn).args
    kwargs = {name: value for name, value in kwargs.items() if name in wanted}
    tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
    memory = interpreter._interpreter
    memory.tensors = [
        (t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()) for t in tensors
    ]
    given = inspect.getcallargs(executor.fn, *args, **kwargs)
    given = {
        name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
        for name, value in given.items()
    }
    grid = (*executor.grid, 1, 1)[:3]
    assert max(grid) < 2**31
    patches = interpreter._patch_lang(executor.fn)
    executor.fn.__globals__["range"] = turns
    kept, tl.range = tl.range, turns
    try:
        interpreter.interpreter_builder.set_grid_dim(*grid)
        for place in product(*({0, count - 1} for count in grid)):
            interpreter.interpreter_builder.set_grid_idx(*place)
            executor.fn(**given)
    finally:
        tl.range = kept
        executor.fn.__globals__.pop("range")
        patches.restore()


@pytest.fixture
def memory(monkeypatch):
    seen = Memory(interpreter._interpreter)
    monkeypatch.setattr(interpreter, "_interpreter", seen)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", some_programs)
    return seen


# ---- the kernels ----------------------------------------------------------------------------------
@pytest.mark.parametrize("only", [None, "nest"])
@pytest.mark.parametrize("case", CASES)
def test_counts_and_offsets_have_room(case, only, memory):
    text, operands = CASES[case]
    built = build(f"op f({text}", only=only)
    module = load_text("edges", built.source)
    (plan,) = built.plans["f"]
    names = [t.name for t in plan.op.tensors]
    for way in ways(plan):
        if {variant for _, variant in way.variants} & WAITING:
            continue
        before = memory.accesses
        with forced(module, plan, way, small=False):
            module.f(**dict(zip(names, operands(), strict=True)))
        assert memory.accesses > before, way.name
