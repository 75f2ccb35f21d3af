"""Terms are summed at a read before they go to the place that it names."""

from __future__ import annotations

import pytest

from tritongen.autodiff import gradient
from tritongen.check import check
from tritongen.ir.print import print_op
from tritongen.syntax.parse import parse

OPERANDS = {
    "x": "f32[B, N]",
    "x2": "f32[B, N, N]",
    "w": "f32[B, 3]",
    "t": "f32[T]",
    "u": "f32[R, S]",
    "at": "i64[B]",
    "to": "i64[N]",
    "begin": "i64[B + 1]",
}


@pytest.mark.parametrize(
    "value, read",
    [
        # The place does not depend on i, so one term goes to it.
        ("x[b, i] * (t[at[b]] else 0)", "[b] = sum[i](dy[b, i] * x[b, i])"),
        # Each term has a place of its own, or each place a sum of its own.
        ("x[b, i] * (t[at[b] + to[i]] else 0)", ""),
        ("x[b, i] * (t[i + 1] else 0)", ""),
        # Several indices name the place: what is stored is smaller than x2, but no window of products.
        ("sum[j](x2[b, i, j] * (t[i - j + 7] else 0))", "[i, j] = sum[b](dy[b, i] * x2[b, i, j])"),
        ("x[b, i] * sum[j < 3]((t[i + j] else 0) * w[b, j])", ""),
        # Only the segment knows which b has a term k.
        ("x[b, i] * sum[begin[b] <= k < begin[b + 1]](x2[b, i, k] * (t[to[k]] else 0))", ""),
        # A coordinate beside the place has an index of its own.
        ("x[b, i] * (u[to[i], b // 2] else 0)", "[i, s < S] = "),
        (
            "sum[k](x2[b, i, k] * (u[to[k], i // 2] else 0))",
            "[k, s < S] = ",
        ),
    ],
)
def test_what_is_summed_at_a_read(value, read):
    operands = {name: kind for name, kind in OPERANDS.items() if f"{name}[" in value}
    text = f"""op f({", ".join(f"{name}: {kind}" for name, kind in operands.items())}) -> y: f32[B, N] {{
      y[b, i] = {value}
    }}"""
    lines = print_op(gradient(check(parse(text))[0].typings[0])).splitlines()
    found = [line for line in lines if "_read[" in line.split("=")[0]]
    assert len(found) == bool(read), found
    assert all(line.split("_read")[1].startswith(read) for line in found), found


def test_reads_of_one_place_go_there_as_one_term():
    text = """op f(q: f32[B, I, D], c: f32[M, D], at: i64[B, J]) -> o: f32[B, I, D] {
      s[b, i, j] = sum[d](q[b, i, d] * (c[at[b, j], d] else 0))
      o[b, i, d] = sum[j](s[b, i, j] * (c[at[b, j], d] else 0))
    }"""
    lines = print_op(gradient(check(parse(text))[0].typings[0])).splitlines()
    (line,) = (line for line in lines if line.startswith("  dc["))
    assert line.endswith("= sum[b, j](where(at[b, j] == m, dc_read[b, j, d], 0))")
