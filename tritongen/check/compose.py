"""The `ref` of an op that calls ops: its callees' refs, one after the other.

Input: an op of lines without indices, every callee of which has a ref. Output: the text of a ref,
steps `name = expression;` and the output; None where something in it has no torch text. Example:

    y = silu(linear(x, w, b))  ->  linear = torch.nn.functional.linear(x, w, b);
                                   y = linear * torch.sigmoid(linear); y

Not here: what a ref may hold (`syntax.ref`).
"""

from __future__ import annotations

import ast as python
from collections.abc import Mapping
from dataclasses import dataclass, field

from tritongen.check import functions
from tritongen.check.calls import is_op_call, typings_of_callee
from tritongen.check.lines import in_order
from tritongen.check.scope import Scope
from tritongen.check.trees import has_index, walk
from tritongen.errors import SpecError
from tritongen.ir.algebra import Poly, size
from tritongen.ir.functions import ATOM, FUNCTIONS, OPERATORS, fill
from tritongen.ir.names import fresh
from tritongen.ir.nodes import BATCH_SIZE, Tensor
from tritongen.syntax import ast
from tritongen.syntax.ref import parse_ref

Text = tuple[str, int]  # and the precedence of its outermost operator


class NoText(Exception):
    """Something has no text in a ref."""


@dataclass(slots=True)
class Steps:
    scope: Scope
    taken: set[str]
    lines: list[tuple[str, str]] = field(default_factory=list)

    def name(self, base: str, text: str) -> Text:
        """Adds a step and returns its name."""
        name = fresh(base, self.taken)
        self.lines.append((name, text))
        return name, ATOM


def composed_ref(scope: Scope, op: ast.OpDef) -> str | None:
    """The ref that the lines amount to; None where they are written with indices, or call no op."""
    if len(op.outputs) != 1 or any(line.indices or has_index(line.value) for line in op.lines):
        return None
    if not any(is_op_call(n, scope) for line in op.lines for n in walk(line.value)):
        return None
    steps = Steps(scope, {p.name for p in op.params} | {line.name for line in op.lines})
    try:
        for line in in_order(scope, list(op.lines)):
            text, _ = _expr(steps, line.value, None)
            steps.lines.append((line.name, text))
    except NoText:
        return None
    result = "; ".join(f"{name} = {text}" for name, text in steps.lines)
    result += f"; {op.outputs[0].name}"
    try:
        parse_ref(result)
    except SpecError:
        return None
    return result


def _expr(steps: Steps, node: ast.Expr, macro: Mapping[str, Text] | None) -> Text:
    def of(inner: ast.Expr) -> Text:
        return _expr(steps, inner, macro)

    def apply(row: str, *args: ast.Expr) -> Text:
        return fill(FUNCTIONS[row].torch, [of(a) for a in args])

    match node:
        case ast.Number(value) if value == value and abs(value) != float("inf"):
            return (repr(value), ATOM) if value >= 0 else (f"({value!r})", ATOM)
        case ast.Bool(value):
            return repr(value), ATOM
        case ast.Name(name):
            return (name, ATOM) if macro is None else macro[name]
        case ast.Size(name):
            return _size(steps.scope, name), ATOM
        case ast.Unary(_, x):
            return apply("neg", x)
        case ast.Not(x):
            return apply("not", x)
        case ast.Binary(op, a, b) | ast.Compare(op, a, b) | ast.BoolOp(op, a, b):
            return apply(OPERATORS[op], a, b)
        case ast.Call(name, args) if steps.scope.is_dtype(name):
            return of(args[0])  # the harness passes f64: nothing rounds
        case ast.Call(name, args):
            row = functions.builtin(name)
            if row is not None:
                first, *others = args
                if row.arity != 2 or len(args) == 2:
                    return apply(row.name, first, *others)
                text = of(first)
                for other in others:  # max(a, b, c)
                    text = fill(row.torch, [text, of(other)])
                return text
            if is_op_call(node, steps.scope):
                return _op_call(steps, node, macro)
            return _macro_call(steps, node, macro)
    raise NoText


def _macro_call(steps: Steps, node: ast.Call, macro: Mapping[str, Text] | None) -> Text:
    fn = functions.macro(steps.scope, node)
    given = functions.arguments(steps.scope, fn, node)
    bound = {name: _simple(steps, name, arg, macro) for name, arg in given.items()}
    return _expr(steps, fn.body, bound)


def _simple(steps: Steps, base: str, node: ast.Expr, macro: Mapping[str, Text] | None) -> Text:
    """The text of an argument. A long one gets a name."""
    text = _expr(steps, node, macro)
    return text if text[1] == ATOM and "(" not in text[0] else steps.name(base, text[0])


def _op_call(steps: Steps, node: ast.Call, macro: Mapping[str, Text] | None) -> Text:
    callee = typings_of_callee(steps.scope, node)[0]
    if callee.ref is None:
        raise NoText
    names = [p.name for p in callee.params]
    given = functions.match_arguments(steps.scope, node, names, node.name)
    texts = {}
    for p in callee.params:
        if p.name in given:
            texts[p.name] = _simple(steps, p.name, given[p.name], macro)[0]
        elif not isinstance(p, Tensor):
            texts[p.name] = repr(p.default)
    program = parse_ref(callee.ref)
    for name, expression in program.steps:
        texts[name] = steps.name(name, _renamed(expression, texts))[0]
    return steps.name(callee.name, _renamed(program.result, texts))


def _renamed(expression: python.expr, texts: Mapping[str, str]) -> str:
    class Rename(python.NodeTransformer):
        def visit_Name(self, name: python.Name) -> python.expr:
            text = texts.get(name.id)
            return name if text is None else python.parse(text, mode="eval").body

    copy = python.parse(python.unparse(expression), mode="eval").body
    return python.unparse(Rename().visit(copy))


def _size(scope: Scope, name: str) -> str:
    """The place of a size in an operand: `x.shape[-1]`."""
    wanted: Poly = size(name)
    for v in scope.variables.values():
        if v.role == "operand" and wanted in v.dims:
            at = v.dims.index(wanted)
            before = BATCH_SIZE in v.dims[:at]
            return f"{v.name}.shape[{at - len(v.dims) if before else at}]"
    raise NoText
