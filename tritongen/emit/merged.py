"""Tensors of one shape as three dims, on the host: dims that are adjacent in memory are merged, in the order of the result.

    x, b, y = lib.three_dims(*torch.broadcast_tensors(x, b[:, None, None], y))

A result with another layout than the last one is copied back after the launch. `launch.py` handles tensors that are
addressed dim by dim.
"""

from __future__ import annotations

from tritongen.emit.kernel_writer import Context
from tritongen.emit.sizes import under, whole
from tritongen.emit.text import tuple_text
from tritongen.ir import nodes as ir
from tritongen.ir.batches import broadcasting
from tritongen.reference.batches import expanded
from tritongen.schedule.members import is_reducer
from tritongen.schedule.plan import Step


def one_batch(context: Context, tensor: str) -> bool:
    """Scratch is allocated with its batch dims flat, and all have one where they are numbered (`batches_first`)."""
    return context.flat or is_scratch(context, tensor)


def is_scratch(context: Context, tensor: str) -> bool:
    """Whether a tensor is no operand and no result."""
    return tensor not in {t.name for t in (*context.op.tensors, *context.op.outputs)}


def merge_lines(context: Context, step: Step) -> list[str]:
    """The dims of all tensors, broadcast to the shape of the result, merged to three."""
    if not step.merged:
        return []
    names, last = [t for t, _ in step.merged], step.stores[-1]
    flat = [t for t in names if one_batch(context, t) and ir.BATCH_SIZE in context.dims[t]]
    lines = [f"{t} = {_spread(context, t)}" for t in flat]
    more, given = (_under if any(at for _, at in step.merged) else _batches)(context, step, names)
    lines += more
    if _may_lie_apart(context, step):
        lines.append(f"stored = {tuple_text(step.stores)}")
    lines.append(f"{tuple_text(names)} = lib.three_dims({given})")
    lines.append(f"outer, middle, inner = {last}.shape")
    return [*lines, f"total = {last}.numel()"] if "total" in dict(step.facts) else lines


def put_back_lines(context: Context, step: Step) -> list[str]:
    """Lines behind the launch, if a result may have been stored in a copy with the layout of the last one."""
    if not step.merged or not _may_lie_apart(context, step):
        return []
    return [f"lib.put_back(stored, {tuple_text(step.stores)})"]


def _may_lie_apart(context: Context, step: Step) -> bool:
    """Outputs that one step stores lie alike, as its operands do; scratch is contiguous (`allocation.py`)."""
    return len({one_batch(context, t) for t in step.stores}) > 1


def flat_lines(context: Context, step: Step) -> list[str]:
    """The operands of a sum over all of `...`, whose terms may come in any order, with one dim; nothing for other steps."""
    row, col = step.kernels[0].axes[:2] if step.skeleton == "rows" else (None, None)
    if row is None or col is None or row.digits or col.names != (ir.BATCH,):
        return []
    if any(is_reducer(n) and n.fold.is_place for n in step.kernels[0].nests):
        return []  # the number of a term is that of its place
    flat = [t for t in step.touched if ir.BATCH_SIZE in context.dims[t]]
    if any(t in step.stores or one_batch(context, t) or len(context.dims[t]) > 1 for t in flat):
        return []
    operands = {t.name: t for t in broadcasting(context.op)}
    given = (expanded(operands[t], "batch_shape") if t in operands else t for t in flat)
    return [f"{tuple_text(flat)} = lib.flattened({', '.join(given)})"]


def _batches(context: Context, step: Step, names: list[str]) -> tuple[list[str], str]:
    """Lines, and what is merged then: of tensors that have batch dims alone."""
    operands = {t.name: t for t in broadcasting(context.op)}
    aligned = [t for t in names if t in operands and ir.BATCH_SIZE in operands[t].dims[1:]]
    lines = [f"{t} = {expanded(operands[t], 'batch_shape')}" for t in aligned]
    given = ", ".join(names)
    differ = operands.keys() & set(names) - set(aligned)
    return lines, f"*torch.broadcast_tensors({given})" if differ else given


def _under(context: Context, step: Step, names: list[str]) -> tuple[list[str], str]:
    """Same as `_batches`, for tensors that lack dims of the result."""
    result = context.dims[step.stores[0]]
    known = ((ir.Tensor(t, "", context.dims[t]), at) for t, at in step.merged)
    given = ", ".join(under(context.op, result, t, at) for t, at in known)
    alike = all(len(at) == len(result) for _, at in step.merged)
    if not alike or ir.BATCH_SIZE in result and broadcasting(context.op):
        return [], f"*torch.broadcast_tensors({given})"
    return [], given


def _spread(context: Context, tensor: str) -> str:
    """Scratch with its batch dims as the call has them."""
    dims = context.dims[tensor]
    if dims == (ir.BATCH_SIZE,):
        return f"{tensor}.view(batch_shape)"  # which may be empty
    sizes = ("*batch_shape" if d == ir.BATCH_SIZE else whole(d) for d in dims)
    return f"{tensor}.view({', '.join(sizes)})"
