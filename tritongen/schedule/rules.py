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


def settled(rule: str, known: Mapping[str, int]) -> str:
    """The rule for calls with these facts, as short as they make it."""
    if not names(rule) & known.keys():
        return rule
    node = _Settled(known).visit(ast.parse(rule, mode="eval").body)
    if not (isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)):
        return ast.unparse(node)
    # `unparse` puts brackets around each condition behind the second one.
    compound = ast.BoolOp, ast.IfExp
    parts = ((ast.unparse(v), isinstance(v, compound)) for v in node.values)
    return " and ".join(f"({text})" if several else text for text, several in parts)


class _Settled(ast.NodeTransformer):
    """Puts numbers in place of names, and values in place of what then has no names."""

    def __init__(self, known: Mapping[str, int]):
        self.known = known

    def visit(self, node: ast.AST) -> ast.AST:
        match super().generic_visit(node):
            case ast.Name(id=name) if name in self.known:
                return ast.Constant(self.known[name])
            case ast.BoolOp(op=op, values=values):
                return _joined(op, values)
            case ast.IfExp(test=ast.Constant(value=asked), body=body, orelse=orelse):
                return body if asked else orelse
            case ast.BinOp(
                left=ast.IfExp(test=test, body=ast.Constant() as a, orelse=ast.Constant() as b),
                op=op,
                right=ast.Constant() as c,
            ):
                return ast.IfExp(test, *(_number(ast.BinOp(x, op, c)) for x in (a, b)))
            case ast.Call(func=ast.Name(id="min" | "max" as name) as function, args=args):
                return _extreme(name, function, args)
            case ast.BinOp() | ast.Compare() | ast.UnaryOp() | ast.Call() as made:
                named = {n.id for n in ast.walk(made) if isinstance(n, ast.Name)}
                return made if named - FUNCTIONS.keys() else _number(made)
            case other:
                return other


def _number(node: ast.expr) -> ast.expr:
    value = _value_of(node)({})
    return ast.Constant(value) if value >= 0 else node  # a rule has no negative numbers


def _joined(op: ast.boolop, values: list[ast.expr]) -> ast.expr:
    """Conditions joined by `and` or `or`, without those that are known."""
    decides = isinstance(op, ast.Or)
    inner = (
        v.values if isinstance(v, ast.BoolOp) and type(v.op) is type(op) else [v] for v in values
    )
    flat = [x for own in inner for x in own]
    if any(x.value is decides for x in flat if isinstance(x, ast.Constant)):
        return ast.Constant(decides)
    left = [x for x in flat if not isinstance(x, ast.Constant)]
    if len(left) < 2:
        return left[0] if left else ast.Constant(not decides)
    return ast.BoolOp(op, left)


def _extreme(name: str, function: ast.Name, args: list[ast.expr]) -> ast.expr:
    """A minimum or maximum with one number at most."""
    inner = (
        x.args if isinstance(x, ast.Call) and ast.unparse(x.func) == name else [x] for x in args
    )
    flat = [x for own in inner for x in own]
    numbers = [x.value for x in flat if isinstance(x, ast.Constant)]
    left = [x for x in flat if not isinstance(x, ast.Constant)]
    if numbers:
        left.insert(0, ast.Constant(FUNCTIONS[name](numbers)))
    return left[0] if len(left) == 1 else ast.Call(function, left, [])


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
