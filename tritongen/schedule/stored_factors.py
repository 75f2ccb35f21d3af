"""Stores factors of products that each tile would compute again, so that descriptors take their tiles.

1. A factor that a condition on some of its rows masks:

       dw[v, k] = sum[m](dz[m, v] * where(target[m] != ignore, x[m, k], 0))

   becomes

       x_masked[m, k] = where(target[m] != ignore, x[m, k], 0)
       dw[v, k]       = sum[m](dz[m, v] * x_masked[m, k])

   The mask is one pass over the factor. Otherwise each tile of dw masks the factor again, in registers. A loss head of 2048 x 4096 x
   128256 with its gradient took 16.4 ms on an H200 before, and takes 12.8. A condition on each element stays in the product: the factor
   may be a matrix of weights that is read once.

2. Keys or values of attention that are computed, such as rotated or normed ones. Each block of queries would compute them again. For heads
   of 128 such a kernel asks for 311 KB of shared memory, and a block of keys takes 1,378 instructions in place of 385 (sm_90, Triton 3.6).
   Queries are computed once for each of their blocks. They stay in the kernel.

3. A rounded value that follows from folds of what it reads, such as a norm in front of a linear layer. The kernel of the norm reads
   the row anyway, and each tile of the product would compute it again, from two loads that no descriptor takes.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import indices
from tritongen.ir.free import free_indices, leads_to, reads, tensors_read
from tritongen.ir.names import fresh
from tritongen.schedule.canonical import line_over, names_beside, read_of, uncast
from tritongen.schedule.classes.chains import is_multiplied, multiplies_halves
from tritongen.schedule.classes.fused import batch_of
from tritongen.schedule.members import Group, is_reducer


def with_stored_factors(
    op: ir.Op, nests: ir.Nests, groups: tuple[Group, ...]
) -> tuple[ir.Nests, frozenset[str]]:
    """The nests, with lines for such factors, and the names of all lines that are to be stored."""
    taken = names_beside(op, nests)
    pointwise = {n.name for n in nests if not is_reducer(n)}
    single = (g for g in groups if g.kind == "contraction" and g.products == 1)
    heads = {head.name for g in single for head in g.heads}
    rows: dict[str, set[str]] = {}  # of the kernels that compute a value
    for g in (g for g in groups if g.kind == "fused" and batch_of(g)):
        for n in g.nests:
            rows.setdefault(n.name, set()).add(g.row[0].index)
    stored, found = set[str](), list[ir.Nest]()
    by_name = {n.name: n for n in nests}
    for n in (n for n in nests if n.name in heads and is_multiplied(n)):
        sides_read = (uncast(factor) for factor in n.fold.factors)
        stored |= {r.tensor for r in sides_read if isinstance(r, ir.Read) and _is_norm(r, by_name)}
    computed: dict[ir.Expr, ir.Nest] = {}
    for n in nests:
        if n.name in heads | rows.keys() and is_multiplied(n) and multiplies_halves(n, op):
            sides = []
            for factor in n.fold.factors:
                own = computed.get(factor)
                if own is None and n.name in heads:
                    own = _masked(factor, n, taken)
                elif own is None and rows[n.name] - free_indices(factor):
                    if isinstance(read := uncast(factor), ir.Read):
                        stored |= {read.tensor} & pointwise
                    else:
                        own = _computed(factor, n, taken)
                if own is not None:
                    if own not in found:
                        found.append(own)
                    computed[factor] = own
                    factor = ir.Cast(read_of(own), factor.dtype)
                sides.append(factor)
            product = ir.Call("mul", tuple(sides), n.fold.body.dtype)
            n = replace(n, body=replace(n.fold, body=product))
        found.append(n)
    return tuple(found), frozenset(stored | {n.name for n in found} - {n.name for n in nests})


def _is_norm(read: ir.Read, nests: dict[str, ir.Nest]) -> bool:
    """Whether it is a rounded line of which a fold over fewer indices reads an operand, too."""
    line = nests.get(read.tensor)
    if line is None or is_reducer(line) or line.dtype == "compute":
        return False
    pointwise = (n for n in nests.values() if not is_reducer(n))
    behind = [line, *(nests[t] for t in leads_to(line.body, pointwise) & nests.keys())]
    folds = [n for n in behind if is_reducer(n) and {*n.box} < {*line.box}]
    others = (r.tensor for n in behind if n not in folds for r in reads(n.body))
    own = set(others) - nests.keys()
    return any(own & tensors_read(n.body) for n in folds)


def _masked(factor: ir.Expr, product: ir.Nest, taken: set[str]) -> ir.Nest | None:
    """The factor as a line of its own, if a condition on some of its indices leaves out what it reads."""
    match factor:
        case ir.Call("where", (condition, yes, ir.Const(0.0))):
            read, used = uncast(yes), free_indices(condition)
        case _:
            return None
    if not isinstance(read, ir.Read) or read.fill is not None or not used:
        return None
    names = dict.fromkeys(i for c in read.coords for i in sorted(indices(c)))
    if not used < names.keys():
        return None
    body = ir.Call("where", (condition, read, ir.Const(0.0, read.dtype)), read.dtype)
    return _line(f"{read.tensor}_masked", body, tuple(names), product, taken)


def _computed(factor: ir.Expr, product: ir.Nest, taken: set[str]) -> ir.Nest | None:
    """The factor as a line of its own, if it is a value that is rounded."""
    match factor:
        case ir.Cast(ir.Cast(_, dtype) as body, "compute") if dtype != "compute":
            name = next((e.tensor for e in ir.walk(body) if isinstance(e, ir.Read)), "factor")
            used = free_indices(body)
            own = (b.index for b in product.ranges if b.index in used)
            return _line(f"{name}_computed", body, tuple(own), product, taken)
    return None


def _line(
    name: str, body: ir.Expr, own: tuple[str, ...], product: ir.Nest, taken: set[str]
) -> ir.Nest | None:
    """A line over these indices of a product; None where one of them does not start at 0."""
    known = {b.index: b for b in product.ranges}
    if any(i not in known or known[i].lo.terms for i in own):
        return None
    return line_over(fresh(name, taken), tuple(known[i] for i in own), body, product.line)
