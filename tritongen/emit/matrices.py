"""Operands of products as matrices: the dims of a batch in front, then the two that tiles have.

matrix_text("w", [0, 2, 1]) -> "w.mT"
"""

from __future__ import annotations

from tritongen.schedule.plan import KernelPlan, View

SIDES = (("m", "k"), ("k", "n"))  # the axes of a factor's tile, as tl.dot wants it


def matrix_order(kernel: KernelPlan, tile: View, axes: tuple[str, str]) -> list[int]:
    """The operand's dims, those of these axes last."""
    digits = {a.name: a.names for a in kernel.axes}
    own = [tile.runs.index(digits[name]) for name in axes]
    return [*(k for k in range(len(tile.runs)) if k not in own), *own]


def matrix_text(tensor: str, order: list[int]) -> str:
    """The tensor with its dims in this order, on the host."""
    rank = len(order)
    turned = order == [*range(rank - 2), rank - 1, rank - 2]
    return f"{tensor}.mT" if turned else f"{tensor}{permuted(tuple(order))}"


def permuted(order: tuple[int, ...]) -> str:
    """A tensor's dims in this order, on the host; nothing for none, or where they are so."""
    if order == tuple(range(len(order))):
        return ""
    return f".permute({', '.join(map(str, order))})"
