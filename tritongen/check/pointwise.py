"""Lines without any index: pointwise over tensors that broadcast from the right.

Input: `y = max(x + b, 0)` and the dims of its tensors. Output: the box of the line and where each
tensor is read in it: x[..., d], b[d]. Indices are named after the dims. Not here: op calls (`calls`).
"""

from __future__ import annotations

from tritongen.check.ranges import ZERO, Frame, Target, agree, lower
from tritongen.check.scope import Scope, Variable
from tritongen.check.trees import walk
from tritongen.ir.algebra import Poly, index, poly, text
from tritongen.ir.nodes import BATCH, BATCH_SIZE, Binder
from tritongen.syntax import ast

ONE = poly(1)
Dims = tuple[Poly, ...]


def broadcast(scope: Scope, line: ast.Assign, value: ast.Expr) -> tuple[Target, Frame]:
    """The line's box, and the coordinates at which each tensor is read."""
    tensors = [scope.variables[n] for n in _tensor_names(scope, value)]
    output = scope.outputs.get(line.name)
    dims: Dims = output.dims if output is not None else ()
    for tensor in tensors:
        if output is None:
            dims = _joined(scope, dims, tensor, line)
        else:
            _aligned(scope, tensor, output, line)
    taken = set(scope.taken)
    binders: list[Binder] = []
    coords: list[Poly] = []
    for dim in dims:
        if dim == ONE:
            coords.append(ZERO)
            continue
        name = index_name(dim, taken - scope.index_names | {b.index for b in binders})
        binders.append(Binder(name, ZERO, dim))
        coords.append(index(name))
    scope.taken |= {b.index for b in binders}
    scope.index_names |= {b.index for b in binders}
    target = Target(tuple(binders), tuple(coords), dims)
    bare = {t.name: _coords_of(t.dims, dims, tuple(coords)) for t in tensors}
    return target, Frame(target.ranges, bare=bare)


def _tensor_names(scope: Scope, value: ast.Expr) -> list[str]:
    found = [n.name for n in walk(value) if isinstance(n, ast.Name) and n.name in scope.variables]
    return list(dict.fromkeys(found))


def index_name(dim: Poly, taken: set[str]) -> str:
    """A readable index for a dim that is not taken."""
    if dim == BATCH_SIZE:
        return BATCH
    base = lower(dim)
    candidates = [base, *(c for c in "ijklmnpqrstuv"), *(f"{base}{n}" for n in range(2, 99))]
    return next(c for c in candidates if c not in taken)


def _split(dims: Dims) -> tuple[Dims, bool, Dims]:
    """Dims before `...`, whether it is there, dims after it."""
    if BATCH_SIZE not in dims:
        return (), False, dims
    at = dims.index(BATCH_SIZE)
    return dims[:at], True, dims[at + 1 :]


def _coords_of(own: Dims, dims: Dims, coords: tuple[Poly, ...]) -> tuple[Poly, ...]:
    """A tensor's coordinates in the box: aligned from the right, 0 in its dims of size 1."""
    _, has_batch, tail = _split(own)
    if has_batch:
        # `...` stands at the same place from the right in both.
        whole = coords[len(dims) - len(own) :]
    else:
        whole = coords[len(coords) - len(own) :] if own else ()
    return tuple(ZERO if d == ONE else c for d, c in zip(own, whole, strict=True))


def _joined(scope: Scope, dims: Dims, tensor: Variable, line: ast.Assign) -> Dims:
    """The dims that two tensors broadcast to."""
    long, short = (dims, tensor.dims) if len(dims) >= len(tensor.dims) else (tensor.dims, dims)
    _check_batch(scope, long, short, tensor, line)
    result = list(long)
    for k in range(1, len(short) + 1):
        a, b = long[-k], short[-k]
        if BATCH_SIZE in (a, b) and a != b:
            _batch_mismatch(scope, tensor, line)
        if a == ONE:
            result[-k] = b
        elif b != ONE and a != b:
            agree(scope, index_name(a, set()), a, b, line)
    return tuple(result)


def _aligned(scope: Scope, tensor: Variable, output: Variable, line: ast.Assign) -> None:
    """The tensor broadcasts to exactly the output's dims."""
    dims, own = output.dims, tensor.dims
    _check_batch(scope, dims, own, tensor, line)
    if len(own) > len(dims):
        shown = ", ".join(map(text, own))
        scope.report.fail(
            "E201",
            f"`{tensor.name}` has the dims [{shown}], more than the output `{output.name}`",
            line.span,
            notes=((tensor.span, "declared here"), (output.span, "declared here")),
        )
    for k in range(1, len(own) + 1):
        a, b = dims[-k], own[-k]
        if BATCH_SIZE in (a, b) and a != b:
            _batch_mismatch(scope, tensor, line)
        if b != ONE and a != b:
            agree(scope, index_name(a, set()), a, b, line)


def _check_batch(scope: Scope, a: Dims, b: Dims, tensor: Variable, line: ast.Assign) -> None:
    """`...` may absorb leading dims, never stand beside a named one."""
    for one, other in ((a, b), (b, a)):
        if BATCH_SIZE in one and BATCH_SIZE not in other:
            trailing = len(one) - 1 - one.index(BATCH_SIZE)
            if len(other) > trailing:
                _batch_mismatch(scope, tensor, line)
    if BATCH_SIZE in a and BATCH_SIZE in b:
        if len(a) - a.index(BATCH_SIZE) != len(b) - b.index(BATCH_SIZE):
            _batch_mismatch(scope, tensor, line)


def _batch_mismatch(scope: Scope, tensor: Variable, line: ast.Assign) -> None:
    shown = ", ".join(map(text, tensor.dims))
    named = [text(d) for d in tensor.dims if d != BATCH_SIZE] or ["N"]
    scope.report.fail(
        "E207",
        f"`{tensor.name}[{shown}]` does not line up with `...`",
        line.span,
        label="`...` stands for dims of any number",
        help=f"name the last dims of the other tensor, as `T[..., {', '.join(named)}]`",
        notes=((tensor.span, "declared here"),),
    )
