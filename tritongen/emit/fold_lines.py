"""Folds as Triton text: the term with its mask, the initial value, and the final reduction of a tile.

Input: a reducer nest and the `KernelWriter` that prints it. Output: text, or lines of the kernel. `ir/reducers.py` describes
each reducer as a monoid. `tiles` and `walks` decide where a fold stands in a kernel.
"""

from __future__ import annotations

from math import prod

from tritongen.emit.folds import NO_PLACE
from tritongen.emit.kernel_writer import KernelWriter
from tritongen.emit.text import wrapped
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, indices, is_fractional, poly, symbols, with_modulo
from tritongen.ir.bounds import takes_all
from tritongen.ir.dtypes import DTYPES
from tritongen.ir.free import free_indices, lines_of, reads
from tritongen.ir.functions import ATOM
from tritongen.ir.reducers import REDUCERS
from tritongen.schedule.held import held_by


def start_text(writer: KernelWriter, nest: ir.Nest, dtype: str) -> str:
    """The value of an empty lane of a fold."""
    start = REDUCERS[nest.fold.op].start(ir.kind_of(dtype, writer.op))
    if start in ("LOWEST", "HIGHEST"):
        return writer.lowest(dtype, highest=start == "HIGHEST")
    return start


def term(writer: KernelWriter, nest: ir.Nest, mask_redundant: bool) -> tuple[str, int]:
    """The term of a fold over the whole tile, masked lanes holding its start."""
    reduce = nest.fold
    out = writer.expr(reduce.body)
    wide = moved_by(writer, reduce.body) >= {d.index for d in writer.kernel.axes[1].digits[:1]}
    guards = [guard_text(writer, g) for g in reduce.guards]
    if mask_redundant and not guards and wide:
        return out
    mask = term_mask(writer, nest)
    start = start_text(writer, nest, reduce.body.dtype)
    if not writer.strong(reduce.body):
        out = (writer.full(reduce.body, reduce.body.dtype), ATOM)
    return f"tl.where({mask}, {out[0]}, {start})", ATOM


def moved_by(writer: KernelWriter, e: ir.Expr) -> set[str]:
    """The indices that a value depends on. A line that is the same in all rows has the shape of one row."""
    return free_indices(e, lines_of(writer.kernel.nests))


def term_mask(writer: KernelWriter, nest: ir.Nest) -> str:
    """The mask of lanes that hold a term."""
    axes = (part.name for axis in writer.kernel.axes for part in (axis.outer, axis.run))
    return writer.mask(frozenset(axes), [guard_text(writer, g) for g in nest.fold.guards])


def guard_text(writer: KernelWriter, guard: ir.Guard) -> str:
    """A guard as a comparison. Subtracted terms go to the other side, because the lowest value of a type has no lower one."""
    p = with_modulo(guard.poly)
    strict = guard.op == ">=" and ((), -1) in p.terms
    above = tuple((monomial, value) for monomial, value in p.terms if value > 0)
    if is_fractional(p) or not above:
        return f"{side_text(writer, p)} {guard.op} 0"
    below = ((monomial, -value) for monomial, value in p.terms if value < 0)
    right = Poly(tuple(term for term in below if term[0] or not strict))
    sign = ">" if strict else guard.op
    return f"{side_text(writer, Poly(above))} {sign} {side_text(writer, right)}"


def side_text(writer: KernelWriter, p: Poly) -> str:
    """A side of a comparison, in 64 bits. Indices have them, sizes do not, and a constant may be as large as 32 bits allow."""
    large = symbols(p) & {c.name for c in writer.op.constants}
    if indices(p) or not large or len(p.terms) < 2:
        return writer.size(p, value=True)[0]
    first, *rest = p.terms
    more = writer.size(Poly(tuple(rest)))[0]
    return f"tl.cast({writer.size(Poly((first,)))[0]}, tl.int64) + {wrapped(more)}"


def is_small(rest: Poly) -> bool:
    """Whether what is added to an index is a small number: the sum surely has 32 bits. `i + w` has not, for a large constant."""
    return rest.constant in range(-(1 << 16), 1 << 16)


def end_text(writer: KernelWriter, nest: ir.Nest, tile_text: str, axis: int | None = 1) -> str:
    """A tile folded along an axis, or to a scalar."""
    kind = ir.kind_of(nest.fold.body.dtype, writer.op)
    fold, given = REDUCERS[nest.fold.op], {"t": tile_text, "axis": axis}
    text = fold.whole(kind) if axis is None else fold.end[kind]
    if "{count}" in text:
        count = prod((b.hi - b.lo for b in nest.fold.binders), start=poly(1))
        given["inside"] = term_mask(writer, nest)
        given["count"] = writer.expr(ir.IndexValue(count, "compute"))[0]
    dtype = nest.fold.body.dtype
    narrow = any(DTYPES[d].bits < 32 for d in ir.dtypes_of(dtype, writer.op) if d in DTYPES)
    # What reads it wraps in its own type.
    back = f".to({writer.dtype(dtype)})" if kind == "int" and fold.narrow and narrow else ""
    return text.format(**given) + back


def place_of(writer: KernelWriter, nest: ir.Nest) -> str:
    """The number of a term, for argmax and argmin."""
    if counts_as_walked(writer, nest):
        return writer.run_text(writer.kernel.axes[-1].names)
    return writer.size(nest.fold.number)[0]


def counts_as_walked(writer: KernelWriter, nest: ir.Nest) -> bool:
    """Whether a kernel meets the terms in the order of their numbers, from 0. Beside `argmax[a, b]`, `argmax[b, a]` has others."""
    binders = nest.fold.binders
    axis = writer.kernel.axes[-1].names
    return axis == tuple(b.index for b in binders) and not any(b.lo.terms for b in binders)


def best_of(writer: KernelWriter, nest: ir.Nest, own: str = "") -> str:
    """What the fold of a place holds beside it, called as the extreme that it is where that is a value too."""
    held = held_by(writer.kernel.nests, nest.name)
    best = own if own and not held else writer.variable(held or writer.fresh(f"{nest.name}_best"))
    writer.extremes[nest.name] = best
    return best


def say_place(writer: KernelWriter, nest: ir.Nest) -> tuple[str, ...]:
    """The comments of the extreme that a place's fold holds, and of the place."""
    held = held_by(writer.kernel.nests, nest.name)
    return *writer.comment(held), *writer.comment(nest.name)


def found(writer: KernelWriter, nest: ir.Nest, place: str) -> str:
    """The index that the loop found. -1 if there was no term."""
    sure = takes_all(nest.fold, writer.context.facts)
    return place if sure else f"tl.where({place} == {NO_PLACE}, -1, {place})"


def fold_resident(
    writer: KernelWriter, nest: ir.Nest, mask_redundant: bool, axis: int | None = 1
) -> None:
    """A fold of a tile in registers: along an axis, or over the whole tile (not for argmax and argmin)."""
    if nest.fold.is_place:
        place_resident(writer, nest, mask_redundant)
        return
    said = {*writer.context.user_names, *writer.kernel.stores}
    every = [r.tensor for n in writer.kernel.nests for r in reads(n.body)]
    named = nest.name in said or every.count(nest.name) != 1
    with writer.computing(nest.name if named else nest.line):
        out = end_text(writer, nest, term(writer, nest, mask_redundant)[0], axis)
    if named:
        writer.say(nest.name)
        name = writer.assign(nest.name, out)
        writer.values[nest.name] = (name, ATOM)
    else:
        writer.values[nest.name] = (out, 1 if out.endswith("!= 0") else ATOM)


def place_resident(writer: KernelWriter, nest: ir.Nest, mask_redundant: bool) -> None:
    """The place of the first extreme term in each row."""
    rows = {*writer.kernel.axes[0].names}
    alike = bool(moved_by(writer, nest.fold.body) & rows)  # `tl.reduce` wants tiles of one shape
    with writer.computing(nest.name):
        value = term(writer, nest, mask_redundant and alike)[0]
    writer.lines += say_place(writer, nest)
    if not value.isidentifier():
        value = writer.assign(writer.fresh(f"{nest.name}_value"), value)
    mask = term_mask(writer, nest) if nest.fold.guards else "inside"
    numbers = f"tl.where({mask}, {place_of(writer, nest)}, {NO_PLACE}).to(tl.int32)"
    place = writer.assign(writer.fresh("place"), numbers)
    best = best_of(writer, nest)
    writer.line(f"{best}, {nest.name} = {end_text(writer, nest, f'{value}, {place}')}")
    writer.line(f"{nest.name} = {found(writer, nest, nest.name)}.to(tl.int64)")
    writer.values[nest.name] = (nest.name, ATOM)
