"""What the compilers below Triton get wrong, mended while they compile.

lib.mend_llvm()     # before a module's kernels are: by `runtime.op`, and by `replayed` in one that stands alone
"""

from __future__ import annotations

import re
from typing import Any

import triton


def mend_llvm() -> None:
    """Has Triton 3.6 take `nuw` and `nsw` from shifts and products of vectors: its LLVM lowers those wrongly to PTX.

    Of `shl nuw nsw <2 x i32> %v, <31, 3>`, whose first element nobody reads, it puts both into one register of 64 bits; the
    first overflows there into the second, a lane's row. Kernels were wrong so, or failed with `misaligned address`. The
    flags are promises that such an element breaks, and nothing else asks for them. Triton 3.7's LLVM needs no mending.

    Compiles of the whole process go by it, after a hook for stages that was there before; binaries that Triton's cache
    holds do not.
    """
    knobs = triton.knobs.runtime
    before = knobs.add_stages_inspection_hook
    if not triton.__version__.startswith("3.6.") or hasattr(before, "mends_llvm"):
        return

    def hook(backend: Any, stages: dict[str, Any], *rest: Any) -> None:
        if before is not None:
            before(backend, stages, *rest)
        if "ptx" in stages:
            stages["llir"] = _unpromised(stages["llir"])

    hook.mends_llvm = True  # type: ignore[attr-defined]
    knobs.add_stages_inspection_hook = hook


def _unpromised(make: Any) -> Any:
    """A stage that makes LLVM's text, as `mend_llvm` says."""

    def made(src: Any, metadata: Any) -> str:
        return re.sub(r"\b(shl|mul) (?:nuw )?(?:nsw )?<", r"\1 <", make(src, metadata))

    return made
