"""Splits a sum where another line of the gradient adds up over a part of its indices.

Input: the lines of a backward op. Output: the same lines, where such a sum adds up partial sums. Below, a line s sums over
`...` for each n and c, so dgain does that first. One kernel computes s and dgain_partial, and reads x and dy once:

    s[n, c] = sum[...](dy[n, c, ...] * (x[n, c, ...] - mu[n]))

    dgain[c] = sum[n, ...](dy[n, c, ...] * x[n, c, ...])     dgain_partial[n, c] = sum[...](dy[n, c, ...] * x[n, c, ...])
                                                             dgain[c] = sum[n](dgain_partial[n, c])

Every factor stays inside of the partial sum. So the sum over an empty image is 0, even if one of its factors is NaN, as the
mean of no elements is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tritongen.autodiff import exprs
from tritongen.autodiff.term import inner_ranges, inside
from tritongen.ir.algebra import Poly, index, indices, substitute_atoms
from tritongen.ir.bounds import Facts
from tritongen.ir.free import free_indices, tensors_read, with_coordinates
from tritongen.ir.nodes import Call, Expr, Nest, Read, Reduce, rebuild, walk

Dims = Mapping[str, tuple[Poly, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    """A line that is a sum, and an operand that it reads at each of its points."""

    line: Nest
    total: Reduce  # its body
    read: Read


def with_partial_sums(
    lines: tuple[Nest, ...],
    operands: Dims,
    outputs: Dims,
    said: Facts,
    free_name: Callable[[str], str],
) -> tuple[Nest, ...]:
    """The lines, and those that were added, in order. `said`: the facts in the text."""
    parts: list[Part] = []
    every = {**operands, **outputs, **{line.name: line.dims for line in lines}}
    found: list[Nest] = []

    def split(name: str, e: Expr) -> Expr:
        match e:
            case Reduce("sum", _, ()):
                for part in parts:
                    own = _partial(e, part)
                    if own is not None and _has_all(own[0], part, every, said):
                        return sum_of(e, part, *own, name)
        return e

    def sum_of(e: Reduce, part: Part, body: Expr, at: Mapping[str, Poly], name: str) -> Expr:
        total = replace(part.total, body=body, dtype=e.dtype)
        same = (n for n in found if n.box == part.line.box and n.body == total)
        line = next(same, None)
        if line is None:
            own = free_name(f"{name}_partial")
            line = replace(part.line, name=own, body=total, dtype=e.dtype)
            asked = tensors_read(body) | {part.line.name}
            found.insert(1 + max(k for k, n in enumerate(found) if n.name in asked), line)
        value = Read(line.name, tuple(at[b.index] for b in line.box), None, line.dtype)
        inner = {_index_of(at[b.index]) for b in part.total.binders}
        return replace(e, binders=tuple(b for b in e.binders if b.index not in inner), body=value)

    for line in lines:
        line = replace(line, body=rebuild(line.body, partial(split, line.name)))
        found.append(line)
        parts += _parts(line, operands)
    return tuple(found)


def _index_of(p: Poly) -> str:
    """The index that a coordinate is, if it is nothing else."""
    name = next(iter(indices(p)), "")
    return name if name and p == index(name) else ""


def _parts(line: Nest, dims: Dims) -> Iterator[Part]:
    """One for each operand that a sum reads at all of its indices; none for a matrix product, which has no such operand."""
    match line.body:
        case Reduce("sum", binders, (), Call("mul") as body) if line.dtype == exprs.COMPUTE:
            own = {b.index: b for b in (*line.box, *binders)}
        case _:
            return
    if line.coords != tuple(index(b.index) for b in line.box):
        return
    for read in dict.fromkeys(e for e in walk(body) if isinstance(e, Read)):
        names = [_index_of(c) for c in read.coords]
        if read.tensor not in dims or read.fill is not None or sorted(names) != sorted(own):
            continue
        if all(
            not own[n].lo.terms and own[n].hi == d
            for n, d in zip(names, dims[read.tensor], strict=True)
        ):
            yield Part(line, line.body, read)


def _partial(total: Reduce, part: Part) -> tuple[Expr, dict[str, Poly]] | None:
    """What a line beside the part adds up, and where the sum reads it: at which values of the part's indices."""
    binders = {b.index: b for b in total.binders}
    for read in (e for e in walk(total.body) if isinstance(e, Read)):
        if read.tensor != part.read.tensor or read.fill is not None:
            continue
        pairs = zip(part.read.coords, read.coords, strict=True)
        at = {_index_of(own): c for own, c in pairs}
        inner = {_index_of(at[b.index]): b for b in part.total.binders}
        if len(inner) == len(binders) or not inner.keys() <= binders.keys():
            continue
        if any(binders[i].lo.terms or binders[i].hi != b.hi for i, b in inner.items()):
            continue
        if any(indices(at[b.index]) & inner.keys() for b in part.line.box):
            continue
        body = _at_own_indices(total.body, at)
        if free_indices(body) <= at.keys():
            return body, at
    return None


def _has_all(body: Expr, part: Part, dims: Dims, said: Facts) -> bool:
    """Whether all that a body reads is there for all indices of a part, of which the sum may have taken fewer."""
    ranges = {b.index: (b.lo, b.hi) for b in (*part.line.box, *part.total.binders)}
    ranges |= inner_ranges(body)
    return all(
        e.fill is not None or inside(said, e.coords, dims[e.tensor], ranges)
        for e in walk(body)
        if isinstance(e, Read)
    )


def _at_own_indices(body: Expr, at: Mapping[str, Poly]) -> Expr:
    """The body of a sum in the indices of a part, which the sum reads at these places.

    The sum may have indices of the same names for others: each gets a new name first. One that is left is not known to the part.
    """
    apart = exprs.by_name({name: index(exprs.unique(name)) for name in free_indices(body)})
    there = {substitute_atoms(c, apart): index(name) for name, c in at.items()}
    plain = exprs.by_name({_index_of(c): own for c, own in there.items()})

    def own(p: Poly) -> Poly:
        p = substitute_atoms(p, apart)
        return there.get(p, substitute_atoms(p, plain))

    body = with_coordinates(exprs.with_own_binders(body), own)
    return exprs.name_binders(body, at, frozenset())
