"""What a module that imports nothing of tritongen has in place of `tritongen.runtime`. Its gradients are those of
`runtime/gradients.py`.
"""

from __future__ import annotations

import torch


def f32_precision(asked: str) -> str:
    """How products of f32 are computed: as the spec says, or where it does not, as torch's switch for them."""
    if asked in ("matmul", "conv"):
        switch = torch.backends.cudnn.conv if asked == "conv" else torch.backends.cuda.matmul
        allowed = switch.fp32_precision == "tf32" and not torch.version.hip
        asked = "tf32" if allowed else "tf32x3"
    return "ieee" if asked == "tf32x3" and torch.version.hip else asked
