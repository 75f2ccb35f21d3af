"""Refuses texts that are not expressions but look like ones, and says what to write.

    refuse_einsum("ij,jk->ik")    # SpecError: write the sum: `y[i, k] = sum[j](x1[i, j] * x2[j, k])`

The parser and the checker report all other mistakes.
"""

from __future__ import annotations

import re

from tritongen.check.functions import prelude
from tritongen.errors import Diagnostic, Source, Span, SpecError
from tritongen.ir.functions import BUILTINS, FUNCTIONS
from tritongen.syntax import ast
from tritongen.syntax.rewrite import rewritten

EINSUM = re.compile(r"\s*[a-zA-Z. ]+(,[a-zA-Z. ]+)*->[a-zA-Z. ]*")


def refuse_einsum(text: str) -> None:
    """Refuses an einsum equation, and writes out the sum that it stands for."""
    if not EINSUM.fullmatch(text):
        return
    operands = ", ".join(f"x{i}" for i, _ in enumerate(text.split(","), 1))
    lines = rewritten(f'einsum("{text.strip()}", {operands})')
    help = f"write the sum: `{lines[0]}`" if lines else ""
    span = Span(Source("<expression>", text), 0, len(text))
    raise SpecError(
        [Diagnostic("E101", "an einsum equation is not an expression", span, help=help)]
    )


def refuse_function(name: str, span: Span | None, alone: bool) -> None:
    """A builtin without arguments; a macro or op of the prelude, whose names are free, only where it stands alone."""
    if name in BUILTINS:
        wanted = ["x", "y", "z"][: FUNCTIONS[BUILTINS[name]].arity]
    else:
        found = prelude().fns.get(name) or prelude().ops.get(name)
        if found is None or not alone:
            return
        wanted = [p.name for p in found.params if p.default is None]
    message = f"`{name}` is a function; an operand of that name needs its indices"
    help = f"call it: `{name}({', '.join(wanted)})`"
    raise SpecError([Diagnostic("E501", message, span, help=help)])


def two_dtypes(call: ast.Call, one: tuple[str, str], other: tuple[str, str]) -> Diagnostic:
    """Two operands, name and dtype, that an op wants of one dtype."""
    named = f"`{one[0]}` and `{other[0]}`"
    message = f"`{call.name}` needs {named} of one dtype; given {one[1]} and {other[1]}"
    span = next((a.span for a in call.args if a == ast.Name(other[0])), call.span)
    help = f"cast one of them: `{one[1]}({other[0]})`"
    return Diagnostic("E301", message, span, help=help)
