"""compile_expr, compile_op and load, on CPU tensors."""

import argparse
import ast
import copy
import pickle
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import tritongen
from tritongen import pipeline
from tritongen.errors import SpecError
from tritongen.runtime.load import load_text


def test_pointwise_in_order_of_appearance():
    x, z = torch.randn(3, 5), torch.randn(5)
    f = tritongen.compile_expr("x - 2 * z")
    torch.testing.assert_close(f(x, z), x - 2 * z)
    torch.testing.assert_close(f(x, z=z), x - 2 * z)
    with pytest.raises(TypeError, match="takes x, z"):
        f(x)


def test_indices_give_the_ranks():
    a, b, bias = torch.randn(4, 8), torch.randn(8, 3), torch.randn(3)
    f = tritongen.compile_expr("y[m, n] = relu(sum[k](a[m, k] * b[k, n]) + bias[n])")
    torch.testing.assert_close(f(a, b, bias), torch.relu(a @ b + bias))
    with pytest.raises(ValueError, match=r"b: dim 0 .*expected 8"):
        f(a, torch.randn(7, 3), bias)


@pytest.mark.parametrize("text", ["relu", "x + relu", "y[n] = x[n] * cos"])
def test_a_bare_function_is_a_mistake(text):
    with pytest.raises(SpecError, match=r"E501.*is a function[^$]*call it: `(relu|cos)\(x\)`"):
        tritongen.compile_expr(text)


def test_a_temporary_and_a_scalar_result():
    x = torch.randn(6)
    f = tritongen.compile_expr("mu = mean[n](x[n])\nv = mean[n]((x[n] - mu) ** 2)")
    torch.testing.assert_close(f(x), x.var(correction=0))


@pytest.mark.parametrize("number", [2.5, 3, True, torch.tensor(0.5)])
def test_numbers_are_scalars_and_promote_as_in_torch(number):
    f = tritongen.compile_expr("x * s")
    for x in (torch.ones(3, dtype=torch.bfloat16), torch.arange(3)):
        got, want = f(x, number), x * number
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "one, other", [("bfloat16", "float32"), ("float16", "bfloat16"), ("int32", "float16")]
    + [("int32", "int64"), ("uint8", "int32"), ("bool", "float16"), ("float64", "float32")]
)  # fmt: skip
def test_result_dtype_is_torchs(one, other):
    x = torch.ones(3).to(getattr(torch, one))
    z = torch.full((3,), 2).to(getattr(torch, other))
    f = tritongen.compile_expr("x * z")
    assert f(x, z).dtype == (x * z).dtype
    assert tritongen.compile_expr("x > z")(x, z).dtype == torch.bool
    assert tritongen.compile_expr("f16(x * z)")(x, z).dtype == torch.float16


@pytest.mark.parametrize("text", ["torch.flatten(x)", "torch.reshape(x, (-1,))[0:3]"])
def test_a_result_on_the_cpu_is_no_view_of_an_operand(text):
    spec = f'op f<T: float>(x: T[N]) -> y: T[N] {{ y[n] = x[n]\n ref "{text}" }}'
    for standalone in (False, True):
        built = pipeline.build(spec, "f.op", standalone).raw
        f, x = load_text("f", built).f, torch.randn(3)
        y = f(x)
        y += 1
        torch.testing.assert_close(f(x) + 1, y)


@pytest.mark.parametrize("body", ["y[n] = detach(x[n]) z = s", "y[n] = x[n] z = f32(detach(s))"])
def test_a_result_in_the_memory_of_nothing_else(body):
    f = tritongen.compile_op(f"op f(x: f32[N], s: f32) -> (y: f32[N], z: f32) {{ {body} }}")
    x, s = torch.ones(3), torch.tensor(2.0)
    for result in f(x, s):
        result += 1
    assert s == 2 and torch.equal(x, torch.ones(3))


@pytest.mark.parametrize("standalone", [False, True])
def test_a_result_may_be_changed_in_place(standalone):
    """Of several batch dims the reference gives views of its own, and autograd refused that."""
    text = "op f<T: float>(x: T[..., D]) -> (y: T[..., D], z: T[...]) { y[..., d] = 2 * x[..., d] z[...] = x[..., 0] }"
    f = load_text("f", pipeline.build(text, "f.op", standalone, gradients=True).raw).f
    x = torch.ones(2, 3, 4, requires_grad=True)
    y, z = f(x)
    (y.mul_(2).sum() + z.mul_(3).sum()).backward()
    assert torch.equal(x.grad, torch.tensor([7.0, 4, 4, 4]).expand(2, 3, 4))


def test_same_text_same_object_and_fast():
    f = tritongen.compile_expr("max(x, 0) + 1")
    f(torch.ones(2))
    start = time.process_time()
    for _ in range(1000):
        assert tritongen.compile_expr("max(x, 0) + 1") is f
    assert (time.process_time() - start) / 1000 < 20e-6


def test_a_new_expression_is_quick():
    """About 30 ms, twice what Python takes to print a module of 2,600 lines: a measure of the machine.

    `ast.unparse` is Python code, as the compiler is. Some processes run such code three times as long, but not a parser in C.
    """
    tritongen.compile_expr("x + 1")(torch.ones(2))  # imports, and tables loaded on first use
    spent, printing = [], []
    tree = ast.parse(Path(argparse.__file__).read_text())
    for k in range(5):
        start = time.process_time()
        tritongen.compile_expr(f"sigmoid(x) * {k} + z")(torch.ones(2), torch.ones(2))
        compiled = time.process_time()
        ast.unparse(tree)
        spent.append(compiled - start)
        printing.append(time.process_time() - compiled)
    assert min(spent) < 3 * min(printing)


def test_a_gradient_is_derived_when_it_is_first_wanted(monkeypatch):
    asked = []
    derive = pipeline.with_gradient
    monkeypatch.setattr(
        pipeline, "with_gradient", lambda *given: asked.append(given) or derive(*given)
    )
    f, x = tritongen.compile_expr("tanh(x) * 1.25"), torch.ones(3, requires_grad=True)
    with torch.no_grad():
        f(x)
    assert not asked
    f(x).sum().backward()
    assert len(asked) == 1
    torch.testing.assert_close(x.grad, 1.25 * (1 - torch.tanh(x.detach()) ** 2))
    assert "_backward_flat(" in f.source


def test_source_spec_reference_explain():
    f = tritongen.compile_expr("max(x, 0)")
    x = torch.randn(4, 7)
    f(x)
    assert f.spec == "max(x, 0)"
    assert "@triton.jit" in f.source and "Generated by tritongen" in f.source
    assert torch.equal(f.reference(x), x.relu())
    assert "pointwise" in f.explain(x)
    ops = tritongen.load("specs/softmax.op")
    few = ops.softmax.explain(torch.empty(2, 100_000, device="meta"))
    many = ops.softmax.explain(torch.empty(4096, 256, device="meta"))
    assert "split" in few and "a row fits" in many and "softmax_rows[" in many


def test_an_op_from_text():
    relu = tritongen.compile_op("op relu<T: float>(x: T[...]) -> y: T[...] { y = max(x, 0) }")
    assert torch.equal(relu(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
    two = (
        "op up<T: float>(x: T[...]) -> y: T[...] { y = x + 1 }\n"
        "op twice<T: float>(x: T[...]) -> y: T[...] { y = up(up(x)) }"
    )
    with pytest.raises(tritongen.SpecError, match="several ops: up, twice"):
        tritongen.compile_op(two)
    assert tritongen.compile_op(two, name="twice")(torch.zeros(1)).item() == 2


def test_load_gives_every_op_and_generated_files(tmp_path):
    ops = tritongen.load("specs/softmax.op")
    assert [op.__name__ for op in ops] == ["softmax"]
    torch.testing.assert_close(ops.softmax(torch.ones(2, 4)), torch.full((2, 4), 0.25))
    path = tmp_path / "softmax.py"
    path.write_text(ops.softmax.source)
    torch.testing.assert_close(tritongen.load(path).softmax(torch.ones(4)), torch.full((4,), 0.25))


F = torch.nn.functional
ROWS, GAIN, BIAS = torch.randn(3, 5), torch.randn(5), torch.randn(5)
IMAGE, FILTERS, EACH = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)


@pytest.mark.parametrize(
    "text, given, want",
    [
        ("softmax(x)", (ROWS,), ROWS.softmax(-1)),
        ("softmax(scale * x)", (0.5, ROWS), (ROWS / 2).softmax(-1)),
        ("layer_norm(x, w, b)", (ROWS, GAIN, BIAS), F.layer_norm(ROWS, (5,), GAIN, BIAS)),
        (
            "x + silu(layer_norm(x, w, b, eps = e))",
            (ROWS, GAIN, BIAS, 0.1),
            ROWS + F.silu(F.layer_norm(ROWS, (5,), GAIN, BIAS, 0.1)),
        ),
        ("softmax(matmul(a, b) + z)", (ROWS.T, ROWS, GAIN), (ROWS.T @ ROWS + GAIN).softmax(-1)),
        ("matmul(a, b) * s", (ROWS.T, ROWS, torch.tensor(2.0)), 2 * ROWS.T @ ROWS),
        (
            "h = conv2d(x, w, b, pad = k)\ny = relu(group_norm(h, g, v, groups = 2))",
            (IMAGE, FILTERS, EACH, 1, EACH, EACH),
            F.group_norm(F.conv2d(IMAGE, FILTERS, EACH, padding=1), 2, EACH, EACH).relu(),
        ),
        ("max_pool2d(x, 3, stride = 1)", (IMAGE,), F.max_pool2d(IMAGE, 3, 1)),
        (
            "cross_entropy(x, t)",
            (ROWS, torch.tensor([0, 1, 4])),
            F.cross_entropy(ROWS, torch.tensor([0, 1, 4]), reduction="none"),
        ),
        ("h = softmax(x)\ny[...] = max[d](h[..., d])", (ROWS,), ROWS.softmax(-1).amax(-1)),
        ("h[n, d] = 2 * x[n, d]\ny = h + z", (ROWS, GAIN), 2 * ROWS + GAIN),
    ],
)
def test_ops_of_the_prelude_say_what_their_operands_are(text, given, want):
    f = tritongen.compile_expr(text)
    torch.testing.assert_close(f(*given), want, rtol=1e-5, atol=1e-5)
    assert "@triton.jit" in f.source


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_gathers(dtype):
    table, idx = torch.randn(7, 3), torch.tensor([2, 6, 0, 9], dtype=dtype)
    f = tritongen.compile_expr("y[n, d] = table[idx[n], d] else 0")
    torch.testing.assert_close(f(table, idx), F.pad(table, (0, 0, 0, 3))[idx.long()])
    dot = tritongen.compile_expr("y[n] = sum[d](x[n, d] * (w[idx[n], d] else 0))")
    x, idx = torch.randn(4, 3), idx.clamp(max=6)
    torch.testing.assert_close(dot(x, table, idx), (x * table[idx.long()]).sum(1))


@pytest.mark.parametrize(
    "text, given, error, message",
    [
        ("max(x, 0)", (ROWS.numpy(),), TypeError, "x: .*given ndarray: pass torch.from_numpy"),
        ("max(x, 0)", ([1.0],), TypeError, r"given list: pass torch.tensor\(x\)"),
        ("matmul(a, b)", (ROWS, ROWS.half()), ValueError, r"`a` and `b` of one dtype; given f32 a"),
        ("matmul(a, b)", (ROWS[None], ROWS), ValueError, r"a: expected 2 dims \[M, K\], given 3"),
        ("y[n] = x[n, t[n]] else 0", (ROWS, GAIN), ValueError, "`t` must hold integers here; given f32"),
        ("mean[r < k](x[r] else 0)", (GAIN, 3), ValueError, "`k` must be a number here(.|\n)*order of appearance, are k, x"),
        ("sum[n](x[n])", (2.0,), TypeError, "needs a tensor"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_named(text, given, error, message):
    with pytest.raises(error, match=message):
        tritongen.compile_expr(text)(*given)


@pytest.mark.parametrize(
    "text, given, applied",
    [
        ("ij,jk->ik", (ROWS, ROWS.T), ROWS @ ROWS.T),
        ("...i, ...i -> ...", (ROWS, ROWS), (ROWS * ROWS).sum(-1)),
        ("relu", (ROWS,), ROWS.relu()),
        ("layer_norm", (ROWS, GAIN, BIAS), F.layer_norm(ROWS, (5,), GAIN, BIAS)),
        ("y[n, j] = x[n] else 0", (GAIN,), None),
    ],
)
def test_a_help_is_right_when_applied(text, given, applied):
    with pytest.raises(tritongen.SpecError) as caught:
        tritongen.compile_expr(text)(*given)
    (help,) = [line for line in str(caught.value).splitlines() if "help:" in line]
    better = help.split("`")[1].replace("...`", "").replace("j < 8]", "j < 8] = x[n] else 0")
    got = tritongen.compile_expr(better)(*given)
    want = GAIN[:, None].expand(5, 8) if applied is None else applied
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "text, message",
    [
        ("max(x, ", "never closed"),
        ("y[m] = x[m, k]", "index `k` is not bound"),
        ("y[m, j] = x[m]", "index `j` has no range"),
        ("y[b] = sum[cu[b] <= r < cu[b + 1]](x[r])", r"y\[b < B - 1\]"),
        ("1 + 2", "needs a tensor"),
        ("x + foo(x)", "unknown function `foo`"),
        ("x }\nop evil() -> y: f32 { y = 1", "closes nothing"),
    ],
)
def test_errors_show_the_users_own_text(text, message):
    with pytest.raises(tritongen.SpecError, match=message) as caught:
        tritongen.compile_expr(text)(torch.ones(3))
    assert "<expression>" in str(caught.value)


def test_torch_compile_sees_one_op():
    """The graph has no break, although the expression meets its operands for the first time while it is traced."""
    f = tritongen.compile_expr("min(x, 0) + 0 * y")
    both = torch.compile(lambda v: f(2 * v, v) + 1, backend="aot_eager", fullgraph=True)
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(4, dtype=dtype, requires_grad=True)
        torch.testing.assert_close(both(x), (2 * x).clamp(max=0) + 1)
        both(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * (x < 0).to(dtype))


def test_what_is_no_tensor_is_named():
    f = tritongen.compile_expr("max(x, 0) * scale")
    with pytest.raises(TypeError, match="needs a tensor"):
        f(1.0, 2.0)
    op = tritongen.compile_op("op twice<T: float>(x: T[N]) -> y: T[N] { y[n] = 2 * x[n] }")
    for value in (None, [1.0], torch.ones(2).numpy()):
        with pytest.raises(
            TypeError, match=f"twice: x: expected a tensor, given {type(value).__name__}"
        ):
            op(value)
    for make in (tritongen.compile_expr, tritongen.compile_op):
        with pytest.raises(TypeError, match="is a text, given int"):
            make(3)


def test_what_a_call_gives_wrongly_is_named():
    f = tritongen.compile_op(
        "op lin<T: float>(x: T[M, K], w: T[N, K], scale: f32 = 1.0) -> y: T[M, N] {"
        " y[m, n] = scale * sum[k](x[m, k] * w[n, k]) }"
    )
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    wrong = [
        (lambda: f(x, w, bias=x), "lin.. has no argument 'bias': it has x, w, scale"),
        (lambda: f(x, weight=w), "lin.. has no argument 'weight': it has x, w, scale"),
        (lambda: f(x, scale=2.0), "lin.. missing the argument 'w'"),
        (lambda: f(x, w, scal=2.0), "no argument 'scal': did you mean 'scale'"),
        (lambda: f(x, w, w=w), "the argument 'w' twice"),
        (lambda: f(x, w, "2"), "lin: scale: expected float or a 0-dim tensor, given str"),
        (lambda: f(x, w, [2.0]), "scale: expected float or a 0-dim tensor, given list"),
        (lambda: f(x, w, 1 + 2j), "scale: expected float or a 0-dim tensor, given complex"),
        (lambda: f("x", w), "lin: x: expected a tensor, given str"),
        (lambda: f(x.to_sparse(), w), "lin: x: expected a strided tensor, given torch.sparse_coo"),
        (lambda: f(torch.nested.nested_tensor([x, x]), w), "lin: x: .* given a nested tensor"),
        (lambda: f(x, w.to_sparse_csr()), "w: expected a strided tensor, given torch.sparse_csr"),
    ]
    for call, message in wrong:
        with pytest.raises(TypeError, match=message):
            call()


NUMBERS = (
    "op f<T: float>(x: T[N], n: i32, s: f32, c: bool) -> y: T[N] { y[i] = where(c, n * s, x[i]) }"
)


@pytest.mark.parametrize(
    "name, value, given",
    [
        ("n", torch.tensor(2.7), "a 0-dim float32 tensor"),
        ("n", np.float32(2.7), "np.float32"),
        ("n", Fraction(5, 2), "Fraction"),
        ("s", torch.tensor(1j), "a 0-dim complex64 tensor"),
        ("c", torch.tensor(0.5), "a 0-dim float32 tensor"),
    ],
)
def test_a_scalar_is_no_part_of_what_is_given(name, value, given):
    """The whole part of 2.7 was taken, in silence."""
    f = tritongen.compile_op(NUMBERS)
    numbers = {"n": 2, "s": 1.5, "c": True, name: value}
    for call in (f, torch.vmap(lambda x, **rest: f(x, **rest))):
        x = torch.ones(3) if call is f else torch.ones(2, 3)
        with pytest.raises(ValueError, match=f"f: {name}: .* given {given}"):
            call(x, **numbers)


def test_a_bool_of_numpy_is_told_from_pythons():
    with pytest.raises(TypeError, match="c: expected bool .* given numpy.bool: pass c.item"):
        tritongen.compile_op(NUMBERS)(torch.ones(3), 2, 1.5, np.bool_(True))


def test_an_expression_names_the_operand_whose_dtype_it_does_not_have():
    with pytest.raises(TypeError, match="x: expected one of f64, .* a tensor of torch.complex64"):
        tritongen.compile_expr("x * n")(torch.ones(3, dtype=torch.complex64), 2)


def test_an_expression_explains_a_call_by_name_and_a_wrong_one():
    f = tritongen.compile_expr("x * n")
    assert f.explain(torch.ones(3), n=2) == f.explain(torch.ones(3), 2)
    with pytest.raises(TypeError, match="takes x, n; given 1 by position"):
        f.explain(torch.ones(3))


def test_an_operand_may_be_called_self():
    f = tritongen.compile_op("op f<T: float>(self: T[N]) -> y: T[N] { y[n] = 2 * self[n] }")
    for call in (f, tritongen.compile_expr("2 * self")):
        assert call(self=torch.ones(1)) == 2
        assert call.explain(self=torch.ones(1))


def test_a_thread_may_be_done_deriving_while_another_asks_whether_to(monkeypatch):
    f = tritongen.compile_op("op f<T: float>(x: T[N]) -> y: T[N] { y[n] = x[n] * (x[n] + 7) }")
    monkeypatch.setattr(
        tritongen.api, "wants_gradient", lambda values: not setattr(f, "_derive", None)
    )
    assert f(torch.ones(3, requires_grad=True)).requires_grad


def test_a_region_of_autocast_is_for_no_tensor_without_a_device():
    f = tritongen.compile_op("op f<T: float>(x: T[N]) -> y: T[N] { y[n] = 2 * x[n] autocast low }")
    with torch.autocast("cpu", torch.bfloat16):
        assert f(torch.ones(3, device="meta")).dtype == torch.float32


@pytest.mark.parametrize(
    "text, code, help",
    [
        ("y[m] = x[m, k]", "E202", "sum[k](x[m, k])"),
        ("max(x, 0) * w[i]", "E202", "to keep it: `y[i] = max(x, 0) * w[i]`"),
        ("y[m, n] = x[m, q]", "E203", "n < ..."),
        ("t[m] = x[m, 0] y[m, n] = x[m, n]", "E115", "the last line is the result"),
        ("t[k] = x[2 * k] y[k] = t[k]", "E203", "t[k < K // 2]"),
    ],
)
def test_an_expression_that_no_call_makes_right_is_refused_at_once(text, code, help):
    with pytest.raises(tritongen.SpecError) as raised:
        tritongen.compile_expr(text)
    found = raised.value.diagnostics[0]
    assert found.code == code and help in found.advice


def test_an_op_is_copied_and_pickled_with_what_holds_it():
    for f in (tritongen.compile_expr("x * 3"), tritongen.load("specs/softmax.op").softmax):
        assert copy.deepcopy({"f": f})["f"] is f and pickle.loads(pickle.dumps(f)) is f


LINEAR = """op linear_{name}<T: float>(x: T[M, K], w: T[N, K]) -> y: T[M, N] {{
  y[m, n] = sum[k](x[m, k] * w[n, k]) {clause}
}}"""


@pytest.mark.parametrize(
    "clause, dtype", [("", "f32"), ("autocast f32", "f32"), ("autocast low", "bf16")]
)
def test_autocast_does_what_the_spec_says_and_by_default_nothing(clause, dtype):
    op = tritongen.compile_op(LINEAR.format(name=clause[9:] or "none", clause=clause))
    x, w = torch.randn(20, 50), torch.randn(30, 50)
    given = x.bfloat16() if clause == "autocast f32" else x
    want = torch.nn.functional.linear(given.float(), w)
    for f in (op, torch.compile(op, backend="eager", fullgraph=True)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = f(given, w)
        assert got.dtype == {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        error = (got - want).abs().max() / want.abs().max()
        assert error < (1e-2 if dtype == "bf16" else 1e-6)
    assert op(x, w).dtype == torch.float32


def test_neither_loading_nor_calling_imports_the_tracer():
    """torch._dynamo takes a second or more."""
    script = (
        "import sys, torch, tritongen\n"
        "softmax = tritongen.load('specs/softmax.op').softmax\n"
        "x = torch.randn(2, 3, requires_grad=True)\n"
        "softmax(tritongen.compile_expr('x * 2')(x)).pow(2).sum().backward()\n"
        "tritongen.nn.Linear(2, 3)\n"
        "print(x.grad is not None, 'torch._dynamo' in sys.modules)\n"
    )
    command, root = [sys.executable, "-c", script], Path(__file__).parents[2]
    assert subprocess.run(command, cwd=root, capture_output=True).stdout == b"True False\n"


def test_an_op_shows_itself():
    """`repr` its signature, `help` its spec, `dir` what is documented; of a CPU call `explain` says that no kernel runs."""
    op = tritongen.compile_op(
        "op twice<T: float>(x: T[...], a: f32 = 2.0) -> y: T[...] { y = a * x }"
    )
    assert repr(op) == "<op twice(x: Tensor, a: float | Tensor = 2.0) -> Tensor>"
    assert "op twice<T: float>" in op.__doc__
    assert [n for n in dir(op) if not n.startswith("_")] == [
        "explain",
        "reference",
        "source",
        "spec",
    ]
    assert "the body of its spec" in op.explain(torch.ones(3))
    assert "<details>" in op._repr_html_()


def test_a_notebook_compiles_cells(capsys):
    pytest.importorskip("IPython", reason="no IPython: `pip install 'tritongen[notebook]'`")
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "tritongen")
    op = shell.run_cell_magic(
        "op", "", "op one<T: float>(x: T[N]) -> y: T[N] { y[n] = x[n] + 1 }\n"
    )
    assert shell.user_ns["one"] is op and op(torch.zeros(2)).tolist() == [1, 1]
    assert (
        shell.run_cell_magic("op", "", "op two(x: f32[N]) -> y: f32[N] { y[n] = z[n] }\n") is None
    )
    assert "error[E113]" in capsys.readouterr().out
