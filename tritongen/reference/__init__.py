"""An op as torch code: functions that a generated module holds beside its kernels.

    reference_lines(op)  ->  `def softmax_reference(x)`: what the body means, line by line
    claim_lines(op)      ->  `def softmax_torch(x)`: what its `ref` says that it equals

Input: the typings of an op. Output: lines of Python that import nothing but torch. `printer.py` is where to
start reading: `nests` prints lines of a body, `products` finds which sums are einsums, `dims` lays tensors out, `sizes`
names, `batches` what broadcasts. Nothing here imports torch, or knows of launches and Triton (`tritongen.emit`).
"""

from tritongen.reference.printer import claim_lines, reference_lines

__all__ = ["claim_lines", "reference_lines"]
