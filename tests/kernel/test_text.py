"""Kernels as text: what `show --stage kernel` prints is the same kernel again."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from random import Random

import pytest

from tritongen import pipeline
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Fetch, extreme, index, poly, size
from tritongen.ir.print_poly import NotWritable
from tritongen.kernel.nodes import PARTS, Fold, Kernel, Let, Loop, Store, Walk
from tritongen.kernel_text import BadKernelText, parse_kernels, print_kernel
from tritongen.proof.fuzz import motifs_chains
from tritongen.proof.fuzz.sketch import Sketch
from tritongen.show import CannotShow, gradient_text, stage_text

ROOT = Path(__file__).resolve().parents[2]
II, JJ, N = index("i"), index("j"), size("N")
X, Y = (ir.Read(name, (II, JJ), None, "compute") for name in "xy")
HALF = ir.Read("h", (II, JJ), None, "T")
AT, TO = ir.IndexValue(II, "i64"), ir.IndexValue(JJ + 1, "i64")
ONE = ir.Const(1, "i64")
AS = ir.Cast(HALF, "compute")
LOW, SAME = ir.Guard(JJ - II, ">="), ir.Guard(poly(Fetch("doc", (JJ,), None)) - II, "==")
OP = ir.Op(
    "f",
    (ir.TypeParam("T", "float", ("f16", "bf16")),),
    (
        *(ir.Tensor(n, "f32", (N, N)) for n in "xy"),
        ir.Tensor("h", "T", (N, N)),
        ir.Tensor("doc", "i32", (N,)),
    ),
    (),
    (),
    (),
)


def call(fn: str, *args: ir.Expr) -> ir.Call:
    return ir.Call(fn, args, args[-1].dtype)


def over_j(op: str, body: ir.Expr, *guards: ir.Guard) -> ir.Reduce:
    return ir.Reduce(op, (ir.Binder("j", poly(0), N),), guards, body, body.dtype)


GUARDED = ir.Reduce("sum", (), (SAME,), X, "compute")
VALUES = {
    "a number of the index": (
        call("add", X, ir.IndexValue(II + 1, "compute")),
        "x[i, j] + (i + 1)",
    ),
    "a sum of two numbers": (call("add", AT, ONE), "add(i, 1)"),
    "numbers alone": (ir.IndexValue(poly(3), "i64"), "index(3)"),
    "a number that is read": (
        ir.IndexValue(poly(Fetch("doc", (II,), None)) + 1, "i64"),
        "index(doc[i] + 1)",
    ),
    "a size among floats": (ir.IndexValue(N, "compute"), "index(N, compute)"),
    "a size of another type": (ir.IndexValue(N, "f32"), "index(N, T = f32)"),
    "the least of sizes": (
        ir.IndexValue(extreme("min", (N, size("width"))), "i64"),
        "min(N, width)",
    ),
    "the least of numbers": (call("minimum", AT, TO), "minimum(i, j + 1)"),
    "an order of numbers": (ir.Call("gt", (AT, TO), "bool"), "i > j + 1"),
    "a negative number": (ir.Const(-2.0, "compute"), "-2.0"),
    "minus a number": (call("neg", ir.Const(2.0, "compute")), "neg(2.0)"),
    "no number": (ir.Const(nan, "compute"), "nan()"),
    "less than all": (ir.Const(-inf, "compute"), "-inf"),
    "an extreme by its place": (ir.Call("held", (AT,), "compute"), "held(index(i))"),
    "an extreme of integers": (ir.Call("held", (AT,), "i64"), "held(index(i), T = i64)"),
    "a term that some row has": (call("seen", ir.Const(True, "bool"), X), "seen(true, x[i, j])"),
    "a small power": (
        ir.Call("pow_int", (X, ir.Const(-2, "i64")), "compute"),
        "x[i, j] ** -2",
    ),
    "a power": (call("pow", X, Y), "x[i, j] ** y[i, j]"),
    "a power of integers": (call("pow", AT, ONE), "pow(i, 1)"),
    "a fraction": (
        ir.Read("x", ((II - JJ) / N, JJ // 2), 0.0, "compute"),
        "x[(i - j) / N, j // 2] else 0",
    ),
    "a number of its own type": (ir.Const(2, "i32"), "number(2, T = i32)"),
    "half a sum": (
        ir.Read("x", (II / (N + 1), JJ % 3), 0.0, "compute"),
        "x[i / (N + 1), j % 3] else 0",
    ),
    "a value widened": (call("exp", AS), "exp(h[i, j])"),
    "a value widened, alone": (AS, "compute"),
    "a value as it is stored": (HALF, "h[i, j]"),
    "a value rounded": (ir.Cast(AS, "T"), "T(h[i, j])"),
    "a value rounded and widened": (ir.Cast(ir.Cast(X, "T"), "compute"), "T(x[i, j])"),
    "logic": (
        ir.Call("and", (ir.Call("isfinite", (X,), "bool"), ir.Const(True, "bool")), "bool"),
        "isfinite(x[i, j]) and true",
    ),
    "a bound": (over_j("sum", X, LOW), "sum[j >= i](x[i, j])"),
    "a condition": (over_j("max", X, SAME), "max[j](given(x[i, j], doc[j] == i))"),
    "a condition in front of a bound": (
        over_j("sum", X, SAME, LOW),
        "sum[j](given(x[i, j], doc[j] == i, j >= i))",
    ),
    "a place": (
        ir.Reduce("argmax", (ir.Binder("j", poly(0), N),), (), X, "i64"),
        "argmax[j](x[i, j])",
    ),
    "a term under a guard": (GUARDED, "given(x[i, j], doc[j] == i)"),
    "a fold of it": (over_j("sum", GUARDED), "sum[j](given(given(x[i, j], doc[j] == i)))"),
    "a condition that divides": (
        over_j("sum", X, ir.Guard((JJ - II) / N, ">=")),
        "sum[j](given(x[i, j], (j - i) / N >= 0))",
    ),
}


def kernel_of(value: ir.Expr, dtype: str = "") -> Kernel:
    walks = (Walk("i", N, "tile", "ROWS"), Walk("j", N, "whole", "COLS"))
    kind = Fold if isinstance(value, ir.Reduce) else Let
    axes = ("i",) if kind is Fold else ("i", "j")
    out = "compute" if dtype == "" and value == AS else dtype or value.dtype
    return Kernel("f", walks, (kind("v", value, axes, out), Store("v", (II, JJ), axes)))


@pytest.mark.parametrize("name", VALUES)
def test_an_expression_is_the_same_again(name):
    value, shown = VALUES[name]
    kernel = kernel_of(value)
    text = print_kernel(kernel, OP)
    assert shown in text and parse_kernels(text) == (kernel,)


@pytest.mark.parametrize("dtype", ["T", "f32", "compute"])
def test_the_type_of_a_value_is_that_of_its_statement(dtype):
    kernel = kernel_of(call("exp", AS), dtype)
    assert parse_kernels(print_kernel(kernel, OP)) == (kernel,)


def test_what_has_no_text_is_refused():
    for value in (call("exp", HALF), ir.Call("exp", (X,), "f64")):
        with pytest.raises(NotWritable):
            print_kernel(kernel_of(value), OP)


def printed(text: str) -> list[tuple[Kernel, str]]:
    """The kernels of a file of ops, and of its gradient, with their texts."""
    texts = [text]
    try:
        texts.append(gradient_text(text, "f.op"))
    except Exception:  # what cannot be derived is not what is tested here
        pass
    return [
        (k.kernel, print_kernel(k.kernel, plan.inner, plan.scratch))
        for each in texts
        for plans in pipeline.build(each, "f.op").plans.values()
        for plan in plans
        for step in plan.steps
        for k in step.kernels
        if k.kernel is not None
    ]


def hold(found: list[tuple[Kernel, str]]) -> None:
    assert parse_kernels("\n\n".join(text for _, text in found)) == tuple(k for k, _ in found)


FUSED = ["linear_cross_entropy", "attention", "layer_norm", "nearest_centre"]
SPECS = sorted(p.stem for p in (ROOT / "specs").glob("*.op") if p.stem not in FUSED)


@pytest.mark.parametrize(
    "name", [*FUSED, *(pytest.param(s, marks=pytest.mark.slow) for s in SPECS)]
)
def test_kernels_of_specs_are_the_same_again(name):
    found = printed((ROOT / "specs" / f"{name}.op").read_text())
    assert found or name not in FUSED
    hold(found)


def drawn(motif: str, seed: int) -> str:
    s = Sketch(Random(seed))
    s.typarams = {"T": "f16 | bf16", "U": "float"}
    getattr(motifs_chains, motif)(s)
    return s.text()


@pytest.mark.parametrize(
    "seed", [*range(1), *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))]
)
@pytest.mark.parametrize("motif", ["chain", "nearest", "loss_head"])
def test_kernels_of_drawn_chains_are_the_same_again(motif, seed):
    hold(printed(drawn(motif, seed)))


def test_a_loop_says_what_it_leaves_out():
    """Its bounds, the programs that share it, and what moves with a maximum."""
    walks = (
        Walk("p", PARTS, "program"),
        Walk("i", N, "tile", "R"),
        Walk("j", N, "loop", "C"),
    )
    top = Fold("m", over_j("max", X, LOW), ("i",), "compute")
    shifted = call("exp", call("sub", X, ir.Read("m", (II,), None, "compute")))
    total = Fold("n", over_j("sum", shifted, LOW), ("i",), "compute", moved_by="m")
    loop = Loop("j", (top, total), (LOW, SAME), "p")
    store = Store("n_parts", (index("p"), II), ("i",), ("p",), value="n")
    kernel = Kernel("f", walks, (loop, store))
    text = print_kernel(kernel, OP)
    assert "loop j within j >= i and doc[j] == i by p:" in text and "# moved by m" in text
    assert "store n_parts[p, i] = n  # once for p" in text
    assert parse_kernels(text) == (kernel,)


@pytest.mark.parametrize(
    "line, why",
    [
        ("    v[i] = x[i, i]", "it belongs to no loop"),
        ("  store w[i]", "stored before it is there"),
        ("  v[i] = w[i]", "`w` is read before it is there"),
        ("  v[i] = sum[k](x[i, i])", "`k` is no index"),
        ("  v[i] = given(x[i, i], x[i, i] + 1)", "no condition on indices"),
        ("  v[i]", "expected"),
    ],
)
def test_a_text_that_is_no_kernel(line, why):
    with pytest.raises(BadKernelText, match=why):
        parse_kernels(f"kernel f(x: f32[N, N])\n  tile i < N by ROWS\n\n{line}")


def test_show_of_an_op_without_such_a_kernel():
    with pytest.raises(CannotShow, match="no kernel here"):
        stage_text("op f(x: f32[N]) -> y: f32[N] { y[n] = x[n] + 1 }", "f.op", "kernel")
