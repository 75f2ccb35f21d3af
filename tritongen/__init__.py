"""tritongen compiles specs in index notation to readable Triton kernels.

    ops = tritongen.load("specs/softmax.op")     # the ops of a spec file
    y = ops.softmax(x)
    f = tritongen.compile_expr("max(x, 0)")      # the op of one expression
    y = f(x)
    print(f.source)                              # the generated module

- `load(path)`, `compile_op(text)`, `compile_expr(text)`: make functions that you call with tensors.
- `precision(word)`: a context that sets how products of f32 are computed.
- `nn`: torch's layers over generated kernels.
- `SpecError`: the error of a wrong spec.

Importing this module imports neither torch nor triton. The first use of one of these names does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritongen import nn
    from tritongen.api import compile_expr, compile_op, load
    from tritongen.errors import SpecError
    from tritongen.runtime.precision import precision

__version__ = "0.1.0"
LANGUAGE = (
    "1.2"  # the version of the language that this compiler accepts: docs/language.md, CHANGELOG.md
)
__all__ = ["SpecError", "compile_expr", "compile_op", "load", "nn", "precision"]


def __getattr__(name: str) -> Any:
    if name == "SpecError":
        from tritongen.errors import SpecError

        return SpecError
    if name == "precision":
        from tritongen.runtime.precision import precision

        return precision
    if name == "nn":
        import importlib

        return importlib.import_module("tritongen.nn")
    if name in __all__:
        from tritongen import api

        return getattr(api, name)
    raise AttributeError(f"module 'tritongen' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext tritongen`: cells that begin with `%%op` hold specs."""
    from tritongen.notebook import load_ipython_extension

    load_ipython_extension(shell)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
