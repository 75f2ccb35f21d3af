"""Syntax tree to canonical text.

Input: a node. Output: text that parses back to an equal node, with the fewest parentheses and one
line for each assignment, fact and clause. Example: `Binary("*", Binary("+", a, b), c)` gives
`(a + b) * c`. Comments and layout of the original are not kept.
"""

from __future__ import annotations

from typing import Any

from tritongen.syntax import ast

# how tightly each operator binds; a read with `else` binds least, since it may meet no operator
ELSE, OR, AND, NOT, COMPARE, SUM, TERM, UNARY, POWER, ATOM = range(10)
BINARY = {"+": SUM, "-": SUM, "*": TERM, "/": TERM, "//": TERM, "%": TERM, "**": POWER}


def unparse(node: Any) -> str:
    """The text of a file, a declaration, a line, a clause, a fact or an expression."""
    match node:
        case ast.File(items):
            return "\n".join(unparse(item) for item in items)
        case ast.Fn(name, params, body):
            inside = ", ".join(unparse(p) for p in params)
            return f"fn {name}({inside}) = {unparse(body)}\n"
        case ast.FnParam(name, default):
            return name + _default(default)
        case ast.OpDef():
            return _op(node)
        case ast.TypeParam(name, dtypes, default):
            return f"{name}: {' | '.join(dtypes)}" + (f" = {default}" if default else "")
        case ast.Operand(name, type, default):
            return f"{name}: {unparse(type)}{_default(default)}"
        case ast.ConstParam(name, dtype, default):
            return f"const {name}: {dtype}{_default(default)}"
        case ast.Type(dtype, dims):
            return dtype if dims is None else f"{dtype}[{_indices(dims)}]"
        case ast.Define(name, value):
            return f"{name} = {_expr(value, OR)}"
        case ast.Require(value):
            return _expr(value, OR)
        case ast.Assign(name, indices, value):
            left = name if indices is None else f"{name}[{_commas(indices)}]"
            return f"{left} = {unparse(value)}"
        case ast.Binder():
            return _binder(node)
        case ast.Keyword(name, value):
            return f"{name} = {unparse(value)}"
        case ast.TypeKeyword(name, dtype):
            return f"{name} = {dtype}"
        case ast.Dots():
            return ast.DOTS
        case ast.Knob(name, values):
            return f"{name} = [{', '.join(map(str, values))}]"
        case ast.GradBlock() | ast.GradNone() | ast.Ref() | ast.Doc() | ast.Precision():
            return _clause(node)
        case ast.Autocast() | ast.Tol() | ast.Tune():
            return _clause(node)
        case _:
            return _expr(node, ELSE)


def _commas(nodes: tuple[ast.Node, ...]) -> str:
    return ", ".join(unparse(node) for node in nodes)


def _indices(nodes: tuple[ast.Index, ...]) -> str:
    return ", ".join(ast.DOTS if isinstance(n, ast.Dots) else _expr(n, ELSE) for n in nodes)


def _default(literal: ast.Literal | None) -> str:
    return "" if literal is None else f" = {unparse(literal)}"


def _op(op: ast.OpDef) -> str:
    typarams = f"<{_commas(op.typarams)}>" if op.typarams else ""
    outputs = _commas(op.outputs) if len(op.outputs) == 1 else f"({_commas(op.outputs)})"
    head = f"op {op.name}{typarams}({_commas(op.params)}) -> {outputs}"
    facts = ",\n         ".join(unparse(fact) for fact in op.facts)
    head += f"\n    with {facts} {{" if facts else " {"
    body = [unparse(line) for line in op.lines] + [unparse(clause) for clause in op.clauses]
    return "\n  ".join([head, *body]) + "\n}\n"


def _clause(clause: ast.Clause) -> str:
    match clause:
        case ast.GradBlock(lines):
            return "grad {\n    " + "\n    ".join(unparse(line) for line in lines) + "\n  }"
        case ast.GradNone():
            return "grad none"
        case ast.Ref(text):
            return f'ref "{text}"'
        case ast.Doc(text):
            return f'doc "{text}"'
        case ast.Precision(mode):
            return f"precision {mode}"
        case ast.Autocast(mode):
            return f"autocast {mode}"
        case ast.Tol(dtype, rtol, atol):
            return f"tol {dtype} = {rtol!r}" + ("" if atol is None else f", {atol!r}")
        case ast.Tune(knobs):
            return f"tune {_commas(knobs)}"
        case _:
            raise TypeError(f"not a clause: {clause!r}")


def _binder(binder: ast.Binder) -> str:
    low = _expr(binder.low, SUM) if binder.low is not None else ""
    high = _expr(binder.high, SUM) if binder.high is not None else ""
    below = "<" if binder.high_strict else "<="
    if low and high:
        return f"{low} {'<' if binder.low_strict else '<='} {binder.name} {below} {high}"
    if low:
        return f"{binder.name} {'>' if binder.low_strict else '>='} {low}"
    return f"{binder.name} {below} {high}" if high else binder.name


def _expr(node: ast.Expr, least: int) -> str:
    """The text of an expression where operators of at least this precedence need no parentheses."""
    text, precedence = _text(node)
    return text if precedence >= least else f"({text})"


def _text(node: ast.Expr) -> tuple[str, int]:
    match node:
        case ast.Number(_, text):
            return text, UNARY if text.startswith("-") else ATOM
        case ast.Bool(value):
            return "true" if value else "false", ATOM
        case ast.Name(name) | ast.Size(name):
            return name, ATOM
        case ast.Read(name, indices, fill):
            text = f"{name}[{_indices(indices)}]"
            return (text, ATOM) if fill is None else (f"{text} else {unparse(fill)}", ELSE)
        case ast.Reduce(op, binders, body):
            return f"{op}[{_commas(binders)}]({unparse(body)})", ATOM
        case ast.Call(name, args, keywords, types):
            return f"{name}({_commas((*args, *keywords, *types))})", ATOM
        case ast.Unary(op, x):
            return f"{op}{_expr(x, UNARY)}", UNARY
        case ast.Binary("**", a, b):
            return f"{_expr(a, ATOM)} ** {_expr(b, UNARY)}", POWER
        case ast.Binary(op, a, b):
            own = BINARY[op]
            return f"{_expr(a, own)} {op} {_expr(b, own + 1)}", own
        case ast.Compare(op, a, b):
            return f"{_expr(a, SUM)} {op} {_expr(b, SUM)}", COMPARE
        case ast.BoolOp(op, a, b):
            own = AND if op == "and" else OR
            return f"{_expr(a, own)} {op} {_expr(b, own + 1)}", own
        case ast.Not(x):
            return f"not {_expr(x, NOT)}", NOT
        case _:
            raise TypeError(f"not an expression: {node!r}")
