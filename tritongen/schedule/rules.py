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


def pow2(n: int) -> int:
    """The least power of two that is at least n; 0 for 0, as triton.next_power_of_2 has it."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def parts(programs: int, tiles: int, steps: int) -> int:
    """Programs that share a tile: a power of two, as many as are free, each with four steps of a loop at least."""
    return max(1, pow2(min(programs // max(1, tiles), cdiv(steps, 4)) + 1) // 2)


def spread(programs: int, tiles: int, most: int) -> int:
    """The same where each needs little: rounded up, so that all programs have work, `most` at most."""
    return pow2(max(1, min(most, cdiv(programs, max(1, tiles)))))


def filled(tiles: int, programs: int) -> bool:
    """Whether tiles that programs take in waves leave at most two sevenths of the places in these empty."""
    return 7 * tiles >= 5 * programs * cdiv(tiles, programs)


OF_GPU = (
    "sms",
    "shared",
    "forward_progress",
)  # names that stand for what the `gpu` of a call has (`lib/device.py`)

FUNCTIONS: dict[str, Callable[..., int]] = {
    "pow2": pow2,
    "cdiv": cdiv,
    "parts": parts,
    "spread": spread,
    "filled": filled,
    "min": min,
    "max": max,
}


@cache
def parse(rule: str) -> ast.expr:
    return ast.parse(rule, mode="eval").body


def evaluate(rule: str, facts: Mapping[str, int]) -> int:
    """The value of a rule; TypeError for a node that no rule may hold, KeyError for an unknown name."""
    return _value(parse(rule), facts)


@cache
def names(rule: str) -> frozenset[str]:
    """The names a rule speaks of, functions left out."""
    said = (n.id for n in ast.walk(parse(rule)) if isinstance(n, ast.Name))
    return frozenset(said) - FUNCTIONS.keys()


def conjuncts(rule: str) -> list[str]:
    """The conditions that all have to hold: what stands between the outermost `and`s."""
    node = parse(rule)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [ast.unparse(part) for part in node.values]
    return [rule]


def _value(node: ast.expr, facts: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return facts[name]
        case ast.BinOp(left=a, op=op, right=b):
            return OPERATORS[type(op)](_value(a, facts), _value(b, facts))
        case ast.Compare(left=first, ops=ops, comparators=rest):
            values = [_value(v, facts) for v in (first, *rest)]
            return all(
                OPERATORS[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False)
            )
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(v, facts) for v in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_value(v, facts) for v in values)
        case ast.UnaryOp(op=ast.Not(), operand=a):
            return not _value(a, facts)
        case ast.IfExp(test=test, body=a, orelse=b):
            return _value(a, facts) if _value(test, facts) else _value(b, facts)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return FUNCTIONS[name](*(_value(a, facts) for a in args))
    raise TypeError(f"not a size expression: {ast.unparse(node)}")
