"""Ops that call ops: the callee's body is pasted into the caller under fresh names.

Input: a line without indices, `y = silu(conv2d(x, w, b, pad = 1))`. Output: the line, where each op call is replaced by
the name of a temporary. The nests of the temporary are now in the scope. The callee's facts are proven, or become
requirements. `inline` renames, and `compose` handles refs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from tritongen.check import functions, pointwise
from tritongen.check.arguments import agree_dims, bare, bind_dims, bind_dtypes, broadcast, paired
from tritongen.check.coordinates import size_of
from tritongen.check.inline import Renaming, renamed_nest
from tritongen.check.ranges import Frame
from tritongen.check.report import Skip
from tritongen.check.scope import Scope, Variable
from tritongen.check.trees import walk
from tritongen.check.values import Value, convert, store
from tritongen.errors import SpecError
from tritongen.ir import bounds
from tritongen.ir.algebra import Poly, size, text
from tritongen.ir.batches import own_batches
from tritongen.ir.free import all_indices
from tritongen.ir.names import free_name
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Call,
    Cast,
    Constant,
    Define,
    Expr,
    Nest,
    Op,
    Read,
    Reduce,
    Require,
    Scalar,
    Tensor,
    kind_of,
)
from tritongen.ir.nodes import walk as walk_expr
from tritongen.ir.print_poly import poly_ast
from tritongen.ir.prune import pruned
from tritongen.syntax import ast
from tritongen.syntax.limits import MAX_EXPANDED, MAX_NESTS
from tritongen.syntax.unparse import unparse


def is_op_call(node: ast.Node, scope: Scope) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and functions.builtin(node.name) is None
        and not scope.is_dtype(node.name)
        and scope.library.fn(node.name) is None
        and scope.library.op(node.name) is not None
    )


def expand_calls(scope: Scope, line: ast.Assign) -> ast.Expr | None:
    """The right side without op calls; None where the line was one, and is written."""
    if is_op_call(line.value, scope):
        _inline(scope, line.value, line)
        return None
    return _expanded(scope, line.value)


def _expanded(scope: Scope, node: ast.Expr) -> ast.Expr:
    if not any(is_op_call(n, scope) for n in walk(node)):
        return node
    match node:
        case ast.Call() if is_op_call(node, scope):
            return ast.Name(_inline(scope, node, None), span=node.span)
        case ast.Call(_, args, keywords):
            changed = tuple(replace(k, value=_expanded(scope, k.value)) for k in keywords)
            return replace(node, args=tuple(_expanded(scope, a) for a in args), keywords=changed)
        case ast.Unary(_, x) | ast.Not(x):
            return replace(node, x=_expanded(scope, x))
        case ast.Binary(_, a, b) | ast.Compare(_, a, b) | ast.BoolOp(_, a, b):
            return replace(node, a=_expanded(scope, a), b=_expanded(scope, b))
    return node


# ---- the callee ---------------------------------------------------------------------------------
def typings_of_callee(scope: Scope, node: ast.Call) -> tuple[Op, ...]:
    """The checked callee. Its own errors are shown at its definition."""
    from tritongen.check.op import check_op

    definition, library = scope.library.op(node.name)
    path = [*library.in_progress, node.name]
    if node.name in library.in_progress:
        chain = " -> ".join(path[path.index(node.name) :])
        scope.report.fail("E502", f"`{node.name}` calls itself: {chain}", node.span)
    if len(definition.outputs) > 1:
        message = f"`{node.name}` has {len(definition.outputs)} outputs"
        help = "only an op with one output can be called"
        scope.report.fail("E503", message, node.span, help=help)
    try:
        return check_op(definition, library).typings
    except SpecError as error:
        scope.report.diagnostics.extend(error.diagnostics)
        raise Skip from None


def _inline(scope: Scope, node: ast.Call, line: ast.Assign | None) -> str:
    """Write the callee's nests; the name of its result."""
    typings = typings_of_callee(scope, node)
    callee = typings[0]
    if not scope.holds(callee.nests):
        message = f"`{node.name}` grows beyond {MAX_EXPANDED} operations or {MAX_NESTS} lines here"
        scope.report.fail("E009", message, node.span, help="split the op in two")
    names = [p.name for p in callee.params]
    given = functions.match_arguments(scope, node, names, f"{node.name}({', '.join(names)})")
    for p in callee.params:
        if p.name not in given and (isinstance(p, Tensor) or p.default is None):
            message = f"`{node.name}` needs its argument `{p.name}`"
            help = ""
            if isinstance(p, Tensor):
                named = ", ".join("..." if d == BATCH_SIZE else text(d) for d in p.dims)
                help = f"pass an operand like its `{p.name}: {p.dtype}[{named}]`"
            scope.report.fail("E501", message, node.span, help=help)
    tensors = {p.name: _tensor(scope, p, given[p.name]) for p in callee.tensors}
    functions.no_types(scope, node, [p.name for p in callee.free_typarams])
    dtypes, callee = bind_dtypes(scope, node, typings, tensors)
    sizes, own_batch, batch_dims = bind_dims(scope, node, callee, tensors)
    sizes |= _int_constants(scope, callee, given)
    _bind_facts(scope, node, callee, tensors, sizes, batch_dims, own_batch)
    callee, owns = own_batches(callee)
    for own in owns:
        tensors[own.name], own_batch[own.name] = (d[own.tensor.name] for d in (tensors, own_batch))
    renaming = Renaming(
        {name: v.name for name, v in tensors.items()} | _result_names(scope, callee, line),
        {name: v.dtype for name, v in tensors.items()} | _result_dtypes(scope, callee),
        _floats(callee),
        own_batch,
        sizes,
        _index_names(scope, callee),
        _numbers(scope, callee, given),
        dtypes,
        {},
    )
    batch = _batch(scope, callee, renaming, batch_dims)
    spaces = {BATCH: batch}
    for own in owns:
        dims: tuple[Poly, ...] = ()
        for t in own.operands:
            dims = broadcast(scope, node, dims, own_batch[t.name])
        indices = (name for name, _ in batch[len(batch) - len(dims) :])
        spaces[own.index] = spaces[own.size] = tuple(zip(indices, dims, strict=True))
    renaming = replace(renaming, spaces=spaces)
    for nest in callee.nests:
        _write(scope, callee, nest, renaming, line)
    if any(_is_product(e) for nest in callee.nests for e in walk_expr(nest.body)):
        scope.precisions.add(callee.precision)
    return renaming.tensors[callee.outputs[0].name]


def _is_product(expr: Expr) -> bool:
    """A sum of products: what a precision speaks of, other than the sums and maxima of a norm or a pool."""
    if not isinstance(expr, Reduce) or expr.op != "sum":
        return False
    factors = expr.body.args if isinstance(expr.body, Call) and expr.body.fn == "mul" else ()
    return len(factors) == 2 and all(
        any(isinstance(e, Read) for e in walk_expr(f)) for f in factors
    )


def _floats(callee: Op) -> frozenset[str]:
    tensors = (*callee.tensors, *callee.outputs)
    return frozenset(t.name for t in tensors if kind_of(t.dtype, callee) == "float")


def _write(
    scope: Scope, callee: Op, nest: Nest, renaming: Renaming, line: ast.Assign | None
) -> None:
    is_result = nest.name == callee.outputs[0].name
    floats = kind_of(nest.dtype, callee) == "float"
    if is_result and floats and isinstance(nest.body, Cast):
        value = nest.body.arg  # no store, no rounding
        asked = all(t.dtype != nest.dtype for t in callee.tensors)  # for this dtype: a conversion
        body = Cast(nest.body, value.dtype) if asked else value
        nest = replace(nest, body=body, dtype=value.dtype)
    dims = {name: variable.dims for name, variable in scope.variables.items()}
    new = pruned(renamed_nest(nest, renaming), dims, scope.known)
    output = scope.outputs.get(new.name)
    if output is not None and line is not None:
        _check_result(scope, new, output, line)
        body = store(scope, Value(new.body), output.dtype, line.span)
        new = replace(new, dims=output.dims, body=body, dtype=output.dtype)
        scope.variables[new.name] = output
    else:
        scope.variables[new.name] = Variable(new.name, new.dims, new.dtype, "temporary", None)
    scope.used.add(new.name)
    scope.index_names |= {b.index for b in new.box}
    scope.taken |= {b.index for b in new.box}
    scope.nests.append(new)


def _check_result(scope: Scope, new: Nest, output: Variable, line: ast.Assign) -> None:
    if len(new.dims) != len(output.dims) or (BATCH_SIZE in new.dims) != (BATCH_SIZE in output.dims):
        shown = ", ".join(map(text, new.dims))
        scope.report.fail(
            "E201",
            f"the result has the dims [{shown}], not those of `{output.name}`",
            line.span,
            notes=((output.span, "declared here"),),
        )
    for ours, theirs in zip(output.dims, new.dims, strict=True):
        agree_dims(scope, ours, theirs, line.value, f"`{output.name}`")


def _result_names(scope: Scope, callee: Op, line: ast.Assign | None) -> dict[str, str]:
    names = {}
    for nest in callee.nests:
        if nest.name == callee.outputs[0].name:
            names[nest.name] = line.name if line is not None else scope.fresh(callee.name)
        else:
            names[nest.name] = scope.fresh(nest.name)
    return names


def _result_dtypes(scope: Scope, callee: Op) -> dict[str, str]:
    """The callee's output is a temporary here: floats have their compute type."""
    (output,) = callee.outputs
    if kind_of(output.dtype, callee) == "float":
        return {output.name: "compute"}
    return {}


def _index_names(scope: Scope, callee: Op) -> dict[str, str]:
    """Fresh names for the callee's indices that mean something else here."""
    own = all_indices(callee.nests)
    taken = scope.taken - scope.index_names
    renamed: dict[str, str] = {}
    for name in sorted(own - {"..."}):
        if name in taken:
            renamed[name] = free_name(name, taken, own, renamed.values())
    return renamed


def _batch(
    scope: Scope, callee: Op, renaming: Renaming, dims: tuple[Poly, ...]
) -> tuple[tuple[str, Poly], ...]:
    """An index for each of the dims that `...` stands for."""
    taken = (scope.taken - scope.index_names) | set(renaming.indices.values())
    taken |= all_indices(callee.nests)
    taken -= {"..."}
    found = []
    for dim in dims:
        name = pointwise.index_name(dim, taken)
        taken.add(name)
        found.append((name, dim))
    return tuple(found)


# ---- arguments ----------------------------------------------------------------------------------
def _tensor(scope: Scope, p: Tensor, node: ast.Expr) -> Variable:
    """A tensor argument. An expression of tensors becomes a line of its own."""
    value = _expanded(scope, node)
    if isinstance(value, ast.Name) and value.name in scope.variables:
        scope.used.add(value.name)
        return scope.variables[value.name]
    if not any(isinstance(n, ast.Name) and n.name in scope.variables for n in walk(value)):
        message = f"`{unparse(node)}` is not a tensor, but `{p.name}` is"
        scope.report.fail("E303", message, node.span)
    from tritongen.check.lines import write

    line = ast.Assign(scope.fresh(p.name), None, value, span=node.span)
    target, frame = pointwise.broadcast(scope, line, value)
    write(scope, line, target, frame, value)
    scope.used.add(line.name)
    return scope.variables[line.name]


def _int_constants(scope: Scope, callee: Op, given: dict[str, ast.Expr]) -> dict[str, Poly]:
    return {
        p.name: size_of(scope, _argument(p, given)) for p in callee.constants if p.dtype == "int"
    }


def _argument(p: Scalar | Constant, given: dict[str, ast.Expr]) -> ast.Expr:
    if p.name in given or p.default is None:
        return given[p.name]
    return ast.Bool(p.default) if isinstance(p.default, bool) else ast.Number(p.default)


def _numbers(scope: Scope, callee: Op, given: dict[str, ast.Expr]) -> dict:
    """Scalars, and constants that are no sizes, as expressions of the caller."""
    from tritongen.check.lower import lower

    found = {}
    for p in callee.params:
        if isinstance(p, Tensor) or (isinstance(p, Constant) and p.dtype == "int"):
            continue
        node = _argument(p, given)
        value = lower(scope, Frame(), node)
        kind = "float" if p.dtype == "float" else scope.kind(p.dtype)
        settled = isinstance(p, Scalar) or _is_constant(scope, node)
        rank_0 = value.weak or not any(
            isinstance(e, Read) and e.coords for e in walk_expr(value.expr)
        )
        if not settled or not rank_0:
            what = "a scalar" if isinstance(p, Scalar) else "a constant"
            message = f"`{p.name}` of `{callee.name}` is {what}"
            scope.report.fail("E303", message, node.span)
        dtype = {"float": "compute", "int": "i64", "bool": "bool"}[kind]
        found[p.name] = convert(scope, value, dtype)
    return found


def _is_constant(scope: Scope, node: ast.Expr) -> bool:
    return all(n.name in scope.constants for n in walk(node) if isinstance(n, ast.Name))


# ---- facts --------------------------------------------------------------------------------------
def _bind_facts(
    scope: Scope,
    node: ast.Call,
    callee: Op,
    tensors: dict[str, Variable],
    sizes: dict[str, Poly],
    batch: tuple[Poly, ...],
    own_batch: dict[str, tuple[Poly, ...]],
) -> None:
    """Derived sizes get a value, a name of the caller, or a new one; the rest is proven or asked."""
    empty = Renaming(
        {}, {}, frozenset(), {}, sizes, {}, {}, {}, {BATCH: tuple(("", d) for d in batch)}
    )
    for fact in callee.facts:
        if isinstance(fact, Define):
            sizes[fact.name] = _named(scope, fact.name, empty.poly(fact.value))
            continue
        # A fact about `...` that stays is checked for the caller's own lines.
        dims = dict.fromkeys(d for t in fact.batch for d in own_batch[t] if d != BATCH_SIZE)
        for left in dims if fact.batch else (empty.poly(fact.left),):
            _require(scope, node, fact, left, empty.poly(fact.right))
    for t in callee.tensors:
        pairs, _ = paired(scope, node, t, tensors[t.name])
        for theirs, ours in pairs:
            agree_dims(scope, empty.poly(theirs), ours, node, f"`{t.name}` of `{node.name}`")


def _require(scope: Scope, node: ast.Call, fact: Require, left: Poly, right: Poly) -> None:
    """The requirements of the callee, in the caller's sizes."""
    verdict = bounds.prove(left, fact.op, right, scope.known)
    shown = unparse(ast.Compare(fact.op, poly_ast(left), poly_ast(right)))
    if verdict is False:
        message = f"`{node.name}` requires {fact.text}, here {shown}, which is never true"
        scope.report.fail("E504", message, node.span)
    if verdict is None:
        scope.require(Require(left, fact.op, right, shown))


def _named(scope: Scope, name: str, value: Poly) -> Poly:
    """A derived size: itself if it is short, else the caller's name for it, or a new name."""
    if len(value.terms) <= 1 and (value.constant is not None or bare(value)):
        return value
    plain = bounds.simplify(value, scope.known)
    for known in scope.sizes:
        if bounds.simplify(size(known), scope.known) == plain:
            return size(known)
    new = scope.fresh(name)
    scope.sizes[new] = None
    scope.facts.append(Define(new, value))
    scope.known = bounds.define(scope.known, new, value)
    return size(new)
