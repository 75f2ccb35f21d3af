"""Jupyter: `%load_ext tritongen`, cells of specs, and ops that show themselves.

    %load_ext tritongen

    %%op
    op relu<T: float>(x: T[...]) -> y: T[...] { y = max(x, 0) }

The ops of a cell become variables of the notebook, and the last one is shown. What is wrong with a cell stands under it.
Needs IPython alone; colours come from Pygments where it is installed.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritongen.api import CompiledOp

STYLE = "margin: 0.3em 0; padding: 0.5em 0.8em; overflow-x: auto; line-height: 1.35"


def load_ipython_extension(shell: Any) -> None:
    shell.register_magic_function(lambda line, cell: run_cell(shell, line, cell), "cell", "op")


def run_cell(shell: Any, line: str, cell: str) -> Any:
    """Compiles the ops of a cell and gives them to the notebook; the last one is its value."""
    from tritongen.api import _compile
    from tritongen.errors import SpecError, render

    try:
        ops = list(_compile(cell, "cell.op"))
    except SpecError as error:
        for found in error.diagnostics:
            print(f"{render(found)}\n")
        return None
    shell.push({op.__name__: op for op in ops})
    return ops[-1]


def op_html(op: CompiledOp) -> str:
    """The signature, the spec, and its kernels folded; those of the gradient are left to `.source`."""
    from tritongen.show import kernels

    head = html.escape(repr(op)[4:-1])
    own = (text for name, _, text in kernels(op.source) if "_backward" not in name)
    shown = html.escape("\n\n\n".join(own))
    return (
        f"<code><b>{head}</b></code>{coloured(op.spec.strip())}"
        f'<details><summary>Kernels</summary><pre style="{STYLE}">{shown}</pre></details>'
    )


def coloured(spec: str) -> str:
    """A spec as HTML that needs no style sheet."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter

        from tritongen.syntax.pygments_lexer import OpLexer
    except ImportError:
        return f'<pre style="{STYLE}">{html.escape(spec)}</pre>'
    return highlight(spec, OpLexer(), HtmlFormatter(noclasses=True, prestyles=STYLE))
