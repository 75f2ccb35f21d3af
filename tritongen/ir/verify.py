"""Checks what must be true of an op after every pass.

Input: an op. Output: nothing, or `InvalidIR` naming the nest and the node:

    InvalidIR: softmax: nest y: index `k` is not bound in x[..., k]

A finding here is a bug of a pass, never of a spec: `tritongen.check` judges specs. Bounds of reads are not proven again
(`bounds.py`); the oracle refuses a read that leaves its tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.ir.algebra import (
    Fetch,
    Floor,
    Group,
    Idx,
    Poly,
    Sym,
    affine,
    is_index_like,
    is_size,
    symbols,
    text,
    walk,
)
from tritongen.ir.functions import FUNCTIONS
from tritongen.ir.nodes import (
    FLOATS,
    INTS,
    NARROW_FLOATS,
    Binder,
    Call,
    Cast,
    Const,
    Define,
    Expr,
    Guard,
    IndexValue,
    Nest,
    Op,
    Read,
    Reduce,
    Require,
    ScalarRef,
    Tensor,
    kind_of,
)
from tritongen.ir.reducers import REDUCERS

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
GRADIENTS = ("derive", "none")


class InvalidIR(Exception):
    """An op that no pass may produce."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The rank and dtype of a tensor that may be read."""

    rank: int
    dtype: str


@dataclass(frozen=True, slots=True)
class _Scope:
    """The context of an expression: the op, its nest, the readable tensors, the indices in use."""

    op: Op
    nest: str
    tensors: dict[str, _Known]
    indices: frozenset[str]
    sizes: frozenset[str]

    def failure(self, what: str) -> InvalidIR:
        return InvalidIR(f"{self.op.name}: nest {self.nest}: {what}")

    def fail(self, what: str) -> None:
        raise self.failure(what)

    def inside(self, binders: tuple[Binder, ...]) -> _Scope:
        names = [b.index for b in binders]
        for name in names:
            if name in self.indices or names.count(name) > 1:
                self.fail(f"index `{name}` is bound twice")
        indices = self.indices | frozenset(names)
        return _Scope(self.op, self.nest, self.tensors, indices, self.sizes)


def verify(op: Op) -> None:
    """InvalidIR where the op is not well formed."""
    sizes = _signature(op)
    tensors = {t.name: _Known(len(t.dims), t.dtype) for t in op.tensors}
    written = _nests(op, op.nests, tensors, sizes)
    for output in op.outputs:
        if output.name not in written:
            raise InvalidIR(f"{op.name}: output {output.name} is never written")
    if isinstance(op.gradient, str):
        if op.gradient not in GRADIENTS:
            raise InvalidIR(f"{op.name}: gradient is {op.gradient!r}")
        return
    cotangents = {f"d{o.name}": _Known(len(o.dims), o.dtype) for o in op.outputs}
    _nests(op, op.gradient, tensors | written | cotangents, sizes)


def _signature(op: Op) -> frozenset[str]:
    """The names of all sizes; facts may use those that stand before them."""
    names = [p.name for p in (*op.params, *op.outputs)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidIR(f"{op.name}: two parameters or outputs are named {name}")
    scope = _Scope(op, "signature", {}, frozenset(), frozenset())
    for t in (*op.tensors, *op.outputs):
        _dtype(scope, t.dtype, t.name)
    defined = {d.name for d in op.defines}
    sizes = {c.name for c in op.constants if c.dtype == "int"}
    for t in op.tensors:
        sizes |= {text(d) for d in t.dims if len(d.terms) == 1 and _bare(d)} - defined
    for fact in op.facts:
        polys = (fact.value,) if isinstance(fact, Define) else (fact.left, fact.right)
        for p in polys:
            _size(_Scope(op, "facts", {}, frozenset(), frozenset(sizes)), p, "fact")
        if isinstance(fact, Require) and fact.op not in ("==", "!=", "<", "<=", ">", ">="):
            scope.fail(f"fact {fact.text} compares by {fact.op!r}")
        if isinstance(fact, Define):
            sizes.add(fact.name)
    every = frozenset(sizes)
    for t in (*op.tensors, *op.outputs):
        for d in t.dims:
            _size(_Scope(op, "signature", {}, frozenset(), every), d, f"a dim of {t.name}")
    return every


def _bare(d: Poly) -> bool:
    ((monomial, value),) = d.terms
    return (
        value == 1
        and len(monomial) == 1
        and isinstance(monomial[0][0], Sym)
        and monomial[0][1] == 1
    )


def _nests(
    op: Op, nests: tuple[Nest, ...], tensors: dict[str, _Known], sizes: frozenset[str]
) -> dict[str, _Known]:
    declared = {o.name: o for o in op.outputs}
    visible = dict(tensors)
    written: dict[str, _Known] = {}
    for nest in nests:
        scope = _Scope(op, nest.name, visible, frozenset(), sizes)
        if nest.name in visible:
            scope.fail("the name is taken by an operand or an earlier nest")
        _nest(scope, nest, declared.get(nest.name))
        visible[nest.name] = written[nest.name] = _Known(len(nest.dims), nest.dtype)
    return written


def _nest(scope: _Scope, nest: Nest, output: Tensor | None) -> None:
    for b in nest.box:
        _size(scope, b.lo, f"the range of {b.index}")
        _size(scope, b.hi, f"the range of {b.index}")
    inner = scope.inside(nest.box)
    if len(nest.coords) != len(nest.dims):
        scope.fail(f"{len(nest.coords)} coordinates for {len(nest.dims)} dims")
    left = [c for c in nest.coords if c.constant != 0]
    if sorted(map(text, left)) != sorted(b.index for b in nest.box):
        scope.fail("the left side is not the indices of the box, each once, and zeros")
    for d in nest.dims:
        _size(scope, d, "a dim")
    _dtype(scope, nest.dtype, nest.name)
    if output is not None and (output.dims != nest.dims or output.dtype != nest.dtype):
        scope.fail("dims and dtype are not those of the output")
    _expr(inner, nest.body)
    if kind_of(nest.body.dtype, scope.op) != kind_of(nest.dtype, scope.op):
        scope.fail(f"stores {nest.body.dtype} as {nest.dtype}")


def _dtype(scope: _Scope, dtype: str, what: str) -> None:
    known = (*FLOATS, *NARROW_FLOATS, *INTS, "bool", "compute")
    if dtype not in known and all(p.name != dtype for p in scope.op.typarams):
        scope.fail(f"{what} has the unknown dtype {dtype!r}")


# ---- expressions --------------------------------------------------------------------------------
def _expr(scope: _Scope, expr: Expr) -> None:
    _dtype(scope, expr.dtype, type(expr).__name__)
    match expr:
        case Const(value, dtype):
            _literal(scope, value, dtype, "literal")
        case ScalarRef(name):
            names = {p.name for p in scope.op.params if not isinstance(p, Tensor)}
            if name not in names:
                scope.fail(f"no scalar or constant is named {name}")
        case IndexValue(p):
            _coordinate(scope, p, f"value {text(p)}", affinely=False)
        case Read(tensor, coords, fill, dtype):
            known = _read(scope, tensor, coords)
            if dtype != known.dtype:
                scope.fail(f"reads {tensor}, which is {known.dtype}, as {dtype}")
            if fill is not None:
                _literal(scope, fill, dtype, f"fill of {tensor}")
        case Cast(arg):
            _expr(scope, arg)
        case Call():
            _call(scope, expr)
        case Reduce():
            _reduce(scope, expr)


def _literal(scope: _Scope, value: int | float | bool, dtype: str, what: str) -> None:
    kind = kind_of(dtype, scope.op)
    fits = {"float": (int, float), "int": (int,), "bool": (bool,)}[kind]
    if not isinstance(value, fits) or (kind != "bool" and isinstance(value, bool)):
        scope.fail(f"{what}: {value!r} is no {dtype}")
    if value != value:
        scope.fail(f"{what}: the language has no word for NaN")


def _call(scope: _Scope, call: Call) -> None:
    if call.fn not in FUNCTIONS:
        scope.fail(f"no function is named {call.fn}")
    for a in call.args:
        _expr(scope, a)
    if call.fn == "where" and kind_of(call.args[0].dtype, scope.op) != "bool":
        scope.fail(f"where tests {call.args[0].dtype}")
    args = call.args[1:] if call.fn == "where" else call.args
    args = args[:1] if call.fn == "pow_int" else args
    if len({a.dtype for a in args}) > 1:
        scope.fail(f"{call.fn} of {', '.join(a.dtype for a in args)}")
    if call.fn in COMPARISONS and call.dtype != "bool":
        scope.fail(f"{call.fn} gives {call.dtype}")


def _reduce(scope: _Scope, r: Reduce) -> None:
    if r.op not in REDUCERS or r.op == "mean":
        scope.fail(f"no reducer is named {r.op}")
    if not r.binders and r.op != "sum":
        scope.fail(f"{r.op} without a binder")
    for b in r.binders:
        _size(scope, b.lo, f"the range of {b.index}")
        _size(scope, b.hi, f"the range of {b.index}")
    inner = scope.inside(r.binders)
    for guard in r.guards:
        _guard(inner, guard)
    _expr(inner, r.body)
    if r.is_place and len(r.binders) > 1 and any(b.lo.terms for b in r.binders):
        scope.fail(f"{r.op} over several indices that do not start at 0")
    expected = "i64" if r.is_place else r.body.dtype
    if r.dtype != expected:
        scope.fail(f"{r.op} of {r.body.dtype} gives {r.dtype}")


def _guard(scope: _Scope, guard: Guard) -> None:
    if guard.op not in (">=", "=="):
        scope.fail(f"guard {text(guard.poly)} {guard.op} 0")
    _coordinate(scope, guard.poly, f"guard {text(guard.poly)} {guard.op} 0")


# ---- coordinates --------------------------------------------------------------------------------
def _read(scope: _Scope, tensor: str, coords: tuple[Poly, ...]) -> _Known:
    known = scope.tensors.get(tensor)
    shown = f"{tensor}[{', '.join(map(text, coords))}]"
    if known is None:
        raise scope.failure(f"{shown} is read before it is written")
    if len(coords) != known.rank:
        scope.fail(f"{shown} has {len(coords)} coordinates for {known.rank} dims")
    for c in coords:
        _coordinate(scope, c, shown)
    return known


def _coordinate(scope: _Scope, p: Poly, what: str, affinely: bool = True) -> None:
    for atom in walk(p):
        match atom:
            case Idx(name) if name not in scope.indices:
                scope.fail(f"index `{name}` is not bound in {what}")
            case Sym(name) if name not in scope.sizes:
                scope.fail(f"size `{name}` is not known in {what}")
            case Fetch(tensor, coords):
                known = _read(scope, tensor, coords)
                if kind_of(known.dtype, scope.op) != "int":
                    scope.fail(f"{tensor} is {known.dtype} and indexes in {what}")
            case Floor(num, den):
                if not is_size(den):
                    scope.fail(f"divides by an index in {what}")
                if affinely and affine(num) is None:
                    scope.fail(f"not affine: {text(num)} in {what}")
            case Group(inner) if any(is_index_like(a) for a in walk(inner)):
                scope.fail(f"divides by an index in {what}")
    if affinely and affine(p) is None:
        scope.fail(f"not affine: {what}")


def _size(scope: _Scope, p: Poly, what: str) -> None:
    if not is_size(p):
        scope.fail(f"{what} is no size: {text(p)}")
    for name in symbols(p):
        if name not in scope.sizes:
            scope.fail(f"size `{name}` is not known in {what}")
