"""Target text with holes, and how to fill them with the fewest parentheses.

In: a `Text` of the function table and the texts of the arguments. Out: the text of the call.

    fill(infix("/", TERM), [("x + 1", SUM), ("y", ATOM)])  ->  ("(x + 1) / y", TERM)

Not here: which function has which text (functions.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# Python's precedences, of generated Triton and torch text alike.
COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, TERM, UNARY, POWER, ATOM = range(1, 11)


@dataclass(frozen=True, slots=True)
class Text:
    """Target text with holes {a} {b} {c}; `needs`: the least precedence that an argument must have

    to stand in its hole without parentheses (0: anything may).
    """

    template: str
    precedence: int = ATOM
    needs: tuple[int, ...] = (0, 0, 0)

    @property
    def repeats(self) -> tuple[str, ...]:
        """Holes that occur more than once: an argument there must be a name."""
        return tuple(hole for hole in "abc" if self.template.count("{" + hole + "}") > 1)


def fill(text: Text, args: list[tuple[str, int]]) -> tuple[str, int]:
    """The text of a call and its precedence, from those of its arguments: fewest parentheses."""
    if text.template == "{a}":
        return args[0]
    holes = {}
    for hole, (arg, precedence), need in zip("abc", args, text.needs, strict=False):
        holes[hole] = arg if precedence >= need else f"({arg})"
    return text.template.format(**holes), text.precedence


def with_flag(text: Text, flag: str) -> Text:
    """The text of a call with one more argument."""
    return replace(text, template=f"{text.template.removesuffix(')')}, {flag})")


def infix(operator: str, precedence: int) -> Text:
    left = precedence + 1 if precedence == COMPARE else precedence
    return Text(f"{{a}} {operator} {{b}}", precedence, (left, precedence + 1))


def prefix(operator: str) -> Text:
    return Text(f"{operator}{{a}}", UNARY, (UNARY,))


def call(function: str, arity: int = 1) -> Text:
    return Text(f"{function}({', '.join('{' + hole + '}' for hole in 'abc'[:arity])})")


def nan_call(function: str) -> Text:
    """tl.maximum and tl.minimum, with NaN propagation."""
    return Text(f"{function}({{a}}, {{b}}, propagate_nan=tl.PropagateNan.ALL)")


def product(count: int) -> Text:
    """x * x by name: no pow call, and exactly rounded for a square."""
    return Text(" * ".join(["{a}"] * count), TERM, (UNARY,))


POWER_OPERATOR = Text("{a} ** {b}", POWER, (ATOM, UNARY))
