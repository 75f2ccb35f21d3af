"""Types in Triton's interpreter, which makes them anew for each value: most of its time goes there, not into numpy.

    install_kept_types()  # with TRITON_INTERPRET=1: what a type says of a value is made once a type
    install_agreement()  # operands of one type need no promotion, no cast and no broadcast
    install_plain_builtins()  # a builtin is called at once, not through three wrappers
    install_no_overflow_check()  # which is worked out in 64 bits for an assertion that nobody asked for

Values stay as they are, bit for bit: whatever is not plainly the same goes Triton's own way.
"""

from __future__ import annotations

import math
from typing import Any

import triton.language as tl
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter


def install_kept_types() -> None:
    """Blocks of one shape and element share all that their types hold, and values of one type their shape."""
    _keep_block_types()
    _keep_shapes()
    _unwrap_numbers_first()


def _keep_block_types() -> None:
    plain = core.block_type.__init__
    kept: dict[tuple, dict[str, Any]] = {}

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        space = getattr(element_ty, "address_space", None)
        extents = [s.value if isinstance(s, tl.constexpr) else s for s in shape]
        key = (type(element_ty), element_ty.name, space, *extents)
        if key not in kept:
            plain(self, element_ty, shape)
            held = _held(self)
            kept[key] = {**vars(self), "_held": held, "_others": {}}
        self.__dict__.update(kept[key])

    core.block_type.__init__ = init


def _held(type_: Any) -> tuple[Any, Any, Any]:
    """What each value of the type has: how many elements, of which type, and its shape."""
    extents = type_.shape if type_.is_block() else ()
    shape = core.tuple([tl.constexpr(n) for n in extents])
    return tl.constexpr(math.prod(extents)), type_.scalar, shape


def _keep_shapes() -> None:
    def init(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type = handle, type
        held = type.__dict__.get("_held")
        if held is None:
            held = type._held = _held(type)
        self.numel, self.dtype, self.shape = held

    core.tensor.__init__ = init


def _unwrap_numbers_first() -> None:
    plain = core._unwrap_if_constexpr

    def unwrap(value: Any) -> Any:
        kind = type(value)
        if kind is tl.constexpr:
            return value.value
        return value if kind is int or kind is str else plain(value)

    core._unwrap_if_constexpr = unwrap


def install_agreement() -> None:
    """What agrees already is taken as it is, and what does not goes Triton's own way."""
    _check_what_differs()
    _broadcast_what_differs()
    _cast_what_differs()


def _check_what_differs() -> None:
    """Two operands of one type need no promotion; nor do a pointer and an offset, or a value and a number of its kind."""
    plain = TritonSemantic.binary_op_type_checking_impl

    def check(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> tuple[Any, Any]:
        if type(lhs) is tl.tensor and not div_or_mod:
            dtype = lhs.dtype
            if type(rhs) is tl.tensor:
                other = rhs.dtype
                if type(dtype) is tl.dtype:
                    if dtype is other:
                        return self.broadcast_impl_value(lhs, rhs)
                elif allow_lhs_ptr and type(other) is tl.dtype and other.is_int():
                    return self.broadcast_impl_value(lhs, rhs)
            elif arithmetic_check and _is_of_kind(rhs, dtype):
                return self.broadcast_impl_value(lhs, self.scalar_constant(rhs, dtype))
        return plain(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    TritonSemantic.binary_op_type_checking_impl = check


def _is_of_kind(number: Any, dtype: Any) -> bool:
    """Whether it takes the type of the value beside it, which has room for it."""
    if type(dtype) is not tl.dtype:
        return False
    if type(number) is float:
        return dtype.is_floating()
    return type(number) is int and 0 <= number < 128 and dtype is not tl.int1


def _broadcast_what_differs() -> None:
    plain, plain_type = TritonSemantic.broadcast_impl_value, core.block_type.with_element_ty

    def with_element_ty(self: Any, scalar_ty: Any) -> Any:
        if type(scalar_ty) is not tl.dtype:
            return plain_type(self, scalar_ty)
        known = self.__dict__.setdefault("_others", {})
        if scalar_ty.name not in known:
            known[scalar_ty.name] = plain_type(self, scalar_ty)
        return known[scalar_ty.name]

    def broadcast(self: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        left, right = lhs.type, rhs.type
        if left.is_block():
            if right.is_block():
                if left.shape.values == right.shape.values:
                    return lhs, rhs
            else:
                wide = left.with_element_ty(right)
                return lhs, self.tensor(self.builder.create_splat(wide, rhs.handle), wide)
        elif not right.is_block():
            return lhs, rhs
        return plain(self, lhs, rhs)

    TritonSemantic.broadcast_impl_value = broadcast
    core.block_type.with_element_ty = with_element_ty


def _cast_what_differs() -> None:
    plain = TritonSemantic.cast

    def cast(self: Any, input: Any, dst_ty: Any, fp_downcast_rounding: Any = None) -> Any:
        if input.dtype is dst_ty.scalar:
            return input
        return plain(self, input, dst_ty, fp_downcast_rounding)

    TritonSemantic.cast = cast


def install_plain_builtins() -> None:
    """What the interpreter puts in place of a builtin asks first for what it itself passes."""
    wrapper = tl.load.__code__  # each builtin's

    def patch(obj: Any, name: str, member: Any, builder: Any, *scope: Any) -> None:
        function = member
        if getattr(member, "__code__", None) is wrapper:
            function = member.__wrapped__

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = interpreter.interpreter_semantic
            return function(*args, **kwargs)

        scope[0].set_attr(obj, name, call)

    interpreter._patch_attr = patch


def install_no_overflow_check() -> None:
    plain = TritonSemantic.binary_op_sanitize_overflow_impl

    def sanitize(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> None:
        if self.builder.options.debug:
            plain(self, lhs, rhs, binary_op)

    TritonSemantic.binary_op_sanitize_overflow_impl = sanitize
