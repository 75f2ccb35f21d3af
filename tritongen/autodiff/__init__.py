"""Gradients, derived on the IR: the adjoint of a nest is a nest.

    gradient(op)       ->  the op that takes op's operands and dy, and gives dx
    with_gradient(op)  ->  the op that runs before it, which may keep values for it, and that

`backward.py` is where to start reading: `lift` names what is wanted again, `flow` hands a line's
gradient to its reads, `invert` and `term` turn each into a sum over the read's own indices, `zero`
drops what vanishes, `kept` says what is not computed again; `written` has the language read what came out. Nothing here schedules or writes Triton.
"""

from tritongen.autodiff.backward import NotDifferentiable
from tritongen.autodiff.written import (
    gradient,
    gradient_to_derive,
    with_gradient,
    without_handed_on,
)

__all__ = [
    "NotDifferentiable",
    "gradient",
    "gradient_to_derive",
    "with_gradient",
    "without_handed_on",
]
