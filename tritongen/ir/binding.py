"""Binds the arguments of a call: numbers for all sizes, dtypes and batch dims of an op.

Input: an op and the arguments of a call, by name. Output: a `Bound`, or the ValueError that the generated wrapper raises for
the same call (`messages.py` holds the texts of both).

    bind(linear, {"x": torch.ones(4, 64), "w": torch.ones(8, 32)})
    ValueError: linear: w: dim 1 (K): expected 64 (from x), given 32

The batch dims of tensors are expanded to the common shape and flattened to one dim, as in the IR. The same holds for the
additional operands of `batches.py`. `interp.py` computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from tritongen.ir import messages
from tritongen.ir.algebra import Poly, Sym, evaluate, symbols, text
from tritongen.ir.batches import batched, own_batches
from tritongen.ir.dtypes import TORCH_NAMES
from tritongen.ir.nodes import (
    BATCH,
    BATCH_SIZE,
    Constant,
    Define,
    Op,
    Require,
    Scalar,
    Tensor,
    TypeParam,
)

if TYPE_CHECKING:
    import torch

_NAMES_OF_TORCH = {name: dtype for dtype, name in TORCH_NAMES.items()}
_COMPARE = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass(frozen=True, slots=True)
class Bound:
    """One call of an op: `dtypes` maps each type parameter, and "compute", to a concrete dtype."""

    sizes: dict[str, int]
    dtypes: dict[str, str]
    batch_shape: tuple[int, ...]
    values: dict[str, Any] = field(repr=False)  # flattened tensors, numbers, 0-dim tensors

    def size(self, p: Poly) -> int:
        return int(evaluate(p, self.sizes))

    def dtype(self, name: str) -> str:
        return self.dtypes.get(name, name)

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape as the caller sees it, with separate batch dims."""
        parts = [self.batch_shape if d == BATCH_SIZE else (self.size(d),) for d in tensor.dims]
        return tuple(n for part in parts for n in part)


def torch_dtype(name: str) -> torch.dtype:
    import torch

    return getattr(torch, TORCH_NAMES[name])


def operand_dtype(dtype: str, dtypes: Mapping[str, str]) -> torch.dtype:
    """The dtype of an operand in a call whose type parameters are `dtypes`; "compute" is what the forward kept."""
    known = {"compute": "f64" if "f64" in dtypes.values() else "f32", **dtypes}
    return torch_dtype(known.get(dtype, dtype))


def dtype_name(dtype: torch.dtype) -> str:
    """Our name of a torch dtype; torch's own where the language has none (`complex64`)."""
    name = str(dtype).removeprefix("torch.")
    return _NAMES_OF_TORCH.get(name, name)


def type_arguments(op: Op, dtypes: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a call that say what no operand does."""
    return {p.name: torch_dtype(dtypes[p.name]) for p in op.free_typarams}


def bind(op: Op, args: Mapping[str, Any]) -> Bound:
    """Check the arguments as the wrapper does and settle every name of the op."""
    values = _with_defaults(op, args)
    dtypes = _bind_dtypes(op, values)
    for p in op.params:
        if not isinstance(p, Tensor):
            _check_number(op, p, values[p.name])
            _check_device(op, p.name, values)
    sizes = {c.name: int(values[c.name]) for c in op.constants if c.dtype == "int"}
    _bind_dims(op, values, sizes)
    _bind_facts(op, values, sizes)
    _check_dims(op, values, sizes)
    batch_shape = _bind_batch(op, batched(op), values)
    if batched(op):
        sizes[BATCH] = prod(batch_shape)
    inner, owns = own_batches(op)
    flat = {t.name: _flattened(t, values[t.name], batch_shape) for t in batched(op)}
    for own in owns:
        shape = _bind_batch(op, own.operands, values)
        sizes[own.size] = prod(shape)
        flat[own.name] = _flattened(own.tensor, values[own.tensor.name], shape)
    bound = Bound(sizes, dtypes, batch_shape, values | flat)
    _check_outputs(inner, bound)
    return bound


def typing_of(typings: Sequence[Op], args: Mapping[str, Any]) -> Op:
    """The typing whose type parameters fit the arguments; the last one, to complain, where none does."""
    for op in typings:
        try:
            _bind_dtypes(op, _with_defaults(op, args))
        except ValueError:
            continue
        return op
    return typings[-1]


def _with_defaults(op: Op, args: Mapping[str, Any]) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        p.name: p.default
        for p in op.params
        if isinstance(p, (Scalar, Constant)) and p.default is not None
    }
    defaults |= {p.name: torch_dtype(p.default) for p in op.free_typarams if p.default}
    names = [p.name for p in (*op.params, *op.free_typarams)]
    unknown = [name for name in args if name not in names]
    missing = [name for name in names if name not in args and name not in defaults]
    if unknown or missing:
        what = f"unexpected argument {unknown[0]}" if unknown else f"missing argument {missing[0]}"
        raise TypeError(f"{op.name}: {what}")
    return {**defaults, **args}


# ---- one operand at a time ----------------------------------------------------------------------
def _check_tensor(op: Op, operand: Tensor, value: Any) -> None:
    import torch

    names = {"op": op.name, "operand": operand.name}
    if not isinstance(value, torch.Tensor):
        raise ValueError(messages.TENSOR.format(**names, given=type(value).__name__))
    if value.layout != torch.strided:
        raise ValueError(messages.LAYOUT.format(**names, given=value.layout))


def _check_rank(op: Op, operand: Tensor, value: Any) -> None:
    named = sum(d != BATCH_SIZE for d in operand.dims)
    if value.ndim < named or (value.ndim > named and BATCH_SIZE not in operand.dims):
        names = {"op": op.name, "operand": operand.name, "given": value.ndim}
        expected = messages.dims_text(tuple(text(d) for d in operand.dims))
        raise ValueError(messages.RANK.format(**names, expected=expected))


def _check_device(op: Op, name: str, values: Mapping[str, Any]) -> None:
    first = op.tensors[0].name
    expected, given = values[first].device, getattr(values[name], "device", None)
    if given not in (None, expected):
        source = messages.SOURCE.format(operand=first)
        names = {"expected": expected, "source": source, "given": given}
        raise ValueError(messages.DEVICE.format(op=op.name, operand=name, **names))


def _check_number(op: Op, p: Scalar | Constant, value: Any) -> None:
    import torch

    kind = _kind(p.dtype)
    template = messages.SCALAR if isinstance(p, Scalar) else messages.CONSTANT
    if isinstance(p, Scalar) and isinstance(value, torch.Tensor):
        given = _kind(dtype_name(value.dtype)) if value.ndim == 0 else None
        name = dtype_name(value.dtype)
        shown = (
            f"a {value.ndim}-dim tensor"
            if value.ndim
            else f"a 0-dim {TORCH_NAMES.get(name, name)} tensor"
        )
    else:
        given = {bool: "bool", int: "int", float: "float"}.get(type(value))
        shown = repr(value) if given else type(value).__name__
    fits = {"float": ("float", "int", "bool"), "int": ("int", "bool"), "bool": ("bool",)}[kind]
    if isinstance(p, Constant) and kind == "int":
        fits = ("int",)
    if given not in fits:
        expected = {"float": "number", "int": "int", "bool": "bool"}[kind]
        names = {"op": op.name, "operand": p.name}
        raise ValueError(template.format(**names, expected=expected, given=shown))


def _kind(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    return "int" if dtype == "int" or dtype[0] in "iu" else "float"


# ---- operands against each other ----------------------------------------------------------------
def _bind_dtypes(op: Op, values: Mapping[str, Any]) -> dict[str, str]:
    """Checks each operand alone, then against the operands before it: dtype, rank, device."""
    typarams = {p.name: p for p in op.typarams}
    dtypes: dict[str, str] = {}
    sources: dict[str, str] = {}
    for t in op.tensors:
        value = values[t.name]
        _check_tensor(op, t, value)
        given = dtype_name(value.dtype)
        accepted, source = _accepted(t, typarams, dtypes, sources)
        if given not in accepted:
            names = {"op": op.name, "operand": t.name, "expected": _or(accepted), "source": source}
            raise ValueError(messages.DTYPE.format(**names, given=value.dtype))
        _check_rank(op, t, value)
        _check_device(op, t.name, values)
        if t.dtype in typarams or t.dtype == "compute":
            dtypes.setdefault(t.dtype, given)
            sources.setdefault(t.dtype, t.name)
    concrete = {dtypes.get(t.dtype, t.dtype) for t in op.tensors}
    for p in op.free_typarams:
        dtypes[p.name] = dtype_name(values[p.name])
        if dtypes[p.name] not in p.dtypes:
            names = {"op": op.name, "typaram": p.name, "expected": _or(p.dtypes)}
            raise ValueError(messages.TYPE.format(**names, given=values[p.name]))
    return dtypes | {"compute": "f64" if "f64" in concrete else "f32"}


def _or(dtypes: tuple[str, ...]) -> str:
    *most, last = (f"torch.{TORCH_NAMES[d]}" for d in dtypes)
    return f"{', '.join(most)} or {last}" if most else last


def _accepted(
    t: Tensor, typarams: dict[str, TypeParam], dtypes: dict[str, str], sources: dict[str, str]
) -> tuple[tuple[str, ...], str]:
    if t.dtype in dtypes:
        source = messages.TYPE_SOURCE.format(typaram=t.dtype, operand=sources[t.dtype])
        return (dtypes[t.dtype],), source
    if t.dtype == "compute":  # what the forward kept
        return ("f32", "f64"), ""
    if t.dtype not in typarams:
        return (t.dtype,), ""
    return typarams[t.dtype].dtypes, ""


def _named_dims(t: Tensor, ndim: int) -> Iterable[tuple[int, Poly]]:
    """The dims that are not batch dims, with their position in a tensor of ndim dims."""
    before = len(t.dims)
    for position, d in enumerate(t.dims):
        if d == BATCH_SIZE:
            before = position
        else:
            yield position if position < before else ndim - len(t.dims) + position, d


def _batch_part(t: Tensor, shape: tuple[int, ...]) -> tuple[int, int]:
    """The position of the batch dims in the shape: start and number."""
    return t.dims.index(BATCH_SIZE), len(shape) - (len(t.dims) - 1)


def _bind_dims(op: Op, values: Mapping[str, Any], sizes: dict[str, int]) -> None:
    """Every bare symbol by the first operand that has it."""
    settled = set(sizes) | {d.name for d in op.defines}
    sources: dict[str, str] = {}
    for t in op.tensors:
        shape = tuple(values[t.name].shape)
        for position, d in _named_dims(t, len(shape)):
            name = _bare(d)
            if name is None or name in settled:
                continue
            if name not in sources:
                sources[name], sizes[name] = t.name, shape[position]
            elif shape[position] != sizes[name]:
                source = messages.SOURCE.format(operand=sources[name])
                raise ValueError(_dim_error(op, t, position, d, sizes[name], shape, source))


def _bind_batch(op: Op, tensors: tuple[Tensor, ...], values: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape that the batch dims of these operands broadcast to."""
    import torch

    batch_shape: tuple[int, ...] = ()
    first = ""
    for t in tensors:
        shape = tuple(values[t.name].shape)
        start, number = _batch_part(t, shape)
        given = shape[start : start + number]
        try:
            batch_shape = tuple(torch.broadcast_shapes(batch_shape, given))
        except RuntimeError:
            source = messages.SOURCE.format(operand=first)
            names = {"op": op.name, "operand": t.name, "expected": batch_shape, "source": source}
            raise ValueError(messages.BATCH.format(**names, given=given)) from None
        first = first or t.name
    return batch_shape


def _bare(d: Poly) -> str | None:
    """The name of the size that is alone in a dim."""
    if len(d.terms) != 1:
        return None
    ((monomial, value),) = d.terms
    if value != 1 or len(monomial) != 1:
        return None
    ((atom, power),) = monomial
    return atom.name if isinstance(atom, Sym) and power == 1 else None


def _dim_error(op, t, position, d, expected, shape, source) -> str:
    names = {"op": op.name, "operand": t.name, "dim": position, "size": text(d)}
    return messages.DIM.format(**names, expected=expected, source=source, given=shape[position])


# ---- sizes --------------------------------------------------------------------------------------
def _bind_facts(op: Op, values: Mapping[str, Any], sizes: dict[str, int]) -> None:
    for fact in op.facts:
        match fact:
            case Define(name, value):
                sizes[name] = _whole(op, name, value, sizes)
            case Require(batch=batch):
                own = tuple(t for t in op.tensors if t.name in batch)
                _hold(op, fact, {BATCH: prod(_bind_batch(op, own, values))} if own else sizes)


def _hold(op: Op, fact: Require, sizes: dict[str, int]) -> None:
    a, b = _number(op, fact.left, sizes), _number(op, fact.right, sizes)
    if not _COMPARE[fact.op](a, b):
        sides = {"left": a, "relation": messages.OPPOSITE[fact.op], "right": b}
        sides["given"] = given_text(op, (fact.left, fact.right), lambda name: sizes[name])
        raise ValueError(messages.REQUIRE.format(op=op.name, fact=fact.text, **sides))


def _check_dims(op: Op, values: Mapping[str, Any], sizes: dict[str, int]) -> None:
    """Dims that are no bare free symbol: `C // groups`, a constant, a size that is defined."""
    for t in op.tensors:
        shape = tuple(values[t.name].shape)
        for position, d in _named_dims(t, len(shape)):
            expected = _whole(op, text(d), d, sizes)
            if shape[position] != expected:
                raise ValueError(_dim_error(op, t, position, d, expected, shape, ""))


def _check_outputs(op: Op, bound: Bound) -> None:
    for output in op.outputs:
        for d in output.dims:
            _whole(op, text(d), d, bound.sizes)


def _number(op: Op, p: Poly, sizes: dict[str, int]):
    try:
        return evaluate(p, sizes)
    except ZeroDivisionError:
        given = given_text(op, (p,), lambda name: sizes[name])
        raise ValueError(messages.DIVISION.format(op=op.name, value=text(p), given=given)) from None


def given_text(op: Op, polys: tuple[Poly, ...], value: Callable[[str], object]) -> str:
    """Where the sizes of a fact come from: ` (H = 4 from q, G = 3 from k)`. "" where none is of an operand.

    `value`: how the number of a size is shown.
    """
    defined = {d.name: d.value for d in op.defines}
    used, ahead = set[str](), [name for p in polys for name in symbols(p)]
    while ahead:
        name = ahead.pop()
        if name not in used:
            used.add(name)
            ahead += symbols(defined[name]) if name in defined else ()
    of_constants = [c.name for c in op.constants if c.name in used]
    free = used - defined.keys() - {BATCH, *of_constants}
    found: dict[str, str] = {}
    for t in op.tensors:
        for d in t.dims:
            bare = _bare(d)
            if bare in free:
                found.setdefault(bare, t.name)
    if not found:
        return ""
    told = [
        messages.SIZE.format(size=name, value=value(name), operand=operand)
        for name, operand in found.items()
    ]
    told += [messages.NUMBER.format(size=name, value=value(name)) for name in of_constants]
    return messages.GIVEN.format(sizes=", ".join(told))


def _whole(op: Op, name: str, p: Poly, sizes: dict[str, int]) -> int:
    given = _number(op, p, sizes)
    names = {"op": op.name, "size": name, "value": text(p), "given": given}
    if given < 0:
        raise ValueError(messages.NEGATIVE.format(**names))
    if given.denominator != 1:
        raise ValueError(messages.FRACTION.format(**names))
    return int(given)


def _flattened(t: Tensor, value: Any, batch_shape: tuple[int, ...]) -> Any:
    """The tensor with its batch dims expanded to this shape, as one dim."""
    shape = tuple(value.shape)
    start, number = _batch_part(t, shape)
    head, tail = shape[:start], shape[start + number :]
    missing = (1,) * (len(batch_shape) - number)
    aligned = value.reshape((*head, *missing, *shape[start : start + number], *tail))
    expanded = aligned.expand((*head, *batch_shape, *tail))
    return expanded.reshape((*head, prod(batch_shape), *tail))
