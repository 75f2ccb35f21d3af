"""The gradient of an op as its text says it.

Input: an op. Output: its backward op, written down and read as any spec is. What a user sees, proves
and pastes is then the op that is built: a literal, a cast or a guard that the rules of derivation and
those of the language put differently is as the language has it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tritongen.autodiff.backward import derive
from tritongen.check import check
from tritongen.ir.nodes import Op
from tritongen.ir.print import print_op
from tritongen.ir.print_poly import NotWritable
from tritongen.syntax.parse import parse


def gradient(op: Op, wrt: Iterable[str] | None = None) -> Op:
    """The backward op; `wrt` names the operands and scalars wanted, by default all floats.

    As it was derived where the language has no text for it.
    """
    derived = derive(op, wrt)
    try:
        text = print_op(derived)
    except NotWritable:
        return derived
    ((read,),) = (found.typings for found in check(parse(text, f"the gradient of {op.name}")))
    return read
