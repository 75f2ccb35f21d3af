"""Whatever a spec calls its things, generated code keeps them apart from its own, and errors call them so."""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path
from random import Random

import pytest

from tritongen import pipeline
from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.emit import walked
from tritongen.emit.launch import LAUNCH_WORDS
from tritongen.emit.scopes import BadNames, check_names
from tritongen.errors import Source, Span, SpecError
from tritongen.ir.print import print_op
from tritongen.runtime.load import load_text
from tritongen.syntax.names import check_name, check_size
from tritongen.syntax.parse import parse
from tritongen.trace import trace

GENERATED = sorted((Path(__file__).parents[2] / "generated").glob("*.py"))
# Each with its names, sizes in upper case, where a `%` stands before them.
TEMPLATES = {
    "rows": """op %f<%T: float>(%x: %T[%N, %D], %w: %T[%D], %eps: f32 = 0.5) -> (%y: %T[%N, %D], %s: %T[%N]) {
  %t[%i] = max[%j](%x[%i, %j])
  %y[%i, %j] = exp(%x[%i, %j] - %t[%i]) * %w[%j] / sum[%k](exp(%x[%i, %k] - %t[%i]) + %eps)
  %s[%i] = sum[%j](%y[%i, %j])
}""",
    "product": """op %f<%T: f16 | f32>(%x: %T[%A, %B], %w: %T[%B, %C], %b: %T[%C], const %c: int = 2) -> %y: %T[%A, %C] {
  %s[%i, %j] = sum[%k](%x[%i, %k] * %w[%k, %j])
  %y[%i, %j] = max(%s[%i, %j] + %c * %b[%j], 0)
}""",
    "batch": """op %f<%T: float, %U: float>(%x: %T[..., %D], %z: %U[..., %D], %flag: bool = true) -> %y: %T[..., %D] {
  %m[...] = mean[%k](%x[..., %k])
  %y[..., %d] = where(%flag, %x[..., %d] - %m[...], %z[..., %d])
}""",
    "window": """op %f<%T: float>(%x: %T[%N, %H], const %win: int = 2) -> %y: %T[%N, %P]
    with %P = %H - %win + 1, %H >= %win {
  %y[%n, %p] = max[%r < %win](%x[%n, %p + %r])
}""",
    "scan": """op %f<%T: float | int>(%x: %T[%N, %D], %at: i64[%N]) -> (%y: %T[%N, %D], %g: %T[%N]) {
  %y[%n, %d] = sum[%k <= %d](%x[%n, %k])
  %g[%n] = %x[%n, %at[%n]] else 0
}""",
    "pointwise": """op %f<%T: float>(%x: %T[...], %y: %T[...], %s: f32) -> (%z: %T[...], %u: %T[...]) {
  %t = %x * %s
  %z = %t + %y
  %u = %t - tanh(%y)
  ref "%t = %x * %s; %u = torch.tanh(%y); (%t + %y, %t - %u)"
}""",
}


@cache
def identifiers() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those of the generated modules that a spec may take: lower case, and upper case."""
    found: set[str] = set()
    for path in GENERATED:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                    found.add(name)
                case ast.FunctionDef(name=name) | ast.alias(asname=str(name)):
                    found.add(name)
                case ast.keyword(arg=str(name)):
                    found.add(name)
    span = Span(Source("", "x"), 0, 1)
    lower = [n for n in found if n[0].islower() and not check_name(n, span, "operand")]
    upper = [n for n in found if n[0].isupper() and not check_size(n, span)]
    return tuple(sorted(lower)), tuple(sorted(n for n in upper if n != n.lower()))


def filled(template: str, random: Random) -> str:
    """The template with identifiers of generated modules for its names."""
    text = TEMPLATES[template]
    wanted = sorted(set(re.findall(r"%(\w+)", text)))
    lower, upper = (random.sample(names, len(wanted)) for names in identifiers())
    names = {w: (u if w[0].isupper() else v) for w, v, u in zip(wanted, lower, upper, strict=True)}
    if hasattr(builtins, names["f"]):  # an op called as what its module calls is refused
        names["f"] += "_op"
    if random.random() < 0.5:  # what is made of one name may be another
        names |= {"y": f"{names['x']}_ptr"}
    return re.sub(r"%(\w+)", lambda word: names[word[1]], text)


def shapes_of(text: str) -> list[Counter[str]]:
    """What the kernels of a spec are but for their names, and the order of terms."""
    tree = ast.parse(pipeline.build(text).raw)
    kernels = (
        f for f in tree.body if "triton.jit" in map(ast.unparse, getattr(f, "decorator_list", ()))
    )
    return [Counter(type(n).__name__ for s in f.body for n in ast.walk(s)) for f in kernels]


@pytest.mark.parametrize("template", TEMPLATES)
def test_names_of_generated_code_are_names_like_others(template):
    random = Random(template)
    plain = shapes_of(TEMPLATES[template].replace("%", ""))
    for _ in range(2):
        text = filled(template, random)
        assert shapes_of(text) == plain, text


def proved(worker, text: str) -> list:
    job = {"text": text, "name": "n.op", "device": "cpu", "examples": 1, "seed": 0, "seconds": 9.0}
    return worker.ask(job, timeout=120)["failures"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_ops_of_such_names_run(interpreter, template):
    text = filled(template, Random(f"{template} run"))
    assert not proved(interpreter, text), text


def test_an_operand_called_as_the_ops_launch_steps_aside():
    text = "op f<T: float>(launch_f: T[N]) -> y: T[N] { y[n] = relu(launch_f[n]) }"
    assert "def f(launch_f: torch.Tensor)" in pipeline.build(text).raw


def test_sizes_called_as_constexprs_step_aside(interpreter):
    """Each stands in some template; the text was no Python, and the build went well."""
    sizes = "PARTS_POW2 LAG PER_THREAD MERGE STAGES RUN".split()
    for own, other in zip(sizes[::2], sizes[1::2], strict=True):
        op = f"op f<T: float>(x: T[{own}, {other}]) -> (y: T[{own}, {other}], z: T[{own}, {other}])"
        body = """{
  y[n, d] = x[n, d] / sum[k](x[n, k])
  z[n, d] = sum[k <= d](x[n, k])
}"""
        text = pipeline.build(f"{op} {body}").raw
        assert f'("x: T[{own}, {other}]", x)' in text  # as the spec has it
        assert f"{own}_: tl.constexpr" not in text
    assert not proved(interpreter, f"{op} {body}")


ROWS = "op {}<T: float>(x: T[N, D]) -> y: T[N, D] {{ y[n, d] = x[n, d] - max[k](x[n, k]) }}"


@pytest.mark.parametrize("name", ["a_two_pass", "a_rows", "launch_a", "allocate_a", "a_reference"])
def test_an_op_may_be_called_as_a_function_of_another(name):
    for ops in (["a", name], [name, "a"]):
        built = pipeline.build("\n".join(map(ROWS.format, ops)))
        tree = ast.parse(built.raw)
        functions = [f.name for f in tree.body if isinstance(f, ast.FunctionDef)]
        functions += walked.alike(tree)
        assert len(functions) == len(set(functions)) and set(ops) < set(functions)
        steps = [s.name for plans in built.plans.values() for p in plans for s in p.steps]
        assert {f"choose_{s}" for s in steps} < set(functions)


def test_a_relay_computes_what_its_first_half_reads():
    """The gradient of square(rms_norm(x, w)) * log_softmax(z), of one row of x."""
    spec = """op f<T: float>(x: T[D], w: T[D], z: T[N, D]) -> y: T[N, D] {
  y = square(rms_norm(x, w)) * log_softmax(z)
}"""
    ((op,),) = (c.typings for c in check(parse(spec, "f.op")))
    text = pipeline.build(print_op(gradient(op))).raw
    assert "_two_pass(" in text  # and every name of it exists, or it would not have been built


@pytest.mark.parametrize(
    "text, problem",
    [
        ("@triton.jit\ndef k(x, B: tl.constexpr):\n    B = x\n", "the constexpr `B` is assigned"),
        ("@triton.jit\ndef k(x, x):\n    pass\n", "`k` has two parameters `x`"),
        ("def k(x):\n    return x\n\n\ndef k(y):\n    return y\n", "`k` is defined twice"),
        ("def k(x):\n    return y + x\n", "line 2, in `k`: `y` is read where it does not exist"),
        ("def k(x):\n    y = y + x\n", "`y` is read"),
        ("@triton.jit\ndef k(x):\n    if x:\n        y = 1\n    x = y\n", "`y` is read"),
        (
            "@triton.jit\ndef k(x):\n    for i in range(x):\n        y = 1\n    x = y\n",
            "`y` is read",
        ),
        ("def k(x):\n    return [z for y in x]\n", "`z` is read"),
        (
            "def k(x):\n    return x\n\n\ndef launch(k):\n    return k(1)\n",
            "`k` is called, which is no function here",
        ),
        ("def k(dict):\n    return dict(x=dict)\n", "`dict` is called, which is no function here"),
        (
            "@triton.jit\ndef k(x):\n    p = x\n    p = tl.where(x, p, 0.0)\n    if x:\n        p = tl.where(x, p, 0.0)\n",
            "`p` is masked again",
        ),
        (
            "@triton.jit\ndef k(x):\n    p = x\n    for i in range(x):\n        p = tl.where(i > x, p, 0.0)\n",
            "`p` is masked again, or is of another turn",
        ),
    ],
)
def test_names_that_slip_are_found(text, problem):
    with pytest.raises(BadNames, match=re.escape(problem)):
        check_names(text, {"triton", "tl"})


def test_names_that_exist_are_let_through():
    check_names(
        "def k(x):\n    if x:\n        y = 1\n    else:\n        y = 2\n"
        "    return [z + y for z in x if all(z for a in x)]\n",
        set(),
    )


def test_an_op_called_as_what_its_module_imports_is_refused():
    with pytest.raises(SpecError, match="E102.*`triton` is reserved") as refused:
        pipeline.build(ROWS.format("triton"))
    assert "rename it: `triton_op`" in str(refused.value)


def test_what_triton_says_in_a_launch_is_no_parameter(interpreter):
    import inspect

    from triton.backends.amd.compiler import HIPOptions
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.runtime.jit import JITFunction, create_function_from_signature

    said = {f.name for options in (CUDAOptions, HIPOptions) for f in fields(options)}
    for method in (JITFunction.run, JITFunction.warmup):
        parameters = inspect.signature(method).parameters.values()
        said |= {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    kernel = JITFunction(_kernel)
    binder = create_function_from_signature(kernel.signature, kernel.params, None).__code__
    said |= {*binder.co_names, *binder.co_varnames} - {"x"}
    said |= {"device", "device_type", "stream"}  # which Triton 3.6 says are deprecated
    assert LAUNCH_WORDS == said
    text = "op f<T: float>(x: T[N], const self: int = 2, const params: int = 3) -> y: T[N] {"
    assert not proved(interpreter, text + " y = x * self + params }")


def _kernel(x):
    pass


def test_who_chooses_is_who_a_launch_asks():
    import torch

    names = ["choose_a", "launch_a", "choose_launch_a"]
    text = "\n".join(map(ROWS.format, names))
    module = load_text("n", pipeline.build(text).raw)
    for name in names:
        calls = trace(module, name, {"x": torch.empty(4, 8, device="meta")})
        assert len(calls.launches) == len(calls.choices) == 1


def test_what_launches_are_given_alike_is_no_operand():
    """Of a gradient whose lines are shorter than those in which names were looked for."""
    import torch

    text = "op f(arguments: f32[M, K], constants: f32[K, N]) -> y: f32[M, N] { y[m, n] = sum[k](arguments[m, k] * constants[k, n]) }"
    module = load_text("f", pipeline.build(text, gradients=True).raw)
    given = {name: torch.empty(64, 64, device="meta") for name in ("arguments", "constants", "dy")}
    wanted = {"need_darguments": True, "need_dconstants": True}
    assert len(trace(module, "f_backward", given | wanted).choices) == 2


def test_a_product_of_sizes_is_called_as_no_config():
    """The terms of the windows' gradients are BLOCK * N."""
    spec = """op f<T: float>(x: T[B, C, H, W], w: T[F, C, BLOCK, N]) -> y: T[B, F, P, Q]
    with P = H - BLOCK + 1, Q = W - N + 1 {
  y[b, f, p, q] = sum[c, r, s](x[b, c, p + r, q + s] * w[f, c, r, s])
}"""
    assert "BLOCK_N" in pipeline.build(spec, gradients=True).raw
