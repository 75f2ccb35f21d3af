"""The values of masked lanes: the `other` of each load, chosen so that folds need no mask of their own.

A softmax loads -inf behind the end of its row. That gives the right maximum, and, because exp(-inf - m) is 0, the right
sum without a second mask. `choose_fill` tries a few values. If none works, the fold masks its term.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from tritongen.ir import nodes as ir
from tritongen.ir.dtypes import NARROW_FLOATS
from tritongen.ir.free import free_indices
from tritongen.ir.on_numbers import on_numbers
from tritongen.ir.reducers import REDUCERS
from tritongen.schedule.paired import WIDE
from tritongen.schedule.plan import Axis

UNKNOWN = None  # any number, or NaN
CANDIDATES = (0.0, -math.inf, math.inf, 1.0)
LEAST, MOST = 2.0**-126, 2.0**127  # finite numbers that f32 and f64 both hold, but for 0


@dataclass(frozen=True, slots=True)
class Lanes:
    """The values of masked lanes: by tensor, if it is read along the columns, and by computed value."""

    tensors: dict[str, float]
    columns: frozenset[str]
    op: ir.Op
    computed: dict[str, float | None] = field(default_factory=dict)
    extremes: dict[str, ir.Expr] = field(default_factory=dict)  # of a row, with the terms

    def read(self, read: ir.Read) -> float | None:
        if read.tensor in self.computed:
            return self.computed[read.tensor]
        along = read.fill is None and free_indices(read) & self.columns
        value = self.tensors.get(read.tensor) if along else UNKNOWN
        if value in (math.inf, -math.inf) and not _holds_infinity(read.dtype, self.op):
            return UNKNOWN
        return value


def masked_value(expr: ir.Expr, lanes: Lanes) -> float | None:
    """The value of expr on masked lanes, UNKNOWN where it depends on the data."""
    match expr:
        case ir.Const(value):
            return _held(float(value))
        case ir.Read():
            return lanes.read(expr)
        case ir.Cast(arg, dtype):
            return _cast(masked_value(arg, lanes), dtype, lanes.op)
        case ir.Call("sub", (a, ir.Read(row))) if lanes.extremes.get(row) == a:
            # If their extreme is infinite too, all terms inside are infinite, and the result is NaN in any case.
            held = masked_value(a, lanes)
            return held if held in (math.inf, -math.inf) else UNKNOWN
        case ir.Call(fn, args):
            return _held(on_numbers(fn, [masked_value(a, lanes) for a in args]))
    return UNKNOWN


def _held(value: float | None) -> float | None:
    """A number, if a kernel has it whatever it computes in: exp(100) is infinite in f32."""
    if value is UNKNOWN or value == 0 or math.isinf(value):
        return value
    return value if LEAST <= abs(value) <= MOST else UNKNOWN


def _cast(value: float | None, dtype: str, op: ir.Op) -> float | None:
    """A number as another type has it, UNKNOWN where types of a call differ, or may round it."""
    kind = ir.kind_of(dtype, op)
    if value is UNKNOWN or kind == "int":
        return UNKNOWN
    if kind == "bool":
        return float(value != 0)
    if dtype in WIDE or value in (0.0, 1.0, -1.0):
        return value
    return value if math.isinf(value) and _holds_infinity(dtype, op) else UNKNOWN


def _holds_infinity(dtype: str, op: ir.Op) -> bool:
    """Whether the type has infinities in each call."""
    narrow = set(NARROW_FLOATS) & set(ir.dtypes_of(dtype, op))
    return ir.kind_of(dtype, op) == "float" and not narrow


def choose_fill(
    nests: tuple[ir.Nest, ...], tensors: tuple[str, ...], columns: Axis, op: ir.Op
) -> tuple[dict[str, float], set[str]]:
    """({tensor: what its masked lanes hold}, the reducers that then need no mask)."""
    if not tensors or len(tensors) > 3:
        return {}, set()
    best: tuple[dict[str, float], set[str]] = ({}, set())
    for values in itertools.product(CANDIDATES, repeat=len(tensors)):
        held_by = dict(zip(tensors, values, strict=True))
        lanes = Lanes(held_by, frozenset(columns.names), op)
        mask_redundant = set()
        for nest in nests:
            if isinstance(nest.body, ir.Reduce):
                wanted = REDUCERS[nest.body.op].identity
                held = masked_value(nest.body.body, lanes)
                if held is not None and wanted == held and not nest.body.guards:
                    mask_redundant.add(nest.name)
                lanes.computed[nest.name] = UNKNOWN
                if nest.name in mask_redundant and nest.body.op in ("max", "min"):
                    lanes.extremes[nest.name] = nest.body.body
            else:
                lanes.computed[nest.name] = masked_value(nest.body, lanes)
        if len(mask_redundant) > len(best[1]):
            best = held_by, mask_redundant
    return best
