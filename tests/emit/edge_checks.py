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
from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor

from tritongen.pipeline import build
from tritongen.proof.variants import forced, ways
from tritongen.runtime.load import load_text

N = 2**31 - 7
HALF = 2**30 + 5  # three of these are beyond 2^31
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
    "outer of three": (
        "x: i8[P, M, N], z: i8[M]) -> y: i8[P, M, N] { y[p, m, n] = x[p, m, n] + z[m] }",
        lambda: [of(1, 1, 1).expand(N, 2, 2), of(2)],
    ),
    "middle of three": (
        "x: i8[P, M, N], z: i8[M]) -> y: i8[P, M, N] { y[p, m, n] = x[p, m, n] + z[m] }",
        lambda: [of(1, 1, 1).expand(2, N, 2), of(N)],
    ),
    "inner of three": (
        "x: i8[P, M, N], z: i8[M]) -> y: i8[P, M, N] { y[p, m, n] = x[p, m, n] + z[m] }",
        lambda: [of(1, 1, 1).expand(2, 2, N), of(2)],
    ),
    "short rows": (
        "x: i8[M, N]) -> y: i8[M] { y[m] = max[n](x[m, n]) }",
        lambda: [of(HALF, 3)],
    ),
    "columns far apart": (
        "x: i8[M, N]) -> y: i8[M] { y[m] = max[n](x[m, n]) }",
        lambda: [of(3, HALF).T],
    ),
    "long runs of rows": (
        "x: i8[B, K, D]) -> y: i8[B, D] { y[b, d] = max[k](x[b, k, d]) }",
        lambda: [of(2, 1, N)],
    ),
    "many runs of rows": (
        "x: i8[B, K, D]) -> y: i8[B, D] { y[b, d] = max[k](x[b, k, d]) }",
        lambda: [of(HALF, 1, 3)],
    ),
    "runs of rows far apart": (
        "x: i8[B, K, D]) -> y: i8[B, D] { y[b, d] = max[k](x[b, k, d]) }",
        lambda: [of(2, 1, 3 * HALF)[..., ::3]],
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
    "windows of several places": (
        "x: f16[L, D], w: f16[D, R]) -> y: f16[L, D] { y[l, d] = sum[r < 3]((x[l - r, d] else 0) * w[d, r]) }",
        lambda: [of(N, 1, dtype=F16), of(1, 3, dtype=F16)],
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
    "short rows of a product": (
        "a: f16[M, K], b: f16[K, N]) -> y: f16[M, N] { y[m, n] = sum[k](a[m, k] * b[k, n]) }",
        lambda: [of(HALF, 1, dtype=F16), of(1, 3, dtype=F16)],
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
        self.places: list[np.ndarray] = []  # what was accessed

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
        self.places.append(np.unique(at))

    def reached(self, place: int) -> bool:
        return any((at == place).any() for at in self.places)

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
    given = (*args, *kwargs.values())
    tensors = [t.base if isinstance(t, TensorDescriptor) else t for t in given]
    tensors = [t for t in tensors if isinstance(t, torch.Tensor)]
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
# Which elements these read, what they hold says.
CHOOSING = {"gathered": "x", "bounded product": "ab", "segments": "w", "long segments": "xw"}
# The last turn of a loop over tiles is any tile.
CHOOSING |= {"short rows of a product": "aby"}

# The last part of a sum may have no terms.
EMPTY_LAST = {("middle", "split")}


def run_all_ways(built, text: str, case: str, memory: Memory) -> None:
    """Every way of a module. Each reaches the first and the last element of what it reads and of what it writes."""
    module = load_text("edges", text)
    (plan,) = built.plans["f"]
    names = [t.name for t in plan.op.tensors]
    for way in ways(plan):
        if {variant for _, variant in way.variants} & WAITING:
            continue
        memory.places.clear()
        given = dict(zip(names, CASES[case][1](), strict=True))
        with forced(module, plan, way, small=False):
            got = module.f(**given)
        if (case, way.name) in EMPTY_LAST:
            continue
        for name, t in {**given, "y": got}.items():
            last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
            for place in (0, last) if name not in CHOOSING.get(case, "") else ():
                at = t.data_ptr() + place * t.itemsize
                assert memory.reached(at), f"{way.name} does not reach {name}[{place}]"


@pytest.mark.parametrize("only", [None, "nest"])
@pytest.mark.parametrize("case", CASES)
def test_counts_and_offsets_have_room(case, only, memory):
    built = build(f"op f({CASES[case][0]}", only=only)
    run_all_ways(built, built.source, case, memory)


# What makes room, taken out of a module's text: the test above notices each.
INNER, MIDDLE, OUTER = "(tile % tiles)", "(tile // tiles % spans)", "(tile // tiles // spans)"
PLANTED = [
    ("inner of three", "lib.blocks(inner, BLOCK)", "tl.cdiv(inner, BLOCK)"),
    ("middle of three", "lib.blocks(middle, ROWS)", "tl.cdiv(middle, ROWS)"),
    ("rows of a middle", f"{INNER}.to(tl.int64)", INNER),
    ("middle of three", f"{MIDDLE}.to(tl.int64)", MIDDLE),
    ("outer of three", f"{OUTER}.to(tl.int64)", OUTER),
    ("inner of three", "(inner_at < inner)", "(inner_at >= 0)"),
    ("middle of three", "(middle_at < middle)", "(middle_at >= 0)"),
    ("outer of three", "(outer_at < outer)", "(outer_at >= 0)"),
    ("long runs of rows", "lib.blocks(D, ROWS)", "tl.cdiv(D, ROWS)"),
    ("runs of rows far apart", "tiles).to(tl.int64) * ROWS", "tiles) * ROWS"),
    ("many runs of rows", "// tiles).to(tl.int64)", "// tiles)"),
    ("short rows", "tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
    ("columns far apart", "[None, :].to(tl.int64)", "[None, :]"),
    ("row", "tl.cast(N, tl.int64)", "N"),
    ("rows", "(row < M)", "(row >= 0)"),
    ("rows", "(col < N)", "(col >= 0)"),
    ("triangle", "BLOCK_M + (BLOCK_M - 1), M - 1)", "BLOCK_M + BLOCK_M, M) - 1"),
    ("triangle", "tl.cast(stop, tl.int64)", "stop"),
    ("bounded product", "tl.cast(K, tl.int64)", "K"),
    ("tall product", "lib.blocks(M, BLOCK_M)", "tl.cdiv(M, BLOCK_M)"),
    ("wide product", "lib.blocks(N, BLOCK_N)", "tl.cdiv(N, BLOCK_N)"),
    ("short rows of a product", "tile_m.to(tl.int64)", "tile_m"),
]


@pytest.mark.parametrize("case, room, none", PLANTED)
def test_room_that_is_taken_away_is_noticed(case, room, none, memory):
    built = build(f"op f({CASES[case][0]}")
    assert room in built.source
    with pytest.raises(
        (AssertionError, InterpreterError), match="lies outside|does not reach|counter wraps"
    ):
        run_all_ways(built, built.source.replace(room, none), case, memory)
