"""Prints an op as torch code: the functions that a generated module holds beside its kernels.

    reference_lines(op)  ->  `def softmax_reference(x)`: the body, line by line
    claim_lines(op)      ->  `def softmax_torch(x)`: the `ref`, which the op must equal

Input: the typings of an op. Output: lines of Python over torch and `lib/references.py`. Start with `printer.py`. `nests` prints the lines
of a body, `products` finds the sums that are einsums, `dims` lays tensors out, `sizes` prints sizes and names, `batches`
handles broadcasting. This package does not import torch, and knows nothing about launches and Triton (`tritongen.emit`).
"""

from tritongen.reference.printer import claim_lines, reference_lines

__all__ = ["claim_lines", "reference_lines"]
