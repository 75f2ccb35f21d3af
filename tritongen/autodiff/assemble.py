"""The signature of a backward op, and its lines without those that no output needs.

Input: an op, the lines of its gradient (forward ones among them), the operands wanted. Output: an op whose params are the
forward op's, the outputs that are read, and `dy` for each output y. A param is left out if nothing reads it and another one
binds its sizes and dtypes. Example: the gradient of `x + b` takes dy alone.
"""

from __future__ import annotations

from dataclasses import replace

from tritongen.autodiff import exprs
from tritongen.ir import algebra
from tritongen.ir.algebra import Sym
from tritongen.ir.free import coordinates, needed, tensors_read
from tritongen.ir.nodes import (
    Cast,
    Constant,
    Define,
    Expr,
    Fact,
    Nest,
    Op,
    Param,
    Read,
    Scalar,
    ScalarRef,
    Tensor,
    TypeParam,
    kind_of,
    rebuild,
    walk,
)


def assemble(op: Op, nests: tuple[Nest, ...], wanted: tuple[Param, ...]) -> Op:
    """The op of the lines that lead to a gradient, over params that are read or bind a size."""
    outputs = tuple(
        Tensor(f"d{p.name}", p.dtype, p.dims if isinstance(p, Tensor) else ()) for p in wanted
    )
    given = {o.name for o in op.outputs}
    nests = needed(nests, {o.name for o in outputs}, given)
    read = set().union(*(names_read(nest.body) for nest in nests))
    cotangents = (cotangent(o) for o in op.outputs if kind_of(o.dtype, op) == "float")
    added = (p for p in (*op.outputs, *cotangents) if p.name in read)
    params = (*op.params, *(p if p.dims else _as_scalar(p) for p in added))
    scalars = {p.name for p in params if not isinstance(p, Tensor)}
    nests = tuple(replace(nest, body=_with_scalars(nest.body, scalars)) for nest in nests)
    params = _needed_params(op, params, outputs, nests, read)
    return replace(
        op,
        name=f"{op.name}_backward",
        facts=_facts_about(op, params),
        typarams=_needed_typarams(op, params, outputs, nests),
        params=params,
        outputs=outputs,
        nests=nests,
        gradient="none",
        ref=None,
        doc="",
        tolerances=(),
        tune=(),
        autocast="",
        text="",
        kept=(),
    )


def _needed_typarams(
    op: Op, params: tuple[Param, ...], outputs: tuple[Tensor, ...], nests: tuple[Nest, ...]
) -> tuple[TypeParam, ...]:
    """Without those of operands and results that are gone."""
    bound = {p.dtype for p in params if isinstance(p, Tensor)}
    given = bound | {o.dtype for o in outputs} | _cast_to(nests)
    kept = (p for p in op.typarams if p.name in given)
    return tuple(replace(p, default=None) if p.name in bound else p for p in kept)


def cotangent(output: Tensor) -> Tensor:
    """The operand that brings the gradient of an output."""
    return replace(output, name=f"d{output.name}")


def _as_scalar(t: Tensor) -> Scalar:
    """An operand without dims: the language knows it as a run-time scalar."""
    return Scalar(t.name, "f64" if t.dtype == "f64" else "f32", None)


def _with_scalars(expr: Expr, scalars: set[str]) -> Expr:
    def change(node: Expr) -> Expr:
        match node:
            case Read(name) if name in scalars:
                value = ScalarRef(name, exprs.COMPUTE)
                return exprs.cast(value, "f64") if node.dtype == "f64" else value
            case Cast(ScalarRef(), exprs.COMPUTE):
                return node.arg
        return node

    return rebuild(expr, change)


def names_read(expr: Expr) -> set[str]:
    """Every tensor that an expression reads, and every scalar."""
    return tensors_read(expr) | {node.name for node in walk(expr) if isinstance(node, ScalarRef)}


def _needed_params(
    op: Op,
    params: tuple[Param, ...],
    outputs: tuple[Tensor, ...],
    nests: tuple[Nest, ...],
    read: set[str],
) -> tuple[Param, ...]:
    """Params that are read, and those that alone bind a size, batch, dtype or device in use."""
    spoken, types = _symbols(op, outputs, nests), {p.name for p in op.typarams}
    kept = {
        p.name for p in params if p.name in read or (isinstance(p, Constant) and p.name in spoken)
    }
    if not any(p.name in kept for p in params if isinstance(p, Tensor)):
        kept.add(op.tensors[0].name)  # a call runs where its tensors are

    def binds(p: Param) -> set[str]:
        if not isinstance(p, Tensor):
            return set()
        sizes = (a for d in p.dims for a in algebra.walk(d) if d == algebra.poly(a))
        return {a.name for a in sizes if isinstance(a, Sym)} | ({p.dtype} & types)

    used = {name for p in params for name in binds(p)}
    sizes = spoken & used
    for p in params:
        missing = sizes - set().union(*(binds(q) for q in params if q.name in kept))
        if missing & binds(p):
            kept.add(p.name)
    return tuple(p for p in params if p.name in kept)


def _facts_about(op: Op, params: tuple[Param, ...]) -> tuple[Fact, ...]:
    """Without what reads that are no longer there asked of sizes that no operand gives any more."""
    known = {d.name for d in op.defines} | {p.name for p in params if isinstance(p, Constant)}
    tensors = [p for p in params if isinstance(p, Tensor)]
    known |= {p.name for p in tensors}
    known |= {n for t in tensors for d in t.dims for n in algebra.symbols(d)}

    def kept(fact: Fact) -> bool:
        if isinstance(fact, Define) or fact.origin == "fact":
            return True  # the spec says it; others follow from its reads
        asked = {*fact.batch, *algebra.symbols(fact.left), *algebra.symbols(fact.right)}
        return asked <= known

    return tuple(filter(kept, op.facts))


def _symbols(op: Op, outputs: tuple[Tensor, ...], nests: tuple[Nest, ...]) -> set[str]:
    """Sizes that the backward op speaks of, and the type parameters of its outputs."""
    polys = [d for t in outputs for d in t.dims]
    for fact in op.facts:
        if isinstance(fact, Define):
            polys.append(fact.value)
        elif fact.origin == "fact":
            polys += [fact.left, fact.right]
    for nest in nests:
        polys += [*nest.dims, *coordinates(nest.body)]
        polys += [p for b in nest.box for p in (b.lo, b.hi)]
    names = {a.name for p in polys for a in algebra.walk(p) if isinstance(a, Sym)}
    defined = {d.name for d in op.defines}
    return (names - defined) | {t.dtype for t in outputs} | _cast_to(nests)


def _cast_to(nests: tuple[Nest, ...]) -> set[str]:
    return {e.dtype for nest in nests for e in walk(nest.body) if isinstance(e, Cast)}
