"""Which values the clauses of an op may have.

Input: the words and numbers of one clause. Output: the findings. Example: `tune warps = [7]` gives
E801. Not here: whether a tile's index exists, or fits its op's kernels (`tritongen.check`).
"""

from __future__ import annotations

from tritongen.errors import Diagnostic, Span
from tritongen.syntax import ast
from tritongen.syntax.names import DTYPES

WORDS = {
    "grad": ("none",),
    "precision": ("ieee", "tf32x3", "tf32"),
    "autocast": ("low", "f32"),
}
MAX_TILE = 2**20  # Triton's limit on the elements of a block
MAX_WARPS = 32
MAX_STAGES = 8


def wrong_word(clause: str, word: str, span: Span) -> list[Diagnostic]:
    if word in WORDS[clause]:
        return []
    also = " or a block `{ ... }`" if clause == "grad" else ""
    help = f"{clause} is followed by {_one_of(WORDS[clause])}{also}"
    return [Diagnostic("E602", f"`{clause}` has no value `{word}`", span, help=help)]


def wrong_tolerance(dtype: str, span: Span, bounds: tuple[ast.Literal, ...]) -> list[Diagnostic]:
    findings = []
    if dtype not in DTYPES:
        help = "give each dtype its own: `tol f16 = 1e-3, 1e-3`"
        findings.append(Diagnostic("E602", f"`{dtype}` is a family of dtypes", span, help=help))
    for bound in bounds:
        if not isinstance(bound, ast.Number) or not 0 <= bound.value < 1e30:
            findings.append(Diagnostic("E602", "a tolerance is a number from 0 up", bound.span))
    return findings


def wrong_settings(knob: str, values: tuple[ast.Literal, ...]) -> list[Diagnostic]:
    most = {"warps": MAX_WARPS, "stages": MAX_STAGES}.get(knob, MAX_TILE)
    findings = []
    for literal in values:
        value, span = literal.value, literal.span
        if not isinstance(value, int) or isinstance(value, bool):
            findings.append(Diagnostic("E802", f"`{knob}` takes integers", span))
        elif not 1 <= value <= most:
            message = f"`{knob}` is out of range"
            findings.append(Diagnostic("E802", message, span, label=f"1 to {most}"))
        elif knob != "stages" and value & (value - 1):
            near = 1 << (value.bit_length() - 1)
            help = f"{near} or {2 * near}" if 2 * near <= most else str(near)
            message = f"`{knob}` takes powers of two"
            findings.append(Diagnostic("E801", message, span, help=help))
    return findings


def repeated(clauses: tuple[ast.Clause, ...]) -> list[Diagnostic]:
    seen: dict[tuple, ast.Clause] = {}
    findings = []
    for clause in clauses:
        key = _key(clause)
        if key in seen:
            first = seen[key].span
            notes = ((first, "the first one"),) if first else ()
            message = "this clause is given twice"
            findings.append(Diagnostic("E601", message, clause.span, notes=notes))
        seen.setdefault(key, clause)
    return findings


def _key(clause: ast.Clause) -> tuple:
    match clause:
        case ast.Tol(dtype):
            return ast.Tol, dtype
        case ast.GradBlock() | ast.GradNone():
            return (ast.GradBlock,)
        case _:
            return (type(clause),)


def _one_of(words: tuple[str, ...]) -> str:
    return " or ".join(f"`{word}`" for word in words)
