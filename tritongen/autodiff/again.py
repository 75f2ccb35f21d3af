"""Outputs that a gradient computes again instead of reading them.

Input: the lines of a backward op, which take its outputs as given. Output: lines that compute some of them:

    y_again[n, c] = relu(x[n, c] * w[c] + b[c])
    dw[c] = sum[n](where(y_again[n, c] <= 0, 0, dy[n, c] * x[n, c]))

A kernel that holds x computes y in a few instructions. Reading y would cost as much as reading x. An output is computed again
if its line reads exactly one tensor of the output's size, if the gradient reads that tensor anyway, and if all other values in
the line are smaller and available. A whole number without dims always is: as an operand it would be a float scalar. An
output that is not kept for the gradient always is, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tritongen.ir.free import folds_of, free_indices, needed, tensors_read
from tritongen.ir.nodes import Call, Expr, Nest, Op, Read, kind_of, walk
from tritongen.ir.rename import renamed

# Functions of one instruction or two.
SHORT = frozenset(
    "abs add and clamp eq ge gt le lt maximum minimum mul ne neg not or relu square sub where".split()
)


def computed_again(
    op: Op,
    nests: tuple[Nest, ...],
    gradients: set[str],
    free_name: Callable[[str], str],
    keeps: Collection[str] | None = None,
) -> tuple[Nest, ...]:
    """The lines of a gradient. New lines compute such outputs, and the other lines read these.

    keeps: the outputs that the lines may read. None: all.
    """
    given = {o.name for o in op.outputs}
    gone: set[str] = set() if keeps is None else given - {*keeps}
    used = needed(nests, gradients, given - gone)
    read = set[str]().union(*(tensors_read(nest.body) for nest in used))
    there = given | {nest.name for nest in used} | {p.name for p in op.params}
    stored = {t.name for t in (*op.tensors, *op.outputs)}
    near = (
        nest.name
        for nest in nests
        if nest.name in given & read
        and (
            nest.name in gone
            or _is_whole_number(op, nest)
            or _is_near(nest, read & stored, there - {nest.name})
        )
    )
    return renamed(nests, {name: free_name(f"{name}_again") for name in near})


def _is_whole_number(op: Op, nest: Nest) -> bool:
    """Whether it is a whole number or a bool without dims: a scalar could be no coordinate."""
    return not nest.dims and kind_of(nest.dtype, op) != "float"


def _is_near(nest: Nest, read: set[str], there: set[str]) -> bool:
    """Whether the value follows in a few instructions from one tensor of its size, one of `read`, and smaller ones `there`."""
    whole = free_indices(nest.body)
    if not whole or folds_of(nest.body):
        return False
    reads = [node for node in walk(nest.body) if isinstance(node, Read)]
    wide = {r.tensor for r in reads if free_indices(r) == whole}
    return (
        len(wide) == 1
        and wide <= read
        and tensors_read(nest.body) <= there
        and all(r.fill is None for r in reads)
        and all(f in SHORT for f in _functions(nest.body, whole))
    )


def _functions(expr: Expr, whole: set[str]) -> list[str]:
    """The functions that are computed for each element. A value that is the same along a dim is computed less often."""
    calls = (node for node in walk(expr) if isinstance(node, Call))
    return [call.fn for call in calls if free_indices(call) == whole]
