"""The lines of a chain of products, rewritten for its kernels: scales in exponents, sinks, NaN, heads that share columns.

Input and output: nests that compute the same. `fused.py` lowers what comes out. Each rewriting is one that the lowering need
not know: what a loop carries is still a fold, and what stands behind it a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf, nan

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Atom, Floor, Idx, Poly, floordiv, index, indices, substitute_atoms
from tritongen.ir.bounds import Facts, prove
from tritongen.ir.free import free_indices, reads, tensors_read
from tritongen.ir.names import fresh
from tritongen.kernel.moving import Exponential, exponential
from tritongen.kernel.nodes import Kernel
from tritongen.schedule.canonical import read_of, with_ranges
from tritongen.schedule.members import Group, names_in, operands
from tritongen.schedule.plan import Dims


def with_scales(lines: ir.Nests) -> ir.Nests:
    """The lines with `s = scale * x` in place of s where only exp(s - m) reads it: there the scale costs nothing."""
    shifted: dict[str, int] = {}
    for n in lines:
        for e in ir.walk(n.body):
            match e:
                case ir.Call("exp", (ir.Call("sub", (ir.Read(s), _)),)):
                    shifted[s] = shifted.get(s, 0) + 1
    read = [r.tensor for n in lines for r in reads(n.body)]
    found: dict[str, ir.Expr] = {}
    for n in lines:
        match n.body:
            case ir.Call("mul", (number, _)) if not free_indices(number):
                if read.count(n.name) == shifted.get(n.name):
                    found[n.name] = n.body

    kept = (n for n in lines if n.name not in found)
    return tuple(n.reading(lambda r: found.get(r.tensor, r)) for n in kept)


def with_shifts(lines: ir.Nests, loop: str) -> ir.Nests:
    """The lines, exponents being shifted by a maximum of the loop and another term where the shift is a line that says so.

        p[i, j] = exp(s[i, j] - m[i])      with      m[i] = max(f[i], sink[i])

    The loop carries f, from which m follows in each turn.
    """
    by_name = {n.name: n for n in lines}

    def change(e: ir.Expr) -> ir.Expr:
        match e:
            case ir.Call("exp", (ir.Call("sub", (x, ir.Read() as m)) as shifted,)):
                if loop in free_indices(x) and _maximum_in(m, loop, by_name):
                    return replace(e, args=(replace(shifted, args=(x, by_name[m.tensor].body)),))
        return e

    return tuple(replace(n, body=ir.rebuild(n.body, change)) for n in lines)


def _maximum_in(m: ir.Expr, loop: str, by_name: dict[str, ir.Nest]) -> ir.Nest | None:
    """f, where m is its maximum with another term."""
    read = (by_name.get(e.tensor) for e in terms_of(m, by_name) if isinstance(e, ir.Read))
    return next((n for n in read if n and loop in n.reduced and n.fold.op == "max"), None)


def terms_of(m: ir.Expr, by_name: dict[str, ir.Nest]) -> tuple[ir.Expr, ...]:
    """What a maximum of two is of; nothing for other values."""
    body = by_name[m.tensor].body if isinstance(m, ir.Read) and m.tensor in by_name else m
    return body.args if isinstance(body, ir.Call) and body.fn == "maximum" else ()


def with_nan(
    group: Group,
    kernel: Kernel,
    kept: frozenset[str],
    names: frozenset[str],
    others: frozenset[str],
) -> Group:
    """The group, sums that move with a maximum being NaN where their shift is -inf and there are terms.

    A kernel adds 0 for exp(-inf - -inf), since later terms may move the maximum. A quotient of two such sums is NaN by
    itself, also where exp(t - m) is added to the lower one and m is a maximum of t. No result is what is kept for a gradient.
    `names`: what new lines may not be called; `others`: what lines outside of the group read.
    """
    by_name = {n.name: n for n in group.nests}
    moved: dict[str, tuple[ir.Nest, Exponential]] = {}
    for s in kernel.folds:
        if s.moved_by:
            most = by_name[s.moved_by]
            if found := exponential(s.value.body, most, by_name):
                moved[s.name] = most, found
    shifts = {name: e.shift for name, (_, e) in moved.items()}
    bare: set[str] = set()

    def look(e: ir.Expr) -> None:
        match e:
            case ir.Call("div", (ir.Read(a), below)) if a in moved:
                match below:
                    case ir.Read(b) if shifts.get(b) == shifts[a]:
                        return
                    case ir.Call("add", (ir.Read(b), ir.Call("exp", (ir.Call("sub", (t, m)),)))):
                        both = terms_of(m, by_name)
                        if shifts.get(b) == shifts[a] and t in both:
                            if both == terms_of(shifts[a], by_name):
                                return
            case ir.Read(tensor):
                bare.add(tensor)
        for part in ir.parts(e):
            look(part)

    for n in group.nests:
        if n.name not in kept:
            look(n.body)
    read = set().union(*(tensors_read(n.body) for n in group.nests))
    fixed = {name for name in moved if name in bare | others or name not in read}
    taken = {*names, *by_name, *(b.index for n in group.nests for b in n.box)}
    lines = list[ir.Nest]()
    for n in group.nests:
        if n.name not in fixed:
            lines.append(n)
            continue
        f, found = moved[n.name]
        one = ir.Const(1.0, f.dtype)
        none: ir.Expr = ir.Call("eq", (found.shift, ir.Const(-inf, f.dtype)), "bool")
        if f.fold.guards or found.conditions:
            there: ir.Expr = one
            for c in found.conditions:
                there = ir.Call("where", (c, there, ir.Const(0.0, f.dtype)), f.dtype)
            body = replace(f.fold, body=there)
            some = next((line for line in lines if line.box == f.box and line.body == body), None)
            if some is None:
                some = replace(f, name=fresh(f"{f.name}_some", taken), body=body)
                lines.append(some)
            any_there = ir.Call("gt", (read_of(some), ir.Const(0.0, f.dtype)), "bool")
            none = ir.Call("and", (none, any_there), "bool")
        terms = replace(n, name=fresh(f"{n.name}_terms", taken))
        value = ir.Call("where", (none, ir.Const(nan, n.dtype), read_of(terms)), n.dtype)
        lines += [terms, replace(n, body=value)]
    return replace(group, nests=tuple(lines))


def in_groups(group: Group, heads: Iterable[ir.Binder], dims: Dims, facts: Facts) -> Group | None:
    """The group with the rows of all heads that read the same columns as one index: what they share is then read once.

        k[b, h // R, j, e]  for each h, i    is    k[b, g, j, e]  for each g and each row = h % R * S + i

    `heads`: the batch indices that may be such. None where none is, or where something else on the columns depends on it.
    """
    (row,), (loop,) = group.row, group.col
    taken = names_in(group.nests)
    moving = [r for r in operands(group.nests) if loop.index in free_indices(r)]
    for h in heads:
        both = (n.over >= {h.index, row.index} for n in group.nests)
        places = ((r, k, c) for r in moving for k, c in enumerate(r.coords))
        shared = {(c, dims[r.tensor][k]) for r, k, c in places if h.index in indices(c)}
        if len(shared) != 1 or not all(both):
            continue
        ((place, count),) = shared
        match place.terms:
            case ((((Floor(num, size) as floor, 1),), 1),) if num == index(h.index):
                if prove(count * size, "==", h.hi, facts) is not True:
                    continue
                rows = ir.Binder(fresh("row", taken), Poly(), size * row.hi)
                groups = ir.Binder(fresh("group", taken), Poly(), count)
                head = floordiv(index(rows.index), row.hi)
                new: dict[Atom, Poly] = {
                    floor: index(groups.index),
                    Idx(h.index): index(groups.index) * size + head,
                    Idx(row.index): index(rows.index) - head * row.hi,
                }
                nests = (_moved(n, {h: groups, row: rows}, new) for n in group.nests)
                return replace(group, nests=tuple(nests), row=(rows,))
    return None


def _moved(n: ir.Nest, box: Mapping[ir.Binder, ir.Binder], new: Mapping[Atom, Poly]) -> ir.Nest:
    """A nest over other indices, given what the former ones are in them."""

    def ranges(own: ir.Binders) -> ir.Binders:
        return tuple(box.get(b, b) for b in own)

    return with_ranges(n, lambda p: substitute_atoms(p, new.get), ranges)
