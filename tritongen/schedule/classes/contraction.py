"""Contractions: a sum of products whose two factors share the summed indices, and the pointwise
nests over the same box behind it, its epilogue.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Idx, affine, indices
from tritongen.ir.bounds import Facts
from tritongen.schedule.canonical import (
    coordinates,
    free_indices,
    reads,
)
from tritongen.schedule.classes import convolution
from tritongen.schedule.members import Group, Product, gather_lines, is_reducer, paste
from tritongen.schedule.plan import Axis, KernelPlan, Launch, Step, Variant
from tritongen.schedule.views import accesses, views


# ---- what is one ---------------------------------------------------------------------------------
def classify(members, virtual, by_name, facts, extending=False) -> Group | None:
    head, *epilogue = members
    product = as_product(head, virtual, facts)
    if product is None or any(is_reducer(n) for n in epilogue):
        return None
    names = {b.index for b in head.box}
    if any({b.index for b in n.box} != names for n in epilogue):
        return None
    head = replace(
        head,
        body=replace(head.body, body=ir.Call("mul", (product.left, product.right), head.dtype)),
    )
    lines = (head, *gather_lines(epilogue, virtual, names))
    for line in lines[1:]:
        if {b.index for b in line.box} - names:
            return None
        for read in reads(line.body):
            if read.tensor == head.name and read.coords != head.coords:
                return None
    return convolution.by_phases(Group("contraction", lines, product=product))


def as_product(head: ir.Nest, virtual, facts: Facts) -> Product | None:
    """sum[k...](left(batch, m, k) * right(batch, n, k)), with m and n not empty."""
    reduce = head.body
    if not isinstance(reduce, ir.Reduce) or reduce.op != "sum" or not reduce.binders:
        return None
    if head.dtype not in ("compute", "f32", "i32"):
        return None
    k = {b.index for b in reduce.binders}
    factors = _factors(paste(reduce.body, virtual, set()))
    used = [free_indices(f) for f in factors]
    left = next((i for i, names in enumerate(used) if names >= k), None)
    if left is None or any(b.lo.terms for b in reduce.binders):
        return None
    mine, others = [left], []
    for i in range(len(factors)):
        if i != left:
            (mine if used[i] - k <= used[left] else others).append(i)
    if not others or not all(set().union(*(used[i] for i in part)) >= k for part in (mine, others)):
        return None
    a, b = (set().union(*(used[i] for i in part)) - k for part in (mine, others))
    box = {binder.index for binder in head.box}
    if (a | b) != box or not (a - b) or not (b - a):
        return None
    product = Product(
        tuple(x for x in head.box if x.index in a & b),
        tuple(x for x in head.box if x.index in a - b),
        tuple(x for x in head.box if x.index in b - a),
        reduce.binders,
        _multiply([factors[i] for i in mine], head.dtype),
        _multiply([factors[i] for i in others], head.dtype),
    )
    return _with_taps(product)


def _factors(expr: ir.Expr) -> list[ir.Expr]:
    match expr:
        case ir.Call("mul", (a, b)):
            return _factors(a) + _factors(b)
        case ir.Cast(ir.Call("mul") as product, dtype) if dtype == product.dtype:
            return _factors(product)
    return [expr]


def _multiply(factors: list[ir.Expr], dtype: str) -> ir.Expr:
    out = factors[0]
    for factor in factors[1:]:
        out = ir.Call("mul", (out, factor), dtype)
    return out


def _with_taps(product: Product) -> Product | None:
    """The product with the factor that slides a window on the left; None where both do, or one gathers."""
    for side in (product.left, product.right):
        for p in coordinates(side):
            parts = affine(p)
            if parts is None or any(not isinstance(atom, Idx) for atom in parts[0]):
                return None
    left, right = _window(product.left, product.m, product.k), _window(
        product.right, product.n, product.k
    )
    if left and right:
        return None
    if right:
        product = replace(product, m=product.n, n=product.m, left=product.right, right=product.left)
    taps = tuple(b for b in product.k if b.index in left | right)
    return replace(product, taps=taps, k=tuple(b for b in product.k if b not in taps))


def _window(side: ir.Expr, kept, k) -> set[str]:
    """The reduced indices that share a coordinate with a kept one."""
    own, reduced = {b.index for b in kept}, {b.index for b in k}
    found = [indices(p) for p in coordinates(side)]
    return set().union(*(used & reduced for used in found if used & own))


# ---- how it runs ---------------------------------------------------------------------------------
def make(name, group, stores, dims, facts) -> Step:
    p = group.product
    if p.taps:
        return convolution.make(name, group, stores, dims, facts)
    axes = (Axis("batch", p.batch), Axis("m", p.m), Axis("n", p.n), Axis("k", p.k))
    seen = views(list(accesses(group.nests, stores, dims)), dims, axes, facts)
    kernel = KernelPlan(f"{name}_tiles", "contraction", "whole", axes, group.nests, stores, seen)
    times = "batches * " if p.batch else ""
    grid = (f"{times}cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)",)
    launch = (Launch(kernel.name, grid),)
    wide = "128 // itemsize"  # K elements that make a 128-byte line
    numbers = (
        ("batches", axes[0].extent),
        ("M", axes[1].extent),
        ("N", axes[2].extent),
        ("K", axes[3].extent),
    )

    def tile(m, n, k, warps, stages):
        return (
            ("BLOCK_M", m),
            ("BLOCK_N", n),
            ("BLOCK_K", k),
            ("GROUP_M", "8"),
            ("num_warps", warps),
            ("num_stages", stages),
        )

    # 64 KiB of shared memory on AMD take the small tile alone; 227 KiB on an H200 take all.
    variants = (
        Variant(
            "large",
            f"not hip and itemsize <= 2 and {times}cdiv(M, 128) * cdiv(N, 256) >= sms",
            "enough work for the widest tile on every multiprocessor",
            tile("128", "256", wide, "8", "3"),
            launch,
        ),
        Variant(
            "medium",
            f"not hip and itemsize <= 4 and {times}cdiv(M, 128) * cdiv(N, 128) >= sms",
            "enough tiles of 128 x 128",
            tile("128", "128", wide, "8", "4 if itemsize <= 2 else 3"),
            launch,
        ),
        Variant(
            "slim",
            "not hip and itemsize <= 4 and M <= 32",
            "few rows: deep in K, narrow in N",
            tile("16 if M <= 16 else 32", "64", "256 // itemsize", "4", "4"),
            launch,
        ),
        Variant(
            "small",
            "True",
            "any size",
            tile("64", "64", "32", "4", "3 if itemsize <= 4 else 2"),
            launch,
        ),
    )
    return Step(
        name,
        "contraction",
        "a sum of products of two factors",
        stores,
        numbers,
        (kernel,),
        variants,
    )
