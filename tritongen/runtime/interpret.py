"""What Triton's interpreter lacks: libdevice, whose functions return None there, bf16, comparisons of scalars,
whose results it holds for numbers of the type compared, and speed in reductions.

    install_libdevice()  # with TRITON_INTERPRET=1, before the first kernel runs
    libdevice.tanh(x)    # inside a kernel: torch's tanh in f64, rounded to x's dtype
    install_bf16()       # conversions that round, products of values and not of their bits
    install_f8()  # the same of f8
    install_tree_reduce()  # tl.reduce and scans with a combiner of one's own: a few calls, not one an element
    install_bool_splat()  # (x > 0) & (s > 0), where x is a tile and s a scalar
    install_bool_argument()  # True, for a number
    install_index()  # range(n), where n is held as an array of one
    install_ones()  # ~x of unsigned integers
    install_extremes()  # tl.maximum and tl.minimum drop a NaN, as on a GPU
    install_dtypes()  # the table of numpy's types is made once
    install_one_patch()  # the language is remapped once a launch, not once a call of a helper

Only functions with a row in `_TORCH` are replaced; a kernel that calls another one fails in the
interpreter, as without this module. On a GPU nothing here is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps, TensorHandle


def _fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return a * b + c


def _round_away(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.frac().abs() == 0.5, x.trunc() + x.sign(), x.round())


def _rcp(x: torch.Tensor) -> torch.Tensor:
    return 1.0 / x


_TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "abs": torch.abs,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atan2": torch.atan2,
    "atanh": torch.atanh,
    "cbrt": lambda x: x.sign() * x.abs() ** (1.0 / 3.0),
    "ceil": torch.ceil,
    "copysign": torch.copysign,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
    "div_rn": torch.div,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfcinv": lambda x: torch.erfinv(1.0 - x),
    "erfcx": torch.special.erfcx,
    "erfinv": torch.erfinv,
    "exp": torch.exp,
    "exp10": lambda x: torch.pow(10.0, x),
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "fast_dividef": torch.div,
    "floor": torch.floor,
    "fma": _fma,
    "fma_rn": _fma,
    "fmod": torch.fmod,
    "hypot": torch.hypot,
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "lgamma": torch.lgamma,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "nearbyint": torch.round,
    "nextafter": torch.nextafter,
    "normcdf": torch.special.ndtr,
    "normcdfinv": torch.special.ndtri,
    "pow": torch.pow,
    "rcp_rn": _rcp,
    "rint": torch.round,
    "round": _round_away,
    "rsqrt": torch.rsqrt,
    "rsqrt_rn": torch.rsqrt,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "sqrt_rn": torch.sqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
    "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
}
_PREDICATES: dict[str, Callable[..., torch.Tensor]] = {
    "finitef": torch.isfinite,
    "isfinited": torch.isfinite,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "signbit": torch.signbit,
}
_IN_OWN_PRECISION = frozenset({"nextafter"})


def install_libdevice() -> None:
    """Replaces the stubs of `triton.language.extra.libdevice` in this process."""
    for name, function in (_TORCH | _PREDICATES).items():
        setattr(libdevice, name, _elementwise(name, function, name in _PREDICATES))


def _elementwise(name: str, function: Callable[..., torch.Tensor], predicate: bool) -> Callable:
    def call(*args: Any, _semantic: Any = None) -> tl.tensor:
        tensors = [a for a in args if isinstance(a, tl.tensor)]
        # The interpreter hands a float argument over as a Python float: f32, as the compiler's.
        dtypes = [t.dtype for t in tensors] or [tl.float32]
        element = max(dtypes, key=lambda t: t.primitive_bitwidth)
        wide = np.float32 if name in _IN_OWN_PRECISION and element != tl.float64 else np.float64
        values = [a.handle.data if isinstance(a, tl.tensor) else _number(a) for a in args]
        result = function(*(torch.from_numpy(v.astype(wide)) for v in values)).numpy()
        element = tl.int1 if predicate else element
        data = result if predicate else result.astype(_NUMPY[element])
        blocks = any(t.type.is_block() for t in tensors)
        type_ = tl.block_type(element, list(data.shape)) if blocks else element
        return tl.tensor(TensorHandle(data, element), type_)

    call.__name__ = name
    return call


_NUMPY = {tl.float32: np.float32, tl.float64: np.float64}


def _number(value: Any) -> np.ndarray:
    return np.array([value.value if isinstance(value, tl.constexpr) else value], np.float64)


# ---- bf16 ---------------------------------------------------------------------------------------
def install_bf16() -> None:
    """Makes bf16 right in the interpreter, which holds it as bits: it truncates f32 instead of rounding, and multiplies bits.

    Our kernels compute in f32, so only conversions and `tl.dot` meet bf16.
    """
    cast, dot = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast_impl(self: Any, src: TensorHandle, dst_type: Any) -> TensorHandle:
        given, wanted = src.dtype.scalar, dst_type.scalar
        if given == wanted or tl.bfloat16 not in (given, wanted):
            return cast(self, src, dst_type)
        if given == tl.bfloat16:
            return cast(self, TensorHandle(_values(src.data), tl.float32), dst_type)
        return TensorHandle(_bits(src.data), tl.bfloat16)

    def create_dot(self: Any, a: TensorHandle, b: TensorHandle, *rest: Any) -> TensorHandle:
        a, b = (
            TensorHandle(_values(x.data), tl.float32) if x.dtype.scalar == tl.bfloat16 else x
            for x in (a, b)
        )
        return dot(self, a, b, *rest)

    InterpreterBuilder.cast_impl = cast_impl
    InterpreterBuilder.create_dot = create_dot


def _values(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _bits(values: np.ndarray) -> np.ndarray:
    rounded = torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)
    return rounded.view(torch.uint16).numpy()


# ---- f8 -----------------------------------------------------------------------------------------
_F8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
_WIDER = {tl.float16: torch.float16, tl.float32: torch.float32, tl.float64: torch.float64}


def install_f8() -> None:
    """The interpreter rounds halves up where it narrows to f8, and makes numbers of infinities and NaN, of those that it widens too."""
    plain, convert = InterpreterBuilder.create_fp_to_fp, interpreter._convert_float

    def create_fp_to_fp(self: Any, src: TensorHandle, dst_type: Any, rounding: Any) -> TensorHandle:
        wanted = dst_type.scalar
        if wanted not in _F8 or src.data.dtype.kind != "f":
            return plain(self, src, dst_type, rounding)
        narrow = torch.from_numpy(np.ascontiguousarray(src.data)).to(_F8[wanted])
        return TensorHandle(narrow.view(torch.uint8).numpy(), wanted)

    def convert_float(bits: np.ndarray, given: Any, wanted: Any, rounding: Any) -> np.ndarray:
        if given not in _F8 or wanted not in _WIDER:
            return convert(bits, given, wanted, rounding)
        held = torch.from_numpy(np.ascontiguousarray(bits)).view(_F8[given]).to(_WIDER[wanted])
        return held.numpy().reshape(bits.shape)

    InterpreterBuilder.create_fp_to_fp = create_fp_to_fp
    interpreter._convert_float = convert_float


# ---- comparisons --------------------------------------------------------------------------------
def install_bool_splat() -> None:
    """A comparison of scalars stays one where it is spread over a tile."""
    plain = InterpreterBuilder.create_splat

    def create_splat(self: Any, ret_ty: Any, arg: TensorHandle) -> TensorHandle:
        if arg.data.dtype == np.bool_:
            arg = TensorHandle(arg.data, tl.int1)
        return plain(self, ret_ty, arg)

    InterpreterBuilder.create_splat = create_splat


def install_bool_argument() -> None:
    """An argument that is True or False is one bit, as on a GPU; the interpreter holds it in 32, and refuses that."""
    plain = interpreter._implicit_cvt

    def convert(arg: Any) -> Any:
        if isinstance(arg, bool):
            return tl.tensor(TensorHandle(np.array([arg]), tl.int1), tl.int1)
        return plain(arg)

    interpreter._implicit_cvt = convert


# ---- bounds of loops ----------------------------------------------------------------------------
def install_index() -> None:
    """Triton 3.6 makes an index of an array of one element by `int()`, which numpy 2.5 refuses."""
    plain = interpreter._patch_lang_tensor

    def patch(tensor: Any, *scope: Any) -> None:
        plain(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch


# ---- bits ---------------------------------------------------------------------------------------
def install_extremes() -> None:
    """`tl.maximum` and `tl.minimum` of floats give the other value for a NaN, as PTX does; the interpreter gives NaN."""
    InterpreterBuilder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
    InterpreterBuilder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)


def install_ones() -> None:
    """All bits of an unsigned integer are set by its largest number: numpy 2 takes no -1 for one."""

    def get_all_ones_value(self: Any, type: Any) -> TensorHandle:
        ones = np.invert(np.zeros(1, interpreter._get_np_dtype(type)))
        return TensorHandle(ones, type.scalar)

    InterpreterBuilder.get_all_ones_value = get_all_ones_value


# ---- speed --------------------------------------------------------------------------------------
def install_one_patch() -> None:
    """A helper finds the language as its kernel's launch left it: to remap it anew took a quarter of the time."""
    patch = interpreter._patch_lang
    nothing = getattr(interpreter, "_LangPatchScope", lambda: None)

    def patch_once(fn: Any) -> Any:
        langs = [m for m in fn.__globals__.values() if m is tl or m is tl.core]
        if langs and not any(tl.core.is_builtin(lang.load) for lang in langs):
            return nothing()
        return patch(fn)

    interpreter._patch_lang = patch_once


def install_dtypes() -> None:
    """Triton makes its table of numpy's types anew for each value that a kernel computes."""
    plain, kept = interpreter._get_np_dtype, dict[str, np.dtype]()

    def np_dtype(dtype: tl.dtype) -> np.dtype:
        if dtype.name not in kept:
            kept[dtype.name] = plain(dtype)
        return kept[dtype.name]

    interpreter._get_np_dtype = np_dtype


# ---- reductions ---------------------------------------------------------------------------------
def install_tree_reduce() -> None:
    """Makes reductions and scans with our own combiners fast: reductions combine halves, scans combine with what is 1, 2, 4, ... before.

    That is one call for a whole tile, where the interpreter has one for each element.
    """
    ReduceOps.generic_reduce = _tree_reduce
    ScanOps.generic_scan = _doubling_scan


def _tree_reduce(self: Any, inputs: tuple[tl.tensor, ...]) -> list[tl.tensor]:
    flat = self.axis is None
    data = [t.handle.data.reshape(-1) if flat else t.handle.data for t in inputs]
    axis = 0 if flat else self.axis
    rank = inputs[0].handle.data.ndim
    while data[0].shape[axis] > 1:
        halves = [np.split(d, 2, axis) for d in data]  # the extent of a block is a power of two
        left, right = (
            [self.to_tensor(h[k], t.dtype.scalar) for h, t in zip(halves, inputs, strict=True)]
            for k in (0, 1)
        )
        combined = self.combine_fn.fn(*left, *right)
        combined = combined if isinstance(combined, tuple) else (combined,)
        data = [c.handle.data for c in combined]
    if self.keep_dims:
        results = [d.reshape((1,) * rank) if flat else d for d in data]
    else:
        results = [d.item() if flat else np.squeeze(d, axis) for d in data]
    return [self.to_tensor(r, t.dtype.scalar) for r, t in zip(results, inputs, strict=True)]


def _doubling_scan(self: Any, inputs: tuple[tl.tensor, ...]) -> list[tl.tensor]:
    dtypes = [t.dtype.scalar for t in inputs]
    data = [np.moveaxis(t.handle.data, self.axis, 0) for t in inputs]
    step = 1
    while step < len(data[0]):
        # Whole blocks, because extents are powers of two. Elements with nothing `step` before them stay as they are.
        before = [self.to_tensor(np.roll(d, step, 0), t) for d, t in zip(data, dtypes, strict=True)]
        own = [self.to_tensor(d, t) for d, t in zip(data, dtypes, strict=True)]
        combined = self.combine_fn.fn(*before, *own)
        combined = combined if isinstance(combined, tuple) else (combined,)
        data = [
            np.concatenate([d[:step], c.handle.data[step:]])
            for d, c in zip(data, combined, strict=True)
        ]
        step *= 2
    whole = [np.moveaxis(d, 0, self.axis) for d in data]
    return [self.to_tensor(d, t) for d, t in zip(whole, dtypes, strict=True)]
