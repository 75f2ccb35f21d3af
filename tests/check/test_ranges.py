"""Ranges of indices: which reads say how far an index goes, and what is asked at the call."""

import pytest
import torch

from tritongen.check import check
from tritongen.errors import SpecError
from tritongen.ir.algebra import text as shown
from tritongen.ir.interp import run
from tritongen.ir.nodes import Op, Reduce, Require, walk
from tritongen.syntax.parse import parse

HEAD = "op f<T: float>(x: T[N, H], w: T[M], v: T[A], u: T[B], i: i64[A], n: i64[B]) -> y: T"


def typed(text: str) -> Op:
    (checked,) = check(parse(text, "t.op"))
    return checked.typings[0]


def of(line: str) -> tuple[str, list[str]]:
    """The range of `k` in a line, and what the call is asked."""
    used = "sum[a](v[a]) + sum[b](u[b]) + sum[c](w[c]) + sum[d, e](x[d, e]) + sum[g](i[g]) + sum[h](n[h])"
    left = line.partition(" = ")[0].partition("[")[2]
    own = "sum[l, m](t[l, m])" if "," in left else "sum[l](t[l])" if left else "t"
    op = typed(f"{HEAD} {{ {line}\n y = {used} + {own} }}")
    nest = next(nest for nest in op.nests if nest.name == "t")
    boxes = [nest.box, *(e.binders for e in walk(nest.body) if isinstance(e, Reduce))]
    (found,) = {shown(b.hi) for box in boxes for b in box if b.index == "k"}
    return found, [f.text.split(" (")[0] for f in op.facts if isinstance(f, Require)]


@pytest.mark.parametrize(
    "line, size, asked",
    [
        # what is written comes first, for binders and left sides alike
        ("t[k < 2] = v[k] + (u[k] else 0)", "2", ["A >= 2"]),
        ("t = sum[k < 2](v[k])", "2", ["A >= 2"]),
        # then reads without `else`; those with one add no check
        ("t[k] = v[k] + (u[k] else 0)", "A", []),
        ("t[k] = (u[k] else 0) + v[k]", "A", []),
        ("t = sum[k](v[k] * (u[k] else 0))", "A", []),
        ("t[k] = v[k] + u[k]", "A", ["A == B"]),
        # then reads with `else`, of one dim
        ("t[k] = v[k] else 0", "A", []),
        ("t[k] = (v[k] else 0) * (v[k + 1] else 0) + (u[2 * k] else 0)", "A", []),
        ("t = sum[k](v[k] else 0)", "A", []),
        ("t = max[k >= 1](v[k] else 0)", "A", []),
        # every read of the line: in reducers, bounds, conditions and gathers
        ("t[k] = sum[j](x[k, j] * (v[k] else 0))", "N", []),
        ("t[k] = sum[j < n[k]](v[j])", "B", []),
        ("t[k] = where(i[k] > 0, u[k] else 0, 1)", "A", []),
        ("t[k] = u[i[k]] else 0", "A", []),
        ("t = sum[k, j < n[k]](v[j] * (v[k] else 0))", "B", []),
        ("t = sum[k](where(sum[j](x[k, j]) > 0, v[k] else 0, 0))", "N", []),
        # a bound that is read ends at the dims
        ("t[b] = sum[k < n[b]](v[k] * (u[k] else 0))", "A", []),
        ("t[b] = sum[k < n[b]](v[k] else 0)", "A", []),
        ("t[b] = sum[k >= n[b]](v[k] else 0)", "A", []),
    ],
)
def test_range(line, size, asked):
    assert of(line) == (size, asked)


@pytest.mark.parametrize(
    "line, head",
    [
        ("t[k] = (v[k] else 0) * (u[k] else 0)", "t[k < A]"),
        ("t = sum[k]((v[k] else 0) * (u[k] else 0))", "sum[k < A]"),
        ("t[k] = v[k + 1] else 0", "t[k < A]"),
        ("t[k, l] = x[l, 2 * k] * x[l + 1, k // 2] else 0", "t[k < H // 2, l]"),
        ("t[k, l] = x[k, l + i[k]] else 0", "t[k, l < H]"),
        ("t = sum[k >= 2](v[2 * k] else 0)", "sum[2 <= k < A]"),
        ("t = sum[k < n[0]]((v[k] else 0) * (u[k] else 0))", None),
        ("t = sum[k](2)", None),
    ],
)
def test_a_bound_that_must_be_written_is_the_dim_that_is_read(line, head):
    line = line.replace("* x[l + 1, k // 2] else 0", "* (x[l + 1, k // 2] else 0)")
    with pytest.raises(SpecError) as raised:
        of(line)
    (found,) = [d for d in raised.value.diagnostics if d.code == "E203"]
    assert (found.fix and found.fix.text) == head


def test_a_size_of_the_indexs_name_is_not_proposed():
    text = "op f<T: float>(x: T[P], const win: int = 2) -> y: T[P] {{ a[{}] = mean[r < win](z[p + r] else 0)"
    text += "\n z[q < P // win] = x[q] \n y[k] = a[k] else 0 }}"
    with pytest.raises(SpecError) as raised:
        typed(text.format("p"))
    (found,) = raised.value.diagnostics
    assert found.fix.text == "a[p < P // win]"
    assert shown(typed(found.fix.applied()).nests[1].dims[0]) == "P // win"


def test_a_convolution_needs_no_bound_for_its_batch():
    op = typed(
        "op f<T: float>(x: T[N, C, H], w: T[F, C, R]) -> y: T[N, F, P] with P = H {"
        " a[n, f, p < P] = sum[c, r]((x[n, c, p + r] else 0) * w[f, c, r])"
        " y[n, f, p] = a[n, f, p] }"
    )
    x, w = torch.randn(2, 3, 6, dtype=torch.float64), torch.randn(4, 3, 2, dtype=torch.float64)
    padded = torch.nn.functional.pad(x, (0, 1))
    torch.testing.assert_close(run(op, {"x": x, "w": w})["y"], torch.conv1d(padded, w))


def test_no_two_ranges_of_a_reducer_have_a_negative_length():
    """Kernels multiply the lengths, and -2 * -2 terms would be four."""
    head = "op f<T: float>(x: T[D, D], z: T[A], const n: int) -> y: T[A] { y[i] = z[i] + "

    def of_sum(binders: str) -> tuple[list[str], list[str]]:
        op = typed(f"{head}sum[{binders}](x[k, j] * n) }}")
        sums = [e for nest in op.nests for e in walk(nest.body) if isinstance(e, Reduce)]
        asked = [f.text for f in op.facts if isinstance(f, Require)]
        return [shown(b.hi) for e in sums for b in e.binders], asked

    assert of_sum("k >= A, j >= A")[0] == ["max(A, D)", "max(A, D)"]
    assert of_sum("k >= A, j < 2")[0] == ["D", "2"]
    for binders in ("k < n, j", "k < n, j < n"):
        assert of_sum(binders)[1] == ["D >= n (for `x[k, j]`)", "n >= 0"]
