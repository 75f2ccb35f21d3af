"""Checks one op: syntax tree to typed IR, once for each choice of kinds.

Input: an op and the library of what it may call. Output: a `Checked`, or a `SpecError` with all findings.
`T: float | int` gives two typings. A finding in one of them names that typing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import prod

from tritongen.check import clauses, lines, signature
from tritongen.check.compose import composed_ref
from tritongen.check.divisors import require_divisors
from tritongen.check.functions import Library, prelude
from tritongen.check.report import Report
from tritongen.check.scope import Variable
from tritongen.check.typings import kinds_of, typings_of
from tritongen.check.unused import unused_operands
from tritongen.errors import Diagnostic, SpecError, fix_at
from tritongen.ir.algebra import Overgrown, poly, substitute
from tritongen.ir.batches import batched, read_by
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Define,
    Op,
    Reduce,
    Require,
    Tensor,
    TypeParam,
    walk,
)
from tritongen.ir.reducers import REDUCERS
from tritongen.ir.verify import verify
from tritongen.syntax import ast
from tritongen.syntax.limits import MAX_PARTS, MAX_TYPINGS
from tritongen.syntax.unparse import unparse
from tritongen.work import uncounted


@dataclass(frozen=True, slots=True)
class Checked:
    """One op of a file: a typed op for each choice of kinds of its type parameters."""

    name: str
    typings: tuple[Op, ...]
    warnings: tuple[Diagnostic, ...]


def check_op(op: ast.OpDef, library: Library, typing: Mapping[str, str] | None = None) -> Checked:
    """All typings of an op; `typing` narrows type parameters to a kind."""
    found = library.checked.get(op.name) if typing is None else None
    if found is None:
        try:
            once = library is prelude() and typing is None
            with uncounted() if once else nullcontext():
                found = _check(op, library, typing)
        except SpecError as error:
            found = error
        if typing is None:  # errors are cached too: an op that calls itself is wrong at every call
            library.checked[op.name] = found
    if isinstance(found, SpecError):
        raise found
    return found


def _check(op: ast.OpDef, library: Library, typing: Mapping[str, str] | None) -> Checked:
    wanted = typing or {}
    _refuse_many_typings(op)
    choices = [
        choice
        for choice in typings_of(op)
        if all(wanted.get(p.name, p.kind) == p.kind for p in choice)
    ]
    typed: list[Op | None] = []
    reports: list[Report] = []
    library.in_progress.append(op.name)
    try:
        for choice in choices:
            report = Report()
            try:
                typed.append(_typed(op, choice, library, report))
            except ZeroDivisionError:  # by a size that is 0 once the facts are put in
                fact = next((f for f in op.facts if _says_zero(f)), op)
                report.add("E504", "a divisor is 0 here", fact.span)
                typed.append(None)
            except Overgrown as sizes:
                typed.append(None)
                span = sizes.args[0] if sizes.args else op.span
                message = f"a size of more than {MAX_PARTS} parts, once derived sizes are put in"
                help = "give an operand a dim of this size: what a call binds has no parts"
                report.add("E009", message, span, help=help)
            reports.append(report)
    finally:
        library.in_progress.pop()
    errors = _merged([r.errors for r in reports], choices)
    if errors:
        raise SpecError(errors)
    warnings = tuple(dict.fromkeys(w for r in reports for w in r.warnings))
    ops = tuple(t for t in typed if t is not None)
    for t in ops:
        verify(t)
    return Checked(op.name, ops, warnings)


def _refuse_many_typings(op: ast.OpDef) -> None:
    """E009: typings are the product of the kinds of all type parameters."""
    count = prod(map(len, kinds_of(op)))
    if count <= MAX_TYPINGS:
        return
    widest = max(zip(op.typarams, kinds_of(op), strict=True), key=lambda pair: len(pair[1]))[0]
    message = f"the type parameters of `{op.name}` have {count} combinations of kinds; at most {MAX_TYPINGS} are allowed"
    help = "share one parameter where operands have one dtype, or keep one kind of some, as"
    fix = fix_at(widest.span, f"{widest.name}: float")
    raise SpecError([Diagnostic("E009", message, widest.span, help=help, fix=fix)])


def result_of(op: ast.OpDef, library: Library) -> Variable:
    """The value of the last line of an op that declares no outputs: its dims, in sizes of operands, and dtype."""
    (choice,) = typings_of(op)
    report = Report()
    scope = signature.scope_of(op, choice, library, report)
    lines.check_lines(scope, op.lines)
    if report.errors:
        raise SpecError(list(report.errors))
    value = scope.variables[op.lines[-1].name]
    derived = {f.name: f.value for f in scope.facts if isinstance(f, Define)}
    for _ in derived:  # one may stand in another
        dims = tuple(substitute(d, derived) for d in value.dims)
        value = replace(value, dims=dims)
    return value


def _says_zero(fact: ast.Fact) -> bool:
    match fact.expr:
        case ast.Compare("==", a, b):
            return any(isinstance(side, ast.Number) and side.value == 0 for side in (a, b))
    return False


def _typed(
    op: ast.OpDef, choice: tuple[TypeParam, ...], library: Library, report: Report
) -> Op | None:
    scope = signature.scope_of(op, choice, library, report)
    lines.check_lines(scope, op.lines)
    details = clauses.clauses_of(scope, op)
    if len(scope.precisions) == 1:
        details.setdefault("precision", *scope.precisions)
    unused_operands(scope, op)
    if report.errors:
        return None
    if "ref" not in details:
        details["ref"] = composed_ref(scope, op)
    params, outputs = signature.tensors_of(scope, op)
    by_hand = details.get("gradient")
    nests = (*scope.nests, *(by_hand if isinstance(by_hand, tuple) else ()))
    tensors = (t for t in (*params, *outputs) if isinstance(t, Tensor))
    require_divisors(scope, nests, (d for t in tensors for d in t.dims))
    typed = Op(
        op.name,
        choice,
        params,
        outputs,
        tuple(scope.facts),
        tuple(scope.nests),
        text=text_of(op),
        **details,
    )
    return replace(typed, facts=(*typed.facts, *terms_of_batches(typed)))


def terms_of_batches(op: Op) -> tuple[Require, ...]:
    """That max, min, argmax and argmin over `...` have a term: torch raises over an empty dim."""
    found = {}
    for e in (e for nest in op.nests for e in walk(nest.body)):
        if not isinstance(e, Reduce) or not REDUCERS[e.op].refuses_empty:
            continue
        if any(b.index == BATCH for b in e.binders):
            own = read_by(op, e) or {t.name for t in batched(op)}
            shown = f"... > 0 ({e.op} over `...` of {', '.join(f'`{t}`' for t in sorted(own))})"
            found[shown] = Require(BATCH_SIZE, ">", poly(0), shown, "bounds", tuple(sorted(own)))
    return tuple(found.values())


def _merged(
    found: list[tuple[Diagnostic, ...]], choices: list[tuple[TypeParam, ...]]
) -> list[Diagnostic]:
    """Findings of all typings, each once; those of some typings only say of which kind."""
    merged: dict[Diagnostic, list[int]] = {}
    for number, diagnostics in enumerate(found):
        for d in diagnostics:
            merged.setdefault(d, []).append(number)
    result = []
    for d, numbers in merged.items():
        if len(numbers) < len(choices):
            kinds = ", ".join(f"{p.name} is {p.kind}" for p in choices[numbers[0]])
            d = replace(d, message=f"{d.message} (where {kinds})")
        result.append(d)
    return sorted(result, key=lambda d: d.span.start if d.span else -1)


def text_of(op: ast.OpDef) -> str:
    """The op as it is written, from `op` to its closing brace."""
    if op.span is None:
        return unparse(op)
    text = op.span.source.text
    start = text.rindex("op", 0, op.span.start)
    last = (*op.lines, *op.clauses)[-1]
    ends = (last.span, last.value.span if isinstance(last, ast.Assign) else None)
    at = max(span.end for span in ends if span is not None)
    while at < len(text) and text[at] != "}":
        at = text.index("\n", at) if text[at] == "#" else at + 1
    return text[start : at + 1]
