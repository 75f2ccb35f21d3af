"""Size expressions of a plan: conditions, configs, grids.

A rule is an expression in whole numbers, written as Python reads it: `min(64, cdiv(D, 4096))`,
`rows < 2 * sms and D > 8192`, `8 if D > 1024 else 4`. It is parsed with `ast`, checked against a
short list of nodes when the plan is made, printed as it stands by emit, and evaluated here for
`explain` and the tests. The functions are min, max, and those below, which `tritongen.lib` has too.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache

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


# ---- functions: those of `tritongen/lib/estimates.py`, which says what they are
def pow2(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 0 else 0


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def parts(programs: int, tiles: int, steps: int, least: int = 1) -> int:
    found = max(1, pow2(min(programs // max(1, tiles), cdiv(steps, 4)) + 1) // 2)
    return max(found, pow2(least)) if found > 1 else 1


def shares(programs: int, tiles: int, most: int) -> int:
    return max(1, min(most, cdiv(programs, max(1, tiles))))


def spread(programs: int, tiles: int, most: int) -> int:
    return pow2(shares(programs, tiles, most))


def filled(tiles: int, programs: int) -> bool:
    return 7 * tiles >= 5 * programs * cdiv(tiles, programs)


def is_held(cols: int, aligned: bool, most: int, odd: int, full: int) -> bool:
    return 0 < cols <= most and (
        aligned or cols <= odd or cols <= full and 4 * cols > 3 * pow2(cols)
    )


def held_rows(block: int, aligned: bool) -> int:
    return max(1, (512 if not aligned and block <= 256 else 1024) // block)


def held_warps(block: int) -> int:
    least = ((1024, 1), (2048, 2), (8192, 4), (16384, 16))
    return next((warps for most, warps in least if block <= most), 32)


def wide_block(cols: int, aligned: bool, odd: int) -> int:
    if aligned:
        return 16384 if cols <= 65536 else 32768
    return 4096 if cols <= odd else 8192


# Names that stand for what the `gpu` of a call has (`lib/device.py`).
OF_GPU = ("sms", "shared", "forward_progress")

OF_LIBRARY = (pow2, cdiv, parts, shares, spread, filled, is_held, held_rows, held_warps, wide_block)
OWN: tuple[Callable[..., int], ...] = (*OF_LIBRARY, min, max)
FUNCTIONS = {function.__name__: function for function in OWN}


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
