"""Binding, the oracle, the verifier and the printer, on ops built by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from tritongen import lib
from tritongen.check import check
from tritongen.ir import interp, nodes
from tritongen.ir.algebra import Fetch, index, poly, size
from tritongen.ir.binding import bind, torch_dtype, type_arguments, typing_of
from tritongen.ir.interp import count_points, run, run_rounded
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Binder,
    Call,
    Cast,
    Const,
    Constant,
    Define,
    Guard,
    IndexValue,
    Nest,
    Op,
    Read,
    Reduce,
    Require,
    Scalar,
    ScalarRef,
    Tensor,
    TypeParam,
)
from tritongen.ir.print import print_op
from tritongen.ir.print_poly import NotWritable
from tritongen.ir.verify import InvalidIR, verify
from tritongen.reference import claim_lines, reference_lines
from tritongen.syntax.parse import parse

FLOAT = (TypeParam("T", "float", ("f64", "f32", "f16", "bf16")),)
INT = (TypeParam("T", "int", ("i64", "i32", "i16", "i8", "u8")),)
n, d, k, i = index("n"), index("d"), index("k"), index("i")
N, D, K = size("N"), size("D"), size("K")
batch = index(BATCH)


def over(**extents) -> tuple[Binder, ...]:
    return tuple(Binder(name.replace("dots", BATCH), poly(0), e) for name, e in extents.items())


def load(tensor, *coords, fill=None, dtype="T") -> Cast:
    return Cast(Read(tensor, tuple(poly(c) for c in coords), fill, dtype), "compute")


def call(fn, *args, dtype="compute") -> Call:
    return Call(fn, args, dtype)


def reduce(op, box, body, *guards, dtype="compute") -> Reduce:
    return Reduce(op, box, tuple(Guard(p, how) for p, how in guards), body, dtype)


ROWS = (Tensor("x", "T", (N, D)),)


def reducer_op(expr, out="T", dims=(N,), box=None, params=ROWS, kind=FLOAT):
    """y[n] = expr over x[n, d]."""
    box = over(n=N) if box is None else box
    nest = Nest("y", box, tuple(index(b.index) for b in box), dims, expr, out)
    return Op("f", kind, params, (Tensor("y", out, dims),), (), (nest,))


X = load("x", n, d)
MAX = reducer_op(reduce("max", over(d=D), X))
ARGMAX = reducer_op(reduce("argmax", over(d=D), X, dtype="i64"), out="i64")

SOFTMAX = Op(
    "softmax",
    FLOAT,
    (Tensor("x", "T", (BATCH_SIZE, D)),),
    (Tensor("y", "T", (BATCH_SIZE, D)),),
    (),
    (
        Nest(
            "m",
            over(dots=BATCH_SIZE),
            (batch,),
            (BATCH_SIZE,),
            reduce("max", over(d=D), load("x", batch, d)),
            "compute",
        ),
        Nest(
            "e",
            over(dots=BATCH_SIZE, d=D),
            (batch, d),
            (BATCH_SIZE, D),
            call("exp", call("sub", load("x", batch, d), Read("m", (batch,), None, "compute"))),
            "compute",
        ),
        Nest(
            "y",
            over(dots=BATCH_SIZE, d=D),
            (batch, d),
            (BATCH_SIZE, D),
            Cast(
                call(
                    "div",
                    Read("e", (batch, d), None, "compute"),
                    reduce("sum", over(k=D), Read("e", (batch, k), None, "compute")),
                ),
                "T",
            ),
            "T",
        ),
    ),
    ref="torch.softmax(x, dim=-1)",
)

LINEAR = Op(
    "linear",
    FLOAT,
    (Tensor("x", "T", (size("M"), K)), Tensor("w", "T", (N, K))),
    (Tensor("y", "T", (size("M"), N)),),
    (),
    (
        Nest(
            "y",
            over(m=size("M"), n=N),
            (index("m"), n),
            (size("M"), N),
            reduce("sum", over(k=K), call("mul", load("x", index("m"), k), load("w", n, k))),
            "T",
        ),
    ),
)

p, r = index("p"), index("r")
stride, pad = size("stride"), size("pad")
CONV = Op(
    "conv1d",
    FLOAT,
    (
        Tensor("x", "T", (N, size("C"), size("W"))),
        Tensor("w", "T", (size("F"), size("Cg"), size("R"))),
        Constant("stride", "int", 1),
        Constant("pad", "int", 0),
        Constant("groups", "int", 1),
    ),
    (Tensor("y", "T", (N, size("F"), size("P"))),),
    (
        Define("P", (size("W") + pad * 2 - size("R")) // stride + 1),
        Require(size("C"), "==", size("groups") * size("Cg"), "C == groups * Cg"),
        Require(size("F") % size("groups"), "==", poly(0), "F % groups == 0"),
    ),
    (
        Nest(
            "y",
            over(n=N, f=size("F"), p=size("P")),
            (n, index("f"), p),
            (N, size("F"), size("P")),
            reduce(
                "sum",
                over(c=size("Cg"), r=size("R")),
                call(
                    "mul",
                    load(
                        "x",
                        n,
                        index("f") // (size("F") // size("groups")) * size("Cg") + index("c"),
                        p * stride + r - pad,
                        fill=0,
                    ),
                    load("w", index("f"), index("c"), r),
                ),
            ),
            "T",
        ),
    ),
)


# ---- binding ------------------------------------------------------------------------------------
def refused(op, **args) -> str:
    with pytest.raises(ValueError) as caught:
        bind(op, args)
    return str(caught.value)


def test_what_a_wrong_call_is_told():
    x, w = torch.ones(4, 64), torch.ones(8, 32)
    assert refused(LINEAR, x=x[None], w=w) == "linear: x: expected 2 dims [M, K], given 3"
    assert refused(LINEAR, x=x, w=w) == "linear: w: dim 1 (K): expected 64 (from x), given 32"
    assert refused(LINEAR, x=x, w=torch.ones(8, 64).half()) == (
        "linear: w: expected dtype torch.float32 (T, from x), given torch.float16"
    )
    assert refused(LINEAR, x=x.int(), w=w) == (
        "linear: x: expected dtype torch.float64, torch.float32, torch.float16 or torch.bfloat16,"
        " given torch.int32"
    )
    assert refused(LINEAR, x=x, w=torch.ones(8, 64, device="meta")) == (
        "linear: w: expected device cpu (from x), given meta"
    )
    assert refused(LINEAR, x=[1.0], w=w) == "linear: x: expected a tensor, given list"
    assert refused(SOFTMAX, x=torch.ones(())) == (
        "softmax: x: expected at least 1 dim [..., D], given 0"
    )
    with pytest.raises(TypeError, match="linear: missing argument w"):
        bind(LINEAR, {"x": x})


def test_facts_are_checked_in_order_and_named():
    x, w = torch.ones(2, 6, 9), torch.ones(4, 2, 3)
    assert refused(CONV, x=x, w=w, groups=2) == (
        "conv1d: requires C == groups * Cg: 6 != 4 (C = 6 from x, Cg = 2 from w, groups = 2)"
    )
    assert refused(CONV, x=x[:, :, :1], w=w, groups=3).startswith("conv1d: size P = ")
    assert refused(CONV, x=x, w=w, groups=3) == (
        "conv1d: requires F % groups == 0: 1 != 0 (F = 4 from w, groups = 3)"
    )
    assert refused(CONV, x=x, w=w, stride=0).startswith("conv1d: division by zero in ")
    assert refused(CONV, x=x, w=w, stride=1.0) == "conv1d: stride: expected int, given 1.0"
    bound = bind(CONV, {"x": x, "w": torch.ones(4, 3, 3), "groups": 2, "stride": 2})
    assert bound.sizes["P"] == 4 and bound.dtypes == {"T": "f32", "compute": "f32"}


def test_batch_dims_broadcast_and_flatten():
    two = replace(SOFTMAX, params=(*SOFTMAX.params, Tensor("b", "T", (BATCH_SIZE,))))
    x, b = torch.randn(5, 1, 3, 7), torch.randn(4, 1)
    bound = bind(two, {"x": x, "b": b})
    assert bound.batch_shape == (5, 4, 3) and bound.sizes[BATCH] == 60
    assert torch.equal(bound.values["x"].view(5, 4, 3, 7), x.expand(5, 4, 3, 7))
    assert torch.equal(bound.values["b"].view(5, 4, 3), b.expand(5, 4, 3))
    assert refused(two, x=x, b=torch.ones(2, 2)) == (
        "softmax: b: batch shape (2, 2) does not broadcast with (5, 1, 3) (from x)"
    )


def test_the_typing_follows_the_dtypes():
    ints = replace(MAX, typarams=INT)
    assert typing_of((MAX, ints), {"x": torch.ones(2, 2, dtype=torch.int8)}) is ints
    assert typing_of((MAX, ints), {"x": torch.ones(2, 2)}) is MAX


# ---- the oracle ---------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(7,), (2, 3, 5), (0, 4), (4, 0)])
@pytest.mark.parametrize("limit", [1 << 24, 4])
def test_softmax(shape, limit, monkeypatch):
    monkeypatch.setattr(interp, "DENSE_LIMIT", limit)
    x = torch.randn(shape)
    y = run(SOFTMAX, {"x": x})["y"]
    assert y.dtype == torch.float64
    torch.testing.assert_close(y, torch.softmax(x.double(), -1), rtol=1e-12, atol=0)


def test_convolution_reads_zero_outside_and_groups():
    x, w = torch.randn(2, 6, 9), torch.randn(4, 3, 3)
    for s, pd in [(1, 0), (2, 1), (3, 2)]:
        y = run(CONV, {"x": x, "w": w, "stride": s, "pad": pd, "groups": 2})["y"]
        expected = torch.nn.functional.conv1d(x.double(), w.double(), None, s, pd, 1, 2)
        torch.testing.assert_close(y, expected)


def test_exact_division_reads_the_fill_between():
    """A transposed convolution of ones: x[(p - r) / 2] else 0."""
    body = reduce(
        "sum",
        over(r=poly(3)),
        load("x", n, (p - r) / 2, fill=0),
    )
    op = reducer_op(body, dims=(N, D * 2 + 1), box=over(n=N, p=D * 2 + 1))
    x = torch.randn(2, 4, dtype=torch.float64)
    expected = torch.nn.functional.conv_transpose1d(
        x[:, None], torch.ones(1, 1, 3).double(), stride=2
    )
    assert torch.equal(run(op, {"x": x})["y"], expected[:, 0])


def test_nan_and_ties():
    nan = float("nan")
    x = torch.tensor([[1.0, nan, 2, nan], [3, 7, 7, 1], [-torch.inf] * 4])
    assert torch.equal(run(MAX, {"x": x})["y"][1:], x[1:].double().amax(-1))
    assert run(MAX, {"x": x})["y"][0].isnan()
    assert run(ARGMAX, {"x": x})["y"].tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("op", "expected"),
    [("sum", 0), ("prod", 1), ("max", -torch.inf), ("min", torch.inf)],
)
def test_identities_over_nothing(op, expected):
    y = run(reducer_op(reduce(op, over(d=D), X)), {"x": torch.ones(3, 0)})["y"]
    assert y.tolist() == [expected] * 3


def test_over_nothing_where_there_is_no_identity():
    mean = call("div", reduce("sum", over(d=D), X), IndexValue(D, "compute"))
    assert run(reducer_op(mean), {"x": torch.ones(3, 0)})["y"].isnan().all()
    assert run(ARGMAX, {"x": torch.ones(3, 0)})["y"].tolist() == [-1] * 3


def test_integers_keep_their_dtype_and_wrap():
    x = torch.tensor([[100, 100, 100]], dtype=torch.int8)
    total = reduce("sum", over(d=D), Cast(Read("x", (n, d), None, "T"), "i64"), dtype="i64")
    assert run(reducer_op(total, "i64", kind=INT), {"x": x})["y"].tolist() == [300]
    narrow = reduce("sum", over(d=D), Read("x", (n, d), None, "T"), dtype="T")
    assert run(reducer_op(narrow, kind=INT), {"x": x})["y"].tolist() == [300 - 256]
    lowest = reduce("max", over(d=D), Read("x", (n, d), None, "T"), dtype="T")
    assert run(reducer_op(lowest, kind=INT), {"x": x[:, :0]})["y"].tolist() == [-128]


def test_guards_make_prefixes_and_empty_ones():
    scan = reduce("sum", over(k=D), load("x", n, k), (d - 1 - k, ">="))
    op = reducer_op(scan, dims=(N, D), box=over(n=N, d=D))
    x = torch.randn(2, 5, dtype=torch.float64)
    exclusive = torch.cumsum(x, 1) - x
    torch.testing.assert_close(run(op, {"x": x})["y"], exclusive)
    hidden = replace(scan, op="argmax", dtype="i64")
    ranks = run(reducer_op(hidden, "i64", (N, D), over(n=N, d=D)), {"x": x.sort(1)[0]})["y"]
    assert ranks.tolist() == [[-1, 0, 1, 2, 3]] * 2


def test_gather_reads_the_fill_outside():
    target = poly(Fetch("t", (n,)))
    params = (Tensor("x", "T", (N, D)), Tensor("t", "i64", (N,)))
    op = reducer_op(load("x", n, target, fill=-1), params=params)
    x = torch.arange(12.0).view(4, 3)
    args = {"x": x, "t": torch.tensor([2, -1, 3, 0])}
    assert run(op, args)["y"].tolist() == [2, -1, -1, 9]
    scatter = reduce("sum", over(n=N), X, (target - index("v"), "=="))
    op = reducer_op(scatter, dims=(size("V"), D), box=over(v=size("V"), d=D), params=params)
    op = replace(op, facts=(Define("V", poly(4)),))
    assert run(op, args)["y"].sum(-1).tolist() == [30, 0, 3, 21]


def test_a_branch_not_taken_contributes_nothing():
    positive = call("gt", X, Const(0.0, "compute"), dtype="bool")
    picked = call("where", positive, call("log", X), Const(0.0, "compute"))
    y = run(reducer_op(reduce("sum", over(d=D), picked)), {"x": torch.tensor([[-1.0, 0, 1]])})["y"]
    assert y.tolist() == [0]


def test_half_types_round_where_they_are_cast_and_where_an_output_is_read():
    x = torch.tensor([[1.0, 2.0**-9]], dtype=torch.float32)
    rounded = reduce(
        "sum", over(d=D), Cast(Cast(call("add", X, Const(1.0, "compute")), "bf16"), "compute")
    )
    assert run(reducer_op(rounded), {"x": x})["y"].tolist() == [3.0]
    first = Nest("y", over(n=N), (n,), (N,), reduce("sum", over(d=D), X), "bf16")
    second = Nest("z", over(n=N), (n,), (N,), Cast(Read("y", (n,), None, "bf16"), "compute"), "f32")
    outputs = (Tensor("y", "bf16", (N,)), Tensor("z", "f32", (N,)))
    op = Op("f", FLOAT, (Tensor("x", "T", (N, D)),), outputs, (), (first, second))
    exact, final = run(op, {"x": x}), run_rounded(op, {"x": x})
    assert exact["y"].item() == 1 + 2.0**-9 and exact["z"].item() == 1.0
    assert final["y"].dtype == torch.bfloat16 and final["y"].item() == 1.0


def test_scalars_round_to_the_compute_type():
    params = (Tensor("x", "T", (N,)), Scalar("s", "f32", 0.1))
    op = reducer_op(call("mul", load("x", n), ScalarRef("s", "compute")), params=params)
    one = torch.ones(1)
    assert run(op, {"x": one})["y"].item() == torch.tensor(0.1).double().item()
    assert (
        run(op, {"x": one.double(), "s": torch.tensor(0.1, dtype=torch.float64)})["y"].item() == 0.1
    )


def test_a_read_that_leaves_its_tensor_is_a_bug_of_the_proof():
    shifted = reducer_op(reduce("sum", over(d=D), load("x", n, d + 1)))
    with pytest.raises(IndexError, match="f: y: a read of x leaves it"):
        run(shifted, {"x": torch.ones(2, 2)})
    guarded = reducer_op(reduce("sum", over(d=D), load("x", n, d + 1), (D - 2 - d, ">=")))
    assert run(guarded, {"x": torch.ones(2, 2)})["y"].tolist() == [1, 1]


def test_points_are_counted():
    sizes = {"M": 2, "N": 3, "K": 5}
    assert count_points(LINEAR, sizes) == 30
    assert count_points(SOFTMAX, {BATCH: 2, "D": 4}) == 8 + 8 + 2 * 4 * 4


# ---- the verifier -------------------------------------------------------------------------------
def test_good_ops_verify():
    for op in (SOFTMAX, LINEAR, CONV, MAX, ARGMAX):
        verify(op)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (load("x", n, d), "f: nest y: index `d` is not bound in x[n, d]"),
        (load("x", n), "f: nest y: x[n] has 1 coordinates for 2 dims"),
        (load("z", n), "f: nest y: z[n] is read before it is written"),
        (load("x", n, size("E")), "f: nest y: size `E` is not known in x[n, E]"),
        (load("x", n, n * n), "f: nest y: not affine: x[n, n * n]"),
        (load("x", n, 0, dtype="f32"), "f: nest y: reads x, which is T, as f32"),
        (load("x", n, 0, fill=True), "f: nest y: fill of x: True is no T"),
        (call("add", load("x", n, 0), Const(1, "i64")), "f: nest y: add of compute, i64"),
        (call("nope", load("x", n, 0)), "f: nest y: no function is named nope"),
        (reduce("sum", over(n=N), load("x", n, 0)), "f: nest y: index `n` is bound twice"),
        (reduce("sum", over(d=n), load("x", n, d)), "f: nest y: the range of d is no size: n"),
        (reduce("argmax", over(d=D), X), "f: nest y: argmax of compute gives compute"),
        (Const(1, "i64"), "f: nest y: stores i64 as T"),
        (ScalarRef("s", "compute"), "f: nest y: no scalar or constant is named s"),
    ],
)
def test_the_verifier_names_nest_and_node(body, what):
    with pytest.raises(InvalidIR) as caught:
        verify(reducer_op(body))
    assert str(caught.value) == what


def test_every_output_is_written_once():
    with pytest.raises(InvalidIR, match="softmax: output y is never written"):
        verify(replace(SOFTMAX, nests=SOFTMAX.nests[:2]))
    with pytest.raises(InvalidIR, match=r"softmax: nest e: m\[...\] is read before"):
        verify(replace(SOFTMAX, nests=SOFTMAX.nests[1:]))
    assert nodes.kind_of("compute", SOFTMAX) == "float"


# ---- the printer --------------------------------------------------------------------------------
EXTRA = """
op guards<T: float>(x: T[N, D], t: i64[N]) -> y: T[N, D] {
  m[n, d < D] = mean[k <= d](x[n, k]) + sum[k > d](x[n, k]) + max[2 <= k < d](x[n, k] else 0)
  s[n, d < D] = sum[k < D](where(t[n] == k and (d - k) % 3 == 0, x[n, k] ** 2, 0))
  y[n, d]     = m[n, d] + s[n, d] - (x[n, (d + t[n]) % D] else 0) * (x[n, (d - 1) / 2] else -1)
}

op ints<T: float | int>(x: T[N, D], u: u8[N]) -> (v: T[N], c: i64[N], z: bool[N]) {
  v[n] = max[d](x[n, d])
  c[n] = sum[d](x[n, d] > 0) + u[n]
  z[n] = any[d](x[n, d] > v[n]) or not (u[n] == 3)
}

op batched<T: float>(x: T[N, ..., D], b: T[...], const k: int = 2, a: f32 = 0.5) -> y: T[N, ..., D]
    with D % k == 0 {
  m[n]         = mean[..., d](x[n, ..., d])
  y[n, ..., d] = a * max(x[n, ..., d], 0) - b[...] + m[n] * (d % k) * (d // (D // k))
}
"""
SPECS = Path(__file__).parents[2] / "specs"
SHAPES = {
    "softmax": {"x": (2, 3, 5)},
    "layer_norm": {"x": (2, 1, 5), "w": (5,), "b": (5,)},
    "group_norm": {"x": (2, 6, 2, 3), "gain": (6,), "bias": (6,), "groups": 3},
    "conv2d": {"x": (2, 4, 5, 6), "w": (6, 2, 3, 2), "b": (6,), "pad": 1, "stride": 2, "groups": 2},
    "conv_transpose2d": {"x": (1, 2, 3, 2), "w": (2, 3, 2, 3), "stride": 2, "pad": 1},
    "max_pool2d": {"x": (1, 2, 5, 4), "win": 3, "pad": 1},
    "cross_entropy": {"x": (4, 3), "target": (4,)},
    "cumsum": {"x": (2, 5)},
    "huber": {"x": (3, 2), "t": (2,)},
    "int8_linear": {"x": (3, 4), "w": (2, 4), "sx": (3,), "sw": (2,)},
    "guards": {"x": (3, 5), "t": (3,)},
    "ints": {"x": (3, 5), "u": (3,)},
    "batched": {"x": (2, 1, 3, 4), "b": (2, 1)},
}


@cache
def typings(name: str) -> tuple[Op, ...]:
    path = SPECS / f"{name}.op"
    ops = check(parse(path.read_text() if path.exists() else EXTRA))
    return next(c.typings for c in ops if c.name == name)


def without_texts(op: Op) -> Op:
    facts = tuple(replace(f, text="") if isinstance(f, Require) else f for f in op.facts)
    return replace(op, text="", doc="", facts=facts)


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_printed_checks_to_the_same_op(name):
    for op in typings(name):
        (printed,) = check(parse(print_op(op)))
        assert without_texts(op) in map(without_texts, printed.typings)


def test_a_guard_without_a_form_in_the_language_is_refused():
    hidden = reduce("argmax", over(d=D), X, ((d - n) / 2, "=="), dtype="i64")
    with pytest.raises(NotWritable):
        print_op(reducer_op(hidden, "i64"))


# ---- the reference ------------------------------------------------------------------------------
def drawn(op: Op, shapes: dict) -> dict[str, object]:
    torch.manual_seed(0)
    bound = {p.name: p.dtypes for p in op.typarams}
    args = dict(shapes)
    for t in op.tensors:
        dtypes = bound.get(t.dtype, (t.dtype,))
        dtype = torch_dtype("f32" if "f32" in dtypes else dtypes[0])
        values = torch.randn(shapes[t.name]) * 3
        args[t.name] = values.abs().to(dtype) if dtype == torch.uint8 else values.to(dtype)
    return args | type_arguments(op, {p.name: p.dtypes[0] for p in op.typarams})


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("empty", [False, True])
def test_the_reference_computes_what_the_oracle_does(name, empty):
    for op in typings(name):
        namespace = {"torch": torch, "lib": lib}
        exec("\n".join(reference_lines(*typings(name))), namespace)
        args = drawn(op, SHAPES[name])
        if empty and name not in ("ints", "conv_transpose2d", "max_pool2d", "huber"):
            args = {
                k: v[:0] if k in ("x", "t", "target", "sx", "u") else v for k, v in args.items()
            }
        got = namespace[f"{name}_reference"](**args)
        expected = run_rounded(op, args).values()
        for g, e in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
            torch.testing.assert_close(g, e, equal_nan=True)


def test_a_ref_is_computed_in_the_compute_type_and_rounded_once():
    namespace = {"torch": torch}
    exec("\n".join(claim_lines(*typings("softmax"))), namespace)
    x = torch.randn(3, 9).bfloat16()
    expected = torch.softmax(x.float(), -1).bfloat16()
    assert torch.equal(namespace["softmax_torch"](x), expected)


def test_a_gather_at_a_divided_coordinate_reads_its_fill_between():
    at = poly(Fetch("t", (n / 2,), -1))
    params = (Tensor("x", "T", (N, D)), Tensor("t", "i64", (N,)))
    op = reducer_op(load("x", n, at, fill=9), params=params)
    namespace = {"torch": torch, "lib": lib}
    exec("\n".join(reference_lines(op)), namespace)
    args = {"x": torch.arange(12.0).view(4, 3), "t": torch.tensor([2, 1, 0, 0])}
    assert namespace["f_reference"](**args).tolist() == [2, 9, 7, 9]
    assert run(op, args)["y"].tolist() == [2, 9, 7, 9]


def test_a_mean_of_a_fixed_number_of_terms_prints_as_one():
    text = "op f<T: float>(x: T[N, 2]) -> y: T[N] {\n  y[n] = mean[k < 2](x[n, k])\n}\n"
    assert print_op(check(parse(text))[0].typings[0]) == text.replace("[k < 2]", "[k]")
