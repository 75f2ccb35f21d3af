"""As much of torch as `explain` needs where there is none: tensors that have a shape and no storage.

The playground imports this in a browser; nothing else does. `tests/site/test_playground.py` holds what `explain`
prints over it to what it prints over torch, for every spec.
"""

from __future__ import annotations

import sys
import types
from contextlib import nullcontext
from math import prod
from typing import Any


class Anything(types.ModuleType):
    """What annotations and functions that are never called may name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("arg_names", "warmup", "in_force"):  # of kernels
            raise AttributeError(name)
        made = type(name, (), {}) if name[0].isupper() else Anything(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return args[0]  # a decorator
        return Anything(self.__name__)


class dtype:
    def __init__(self, name: str, itemsize: int):
        self.name, self.itemsize = name, itemsize
        self.is_floating_point = "float" in name
        self.is_complex = False

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class device:
    def __init__(self, type: str, index: int | None = None):
        self.type, self.index = type, index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self.type == other.type

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        return f"device(type='{self.type}')"

    def __str__(self) -> str:
        return self.type


class Size(tuple):
    def numel(self) -> int:
        return prod(self)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return Size(found) if isinstance(key, slice) else found


def dense(shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Strides of what lies without gaps; `order`: the dims, the outermost first."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order or range(len(shape))):
        strides[dim] = step
        step *= max(1, shape[dim])
    return tuple(strides)


CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


class Tensor:
    layout = strided = "strided"
    is_cuda = requires_grad = False
    is_sparse = is_quantized = is_nested = False
    grad_fn = None

    def __init__(self, shape: Any, strides: Any, dtype: dtype, on: device, offset: int = 0):
        self.shape, self._strides = Size(shape), tuple(strides)
        self.dtype, self.device, self._offset = dtype, on, offset

    def _as(self, shape: Any, strides: Any, offset: int = 0) -> Tensor:
        return Tensor(shape, strides, self.dtype, self.device, self._offset + offset)

    def dim(self) -> int:
        return len(self.shape)

    ndim = property(dim)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        return self._strides if dim is None else self._strides[dim]

    def numel(self) -> int:
        return prod(self.shape)

    def element_size(self) -> int:
        return self.dtype.itemsize

    itemsize = property(element_size)
    nbytes = property(lambda self: self.numel() * self.dtype.itemsize)

    def storage_offset(self) -> int:
        return self._offset

    def data_ptr(self) -> int:
        return self._offset * self.dtype.itemsize

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_contiguous(self, memory_format: Any = None) -> bool:
        order = None
        if memory_format in (channels_last, channels_last_3d):
            order = CHANNELS_LAST.get(self.dim())
            if order is None or self.dim() != (4 if memory_format is channels_last else 5):
                return False
        if self.numel() == 0:
            return True
        wanted = dense(self.shape, order)
        return all(
            n == 1 or s == w for n, s, w in zip(self.shape, self._strides, wanted, strict=True)
        )

    def contiguous(self) -> Tensor:
        return self if self.is_contiguous() else self._as(self.shape, dense(self.shape))

    def as_strided(self, shape: Any, strides: Any, offset: int | None = None) -> Tensor:
        return Tensor(
            shape, strides, self.dtype, self.device, self._offset if offset is None else offset
        )

    def view(self, *shape: Any) -> Tensor:
        if len(shape) == 1 and isinstance(shape[0], dtype):
            return Tensor(self.shape, self._strides, shape[0], self.device, self._offset)
        shape = _settled(_listed(shape), self.numel())
        strides = _viewed(self.shape, self._strides, shape)
        if strides is None:
            raise RuntimeError("its strides allow no view")
        return self._as(shape, strides)

    def reshape(self, *shape: Any) -> Tensor:
        try:
            return self.view(*shape)
        except RuntimeError:
            return self.contiguous().view(*shape)

    def permute(self, *dims: Any) -> Tensor:
        dims = _listed(dims)
        return self._as([self.shape[d] for d in dims], [self._strides[d] for d in dims])

    def transpose(self, a: int, b: int) -> Tensor:
        order = list(range(self.dim()))
        order[a], order[b] = order[b], order[a]
        return self.permute(*order)

    def t(self) -> Tensor:
        return self.transpose(0, 1)

    T = property(t)
    mT = property(lambda self: self.transpose(-1, -2))

    def movedim(self, source: int, to: int) -> Tensor:
        order = list(range(self.dim()))
        order.insert(to % self.dim(), order.pop(source))
        return self.permute(*order)

    def expand(self, *shape: Any) -> Tensor:
        shape = _listed(shape)
        behind = len(shape) - self.dim()
        old = [1] * behind + list(self.shape), [0] * behind + list(self._strides)
        sizes = [o if n == -1 else n for n, o in zip(shape, old[0], strict=True)]
        strides = [
            s if n == o and o != 1 or n == 1 else 0
            for n, o, s in zip(sizes, old[0], old[1], strict=True)
        ]
        return self._as(sizes, strides)

    def broadcast_to(self, *shape: Any) -> Tensor:
        return self.expand(*shape)

    def unsqueeze(self, dim: int) -> Tensor:
        at = dim % (self.dim() + 1)
        step = self.shape[at] * self._strides[at] if at < self.dim() else 1
        shape, strides = list(self.shape), list(self._strides)
        return self._as([*shape[:at], 1, *shape[at:]], [*strides[:at], step, *strides[at:]])

    def squeeze(self, dim: int) -> Tensor:
        if self.shape[dim] != 1:
            return self
        kept = [d for d in range(self.dim()) if d != dim % self.dim()]
        return self.permute(*kept)

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        start, end = start % max(1, self.dim()), end % max(1, self.dim())
        inner = prod(self.shape[start : end + 1])
        return self.reshape(*self.shape[:start], inner, *self.shape[end + 1 :])

    def unflatten(self, dim: int, sizes: Any) -> Tensor:
        at = dim % self.dim()
        return self.reshape(*self.shape[:at], *sizes, *self.shape[at + 1 :])

    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        shape = list(self.shape)
        shape[dim] = length
        return self._as(shape, self._strides, start * self._strides[dim])

    def select(self, dim: int, at: int) -> Tensor:
        kept = [d for d in range(self.dim()) if d != dim % self.dim()]
        found = self.permute(*kept)
        found._offset += at * self._strides[dim]
        return found

    def __getitem__(self, key: Any) -> Tensor:
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            given = sum(k is not None for k in keys) - 1
            keys[at : at + 1] = [slice(None)] * (self.dim() - given)
        shape, strides, offset, dim = [], [], 0, 0
        for k in keys:
            if k is None:
                shape.append(1)
                strides.append(0)
                continue
            size, step = self.shape[dim], self._strides[dim]
            dim += 1
            if isinstance(k, slice):
                start, stop, by = k.indices(size)
                shape.append(len(range(start, stop, by)))
                strides.append(step * by)
                offset += start * step
            else:
                offset += k % size * step
        return self._as([*shape, *self.shape[dim:]], [*strides, *self._strides[dim:]], offset)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        dtypes = [a for a in (*args, *kwargs.values()) if isinstance(a, dtype)]
        return Tensor(self.shape, self._strides, (dtypes or [self.dtype])[0], self.device)

    def new_empty(self, shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
        return empty(shape, dtype=dtype or self.dtype, device=device or self.device)

    def untyped_storage(self) -> Tensor:
        return self

    def _filled(self, *args: Any, **kwargs: Any) -> Tensor:
        return self

    copy_ = zero_ = fill_ = detach = clone = _filled


def _listed(shape: tuple) -> list[int]:
    return (
        list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else list(shape)
    )


def _settled(shape: list[int], count: int) -> list[int]:
    known = prod(n for n in shape if n != -1)
    settled = [count // max(1, known) if n == -1 else n for n in shape]
    if prod(settled) != count:
        raise RuntimeError(f"shape {shape} is invalid for {count} elements")
    return settled


def _viewed(shape: Any, strides: Any, wanted: list[int]) -> tuple[int, ...] | None:
    """The strides of a view of another shape, where there is one; as torch finds them."""
    if prod(shape) == 0:
        return tuple(strides) if list(shape) == wanted else dense(tuple(wanted))
    if not shape:
        return (1,) * len(wanted)
    out, at = [0] * len(wanted), len(wanted) - 1
    step, run, seen = strides[-1], 1, 1
    for dim in reversed(range(len(shape))):
        run *= shape[dim]
        ends = dim == 0 or (shape[dim - 1] != 1 and strides[dim - 1] != run * step)
        if not ends:
            continue
        while at >= 0 and (seen < run or wanted[at] == 1):
            out[at] = seen * step
            seen *= wanted[at]
            at -= 1
        if seen != run:
            return None
        if dim > 0:
            step, run, seen = strides[dim - 1], 1, 1
    return None if at != -1 else tuple(out)


float32 = dtype("float32", 4)


# ---- functions ----------------------------------------------------------------------------------
_meta = device("meta")


def _on(where: Any) -> device:
    return where if isinstance(where, device) else device(where) if where else _meta


def empty(*shape: Any, dtype: Any = None, device: Any = None, memory_format: Any = None) -> Tensor:
    sizes = _listed(shape)
    last = memory_format in (channels_last, channels_last_3d)
    order = CHANNELS_LAST.get(len(sizes)) if last else None
    return Tensor(sizes, dense(tuple(sizes), order), dtype or float32, _on(device))


def full(shape: Any, value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return empty(shape, dtype=dtype, device=device)


zeros = ones = empty


def empty_strided(shape: Any, strides: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return Tensor(shape, strides, dtype or float32, _on(device))


def empty_permuted(shape: Any, order: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return Tensor(shape, dense(tuple(shape), tuple(order)), dtype or float32, _on(device))


def empty_like(x: Tensor, dtype: Any = None) -> Tensor:
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    is_dense = prod(x.shape) == 0 or all(
        n == 1 or s == w
        for n, s, w in zip(x.shape, x.stride(), dense(x.shape, tuple(order)), strict=True)
    )
    strides = x.stride() if is_dense else dense(x.shape)
    return Tensor(x.shape, strides, dtype or x.dtype, x.device)


def broadcast_shapes(*shapes: Any) -> Size:
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    out = []
    for sizes in zip(*padded, strict=True):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise RuntimeError(f"shapes {shapes} do not broadcast")
        out.append(wide.pop() if wide else 1)
    return Size(out)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t.expand(*shape) for t in tensors)


def is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def are_deterministic_algorithms_enabled() -> bool:
    return False


DTYPES = {
    **{"float64": 8, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1},
    **{"float8_e5m2": 1, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1},
}
for _name, _size in DTYPES.items():
    globals()[_name] = dtype(_name, _size)
strided = "strided"
contiguous_format, channels_last, channels_last_3d = "contiguous", "last", "last 3d"


class _Module(Anything):
    """This module, with `Anything` for what it does not define."""


_this = sys.modules[__name__]
_this.__class__ = _Module
_this.version = types.SimpleNamespace(hip=None, cuda="13.0")
_this.cuda = types.SimpleNamespace(is_available=lambda: False, device_of=lambda x: nullcontext())
_this._C = types.SimpleNamespace(
    _get_fp32_precision_getter=lambda backend, op: "tf32" if op == "conv" else "none"
)
for _name in ("autograd", "utils", "utils._python_dispatch"):
    sys.modules[f"torch.{_name}"] = Anything(f"torch.{_name}")
