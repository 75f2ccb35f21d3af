"""Reports a read that may leave its tensor, with a text that corrects it.

Input: the read, the coordinate and the dim that it may leave. Output: a finding; Skip. The correction is a fact, if one would
prove the read; `else`, if none would; or the last element, for an index from the end. Example: `w[n % C]` needs `with C >
0`. `reads` has the proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import NoReturn

from tritongen.check.ranges import ZERO, Frame
from tritongen.check.scope import Scope
from tritongen.check.trees import walk as walk_tree
from tritongen.errors import Fix, Span, fix_at
from tritongen.ir import bounds
from tritongen.ir.algebra import Fetch, Floor, Poly, is_fractional, is_size, poly, text, walk
from tritongen.ir.print_poly import poly_ast
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse


def unsafe(scope: Scope, frame: Frame, node: ast.Read, c: Poly, dim: Poly, what: str) -> NoReturn:
    """E401: a read that needs a fact, or `else`."""
    shown = unparse(node)
    facts = _missing_facts(scope, frame, c, dim)
    fix = _with_facts(scope, facts) if facts else None
    help = "add the requirement that proves it"
    if fix is None:
        help = "give its value outside"
        fix = fix_at(node.span, _padded(node.span, f"{shown} else 0"))
    label = f"`{unparse(poly_ast(c))}` {what}"
    scope.report.fail(
        "E401", f"`{shown}` may be out of bounds", node.span, label=label, help=help, fix=fix
    )


def outside(scope: Scope, frame: Frame, node: ast.Read, c: Poly, dim: Poly) -> NoReturn:
    """E402: a read that no call can have inside; -1 is not the last element."""
    help, fix = "", None
    if c.constant is not None and c.constant < 0:
        own = next((i for i in node.indices if unparse(i) == text(c)), None)
        end = f"{text(dim + c)}"
        if own is not None and node.span is not None:
            fixed = tuple(ast.Name(end) if i is own else i for i in node.indices)
            help = "indices do not wrap; write {}"
            fix = Fix(node.span, unparse(replace(node, indices=fixed, fill=None)))
    message = f"`{unparse(node)}` is out of bounds"
    label = f"`{text(c)}` is never in 0 .. {text(dim)} - 1"
    scope.report.fail("E402", message, node.span, label=label, help=help, fix=fix)


def refuse_clamp(scope: Scope, frame: Frame, node: ast.Read, i: ast.Index) -> None:
    """E205 for `x[min(n + 1, N - 1)]`. The help gives the index a line of its own, which is read as a gather."""
    named = _names(i) & frame.names
    calls = [n for n in walk_tree(i) if isinstance(n, ast.Call)]
    if not any(n.name in ("min", "max", "clamp") and _names(n) & named for n in calls):
        return
    order = [name for name in frame.ranges if name in named]
    line, fix = scope.line, None
    whole_dims = all(frame.ranges[n][0] == ZERO for n in order)
    if line is not None and line.whole is not None and node.span is not None and whole_dims:
        name, source = scope.free("at"), line.whole.source.text
        left = ", ".join(f"{n} < {text(frame.ranges[n][1])}" for n in order)
        own = ast.Read(name, tuple(ast.Name(n) for n in order))
        fill = node.fill or ast.Number(0)
        indices = tuple(own if j is i else j for j in node.indices)
        read = _padded(node.span, unparse(replace(node, indices=indices, fill=fill)))
        before = source[line.whole.start : node.span.start]
        first = f"{name}[{left}] = {unparse(i)}"
        fix = Fix(replace(line.whole, end=node.span.end), f"{first}\n  {before}{read}")
    help = "give the index a line of its own"
    scope.report.fail("E205", f"`{unparse(i)}` is not affine", i.span, help=help, fix=fix)


def _names(i: ast.Index) -> set[str]:
    return {n.name for n in walk_tree(i) if isinstance(n, ast.Name)}


def _padded(span: Span | None, text: str) -> str:
    """A read with `else`, in parentheses where an operator may follow."""
    if span is None:
        return text
    before, after = span.source.text[: span.start].rstrip(), span.source.text[span.end :]
    alone = before.endswith("(") and after.lstrip().startswith(")")
    alone |= (
        before.endswith("=") and re.match(r"\s*(\}|#|$|(?!and\b|or\b)[a-z])", after) is not None
    )
    return text if alone else f"({text})"


# ---- the fact that is missing -------------------------------------------------------------------
def _missing_facts(scope: Scope, frame: Frame, c: Poly, dim: Poly) -> tuple[str, ...]:
    """The fewest facts on divisors that prove the coordinate inside; none where they would not."""
    if is_fractional(c) or any(isinstance(a, Fetch) for a in walk(c)):
        return ()
    candidates = list(dict.fromkeys(_candidates(c)))[:4]
    for count in (1, 2):
        for chosen in combinations(candidates, count):
            facts = frame.facts(scope)
            for left, op, right in chosen:
                facts = bounds.require(facts, left, op, right)
            if all(bounds.prove(gap, ">=", ZERO, facts) is True for gap in (c, dim - 1 - c)):
                return tuple(_fact(*fact) for fact in chosen)
    return ()


def _candidates(c: Poly) -> Iterator[tuple[Poly, str, Poly]]:
    """Candidate facts: each divisor is at least 1, and a quotient of sizes has no remainder."""
    for atom in walk(c):
        if isinstance(atom, Floor) and is_size(poly(atom.den)):
            yield poly(atom.den), ">", ZERO
            if is_size(atom.num):
                yield atom.num % poly(atom.den), "==", ZERO


def _fact(left: Poly, op: str, right: Poly) -> str:
    return unparse(ast.Compare(op, poly_ast(left), poly_ast(right)))


def _with_facts(scope: Scope, facts: tuple[str, ...]) -> Fix | None:
    """The facts behind those of the op, or in front of its `{`."""
    op, shown = scope.op, ", ".join(facts)
    if isinstance(op, ast.Fn) or op.span is None:
        return None
    if op.facts and op.facts[-1].span is not None:
        last = op.facts[-1].span
        return Fix(last, f"{last.source.text[last.start:last.end]}, {shown}")
    source = op.span.source
    brace = re.compile(r"(?:#[^\n]*|[^{#])*").match(source.text, op.span.start)
    at = brace.end() if brace else op.span.end
    return Fix(Span(source, at, at), f"with {shown} ")
