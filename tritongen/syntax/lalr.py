"""The parser: runs the generated tables over a list of tokens, without recursion.

Input: tokens, a start rule, and `reduce(action, start, end, children)`, which is called for each rule of the grammar when
its parts are complete, bottom up. Output: the result of `reduce` for the start rule, or `Unexpected`, with the token and
the terminals that were possible there. `mistakes` words the error, and `build` makes nodes.

The word of a clause is a name wherever no clause may begin: `tol: f32`, `x[n] * tol`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from tritongen.syntax import _tables
from tritongen.syntax.lexer import END, Token
from tritongen.syntax.names import CLAUSES


class Rule(NamedTuple):
    origin: str
    action: str
    length: int
    fates: str


class Unexpected(Exception):
    """The tokens up to `position` parse; the one there fits nothing."""

    def __init__(self, position: int, accepted: frozenset[str]):
        self.position = position
        self.accepted = accepted


@cache
def _rules() -> tuple[Rule, ...]:
    rows = (line.split() for line in _tables.RULES.strip().split("\n"))
    return tuple(Rule(o, action, int(n), fates) for o, action, n, fates in rows)


@cache
def _states() -> tuple[dict[str, int], ...]:
    """For each state, symbol to n + 1 for a shift or goto to n, to -(n + 1) for rule n."""
    states = []
    for line in _tables.STATES.removeprefix("\n").removesuffix("\n").split("\n"):
        row = {}
        for move in line.split():
            symbol, _, target = move.rpartition(":")
            row[symbol] = int(target) + 1 if target[0] == "+" else int(target) - 1
        states.append(row)
    return tuple(states)


def parse(tokens: list[Token], start: str, reduce: Callable[[str, int, int, list], Any]) -> Any:
    states, rules = _states(), _rules()
    first, last = _tables.STARTS[start]
    stack = [first]
    values: list[tuple[Any, int, int]] = []
    for position, token in enumerate(tokens):
        before = list(stack)  # reductions on the wrong token forget what else could have come
        while True:
            row = states[stack[-1]]
            if token.text in CLAUSES and token.type not in row and "NAME" in row:
                token = token._replace(type="NAME")  # no clause may begin here
            move = row.get(token.type)
            if move is None:
                raise Unexpected(position, _accepted(before, last))
            if move > 0:
                stack.append(move - 1)
                values.append((token, token.start, token.end))
                break
            rule = rules[-move - 1]
            _reduce(rule, stack, values, token.start, reduce)
            stack.append(states[stack[-1]][rule.origin] - 1)
            if token.type == END and stack[-1] == last:
                return values[-1][0]
    raise AssertionError("the last token is END")


def _reduce(rule: Rule, stack: list[int], values: list, here: int, reduce) -> None:
    """Replace the rule's symbols on the value stack by what the rule gives; drop their states."""
    if rule.length == 0:
        values.append((_value(rule, [], here, here, reduce), here, here))
        return
    parts = values[-rule.length :]
    del values[-rule.length :]
    del stack[-rule.length :]
    children: list[Any] = []
    for fate, (value, _, _) in zip(rule.fates, parts, strict=True):
        if fate == "s":
            children += value
        elif fate == "k":
            children.append(value)
    start, end = parts[0][1], parts[-1][2]
    values.append((_value(rule, children, start, end, reduce), start, end))


def _value(rule: Rule, children: list, start: int, end: int, reduce) -> Any:
    if rule.origin.startswith("_"):  # Lark's own rule for a repetition
        return children
    if rule.action == "-" and len(children) == 1:
        return children[0]
    return reduce(rule.action, start, end, children)


def _accepted(stack: list[int], last: int) -> frozenset[str]:
    """The terminals that would not fail here: each is tried on a copy of the state stack."""
    return frozenset(
        symbol
        for symbol in _states()[stack[-1]]
        if symbol.isupper() and _fits(list(stack), symbol, last)
    )


def _fits(stack: list[int], symbol: str, last: int) -> bool:
    states, rules = _states(), _rules()
    while True:
        move = states[stack[-1]].get(symbol)
        if move is None:
            return False
        if move > 0:
            return True
        rule = rules[-move - 1]
        if rule.length:
            del stack[-rule.length :]
        stack.append(states[stack[-1]][rule.origin] - 1)
        if symbol == END and stack[-1] == last:
            return True
