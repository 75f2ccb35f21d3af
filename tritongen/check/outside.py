"""Reports a read that may leave its tensor, with a text that corrects it.

Input: the read, the coordinate and the dim that it may leave. Output: a finding; Skip. The correction is a fact, if one would
prove the read; one element more, for offsets; a bound, for a temporary whose use shows it; else `else`. For an index from the
end it is the last element. Example: `w[n % C]` needs `with C > 0`. `reads` has the proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import NoReturn

from tritongen.check.coordinates import coordinate
from tritongen.check.definitions import longer
from tritongen.check.extents import bounded, used_bounds
from tritongen.check.ranges import ZERO, Frame
from tritongen.check.report import Report, Skip
from tritongen.check.scope import Scope
from tritongen.check.trees import walk as walk_tree
from tritongen.errors import Fix, Span, fix_at
from tritongen.ir import bounds
from tritongen.ir.algebra import (
    Fetch,
    Floor,
    Poly,
    Sym,
    index,
    is_fractional,
    is_size,
    poly,
    substitute_atoms,
    text,
    walk,
)
from tritongen.ir.print_poly import poly_ast
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse


def unsafe(scope: Scope, frame: Frame, node: ast.Read, c: Poly, dim: Poly, what: str) -> NoReturn:
    """E401: a read that needs a fact, an operand with one element more, a bound, or `else`."""
    shown = unparse(node)
    choices: tuple[tuple[str, Iterable[Fix | None]], ...] = (
        ("add the requirement that proves it", _with_facts(scope, frame, node, c, dim)),
        (
            f"give `{node.name}` one element more than `{text(dim)}`",
            _longer(scope, frame, node, c, dim),
        ),
        ("bound its index", _bounded(scope, frame, node, c, dim)),
        ("give its value outside", [fix_at(node.span, _padded(node.span, f"{shown} else 0"))]),
    )
    help, (fix, *others) = next((h, found) for h, fixes in choices if (found := [*fixes]))
    label = f"`{unparse(poly_ast(c))}` {what}"
    details = dict(label=label, help=help, fix=fix, others=tuple(others))
    scope.report.fail("E401", f"`{shown}` may be out of bounds", node.span, **details)


def _longer(scope: Scope, frame: Frame, node: ast.Read, c: Poly, dim: Poly) -> Iterator[Fix]:
    """Of `cu[b + 1]` as the end of a range, b < B: `cu` has B + 1 elements."""
    if _segment(scope, frame, node, c, dim):
        yield from longer(scope.op, node.name, text(dim), scope.taken)


def _segment(scope: Scope, frame: Frame, node: ast.Read, c: Poly, dim: Poly) -> str:
    """The b of `cu[b] <= r < cu[b + 1]`, which has no value outside."""
    terms = walk_tree(scope.line.value) if scope.line is not None else ()
    ends = (n for n in terms if isinstance(n, ast.Binder) or _places(n) & frame.names)
    is_end = any(part is node for end in ends for part in walk_tree(end))
    after = (n for n, own in frame.ranges.items() if c == index(n) + 1 and own == (ZERO, dim))
    return next(after, "") if is_end else ""


def _places(n: ast.Node) -> set[str]:
    """The indices that a comparison is of."""
    sides = (n.a, n.b) if isinstance(n, ast.Compare) else ()
    return {side.name for side in sides if isinstance(side, ast.Name)}


def _bounded(scope: Scope, frame: Frame, node: ast.Read, c: Poly, dim: Poly) -> Iterator[Fix]:
    """A left side whose index keeps the read inside: as long as the use of a temporary, or as there are segments."""
    for name, end, fixes in used_bounds(scope, c):
        facts = frame.inside({name: (ZERO, end)}).facts(scope)
        if stays_inside(c, dim, facts):
            yield from fixes
    segment = _segment(scope, frame, node, c, dim)
    if scope.line is not None and segment:
        for i in scope.line.indices or ():
            if isinstance(i, ast.Name) and i.name == segment:
                yield from bounded(scope, scope.line, i, dim - 1)


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


def refuse_calls(scope: Scope, frame: Frame, node: ast.Read, i: ast.Index) -> None:
    """E205 for `x[min(n + 1, N - 1)]` and `x[i64(p[n])]`. The help gives such indices lines of their own, which are read as gathers."""
    if not _called_with(i, frame.names):
        return
    calls = [j for j in node.indices if _called_with(j, frame.names)]
    named = set().union(*map(_names, calls)) & frame.names
    line, fix = scope.line, None
    whole_dims = all(frame.ranges[n][0] == ZERO for n in named)
    if line is not None and line.whole is not None and node.span is not None and whole_dims:
        source, own, lines = line.whole.source.text, dict[int, ast.Index](), []
        for call in calls:
            name = scope.free(f"at{len(own) + 1}" if len(calls) > 1 else "at")
            over = [n for n in frame.ranges if n in _names(call)]
            own[id(call)] = ast.Read(name, tuple(ast.Name(n) for n in over))
            left = ", ".join(f"{n} < {text(frame.ranges[n][1])}" for n in over)
            lines.append(f"{name}[{left}] = {unparse(call)}")
        indices = tuple(own.get(id(j), j) for j in node.indices)
        fill = node.fill or ast.Number(0)
        read = _padded(node.span, unparse(replace(node, indices=indices, fill=fill)))
        before = source[line.whole.start : node.span.start]
        after = source[node.span.end : line.whole.end]
        fix = Fix(line.whole, "\n  ".join((*lines, f"{before}{read}{after}")))
    help = "give the index a line of its own"
    scope.report.fail(
        "E205",
        f"`{unparse(i)}` is not affine",
        i.span,
        help=help,
        fix=fix,
        otherwise=f"{help}, of integers",
    )


def _called_with(i: ast.Index, names: Set[str]) -> bool:
    """Whether an index calls a function of indices."""
    return any(isinstance(n, ast.Call) and _names(n) & names for n in walk_tree(i))


def _reads_bare(i: ast.Index) -> bool:
    """Whether an index is read at the call, and no fact bounds it as one bounds `i[n] % V`."""
    has_read = any(isinstance(n, ast.Read) for n in walk_tree(i))
    return has_read and not any(isinstance(n, ast.Binary) and n.op == "%" for n in walk_tree(i))


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


def stays_inside(c: Poly, dim: Poly, facts: bounds.Facts) -> bool:
    """Whether a coordinate is inside whatever it reads: `i[n] % V` is below V."""
    if is_fractional(c):
        return False
    c = substitute_atoms(c, lambda a: poly(Sym(str(a))) if isinstance(a, Fetch) else None)
    return all(bounds.prove(gap, ">=", ZERO, facts) is True for gap in (c, dim - 1 - c))


# ---- the fact that is missing -------------------------------------------------------------------
def _missing_facts(scope: Scope, frame: Frame, c: Poly, dim: Poly) -> tuple[str, ...]:
    """The fewest facts on divisors that prove the coordinate inside; none where they would not."""
    candidates = list(dict.fromkeys(_candidates(c)))[:4]
    for count in (1, 2):
        for chosen in combinations(candidates, count):
            facts = frame.facts(scope)
            for left, op, right in chosen:
                facts = bounds.require(facts, left, op, right)
            if stays_inside(c, dim, facts):
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


def _facts_of_all(scope: Scope, frame: Frame, node: ast.Read) -> Iterator[str]:
    """The missing facts of all coordinates of a read: of `x[p % N, q % D]` N > 0 and D > 0."""
    aside = replace(scope, report=Report(), facts=list(scope.facts))  # nothing of this is said
    for i, dim in zip(node.indices, scope.variables[node.name].dims, strict=True):
        if not isinstance(i, ast.Dots):
            with suppress(Skip):
                c = coordinate(aside, i, frame.names, lambda read: Fetch(unparse(read), (), None))
                yield from _missing_facts(aside, frame, c, dim)


def _with_facts(scope: Scope, frame: Frame, node: ast.Read, c: Poly, dim: Poly) -> Iterator[Fix]:
    """The missing facts of a coordinate, or of all, behind those of the op, or in front of its `{`."""
    op, own = scope.op, _missing_facts(scope, frame, c, dim)
    if isinstance(op, ast.Fn) or op.span is None or not own or any(map(_reads_bare, node.indices)):
        return
    every = (*own, *_facts_of_all(scope, frame, node))
    for facts in dict.fromkeys((own, tuple(dict.fromkeys(every)))):
        shown = ", ".join(facts)
        if op.facts and op.facts[-1].span is not None:
            last = op.facts[-1].span
            yield Fix(last, f"{last.source.text[last.start:last.end]}, {shown}")
            continue
        source = op.span.source
        brace = re.compile(r"(?:#[^\n]*|[^{#])*").match(source.text, op.span.start)
        at = brace.end() if brace else op.span.end
        yield Fix(Span(source, at, at), f"with {shown} ")
