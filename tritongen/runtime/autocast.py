"""torch.autocast and a generated op: nothing by default; `autocast low` or `f32` casts its floating operands.

    with disabled(): softmax_reference(x)       # torch's own ops inside are not cast
    x = cast(x, "low")                          # to the dtype of the region

Cast is what torch would cast: floating tensors on the device that the region is for, f64 aside.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

_any_enabled = torch._C._is_any_autocast_enabled
_nothing = nullcontext()
_CAST = frozenset({torch.float32, torch.float16, torch.bfloat16})


def disabled() -> AbstractContextManager[Any]:
    """A region in which autocast does nothing; what is asked outside of one costs next to nothing."""
    return torch._C._DisableAutocast() if _any_enabled() else _nothing


def cast(value: Any, mode: str) -> Any:
    """An operand of a call as the op's `autocast` clause wants it here. Asked where some region is."""
    if not isinstance(value, torch.Tensor) or value.dtype not in _CAST:
        return value
    device = value.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):  # which no region is for
        return value
    dtype = torch.get_autocast_dtype(device) if mode == "low" else torch.float32
    return value if value.dtype is dtype else value.to(dtype)
