"""Moves the quotient of two values of a row from the line of a matrix product to a line of its own.

Input: the lines of a backward op. Output: the same lines, each behind the new ones that it reads. In the gradient of attention, a
tile then loads one number a row, and does not divide:

    dp[i, j] = sum[f](do[i, f] * v[j, f]) - t[i] / s[i]        u[i] = t[i] / s[i]
                                                               dp[i, j] = sum[f](do[i, f] * v[j, f]) - u[i]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tritongen.ir.free import free_indices
from tritongen.ir.nodes import Call, Expr, Nest, Read, Reduce, rebuild, walk


def with_row_lines(lines: tuple[Nest, ...], free_name: Callable[[str], str]) -> tuple[Nest, ...]:
    """The lines, and those that were added, in order."""
    found: list[Nest] = []
    for line in lines:
        box = line.over
        body = line.body
        for quotient in _quotients(body) if _multiplies(body) else ():
            row = next((n for n in found if _is_of(quotient, n)), None)
            if row is not None and row.over < box:
                new = replace(row, name=free_name(f"{line.name}_row"), body=quotient)
                found.append(new)
                read = Read(new.name, new.coords, None, new.dtype)
                body = rebuild(body, lambda e: read if e == quotient else e)  # noqa: B023
        found.append(replace(line, body=body))
    return tuple(found)


def _multiplies(body: Expr) -> bool:
    """Whether a line adds something to a sum of products."""
    return not isinstance(body, Reduce) and any(
        isinstance(e, Reduce) and e.op == "sum" and isinstance(e.body, Call) and e.body.fn == "mul"
        for e in walk(body)
    )


def _quotients(e: Expr) -> list[Call]:
    """Those outside of sums."""
    match e:
        case Reduce():
            return []
        case Call("div", (Read(), _)) if not any(isinstance(x, Reduce) for x in walk(e)):
            return [e]
        case Call(_, args):
            return [q for a in args for q in _quotients(a)]
    return []


def _is_of(quotient: Call, line: Nest) -> bool:
    """Whether a line is the sum that is divided, read at each of its points, by what its index is called there."""
    above = quotient.args[0]
    same = isinstance(above, Read) and (above.tensor, above.coords) == (line.name, line.coords)
    return same and isinstance(line.body, Reduce) and free_indices(quotient) == line.over
