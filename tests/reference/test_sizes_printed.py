"""A reference says each size that its lines print, and no other: those that only an index split in two brings in, too."""

import ast

import pytest

from tritongen import pipeline

SHARED = """op shared<T: float>(q: T[H, S, E], k: T[G, L, E]{}) -> s: T[H, S, L]
    with H == {} {{ s[h, i, j] = sum[e](q[h, i, e] * k[h // {}, j, e]) }}"""


@pytest.mark.parametrize(
    "more, fact, each", [(", const rep: int = 2", "G * rep", "rep"), ("", "2 * G", "2")]
)
def test_sizes_that_are_printed_are_bound(more, fact, each):
    built = pipeline.build(SHARED.format(more, fact, each), "shared")  # which looks at every name
    (function,) = (
        node
        for node in ast.walk(ast.parse(built.raw))
        if isinstance(node, ast.FunctionDef) and node.name == "shared_reference"
    )
    stored, read = (
        {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}
        for kind in (ast.Store, ast.Load)
    )
    alone = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    said = {n.targets[0].id for n in alone if isinstance(n.targets[0], ast.Name)}
    assert "G" in stored & read
    assert {name for name in said if len(name) == 1} <= read
