"""Size expressions of a plan: conditions, configs, grids.

A rule is an expression in whole numbers, written as Python reads it: `min(64, cdiv(D, 4096))`,
`rows < 2 * sms and D > 8192`, `8 if D > 1024 else 4`. It is parsed with `ast`, checked against a
short list of nodes when the plan is made, printed as it stands by emit, and evaluated here for
`explain` and the tests. The functions are min, max, and those of `lib/counts.py`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from runpy import run_path
from types import FunctionType

from tritongen.resources import package_folder

OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


# Names that stand for what the `gpu` of a call has (`lib/device.py`).
OF_GPU = ("sms", "shared", "forward_progress")

# The library is run as text, because the compiler needs no torch.
OF_LIBRARY: dict[str, Callable[..., int]] = {
    name: value
    for name, value in run_path(str(package_folder("lib") / "counts.py")).items()
    if isinstance(value, FunctionType)
}
FUNCTIONS: dict[str, Callable[..., int]] = {**OF_LIBRARY, "min": min, "max": max}


@cache
def parse(rule: str) -> ast.expr:
    return ast.parse(rule, mode="eval").body


def evaluate(rule: str, facts: Mapping[str, int]) -> int:
    """The value of a rule; TypeError for a node that no rule may hold, KeyError for an unknown name."""
    return _compiled(rule)(facts)


@cache
def names(rule: str) -> frozenset[str]:
    """The names a rule speaks of, functions left out."""
    said = (n.id for n in ast.walk(parse(rule)) if isinstance(n, ast.Name))
    return frozenset(said) - FUNCTIONS.keys()


def conjuncts(rule: str) -> list[str]:
    """The conditions between the outermost `and`s. All of them must hold."""
    node = parse(rule)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [ast.unparse(part) for part in node.values]
    return [rule]


def conjunction(*rules: str) -> str:
    """The rule that holds where all of these do."""
    return " and ".join(rule for rule in rules if rule != "True") or "True"


Valued = Callable[[Mapping[str, int]], int]


@cache
def _compiled(rule: str) -> Valued:
    """A step asks its rules for every tile and kind of call: their nodes are looked at once."""
    return _value_of(parse(rule))


def _value_of(node: ast.expr) -> Valued:
    match node:
        case ast.Constant(value=int() as value):
            return lambda facts: value
        case ast.Name(id=name):
            return operator.itemgetter(name)
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(
            left=left, ops=[op], comparators=[right]
        ):
            apply, a, b = OPERATORS[type(op)], _value_of(left), _value_of(right)
            return lambda facts: apply(a(facts), b(facts))
        case ast.Compare(left=first, ops=ops, comparators=[middle, *rest]):
            head = ast.Compare(first, ops[:1], [middle])
            return _value_of(ast.BoolOp(ast.And(), [head, ast.Compare(middle, ops[1:], rest)]))
        case ast.BoolOp(op=op, values=values):
            every, each = all if isinstance(op, ast.And) else any, [_value_of(v) for v in values]
            return lambda facts: every(value(facts) for value in each)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            a = _value_of(operand)
            return lambda facts: not a(facts)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            asked, a, b = _value_of(test), _value_of(body), _value_of(orelse)
            return lambda facts: a(facts) if asked(facts) else b(facts)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            function, given = FUNCTIONS[name], [_value_of(a) for a in args]
            return lambda facts: function(*[value(facts) for value in given])
    raise TypeError(f"not a size expression: {ast.unparse(node)}")
