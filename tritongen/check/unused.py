"""E115, operands that nothing needs, and E303, an op without an operand that gives it a device.

Input: an op of the tree whose lines are checked, the scope. Output: findings. An operand may be needed without being read: if it
alone gives a size, a dtype or the `...` of an output, as in many gradients, or if it is the only tensor, which says where the
call runs.
"""

from __future__ import annotations

from tritongen.check.scope import Scope
from tritongen.check.trees import parts, walk
from tritongen.ir.nodes import BATCH
from tritongen.syntax import ast

DEVICE = "device"  # no size or type parameter is lower case


def unused_operands(scope: Scope, op: ast.OpDef) -> None:
    """E115: nothing reads it, and it gives no size or dtype that something else needs."""
    if scope.report.errors:
        return  # a line that is wrong may be what reads it
    missing, in_dims = _needed(op), _in_dims(op)
    is_used = {p.name: p.name in scope.used or p.name in in_dims for p in op.params}
    for p in sorted(op.params, key=lambda p: not is_used[p.name]):  # what is read gives first
        if not is_used[p.name] and not _given(p) & missing:
            scope.report.add(
                "E115",
                f"`{p.name}` is never used",
                p.span,
                label="nothing reads it",
                help="delete it, or read it in a line",
            )
        missing -= _given(p)
    if DEVICE in missing:
        scope.report.add(
            "E303",
            f"`{op.name}` has no tensor operand",
            op.span,
            label="no operand says where it runs",
            help="give it one: `x: f32[N]`",
        )


def _given(p: ast.Param) -> set[str]:
    """What a tensor operand binds: its type parameter, sizes that are alone in its dims, `...`."""
    if not isinstance(p, ast.Operand) or p.type.dims is None:
        return set()
    names = {BATCH if isinstance(d, ast.Dots) else d.name for d in p.type.dims
             if isinstance(d, (ast.Dots, ast.Size))}  # fmt: skip
    return names | {p.type.dtype, DEVICE}


def _needed(op: ast.OpDef) -> set[str]:
    """Names of sizes and type parameters that an operand has to give."""
    outputs = [d for o in op.outputs for d in o.type.dims or ()]
    nodes: list[ast.Node] = [*outputs, *(f.expr for f in op.facts)]
    nodes += [line.value for line in op.lines]
    nodes += [left for line in op.lines for left in line.indices or () if parts(left)]
    named = (ast.Size, ast.Call, ast.Binder)  # a reducer over `...` counts
    found = {n.name for node in nodes for n in walk(node) if isinstance(n, named)}
    found |= {o.type.dtype for o in op.outputs} & {p.name for p in op.typarams}
    return found | {DEVICE} | {BATCH for d in outputs if isinstance(d, ast.Dots)}


def _in_dims(op: ast.OpDef) -> set[str]:
    nodes = [
        d
        for p in (*op.params, *op.outputs)
        if isinstance(p, ast.Operand)
        for d in p.type.dims or ()
    ]
    return {n.name for node in nodes for n in walk(node) if isinstance(n, ast.Name)}
