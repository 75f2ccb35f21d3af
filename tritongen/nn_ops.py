"""The ops of `tritongen.nn`: those of `grammar/layers.op` and the prelude, without operands that a layer lacks.

    call("linear", x, w, b=None, activation="gelu")   # runs op linear(x, w) -> y: y[..., n] = gelu(sum[k](...))

Input: the name of an op and its operands. Output: its result. The op is compiled at its first call (`api.py`). `nn.py`
holds the parameters.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

from torch import Tensor

from tritongen.api import compile_op
from tritongen.check.functions import Library, library_of
from tritongen.resources import folder
from tritongen.syntax import ast
from tritongen.syntax.parse import parse_file
from tritongen.syntax.unparse import unparse


class _Compiled:
    """Ops as attributes: torch.compile guards what it finds at a place."""


_ops = _Compiled()


def call(op: str, *given: Tensor, activation: str = "", **named: Any) -> Any:
    """The op on these, then the activation, a function of one argument; a named operand that is None is left out."""
    left_out = [name for name, value in named.items() if value is None]
    for name in left_out:
        del named[name]
    return getattr(_ops, _compiled(op, tuple(left_out), activation))(*given, **named)


def _compiled(op: str, left_out: tuple[str, ...], activation: str) -> str:
    """The name by which `_ops` has it."""
    name = "_".join((op, activation, *left_out))
    if not hasattr(_ops, name):
        setattr(_ops, name, compile_op(unparse(_variant(op, left_out, activation))))
    return name


# Same as torch.compiler.assume_constant_result, which takes seconds to import: it runs while a model is traced.
_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _library() -> Library:
    return library_of(parse_file(folder("grammar") / "layers.op"))


def _variant(name: str, left_out: tuple[str, ...], activation: str) -> ast.OpDef:
    """A form of the op without operands that its last line adds or multiplies by, with the activation around that line's value."""
    found = _library().op(name)
    assert found is not None
    op, _ = found
    params = tuple(p for p in op.params if p.name not in left_out)
    types = {p.type.dtype for p in (*params, *op.outputs) if isinstance(p, ast.Operand)}
    *above, last = op.lines
    value, clauses = _without(last.value, left_out), op.clauses
    if activation:
        value = ast.Call(activation, (value,))
        clauses = tuple(c for c in clauses if not isinstance(c, ast.Ref))
    return replace(
        op,
        typarams=tuple(t for t in op.typarams if t.name in types),
        params=params,
        lines=(*above, replace(last, value=value)),
        clauses=tuple(_told(c, left_out) if isinstance(c, ast.Ref) else c for c in clauses),
    )


def _without(value: ast.Expr, left_out: tuple[str, ...]) -> ast.Expr:
    """`b[f] + sum[k](...)` as `sum[k](...)`, `x * w[d] + b[d]` as `x`."""
    if not isinstance(value, ast.Binary):
        return value
    a, b = _without(value.a, left_out), _without(value.b, left_out)
    if isinstance(a, ast.Read) and a.name in left_out:
        return b
    if isinstance(b, ast.Read) and b.name in left_out:
        return a
    return replace(value, a=a, b=b)


def _told(ref: ast.Ref, left_out: tuple[str, ...]) -> ast.Ref:
    """torch is told None for what is left out."""
    return ast.Ref(re.sub(r"\w+", lambda w: "None" if w[0] in left_out else w[0], ref.text))
