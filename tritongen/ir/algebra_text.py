"""A `Poly` as text, in the language (and Python): fewest parentheses, positive terms first.

The normal form orders its terms by this text, so what prints alike stands alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Union

from tritongen.ir.atoms import Atom, Extreme, Fetch, Floor, Group, Idx, Mod, Monomial, Number, Sym

if TYPE_CHECKING:
    from tritongen.ir.algebra import Poly

Leaf = Callable[[Atom], Union[str, None]]  # how an atom is printed; None: as the language does


def text(p: Poly, leaf: Leaf | None = None) -> str:
    """p in the language (and Python), fewest parentheses; `leaf` may print atoms otherwise."""
    if not p.terms:
        return "0"
    positive_first = sorted(p.terms, key=lambda term: (not term[0], term[1] < 0))
    out = ""
    for monomial, value in positive_first:
        sign, body = (
            ("-", _term(monomial, -value, leaf))
            if value < 0
            else ("+", _term(monomial, value, leaf))
        )
        if not out and sign == "-":
            # -a // b would floor -a: a leading minus takes the whole quotient.
            body = f"({body})" if "//" in body or "%" in body else body
        out += f" {sign} {body}" if out else (f"-{body}" if sign == "-" else body)
    return out


def _term(monomial: Monomial, value: Number, leaf: Leaf | None) -> str:
    up = [factor_text(atom, leaf) for atom, power in monomial for _ in range(power)]
    down = [factor_text(atom, leaf) for atom, power in monomial for _ in range(-power)]
    if value.numerator != 1 or not up:
        up.insert(0, str(value.numerator))
    if value.denominator != 1:
        down.insert(0, str(value.denominator))
    # A floor binds like the product it would stand in: parenthesised unless it comes alone.
    if len(up) + len(down) > 1:
        up = [f"({u})" if _loose(u) else u for u in up]
        down = [f"({d})" if _loose(d) else d for d in down]
    product = " * ".join(up)
    for d in down:
        product += f" / {d}"
    return product


def factor_text(atom: Atom, leaf: Leaf | None) -> str:
    if leaf is not None and (own := leaf(atom)) is not None:
        return own
    match atom:
        case Sym(name) | Idx(name):
            return name
        case Floor(num, den):
            return f"{_operand(num, leaf)} // {_operand(den, leaf, right=True)}"
        case Mod(num, den):
            return f"{_operand(num, leaf)} % {_operand(den, leaf, right=True)}"
        case Fetch(tensor, coords, fill):
            inside = ", ".join(text(c, leaf) for c in coords)
            return f"{tensor}[{inside}]" if fill is None else f"({tensor}[{inside}] else {fill})"
        case Extreme(op, args):
            return f"{op}({', '.join(text(a, leaf) for a in args)})"
        case Group(inner):
            return f"({text(inner, leaf)})"
    raise TypeError(atom)


def _operand(p: Poly, leaf: Leaf | None, right: bool = False) -> str:
    out = text(p, leaf)
    simple = len(p.terms) <= 1 and not out.startswith("-") and not (right and " " in out)
    return out if simple else f"({out})"


def _loose(factor: str) -> bool:
    """Whether there is an operator outside of all brackets."""
    depth = 0
    for c in factor:
        depth += (c in "([") - (c in ")]")
        if c == " " and not depth:
            return True
    return False
