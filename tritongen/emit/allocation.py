"""Allocates results as torch's own op would, if the kernels that write them can.

    y = torch.empty_like(x)                                       pointwise, of one operand
    y = lib.empty(batch_shape, x.dtype, x, z)                 of several: as TensorIterator orders dims
    y = torch.empty(..., memory_format=lib.memory_format(x))  norms, pools; (x, w) of convolutions
    y = torch.empty(...)                                          all others

The form follows from what the output reads. Operands that are read at the output's own place give it their memory order. If
a reducer keeps all of its indices, it is a product, a pool or a scan, whose result is new. If it keeps some, it is a
statistic of what the output is made of. `lib/layout.py` has the functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tritongen.emit.facts import computes_wide
from tritongen.emit.launch import TORCH_DTYPES
from tritongen.emit.op_plans import OpPlans
from tritongen.emit.sizes import under, whole
from tritongen.emit.text import tuple_text
from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, Poly, indices, substitute
from tritongen.ir.batches import broadcasting, spanning
from tritongen.ir.reads import reads_of
from tritongen.reference.batches import batch_slice
from tritongen.schedule.plan import Plan, Step

ANY, CHANNELS_LAST = "any", "channels last"  # what layouts the kernels of an output can store


@dataclass(frozen=True, slots=True)
class _Reads:
    """The reads of an output: at its own place, and in reducers that keep all of its indices."""

    aligned: tuple[tuple[str, tuple[int, ...]], ...]  # operand, the output's dims that it has
    reduced: tuple[str, ...]
    statistics: bool  # some reducer keeps fewer


def allocation(op: ir.Op, output: ir.Tensor, keeps: str, together: tuple[str, ...]) -> str:
    """The expression that allocates an output.

    `keeps`: the layouts that its kernels can store. `together`: the outputs of one kernel, which share a layout.
    """
    shape, dtype = _shape(op, output), _dtype(op, output)
    plain = f"torch.empty({shape}, dtype={dtype}, device={op.tensors[0].name}.device"
    if not keeps or len(output.dims) < 2 and ir.BATCH_SIZE not in output.dims:
        return f"{plain})"
    found = _reads(op, output, together)
    if keeps == ANY and not found.reduced and not found.statistics:
        given = _ordering(op, output, found)
        if same := [t for t in op.tensors if [t.name] == given and _is_whole(op, t, output)]:
            other = "" if same[0].dtype == output.dtype else f", dtype={dtype}"
            return f"torch.empty_like({same[0].name}{other})"
        return f"lib.empty({shape}, {dtype}, {', '.join(given)})" if given else f"{plain})"
    rank = len(output.dims), ir.BATCH_SIZE in output.dims
    alike = [t.name for t in op.tensors if (len(t.dims), ir.BATCH_SIZE in t.dims) == rank]
    read = found.reduced or [t for t, dims in found.aligned if len(dims) == rank[0]]
    given = [t for t in read if t in alike]
    # If `...` covers more than the channels, they are not one run of memory.
    most = 5 if ir.BATCH_SIZE not in output.dims[:2] else min(5, len(output.dims))
    if not given or most < 4 or not (rank[1] or rank[0] in (4, 5)):
        return f"{plain})"
    told = ["most=4"] if most == 4 else []
    if {t.name for t in broadcasting(op)} & {*given}:  # its `...` may have fewer dims
        told.append(f"rank=len({_batch_dims(op)}) + {len(output.dims) - 1}")
    return f"{plain}, memory_format=lib.memory_format({', '.join([*given, *told])}))"


def _dtype(op: ir.Op, output: ir.Tensor) -> str:
    if output.dtype == "compute":
        return f"torch.float64 if {computes_wide(op)} else torch.float32"
    source = next((t for t in op.tensors if t.dtype == output.dtype), None)
    return f"{source.name}.dtype" if source else TORCH_DTYPES.get(output.dtype, output.dtype)


def _is_whole(op: ir.Op, t: ir.Tensor, output: ir.Tensor) -> bool:
    """Whether an operand has the output's shape in every call."""
    return t.dims == output.dims and t not in broadcasting(op)


def _shape(op: ir.Op, output: ir.Tensor) -> str:
    parts = [f"*{_batch_dims(op)}" if d == ir.BATCH_SIZE else whole(d) for d in output.dims]
    if len(parts) == 1 and parts[0].startswith("*"):
        return parts[0][1:]
    return tuple_text(parts)


def _batch_dims(op: ir.Op) -> str:
    operands = spanning(op)
    return "batch_shape" if len(operands) > 1 else batch_slice(operands[0])


def _ordering(op: ir.Op, output: ir.Tensor, found: _Reads) -> list[str]:
    """The operands that can tell the order of two dims, as they lie under the output's."""
    operands = {t.name: t for t in op.tensors}
    several = [(operands[n], at) for n, at in found.aligned]
    several = [(t, at) for t, at in several if len(at) > 1 or ir.BATCH_SIZE in t.dims]
    texts = (under(op, output.dims, t, at) for t, at in several)
    return [text for text in texts if text]


# ---- what an output reads -----------------------------------------------------------------------
def _reads(op: ir.Op, output: ir.Tensor, together: tuple[str, ...]) -> _Reads:
    nests = {n.name: n for n in op.nests}
    below: dict[str, dict[str, None]] = {}
    for nest in op.nests:  # each stands behind what it reads
        below[nest.name] = _operands_of(nest.body, below)
    operands = {t.name: t for t in op.tensors}
    aligned: dict[tuple[str, tuple[int, ...]], None] = {}
    reduced: dict[str, None] = {}
    statistics = False
    for nest in (nests[name] for name in together):
        place = {c: k for k, c in enumerate(nest.coords) if c.constant is None}
        for read, coords, kept in _walk(nest.body, nests, below, {}, set()):
            if kept is not None and kept >= {str(c) for c in place}:
                reduced[read] = None
            elif kept is not None:
                statistics = True
            elif read in operands and coords and all(c in place for c in coords):
                at = tuple(place[c] for c in coords)
                own = zip(operands[read].dims, at, strict=True)
                if list(at) == sorted(set(at)) and all(d == output.dims[k] for d, k in own):
                    aligned[read, at] = None
    return _Reads(tuple(aligned), tuple(reduced), statistics)


def _walk(
    expr: ir.Expr,
    nests: Mapping[str, ir.Nest],
    below: Mapping[str, dict[str, None]],
    at: Mapping[str, Poly],
    seen: set[tuple[str, tuple[Poly, ...]]],
) -> Iterator[tuple[str, tuple[Poly, ...], frozenset[str] | None]]:
    """(tensor, coordinates, None) of reads by way of temporaries; of reads in reducers what these keep.

    `below`: the operands that each nest is made of; `seen`: reads that were walked, for once is enough.
    """
    match expr:
        case ir.Read(tensor, coords):
            here = tuple(substitute(c, at) for c in coords)
            if (tensor, here) in seen:
                return
            seen.add((tensor, here))
            if tensor not in nests:
                yield tensor, here, None
                return
            nest = nests[tensor]
            pairs = zip(nest.coords, here, strict=True)
            inner = {str(c): p for c, p in pairs if c.constant is None}
            yield from _walk(nest.body, nests, below, inner, seen)
        case ir.Reduce(_, binders):
            bound = {b.index for b in binders}
            coords = tuple(c for _, own, _ in reads_of(expr) for c in own)
            own = set().union(*map(indices, coords)) - bound if coords else set()
            kept = frozenset().union(*(indices(at.get(i, ir.poly(Idx(i)))) for i in own))
            for tensor in _operands_of(expr, below):
                yield tensor, (), kept
        case _:
            for part in ir.parts(expr):
                yield from _walk(part, nests, below, at, seen)


def _operands_of(expr: ir.Expr, below: Mapping[str, dict[str, None]]) -> dict[str, None]:
    """The operands that an expression is made of, in order of appearance."""
    found: dict[str, None] = {}
    for tensor, _, _ in reads_of(expr):
        found |= below.get(tensor, {tensor: None})
    return found


# ---- what layouts kernels can store --------------------------------------------------------------
def kept(item: OpPlans) -> dict[str, tuple[str, tuple[str, ...]]]:
    """What layouts each output may have, and the outputs that have the same one: they are stored together."""
    known = [layouts(p, host) for p, host in zip(item.plans, item.hosts, strict=True)]
    return {o.name: min(k.get(o.name, ("", ())) for k in known) for o in item.hosts[0].outputs}


def layouts(plan: Plan, host: ir.Op) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Outputs of any layout, or channels last, by what `host` calls them."""
    own = {o.name: p.name for o, p in zip(plan.inner.outputs, host.outputs, strict=True)}
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for step in plan.steps:
        together = tuple(own[name] for name in step.stores if name in own)
        for name in own.keys() & set(step.stores):
            if step.merged:
                found[own[name]] = ANY, together
            elif all(takes_images(s, name) for s in plan.steps):
                found[own[name]] = CHANNELS_LAST, (own[name],)
    return found


def takes_images(step: Step, tensor: str) -> bool:
    """Whether a tensor may be stored channels last: a step asks for strides, and does not reshape it."""
    asks = step.orders or any(k.slides or k.any_format for k in step.kernels)
    reshaping = [k for k in step.kernels if not (step.orders or k.any_format)]
    if asks and all(v.tensor != tensor for k in reshaping for v in k.views):
        return True
    return tensor not in step.touched


def alike(plan: Plan) -> dict[str, str]:
    """Temporaries between steps, with the output whose layout they share, if all steps take strides."""
    known = layouts(plan, plan.inner)
    found = {}
    for nest in plan.scratch:
        if len(nest.dims) in (4, 5) and all(takes_images(s, nest.name) for s in plan.steps):
            for o in plan.inner.outputs:
                if o.dims == nest.dims and o.name in known:
                    found[nest.name] = o.name
    return found
