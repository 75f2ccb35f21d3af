"""Shorter rules for products whose elements have one width in all calls.

    T: f16 | bf16        BLOCK_K = 256 // itemsize if itemsize <= 2 else 32        is        BLOCK_K = 128

Input: a step and its op. Output: the step with such rules, without variants that no call can take, and without their kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.dtypes import DTYPES
from tritongen.schedule import rules
from tritongen.schedule.classes.contraction_operands import storage_dtype
from tritongen.schedule.plan import Launch, Step, Variant
from tritongen.schedule.tunable import PRODUCTS


def settled(step: Step, op: ir.Op) -> Step:
    known = _widths(step, op) if step.kernels[0].skeleton in PRODUCTS else {}
    if not known:
        return step
    both = [(v, _variant(v, known)) for v in step.variants]
    taken = (new for v, new in both if v.when == "False" or "False" not in (new.when, new.requires))
    variants = tuple(taken)
    launched = {x.kernel for v in variants for x in v.launches}
    by_lanes = {x.kernel for v in variants if "LANES" in dict(v.config) for x in v.launches}
    kernels = (
        replace(k, lanes=k.lanes and k.name in by_lanes) for k in step.kernels if k.name in launched
    )
    return replace(step, kernels=tuple(kernels), variants=variants)


def _widths(step: Step, op: ir.Op) -> dict[str, int]:
    """The bytes of an element of the factors and of the last result, where each call has the same."""
    head = step.kernels[0].nests[0]
    factors = storage_dtype(*head.fold.factors, op)
    dtypes = {t.name: t.dtype for t in (*op.tensors, *op.outputs) if t.name in step.touched}
    dtypes |= {n.name: n.dtype for n in step.kernels[0].nests if n.name in step.touched}
    found = {"stored_bytes": _width(dtypes.get(step.stores[-1], ""), op)}
    # Elements of f64 may be beside them, and a dtype that no tensor has says nothing of memory.
    if factors in dtypes.values() and not ir.may_compute_f64(op):
        found["itemsize"] = _width(factors, op)
    return {name: width for name, width in found.items() if width}


def _width(dtype: str, op: ir.Op) -> int:
    """0 where it depends on the call."""
    meant = next((p.dtypes for p in op.typarams if p.name == dtype), (dtype,))
    widths = {DTYPES[d].itemsize if d in DTYPES else 0 for d in meant}
    return widths.pop() if len(widths) == 1 else 0


def _variant(v: Variant, known: Mapping[str, int]) -> Variant:
    def short(rule: str) -> str:
        return rules.settled(rule, known)

    def pairs(config: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, short(rule)) for name, rule in config)

    def launch(x: Launch) -> Launch:
        return replace(x, grid=tuple(map(short, x.grid)), config=pairs(x.config))

    estimate = v.estimate and replace(v.estimate, asked=tuple(map(short, v.estimate.asked)))
    return replace(
        v,
        when=short(v.when),
        requires=short(v.requires),
        config=pairs(v.config),
        launches=tuple(map(launch, v.launches)),
        scratch=tuple((name, dtype, tuple(map(short, shape))) for name, dtype, shape in v.scratch),
        estimate=estimate,
    )
