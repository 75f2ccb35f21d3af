"""`tritongen explain` where there is neither torch nor Triton: over the stand-ins in `stubs/`."""

from __future__ import annotations

import sys
import types
from typing import Any

import tritongen
from tritongen import pipeline
from tritongen.resources import package_folder


def _runtime() -> types.ModuleType:
    """`tritongen.runtime` without the registry of ops: nothing is called here."""
    made: Any = types.ModuleType("tritongen.runtime")
    made.__path__ = [str(package_folder("runtime"))]
    made.op = lambda *args, **kwargs: lambda function: function
    made.Batch = made.Backward = lambda *args, **kwargs: None
    return made


if "tritongen.runtime" not in sys.modules:
    tritongen.runtime = sys.modules["tritongen.runtime"] = _runtime()  # type: ignore[attr-defined]
    from tritongen.runtime.precision import f32_precision

    sys.modules["tritongen.runtime"].f32_precision = f32_precision  # type: ignore[attr-defined]

from tritongen import explain, trace  # noqa: E402
from tritongen.ir.algebra import symbols  # noqa: E402
from tritongen.ir.nodes import BATCH  # noqa: E402
from tritongen.proof.cases import free_sizes  # noqa: E402
from tritongen.runtime.load import _execute  # noqa: E402
from tritongen.shapes import call_of, meta_arguments, parse_shapes, shape_text  # noqa: E402


def example_sizes(text: str) -> str:
    """A call of the first op, as one types it."""
    op = next(iter(pipeline.build(text, "playground.op").plans.values()))[0].op
    free = [f"{name}=1024" if len(free_sizes(op)) < 4 else f"{name}=64" for name in free_sizes(op)]
    batch = ["batch=1024"] if any(BATCH in symbols(d) for t in op.tensors for d in t.dims) else []
    return ",".join([*batch, *free])


def explained(text: str, shape: str) -> str:
    """What `tritongen explain --shape SHAPE` prints of the first op; of no call, without a shape."""
    built = pipeline.build(text, "playground.op", gradients=True)
    name = next(iter(built.plans))
    plans = built.plans[name]
    if not shape.strip():
        return "\n\n".join(explain.text(explain.explain_op(p)) for p in plans)
    out = []
    module = _execute(f"playground_{abs(hash(built.raw))}", built.raw, "<playground>")
    for numbers in parse_shapes([shape.strip()]):
        op, case = call_of([p.op for p in plans], numbers, None)
        plan = next(p for p in plans if p.op is op)
        call, forward = shape_text(op, case), built.forwards.get(name)
        args = meta_arguments(op, case)
        found = explain.explain_call(module, plan, args, trace.H200, call=call, forward=forward)
        out.append(explain.text(found))
    sys.modules.pop(module.__name__, None)
    return "\n\n".join(out)
