"""Writes the gradient of an op, and the op that runs before it, as text, and reads them as any spec is read.

Input: an op. Output: its backward op, or the forward one that keeps values for it (`kept.py`). So the op that is built is
the one that you see, test and paste. Where the derivation and the language treat a literal, a cast or a guard differently, the
language decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from tritongen.autodiff.backward import (
    derive,
    forward_lines,
    is_same_line,
    names_of,
    repeats,
)
from tritongen.autodiff.exprs import COMPUTE
from tritongen.autodiff.kept import keeping
from tritongen.check import check
from tritongen.errors import SpecError
from tritongen.ir.algebra import Poly
from tritongen.ir.batches import batched
from tritongen.ir.names import fresh
from tritongen.ir.nodes import BATCH_SIZE, Constant, Op, Param, Read, Tensor, core, kind_of
from tritongen.ir.print import print_op
from tritongen.ir.print_poly import NotWritable
from tritongen.ir.rename import renamed
from tritongen.syntax.limits import MAX_OPERATIONS
from tritongen.syntax.parse import parse

TOO_LONG = {"E001", "E007", "E008", "E009"}  # codes that refuse a correct text


def gradient(op: Op, wrt: Iterable[str] | None = None, keeps: Collection[str] | None = None) -> Op:
    """The backward op. `wrt` names the wanted operands and scalars, by default all floats; `keeps` the outputs it may read.

    If its text would be longer than a spec may be, repeated values get names, and it may have four times the operations. If the
    language has no text for it, or only one that is too long, it stays as derived.
    """
    wanted = None if wrt is None else tuple(wrt)
    derived = derive(op, wanted, keeps=keeps)
    for most in (MAX_OPERATIONS, 4 * MAX_OPERATIONS):
        if most > MAX_OPERATIONS and repeats(op, wanted):
            derived = derive(op, wanted, shared=True, keeps=keeps)
        try:
            return _with_batches(op, _as_text_says(derived, f"the gradient of {op.name}", most))
        except NotWritable:
            break
        except SpecError as error:
            if not {d.code for d in error.diagnostics if d.severity == "error"} <= TOO_LONG:
                raise
    return _with_batches(op, derived)


def with_gradient(op: Op, typings: tuple[Op, ...] = ()) -> tuple[Op, Op]:
    """The op that runs if a gradient is wanted, and that gradient. The first is the op itself, or one that keeps values.

    The op that keeps values has one typing, `op`. It is used if no other operand wants a gradient.
    """
    back = gradient(op)
    forward = keeping(op, forward_lines(op), back) if _wants_this(op, typings) else None
    if forward is None:
        return op, back
    try:
        read = _as_text_says(forward, f"{op.name}, keeping values for its gradient")
        forward = replace(read, params=forward.params, kept=forward.kept)
    except NotWritable:
        pass
    return forward, replace(gradient(forward), name=back.name)


def _wants_this(op: Op, typings: tuple[Op, ...]) -> bool:
    """Whether a call of one of these that wants a gradient is one of `op`: by its type alone it is a float."""
    apart = {p.name for other in typings for p in other.typarams if p not in op.typarams}
    given = (p for p in op.params if not isinstance(p, Constant))
    floats = {p.dtype for p in given if kind_of(p.dtype, op) == "float"}
    return not apart or len(apart) == 1 and floats == apart


def derived_again(op: Op, forward: Op) -> Op:
    """The op whose gradient a second derivative is of, where `forward` runs in place of `op`.

    A place that is kept has no derivative: it stays. Floats that are kept have one, and are computed again.
    """
    floats = any(
        o.name in forward.kept and kind_of(o.dtype, op) == "float" for o in forward.outputs
    )
    return op if floats else forward


def taking_what_it_reads(back: Op, op: Op, forward: Op) -> Op:
    """The gradient, with the operands that its own gradient reads behind those that it reads."""
    of = derived_again(op, forward)
    if of is forward:
        return back
    again = gradient(of, [o.name[1:] for o in back.outputs])
    typarams = (p for p in again.typarams if p.name not in {q.name for q in back.typarams})
    params = (p for p in again.params if p.name not in {q.name for q in back.params})
    return replace(back, typarams=(*back.typarams, *typarams), params=(*back.params, *params))


def gradient_to_derive(
    op: Op, wanted: Iterable[str] | None = None, keeps: Collection[str] | None = None
) -> tuple[Op, dict[str, str]]:
    """The gradient (of these operands, from these outputs) as an op that has one itself: `dy` is called `g_y` in it.

    Also returns what each such name was.
    """
    back = replace(gradient(op, wanted, keeps), gradient="derive")
    brought = {f"d{t.name}" for t in (*op.params, *op.outputs)}
    taken, names = names_of(back), dict[str, str]()
    for t in (*back.params, *back.outputs):
        if t.name in brought:
            names[t.name] = fresh(f"g_{t.name[1:]}", taken)
    return renamed(back, names), {new: old for old, new in names.items()}


def _as_text_says(op: Op, file: str, most: int = MAX_OPERATIONS) -> Op:
    """Raises NotWritable where the language has no text for it, SpecError where it refuses that."""
    for t in (*op.tensors, *op.outputs):
        if t.dtype == COMPUTE:
            raise NotWritable(f"`{t.name}` has the type that the call computes in")
    ((read,),) = (f.typings for f in check(parse(print_op(op), file, most=most)))
    return read


Handed = dict[str, tuple[str, tuple[int, ...]]]


def handed_on(op: Op, back: Op) -> Handed:
    """The operands whose gradient is another one: that of an output, as in `x + z` and `sum[k](x[m, k])`, or of an operand before it.

    Each comes with the name of that gradient, and with the dims of the operand along which it is the same. -1 is the last dim.
    """
    incoming = {f"d{o.name}": o for o in op.outputs}
    lines = {nest.name: nest for nest in back.nests}
    found: Handed = {}
    for k, o in enumerate(back.outputs):
        for before in back.outputs[:k]:
            if is_same_line(lines[before.name], lines[o.name]):
                found.setdefault(o.name[1:], (before.name, ()))
        match core(lines[o.name].body):
            case Read(name, coords, None, o.dtype) if name in incoming:
                own = lines[o.name].coords
                along = [k for k, c in enumerate(own) if c not in coords]
                here = [k for k in range(len(own)) if k not in along]
                if (*(own[k] for k in here),) == coords and BATCH_SIZE not in (
                    o.dims[k] for k in along
                ):
                    if (*(o.dims[k] for k in here),) == incoming[name].dims:
                        found[o.name[1:]] = name, _from_ends(o.dims, along)
    return found


def _from_ends(dims: tuple[Poly, ...], along: list[int]) -> tuple[int, ...]:
    """Dims of a tensor by number, those behind its batch dims from the last one, which comes first."""
    batch = dims.index(BATCH_SIZE) if BATCH_SIZE in dims else len(dims)
    behind = (k - len(dims) for k in reversed(along) if k > batch)
    return (*(k for k in along if k < batch), *behind)


def without_handed_on(op: Op, back: Op) -> tuple[Handed, Op | None]:
    """What is handed on, and the gradient of the rest, or None if nothing is left."""
    given = handed_on(op, back)
    rest = [o.name[1:] for o in back.outputs if o.name[1:] not in given]
    if not given or not rest:
        return given, back if rest else None
    return given, replace(gradient(op, rest), name=back.name)


def _with_batches(op: Op, back: Op) -> Op:
    """The gradient, knowing what no text says: an output, and what comes in for it, has all batch dims."""
    several = len(batched(op)) > 1
    given = {name for o in op.outputs for name in (o.name, f"d{o.name}")}
    given |= {t.name for t in op.tensors if t.whole}

    def seen(p: Param) -> Param:
        if not isinstance(p, Tensor) or BATCH_SIZE not in p.dims:
            return p
        return replace(p, whole=p.name in given or not several)

    return replace(back, params=tuple(map(seen, back.params)))
