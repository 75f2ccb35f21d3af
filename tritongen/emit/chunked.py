"""Prints `launch_<op>` of an op that runs in chunks: sums that begin at 0, each chunk, and what is behind all of them.

dx_sum = torch.zeros((M, K), dtype=torch.float32, device=x.device)
chunk = lib.chunk_size(V, M * x.element_size())
for first in range(0, V, chunk):
    w_part = lib.chunk_of(w, 0, first, chunk)
    launch_f_chunk(x, w_part, dx_sum, dx_sum, first)
launch_f_dx(dx_sum, dx)
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.emit import asked
from tritongen.emit.facts import compute_bytes
from tritongen.emit.kernel_writer import Context
from tritongen.emit.launch import LaunchView, call_of_all, launch_of_all, scratch_lines
from tritongen.emit.sizes import dim_position, whole
from tritongen.emit.text import wrapped
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import size
from tritongen.ir.dtypes import DTYPES
from tritongen.schedule.plan import Chunks, Plan


def in_chunks(context: Context, plan: Plan, chunks: Chunks, on_request: bool) -> LaunchView:
    """`on_request`: results that are not wanted are None."""
    op, body, behind = context.op, chunks.body, chunks.behind
    results = [o.name for o in op.outputs]
    context = replace(context, absent=frozenset(results) if on_request else frozenset())
    where = asked.conditions(plan) if on_request else {}
    lines = scratch_lines(context, chunks.sums, {}, where, "zeros")
    large = [n for n in body.scratch if size(chunks.size) in n.dims]
    each = " + ".join(_bytes_of(context, n, chunks.size) for n in large)
    lines.append(f"{chunks.count} = lib.chunk_size({chunks.size}, {each})")
    lines.append(f"for {chunks.first} in range(0, {chunks.size}, {chunks.count}):")
    given = {chunks.whole: chunks.size}
    tensors = {t.name: t for t in (*op.tensors, *op.outputs)}
    for name, at, part in chunks.parts:
        given[name] = part
        dim = dim_position(tensors[name], at)
        lines.append(f"    {part} = lib.chunk_of({name}, {dim}, {chunks.first}, {chunks.count})")
    given |= {b: n.name for b, n in zip(chunks.befores, chunks.sums, strict=True)}
    lines.append(f"    {call_of_all(body, given)}")
    own = [o.name for o in behind.inner.outputs]
    asked_for = asked.any_there(own) if on_request and len(own) < len(results) else ""
    last = call_of_all(behind, {chunks.whole: chunks.size})
    lines += [f"if {asked_for}:", f"    {last}"] if asked_for else [last]
    doc = f"Runs a chunk of {chunks.size} after another, then {', '.join(own)}"
    return launch_of_all(context, plan, doc, lines)


def _bytes_of(context: Context, nest: ir.Nest, name: str) -> str:
    """The bytes of a temporary for one index of a size, on the host."""
    if nest.dtype in DTYPES:
        each = str(-(-DTYPES[nest.dtype].bits // 8))
    elif nest.dtype != "compute":
        each = f"{context.op.typed(nest.dtype).name}.element_size()"
    else:
        each = wrapped(compute_bytes(context))
    return " * ".join([*(wrapped(whole(d)) for d in nest.dims if d != size(name)), each])
