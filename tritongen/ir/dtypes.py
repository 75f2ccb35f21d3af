"""The dtypes of the language: one row each, and all that the compiler knows of it.

    DTYPES["f8e4m3"]        # Dtype("f8e4m3", "float", 8, ..., torch="float8_e4m3fn", triton="float8e4nv")

"compute", what half types are computed in, is no row: it is f32, or f64 where an operand of the call is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dtype:
    """A row of the table of dtypes.

    digits: those of the significand, the leading one included; of an integer all. storage: it is only loaded and stored, and computed
    with in a wider dtype. normal: the least normal number and the largest one, of those that are rounded when they are stored.
    """

    name: str
    kind: str  # "float" | "int" | "bool"
    bits: int
    digits: int
    torch: str
    triton: str
    storage: bool = False
    normal: tuple[float, float] = (0.0, math.inf)

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory."""
        return self.bits // 8


DTYPES = {
    row.name: row
    for row in (
        Dtype("f64", "float", 64, 53, "float64", "float64"),
        Dtype("f32", "float", 32, 24, "float32", "float32"),
        Dtype("f16", "float", 16, 11, "float16", "float16", normal=(2.0**-14, 65504.0)),
        Dtype("bf16", "float", 16, 8, "bfloat16", "bfloat16", normal=(2.0**-126, 255 * 2.0**120)),
        Dtype("f8e4m3", "float", 8, 4, "float8_e4m3fn", "float8e4nv", True, (2.0**-6, 448.0)),
        Dtype("f8e5m2", "float", 8, 3, "float8_e5m2", "float8e5", True, (2.0**-14, 57344.0)),
        Dtype("i64", "int", 64, 63, "int64", "int64"),
        Dtype("i32", "int", 32, 31, "int32", "int32"),
        Dtype("i16", "int", 16, 15, "int16", "int16"),
        Dtype("i8", "int", 8, 7, "int8", "int8"),
        Dtype("u8", "int", 8, 8, "uint8", "uint8"),
        Dtype("bool", "bool", 8, 1, "bool", "int1"),
    )
}


def _names(kind: str, storage: bool = False) -> tuple[str, ...]:
    return tuple(d.name for d in DTYPES.values() if (d.kind, d.storage) == (kind, storage))


FLOATS, INTS = _names("float"), _names("int")
NARROW_FLOATS = _names("float", storage=True)
# Dtypes that are computed in a wider float and rounded when they are stored.
HALVES = tuple(n for n in (*FLOATS, *NARROW_FLOATS) if DTYPES[n].bits < 32)
TORCH_NAMES = {d.name: d.torch for d in DTYPES.values()}


def is_exact(value: float, dtypes: Iterable[str]) -> bool:
    """Whether each half and f8 type of these represents a number exactly: f8e4m3 has no infinity, bf16 no 0.1. Denormals count as inexact."""

    def has(row: Dtype) -> bool:
        if value == 0 or math.isinf(value):
            return value == 0 or row.name != "f8e4m3"
        (least, most), (significand, _) = row.normal, math.frexp(value)
        return least <= abs(value) <= most and math.ldexp(significand, row.digits).is_integer()

    return all(has(DTYPES[d]) for d in dtypes if d in HALVES)
