"""The text of a module is what black makes of it, though black sees few of its statements."""

from __future__ import annotations

import re
from pathlib import Path
from zlib import crc32

import black
import pytest

from tritongen import pipeline
from tritongen.emit.format import LINE_LENGTH, format_source
from tritongen.errors import SpecError
from tritongen.proof.fuzz.drive import drawn

ROOT = Path(__file__).parents[2]
FILES = [path for folder in ("specs", "tests/programs") for path in (ROOT / folder).glob("*.op")]
LONG = " + ".join(f"operand_{k}" for k in range(10))
TEXT = f'''"""What stands first
    `it's` spelled as it likes, however long: {LONG}
"""

import torch
@runtime.op("f", wrt=('x', 'y'))
@triton.jit
def {"f" * 60}({LONG.replace(" + ", ", ")}, **more):
    """A line that is too long by itself: {LONG}"""
    (x, y) = f(x)
    (N,) = x.shape
    # {LONG} {LONG}
    if x:
        # between a head and its body
        x = x ** 2
    elif {LONG}:
        for i in tl.range(0, {LONG}, num_stages=stages):
            launch[(triton.cdiv(rows, config["ROWS"]),)]({LONG.replace(" + ", ", ")}, **config)
    else:
        x.y[1, 2, 3].load({LONG}, other=0.0)

    def inner(x):
        raise ValueError(f"{{x}} is too long: {LONG}") from None

    return f(x,
             {LONG}), x in (1, 2,)
# what stands above the next

def g_torch(x):
    (a, b) = x[a + 1:b], {{'k': -1 ** 2}}
    return (a, b)
'''


def by_black(text: str) -> str:
    return black.format_str(text, mode=black.Mode(line_length=LINE_LENGTH))


def holds(raw: str) -> None:
    """It is what black makes of the raw text, but for the one blank line that black keeps behind a def that it skips.

    What black has made it leaves as it is, so it is asked once: it takes longer than all else here.
    """
    apart = re.sub(r"\n+(?=(?:def )?choose_)", "\n\n\n", raw)
    assert format_source(raw) == by_black(apart)


def test_statements_of_each_kind():
    assert format_source(TEXT) == by_black(TEXT)


def test_a_standalone_module():
    holds(pipeline.build((ROOT / "specs" / "relu.op").read_text(), standalone=True).raw)


@pytest.mark.parametrize("name", ["softmax", "matmul", "index_add"])
def test_tables_of_configs(name):
    holds(pipeline.build((ROOT / f"specs/{name}.op").read_text(), autotune=True).raw)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_modules_of_files(path):
    """A third of them with gradients, which are most of a module and printed by what prints the rest."""
    with_gradients = crc32(path.stem.encode()) % 3 == 0
    holds(pipeline.build(path.read_text(), path.name, gradients=with_gradients).raw)


@pytest.mark.slow
def test_modules_of_drawn_specs():
    formatted = 0
    for seed in range(20):
        try:
            raw = pipeline.build(drawn(17, seed).text, gradients=seed % 2 == 0).raw
        except SpecError:
            continue
        formatted += 1
        holds(raw)
    assert formatted > 10


def test_a_head_that_black_leaves_alone_may_be_long():
    """Its last line ends with a comment: without a body behind it black could not read it."""
    names = ", ".join(f"{name}_of_the_operand" for name in "abcdef")
    text = f"def f(\n    {names},\n):  # fmt: skip\n    return a_of_the_operand\n"
    assert format_source(text) == text
