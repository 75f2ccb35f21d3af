"""Helpers of references, in torch: reads that may be out of bounds, blocks of an iteration space, the first of equal terms.

y = read_else(x, 0.0, n, p - 1)                 # `(x[n, p - 1] else 0)` of a spec
for n_block, p_block in box_parts(C * R, N, P): ...
place = first_extreme(True, terms, there, 0)    # argmax
"""

from __future__ import annotations

import torch


def read_else(tensor: torch.Tensor, fill: float, *index: torch.Tensor | int) -> torch.Tensor:
    """tensor[index], and `fill` where an index is outside. Half and f8 types return f32, because they may not represent `fill`."""
    inside, at = True, []
    for i, size in zip(index, tensor.shape, strict=True):
        i = torch.as_tensor(i, dtype=torch.int64, device=tensor.device)
        inside = inside & (i >= 0) & (i < size)
        at.append(i.clamp(0, max(size - 1, 0)))
    half = tensor.dtype.is_floating_point and tensor.dtype.itemsize < 4
    wide = torch.float32 if half else tensor.dtype
    if tensor.numel() == 0:
        return tensor.new_full(inside.shape, fill, dtype=wide)  # type: ignore[attr-defined]
    return torch.where(inside, tensor[tuple(at)].to(wide), fill)  # type: ignore[call-overload]


def box_parts(terms: int, *sizes: int) -> list[tuple[slice, ...]]:
    """Slices that cover a box in parts of at most 2 ** 19 terms, so many to a point.

    That is small enough for a processor's cache, and large enough for the loop to cost nothing.
    """
    room = max(1, 2**19 // max(1, terms))
    parts: list[tuple[slice, ...]] = [()]
    for size in sizes[::-1]:
        length = max(1, min(size, room))
        room = max(1, room // length)
        cuts = [slice(i, min(i + length, size)) for i in range(0, size, length)]
        parts = [(cut, *part) for cut in cuts for part in parts]
    return parts


def first_extreme(
    largest: bool, terms: torch.Tensor, there: torch.Tensor, start: int
) -> torch.Tensor:
    """start plus the place of the first extreme term that is there, a NaN before any; -1 where none is."""
    if terms.shape[-1] == 0:
        return torch.full(terms.shape[:-1], -1, device=terms.device)
    best = terms.amax(-1, keepdim=True) if largest else terms.amin(-1, keepdim=True)
    hit = there & ((terms == best) | (terms != terms))
    return torch.where(hit.any(-1), start + hit.to(torch.int8).argmax(-1), -1)
