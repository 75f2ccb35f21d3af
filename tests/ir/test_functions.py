"""The function table: each row's Triton text, torch text and derivative mean the same function.

Every text is cross-compiled for sm_90 without a GPU, in one kernel per kind and dtype, and the same
kernels run in Triton's interpreter (in a process of its own) against the torch texts in f64.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from evaluate import apply_torch, evaluate

from tritongen.emit import library
from tritongen.ir import functions as table
from tritongen.ir.functions import FUNCTIONS, Function, Text
from tritongen.runtime.load import load_text
from tritongen.syntax.parse import parse_expression

COUNT = 512
KINDS = {"float": "float32", "int": "int32", "bool": "bool"}
ACCEPTS = {
    "float": ("float",),
    "number": ("float", "int"),
    "any": ("float", "int", "bool"),
    "int": ("int", "bool"),
    "bool": ("bool",),
}


def rows(kind: str) -> list[tuple[str, Function, Text, Text]]:
    """(label, row, Triton text, torch text) of all that the table says of a kind."""
    found = []
    for row in FUNCTIONS.values():
        if kind not in ACCEPTS[row.args] or (kind == "bool" and row.name.startswith("shift")):
            continue
        if row.name == "pow_int":
            exponents = [n for n in table.SMALL_POWERS if n > 0 or kind == "float"]
            texts = [(f"pow_{n}", table.power_text(n), Text(f"{{a}} ** {n}")) for n in exponents]
        else:
            texts = [(row.name, table.text_for(row, kind), row.torch)]
        if row.half:
            half = table.with_flag(row.triton, "HALF=True")
            texts.append((f"{row.name} HALF", half, row.torch))
        found += [(label, row, triton, reference) for label, triton, reference in texts]
    return found


def filled(row: Function, text: Text) -> str:
    first = ("a > b", table.COMPARE) if row.name == "where" else ("a", table.ATOM)
    return table.fill(text, [first, ("b", table.ATOM), ("c", table.ATOM)][: row.arity])[0]


def kernel_source(kind: str) -> str:
    """One kernel that stores the value of every row of a kind, one row of the result each."""
    lines = [
        f"    tl.store(out + {n * COUNT} + i, ({filled(row, triton)}).to(out.dtype.element_ty))"
        for n, (_, row, triton, _) in enumerate(rows(kind))
    ]
    return "\n".join(
        [
            "import triton",
            "import triton.language as tl",
            "from triton.language.extra import libdevice",
            "",
            "from tritongen import lib",
            "",
            "@triton.jit",
            "def kernel(pa, pb, pc, out):",
            f"    i = tl.arange(0, {COUNT})",
            *(f"    {name} = tl.load(p{name} + i)" for name in "abc"),
            *lines,
            "",
        ]
    )


def samples(kind: str) -> list[torch.Tensor]:
    """Three operands: every pair of special values first, then random ones."""
    random = torch.Generator().manual_seed(0)
    if kind == "bool":
        return [torch.rand(COUNT, generator=random) < 0.5 for _ in "abc"]
    if kind == "int":
        special = torch.tensor([-8, -7, -1, 1, 2, 3, 7, 31, 32, 40])
        fill = torch.randint(1, 30, (3, COUNT), generator=random)
    else:
        inf, nan = float("inf"), float("nan")
        special = torch.tensor([0.0, -0.0, 0.5, -2.5, 1, 3, -7, 30, -30, 95, -1e6, inf, -inf, nan])
        fill = torch.randn(3, COUNT, generator=random) * torch.logspace(-3, 1, COUNT)
    pairs = torch.cartesian_prod(special, special).T
    operands = fill.clone()
    operands[:2, : pairs.shape[1]] = pairs
    dtype = torch.float32 if kind == "float" else torch.int32
    return [row.to(dtype).contiguous() for row in operands]


def expected(kind: str) -> list[torch.Tensor]:
    names = dict(zip("abc", samples(kind), strict=True))
    if kind == "float":
        names = {name: value.double() for name, value in names.items()}
    results = []
    for _, row, _, reference in rows(kind):
        if row.name == "pow" and kind == "int":  # torch refuses negative exponents
            results.append(names["a"] ** names["b"].clamp(min=0))
        else:
            results.append(eval(filled(row, reference), {"torch": torch, **names}))
    return results


# ---- compiled ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind, pointer", [("float", "fp32"), ("float", "fp64"), ("int", "i32"), ("bool", "i1")]
)
def test_every_text_compiles_for_sm_90(kind, pointer):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module = load_text(f"functions_{kind}", kernel_source(kind))
    signature = {name: f"*{pointer}" for name in ("pa", "pb", "pc", "out")}
    source = ASTSource(fn=module.kernel, signature=signature, constexprs={})
    assert "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm


# ---- interpreted --------------------------------------------------------------------------------------
def interpret(folder: str) -> None:
    from tritongen.runtime.interpret import install_libdevice

    install_libdevice()
    for kind in KINDS:
        operands = samples(kind)
        out = torch.zeros(len(rows(kind)), COUNT, dtype=operands[0].dtype)
        load_text(f"functions_{kind}", kernel_source(kind)).kernel[(1,)](*operands, out)
        torch.save(out, f"{folder}/{kind}.pt")


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interpreted")
    command = [sys.executable, __file__, str(folder)]
    subprocess.run(
        command,
        check=True,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[2],
    )
    return {kind: torch.load(folder / f"{kind}.pt") for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_triton_text_equals_torch_text(interpreted, kind):
    a, b, _ = samples(kind)
    wrong = []
    for (label, row, _, _), got, want in zip(
        rows(kind), interpreted[kind], expected(kind), strict=True
    ):
        got = got.to(want.dtype)
        if kind == "float" and not row.exact and row.result == "same":
            ulp = row.half if label.endswith("HALF") else max(row.ulp, 1)
            want32, bound = want.float().double(), ulp * 2.0**-23
            near = (got - want).abs() <= bound * want.abs() + 2.0**-126
            same = near | (got == want32) | (got.isnan() & want.isnan())
        else:
            same = (got == want.to(got.dtype)) | (got.isnan() & want.isnan())
        if label == "pow" and kind == "int":
            same |= b < 0
        if not same.all():
            at = (~same).nonzero()[0, 0]
            wrong.append(
                f"{label}({a[at]}, {b[at]}) = {got[at]}, expected {want[at]}: {(~same).sum()} places"
            )
    assert not wrong, "\n".join(wrong)


def test_zeros_keep_the_sign_that_torch_gives_them(interpreted):
    a, _, _ = samples("float")
    wrong = [
        label
        for (label, row, _, _), got, want in zip(
            rows("float"), interpreted["float"], expected("float"), strict=True
        )
        if row in table.FLOAT_ROWS and row.arity == 1
        if ((a == 0) & (want == 0) & (got.signbit() != want.signbit())).any()
    ]
    assert not wrong


# ---- derivatives ----------------------------------------------------------------------------------------
DOMAINS = {
    "acosh": (1.1, 4),
    "atanh": (-0.9, 0.9),
    "erfinv": (-0.9, 0.9),
    "asin": (-0.9, 0.9),
    "acos": (-0.9, 0.9),
}
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "xlogy")


def derivative_points(name: str, arity: int) -> list[torch.Tensor]:
    low, high = DOMAINS.get(name, (0.1, 4) if name in POSITIVE else (-4, 4))
    random = torch.Generator().manual_seed(1)
    points = low + (high - low) * torch.rand(arity, 40, generator=random, dtype=torch.float64)
    if arity == 2 and name in ("maximum", "minimum"):
        points[1, ::4] = points[0, ::4]  # ties
    return [row.clone().requires_grad_() for row in points]


DIFFERENTIABLE = [
    row
    for row in FUNCTIONS.values()
    if row.derivative is not None and row.name not in ("where", "floordiv")
]


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=lambda row: row.name)
def test_derivative_equals_torch(row):
    exponents = table.SMALL_POWERS if row.name == "pow_int" else (None,)
    for exponent in exponents:
        points = derivative_points(row.name, 1 if exponent else row.arity)
        names = dict(zip("abc", points, strict=False))
        partials = (table.power_derivative(exponent),) if exponent else row.derivative
        y = apply_torch(row, {"b": exponent, **names})
        want = torch.autograd.grad(y.sum(), points)
        names = {name: value.detach() for name, value in (names | {"y": y}).items()}
        for partial, expected_partial in zip(partials, want, strict=True):
            got = evaluate(parse_expression(partial), names).expand_as(y)
            torch.testing.assert_close(got, expected_partial, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["sigmoid", "tanh", "softplus", "logsigmoid", "erf", "relu", "abs"]
)
def test_derivative_is_finite_at_both_ends(name):
    row = FUNCTIONS[name]
    a = torch.tensor(
        [-1e30, -1e4, -100.0, 0.0, 100.0, 1e4, 1e30], dtype=torch.float64, requires_grad=True
    )
    y = apply_torch(row, {"a": a})
    (want,) = torch.autograd.grad(y.sum(), a)
    got = evaluate(parse_expression(row.derivative[0]), {"a": a.detach(), "y": y.detach()})
    torch.testing.assert_close(got.expand_as(want), want)


# ---- printing -----------------------------------------------------------------------------------------------
def test_fill_writes_only_parentheses_that_matter():
    add, div, neg = (FUNCTIONS[name].triton for name in ("add", "div", "neg"))
    total = table.fill(add, [("x", table.ATOM), ("1", table.ATOM)])
    assert table.fill(div, [total, ("y", table.ATOM)]) == ("(x + 1) / y", table.TERM)
    assert table.fill(add, [total, total])[0] == "x + 1 + (x + 1)"
    assert table.fill(neg, [table.fill(neg, [("x", table.ATOM)])])[0] == "--x"
    less = table.fill(FUNCTIONS["lt"].triton, [total, ("y", table.ATOM)])
    assert table.fill(FUNCTIONS["and"].triton, [less, less])[0] == "(x + 1 < y) & (x + 1 < y)"
    assert table.fill(FUNCTIONS["maximum"].triton, [total, ("y", table.ATOM)])[0].startswith(
        "tl.maximum(x + 1, y, prop"
    )


def test_every_libdevice_function_has_a_stand_in_for_the_interpreter():
    from tritongen.runtime import interpret as stand_ins

    texts = [
        t for row in FUNCTIONS.values() for t in (row.triton, row.triton_int, row.triton_bool) if t
    ]
    sources = [t.template for t in texts] + [f.text for f in library.functions().values()]
    named = {name for source in sources for name in re.findall(r"libdevice\.(\w+)", source)}
    assert named and named <= set(stand_ins._TORCH) | set(stand_ins._PREDICATES)


if __name__ == "__main__":
    interpret(sys.argv[1])
