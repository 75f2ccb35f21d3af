"""Binds the arguments of an op call: the callee's type parameters, sizes and `...`, in terms of the caller.

Input: the callee's IR and the caller's tensors. Output: dtypes by type parameter, polys by size, and dims by argument
for `...`. What cannot fit is refused here. What only the call can decide becomes a requirement. `calls` and `inline`
use the result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from tritongen.check.inline import ONE
from tritongen.check.scope import Scope, Variable
from tritongen.errors import Fix
from tritongen.ir import bounds
from tritongen.ir.algebra import Poly, Sym, text
from tritongen.ir.nodes import BATCH_SIZE, Op, Require, Tensor, kind_of
from tritongen.syntax import ast
from tritongen.syntax.unparse import unparse


def bind_dtypes(
    scope: Scope, node: ast.Call, typings: tuple[Op, ...], tensors: dict[str, Variable]
) -> tuple[dict[str, str], Op]:
    """The dtype of each type parameter of the callee, and the typing for these kinds."""
    names = {p.name for p in typings[0].typarams}
    dtypes = _given_types(scope, node, typings[0])
    for t in typings[0].tensors:
        here = tensors[t.name]
        if t.dtype not in names:
            if scope.kind(here.dtype) != kind_of(t.dtype, typings[0]):
                _refuse(scope, node, t, here, t.dtype)
            continue
        before = dtypes.get(t.dtype)
        if before is None or before == "compute" and scope.kind(here.dtype) == "float":
            dtypes[t.dtype] = here.dtype
        elif here.dtype != before and here.dtype != "compute":
            _refuse(scope, node, t, here, before)
        elif scope.kind(before) != scope.kind(here.dtype):
            _refuse(scope, node, t, here, before)
    for typing in typings:
        if all(scope.kind(dtypes[p.name]) == p.kind for p in typing.typarams if p.name in dtypes):
            _check_family(scope, node, typing, dtypes)
            return dtypes, typing
    shown = ", ".join(f"{name} = {dtype}" for name, dtype in dtypes.items())
    scope.report.fail("E301", f"`{node.name}` does not take {shown}", node.span)


def _given_types(scope: Scope, node: ast.Call, callee: Op) -> dict[str, str]:
    """Type parameters that no operand binds: by name in the call, else the default."""
    given = {t.name: t for t in node.types}
    dtypes = {}
    for p in callee.free_typarams:
        if p.name in given and not scope.is_dtype(given[p.name].dtype):
            message = f"unknown dtype `{given[p.name].dtype}`"
            scope.report.fail("E110", message, given[p.name].span)
        dtype = given[p.name].dtype if p.name in given else p.default
        if dtype is None:
            message, help = f"`{node.name}` needs its type `{p.name}`", "give it by name"
            fix = None
            if node.span is not None and not node.types:
                text = unparse(replace(node, types=(ast.TypeKeyword(p.name, p.dtypes[0]),)))
                fix = Fix(node.span, text)
            scope.report.fail("E501", message, node.span, help=help, fix=fix)
        dtypes[p.name] = dtype
    return dtypes


def _refuse(scope: Scope, node: ast.Call, t: Tensor, here: Variable, wanted: str) -> NoReturn:
    scope.report.fail(
        "E301",
        f"`{t.name}` of `{node.name}` is {wanted}, `{here.name}` is {here.dtype}",
        node.span,
        notes=((here.span, "declared here"),),
    )


def _check_family(scope: Scope, node: ast.Call, callee: Op, dtypes: dict[str, str]) -> None:
    families = {p.name: p.dtypes for p in scope.typarams}
    for p in callee.typarams:
        here = dtypes.get(p.name)
        if here is None or here == "compute":
            continue
        beyond = set(families.get(here, (here,))) - set(p.dtypes)
        if beyond:
            message = f"`{node.name}` does not take {', '.join(sorted(beyond))}"
            scope.report.fail("E301", message, node.span)


def bind_dims(scope: Scope, node: ast.Call, callee: Op, tensors: dict[str, Variable]):
    """The callee's sizes, and the dims for which its `...` stands, argument by argument."""
    settled = {d.name for d in callee.defines} | {c.name for c in callee.constants}
    sizes: dict[str, Poly] = {}
    own_batch: dict[str, tuple[Poly, ...]] = {}
    batch: tuple[Poly, ...] = ()
    for t in callee.tensors:
        here = tensors[t.name]
        pairs, own = paired(scope, node, t, here)
        if own is not None:
            own_batch[t.name] = own
            batch = broadcast(scope, node, batch, own)
        for theirs, ours in pairs:
            name = bare(theirs)
            if name is None or name in settled:
                continue
            if name in sizes:
                agree_dims(scope, sizes[name], ours, node, f"`{t.name}` of `{node.name}`")
            sizes.setdefault(name, ours)
    return sizes, own_batch, batch


def paired(scope: Scope, node: ast.Call, t: Tensor, here: Variable):
    """Pairs dims of the callee with dims of the argument, and returns what its `...` stands for."""
    if BATCH_SIZE in t.dims:
        at = t.dims.index(BATCH_SIZE)
        after = len(t.dims) - at - 1
        if len(here.dims) < len(t.dims) - 1:
            _wrong_rank(scope, node, t, here)
        end = len(here.dims) - after
        own = here.dims[at:end]
        named = (*t.dims[:at], *t.dims[at + 1 :])
        pairs = list(zip(named, (*here.dims[:at], *here.dims[end:]), strict=True))
    else:
        own = None
        if len(here.dims) != len(t.dims):
            _wrong_rank(scope, node, t, here)
        pairs = list(zip(t.dims, here.dims, strict=True))
    if any(ours == BATCH_SIZE for _, ours in pairs):
        _wrong_rank(scope, node, t, here)
    return pairs, own


def _wrong_rank(scope: Scope, node: ast.Call, t: Tensor, here: Variable) -> NoReturn:
    wanted, given = (", ".join(map(text, dims)) for dims in (t.dims, here.dims))
    scope.report.fail(
        "E201",
        f"`{t.name}` of `{node.name}` has the dims [{wanted}], `{here.name}` has [{given}]",
        node.span,
        notes=((here.span, "declared here"),),
    )


def broadcast(
    scope: Scope, node: ast.Call, a: tuple[Poly, ...], b: tuple[Poly, ...]
) -> tuple[Poly, ...]:
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    if BATCH_SIZE in long and BATCH_SIZE not in short and short:
        trailing = len(long) - 1 - long.index(BATCH_SIZE)
        if len(short) > trailing:
            scope.report.fail("E207", "named dims do not line up with `...`", node.span)
    result = list(long)
    for k in range(1, len(short) + 1):
        if long[-k] == ONE:
            result[-k] = short[-k]
        elif short[-k] != ONE:
            agree_dims(scope, long[-k], short[-k], node, f"`{node.name}`")
    return tuple(result)


def bare(d: Poly) -> str | None:
    match d.terms:
        case ((((Sym(name), 1),), 1),):
            return name
    return None


def agree_dims(scope: Scope, a: Poly, b: Poly, node: ast.Expr, where: str) -> None:
    if a == b:
        return
    verdict = bounds.prove(a, "==", b, scope.known)
    if verdict is False:
        message = f"{where}: {text(a)} and {text(b)} are never equal"
        scope.report.fail("E504", message, node.span)
    if verdict is None:
        scope.require(Require(a, "==", b, f"{text(a)} == {text(b)}"))
