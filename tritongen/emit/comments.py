"""The comments above statements of kernels: the lines of the op that they compute, in the language.

    # y_sum[...] = sum[d](e[..., d])
    y_sum = tl.full((ROWS, 1), 0.0, COMPUTE)
    ...
        # y[..., d] = e[..., d] / sum[k](e[..., k])
        y = e / y_sum

Input: a plan. Output: comments by the names of values: of the op's lines, and of the reducers that were taken out of them.
`KernelWriter.comment` decides which statement gets one.
"""

from __future__ import annotations

from tritongen.ir import nodes as ir
from tritongen.ir.free import tensors_read
from tritongen.ir.print import Dims, line_ast
from tritongen.ir.print_poly import NotWritable
from tritongen.reference.comments import commented
from tritongen.schedule.plan import Plan
from tritongen.syntax.unparse import unparse

WIDTH = 80  # of a comment, which stands at most 20 columns in


def comments_of(plan: Plan, dims: Dims) -> dict[str, tuple[str, ...]]:
    """The comments of values. A reducer that alone determines its line has that line's comment: `mu[...] = mean[d](x[..., d])` above the sum.

    So has a reducer for which the language has no line of its own. Some lines of gradients have no comment.
    """
    # A line may read a value that no kernel computes separately any more.
    dims = {**{nest.name: nest.dims for nest in plan.inner.nests}, **dims}
    parts = (plan.chunks.body, plan.chunks.behind) if plan.chunks else ()
    found = {n.name: comment(p.inner, n, dims) for p in (*parts, plan) for n in p.inner.nests}
    lines = {nest.name: nest for nest in plan.nests}
    for nest in plan.nests:
        if nest.part_of:
            alone = tensors_read(lines[nest.line].body) == {nest.name}
            found[nest.name] = (not alone and comment(plan.inner, nest, dims)) or found[nest.line]
    return found


def comment(op: ir.Op, nest: ir.Nest, dims: Dims) -> tuple[str, ...]:
    """The line of the language that computes it; nothing where there is none."""
    try:
        return tuple(commented(unparse(line_ast(op, nest, dims)), WIDTH))
    except NotWritable:
        return ()
