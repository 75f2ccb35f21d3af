"""The lines of a spec stand above what computes them in its kernels, once each, and never as more than comments."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tritongen import pipeline
from tritongen.emit import comments
from tritongen.reference.comments import commented

ROOT = Path(__file__).parents[2]
M = "# m[...] = max[d](x[..., d])"
E = "# e[..., d] = exp(x[..., d] - m[...])"
Y = "# y[..., d] = e[..., d] / sum[k](e[..., k])"
E_SUM = "# y_sum[...] = sum[d](e[..., d])"
FIRST = r" *# \w+(\[.*\])? = "  # of a line of a spec
BREAKS = "\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\0\n"


def kernels(source: str) -> dict[str, list[str]]:
    """The lines of each kernel of a module, without those of its docstring and its parameters."""
    lines, found = source.splitlines(), {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and "triton.jit" in map(
            ast.unparse, node.decorator_list
        ):
            found[node.name] = lines[node.body[0].end_lineno or 0 : node.end_lineno]
    return found


def spec_comments(lines: list[str]) -> list[tuple[str, str]]:
    """Comments that begin as a line of a spec does, with the code that follows each."""
    found = []
    for k, line in enumerate(lines):
        if re.match(FIRST, line):
            code = next(below for below in lines[k:] if not below.lstrip().startswith("#"))
            found.append((line.strip(), code.strip()))
    return found


def test_each_line_of_softmax_is_named_above_its_statement():
    shown = kernels((ROOT / "generated" / "softmax.py").read_text())
    state = "m = tl.full("
    values = [(E, "e = lib.exp(x - m, HALF)"), (Y, "y = e / y_sum")]
    expected = {
        "softmax_rows": [
            (M, "m = tl.reduce("),
            (E, "e = lib.exp(x - m, HALF)"),
            (E_SUM, "y_sum = tl.sum("),
            (Y, "y = e / y_sum"),
        ],
        "softmax_loop": [(M, "if PASS <= 1:"), (E_SUM, "if PASS <= 1:"), *values],
        "softmax_two_pass": [(M, state), (E_SUM, state), *values],
    }
    for name, pairs in expected.items():
        found = spec_comments(shown[name])
        assert [comment for comment, _ in found] == [comment for comment, _ in pairs]
        for (_, code), (_, begin) in zip(found, pairs, strict=True):
            assert code.startswith(begin)


@pytest.mark.parametrize("file", sorted((ROOT / "generated").glob("*.py")), ids=lambda f: f.stem)
def test_no_line_is_named_twice_in_a_kernel(file):
    for name, lines in kernels(file.read_text()).items():
        said = [comment for comment, _ in spec_comments(lines)]
        assert len(said) == len(set(said)), name
        assert all(len(line) <= 100 for line in lines if re.match(FIRST + "| *#     ", line))


@pytest.mark.parametrize("end", BREAKS, ids=ascii)
def test_what_breaks_a_line_leaves_no_comment(end):
    for text in (f"y = x{end}import os", f"y[n,{end}k{end}+ 1] = x{end}{end}#", "x" * 300 + end):
        lines = commented(text, 30)
        assert lines and all(line.startswith("# ") and len(line) <= 30 for line in lines)
        assert not any(set(line) & set("".join(BREAKS)) for line in lines)


def test_text_of_a_spec_is_no_code(monkeypatch):
    spec = (ROOT / "specs" / "softmax.op").read_text()
    build = pipeline.build.__wrapped__
    plain = build(spec, "softmax.op", gradients=True).source
    hostile = "y = x\n    import os\n'''\"\"\"" + "\nos.system('true')".join(BREAKS)
    monkeypatch.setattr(comments, "unparse", lambda tree: hostile)
    shown = build(spec, "softmax.op", gradients=True).source
    assert "# y = x import os" in shown
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.parse(plain))
