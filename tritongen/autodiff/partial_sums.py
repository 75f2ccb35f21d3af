"""Writes a sum as a sum of partial sums that the gradient has already.

Input: the lines of a backward op. Output: the same lines, where a sum reads a line that adds up a part of it:

    s[n, c] = sum[...](dy[n, c, ...] * (x[n, c, ...] - mu[n]))
    dgain[c] = sum[n, ...](dy[n, c, ...] * (x[n, c, ...] - mu[n]) * r[n])     dgain[c] = sum[n](s[n, c] * r[n])

Then x and dy are read once. A sum of an operand alone, over the same indices as such a line, gets a line beside it: one kernel
computes both.

    dbias[c] = sum[n, ...](dy[n, c, ...])             dy_sum[n, c] = sum[...](dy[n, c, ...])
                                                      dbias[c] = sum[n](dy_sum[n, c])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tritongen.autodiff import exprs
from tritongen.ir.algebra import Poly, index, indices
from tritongen.ir.nodes import Call, Cast, Expr, Nest, Read, Reduce, rebuild, walk

Dims = Mapping[str, tuple[Poly, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    """A line that is the sum of `factors` over `inner`, and an operand that it reads at each of its points."""

    line: Nest
    total: Reduce  # its body
    inner: frozenset[str]
    factors: tuple[Expr, ...]
    operand: Expr  # the read, converted to the compute type
    read: Read


def with_partial_sums(
    lines: tuple[Nest, ...], dims: Dims, free_name: Callable[[str], str]
) -> tuple[Nest, ...]:
    """The lines, and those that were added, in order. `dims`: of the operands."""
    parts: list[Part] = []
    found: list[Nest] = []
    added: dict[tuple[Expr, frozenset[str]], Nest] = {}

    def change(e: Expr) -> Expr:
        match e:
            case Reduce("sum", _, ()):
                shorter = (_shorter(e, part, alone) for part in parts)
                return next((s for s in shorter if s is not None), e)
        return e

    def alone(part: Part) -> Nest:
        """The line that adds up the operand of a part alone."""
        key = part.operand, part.inner
        if key not in added:
            name = free_name(f"{part.read.tensor}_sum")
            body = replace(part.total, body=part.operand)
            added[key] = replace(part.line, name=name, body=body)
            found.insert(found.index(part.line) + 1, added[key])
        return added[key]

    for line in lines:
        same = next((p for p in parts if _is_alone(line, p)), None)
        if same is not None:
            added.setdefault((same.operand, same.inner), line)
        else:
            line = replace(line, body=rebuild(line.body, change))
        found.append(line)
        parts += _parts(line, dims)
    return tuple(found)


def _parts(line: Nest, dims: Dims) -> Iterator[Part]:
    """One for each operand that a sum reads at all of its indices; none for a matrix product, which has no such operand."""
    match line.body:
        case Reduce("sum", binders, (), body) if binders and line.dtype == exprs.COMPUTE:
            factors = _factors(body)
        case _:
            return
    inner = frozenset(b.index for b in binders)
    own = {b.index: b for b in (*line.box, *binders)}
    if len(factors) < 2 or line.coords != tuple(index(b.index) for b in line.box):
        return
    for e in dict.fromkeys(e for e in walk(body) if isinstance(e, (Cast, Read))):
        read = e.arg if isinstance(e, Cast) else e
        if e.dtype != exprs.COMPUTE or not isinstance(read, Read) or read.fill is not None:
            continue
        names = [next(iter(indices(c)), "") for c in read.coords]
        whole = read.tensor in dims and all(
            n in own and c == index(n) and not own[n].lo.terms and own[n].hi == d
            for n, c, d in zip(names, read.coords, dims[read.tensor], strict=True)
        )
        if whole and sorted(names) == sorted(own):
            yield Part(line, line.body, inner, factors, e, read)


def _is_alone(line: Nest, part: Part) -> bool:
    """Whether a line adds up the operand of a part alone."""
    return line.box == part.line.box and line.body == replace(part.total, body=part.operand)


def _shorter(total: Reduce, part: Part, alone: Callable[[Part], Nest]) -> Expr | None:
    """The sum by the part, or by the part's operand alone."""
    factors, binders = _factors(total.body), {b.index: b for b in total.binders}
    for read in (e for e in walk(total.body) if isinstance(e, Read)):
        if read.tensor != part.read.tensor or read.fill is not None:
            continue
        at = {
            next(iter(indices(own))): c
            for own, c in zip(part.read.coords, read.coords, strict=True)
        }
        inner = {name: next(iter(indices(at[name])), "") for name in part.inner}
        if any(at[n] != index(i) or i not in binders for n, i in inner.items()):
            continue
        ends = {b.index: b.hi for b in part.total.binders}
        if any(binders[i].lo.terms or binders[i].hi != ends[n] for n, i in inner.items()):
            continue
        summed = set(inner.values())
        if any(indices(at[b.index]) & summed for b in part.line.box):
            continue
        here = exprs.by_name(at)
        moving = [f for f in factors if exprs.free_indices(f) & summed]
        if sorted(map(repr, moving)) == sorted(
            repr(exprs.substitute(f, here)) for f in part.factors
        ):
            line = part.line
        elif moving == [exprs.substitute(part.operand, here)]:
            line = alone(part)
        else:
            continue
        value: Expr = Read(line.name, tuple(at[b.index] for b in line.box), None, line.dtype)
        for factor in (f for f in factors if f not in moving):
            value = exprs.mul(value, factor)
        rest = tuple(b for b in total.binders if b.index not in summed)
        return replace(total, binders=rest, body=value) if rest else value
    return None


def _factors(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Call("mul", (a, b)):
            return (*_factors(a), *_factors(b))
    return (e,)
