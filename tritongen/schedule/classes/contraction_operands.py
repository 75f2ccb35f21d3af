"""The operands of a contraction, as descriptors see them: which lie in memory as tiles, and what is copied first.

Input: a group of the class `contraction` and its axes. Output: the `View`s of its factors' operands and of its outputs
that are matrices of tiles, the copies (`Pack`) of factors that are converted once, and the dtype in which two factors are
multiplied.
"""

from __future__ import annotations

import math
from itertools import product

from tritongen.ir import nodes as ir
from tritongen.ir.dtypes import HALVES, is_exact
from tritongen.ir.free import free_indices, reads, tensors_read
from tritongen.ir.integers import LIMITS, values_of, wraps_here
from tritongen.ir.on_numbers import ON_NUMBERS
from tritongen.schedule.canonical import uncast
from tritongen.schedule.members import Product
from tritongen.schedule.plan import KernelPlan, Pack, View
from tritongen.schedule.views import digits_of

F8 = frozenset(ir.NARROW_FLOATS)
WHOLE = "whole"  # a computed factor is a whole number of at most 256: exact in f16 and bf16
HELD_BY_F16 = frozenset({"f8e4m3", "f8e5m2"})
EXACT = 2**24  # whole numbers up to this one are exact in f32
SMALL = F8 | {"i8", "u8"}  # stored in 8 bits, exact in every wider float


def described(group, axes, seen, dims, facts) -> tuple[View, ...]:
    """How the factors' operands lie in memory; nothing where one is no stored matrix of tiles."""
    p: Product = group.product
    found = []
    for head in group.nests[: group.products]:
        if head.fold.guards:
            return ()
        for side, kept in zip(head.fold.factors, (p.m, p.n), strict=True):
            found.append(stored_tiles(group, side, kept, axes, seen, dims, facts))
    return tuple(view for view in found if view) if all(found) else ()


def stored_tiles(
    group, side: ir.Expr, kept, axes, seen, dims, facts, k: frozenset[str] = frozenset()
) -> View | None:
    """The one operand of a factor, where all its indices stand in it: a dim for `kept`, one for k, others batch.

    Given `k`, the one that is read along k: others are numbers of the rows.
    """
    found = [e for e in ir.walk(side) if isinstance(e, ir.Read) and free_indices(e)]
    found = [e for e in found if not k or free_indices(e) & k]
    numbers = (e for e in ir.walk(side) if isinstance(e, ir.IndexValue))
    if len(found) != 1 or found[0].fill is not None or any(map(free_indices, numbers)):
        return None
    (read,) = found
    if read.dtype in group.bools:
        return None
    view = next((v for v in seen if v.tensor == read.tensor), None)
    if view is None:
        extents = {d.index: d.hi - d.lo for a in axes for d in a.digits if not d.lo.terms}
        if free_indices(read) - set(extents):
            return None
        places = zip(read.coords, dims[read.tensor], strict=True)
        runs = [digits_of(c, extents, d, facts) for c, d in places]
        view = View(read.tensor, dims[read.tensor], tuple(r or () for r in runs))
    batch = {*axes[0].names}
    inner = [run for run in view.runs if not set(run) <= batch or not run]
    wanted = [tuple(d.index for d in axis) for axis in (kept, axes[3].digits)]
    # A descriptor has at most five dims.
    return view if sorted(inner) == sorted(wanted) and len(view.runs) <= 5 else None


def is_of_halves(group) -> bool:
    """Whether there is one sum, of products of two operands as they are stored, which may be of a half type."""
    if group.products > 1 or group.nests[0].dtype != "compute":
        return False
    factors = [uncast(factor) for factor in group.nests[0].fold.factors]
    if not all(isinstance(factor, ir.Read) for factor in factors):
        return False
    stored = {factor.dtype for factor in factors}
    return len(stored) == 1 and not stored & (SMALL | {"f32", "f64"})


def stored_whole(group, stores, axes, seen) -> tuple[View, ...]:
    """Outputs that follow from the sums and lie in memory as tiles of m x n."""
    m, n = (axis.names for axis in axes[1:3])
    wide = {nest.name for nest in group.nests[: group.products]}
    for nest in group.nests[group.products :]:
        if wide & {read.tensor for read in reads(nest.body)}:
            wide.add(nest.name)
    told = {n.name for n in group.nests if n.name in wide and n.dtype not in group.bools}
    return tuple(v for v in seen if v.tensor in told & set(stores) and v.runs[-2:] == (m, n))


def converted(whole: KernelPlan, maybe_f8: frozenset[str]) -> tuple[Pack, ...]:
    """A copy of a factor stored in 8 bits, in the dtype of the other one; nothing where none is, or the kernel reads it elsewhere.

    The other one's must hold it, so it is none of `maybe_f8`.
    """
    sides = []
    for side in whole.nests[0].fold.factors:
        match side:
            case ir.Cast(ir.Read() as read, "compute" | "f32") if stored_as(side):
                sides.append(read)
    if whole.products > 1 or len(sides) < 2 or sum(read.dtype in SMALL for read in sides) != 1:
        return ()
    small, wide = sorted(sides, key=lambda read: read.dtype not in SMALL)
    behind = set[str]().union(*(tensors_read(n.body) for n in whole.nests[1:]))
    if small.tensor in behind or wide.dtype in maybe_f8:
        return ()  # what is read there is the integer: `w[n, 0] // 2`
    return (Pack(small.tensor, tuple(range(len(small.coords))), like=wide.tensor),)


def widened(whole: KernelPlan) -> tuple[Pack, ...]:
    """Copies of both factors stored in f8, in f16, which holds them; nothing where one is something else."""
    sides = whole.nests[0].fold.factors
    bare = [uncast(side) for side in sides if stored_as(side)]
    factors = [f for f in bare if isinstance(f, ir.Read) and f.dtype in HELD_BY_F16]
    behind = set[str]().union(*(tensors_read(n.body) for n in whole.nests[1:]))
    if whole.products > 1 or len(factors) < len(sides):
        return ()
    orders = {f.tensor: tuple(range(len(f.coords))) for f in factors}
    packs = {name: Pack(name, order, like="torch.float16") for name, order in orders.items()}
    return () if packs.keys() & behind else tuple(packs.values())


def storage_dtype(left: ir.Expr, right: ir.Expr, op: ir.Op) -> str:
    """The stored dtype that holds both factors as they are: their product is exact in f32.

    The tensor cores of Hopper add products of f8 with 14 bits: only `precision tf32` allows that.
    """
    found = _holding(stored_as(left), stored_as(right), op)
    if found or not {left_out(left), left_out(right)} - {None}:
        return found
    half = _holding(stored_as(left_out(left) or left), stored_as(left_out(right) or right), op)
    return half if half and set(ir.dtypes_of(half, op)) <= {"f16", "bf16"} else ""


def maybe_f8(op: ir.Op) -> frozenset[str]:
    """The type parameters that are f8 in some calls."""
    return frozenset(p.name for p in op.typarams if not F8.isdisjoint(p.dtypes))


def left_out(side: ir.Expr) -> ir.Expr | None:
    """The factor, where a condition leaves out some of it: its zeros are numbers of each half type."""
    match side:
        case ir.Call("where", (_, factor, ir.Const(0.0))):
            return factor
    return None


def _holding(a: str, b: str, op: ir.Op) -> str:
    if ({a, b} <= F8 or {a, b} & maybe_f8(op)) and (a != b or op.precision != "tf32"):
        held = {*ir.dtypes_of(a, op), *ir.dtypes_of(b, op)}
        return "f16" if held <= {*SMALL, WHOLE, "f16"} else ""
    if a == b:
        return "" if a == WHOLE else a
    for wide, small in ((a, b), (b, a)):
        if small in SMALL | {WHOLE} and wide and wide not in SMALL | {WHOLE}:
            return wide if ir.kind_of(wide, op) == "float" else ""
    return ""


def stored_as(side: ir.Expr) -> str:
    """The dtype that a factor is stored in; WHOLE for one that follows from small integers, and nothing for others.

    A read of bf16 with `else 0.1` has none, because bf16 does not represent 0.1.
    """
    match side:
        case ir.Cast(ir.Read(dtype=stored, fill=fill), _):
            return stored if fill is None or is_exact(fill, HALVES) else ""
        case ir.Cast(ir.Cast(_, stored), "compute") if stored != "compute":
            return stored
        case ir.Call("seen", (_, factor)):
            return stored_as(factor)
    ends = ends_of(side)
    return WHOLE if ends and max(map(abs, ends)) <= 256 else ""


def ends_of(e: ir.Expr) -> tuple[int, int] | None:
    """The least and the largest whole number that e may be; None where it may be none, or anything.

    `(w & 15) - 8`, of u8 w, is -8 to 7: weights of four bits, whose products with bf16 are exact in f32.
    """
    match e:
        case ir.Cast(arg, "compute" | "f32" | "f64"):
            return ends_of(arg)
        case ir.Const(value) if math.isfinite(value) and value == int(value):
            return int(value), int(value)
        case ir.Call("neg" | "add" | "sub" | "mul" as fn, args, "compute" | "f32" | "f64"):
            if all(spans := [*map(ends_of, args)]):
                found = [int(ON_NUMBERS[fn](*at)) for at in product(*filter(None, spans))]
                return min(found), max(found)
        case _ if e.dtype in LIMITS:
            low, high = values_of(e, wrapped=True)
            return int(low), int(high)
    return None


def in_floats(side: ir.Expr) -> ir.Expr:
    """A whole number that is computed in integers, computed in floats: `f32(a - b)` as `f32(a) - f32(b)`.

    LLVM makes one conversion to bf16 of `bf16(f32(a - b))`. It takes four times as long as one to f32.
    """
    match side:
        case ir.Cast(ir.Call("add" | "sub" | "mul" as fn, args, dtype) as call, "compute" | "f32"):
            if dtype in LIMITS and not wraps_here(call, LIMITS.__contains__) and ends_of(side):
                if all(-EXACT <= v <= EXACT for a in args for v in values_of(a, wrapped=True)):
                    own = tuple(in_floats(ir.Cast(a, side.dtype)) for a in args)
                    return ir.Call(fn, own, side.dtype)
    return side


def may_be_f32(head: ir.Nest, op: ir.Op) -> bool:
    """Whether what is multiplied is, in some call, of f32."""
    narrow = storage_dtype(*head.fold.factors, op)
    return ir.kind_of(head.dtype, op) == "float" and "f32" in ir.dtypes_of(narrow or "f32", op)
