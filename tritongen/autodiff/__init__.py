"""Gradients, derived on the IR: the adjoint of a nest is a nest.

    gradient(op)       ->  the op that takes op's operands and dy, and returns dx
    with_gradient(op)  ->  the op that runs before it, which may keep values for it, and that gradient

Start with `backward.py`. Its parts:

- `lift` names values that the gradient reads again.
- `flow` passes a line's gradient to its reads.
- `places` sums the terms that go to one place, before they are scattered.
- `invert` and `term` turn each of these into a sum over the read's own indices.
- `zero` drops what vanishes.
- `kept` decides what is kept instead of computed again.
- `written` has the language read the result.
"""

from tritongen.autodiff.backward import NotDifferentiable
from tritongen.autodiff.written import (
    derived_again,
    gradient,
    gradient_to_derive,
    taking_what_it_reads,
    with_gradient,
    without_handed_on,
)

__all__ = [
    "NotDifferentiable",
    "derived_again",
    "gradient",
    "gradient_to_derive",
    "taking_what_it_reads",
    "with_gradient",
    "without_handed_on",
]
