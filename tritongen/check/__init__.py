"""Checking: syntax tree to typed IR, all errors of an op at once.

    (checked,) = check(parse(text, "softmax.op"))
    checked.typings[0]  ->  Op("softmax", ...)

`op.py` is where to start reading. Nothing here writes Triton, schedules, or differentiates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tritongen.check.functions import Library, check_macro, library_of
from tritongen.check.op import Checked, check_op
from tritongen.check.report import Report
from tritongen.check.scope import Scope
from tritongen.errors import Diagnostic, Span, SpecError, proven
from tritongen.faults import doing
from tritongen.ir.nodes import Cast, Expr, Op, Require, kind_of, rebuild
from tritongen.syntax import ast
from tritongen.syntax.parse import parse
from tritongen.syntax.rewrite import rewrites
from tritongen.work import Overworked, limited, uncounted

__all__ = ["Checked", "check", "read", "too_much_work"]


def read(text: str, name: str = "<text>") -> ast.File:
    """A file of ops, parsed; what its syntax errors propose has been checked, too."""
    try:
        return parse(text, name, proposals=False)
    except SpecError as error:
        raise SpecError(proven(error.diagnostics, _compiled, rewrites, first_only=True)) from None


def check(file: ast.File, typing: Mapping[str, str] | None = None) -> tuple[Checked, ...]:
    """Every op of a file, in order; SpecError with all that is wrong."""
    with limited() as outermost:
        try:
            return _checked(file, typing)
        except SpecError as error:
            findings = error.diagnostics
        except Overworked as work:
            if not outermost:
                raise
            raise SpecError([too_much_work(*work.args)]) from None
    raise SpecError(proven(findings, _compiled, rewrites)) from None


def too_much_work(span: Span | None = None) -> Diagnostic:
    """E009, at the op that the steps ran out in."""
    message = "compiling this takes more steps than a file may"
    help = "split the op in two, or the file into several"
    return Diagnostic("E009", message, span, help=help)


def _compiled(text: str) -> tuple[tuple[Diagnostic, ...], int]:
    """The findings of a proposed text, and the number of equal sizes that its calls need."""
    try:
        with uncounted(), limited():
            checked = _checked(parse(text, proposals=False))
    except SpecError as error:
        return error.diagnostics, 0
    except Overworked:
        return (too_much_work(),), 0
    ops = [op for c in checked for op in c.typings]
    return (), sum(isinstance(f, Require) and f.origin == "agree" for op in ops for f in op.facts)


def _checked(file: ast.File, typing: Mapping[str, str] | None = None) -> tuple[Checked, ...]:
    library = library_of(file)
    findings: list[Diagnostic] = _file_findings(file)
    if wrong := _macro_findings(file, library):
        raise SpecError((*findings, *wrong))  # an op that calls such a macro has no meaning
    checked = []
    for item in file.items:
        if isinstance(item, ast.OpDef):
            try:
                with doing("check", item.name, item.span):
                    checked.append(check_op(item, library, typing))
            except SpecError as error:
                findings.extend(error.diagnostics)
            except Overworked:
                raise Overworked(item.span) from None
    if findings:
        raise SpecError(tuple(dict.fromkeys(findings)))
    return tuple(_rounded_once(c) for c in checked)


def _rounded_once(checked: Checked) -> Checked:
    """Rounds a value to a dtype once, by its store or by a cast. Only a caller sees both."""
    typings = []
    for op in checked.typings:

        def once(expr: Expr, op: Op = op) -> Expr:
            match expr:
                case Cast(Cast(Cast(_, inner) as rounded, "compute" | "f64"), dtype):
                    same = inner == dtype and kind_of(dtype, op) == "float"
                    return rounded if same else expr
            return expr

        nests = (replace(n, body=rebuild(n.body, once)) for n in op.nests)
        typings.append(replace(op, nests=tuple(nests)))
    return replace(checked, typings=tuple(typings))


def _macro_findings(file: ast.File, library: Library) -> list[Diagnostic]:
    """What is wrong in the macros themselves, whoever calls them."""
    report = Report()
    for item in file.items:
        if isinstance(item, ast.Fn):
            check_macro(Scope(item, report, library=library), item)
    return list(report.errors)


def _file_findings(file: ast.File) -> list[Diagnostic]:
    """Names that a file declares twice, and a file without an op."""
    report = Report()
    seen: dict[str, ast.Node] = {}
    for item in file.items:
        if item.name in seen:
            note = (seen[item.name].span, "the first one")
            report.add("E112", f"`{item.name}` is declared twice", item.span, notes=(note,))
        seen.setdefault(item.name, item)
    if not any(isinstance(item, ast.OpDef) for item in file.items):
        help = "`op name<T: float>(x: T[N]) -> y: T[N] { y[n] = ... }`"
        report.add("E101", "there is no `op` here", _end(file), help=help)
    return list(report.errors)


def _end(file: ast.File) -> Span | None:
    return file.span and Span(file.span.source, file.span.end, file.span.end)
