"""One loop shared by several programs: each leaves the states of its folds, and a second kernel merges them.

    parts, states = in_parts("attention_part", kernel, nests)    # stores m_parts[part, b, h, i], ...
    nests = merging(kernel, nests)                               # m[b, h, i] = max[part](m_parts[part, b, h, i]), ...

Input: a kernel whose body has one loop, and the nests that it was lowered from. Output: the kernel of one part, and the
nests of the kernel behind it, which is lowered as any other. What moved with a maximum is multiplied by
exp(maximum of the part - maximum).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, index
from tritongen.kernel.moving import exponential, other_term
from tritongen.kernel.nodes import PARTS, Fold, Kernel, Loop, Store, Walk, carried, statements

PART = "part"  # the index of a part


def in_parts(name: str, kernel: Kernel, nests: Sequence[ir.Nest]) -> Kernel:
    """The kernel of one part: up to its loop, and stores of what that carries."""
    loop = _loop_of(kernel)
    by_name = {n.name: n for n in nests}
    stores = tuple(_state(f, by_name[f.name], kernel) for f in carried(kernel, loop))
    ahead = kernel.body[: kernel.body.index(loop)]
    before = tuple(s for s in ahead if not isinstance(s, Store))
    body = (*before, _shared(loop, kernel), *stores)
    return Kernel(name, (Walk(PART, PARTS, "program"), *kernel.walks), body)


def merging(kernel: Kernel, nests: Sequence[ir.Nest]) -> tuple[ir.Nest, ...]:
    """The nests behind the parts: each state of all parts, and the values that follow."""
    loop = _loop_of(kernel)
    states = {f.name: f for f in carried(kernel, loop)}
    inside = {getattr(s, "name", "") for s in statements(loop.body)}
    by_name = {n.name: n for n in nests}
    return tuple(
        _merged(states[n.name], n, by_name) if n.name in states else n
        for n in nests
        if n.name in states or n.name not in inside
    )


def added_up(behind: Sequence[ir.Nest], stores: Sequence[str]) -> list[tuple[str, str]]:
    """(parts, result) of each result, if all of them are sums of their parts and nothing else; else none."""
    sums: dict[str, str] = {}  # parts of each, by name
    for n in behind:
        match n.body.arg if isinstance(n.body, ir.Cast) else n.body:
            case ir.Reduce("sum", (ir.Binder(index),), (), ir.Read(parts)) if index == PART:
                sums[n.name] = parts
            case ir.Read(tensor, coords) if tensor in sums and coords == n.coords:
                sums[n.name] = sums[tensor]
    return [(sums[name], name) for name in stores] if sums.keys() >= {*stores} else []


def state_name(fold: str) -> str:
    """The tensor that holds a state of all parts."""
    return f"{fold}_parts"


def state_dims(n: ir.Nest) -> tuple[Poly, ...]:
    return (PARTS, *n.dims)


def _loop_of(kernel: Kernel) -> Loop:
    (loop,) = (s for s in kernel.body if isinstance(s, Loop))
    return loop


def _shared(loop: Loop, kernel: Kernel) -> Loop:
    """The loop by parts; or a loop of blocks in it, if its states take terms there."""
    over = {i for f in carried(kernel, loop) for i in f.over}
    for s in loop.body:
        if isinstance(s, Loop) and s.index in over and kernel.walk(s.index).block:
            return replace(loop, body=tuple(_shared(x, kernel) if x is s else x for x in loop.body))
    return replace(loop, part=PART)


def _state(f: Fold, n: ir.Nest, kernel: Kernel) -> Store:
    own = n.over
    once = tuple(w.index for w in kernel.walks if w.shared and w.index not in own)
    return Store(state_name(f.name), (index(PART), *n.coords), f.axes, once, value=f.name)


def _merged(f: Fold, n: ir.Nest, nests: dict[str, ir.Nest]) -> ir.Nest:
    part: ir.Expr = _read(n)
    if f.moved_by:
        m = nests[f.moved_by]
        own, found = _read(m), exponential(n.fold.body, m, nests)
        assert found is not None
        old = ir.with_reads(found.shift, lambda read: own if read.tensor == m.name else read)
        factor = ir.Call("exp", (ir.Call("sub", (old, found.shift), m.dtype),), m.dtype)
        if other_term(found.shift, m.name) is not None:  # it may be infinite
            same = ir.Call("eq", (old, found.shift), "bool")
            factor = ir.Call("where", (same, ir.Const(1.0, m.dtype), factor), m.dtype)
        empty = ir.Call("eq", (own, ir.Const(-inf, m.dtype)), "bool")  # a part without a term
        factor = ir.Call("where", (empty, ir.Const(0.0, m.dtype), factor), m.dtype)
        part = ir.Call("mul", (factor, part), n.dtype)
    fold = ir.Reduce(f.value.op, (ir.Binder(PART, Poly(), PARTS),), (), part, n.dtype)
    return replace(n, body=fold)


def _read(n: ir.Nest) -> ir.Read:
    return ir.Read(state_name(n.name), (index(PART), *n.coords), None, n.dtype)
