"""Pastes lines that are read once into the line that reads them.

Input: the lines of a backward op. Output: as many or fewer, with the same outputs:

    dz[d] = dy[d] + s * e[d];  dx[d] = dz[d]        dx[d] = dy[d] + s * e[d]

It pastes pointwise lines, and only if no point is computed twice: the reader runs over the same indices. A line that is read
more than once, or is a sum, keeps its name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tritongen.autodiff import exprs
from tritongen.ir import algebra
from tritongen.ir.algebra import Poly
from tritongen.ir.free import folds_of
from tritongen.ir.nodes import Binder, Call, Cast, Expr, Nest, Read, Reduce, with_parts
from tritongen.ir.reads import reads_of

MULTIPLIES = {"mul": exprs.mul, "div": exprs.div}


def inline(nests: tuple[Nest, ...], keep: set[str]) -> tuple[Nest, ...]:
    """The nests without those pasted in; `keep` are never pasted."""
    reads = Counter(name for nest in nests for name in _tensors(nest.body))
    done: list[Nest] = []
    pasted: dict[str, Nest] = {}
    for nest in nests:
        nest = replace(nest, body=_paste(nest.body, len(nest.box), pasted))
        if not folds_of(nest.body) and reads[nest.name] == 1 and nest.name not in keep:
            pasted[nest.name] = nest
        done.append(nest)
    left = {name for nest in done for name in _tensors(nest.body)}
    return tuple(n for n in done if n.name in left or n.name not in pasted)


def _paste(expr: Expr, rank: int, lines: dict[str, Nest]) -> Expr:
    """expr with reads of lines replaced where `rank` indices in force are all that they have."""
    match expr:
        case Read(tensor, coords, None) if tensor in lines:
            line = lines[tensor]
            if len(line.box) == rank and _is_plain(coords):
                here = dict(zip(line.coords, coords, strict=True))
                values = {b.index: here[algebra.index(b.index)] for b in line.box}
                return exprs.substitute(line.body, exprs.by_name(values))
        case Call(fn, args):
            pasted = tuple(_paste(a, rank, lines) for a in args)
            masked = any(isinstance(a, Call) and a.fn == "where" for a in pasted)
            if (
                pasted != args and masked and fn in MULTIPLIES
            ):  # inside of the condition: no 0 * inf
                return MULTIPLIES[fn](*pasted)
            return replace(expr, args=pasted)
        case Cast(arg):
            return replace(expr, arg=_paste(arg, rank, lines))
        case Reduce(binders=binders, body=body):
            return replace(expr, body=_paste(body, rank + len(binders), lines))
    return expr


def read_back(nests: tuple[Nest, ...], lines: set[str]) -> tuple[Nest, ...]:
    """The nests, reading a pointwise line, one of `lines`, where they repeat it: `db[n] = sum[m](dacc[m, n])`."""
    done: list[Nest] = []
    for nest in nests:
        body = nest.body
        for line in done:
            if line.name in lines and isinstance(line.body, Call) and not folds_of(line.body):
                body = _read_back(body, line, nest.box)
        done.append(replace(nest, body=body))
    return tuple(done)


def _read_back(expr: Expr, line: Nest, box: tuple[Binder, ...]) -> Expr:
    if expr == line.body and set(line.box) <= set(box):
        return Read(line.name, line.coords, None, line.dtype)
    if isinstance(expr, Reduce):
        box = (*box, *expr.binders)
    return with_parts(expr, lambda e: _read_back(e, line, box))


def _is_plain(coords: tuple[Poly, ...]) -> bool:
    """Whether the coordinates are indices, each another."""
    names = [name for c in coords for name in algebra.indices(c) if c == algebra.index(name)]
    return len(set(names)) == len(coords)


def _tensors(expr: Expr) -> list[str]:
    """Tensors that expr reads, as often as it does."""
    return [tensor for tensor, _, _ in reads_of(expr)]
