"""The signature: what the names of an op are, its sizes and facts.

Input: an op of the tree and a kind for each type parameter. Output: a `Scope` with operands,
outputs, scalars, constants, sizes, facts. One scope of names an op: a name that stands for two things
is refused here, both places named. Not here: lines.
"""

from __future__ import annotations

from tritongen.check.coordinates import held, size_of
from tritongen.check.functions import Library
from tritongen.check.report import Report, Skip
from tritongen.check.scope import Scope, Variable
from tritongen.check.trees import mentions, renamed, walk
from tritongen.check.typings import check_types
from tritongen.errors import Span, fix_at
from tritongen.ir import bounds
from tritongen.ir.algebra import Overgrown, Poly
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    NARROW_FLOATS,
    Constant,
    Define,
    Param,
    Require,
    Scalar,
    Tensor,
    TypeParam,
)
from tritongen.syntax import ast
from tritongen.syntax.head import capitalised, typed
from tritongen.syntax.unparse import unparse


def scope_of(
    op: ast.OpDef, typarams: tuple[TypeParam, ...], library: Library, report: Report
) -> Scope:
    """The scope before the first line."""
    scope = Scope(op, report, typarams, library=library)
    declare(scope, op)
    check_types(scope, op)
    _params(scope, op)
    _bind_sizes(scope, op)
    _dims(scope, op)
    _check_batch(scope, op)
    _facts(scope, op)
    return scope


# ---- names --------------------------------------------------------------------------------------
def declare(scope: Scope, op: ast.OpDef) -> None:
    """Reports E112 for every name that is used for two things."""
    seen: dict[str, tuple[str, Span | None]] = {}

    def add(name: str, what: str, span: Span | None, line: ast.Assign | None = None) -> None:
        if name in seen and seen[name][0] == what == "index":
            return
        if name not in seen:
            seen[name] = (what, span)
            return
        other, place = seen[name]
        if what == "index":
            scope.index_names.discard(name)
        message = f"`{name}` is {_article(other)} and {_article(what)}"
        if other == what:
            message = f"`{name}` is declared twice"
        notes, help, fix = ((place, f"{_article(other)} here"),), "", None
        if line is None:
            help = f"rename one of them: `{_other(name, seen)}`"
        else:
            here = {n for n, _ in index_names(line)}
            free = scope.free_index(name, frozenset({*seen, *here}))
            help = f"rename the index: `{free}`"
            if name in tensors:  # else what stands bare in the line may be either of the two
                fix = fix_at(line.whole, unparse(renamed(line, name, free)))
        scope.report.add("E112", message, span, notes=notes, help=help, fix=fix)

    tensors = {p.name for p in op.params if isinstance(p, ast.Operand) and p.type.dims}
    tensors |= {line.name for line in op.lines if line.indices}
    for t in op.typarams:
        add(t.name, "type parameter", t.span)
    for p in op.params:
        tensor = isinstance(p, ast.Operand) and p.type.dims is not None
        add(p.name, "operand" if tensor else _param_kind(p), p.span)
    for o in op.outputs:
        add(o.name, "output", o.span)
    for name, span in _size_names(op):
        if name not in seen or seen[name][0] != "size":
            add(name, "size", span)
    outputs = {o.name for o in op.outputs}
    for line in op.lines:
        if line.name not in outputs and seen.get(line.name, ("",))[0] != "temporary":
            add(line.name, "temporary", line.span)
    scope.taken |= set(seen)
    for line in op.lines:
        for name, span in index_names(line):
            scope.index_names.add(name)
            add(name, "index", span, line)
    scope.taken |= scope.index_names


def _param_kind(p: ast.Param) -> str:
    return "constant" if isinstance(p, ast.ConstParam) else "scalar"


def _article(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


def _other(name: str, seen: dict) -> str:
    number = 2
    while f"{name}{number}" in seen:
        number += 1
    return f"{name}{number}"


def _size_names(op: ast.OpDef):
    """Names of sizes where they are bound: alone in a dim of an operand, or by a fact."""
    for p in op.params:
        if isinstance(p, ast.Operand):
            for d in p.type.dims or ():
                if isinstance(d, ast.Size):
                    yield d.name, d.span
    bound = set()
    for f in op.facts:
        if isinstance(f, ast.Define) and f.name not in bound:
            bound.add(f.name)
            yield f.name, f.span


def index_names(line: ast.Assign):
    """The indices that a line binds, left and right."""
    for left in line.indices or ():
        if isinstance(left, (ast.Name, ast.Binder)):
            yield left.name, left.span
    for node in walk(line.value):
        if isinstance(node, ast.Reduce):
            for b in node.binders:
                if b.name != BATCH:
                    yield b.name, b.span


# ---- parameters ---------------------------------------------------------------------------------
def _params(scope: Scope, op: ast.OpDef) -> None:
    for p in op.params:
        match p:
            case ast.ConstParam(name, dtype, default):
                value = default.value if default is not None else None
                if dtype == "float" and value is not None:
                    value = float(value)
                scope.constants[name] = Constant(name, dtype, value)
            case ast.Operand(name, ast.Type(dtype, None), default):
                _scalar(scope, p, name, dtype, default)


def _scalar(scope: Scope, p: ast.Operand, name: str, dtype: str, default) -> None:
    if not scope.is_dtype(dtype) or dtype in NARROW_FLOATS:
        fixes = [typed(p.type.span, dtype), fix_at(p.type.span, "f32")]
        found = [f for f in fixes if f and dtype not in NARROW_FLOATS]
        scope.report.add(
            "E110",
            f"unknown dtype `{dtype}`",
            p.type.span,
            help="a tensor has a shape, a number has one dtype: {}" if found else "",
            fix=found[0] if found else None,
            others=tuple(found[1:]),
        )
        dtype = "f32"
    elif any(t.name == dtype for t in scope.typarams):
        scope.report.add(
            "E304",
            f"the scalar `{name}` has the type parameter `{dtype}` as its type",
            p.type.span,
            help="a number has one dtype, a tensor has a shape: {}",
            fix=fix_at(p.type.span, "f32"),
            others=(shaped,) if (shaped := typed(p.type.span, dtype)) else (),
        )
    value = default.value if default is not None else None
    kind = scope.kind(dtype)
    fits = {
        "float": isinstance(value, (int, float)) and not isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
    }[kind]
    if value is not None and not fits:
        scope.report.add("E109", f"this default is not of type {dtype}", default.span)
    elif kind == "float" and value is not None:
        value = float(value)
    scope.scalars[name] = Scalar(name, dtype, value)


# ---- sizes --------------------------------------------------------------------------------------
def _bind_sizes(scope: Scope, op: ast.OpDef) -> None:
    typarams = {p.name for p in op.typarams}
    for p in op.params:
        if isinstance(p, ast.Operand):
            for d in p.type.dims or ():
                if isinstance(d, ast.Size) and d.name not in typarams:
                    scope.sizes.setdefault(d.name, d.span)
    for f in op.facts:
        if isinstance(f, ast.Define):
            if f.name in scope.sizes:
                scope.report.add(
                    "E504",
                    f"size `{f.name}` already has a value",
                    f.span,
                    help="require it",
                    fix=fix_at(f.span, f"{f.name} == {unparse(f.expr)}"),
                    notes=((scope.sizes[f.name], "bound here"),),
                )
            scope.sizes.setdefault(f.name, f.span)


def _dims(scope: Scope, op: ast.OpDef) -> None:
    for p in (*op.params, *op.outputs):
        is_output = any(p is o for o in op.outputs)
        if not isinstance(p, ast.Operand) or (p.type.dims is None and not is_output):
            continue
        if not scope.is_dtype(p.type.dtype):
            _unknown_dtype(scope, op, p.type)
            scope.broken.add(p.name)
            continue
        dims = _dims_of(scope, p)
        if dims is None:
            scope.broken.add(p.name)
            continue
        role = "output" if is_output else "operand"
        variable = Variable(p.name, dims, p.type.dtype, role, p.span)
        (scope.outputs if is_output else scope.variables)[p.name] = variable


def _unknown_dtype(scope: Scope, op: ast.OpDef, type_: ast.Type) -> None:
    fix, help = typed(type_.span, type_.dtype), f"`<{type_.dtype}: float>` declares it"
    message = f"unknown dtype `{type_.dtype}`"
    scope.report.add(
        "E110", message, type_.span, help="declare it: {}" if fix else help, fix=fix, otherwise=help
    )


def _check_batch(scope: Scope, op: ast.OpDef) -> None:
    """`...` of an output is that of the operands."""
    for o in op.outputs:
        for d in o.type.dims or ():
            if isinstance(d, ast.Dots) and not scope.has_batch:
                help = "give an operand batch dims, as `x: T[..., D]`"
                label = "no operand has `...`"
                scope.report.add("E208", "`...` is not bound", d.span, label=label, help=help)
                scope.broken.add(o.name)


def _dims_of(scope: Scope, p: ast.Operand) -> tuple[Poly, ...] | None:
    dims, failed = [], False
    for d in p.type.dims or ():
        if isinstance(d, ast.Dots):
            if BATCH_SIZE in dims:
                scope.report.add("E207", "`...` stands twice", d.span)
                failed = True
            dims.append(BATCH_SIZE)
            continue
        if isinstance(d, ast.Name) and d.name not in scope.constants:
            fix = capitalised(d.span, scope.constants)
            message, help = f"`{d.name}` is no size", "sizes are upper case"
            scope.report.add("E208", message, d.span, help=help, fix=fix)
            failed = True
            continue
        try:
            dim = size_of(scope, d)
            if dim.constant is not None and dim.constant < 0:
                scope.report.fail("E504", "a dim is not negative", d.span)
            dims.append(dim)
        except Skip:
            failed = True
    return None if failed else tuple(dims)


# ---- facts --------------------------------------------------------------------------------------
def _facts(scope: Scope, op: ast.OpDef) -> None:
    """Facts in order; what they say is known to the proofs from there on."""
    bound = {d.name for p in op.params if isinstance(p, ast.Operand)
             for d in p.type.dims or () if isinstance(d, ast.Size)}  # fmt: skip
    # Divisors that are constants were required to be positive by dims already: facts come after.
    early, scope.facts = scope.facts, []
    scope.known = bounds.gather(bound, early)
    scope.facts = early
    later = {f.name for f in op.facts if isinstance(f, ast.Define)} - bound
    for fact in op.facts:
        for node in walk(fact.expr):
            if isinstance(node, ast.Size) and node.name in later:
                message = f"`{node.name}` is used before the fact that defines it"
                scope.report.add("E114", message, node.span, help="put that fact first")
        try:
            _fact(scope, fact)
        except Skip:
            pass
        except Overgrown as where:
            raise Overgrown(*(where.args or (fact.span,))) from None
        if isinstance(fact, ast.Define):
            later.discard(fact.name)
        scope.used |= mentions(fact.expr)
    every = (*scope.variables.values(), *scope.outputs.values())
    scope.known = bounds.gather(bound, scope.facts, (dim for v in every for dim in v.dims))


def _fact(scope: Scope, fact: ast.Fact) -> None:
    if isinstance(fact, ast.Define):
        value = size_of(scope, fact.expr)
        scope.facts.append(Define(fact.name, value))
        scope.known = bounds.define(scope.known, fact.name, value)
        held(scope, scope.known.equal[fact.name], fact.span)
        return
    for part in _conjuncts(fact.expr):
        if not isinstance(part, ast.Compare):
            scope.report.fail(
                "E504",
                f"`{unparse(part)}` is not a fact",
                fact.span,
                help="a fact is `P = ...` or compares sizes, as `C % groups == 0`",
            )
        left, right = size_of(scope, part.a), size_of(scope, part.b)
        is_number = bounds.simplify(left - right, scope.known).constant is not None
        if is_number and bounds.prove(left, part.op, right, scope.known) is False:
            scope.report.fail("E504", f"`{unparse(part)}` is never true", fact.span)
        scope.require(Require(left, part.op, right, unparse(part)))


def _conjuncts(node: ast.Expr) -> tuple[ast.Expr, ...]:
    if isinstance(node, ast.BoolOp) and node.op == "and":
        return (*_conjuncts(node.a), *_conjuncts(node.b))
    return (node,)


def tensors_of(scope: Scope, op: ast.OpDef) -> tuple[tuple[Param, ...], tuple[Tensor, ...]]:
    """The parameters and outputs of the IR."""
    params: list[Param] = []
    for p in op.params:
        if p.name in scope.constants:
            params.append(scope.constants[p.name])
        elif p.name in scope.scalars:
            params.append(scope.scalars[p.name])
        else:
            v = scope.variables[p.name]
            params.append(Tensor(v.name, v.dtype, v.dims))
    outputs = tuple(Tensor(v.name, v.dtype, v.dims) for v in scope.outputs.values())
    return tuple(params), outputs
