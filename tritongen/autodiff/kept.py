"""Values of the forward that a gradient would compute again, kept as outputs: results of products, indices of extremes,
statistics of images.

Input: an op. Output: the op that runs if a gradient is wanted, or None if nothing is worth its memory. A kept value is a copy
beside the temporary, so that the op's own results do not change:

    op f(x: T[M, K], w: T[N, K]) -> y: T[M, N] {    op f_forward(...) -> (y: T[M, N], acc_kept: T[M, N]) {
      acc[m, n] = sum[k](x[m, k] * w[n, k])           acc[m, n] = sum[k](x[m, k] * w[n, k])
                                                      acc_kept[m, n] = acc[m, n]
      y[m, n] = gelu(acc[m, n])                       y[m, n] = gelu(acc[m, n])

Kept is what takes a pass over a matrix for each row of another, in no more memory than a result takes, and
rounded as that is: K terms cost more than a store and a load from K = 50 up in f32, 600 in half types. And which
element a max took, as torch keeps it, where its gradient, given `y_at[n] = argmax[d](x[n, d])`, reads no x: in 32 bits if it
is one of a window. us on an
H100, found again and kept: max of f16 359 rows of 107,369 115, 61, max_pool2d of f32 149 x 480 x 43 x 37 by 2 x 2 2,432
and 1,706.
What is larger than each result, as attention's weights, is not. The maximum and the sum of each of its rows are, if they are
no larger than an operand: the gradient would compute the product once more to find them. Other statistics of rows are kept if
each result is smaller than the operand with the rows, as a loss is. The gradient would otherwise read long rows once more for
each statistic. A norm's are not kept: its gradient holds the row in registers. Statistics of images, folds over several dims, are
kept: no program holds an image. So are folds of operands that the gradient reads for nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import replace

from tritongen.autodiff import exprs
from tritongen.autodiff.assemble import names_read
from tritongen.autodiff.products import matrix_products
from tritongen.ir.algebra import Poly, index, poly, substitute_atoms, symbols
from tritongen.ir.atoms import Atom, Fetch
from tritongen.ir.free import folds_of, free_indices, needed, with_coordinates
from tritongen.ir.names import free_name
from tritongen.ir.nodes import (
    BATCH,
    FLOATS,
    Constant,
    Expr,
    Nest,
    Op,
    Read,
    Reduce,
    Tensor,
    kind_of,
    may_be_f64,
    rebuild,
    walk,
)


def keeping(op: Op, lines: tuple[Nest, ...], back: Op) -> Op | None:
    """The op, with the values that its gradient `back` would compute again as further outputs. `kept` names them.

    `lines`: the lines of the op as the gradient has them.
    """
    if op.gradient != "derive":
        return None
    places = _places(op, lines, back)
    found = dict[str, tuple[Nest, Tensor]]()
    taken = {p.name for p in (*op.params, *op.outputs)} | {nest.name for nest in lines}
    again = {nest.name for nest in _without(back, places.keys())}
    rows = _statistics(op, lines)
    images = {line.name for line in lines if _is_of_several_dims(op, line)}
    images |= _alone_with_operands(op, lines, back, places.keys())
    images |= _of_large_operands(op, lines)

    def keep(line: Nest, like: Tensor) -> None:
        # No kept value has the name of the gradient of another: an op may have lines f_sum and df_sum.
        name = free_name(f"{line.name}_kept", taken | {t[1:] for t in taken if t[0] == "d"})
        found[line.name] = _copy(line, name, like)
        taken.update((name, f"d{name}"))

    for line in lines:
        if line.name in places and _counts_few(op, line):
            keep(line, replace(places.pop(line.name), dtype="i32"))
            continue
        if line.name not in again or kind_of(line.dtype, op) != "float":
            continue
        like = _room(op, line, op.tensors if line.name in rows else ())
        if line.name in images:
            like = Tensor(line.name, exprs.COMPUTE, line.dims)
        elif like is not None and line.name in rows:
            doubles = any(may_be_f64(t.dtype, op) for t in op.tensors)
            like = replace(like, dtype=exprs.COMPUTE if doubles else "f32")
        elif like is None or not any(matrix_products(line)):
            continue
        keep(line, like)
    if not found and not places:
        return None
    own = {nest.name for nest in op.nests}
    added = [line for line in lines if line.name in places.keys() - own]
    lines = tuple(line for line in lines if line not in added)
    spoken = found.keys() | set().union(*(names_read(line.body) for line in added))
    if not spoken & ({line.name for line in lines} - own):
        lines = op.nests
    nests = [
        n for line in lines for n in (line, *(found[line.name][:1] if line.name in found else ()))
    ]
    nests += added
    wanted = (
        {o.name for o in op.outputs} | places.keys() | {copy.name for copy, _ in found.values()}
    )
    # What the spec computes for nobody stays, and what that reads.
    used = {n.name for n in needed(nests, wanted | own)}
    nests = [n for n in nests if n.name in used]
    outputs = (*(tensor for _, tensor in found.values()), *places.values())
    return replace(
        op,
        name=f"{op.name}_forward",
        outputs=(*op.outputs, *outputs),
        nests=tuple(nests),
        kept=tuple(o.name for o in outputs),
        ref=None,
        tune=(),
        doc=f"{op.name}, which also returns {' and '.join((*found, *places))} for its gradient.",
        text="",
    )


def _places(op: Op, lines: tuple[Nest, ...], back: Op) -> dict[str, Tensor]:
    """The lines that say which element was taken, of operands that the gradient reads for nothing else."""
    again = {nest.name for nest in back.nests}
    found = {
        line.name: (line, Tensor(line.name, line.dtype, line.dims, like.whole))
        for line in lines
        if isinstance(line.body, Reduce) and line.body.is_place and line.name in again
        if (like := _room(op, line))
    }
    rest = _without(back, found.keys())
    read = set().union(*(names_read(nest.body) for nest in rest))
    return {n: kept for n, (line, kept) in found.items() if not names_read(line.body) & read}


def _counts_few(op: Op, line: Nest) -> bool:
    """Whether 32 bits hold a place: it is one of a window, whose size is a constant."""
    constants = {p.name for p in op.params if isinstance(p, Constant)}
    return all(symbols(b.hi - b.lo) <= constants for f in folds_of(line.body) for b in f.binders)


def _statistics(op: Op, lines: tuple[Nest, ...]) -> set[str]:
    """The folds over values that follow from a product larger than each result: a softmax's maximum and sum over scores.

    Found again, each would take the product again. They are kept in the type that the op computes in.
    """
    behind, found = set[str](), set[str]()
    for line in lines:
        follows, large = bool(names_read(line.body) & behind), _room(op, line) is None
        if large and any(matrix_products(line)):
            behind.add(line.name)
        elif follows and isinstance(line.body, Reduce) and _room(op, line, op.tensors):
            found.add(line.name)
        elif follows and large:
            behind.add(line.name)
    return found


def _is_of_several_dims(op: Op, line: Nest) -> bool:
    """Whether a line folds all of an operand but for its own indices, over several dims: an image, which no program holds.

    The gradient would read the operand once more to fold it again. The result is smaller than the operand.
    """
    found = folds_of(line.body)
    if len(found) != 1 or found[0].guards or kind_of(line.dtype, op) != "float":
        return False
    (fold,) = found
    if len(fold.binders) < 2 and not any(b.index == BATCH for b in fold.binders):
        return False
    if any(b.lo.terms for b in (*line.box, *fold.binders)):
        return False
    own = {b.index for b in (*line.box, *fold.binders)}
    operands = {t.name for t in op.tensors}
    return line.coords == tuple(index(b.index) for b in line.box) and any(
        isinstance(e, Read) and e.tensor in operands and free_indices(e) == own
        for e in walk(fold.body)
    )


def _of_large_operands(op: Op, lines: tuple[Nest, ...]) -> set[str]:
    """Folds over a whole operand that is larger than each result, such as the maximum and the sum of a cross entropy."""

    def is_kept(line: Nest) -> bool:
        if not isinstance(line.body, Reduce) or line.body.is_place or not line.dims:
            return False
        terms = Counter((*line.dims, *(b.hi - b.lo for b in line.body.binders)))
        return any(
            terms == (whole := Counter(t.dims)) and all(Counter(o.dims) < whole for o in op.outputs)
            for t in op.tensors
        )

    return {line.name for line in lines if is_kept(line) and _room(op, line, op.tensors)}


def _alone_with_operands(op: Op, lines: tuple[Nest, ...], back: Op, given: Set[str]) -> set[str]:
    """The folds of operands that the gradient needs for nothing else, such as the log-probabilities of a preference loss."""
    again, operands = {nest.name for nest in back.nests}, {t.name for t in op.tensors}
    folds = {
        line.name: names_read(line.body) & operands
        for line in lines
        if line.name in again and isinstance(line.body, Reduce) and not line.body.is_place
        if not any(matrix_products(line)) and kind_of(line.dtype, op) == "float"
    }
    folds = {n: own for n, own in folds.items() if own}
    rest = _without(back, folds.keys() | given)
    read = set[str]().union(*(names_read(nest.body) for nest in rest))
    smaller = {line.name for line in lines if _room(op, line, op.tensors) or not line.dims}
    return {n for n, own in folds.items() if own - read and n in smaller}


def _without(back: Op, given: Set[str]) -> tuple[Nest, ...]:
    """The lines of a gradient that is given these."""
    return needed(back.nests, {o.name for o in back.outputs}, given)


def _copy(line: Nest, name: str, like: Tensor) -> tuple[Nest, Tensor]:
    value = exprs.cast(Read(line.name, line.coords, None, line.dtype), like.dtype)
    copy = replace(line, name=name, body=value, dtype=like.dtype)
    return copy, Tensor(name, like.dtype, line.dims, like.whole)


def _room(op: Op, line: Nest, operands: tuple[Tensor, ...] = ()) -> Tensor | None:
    """A result, or one of these operands, that the line is no larger than; of a float a floating one."""
    if line.coords != tuple(index(b.index) for b in line.box):
        return None
    if any(b.lo != Poly() or b.hi != dim for b, dim in zip(line.box, line.dims, strict=True)):
        return None
    stored = (*op.outputs, *operands)
    fitting = (o for o in stored if not Counter(line.dims) - Counter(o.dims))
    if kind_of(line.dtype, op) == "float":
        floats = {p.name for p in op.typarams if set(p.dtypes) <= set(FLOATS)} | set(FLOATS)
        fitting = (o for o in fitting if o.dtype in floats)
    return next(fitting, None)


def from_kept(op: Op, nests: tuple[Nest, ...]) -> tuple[Nest, ...]:
    """The lines, reading what the op keeps in place of the temporaries that it copied."""
    copies = {n.name: n for n in op.nests if n.name in op.kept and not isinstance(n.body, Reduce)}
    kept = {e.tensor: n for n in copies.values() for e in walk(n.body) if isinstance(e, Read)}

    def change(expr: Expr) -> Expr:
        match expr:
            case Read(tensor, dtype=dtype) if tensor in kept:
                read = replace(expr, tensor=kept[tensor].name, dtype=kept[tensor].dtype)
                return exprs.cast(read, dtype)
        return expr

    def place(atom: Atom) -> Poly | None:
        if isinstance(atom, Fetch) and atom.tensor in kept:
            return poly(replace(atom, tensor=kept[atom.tensor].name))
        return None

    def read(body: Expr) -> Expr:
        return with_coordinates(rebuild(body, change), lambda p: substitute_atoms(p, place))

    return tuple(n if n.name in copies else replace(n, body=read(n.body)) for n in nests)
