"""Decides which names a spec may declare.

Input: a name, its place, what it would name. Output: None, or a finding that suggests a free name. A name is a plain ASCII
identifier that is no word of Python or of the language. A function's name calls it only before `(`, and is free otherwise.
So are the words of clauses, except for what a line assigns. Generated code renames its own names.
"""

from __future__ import annotations

import keyword
import re

from tritongen.errors import Diagnostic, Span
from tritongen.syntax import _tables

# as the grammar has them
REDUCERS = tuple(dict(_tables.TERMINALS)["REDUCER"].partition(")")[0][1:].split("|"))
FAMILIES = frozenset("float int bool".split())
DTYPES = frozenset("f64 f32 f16 bf16 f8e4m3 f8e5m2 i64 i32 i16 i8 u8 bool".split())
WORDS = frozenset("op fn const inf true false".split())
CLAUSES = frozenset("grad ref doc precision autocast tol tune".split())
# the functions of `tritongen.ir.functions`, which this package does not import (a test compares them)
BUILTINS = frozenset(
    """abs acos acosh asin asinh atan atan2 atanh bit_and bit_not bit_or bit_xor ceil clamp cos cosh
    detach erf erfc erfinv exp exp2 expm1 floor fmod hypot isfinite isinf isnan log log10 log1p log2
    logaddexp logsigmoid max min ndtr pow reciprocal relu round rsqrt shift_left shift_right sigmoid
    sigmoidc sign sin sinh softplus sqrt square tan tanh tanh_softplus times_ndtr trunc where xlogy""".split()
)
MODULES = frozenset("tl torch triton".split())
PYTHON = frozenset(keyword.kwlist)

# what no line of a spec assigns: the words of clauses too, which begin a clause there
NOT_LINES = FAMILIES.union(REDUCERS) | DTYPES | WORDS | CLAUSES | MODULES | PYTHON

FREE = {"mean": "mu", "sum": "total", "max": "top", "min": "low", "in": "inp", "lambda": "lam"}


def kind_of(name: str) -> str:
    """The meaning that the name already has in the language or in Python. Empty if it is free."""
    groups = (
        (REDUCERS, "a reducer"),
        (DTYPES | FAMILIES, "a dtype"),
        (WORDS, "a word of the language"),
        (PYTHON, "a word of Python"),
        (MODULES, "a module that generated code imports"),
    )
    return next((kind for names, kind in groups if name in names), "")


def check_name(name: str, span: Span, what: str) -> Diagnostic | None:
    """The finding for a lower-case name declared as an operand, index, temporary, ..."""
    kind = kind_of(name)
    if what in ("output", "temporary") and name in CLAUSES:
        kind = "a line cannot begin with the word of a clause"
    if what == "function" and name in BUILTINS:
        kind = "a builtin function"  # which a call would go on to mean
    if kind:
        help = f"rename it: `{suggest(name, what)}`"
        return Diagnostic("E102", f"`{name}` is reserved", span, label=kind, help=help)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        help = f"rename it: `{suggest(name, what)}`"
        message = "a name is lower case and starts with a letter"
        return Diagnostic("E103", message, span, help=help)
    return None


def check_size(name: str, span: Span) -> Diagnostic | None:
    kind = kind_of(name)
    if kind:
        help = (
            f"rename it: `{name.upper()}_`"
            if kind_of(name.upper())
            else f"rename it: `{name.upper()}`"
        )
        return Diagnostic("E102", f"`{name}` is reserved", span, label=kind, help=help)
    return None


def suggest(name: str, what: str) -> str:
    """A free name close to this one."""
    if name in FREE and what != "op":
        return FREE[name]
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower().strip("_") or "value"
    snake = snake if re.fullmatch(r"[a-z][a-z0-9_]*", snake) else "value"
    is_taken = kind_of(snake) or (snake == name and snake in CLAUSES | BUILTINS)
    return snake + ("_op" if what == "op" else "_") if is_taken else snake


# Names of other libraries for functions of the language. A proposal is compiled like any other.
SAME = {
    "avg": "mean", "average": "mean", "total": "sum", "product": "prod", "maximum": "max", "minimum": "min",
    "amax": "max", "amin": "min", "swish": "silu", "hswish": "hardswish", "logistic": "sigmoid", "ln": "log",
    "lrelu": "leaky_relu", "fabs": "abs", "power": "pow", "arctan2": "atan2", "arctan": "atan", "arcsin": "asin",
    "arccos": "acos", "clip": "clamp", "select": "where", "inverse_sqrt": "rsqrt",
}  # fmt: skip
