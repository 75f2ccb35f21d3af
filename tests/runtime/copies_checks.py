"""Copies of operands that no view and no descriptor takes as they lie: of drawn shapes, orders, slices and dtypes.

Run by `test_batch.py`, with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tritongen.lib import converted, flattened, in_lines, is_aligned, packed, padded, reshaped

DTYPES = (torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool)


@st.composite
def laid_out(draw):
    """A tensor of 1 to 6 dims in any order, some of them sliced or expanded."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    steps = [draw(st.sampled_from((1, 1, 1, 2))) for _ in shape]
    starts = [draw(st.sampled_from((0, 0, 1))) for _ in shape]
    sizes = [n * k + s for n, k, s in zip(shape, steps, starts, strict=True)]
    x = torch.arange(torch.Size(sizes).numel()).reshape(sizes)
    for dim, (start, step) in enumerate(zip(starts, steps, strict=True)):
        x = x.narrow(dim, start, sizes[dim] - start)
        x = x[(slice(None),) * dim + (slice(None, None, step),)]
    x = x.permute(draw(st.permutations(range(x.dim()))))
    if draw(st.booleans()):
        dim = draw(st.integers(0, x.dim() - 1))
        x = x.narrow(dim, 0, 1).expand(
            *x.shape[:dim], draw(st.integers(1, 40)), *x.shape[dim + 1 :]
        )
    return x


def as_dtype(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Other numbers at the same strides."""
    whole = x.as_strided((x.untyped_storage().nbytes() // 8,), (1,), 0)
    return (whole % 251).to(dtype).as_strided(x.shape, x.stride(), x.storage_offset())


@settings(max_examples=40, deadline=None)
@given(laid_out(), st.sampled_from(DTYPES))
def test_a_copy_holds_what_its_tensor_does(x, dtype):
    x = as_dtype(x, dtype)
    assert torch.equal(reshaped(x, -1), x.reshape(-1))
    if x.dim() > 1:
        rows = packed(x)
        assert torch.equal(rows, x)
        assert rows.stride(-2) * rows.element_size() % 16 == 0 and rows.data_ptr() % 16 == 0


@settings(max_examples=40, deadline=None)
@given(laid_out(), st.sampled_from(DTYPES), st.sampled_from((1, 4, 16)))
def test_zeros_stand_behind_the_channels_of_a_copy(x, dtype, multiple):
    x = as_dtype(x, dtype)
    whole, channels = padded(x, multiple), x.shape[-1]
    assert whole.shape == (*x.shape[:-1], -(-channels // multiple) * multiple)
    assert torch.equal(whole[..., :channels], x) and not whole[..., channels:].any()
    assert is_aligned(whole) or multiple * x.element_size() < 16
    assert padded(whole, multiple) is whole or not is_aligned(whole)
    lined = in_lines(x)
    assert torch.equal(lined, x) and lined.stride(-1) == 1
    if dtype in (torch.int8, torch.bool):
        assert torch.equal(converted(x, torch.float32), x.float())


def test_zeros_stand_behind_channels_of_six_dims_no_two_of_which_are_one():
    x = torch.arange(4**6).reshape(4, 4, 4, 4, 4, 4)[::2, ::2, ::2, ::2, ::2, :3]
    whole = padded(x, 4)
    assert torch.equal(whole[..., :3], x) and not whole[..., 3:].any()


def test_a_view_is_no_copy_and_an_empty_tensor_none():
    x = torch.arange(24).reshape(4, 6)
    assert reshaped(x[:, :3], 4, 3, 1).data_ptr() == x.data_ptr()
    assert reshaped(x[:, :0].mT, 0).shape == (0,)
    assert reshaped(x[:1, :1]).shape == ()


@settings(max_examples=40, deadline=None)
@given(laid_out())
def test_elements_in_any_order_are_the_same_elements(x):
    """Of two tensors the same places meet, wherever these are then."""
    y = torch.arange(x.numel()).reshape(x.shape[::-1]).permute(*range(x.dim())[::-1])
    pairs = torch.stack([t.reshape(-1) for t in (x, y)], 1)
    found = torch.stack(flattened(x, y), 1)
    assert sorted(found.tolist()) == sorted(pairs.tolist())
