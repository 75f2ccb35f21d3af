"""What a generated module imports at run time, and what loads one. Knows nothing of the compiler.

    from tritongen import runtime

    @runtime.op("specs/relu.op", lib=1, allocate=allocate_relu, reference=relu_reference)
    def relu(x: torch.Tensor) -> torch.Tensor: ...

`load.py` imports generated text; `interpret.py` lends Triton's interpreter the functions it lacks.
"""

from __future__ import annotations

import os

from tritongen.runtime.functional import Batch
from tritongen.runtime.gradients import Backward
from tritongen.runtime.precision import f32_precision
from tritongen.runtime.registry import op

if os.environ.get("TRITON_INTERPRET") == "1":
    from tritongen.runtime.interpret import (
        install_bf16,
        install_bool_argument,
        install_bool_splat,
        install_dtypes,
        install_extremes,
        install_f8,
        install_index,
        install_libdevice,
        install_one_patch,
        install_ones,
        install_tree_reduce,
    )
    from tritongen.runtime.interpret_types import (
        install_agreement,
        install_kept_types,
        install_no_overflow_check,
        install_plain_builtins,
    )

    install_bf16()
    install_f8()
    install_libdevice()
    install_tree_reduce()
    install_bool_splat()
    install_bool_argument()
    install_index()
    install_extremes()
    install_ones()
    install_dtypes()
    install_one_patch()
    install_kept_types()
    install_agreement()
    install_plain_builtins()
    install_no_overflow_check()

__all__ = ["Backward", "Batch", "f32_precision", "op"]
