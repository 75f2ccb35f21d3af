"""Proposals: what `help:` shows as corrected code compiles, for specs that are wrong in drawn ways."""

import math
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tritongen
from tritongen.check import check, read
from tritongen.errors import Diagnostic, Fix, Source, Span, SpecError, proven

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.op"))
OP = re.compile(r"^op .*?^}", re.DOTALL | re.MULTILINE)


def findings(text: str) -> tuple[Diagnostic, ...]:
    try:
        check(read(text, "drawn.op"))
    except SpecError as error:
        return error.diagnostics
    return ()


def said(found: tuple[Diagnostic, ...]) -> list[tuple[str, str]]:
    return sorted((d.code, d.message) for d in found)


# ---- ways to be wrong: each takes a text and gives a text with one slip, or None --------------------
def renamed_index(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r"(?<=[\[ ])[a-z](?=[\],])", lambda _: draw.choice("hjkz"))


def dropped_bound(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r"(?<=\w) <=? \w+(?=[\],])", lambda _: "")


def swapped_size(draw: random.Random, text: str) -> str | None:
    sizes = sorted(set(re.findall(r"\b[A-Z]\b", text)))
    return replaced(draw, text, r"\b[A-Z](?=[\],])", lambda _: draw.choice(sizes))


def dropped_comma(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r", (?=\w)", lambda _: " ")


def misspelt_name(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r"\b[a-z_]{4,}(?=[(\[])", lambda m: m[0][:-1])


def dropped_index(draw: random.Random, text: str) -> str | None:
    return replaced(draw, text, r", [a-z](?=\])", lambda _: "")


def replaced(draw: random.Random, text: str, pattern: str, by) -> str | None:
    start = text.index("{") if "{" in text else 0
    found = [m for m in re.finditer(pattern, text) if by is not None and m.start() > 3]
    body = [m for m in found if m.start() > start] or found
    if not body:
        return None
    m = draw.choice(body)
    return text[: m.start()] + by(m) + text[m.end() :]


SLIPS = (
    renamed_index,
    dropped_bound,
    swapped_size,
    dropped_comma,
    misspelt_name,
    dropped_index,
)


def ops() -> list[str]:
    texts = [path.read_text() for path in SPECS]
    return [t for text in texts for t in OP.findall(text) if len(t) < 900 and not findings(t)]


@pytest.fixture(scope="module")
def wrong() -> list[str]:
    """Specs with one slip each, drawn from a seed."""
    draw = random.Random(42)
    right = draw.sample(ops(), 16)
    drawn = (slip(draw, text) for text in right for slip in SLIPS)
    return [text for text in drawn if text is not None]


def test_what_is_proposed_for_a_drawn_slip_compiles(wrong):
    shown = 0
    for text in wrong:
        found = findings(text)
        fixed = [d for d in found if d.fix is not None]
        shown += len(fixed)
        for d in fixed:
            left = findings(d.fix.applied())
            line = d.fix.applied()[: d.fix.span.start].count("\n") + 1
            here = [e for e in left if e.span and e.span.line_column()[0] == line]
            new = [e for e in left if (e.code, e.message) not in said(found)]
            shown_as = f"{SpecError([d])}\n\n{SpecError(left)}"
            assert not [e for e in here if e in new], shown_as
            if d.code >= "E102" and d.code != "E107":  # not of a text that is read no further
                assert all(e.fix for e in new), shown_as
    assert shown > 20


def test_of_candidates_the_first_that_asks_least_is_taken():
    source = Source("t.op", "a b")
    span = Span(source, 0, 1)
    fixes = [Fix(span, text) for text in ("wrong", "asks", "right", "later")]
    d = Diagnostic("E203", "no range", span, fix=fixes[0], others=tuple(fixes[1:]))

    def compiled(text: str):
        word = text.split()[0]
        other = Diagnostic("E401", "outside", span)
        return ([other] if word == "wrong" else []), int(word == "asks")

    assert [f.fix for f in proven([d], compiled)] == [fixes[2]]
    assert [f.fix for f in proven([d], lambda _: ([d], 0))] == [None]


def test_the_texts_that_are_tried_are_few():
    source, tried = Source("t.op", "x" * 100), []
    found = [
        Diagnostic(
            "E113", f"unknown {k}", Span(source, k, k + 1), fix=Fix(Span(source, k, k + 1), "y")
        )
        for k in range(60)
    ]
    proven(found, lambda text: tried.append(text) or (found, 0))
    assert len(tried) <= 32


# ---- lines of PyTorch and NumPy, and what they are in a spec ------------------------------------------
SIZES = {"N": 4, "D": 3, "M": 2, "K": 5, "H": 2, "P": 6}
ROWS = "x: T[N, D]) -> y: T[N]"
SAME = "x: T[N, D]) -> y: T[N, D]"
MASKED = "x: T[N, D], m: bool[N, D]) -> y: T[N, D]"
PRODUCT = "a: T[M, K], b: T[K, N]) -> y: T[M, N]"
LINES = (
    (ROWS, "y = x.sum(dim=-1)", "y[n] = sum[d](x[n, d])"),
    (ROWS, "y = torch.mean(x, 1)", "y[n] = mean[d](x[n, d])"),
    (ROWS, "y = x.max(dim=1).values", "y[n] = max[d](x[n, d])"),
    (ROWS, "y = x.norm(dim=1)", "y[n] = sqrt(sum[d](x[n, d] ** 2))"),
    (ROWS, "y = x[:, -1]", "y[n] = x[n, D - 1]"),
    (ROWS, "y = x[:, 1:].sum(1)", "y[n] = sum[d < D - 1](x[n, d + 1])"),
    ("x: T[N, D]) -> y: i64[N]", "y = torch.max(x, 1)[1]", "y[n] = argmax[d](x[n, d])"),
    ("x: T[N, D]) -> y: T[N, 1]", "y = x.sum(-1, keepdim=True)", "y[n, 0] = sum[d](x[n, d])"),
    ("x: T[N, D]) -> y: T", "y = (x ** 2).mean()", "y = mean[n, d](x[n, d] ** 2)"),
    (
        SAME,
        "y = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)",
        "y[n, d] = (x[n, d] - mean[k](x[n, k])) / sqrt(sum[k]((x[n, k] - mean[i](x[n, i])) ** 2) / (D - 1))",
    ),
    (SAME, "y = torch.clip(x, 0, 1)", "y = clamp(x, 0, 1)"),
    (SAME, "y = x.clamp(min=0)", "y = max(x, 0)"),
    (SAME, "y = torch.maximum(x, torch.zeros_like(x))", "y = max(x, 0)"),
    (SAME, "y = F.gelu(x, approximate='tanh')", "y = gelu_tanh(x)"),
    (SAME, "y = F.leaky_relu(x, negative_slope=0.2)", "y = leaky_relu(x, slope = 0.2)"),
    (SAME, "y = F.softmax(x, dim=-1)", "y = softmax(x)"),
    (
        SAME,
        "y = F.softmax(x, dim=0)",
        "y[n, d] = exp(x[n, d] - max[k](x[k, d])) / sum[k](exp(x[k, d] - max[i](x[i, d])))",
    ),
    (SAME, "y = torch.cumsum(x, dim=1)", "y[n, d] = sum[k <= d](x[n, k])"),
    (SAME, "y = x.flip(1)", "y[n, d] = x[n, D - 1 - d]"),
    (SAME, "y = x.roll(1, 0)", "y[n, d] = x[(n - 1) % N, d]"),
    (SAME, "y = x.relu().square() + math.pi", "y = square(relu(x)) + 3.141592653589793"),
    (MASKED, "y = x.masked_fill(~m, -1)", "y = where(not m, -1, x)"),
    (MASKED, "y = torch.where(m & (x > 0), x, 0)", "y = where(m and x > 0, x, 0)"),
    (MASKED, "y = torch.where(m | (x > 0), x, 0)", "y = where(m or x > 0, x, 0)"),
    ("x: T[M, N]) -> y: T[N, M]", "y = x.T", "y[n, m] = x[m, n]"),
    ("x: T[M, N]) -> y: T[N, M]", "y = x.transpose(0, 1)", "y[n, m] = x[m, n]"),
    ("x: T[M, N, D]) -> y: T[D, M, N]", "y = x.permute(2, 0, 1)", "y[d, m, n] = x[m, n, d]"),
    (PRODUCT, "y = a @ b", "y[m, n] = sum[k](a[m, k] * b[k, n])"),
    (PRODUCT, "y = torch.einsum('mk,kn->mn', a, b)", "y[m, n] = sum[k](a[m, k] * b[k, n])"),
    (
        "x: T[M, K], w: T[N, K], b: T[N]) -> y: T[M, N]",
        "y = torch.relu(x @ w.T + b)",
        "y[m, n] = relu(sum[k](x[m, k] * w[n, k]) + b[n])",
    ),
    (
        "q: T[H, M, K], k: T[H, N, K]) -> y: T[H, M, N]",
        "y = q @ k.transpose(-2, -1)",
        "y[h, m, n] = sum[i](q[h, m, i] * k[h, n, i])",
    ),
    (
        "q: T[M, K], k: T[N, K], v: T[N, P]) -> y: T[M, P]",
        "y = F.scaled_dot_product_attention(q, k, v)",
        "t[m, n] = sum[i](q[m, i] * k[n, i]) / sqrt(K)\n"
        "  u[m, n] = exp(t[m, n] - max[i](t[m, i])) / sum[i](exp(t[m, i] - max[j](t[m, j])))\n"
        "  y[m, p] = sum[n](T(u[m, n]) * v[n, p])",
    ),
    (
        "q: T[M, K], k: T[N, K], v: T[N, P]) -> y: T[M, P]",
        "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "t[m, n] = where(n <= m, sum[i](q[m, i] * k[n, i]) / sqrt(K), -inf)\n"
        "  u[m, n] = exp(t[m, n] - max[i](t[m, i])) / sum[i](exp(t[m, i] - max[j](t[m, j])))\n"
        "  y[m, p] = sum[n](T(u[m, n]) * v[n, p])",
    ),
    (
        "x: T[N, D], t: i64[N]) -> y: T",
        "y = F.cross_entropy(x, t)",
        "y = mean[n](max[d](x[n, d]) + log(sum[d](exp(x[n, d] - max[k](x[n, k])))) - (x[n, t[n]] else 0))",
    ),
    (
        "x: T[N, D], w: T[D], b: T[D]) -> y: T[N, D]",
        "y = F.layer_norm(x, (3,), w, b)",
        "y = layer_norm(x, w, b)",
    ),
    (
        "x: T[N, D, M], b: T[D]) -> y: T[N, D, M]",
        "y = x + b[None, :, None]",
        "y[n, d, m] = x[n, d, m] + b[d]",
    ),
    (
        "w: T[K, D], idx: i64[N]) -> y: T[N, D]",
        "y = w[idx]",
        "y[n, d] = w[idx[n], d] else 0",
    ),
    (
        "a: T[M, D], b: T[N, D]) -> y: T[P, D] with P = M + N",
        "y = torch.cat([a, b], dim=0)",
        "y[p, d] = where(p < M, a[p, d] else 0, b[p - M, d] else 0)",
    ),
)
OTHERS = (  # that are no Python, or loops over numbers
    (ROWS, "y = np.max(x, axis=1)", "y[n] = max[d](x[n, d])"),
    (ROWS, "y[n] = x[n, :].sum()", "y[n] = sum[d](x[n, d])"),
    (ROWS, "y[n] = sum[d](exp(x[n, :]))", "y[n] = sum[d](exp(x[n, d]))"),
    (ROWS, "y[n] = x[n].exp().sum()", "y[n] = sum[d](exp(x[n, d]))"),
    (ROWS, "y[n] = x[n, d].sum(d)", "y[n] = sum[d](x[n, d])"),
    (ROWS, "y[n] = mean(x[n, d], -1)", "y[n] = mean[d](x[n, d])"),
    (ROWS, "y[n] = sum_{d} x[n, d] * 2 + 1", "y[n] = sum[d](x[n, d] * 2) + 1"),
    (ROWS, "y[n] = \N{GREEK CAPITAL LETTER SIGMA}_d x[n, d]", "y[n] = sum[d](x[n, d])"),
    (ROWS, "y[n] = sum[d = 0..D](x[n, d])", "y[n] = sum[d < D](x[n, d])"),
    (ROWS, "y[n] = sum(x[n, d] for d in range(D))", "y[n] = sum[d](x[n, d])"),
    (ROWS, "y = sum(x)", "y[n] = sum[d](x[n, d])"),
    (
        ROWS,
        "for n in range(N):\n    for d in range(D):\n      y[n] += x[n, d]",
        "y[n] = sum[d](x[n, d])",
    ),
    (
        SAME,
        "y[n, d] = softmax[n](x[n, d])",
        "y[n, d] = exp(x[n, d] - max[k](x[k, d])) / sum[k](exp(x[k, d] - max[i](x[i, d])))",
    ),
    (
        ROWS,
        "y[n] = std[d](x[n, d])",
        "y[n] = sqrt(sum[k]((x[n, k] - mean[i](x[n, i])) ** 2) / (D - 1))",
    ),
    (
        ROWS,
        "y[n] = logsumexp[d](2 * x[n, d])",
        "y[n] = max[k](2 * x[n, k]) + log(sum[k](exp(2 * x[n, k] - max[i](2 * x[n, i]))))",
    ),
    (
        SAME,
        "y[n, d] = x[n, d] - mean[d](x[n, d]) + var[n, d](x[n, d])",
        "y[n, d] = x[n, d] - mean[k](x[n, k]) + sum[k, i]((x[k, i] - mean[j, l](x[j, l])) ** 2) / (N * D - 1)",
    ),
    (SAME, "y[n][d] = x[n][d]", "y[n, d] = x[n, d]"),
    (SAME, "y[n, :] = x[n, :] * 2", "y[n, d] = x[n, d] * 2"),
    (SAME, "return x * 2", "y = x * 2"),
    (SAME, "y[n, d] = x[n, d] if x[n, d] > 0 else 0", "y[n, d] = where(x[n, d] > 0, x[n, d], 0)"),
    (SAME, "y[n, d] = d == 0 ? 1 : x[n, d - 1]", "y[n, d] = where(d == 0, 1, x[n, d - 1] else 0)"),
    (SAME, "y[n, d] = x[n, d]^2 + x[n, 0]", "y[n, d] = x[n, d] ** 2 + x[n, 0]"),
    (SAME, "y[n, d] = x[n, d];", "y[n, d] = x[n, d]"),
    (SAME, "y = masked_fill(x, x > 0, -inf)", "y = where(x > 0, -inf, x)"),
    (
        MASKED,
        "y[n, d] = where(!m[n, d] && x[n, d] > 0, 1, 0)",
        "y[n, d] = where(not m[n, d] and x[n, d] > 0, 1, 0)",
    ),
    (PRODUCT, "y[m, n] += a[m, k] * b[k, n]", "y[m, n] = sum[k](a[m, k] * b[k, n])"),
    (
        "x: T[M, N]) -> y: T[P] with P = M * N",
        "y[m * N + n] = x[m, n]",
        "y[p] = x[p // N, p % N]",
    ),
    ("x: T[N]) -> y: T[P] with P = 2 * N", "y[2 * n + 1] = x[n]", "y[p] = x[(p - 1) / 2] else 0"),
)


@pytest.mark.parametrize("head, line, wanted", LINES + OTHERS, ids=lambda text: text)
def test_a_line_of_another_language_is_written_anew(head, line, wanted):
    """One finding, whose help is the line of the spec; where torch runs the line, too, they give the same."""
    text = f"op f<T: float>({head} {{\n  {line}\n}}\n"
    (found,) = findings(text)
    assert found.fix is not None and found.fix.text == wanted, str(SpecError([found]))
    op = tritongen.compile_op(found.fix.applied())
    if (head, line, wanted) not in LINES:
        return
    torch.manual_seed(0)
    operands = re.findall(r"(\w+): (\w+)\[([^]]*)\]", head.partition(" ->")[0])
    values = {}
    for name, dtype, dims in operands:
        value = torch.randn([SIZES[d] for d in dims.split(", ")], dtype=torch.float64)
        values[name] = (
            value > 0 if dtype == "bool" else value.long().abs() if dtype == "i64" else value
        )
    names = {"torch": torch, "F": F, "math": math, "np": np, **values}
    exec(line, names)
    torch.testing.assert_close(op(*values.values()), torch.as_tensor(names["y"]))


SIGNATURES = (
    ("op f(x: float[N]) -> y: float[N] { y = 2 * x }", "op f<T: float>(x: T[N]) -> y: T[N]"),
    ("op f(x: Tensor[N]) -> y: Tensor[N] { y = 2 * x }", "op f<T: float>(x: T[N]) -> y: T[N]"),
    (
        "op f(x: torch.Tensor) -> y: torch.Tensor { y = 2 * x }",
        "op f<T: float>(x: T[...]) -> y: T[...]",
    ),
    ("op f(x: f32[n, d]) -> y: f32[n, d] { y = 2 * x }", "op f(x: f32[N, D]) -> y: f32[N, D]"),
    ("op f(x: f32[N][D]) -> y: f32[N][D] { y = 2 * x }", "f32[N, D]"),
    ("op f<T>(x: T[N]) -> y: T[N] { y = 2 * x }", "T: float"),
    ("op f<T: float>(x: T[N], s: T[]) -> y: T[N] { y = s * x }", "f32"),
    ("op f<T: float>(x: T[N]) -> y: T[] { y = sum[n](x[n]) }", "T"),
    ("op f<T: float>(x: T) -> y: T { y = 2 * x }", "op f<T: float>(x: T[...]) -> y: T[...]"),
    ("op f<T: float>(w: T[V], i: T[N]) -> y: T[N] { y[n] = w[i[n]] else 0 }", "i64[N]"),
    ("op f<T: float>(x: T[N]) -> y: T[N] { y = max(x, 0, 1) }", "clamp(x, 0, 1)"),
    (
        "op f(x: f32[N, C, W]) -> y: f32[N, C, P] { y = max_pool1d(x, 2) }",
        "y: f32[N, C, P] with P = W // 2",
    ),
    (
        "op f(x: f32[N, C, L], w: f32[F, C, R], b: f32[F]) -> y: f32[N, F, P] { y = conv1d(x, w, b, stride = 2) }",
        "y: f32[N, F, P] with P = (L - R) // 2 + 1",
    ),
    (
        "op f<T: float>(x: T[N], w: T[K]) -> y: T[N] { y[n] = sum[k](x[n - k] * w[k]) }",
        "(x[n - k] else 0)",
    ),
    (
        "op f<T: float>(x: T[N, 2 * H], w: T[F, H]) -> y: T[N, F] {\n"
        " g[n, h] = silu(x[n, h]) * x[n, h + H]\n y[n, f] = sum[h](g[n, h] * w[f, h]) }",
        "g[n, h < H]",
    ),
    (
        "op f<T: float>(x: T[R, D], cu: i32[B]) -> y: T[B, D] {"
        " y[b, d] = sum[cu[b] <= r < cu[b + 1]](x[r, d]) }",
        "cu: i32[Q]) -> y: T[B, D] with B = Q - 1",
    ),
    (
        "op f<T: float>(x: T[R], s: T[B], cu: i32[B]) -> y: T[B] {"
        " y[b] = s[b] * sum[r](where(cu[b] <= r and r < cu[b + 1], x[r], 0)) }",
        "cu: i32[B + 1]",
    ),
    (
        "op f<T: float>(x: T[N]) -> y: T[N] { y[n] = where(x[n] < x[n + 1], x[n], 0) }",
        "(x[n + 1] else 0)",
    ),
    (
        "op f<T: float>(x: T[L]) -> y: T[P] with Q = L - 1, P == Q * 2 { y[p] = x[p // 2] }",
        "y: T[P] with Q = L - 1, P = Q * 2",
    ),
    (
        "op f<T: float>(x: T[N]) -> y: T[P] with N == 2 * P { y[p] = x[2 * p] }",
        "y: T[P] with P = N // 2, N == 2 * P",
    ),
    ("op f<T: float>(x: T[N]) -> y: T[N] { y[n] = exp(abs(x[n]) }", "exp(abs(x[n]))"),
    ("op f<T: float>(x: T[N]) -> y: T[N] { y[n] = abs(x[n) }", "x[n]"),
    ("op f<T: float>(x: T[N]) -> y: T[N] { y[n = x[n] }", "y[n]"),
)


@pytest.mark.parametrize("text, wanted", SIGNATURES, ids=lambda text: text)
def test_a_form_of_another_language_gets_one_correction(text, wanted):
    (found,) = findings(text)
    assert found.fix is not None and found.fix.text == wanted, str(SpecError([found]))


@pytest.mark.parametrize(
    "value",
    ("x[n, :]", "x[:, n]", "x[n, 1:]", "x[n, ::2]", "x[n].exp()", "x[n, :] + x[n, 0]", "x[n]"),
)
def test_a_slice_is_not_taken_for_the_diagonal(value):
    (found,) = findings(f"op f<T: float>({ROWS} {{\n  y[n] = {value}\n}}\n")
    assert found.fix is None and found.help


def test_a_size_that_a_dim_defines_keeps_what_the_dim_says():
    (found,) = findings(
        "op f<T: float>(x: T[N, 2 * D]) -> y: T[N, D] { y[n, d] = x[n, d] * x[n, d + D] }"
    )
    assert found.fix.text == "x: T[N, Q]) -> y: T[N, D] with D = Q // 2, Q == 2 * D"
    assert not findings(found.fix.applied())


def test_no_reducer_is_proposed_for_one_that_sorts():
    (found,) = findings("op f<T: float>(x: T[N, D]) -> y: T[N] { y[n] = median[d](x[n, d]) }")
    assert found.fix is None and found.help == "the language does not sort"


def test_the_same_slip_on_a_later_line_does_not_hide_a_fix():
    (found,) = findings(
        "op f<T: float>(x: T[S]) -> y: T[S] {\n a[t] = sum[i <= t](x[i])\n z[t] = x[t] - a[t]\n"
        " m[t] = max[s <= t](z[s])\n y[t] = a[t] + m[t] }"
    )
    assert found.fix.text == "a[t < S]"
    (behind,) = findings(found.fix.applied())
    assert behind.fix.text == "m[t < S]" and not findings(behind.fix.applied())


def test_a_text_that_only_sizes_of_0_can_call_is_refused():
    (found,) = findings(
        "op f<T: float>(x: T[N, 2 * H], w: T[F, H]) -> y: T[N, F] {\n g[n, h] = x[n, h] * x[n, h + H]\n"
        " y[n, f] = sum[h](g[n, h] * w[f, h] * x[n, h]) }"
    )
    assert found.code == "E401" and found.fix.text == "g[n, h < H]"
    (behind,) = findings(found.fix.applied())
    assert behind.code == "E204" and behind.fix.text == "sum[h < H]"
    assert not findings(behind.fix.applied())


def test_a_long_line_of_another_language_is_answered_at_once():
    start = time.process_time()
    for body in (
        "torch.std(" * 30 + "x" + ")" * 30,
        "x.unsqueeze(99999999)",
        "x @" + " " * 60000 + "x",
    ):
        assert len(findings(f"op f<T: float>({SAME} {{ y = {body} }}")) == 1
    assert time.process_time() - start < 2


def test_a_definition_that_cannot_be_computed_adds_no_finding():
    (found,) = findings(
        "op f(x: f32[N, C, L], w: f32[F, C, R], b: f32[F]) -> y: f32[N, F, P] { y = conv1d(x, w, b, stride = 0) }"
    )
    assert found.code == "E208" and found.fix is None


def test_a_tensor_without_indices_gets_those_of_its_extents():
    """`m[d]` compiled, too: it reads a row's mean by its column."""
    text = """op f<T: float>(x: T[N, D], n: i32[N]) -> y: T[N, D] {
      m[r] = mean[d < n[r]](x[r, d])
      y[r, d] = (x[r, d] - m) * 2
    }"""
    (found,) = findings(text)
    assert found.fix is not None and found.fix.text == "m[r]"


@pytest.mark.parametrize(
    "line, wanted",
    (
        ("y[n] = sum[d](relu(max[k <= d](x[n, k])))", "sum[d < D]"),
        ("y[n] = sum[d](relu(max[k > d](x[n, k])))", "sum[d < D]"),
        (
            "a[n, d] = sum[k <= d](x[n, k])\n b[n, d] = a[n, d]\n y[n] = sum[d](b[n, d])",
            "a[n, d < D]",
        ),
    ),
)
def test_an_index_that_only_ends_a_binder_gets_the_range_of_the_binder(line, wanted):
    (found,) = findings(f"op f<T: float>(x: T[N, D]) -> y: T[N] {{ {line} }}")
    assert found.code == "E203" and found.fix.text == wanted
    assert not findings(found.fix.applied())
