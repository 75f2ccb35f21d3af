"""Allocates results in the layout that torch's own op would use. `allocate_<op>` calls it.

y = lib.empty(x.shape, x.dtype, x, z)                   # pointwise: as TensorIterator orders dims
y = torch.empty(shape, memory_format=lib.memory_format(x, w))     # channels last if x or w is

`launch_<step>` allocates the parts of sums:
y_parts = lib.workspace(config, (M, N), torch.float32, x.device)

On CPU tensors torch computes the result, which may be a view of an operand:
return lib.apart(flatten_torch(x), x)
"""

from __future__ import annotations

import torch


def empty(shape: torch.Size, dtype: torch.dtype, *operands: torch.Tensor) -> torch.Tensor:
    """An empty result of a pointwise op. Its dims are ordered as those of the operands, the first operand first."""
    x = operands[0]
    if all(t.shape == shape for t in operands):
        if all(t.is_contiguous() for t in operands):
            return torch.empty(shape, dtype=dtype, device=x.device)
        if len(shape) == 4:
            last = torch.channels_last
            if all(t.is_contiguous(memory_format=last) for t in operands):
                return torch.empty(shape, dtype=dtype, device=x.device, memory_format=last)
        if all(t.stride() == x.stride() for t in operands):
            return torch.empty_like(x, dtype=dtype)
    rank = len(shape)
    strides = [
        (0,) * (rank - t.dim()) + t.expand(shape).stride()[rank - t.dim() :] for t in operands
    ]
    order = [*reversed(range(rank))]  # the innermost first
    for k in range(1, len(order)):
        at = k
        for j in reversed(range(k)):
            inside = _lies_inside(order[at], order[j], shape, strides)
            if inside is False:
                break
            if inside:
                order[j], order[at], at = order[at], order[j], j
    return torch.empty_permuted(shape, order[::-1], dtype=dtype, device=x.device)


def workspace(
    config: dict[str, int], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor | None:
    """A workspace [PARTS, *shape] for programs that share a sum. None if no programs do."""
    parts = config.get("PARTS", 1)
    return torch.empty((parts, *shape), dtype=dtype, device=device) if parts > 1 else None


def apart(
    results: torch.Tensor | tuple[torch.Tensor, ...], *operands: torch.Tensor
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The results. A result that shares memory with an operand, or with an earlier result, is copied."""
    several = results if isinstance(results, tuple) else (results,)
    taken = {t.untyped_storage().data_ptr() for t in operands}
    own = []
    for y in several:
        y = y.clone() if y.untyped_storage().data_ptr() in taken else y
        taken.add(y.untyped_storage().data_ptr())
        own.append(y)
    return tuple(own) if isinstance(results, tuple) else own[0]


def _lies_inside(dim: int, other: int, shape: torch.Size, strides: list) -> bool | None:
    """Whether `dim` is inside of `other` in memory, by the first operand that decides it. None if no operand does."""
    for own in strides:
        if own[dim] == 0 or own[other] == 0:
            continue
        if own[dim] != own[other]:
            return own[dim] < own[other]
        if shape[dim] < shape[other]:
            return True
    return None


def memory_format(
    *operands: torch.Tensor, most: int = 5, rank: int | None = None
) -> torch.memory_format:
    """channels_last if an operand of 4 or 5 dims is channels last, sliced or not.

    `most`: the largest number of dims; `rank`: that of the result, if operands may have another.
    """
    for x in operands:
        if 4 <= x.dim() <= most and rank in (None, x.dim()) and _is_channels_last(x):
            return torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    return torch.contiguous_format


def _is_channels_last(x: torch.Tensor) -> bool:
    """Whether a tensor is channels last, as torch decides. If both orders hold, it is not."""
    least, channels = 0, x.stride(1)
    for dim in (1, *reversed(range(2, x.dim())), 0):
        stride = x.stride(dim)
        if x.shape[dim] == 0 or stride == 0 and dim == 1 or stride < least:
            return False
        if dim == 0 and least == channels:
            return False
        least = stride * max(1, x.shape[dim])
    return True
