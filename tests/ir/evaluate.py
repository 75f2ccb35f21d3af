"""Expressions of the language without indices, evaluated by the torch texts of the function table."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tritongen.ir.functions import BUILTINS, FUNCTIONS, OPERATORS, Function
from tritongen.syntax import ast


def apply_torch(row: Function, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The row's torch text with its holes a, b, c taken from `values`."""
    return eval(row.torch.template.format(a="a", b="b", c="c"), {"torch": torch, **values})


def evaluate(
    expr: ast.Expr, names: Mapping[str, torch.Tensor], macros: Mapping[str, ast.Fn] | None = None
) -> torch.Tensor:
    """In f64; a call of one of the macros is its body, pasted in."""
    macros = macros or {}

    def value(part: ast.Expr) -> torch.Tensor:
        return evaluate(part, names, macros)

    def apply(row: str, *args: ast.Expr) -> torch.Tensor:
        return apply_torch(FUNCTIONS[row], dict(zip("abc", map(value, args), strict=False)))

    match expr:
        case ast.Number(value=number):
            return torch.tensor(float(number), dtype=torch.float64)
        case ast.Name(name=name):
            return names[name]
        case ast.Unary(x=x):
            return apply("neg", x)
        case ast.Binary(op, a, b) | ast.Compare(op, a, b) | ast.BoolOp(op, a, b):
            return apply(OPERATORS[op], a, b)
        case ast.Call(name=name, args=args) if name in macros:
            macro = macros[name]
            given = [*map(value, args), *(value(p.default) for p in macro.params[len(args) :])]
            parameters = (p.name for p in macro.params)
            return evaluate(macro.body, dict(zip(parameters, given, strict=True)), macros)
        case ast.Call(name=name, args=args):
            return apply(BUILTINS[name], *args)
    raise AssertionError(expr)
