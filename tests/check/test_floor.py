"""`//` and `%` floor everywhere, whatever the signs: kernels, the IR's oracle and Python agree."""

from __future__ import annotations

import re
from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.errors import SpecError
from tritongen.ir.interp import run
from tritongen.ir.print import print_op
from tritongen.runtime.load import load_text
from tritongen.syntax.parse import parse

# Each is the smallest that was wrong in some kernel, its host and its oracle being right.
OPS = """
op crop<T: float>(x: T[A], z: T[B]) -> y: T[B] {
  y[i] = (x[i + (A - B) // 2] else 0) * z[i]
}
op scaled<T: float>(x: T[A]) -> y: T[A] {
  y[i] = x[i] * (-A // 2) + -A % 3
}
op counted<T: float>(x: T[A, N]) -> y: T[A] {
  y[i] = sum[n < -(-N // 4)](x[i, n])
}
op backwards<T: float>(x: T[A], z: T[B]) -> y: T[B] {
  y[i] = (x[i // -2 + 4] else 0) * z[i]
}
op by_gap<T: float>(x: T[A], z: T[B]) -> y: T[B] with A != B {
  y[i] = (x[i // (A - B) + 2] else 0) * z[i] + (x[(2 - i) % (A - B) + B // 2] else 0)
}
op whole_by_gap<T: float>(x: T[A], z: T[B]) -> y: T[B] with A != B {
  y[i] = (x[(4 - i) / (A - B)] else 0) * z[i] + (x[i // -A + 1] else 0)
}
op counted_in_a_loop<T: float>(x: T[A], const pad: int = 3) -> y: T[A] {
  y[i] = max[k < 3](x[i + (k - pad) // -2 + (1 - pad) // 2] else 0)
}
"""


def ops_of(text: str) -> dict[str, str]:
    return {part.split("<")[0]: f"op {part}" for part in text.strip()[3:].split("\nop ")}


def op_of(text: str):
    return check(parse(text))[0].typings[0]


def proven(interpreter, text: str, examples: int) -> None:
    job = {"text": text, "name": "floor", "device": "cpu", "seed": 1, "seconds": 20}
    report = interpreter.ask(job | {"examples": examples}, timeout=120)
    assert report["failures"] == []
    assert report["examples"] > 0


@pytest.mark.parametrize("name", ops_of(OPS))
def test_kernels_floor(interpreter, name):
    proven(interpreter, ops_of(OPS)[name], examples=4)


@pytest.mark.parametrize("name", ["crop", "backwards", "by_gap"])
def test_kernels_of_gradients_floor(interpreter, name):
    """A derived gradient has terms such as `a - (A - B) // 2`: wrong for odd sizes, or memory of nobody's."""
    proven(interpreter, print_op(gradient(op_of(ops_of(OPS)[name]))), examples=3)


def test_the_last_block_of_a_gradient_is_there(interpreter):
    """It asked `0 > s + -K // 4`, of which a kernel rounded the quotient up: 0 for the last scale."""
    text = """op blocks<T: float>(x: T[M, K], s: T[M, S]) -> y: T[M] with S == (K + 3) // 4 {
      y[m] = sum[k](x[m, k] * s[m, k // 4])
    }"""
    proven(interpreter, print_op(gradient(op_of(text))), examples=2)


@pytest.mark.parametrize("helper", ["floor_div", "floor_mod"])
def test_each_lane_has_a_sign_of_its_own(helper):
    """Of -16 to -1 and 16, Triton asked one lane alone whether its rest is below 0: a load before the tensor."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module = load_text(f"lanes_{helper}", LANES.format(helper=helper))
    signature, whole = {"y_ptr": "*i32", "a": "i32", "b": "i32"}, [["tt.divisibility", 16]]
    source = ASTSource(module.kernel, signature, attrs={(k,): whole for k in range(3)})
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    # Either is how LLVM asks for a sign; a thread has four lanes.
    assert len(re.findall(r"setp\.lt|shr\.s32", built.asm["ptx"])) >= 4


LANES = """
import triton
import triton.language as tl
from tritongen import lib
@triton.jit
def kernel(y_ptr, a, b):
    k = tl.arange(0, 128)
    tl.store(y_ptr + k, lib.{helper}(k - a, b))
"""


# ---- what Python says ---------------------------------------------------------------------------
AT = {
    "backwards": lambda A, B, i, x, z: x(i // -2 + 4) * z[i],
    "by_gap": lambda A, B, i, x, z: x(i // (A - B) + 2) * z[i] + x((2 - i) % (A - B) + B // 2),
    "whole_by_gap": lambda A, B, i, x, z: x((4 - i) / (A - B)) * z[i] + x(i // -A + 1),
    "crop": lambda A, B, i, x, z: x(i + (A - B) // 2) * z[i],
}


def padded(x: torch.Tensor, at: float) -> torch.Tensor:
    inside = at == int(at) and 0 <= at < len(x)
    return x[int(at)] if inside else x.new_zeros(())


@pytest.mark.parametrize("sizes", [(5, 1), (4, 7), (7, 4)])
@pytest.mark.parametrize("name", AT)
def test_gradients_are_those_of_autograd(name, sizes):
    """By divisors below 0 too, of which a remainder lies on the other side."""
    op, (a, b) = op_of(ops_of(OPS)[name]), sizes
    x, z, dy = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (a, b, b))
    y = torch.stack([AT[name](a, b, i, partial(padded, x), z) for i in range(b)])
    wanted = torch.autograd.grad(y, [x, z], dy, allow_unused=True, materialize_grads=True)
    back = gradient(op)
    known = {"x": x.detach(), "z": z.detach(), "dy": dy.detach(), "y": y.detach()}
    torch.testing.assert_close(run(op, {k: known[k] for k in "xz"})["y"], known["y"])
    found = run(back, {p.name: known[p.name] for p in back.params})
    torch.testing.assert_close([found["dx"], found["dz"]], [*wanted])


def sums(names: list[str]):
    """Texts of sizes, or of coordinates, that Python reads as the language does."""
    leaf = st.sampled_from(names) | st.integers(-6, 6).map(lambda n: f"({n})")
    divisor = st.sampled_from(["2", "3", "(-2)", "(-3)", "(B + 1)", "(-A)"])

    def more(inner):
        joined = st.builds("({} {} {})".format, inner, st.sampled_from("+-"), inner)
        divided = st.builds("({} {} {})".format, inner, st.sampled_from(["//", "%"]), divisor)
        return joined | divided | inner.map("(-{})".format)

    return st.recursive(leaf, more, max_leaves=5)


def spec_of(places: list[str], sizes: list[str]) -> str:
    lines = [f"y{k}[i] = x[{p}] else -9" for k, p in enumerate(places)]
    lines += [f"s{k}[i] = x[i] * {s} + {s}" for k, s in enumerate(sizes)]
    lines += [f"c{k}[i] = sum[k < {s}](x[i])" for k, s in enumerate(sizes)]
    outputs = ", ".join(f"{line.split('[')[0]}: i64[A]" for line in lines)
    body = "\n  ".join([*lines, "w[i] = z[i]"])
    return f"op f(x: i64[A], z: i64[B]) -> ({outputs}, w: i64[B]) {{\n  {body}\n}}"


def is_spec(text: str) -> bool:
    """Not where a coordinate is nowhere inside, or two terms cancel an index."""
    try:
        return bool(check(parse(text)))
    except SpecError:
        return False


def drawn(places: list[str], sizes: list[str]) -> tuple[list[str], list[str]]:
    places = [p for p in places if "i" in p and is_spec(spec_of([p], []))]
    sizes = [s for s in sizes if is_spec(spec_of([], [s]))]
    assume(places and sizes)
    return places, sizes


texts = {"places": st.lists(sums(["i", "i", "A", "B"]), min_size=2, max_size=4)}
texts["sizes"] = st.lists(sums(["A", "B"]), min_size=1, max_size=2)


@settings(max_examples=25, deadline=None)
@given(**texts, a=st.integers(1, 9), b=st.integers(1, 9))
def test_the_oracle_divides_as_python_does(places, sizes, a, b):
    places, sizes = drawn(places, sizes)
    x, z = torch.arange(a) + 1, torch.arange(b)
    found = run(op_of(spec_of(places, sizes)), {"x": x, "z": z})

    def at(text: str, i: int) -> int:
        return eval(text, {"A": a, "B": b, "i": i})

    for k, place in enumerate(places):
        wanted = [int(x[p]) if 0 <= (p := at(place, i)) < a else -9 for i in range(a)]
        assert found[f"y{k}"].tolist() == wanted, place
    for k, size in enumerate(sizes):
        s = at(size, 0)
        assert found[f"s{k}"].tolist() == [(i + 1) * s + s for i in range(a)], size
        assert found[f"c{k}"].tolist() == [(i + 1) * max(s, 0) for i in range(a)], size


@settings(max_examples=4, deadline=None)
@given(**texts)
def test_kernels_divide_as_the_oracle_does(interpreter, places, sizes):
    places, sizes = drawn(places, sizes)
    proven(interpreter, spec_of(places, sizes), examples=2)
