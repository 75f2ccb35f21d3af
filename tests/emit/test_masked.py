"""What masked lanes are loaded as is a value of the operand's type."""

from __future__ import annotations

import math

import pytest

from tritongen.check import check
from tritongen.emit.masked import Lanes, masked_value
from tritongen.ir.free import free_indices, reads
from tritongen.syntax.parse import parse


@pytest.mark.parametrize("type, holds", [("float", True), ("f8e4m3 | f16", False), ("int", False)])
@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_lanes_are_infinite_only_where_the_type_is(type, holds, value):
    """An f8e4m3 has no infinity. As NaN, it gave NaN for the minimum of `(z + b) * y`."""
    op = check(parse(f"op f<T: {type}>(b: T[N]) -> m: f32 {{ m = min[n](f32(b[n])) }}"))[-1]
    (nest,) = op.typings[0].nests
    (read,) = reads(nest.body)
    lanes = Lanes({"b": value}, frozenset(free_indices(read)), op.typings[0])
    assert masked_value(read, lanes) == (value if holds else None)
