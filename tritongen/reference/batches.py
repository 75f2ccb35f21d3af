"""The batch dims of operands as torch code: their slice of a shape, what they broadcast to, operands expanded to that.

    batch_slice(x) -> "x.shape[:-1]"        expanded(x, "batch_shape") -> "x.expand(*batch_shape, -1)"

Launches say the same (`tritongen.emit`). Not here: which operands have such dims (`ir/batches.py`).
"""

from __future__ import annotations

from tritongen.ir.batches import Own
from tritongen.ir.nodes import BATCH_SIZE, Tensor


def batch_slice(tensor: Tensor) -> str:
    """The batch dims of a tensor's shape."""
    at = tensor.dims.index(BATCH_SIZE)
    behind = len(tensor.dims) - at - 1
    if at == 0 and behind == 0:
        return f"{tensor.name}.shape"
    return f"{tensor.name}.shape[{at or ''}:{-behind if behind else ''}]"


def broadcast_text(tensors: tuple[Tensor, ...]) -> str:
    """The broadcast shape of the batch dims of these operands."""
    shapes = ", ".join(batch_slice(t) for t in tensors)
    return shapes if len(tensors) == 1 else f"torch.broadcast_shapes({shapes})"


def expanded(tensor: Tensor, batch: str) -> str:
    """An operand with its batch dims expanded; expand aligns from the right, so dims before them go behind."""
    before = tensor.dims.index(BATCH_SIZE)
    rest = ["-1"] * (len(tensor.dims) - 1)
    shape = ", ".join([f"*{batch}", *rest]) if rest else batch
    if not before:
        return f"{tensor.name}.expand({shape})"
    first = ", ".join(map(str, range(before)))
    last = ", ".join(str(k - before) for k in range(before))
    if before > 1:
        first, last = f"({first})", f"({last})"
    return f"{tensor.name}.movedim({first}, {last}).expand({shape}).movedim({last}, {first})"


def own_lines(owns: tuple[Own, ...]) -> list[str]:
    """The operands that an op has more where it is evaluated: others with a batch dim of their own."""
    lines, shapes = [], {}
    for own in owns:
        t, name = own.tensor, own.tensor.name
        shape, seen = batch_slice(t), name
        if len(own.operands) > 1:
            if own.size not in shapes:
                shapes[own.size] = f"{own.size.lower()}_shape"
                lines.append(f"{shapes[own.size]} = {broadcast_text(own.operands)}")
            shape = shapes[own.size]
            seen = expanded(t, shape)
        at = t.dims.index(BATCH_SIZE)
        behind = len(t.dims) - 1 - at
        before = f"*{name}.shape[:{at}], " if at else ""
        after = f", *{name}.shape[-{behind}:]" if behind else ""
        lines.append(f"{own.name} = {seen}.reshape({before}{shape}.numel(){after})")
    return lines
