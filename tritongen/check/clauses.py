"""Clauses: what stands below the lines.

Input: the clauses of an op and its scope, lines checked. Output: the fields of the IR's `Op`. The
words and numbers themselves were checked by the parser. Not here: deriving a gradient (`autodiff`).
"""

from __future__ import annotations

from typing import Any

from tritongen.check import lines
from tritongen.check.scope import Scope, Variable
from tritongen.check.signature import index_names
from tritongen.errors import Span, SpecError
from tritongen.ir.nodes import Nest, Tolerance
from tritongen.syntax import ast
from tritongen.syntax.ref import parse_ref

KNOBS = ("warps", "stages")
DEFAULT_ATOL = 0.0


def clauses_of(scope: Scope, op: ast.OpDef) -> dict[str, Any]:
    """The keyword arguments that the clauses amount to."""
    found: dict[str, Any] = {}
    tolerances: list[Tolerance] = []
    knobs: list[ast.Knob] = []
    for clause in op.clauses:
        match clause:
            case ast.GradNone():
                found["gradient"] = "none"
            case ast.GradBlock():
                is_float = any(scope.kind(o.dtype) == "float" for o in scope.outputs.values())
                found["gradient"] = gradient(scope, op, clause) if is_float else "none"
            case ast.Ref(text):
                _ref(scope, clause)
                found["ref"] = text
            case ast.Doc(text):
                found["doc"] = text
            case ast.Precision(mode):
                found["precision"] = mode
            case ast.Autocast(mode):
                found["autocast"] = mode
            case ast.Tol(dtype, rtol, atol):
                # One number serves for both.
                tolerances.append(Tolerance(dtype, rtol, rtol if atol is None else atol))
            case ast.Tune(items):
                knobs.extend(items)
    _check_knobs(scope, knobs)
    if tolerances:
        found["tolerances"] = tuple(tolerances)
    if knobs:
        found["tune"] = tuple((k.name, tuple(k.values)) for k in knobs)
    return found


def _check_knobs(scope: Scope, knobs: list[ast.Knob]) -> None:
    indices = {b.index for nest in scope.nests for b in nest.box} | scope.index_names
    seen = set()
    for knob in knobs:
        if knob.name in seen:
            scope.report.add("E601", f"`{knob.name}` is given twice", knob.span)
        seen.add(knob.name)
        if knob.name not in indices and knob.name not in KNOBS:
            help = scope.nearest(knob.name, indices | set(KNOBS)) or "tiles are named by index"
            scope.report.add("E602", f"there is no index `{knob.name}`", knob.span, help=help)


def _ref(scope: Scope, clause: ast.Ref) -> None:
    try:
        program = parse_ref(clause.text, clause.span)
    except SpecError as error:
        for d in error.diagnostics:
            scope.report.diagnostics.append(d)
        return
    known = {p.name for p in scope.op.params}
    for name in sorted(program.names - known - {"torch"}):
        scope.report.add(
            "E604",
            f"`{name}` is not an operand",
            clause.span,
            help=scope.nearest(name, known) or "a `ref` reads operands, scalars and constants",
        )


# ---- gradients by hand --------------------------------------------------------------------------
def gradient(scope: Scope, op: ast.OpDef, block: ast.GradBlock) -> tuple[Nest, ...]:
    """The nests of a `grad` block: `dx` of each floating operand and scalar, from `dy` of each output."""
    inner = _grad_scope(scope, op, block)
    assigned = {line.name for line in block.lines}
    for name in [name for name in inner.outputs if name not in assigned]:
        del inner.outputs[name]
        help = f"assign it, with zeros where nothing flows back: `{name}[...] = ...`"
        scope.report.add(
            "E702", f"the `grad` block does not assign `{name}`", block.span, help=help
        )
    lines.check_lines(inner, block.lines)
    scope.used |= inner.used
    return tuple(inner.nests)


def _grad_scope(scope: Scope, op: ast.OpDef, block: ast.GradBlock) -> Scope:
    inner = Scope(
        op,
        scope.report,
        scope.typarams,
        variables=dict(scope.variables),
        scalars=scope.scalars,
        constants=scope.constants,
        sizes=scope.sizes,
        facts=scope.facts,
        known=scope.known,
        broken=set(scope.broken),
        used=set(scope.used),
        taken=set(scope.taken),
        index_names=set(scope.index_names),
        library=scope.library,
    )
    for output in scope.outputs.values():
        name = f"d{output.name}"
        _claim(inner, name, block)
        if scope.kind(output.dtype) == "float":
            inner.variables[name] = Variable(
                name, output.dims, output.dtype, "cotangent", output.span
            )
    for operand in scope.variables.values():
        if operand.role == "operand" and scope.kind(operand.dtype) == "float":
            name = f"d{operand.name}"
            _claim(inner, name, block)
            inner.outputs[name] = Variable(
                name, operand.dims, operand.dtype, "output", operand.span
            )
    assigned = {line.name for line in block.lines}
    for scalar in scope.scalars.values():
        name = f"d{scalar.name}"
        if scope.kind(scalar.dtype) == "float" and name in assigned:
            _claim(inner, name, block)
            inner.outputs[name] = Variable(name, (), scalar.dtype, "output", None)
    own = inner.taken - inner.index_names
    for line in block.lines:
        if line.name in own and line.name not in inner.outputs:
            _two_meanings(inner, line.name, line.span)
        for name, span in index_names(line):
            if name in own:
                _two_meanings(inner, name, span)
            inner.index_names.add(name)
        inner.taken.add(line.name)
    return inner


def _two_meanings(scope: Scope, name: str, span: Span | None) -> None:
    message = f"`{name}` is already used above"
    scope.report.add("E112", message, span, help=f"rename it: `{scope.free(name)}`")


def _claim(scope: Scope, name: str, block: ast.GradBlock) -> None:
    if name in scope.taken:
        scope.report.add(
            "E702",
            f"`{name}` is reserved in a `grad` block",
            block.span,
            help=f"rename what is called `{name}` above",
        )
    scope.taken.add(name)
